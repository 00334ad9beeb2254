/* Counters for others of this user to follow, as `gmlake top` does: asked for by a letter, so that
 * a request costs nothing more, and told by the thread that answers.
 */
#ifndef GML_TORCH_PUBLISH_H
#define GML_TORCH_PUBLISH_H

#include "gmlake.h"

/* The sums of these, of gml_stats. */
#define GML_COUNTERS_OF_STATS(X)                                                                   \
    X(live_blocks)                                                                                 \
    X(live_bytes)                                                                                  \
    X(requested_bytes)                                                                             \
    X(reserved_bytes)                                                                              \
    X(host_bytes)                                                                                  \
    X(peak_live_bytes)                                                                             \
    X(peak_reserved_bytes)                                                                         \
    X(allocations)                                                                                 \
    X(frees)                                                                                       \
    X(driver_time_ns)                                                                              \
    X(views)                                                                                       \
    X(view_bytes)                                                                                  \
    X(cross_stream_waits)                                                                          \
    X(borrowed_bytes)

/* Of all lakes of a process on one device. Sizes in bytes. */
typedef struct gml_counters {
    uint64_t device;
    uint64_t start_ns; /* CLOCK_REALTIME: since when the process publishes */
    uint64_t driver_calls;
    uint64_t largest_free_bytes; /* the largest of a lake */
#define GML_COUNTER(name) uint64_t name;
    GML_COUNTERS_OF_STATS(GML_COUNTER)
#undef GML_COUNTER
    uint64_t states[GML_STATE_COUNT];
} gml_counters;

/* Publishes the lakes below PyTorch, open now or later, and `lake`, if that is not NULL, until the
 * process ends. `name`: of who may be found together. A child of fork() begins anew. 0, or an
 * errno. */
int gml_publish(const char *name, gml_lake *lake);

/* Before the lake is closed. */
void gml_publish_no_more(const gml_lake *lake);

/* Answers with what is published; false if the other one is gone. */
bool gml_publish_answer(int socket);

/* Asks a process of this user, for half a second at most. GML_UNKNOWN_ADDRESS if it publishes
 * nothing by that name, GML_UNSUPPORTED if it runs in another container, GML_NOT_READY if it does
 * not answer; with a reason. */
gml_status gml_read_counters(const char *name, int process, gml_counters *out, size_t capacity,
                             size_t *count, char *reason, size_t reason_bytes);

/* What the names of their sockets begin with, before the number of the process. */
void gml_published_name(const char *name, char *out, size_t out_bytes);

#endif
