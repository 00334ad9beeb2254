/* What there was when a request was refused, what was tried, and the sentences about it.
 *
 * There is one account of a refusal. A lake takes it, once, under its lock; a recording carries its
 * numbers. gml_situation_say() writes the sentences, for exceptions and for what reads recordings.
 */
#ifndef GML_LAKE_SITUATION_H
#define GML_LAKE_SITUATION_H

#include "driver/driver.h"

/* The kind of a private pool. */
enum { GML_POOL_KIND_UNKNOWN, GML_POOL_KIND_GRAPH, GML_POOL_KIND_MEMPOOL };

/* The numbers of a situation, each once. Sizes in bytes. */
#define GML_SITUATION_NUMBERS(X)                                                                   \
    X(size_bytes) /* asked for */                                                                  \
    X(stream)                                                                                      \
    X(pool_owner) /* the private pool that was to serve it; (0, 0): none */                        \
    X(pool_number)                                                                                 \
    X(device)                                                                                      \
    X(total_bytes)  /* of the device; 0: it did not say */                                         \
    X(free_bytes)   /* of them */                                                                  \
    X(limit_bytes)  /* that this process may hold; 0: not known, or none */                        \
    X(margin_bytes) /* that stay free for others */                                                \
    X(room_bytes)   /* new memory that could have been taken */                                    \
    X(held_bytes)   /* by the allocator that refused */                                            \
    X(live_bytes)   /* of them in tensors, elastic ones and the following left out */              \
    X(live_blocks)                                                                                 \
    X(host_bytes)    /* beside, of the host */                                                     \
    X(elastic_bytes) /* in elastic tensors */                                                      \
    X(pending_bytes) /* freed, and still used by other streams */                                  \
    X(idle_bytes)    /* free, and may serve the request */                                         \
    X(pieces)        /* of them; 0: not counted */                                                 \
    X(largest_bytes) /* the largest request that these serve */                                    \
    X(serves_bytes)  /* the largest that would have been served, with new memory */                \
    X(streams_bytes) /* free, of other streams, whose work cannot be waited for */                 \
    X(pools_bytes)   /* free, in private pools that serve nothing else */                          \
    X(most_bytes)    /* of them, in the pool that has most of it */                                \
    X(most_owner)                                                                                  \
    X(most_number)                                                                                 \
    X(most_kind)                                                                                   \
    X(outside_bytes)        /* free, outside of the private pool that was to serve */              \
    X(regions_bytes)        /* held by other lakes of the device, awake */                         \
    X(regions_idle_bytes)   /* of them free */                                                     \
    X(asleep_bytes)         /* of lakes that sleep: not held */                                    \
    X(native_bytes)         /* held by PyTorch's own allocator beside gmlake */                    \
    X(is_capturing)         /* a graph was captured: nothing can be waited for or given back */    \
    X(is_arena)             /* free and total are of the one allocation that serves */             \
    X(is_limited)           /* a limit left less than the device */                                \
    X(is_shared)            /* with processes that are asked for memory */                         \
    X(processes)            /* of these, */                                                        \
    X(processes_held_bytes) /* what they hold, */                                                  \
    X(processes_idle_bytes) /* of it what they could give when they were asked last, */            \
    X(processes_silent)     /* and how many did not answer */                                      \
    X(is_region)            /* a region's lake refused */                                          \
    X(tried)                /* bits, by gml_tried */

typedef struct gml_situation {
#define GML_SITUATION_FIELD(name) uint64_t name;
    GML_SITUATION_NUMBERS(GML_SITUATION_FIELD)
#undef GML_SITUATION_FIELD
    char policy[24]; /* "": not gmlake's but PyTorch's own allocator refused */
} gml_situation;

/* Which case it is. */
typedef enum gml_case {
    GML_CASE_FULL,       /* what could serve it is live */
    GML_CASE_FRAGMENTED, /* enough is free, in pieces */
    GML_CASE_ELSEWHERE,  /* enough is free, where it cannot serve this request */
    GML_CASE_LIMIT,
    GML_CASE_OUTSIDE, /* what is missing is held outside of the allocator */
    GML_CASE_COUNT
} gml_case;

gml_case gml_situation_case(const gml_situation *self);
const char *gml_case_name(gml_case value);

typedef enum gml_sentence {
    GML_SAY_VERDICT, /* which case it is */
    GML_SAY_REMEDY,  /* what would have been served, and the setting that would have helped */
    GML_SAY_DEVICE,
    GML_SAY_HELD,
    GML_SAY_OTHERS,
    GML_SAY_TRIED,
    GML_SAY_COUNT
} gml_sentence;

enum { GML_SAY_BYTES = 640 }; /* enough for any of them */

/* Writes the sentences of that kind, each with its full stop, a space between; "" where there is
 * nothing to say. */
void gml_situation_say(const gml_situation *self, gml_sentence which, char *out, size_t out_bytes);

/* What another allocator, or another process, holds of the device's memory. */
uint64_t gml_situation_others(const gml_situation *self);

/* Notes that this thread tries that for its request, beside what lakes note themselves. */
void gml_note_tried(gml_tried step);

/* The same for what a lake has tried. */
void gml_note_all_tried(uint64_t tried);

/* What it has tried so far, as bits; forgotten by the call, for the next request. */
uint64_t gml_take_tried(void);

/* The account of this thread's last refusal; size_bytes 0: there was none yet. */
gml_situation *gml_last_refusal(void);

#endif
