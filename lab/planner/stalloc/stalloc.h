/* The parts of STAlloc's synthesis (Zhang et al., "STAlloc: Enhancing Memory Efficiency in
 * Large-Scale Model Training with Spatio-Temporal Planning", EuroSys 2026, section 5.1).
 *
 * Names as there: a request is one buffer or a group of buffers with a local plan; requests of one
 * size are cut into memory-layers.
 */
#ifndef GML_LAB_STALLOC_H
#define GML_LAB_STALLOC_H

#include "planner/instance.h"

/* Live on [start, end), raw times. */
typedef struct gml_stalloc_request {
    uint64_t size_bytes, start, end;
    uint32_t first, count; /* of its items, in gml_stalloc_requests.items */
} gml_stalloc_request;

typedef struct gml_stalloc_requests {
    gml_stalloc_request *list; /* room for one per item */
    size_t count;
    uint32_t *items; /* every item once, request by request */
    size_t item_count;
    uint64_t *addresses; /* by item: within its request */
} gml_stalloc_requests;

gml_status gml_stalloc_requests_open(gml_stalloc_requests *requests, size_t item_count);
void gml_stalloc_requests_close(gml_stalloc_requests *requests);

/* stalloc_phase.c: HomoPhase groups, fused where that leaves fewer bubbles; everything else is a
 * request of its own. GML_NO_HOST_MEMORY. */
gml_status gml_stalloc_group(const gml_problem *problem, const gml_instance *instance,
                             gml_stalloc_requests *requests);

/* stalloc_layer.c: HomoSize groups in descending size; `bases` is by request. As above. */
gml_status gml_stalloc_layer(const gml_stalloc_requests *requests, uint64_t *bases);

/* stalloc.c: the synthesis as published: HomoPhase groups and their fusion by time-memory product;
 * the groups as requests of their own in HomoSize memory-layers in descending size, with smaller
 * ones going into idle intervals of larger layers. Phases come from the problem; offsets are by
 * item. pre: nothing wrapped. GML_NO_HOST_MEMORY.
 */
gml_status gml_stalloc_place(const gml_problem *problem, const gml_instance *instance,
                             uint64_t *offsets, uint64_t *peak_bytes);

#endif
