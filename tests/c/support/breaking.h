/* A driver whose calls fail by number, and whose copies are late: they happen when they are waited
 * for, as a device is free to do. Memory that goes before is a fault. To be quick, copies take one
 * byte in BREAKING_STRIDE_BYTES. */
#ifndef GML_TEST_BREAKING_H
#define GML_TEST_BREAKING_H

#include "gmlake.h"

enum { BREAKING_MOST = 3, BREAKING_STRIDE_BYTES = 1 << 16 };

/* gml_aids.wrap. It is asked where an aid is wanted below what can sleep, so `fail_call` must be
 * set, to anything: UINT64_MAX, say. All calls go well at first. One lake at a time. */
gml_status breaking_wrap(const gml_aids *aids, gml_driver **driver, gml_watcher **watcher);

/* From now on calls are counted from 1, and those of these numbers fail, in rising order; 0: none.
 */
void breaking_begin(const uint64_t numbers[BREAKING_MOST]);

/* How many were made since, and how many of the numbers were among them. */
uint64_t breaking_made(void);
uint64_t breaking_struck(void);

/* Whether each call of that kind fails, besides. */
void breaking_refuse(gml_driver_call call, bool is_refused);

/* Memory that went before a copy of it was waited for. */
uint64_t breaking_faults(void);

#endif
