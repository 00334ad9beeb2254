/* A lane: the pool of one stream. It is a range of addresses as large as the device, in which
 * chunks that the stitching policy lends lie where plans need them.
 *
 * A chunk is attached at the first touch and stays until nothing in it is used and somebody else
 * needs it. So a plan that has served once makes no driver call again.
 */
#ifndef GML_PLAN_LANE_H
#define GML_PLAN_LANE_H

#include "plan/occupancy.h"
#include "policy/stitch/stitch.h"

typedef struct gml_lane gml_lane;

/* A live block in a lane. */
typedef struct gml_lane_block {
    gml_block block; /* must be first */
    gml_lane *lane;
    uint64_t offset;
    struct gml_lane_block *previous, *next; /* of those that begin in the same chunk, in no order */
    const struct gml_kind *kind;            /* of the step in which it was served; NULL: none */
    uint64_t serial;                        /* of that step */
    bool is_borrowed;
} gml_lane_block;

typedef struct gml_lane_cell {
    gml_placement *chunk; /* NULL: not attached */
    gml_lane_block *first;
} gml_lane_cell;

struct gml_lane {
    gml_lane *next;
    gml_pond *pond;
    gml_address base; /* 0: not reserved yet */
    gml_lane_cell *cells;
    uint64_t cell_count;
    uint64_t attached_count;
    uint64_t prefix_count; /* of cells from the first on that are all attached */
    uint64_t stuck_cell;   /* where addresses are still mapped since the driver refused to unmap */
    uint64_t stuck_bytes;  /* them; 0: none */
    gml_occupancy occupancy;
};

/* All lanes over one stitching policy. */
typedef struct gml_lanes {
    gml_stitch *stitch;
    gml_lane *first; /* in the order in which they were made */
    gml_lane *latest;
    uint64_t attached_count; /* over all lanes */
    gml_pool blocks;
    gml_placement **scratch_chunks;
    size_t scratch_room;
} gml_lanes;

void gml_lanes_init(gml_lanes *lanes, gml_stitch *stitch);

/* Gives everything back, live blocks included; goes on after a failure and returns the first. */
gml_status gml_lanes_close(gml_lanes *lanes);

/* The lane of a stream; NULL if it has none. */
gml_lane *gml_lanes_find(gml_lanes *lanes, gml_stream stream);

/* The same, made if need be; NULL when the host has no memory. */
gml_lane *gml_lanes_make(gml_lanes *lanes, gml_stream stream);

/* Attaches chunks below `end_bytes`, as many as the stitching policy has whole and idle for the
 * stream. What fails is attached when it is touched. */
void gml_lane_attach_idle(gml_lanes *lanes, gml_lane *lane, uint64_t end_bytes);

/* A block at just this place; NULL where a byte of it is in use, lies outside, or cannot be
 * attached. Multiples of 512. Then nothing has changed, but chunks may have been attached. */
gml_lane_block *gml_lane_take(gml_lanes *lanes, gml_lane *lane, uint64_t offset,
                              uint64_t size_bytes);
void gml_lane_give(gml_lanes *lanes, gml_lane_block *block);

/* The smallest free run within [begin, end) that holds `size_bytes`, among the first of them;
 * false: there is none. */
bool gml_lane_best_fit(const gml_lane *lane, uint64_t begin, uint64_t end, uint64_t size_bytes,
                       uint64_t *offset, uint64_t *run_bytes);

/* The same in what is attached. */
bool gml_lane_best_attached(const gml_lane *lane, uint64_t size_bytes, uint64_t *offset);

/* Gives chunks in which nothing is used back to the stitching policy, after waiting for the device:
 * `most` of them, those at the highest addresses of each lane first. Nothing while that is not
 * possible, because the driver is frozen or the stream of `asking` (may be NULL) captures. *is_any:
 * whether a chunk was given back. */
gml_status gml_lanes_release_idle(gml_lanes *lanes, const gml_pond *asking, uint64_t most,
                                  bool *is_any);

/* The largest free run of what is attached at the beginning of the lane. */
uint64_t gml_lane_largest_free(const gml_lane *lane);

/* See gml_policy_ops. */
gml_status gml_lanes_check(const gml_lanes *lanes);
void gml_lanes_visit(const gml_lanes *lanes, const gml_visitor *visitor);

#endif
