/* Requests up to 1 MiB in `gmlake-paper`: "the original PyTorch splitting method of the caching
 * allocator" (GMLake, section 3.2): 2 MiB segments, best fit by size and address, split at 512
 * bytes, merged with free neighbours. */
#include "base/rounding.h"
#include "base/status.h"
#include "paper/paper.h"

#include <inttypes.h>

static void list_cell(gml_paper_cell *cell) {
    cell->is_used = false;
    gml_tree_insert(&cell->lane->idle_cells, &cell->node);
}

static void add_segment(gml_paper *self, gml_paper_cell *first) {
    first->previous_segment = NULL;
    first->next_segment = self->segments;
    if (self->segments) {
        self->segments->previous_segment = first;
    }
    self->segments = first;
}

static void remove_segment(gml_paper *self, gml_paper_cell *first) {
    if (first->previous_segment) {
        first->previous_segment->next_segment = first->next_segment;
    } else {
        self->segments = first->next_segment;
    }
    if (first->next_segment) {
        first->next_segment->previous_segment = first->previous_segment;
    }
}

static gml_status grow_segment(gml_paper *self, gml_paper_lane *lane, gml_paper_cell **out) {
    gml_driver *driver = self->base.driver;
    if (GML_PAPER_SEGMENT_BYTES > self->limit_bytes - self->base.reserved_bytes) {
        return gml_driver_fail(driver, GML_OUT_OF_MEMORY,
                               "a segment of 2 MiB more would exceed the capacity of %" PRIu64
                               " bytes",
                               self->limit_bytes);
    }
    gml_paper_cell *cell = gml_pool_take(&self->cell_pool);
    if (!cell) {
        return gml_driver_fail(driver, GML_NO_HOST_MEMORY, "no host memory for a new segment");
    }
    gml_status status = gml_driver_malloc(driver, GML_PAPER_SEGMENT_BYTES, &cell->node.address);
    if (status != GML_OK) {
        gml_pool_give(&self->cell_pool, cell);
        return status;
    }
    self->base.reserved_bytes += GML_PAPER_SEGMENT_BYTES;
    self->base.small_bytes += GML_PAPER_SEGMENT_BYTES;
    cell->node.size_bytes = GML_PAPER_SEGMENT_BYTES;
    cell->lane = lane;
    add_segment(self, cell);
    list_cell(cell);
    *out = cell;
    return GML_OK;
}

/* Cuts a cell in no tree down to `size_bytes`; the rest becomes free. Without host memory for the
 * rest the cell stays as large as it is. */
static void split_cell(gml_paper *self, gml_paper_cell *cell, uint64_t size_bytes) {
    gml_paper_cell *rest = gml_pool_take(&self->cell_pool);
    if (!rest) {
        return;
    }
    rest->node.size_bytes = cell->node.size_bytes - size_bytes;
    rest->node.address = cell->node.address + size_bytes;
    rest->lane = cell->lane;
    rest->before = cell;
    rest->after = cell->after;
    if (rest->after) {
        rest->after->before = rest;
    }
    cell->after = rest;
    cell->node.size_bytes = size_bytes;
    list_cell(rest);
}

gml_status gml_paper_small_allocate(gml_paper *self, gml_paper_lane *lane, uint64_t size_bytes,
                                    gml_block **out) {
    uint64_t rounded_bytes = gml_round_up(size_bytes, GML_ALIGNMENT);
    gml_state state = GML_STATE_EXACT;
    gml_paper_cell *cell =
        gml_paper_cell_of(gml_tree_at_least(&lane->idle_cells, rounded_bytes, 0));
    if (!cell) {
        gml_status status = grow_segment(self, lane, &cell);
        if (status != GML_OK) {
            return status;
        }
        state = GML_STATE_GROW;
    }
    gml_tree_remove(&lane->idle_cells, &cell->node);
    if (cell->node.size_bytes > rounded_bytes) {
        split_cell(self, cell, rounded_bytes);
        state = state == GML_STATE_EXACT ? GML_STATE_SPLIT : state;
    }
    cell->is_used = true;
    cell->block = (gml_block){.address = cell->node.address,
                              .requested_bytes = size_bytes,
                              .block_bytes = cell->node.size_bytes,
                              .stream = lane->stream,
                              .state = state,
                              .is_small = true};
    *out = &cell->block;
    return GML_OK;
}

/* Joins `right` to the free cell on its left; neither is in a tree. */
static void absorb(gml_paper *self, gml_paper_cell *left, gml_paper_cell *right) {
    left->node.size_bytes += right->node.size_bytes;
    left->after = right->after;
    if (left->after) {
        left->after->before = left;
    }
    gml_pool_give(&self->cell_pool, right);
}

void gml_paper_small_free(gml_paper *self, gml_paper_cell *cell) {
    gml_tree *idle = &cell->lane->idle_cells;
    gml_paper_cell *after = cell->after;
    if (after && !after->is_used) {
        gml_tree_remove(idle, &after->node);
        absorb(self, cell, after);
    }
    gml_paper_cell *before = cell->before;
    if (before && !before->is_used) {
        gml_tree_remove(idle, &before->node);
        absorb(self, before, cell);
        cell = before;
    }
    list_cell(cell);
}

/* Frees the structs of a segment that the driver has taken back. */
static void forget_segment(gml_paper *self, gml_paper_cell *first) {
    remove_segment(self, first);
    gml_paper_cell *after;
    for (gml_paper_cell *cell = first; cell; cell = after) {
        after = cell->after;
        if (!cell->is_used) {
            gml_tree_remove(&cell->lane->idle_cells, &cell->node);
        }
        gml_pool_give(&self->cell_pool, cell);
    }
    self->base.reserved_bytes -= GML_PAPER_SEGMENT_BYTES;
    self->base.small_bytes -= GML_PAPER_SEGMENT_BYTES;
}

gml_status gml_paper_small_release(gml_paper *self, bool with_live) {
    gml_status first = GML_OK;
    gml_paper_cell *next;
    for (gml_paper_cell *segment = self->segments; segment; segment = next) {
        next = segment->next_segment;
        /* Free neighbours are merged, so an unused segment is one cell. */
        if (!with_live && (segment->is_used || segment->after)) {
            continue;
        }
        gml_status status = gml_driver_free(self->base.driver, segment->node.address);
        if (status == GML_OK) {
            forget_segment(self, segment);
        }
        first = gml_first_failure(first, status);
    }
    return first;
}
