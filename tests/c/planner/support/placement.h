/* Small placements, and what a valid one is, worked out byte by byte and moment by moment. */
#ifndef GML_TEST_PLACEMENT_H
#define GML_TEST_PLACEMENT_H

#include "gmlake_plan.h"
#include "support/check.h"

enum { STAGE_MOST = 12, STAGE_BYTES = 40, STAGE_TIMES = 24 };

/* A small problem that stays in memory of its own, with a placement of it. */
typedef struct stage {
    gml_lifetime lifetimes[STAGE_MOST];
    gml_ordering orderings[STAGE_MOST];
    uint64_t offsets[STAGE_MOST];
    gml_problem problem;
    uint64_t peak;
} stage;

void stage_open(stage *scene, uint64_t alignment, uint64_t period);
void stage_place(stage *scene, uint64_t size, uint64_t start, uint64_t end, gml_stream stream,
                 uint64_t offset);
void stage_order(stage *scene, uint64_t time, gml_stream before, gml_stream after);

/* The peak becomes the largest end. */
void stage_settle_peak(stage *scene);

/* Each of the following is for an alignment of 1, addresses below STAGE_BYTES and times below
 * STAGE_TIMES or the period. */

/* Whether lifetime i lives at `time`. */
bool stage_lives_at(const stage *scene, size_t i, uint64_t time);

/* Whether lifetime i has that byte. */
bool stage_covers(const stage *scene, size_t i, uint64_t byte);
bool stage_is_valid(const stage *scene);

/* A random problem, with or without a period and streams, and a valid placement. */
void stage_fill(stage *scene, check_random *random);

#endif
