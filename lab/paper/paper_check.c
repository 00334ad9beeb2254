/* Invariants of the structures of `gmlake-paper`, and the walk over its memory. */
#include "paper/paper.h"

#include <inttypes.h>

/* The totals of one walk over everything. */
typedef struct paper_census {
    uint64_t reserved_bytes, small_bytes, view_bytes;
    size_t idle_primitives, idle_views, idle_cells, unused_views;
} paper_census;

static gml_status broken(gml_paper *self, const char *rule, uint64_t address) {
    return gml_driver_fail(self->base.driver, GML_CORRUPT,
                           "gmlake-paper: %s (at address 0x%" PRIx64 ")", rule, address);
}

static bool is_in(const gml_tree *tree, const gml_tree_node *node) {
    return gml_tree_at_least(tree, node->size_bytes, node->address) == node;
}

/* How many live blocks use a primitive: itself, or through views. */
static size_t users_of(const gml_paper_range *primitive) {
    size_t users = primitive->is_handed_out;
    for (const gml_paper_link *link = primitive->links; link; link = link->next_view) {
        users += link->view->is_handed_out;
    }
    return users;
}

static gml_status check_primitive(gml_paper *self, const gml_paper_range *primitive,
                                  paper_census *census) {
    uint64_t address = primitive->node.address;
    if (primitive->node.size_bytes != primitive->handle_count * self->chunk_bytes) {
        return broken(self, "a pBlock is not as large as its chunks", address);
    }
    for (size_t i = 0; i < primitive->handle_count; i++) {
        if (!primitive->handles[i]) {
            return broken(self, "a pBlock lacks a chunk", address);
        }
    }
    if (primitive->mapped_bytes != primitive->node.size_bytes || !primitive->is_reserved) {
        return broken(self, "a pBlock is not mapped whole", address);
    }
    if (users_of(primitive) != primitive->is_active) {
        return broken(self, "a pBlock is not used by exactly one live block while active", address);
    }
    if (!primitive->is_active && !is_in(&primitive->lane->idle_primitives, &primitive->node)) {
        return broken(self, "an idle pBlock is not in its free list", address);
    }
    census->reserved_bytes += primitive->node.size_bytes;
    census->idle_primitives += !primitive->is_active;
    return GML_OK;
}

static gml_status check_view(gml_paper *self, const gml_paper_range *view, paper_census *census) {
    uint64_t address = view->node.address;
    uint64_t size_bytes = 0, active_parts = 0;
    for (const gml_paper_link *link = view->links; link; link = link->next_part) {
        if (link->view != view || link->primitive->lane != view->lane) {
            return broken(self, "an sBlock covers a pBlock of another stream", address);
        }
        size_bytes += link->primitive->node.size_bytes;
        active_parts += link->primitive->is_active;
    }
    if (size_bytes != view->node.size_bytes || view->mapped_bytes != size_bytes) {
        return broken(self, "an sBlock is not as large as its pBlocks", address);
    }
    if (active_parts != view->active_parts) {
        return broken(self, "an sBlock miscounts its active pBlocks", address);
    }
    if (!active_parts && !is_in(&view->lane->idle_views, &view->node)) {
        return broken(self, "an idle sBlock is not in its free list", address);
    }
    census->view_bytes += size_bytes;
    census->idle_views += !active_parts;
    census->unused_views += !view->is_handed_out;
    return GML_OK;
}

static gml_status check_segment(gml_paper *self, const gml_paper_cell *first,
                                paper_census *census) {
    uint64_t end = first->node.address;
    for (const gml_paper_cell *cell = first; cell; cell = cell->after) {
        if (cell->node.address != end || (cell->after && cell->after->before != cell)) {
            return broken(self, "the pieces of a segment do not follow one another", end);
        }
        if (!cell->is_used && cell->after && !cell->after->is_used) {
            return broken(self, "two free neighbours were not merged", end);
        }
        if (!cell->is_used && !is_in(&cell->lane->idle_cells, &cell->node)) {
            return broken(self, "a free piece is not in its free list", end);
        }
        census->idle_cells += !cell->is_used;
        end += cell->node.size_bytes;
    }
    census->reserved_bytes += GML_PAPER_SEGMENT_BYTES;
    census->small_bytes += GML_PAPER_SEGMENT_BYTES;
    return end == first->node.address + GML_PAPER_SEGMENT_BYTES
               ? GML_OK
               : broken(self, "the pieces of a segment do not fill it", first->node.address);
}

static gml_status take_census(gml_paper *self, paper_census *census) {
    gml_status status = GML_OK;
    for (const gml_paper_range *at = self->primitives.first; at && status == GML_OK;
         at = at->next) {
        status = check_primitive(self, at, census);
    }
    for (const gml_paper_range *at = self->views.first; at && status == GML_OK; at = at->next) {
        status = check_view(self, at, census);
    }
    for (const gml_paper_cell *at = self->segments; at && status == GML_OK; at = at->next_segment) {
        status = check_segment(self, at, census);
    }
    for (const gml_paper_range *at = self->leftovers.first; at; at = at->next) {
        census->reserved_bytes += at->handle_count * self->chunk_bytes;
    }
    return status;
}

