/* Graphs that take turns: no two of one turn run at the same time, and what one leaves in its
 * temporary memory is nothing to another. So this memory is common to them (driver/common.h), under
 * each graph's own addresses.
 *
 * Each capture has a heap of its own, on a driver over the turn's memory. What lives in it when the
 * capture ends, inputs and outputs, is kept from the others.
 */
#ifndef GML_LAKE_TURNS_H
#define GML_LAKE_TURNS_H

#include "base/list.h"
#include "driver/common.h"
#include "policy/policy.h"

typedef struct gml_turn {
    gml_link link;   /* must be first; in the list of all */
    uint64_t number; /* never 0 */
    size_t heap_count;
    gml_common common;
} gml_turn;

typedef struct gml_turns {
    gml_link all;
    uint64_t held_bytes; /* by the memory of all turns */
} gml_turns;

/* The turn of that number, made if need be, for one heap more; NULL without host memory, with a
 * reason in the driver. */
gml_turn *gml_turn_join(gml_turns *turns, gml_driver *driver, uint64_t number);

/* A heap of the turn has ended, or there was none in the end. The turn goes with the last one. */
void gml_turn_leave(gml_turn *turn);

/* Keeps every chunk of the policy in which something lives from the other graphs of its turn. After
 * a failure, which has its reason in the policy's driver, some may be kept. pre: the driver is not
 * frozen. */
gml_status gml_turn_settle(gml_policy *policy);

/* Ends turns without heaps whose memory the driver refused to take back. */
void gml_turns_trim(gml_turns *turns);

/* Forgets all turns, as the lake closes. pre: none has a heap. */
void gml_turns_close(gml_turns *turns);

#endif
