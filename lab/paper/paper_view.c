/* The paper's sBlocks: Stitch makes one over idle pBlocks, StitchFree removes the least recently
 * used. */
#include "paper/paper.h"

#include <stdlib.h>
#include <string.h>

void gml_paper_link_add(gml_paper_range *view, gml_paper_range *part, gml_paper_link *last,
                        gml_paper_link *link) {
    *link = (gml_paper_link){.view = view, .primitive = part, .next_view = part->links};
    if (part->links) {
        part->links->previous_view = link;
    }
    part->links = link;
    if (last) {
        last->next_part = link;
    } else {
        view->links = link;
    }
}

static void unlink_parts(gml_paper *self, gml_paper_range *view) {
    while (view->links) {
        gml_paper_link *link = view->links;
        view->links = link->next_part;
        if (link->previous_view) {
            link->previous_view->next_view = link->next_view;
        } else {
            link->primitive->links = link->next_view;
        }
        if (link->next_view) {
            link->next_view->previous_view = link->previous_view;
        }
        gml_pool_give(&self->link_pool, link);
    }
}

void gml_paper_view_enter_order(gml_paper *self, gml_paper_range *view) {
    view->older = self->newest;
    view->newer = NULL;
    if (self->newest) {
        self->newest->newer = view;
    } else {
        self->oldest = view;
    }
    self->newest = view;
}

void gml_paper_view_leave_order(gml_paper *self, gml_paper_range *view) {
    if (view->older) {
        view->older->newer = view->newer;
    } else {
        self->oldest = view->newer;
    }
    if (view->newer) {
        view->newer->older = view->older;
    } else {
        self->newest = view->older;
    }
}

void gml_paper_view_count(gml_paper_range *view, bool is_active) {
    if (is_active && view->active_parts++ == 0) {
        gml_tree_remove(&view->lane->idle_views, &view->node);
    } else if (!is_active && --view->active_parts == 0) {
        gml_tree_insert(&view->lane->idle_views, &view->node);
    }
}

void gml_paper_view_add(gml_paper *self, gml_paper_range *view) {
    gml_paper_list_add(&self->views, view);
    self->view_bytes += view->node.size_bytes;
    gml_paper_view_enter_order(self, view);
    gml_tree_insert(&view->lane->idle_views, &view->node);
}

void gml_paper_view_detach(gml_paper *self, gml_paper_range *view) {
    gml_paper_list_remove(&self->views, view);
    self->view_bytes -= view->node.size_bytes;
    if (!view->is_handed_out) {
        gml_paper_view_leave_order(self, view);
    }
    if (!view->active_parts) {
        gml_tree_remove(&view->lane->idle_views, &view->node);
    }
    unlink_parts(self, view);
}

gml_status gml_paper_view_remove(gml_paper *self, gml_paper_range *view) {
    gml_status status = gml_driver_unmap(self->base.driver, view->node.address, view->mapped_bytes);
    if (status != GML_OK) {
        return status;
    }
    view->mapped_bytes = 0;
    gml_paper_view_detach(self, view);
    /* A refused unreserve leaves addresses behind, not memory: the leftovers see to it. */
    (void)gml_paper_range_drop(self, view);
    return GML_OK;
}

static bool has_room(const gml_paper *self, uint64_t size_bytes, uint64_t spare_views,
                     uint64_t spare_bytes) {
    return self->views.count + 1 + spare_views <= self->max_views &&
           self->view_bytes + size_bytes + spare_bytes <= self->max_view_bytes;
}

void gml_paper_stitch_free(gml_paper *self, uint64_t size_bytes) {
    if (has_room(self, size_bytes, 0, 0) || !self->oldest ||
        gml_driver_is_frozen(self->base.driver) ||
        gml_driver_device_synchronize(self->base.driver) != GML_OK) {
        return;
    }
    /* One wait for the device serves many removals. */
    uint64_t spare_views = self->max_views / 8;
    uint64_t spare_bytes = self->max_view_bytes / 8;
    gml_paper_range *newer;
    for (gml_paper_range *view = self->oldest;
         view && !has_room(self, size_bytes, spare_views, spare_bytes); view = newer) {
        newer = view->newer;
        (void)gml_paper_view_remove(self, view);
    }
}

/* Room for `count` handles in the scratch array. */
static bool reserve_handles(gml_paper *self, size_t count) {
    if (count > self->handle_capacity) {
        gml_handle *grown = realloc(self->handles, count * 2 * sizeof *grown);
        if (!grown) {
            return false;
        }
        self->handles = grown;
        self->handle_capacity = count * 2;
    }
    return true;
}

/* A view struct linked to the primitives of the chain, whose handles are in the scratch array; NULL
 * when the host has no memory. */
static gml_paper_range *link_candidates(gml_paper *self, gml_paper_lane *lane,
                                        const gml_paper_chain *chain) {
    gml_paper_range *view = gml_pool_take(&self->range_pool);
    if (!view || !reserve_handles(self, (size_t)(chain->size_bytes / self->chunk_bytes))) {
        gml_pool_give(&self->range_pool, view);
        return NULL;
    }
    view->is_view = true;
    view->lane = lane;
    view->node.size_bytes = chain->size_bytes;
    gml_paper_link *last = NULL;
    size_t handle_count = 0;
    for (gml_paper_range *part = chain->first; part; part = part->next_candidate) {
        gml_paper_link *link = gml_pool_take(&self->link_pool);
        if (!link) {
            unlink_parts(self, view);
            gml_pool_give(&self->range_pool, view);
            return NULL;
        }
        memcpy(self->handles + handle_count, part->handles,
               part->handle_count * sizeof *part->handles);
        handle_count += part->handle_count;
        gml_paper_link_add(view, part, last, link);
        last = link;
    }
    return view;
}

gml_status gml_paper_stitch(gml_paper *self, gml_paper_lane *lane, const gml_paper_chain *chain,
                            gml_paper_range **out) {
    gml_paper_stitch_free(self, chain->size_bytes);
    gml_paper_range *view = link_candidates(self, lane, chain);
    if (!view) {
        return gml_driver_fail(self->base.driver, GML_NO_HOST_MEMORY,
                               "no host memory for a new sBlock");
    }
    gml_status status = gml_paper_range_map(self, view, self->handles);
    if (status != GML_OK) {
        unlink_parts(self, view);
        (void)gml_paper_range_drop(self, view);
        return status;
    }
    gml_paper_view_add(self, view);
    *out = view;
    return GML_OK;
}
