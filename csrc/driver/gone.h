/* Addresses from which memory went: whoever tells an observer of segments has to tell of memory
 * that went even where other memory lies at the same addresses by now.
 *
 * Noted by the counted calls unmap and free, whichever driver of a lake makes them; all drivers of
 * a lake share one. No lock of its own: every caller holds the lake's.
 */
#ifndef GML_DRIVER_GONE_H
#define GML_DRIVER_GONE_H

#include "gmlake.h"

/* Who looks: the lake's own history, and that of a framework. */
typedef enum gml_looker { GML_LOOKER_LAKE, GML_LOOKER_FRAMEWORK, GML_LOOKERS } gml_looker;

typedef struct gml_gone_range {
    gml_address address, end;
} gml_gone_range;

typedef struct gml_gone_list {
    gml_gone_range widest; /* holds what the ranges have no room for; empty: end is 0 */
    gml_gone_range *ranges;
    size_t count, room;
    bool is_wanted;
} gml_gone_list;

typedef struct gml_gone {
    uint64_t changes; /* of the memory that is held, and of where it lies for good: not of views */
    gml_gone_list lists[GML_LOOKERS];
} gml_gone;

/* Memory went from the range. Without host memory, or beyond some thousand ranges, `widest` is
 * extended to hold it: more than what went is told then, and nothing is missed. */
void gml_gone_add(gml_gone *gone, gml_address address, uint64_t size_bytes);

/* A look is at hand, or nothing has changed since the last one: what went by now is settled. */
static inline void gml_gone_settle(gml_gone *gone, gml_looker looker) {
    gone->lists[looker].count = 0;
    gone->lists[looker].widest = (gml_gone_range){0, 0};
}

/* Frees the lists. */
void gml_gone_clear(gml_gone *gone);

#endif