/* The free lists hold exactly what the census found idle. */
static gml_status check_lanes(gml_paper *self, const paper_census *census) {
    size_t primitives = 0, views = 0, cells = 0;
    for (gml_tree_node *at = gml_tree_first(&self->lanes); at; at = gml_tree_next(at)) {
        const gml_paper_lane *lane = (const gml_paper_lane *)(const void *)at;
        if (!gml_tree_is_valid(&lane->idle_primitives) || !gml_tree_is_valid(&lane->idle_views) ||
            !gml_tree_is_valid(&lane->idle_cells)) {
            return broken(self, "a free list is out of order; stream", lane->stream);
        }
        primitives += lane->idle_primitives.count;
        views += lane->idle_views.count;
        cells += lane->idle_cells.count;
    }
    if (primitives != census->idle_primitives || views != census->idle_views ||
        cells != census->idle_cells) {
        return broken(self, "a free list holds something that is in use", 0);
    }
    return GML_OK;
}

static gml_status check_counters(gml_paper *self, const paper_census *census) {
    size_t ordered = 0;
    for (const gml_paper_range *at = self->oldest; at; at = at->newer) {
        if (at->newer ? at->newer->older != at : self->newest != at) {
            return broken(self, "the order of last use is broken", at->node.address);
        }
        ordered++;
    }
    if (ordered != census->unused_views) {
        return broken(self, "the order of last use misses an sBlock", 0);
    }
    if (census->reserved_bytes != self->base.reserved_bytes ||
        census->small_bytes != self->base.small_bytes) {
        return broken(self, "reserved_bytes is not the sum of what is held", 0);
    }
    return census->view_bytes == self->view_bytes
               ? GML_OK
               : broken(self, "view_bytes is not the sum of the sBlocks", 0);
}

gml_status gml_paper_check(gml_policy *base) {
    gml_paper *self = (gml_paper *)(void *)base;
    paper_census census = {0};
    gml_status status = take_census(self, &census);
    if (status == GML_OK) {
        status = check_lanes(self, &census);
    }
    return status == GML_OK ? check_counters(self, &census) : status;
}

static void visit_parts(const gml_visitor *visitor, const gml_paper_range *view) {
    gml_address address = view->node.address;
    for (const gml_paper_link *at = view->links; at && visitor->piece; at = at->next_part) {
        const gml_tree_node *part = &at->primitive->node;
        visitor->piece(visitor->context, &(gml_piece_info){.address = address,
                                                           .base_address = part->address,
                                                           .size_bytes = part->size_bytes});
        address += part->size_bytes;
    }
}

/* A primitive or view is a span of one range. A primitive in use through a view is used, but
 * carries no request: that is in the span of the view. */
static void visit_range(const gml_visitor *visitor, const gml_paper_range *at) {
    bool is_used = at->is_view ? at->is_handed_out : at->is_active;
    gml_span_info span = {.address = at->node.address,
                          .size_bytes = at->node.size_bytes,
                          .used_bytes = is_used ? at->node.size_bytes : 0,
                          .stream = at->lane->stream,
                          .is_view = at->is_view,
                          .kind = at->is_view ? GML_SPAN_VIEW : GML_SPAN_BASE};
    gml_range_info range = {.address = at->node.address,
                            .size_bytes = at->node.size_bytes,
                            .requested_bytes = at->is_handed_out ? at->block.requested_bytes : 0,
                            .is_used = is_used};
    visitor->span(visitor->context, &span);
    if (at->is_view) {
        visit_parts(visitor, at);
    }
    visitor->range(visitor->context, &range);
}

static void visit_segment(const gml_visitor *visitor, const gml_paper_cell *first) {
    gml_span_info span = {.address = first->node.address,
                          .size_bytes = GML_PAPER_SEGMENT_BYTES,
                          .stream = first->lane->stream,
                          .is_small = true};
    for (const gml_paper_cell *cell = first; cell; cell = cell->after) {
        span.used_bytes += cell->is_used ? cell->node.size_bytes : 0;
    }
    visitor->span(visitor->context, &span);
    for (const gml_paper_cell *cell = first; cell; cell = cell->after) {
        gml_range_info range = {.address = cell->node.address,
                                .size_bytes = cell->node.size_bytes,
                                .requested_bytes = cell->is_used ? cell->block.requested_bytes : 0,
                                .is_used = cell->is_used};
        visitor->range(visitor->context, &range);
    }
}

void gml_paper_visit(gml_policy *base, const gml_visitor *visitor) {
    const gml_paper *self = (const gml_paper *)(const void *)base;
    for (const gml_paper_range *at = self->primitives.first; at; at = at->next) {
        visit_range(visitor, at);
    }
    for (const gml_paper_range *at = self->views.first; at; at = at->next) {
        visit_range(visitor, at);
    }
    for (const gml_paper_cell *at = self->segments; at; at = at->next_segment) {
        visit_segment(visitor, at);
    }
}
