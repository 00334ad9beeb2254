/* A driver that fails on purpose: it wraps another, and refuses chosen calls, or skips them and
 * reports success. */
#ifndef GML_HOOKS_FAULT_H
#define GML_HOOKS_FAULT_H

#include "driver/driver.h"

/* Wraps `inner`, which it then owns; on failure `inner` stays the caller's. Fails the call number
 * `nth` (from 1, 0: none), and every call with a probability of `per_million`, drawn from `seed`.
 * create, malloc and map fail with GML_OUT_OF_MEMORY, the others with GML_DRIVER_FAILED, before
 * `inner` sees the call. event_query may also be failed. memory_info, destroy and the optional
 * entries never fail, and are not counted. */
gml_status gml_fault_driver_open(gml_driver *inner, uint64_t nth, uint64_t per_million,
                                 uint64_t seed, gml_driver **out);

/* From now on that wrapper skips the calls whose bit (1 << gml_driver_call) is set and returns
 * GML_OK, to test the effect of a missing ordering. GML_INVALID_ARGUMENT, with nothing changed, for
 * calls other than event_record, event_record_all, event_query, stream_wait and those that
 * synchronise. pre: `driver` is of gml_fault_driver_open(). */
gml_status gml_fault_driver_skip(gml_driver *driver, uint64_t calls);

#endif
