/* Which work of streams comes after which: vector clocks (Mattern 1989) over the orderings that
 * events, waits and synchronisation make.
 *
 * Each stream counts its own time, which advances whenever another clock copies it. A clock holds
 * one time per stream: a stream's clock is what its next work comes after, an event's is what has
 * run when it is complete, the host's is what is known to have run.
 *
 * Streams and events are created first, which may fail; recording their orderings cannot.
 */
#ifndef GML_HOOKS_RACE_ORDER_H
#define GML_HOOKS_RACE_ORDER_H

#include "driver/driver.h"

/* The streams that the driver is never asked about, as if they were one: a program may have any of
 * them use memory. */
#define GML_ORDER_UNSEEN (UINT64_MAX - 1)

/* Work of a stream up to a time. */
typedef struct gml_stamp {
    size_t stream; /* its number */
    uint64_t time;
} gml_stamp;

typedef struct gml_order_stream {
    gml_stream handle;
    uint64_t *clock; /* by number of the stream; its own entry is its time */
} gml_order_stream;

typedef struct gml_order {
    gml_map numbers; /* stream + 1 -> its number + 1 */
    gml_map events;  /* event -> its clock */
    gml_order_stream *streams;
    size_t stream_count;
    size_t room;    /* entries of each clock, and of `streams` */
    uint64_t *host; /* clock of what the host knows to have run */
} gml_order;

/* A zeroed order is empty. */
void gml_order_close(gml_order *order);

/* The number of a stream, and room for the clock of an event. Created if necessary.
 * GML_NO_HOST_MEMORY; GML_INVALID_ARGUMENT for 2^64 - 1, which is no stream. */
gml_status gml_order_find(gml_order *order, gml_stream stream, size_t *number);
gml_status gml_order_prepare(gml_order *order, gml_event event);

/* The last work that is queued on the stream by now. */
gml_stamp gml_order_now(const gml_order *order, size_t stream);

/* Whether what `stream` is given from now on comes after `earlier`, and whether the host knows that
 * `earlier` has run. */
bool gml_order_is_before(const gml_order *order, gml_stamp earlier, size_t stream);
bool gml_order_is_known(const gml_order *order, gml_stamp earlier);

/* Records orderings. An event that was never recorded has no effect. pre: created as above. */
void gml_order_record(gml_order *order, gml_event event, size_t stream);
void gml_order_record_all(gml_order *order, gml_event event);
void gml_order_wait(gml_order *order, size_t stream, gml_event event);
void gml_order_learn_event(gml_order *order, gml_event event);
void gml_order_learn_stream(gml_order *order, size_t stream);
void gml_order_learn_all(gml_order *order);
void gml_order_forget_event(gml_order *order, gml_event event);

#endif
