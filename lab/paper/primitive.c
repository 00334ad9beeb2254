/* The paper's pBlocks: Alloc creates one, Split cuts one in two, and their activity. */
#include "core/mapping.h"
#include "paper/paper.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* *created counts the chunks that exist afterwards, also on failure: the caller keeps or releases
 * them. */
static gml_status create_chunks(gml_driver *driver, uint64_t chunk_bytes, size_t count,
                                gml_handle *handles, size_t *created) {
    *created = 0;
    for (size_t i = 0; i < count; i++) {
        gml_status status = gml_driver_create(driver, chunk_bytes, &handles[i]);
        if (status != GML_OK) {
            return status;
        }
        *created = i + 1;
    }
    return GML_OK;
}

/* An idle primitive enters or leaves the free list of its lane. */
static void list_idle(gml_paper *self, gml_paper_range *primitive) {
    gml_tree_insert(&primitive->lane->idle_primitives, &primitive->node);
    if (primitive->node.size_bytes >= self->frag_limit_bytes) {
        primitive->lane->stitchable_bytes += primitive->node.size_bytes;
    }
}

static void unlist_idle(gml_paper *self, gml_paper_range *primitive) {
    gml_tree_remove(&primitive->lane->idle_primitives, &primitive->node);
    if (primitive->node.size_bytes >= self->frag_limit_bytes) {
        primitive->lane->stitchable_bytes -= primitive->node.size_bytes;
    }
}

/* A struct for a primitive of `count` chunks, without driver memory yet. */
static gml_paper_range *new_primitive(gml_paper *self, gml_paper_lane *lane, size_t count) {
    gml_paper_range *primitive = gml_pool_take(&self->range_pool);
    if (!primitive) {
        return NULL;
    }
    primitive->handles = calloc(count, sizeof *primitive->handles);
    if (!primitive->handles) {
        gml_pool_give(&self->range_pool, primitive);
        return NULL;
    }
    primitive->lane = lane;
    primitive->node.size_bytes = count * self->chunk_bytes;
    return primitive;
}

gml_status gml_paper_grow(gml_paper *self, gml_paper_lane *lane, uint64_t size_bytes,
                          gml_paper_range **out) {
    gml_driver *driver = self->base.driver;
    if (size_bytes > self->limit_bytes - self->base.reserved_bytes) {
        return gml_driver_fail(driver, GML_OUT_OF_MEMORY,
                               "%" PRIu64 " bytes more would exceed the capacity of %" PRIu64
                               " bytes, of which %" PRIu64 " are held",
                               size_bytes, self->limit_bytes, self->base.reserved_bytes);
    }
    size_t count = (size_t)(size_bytes / self->chunk_bytes);
    gml_paper_range *primitive = new_primitive(self, lane, count);
    if (!primitive) {
        return gml_driver_fail(driver, GML_NO_HOST_MEMORY, "no host memory for a new pBlock");
    }
    gml_status status = create_chunks(driver, self->chunk_bytes, count, primitive->handles,
                                      &primitive->handle_count);
    self->base.reserved_bytes += primitive->handle_count * self->chunk_bytes;
    if (status == GML_OK) {
        status = gml_paper_range_map(self, primitive, primitive->handles);
    }
    if (status != GML_OK) {
        (void)gml_paper_range_drop(self, primitive);
        return status;
    }
    gml_paper_list_add(&self->primitives, primitive);
    list_idle(self, primitive);
    *out = primitive;
    return GML_OK;
}

/* Host memory for a split, allocated before anything is changed. */
typedef struct split_parts {
    gml_paper_range *rest, *view;
    gml_paper_link *links; /* chained by next_part: one per view over the primitive, and two */
} split_parts;

static gml_paper_link *take_link(split_parts *parts) {
    gml_paper_link *link = parts->links;
    /* take_parts has counted what will be taken. */
    parts->links = link->next_part; // NOLINT(clang-analyzer-core.NullDereference)
    return link;
}

static void give_parts(gml_paper *self, split_parts *parts) {
    while (parts->links) {
        gml_pool_give(&self->link_pool, take_link(parts));
    }
    if (parts->rest) {
        free(parts->rest->handles);
    }
    gml_pool_give(&self->range_pool, parts->rest);
    gml_pool_give(&self->range_pool, parts->view);
}

static gml_status take_parts(gml_paper *self, const gml_paper_range *primitive, size_t rest_count,
                             split_parts *parts) {
    parts->rest = new_primitive(self, primitive->lane, rest_count);
    parts->view = gml_pool_take(&self->range_pool);
    bool is_whole = parts->rest && parts->view;
    size_t wanted = 2;
    for (const gml_paper_link *at = primitive->links; at; at = at->next_view) {
        wanted++;
    }
    for (size_t i = 0; i < wanted && is_whole; i++) {
        gml_paper_link *link = gml_pool_take(&self->link_pool);
        is_whole = link != NULL;
        if (link) {
            link->next_part = parts->links;
            parts->links = link;
        }
    }
    if (is_whole) {
        return GML_OK;
    }
    give_parts(self, parts);
    return gml_driver_fail(self->base.driver, GML_NO_HOST_MEMORY, "no host memory for a split");
}

/* Every view over the primitive now covers its first part and, behind that, the rest. */
static void relink_views(gml_paper_range *primitive, split_parts *parts) {
    for (gml_paper_link *at = primitive->links; at; at = at->next_view) {
        gml_paper_link *link = take_link(parts);
        gml_paper_link *next = at->next_part;
        gml_paper_link_add(at->view, parts->rest, at, link);
        link->next_part = next;
    }
}

/* Maps both halves at new addresses. `first` and the rest are structs for just that. */
static gml_status map_halves(gml_paper *self, const gml_paper_range *primitive,
                             gml_paper_range *first, gml_paper_range *rest) {
    size_t count = (size_t)(first->node.size_bytes / self->chunk_bytes);
    gml_status status = gml_paper_range_map(self, first, primitive->handles);
    return status == GML_OK ? gml_paper_range_map(self, rest, primitive->handles + count) : status;
}

/* The mapping of `from` becomes that of `to`. */
static void move_mapping(gml_paper_range *to, const gml_paper_range *from) {
    to->node.address = from->node.address;
    to->node.size_bytes = from->node.size_bytes;
    to->mapped_bytes = from->mapped_bytes;
    to->is_reserved = from->is_reserved;
}

/* A split whose new mappings exist: nothing here can fail. `parts->view` holds the first half's
 * mapping, the primitive still the whole one; they are exchanged, since the old range is exactly
 * the view over both halves that the paper stitches next. So the old range need not be unmapped
 * while the stream may still have work on it, and no third mapping is made. */
static void commit_split(gml_paper *self, gml_paper_range *primitive, split_parts *parts) {
    gml_paper_range *view = parts->view;
    gml_paper_range *rest = parts->rest;
    size_t count = (size_t)(view->node.size_bytes / self->chunk_bytes);
    unlist_idle(self, primitive);
    gml_paper_range whole = *primitive;
    move_mapping(primitive, view);
    move_mapping(view, &whole);
    rest->handle_count = primitive->handle_count - count;
    memcpy(rest->handles, primitive->handles + count, rest->handle_count * sizeof *rest->handles);
    primitive->handle_count = count;
    relink_views(primitive, parts);
    gml_paper_link *link = take_link(parts);
    gml_paper_link_add(view, primitive, NULL, link);
    gml_paper_link_add(view, rest, link, take_link(parts));
    gml_paper_list_add(&self->primitives, rest);
    list_idle(self, primitive);
    list_idle(self, rest);
    gml_paper_view_add(self, view);
}

gml_status gml_paper_split(gml_paper *self, gml_paper_range *primitive, uint64_t size_bytes) {
    uint64_t rest_bytes = primitive->node.size_bytes - size_bytes;
    split_parts parts = {0};
    gml_paper_stitch_free(self, primitive->node.size_bytes);
    gml_status status =
        take_parts(self, primitive, (size_t)(rest_bytes / self->chunk_bytes), &parts);
    if (status != GML_OK) {
        return status;
    }
    parts.view->is_view = true;
    parts.view->lane = primitive->lane;
    parts.view->node.size_bytes = size_bytes;
    status = map_halves(self, primitive, parts.view, parts.rest);
    if (status == GML_OK) {
        commit_split(self, primitive, &parts);
        return GML_OK;
    }
    /* Either struct may hold a range that the driver did not take back. */
    (void)gml_paper_range_drop(self, parts.view);
    (void)gml_paper_range_drop(self, parts.rest);
    parts.view = NULL;
    parts.rest = NULL;
    give_parts(self, &parts);
    return status;
}

gml_status gml_paper_release(gml_paper *self, gml_paper_range *primitive) {
    while (primitive->links) {
        gml_status status = gml_paper_view_remove(self, primitive->links->view);
        if (status != GML_OK) {
            return status;
        }
    }
    gml_status status =
        gml_driver_unmap(self->base.driver, primitive->node.address, primitive->mapped_bytes);
    if (status != GML_OK) {
        return status;
    }
    primitive->mapped_bytes = 0;
    unlist_idle(self, primitive);
    gml_paper_list_remove(&self->primitives, primitive);
    return gml_paper_range_drop(self, primitive);
}

void gml_paper_activate(gml_paper *self, gml_paper_range *primitive) {
    unlist_idle(self, primitive);
    primitive->is_active = true;
    for (gml_paper_link *link = primitive->links; link; link = link->next_view) {
        gml_paper_view_count(link->view, true);
    }
}

void gml_paper_deactivate(gml_paper *self, gml_paper_range *primitive) {
    list_idle(self, primitive);
    primitive->is_active = false;
    for (gml_paper_link *link = primitive->links; link; link = link->next_view) {
        gml_paper_view_count(link->view, false);
    }
}

void gml_paper_view_take(gml_paper *self, gml_paper_range *view) {
    gml_paper_view_leave_order(self, view);
    for (gml_paper_link *link = view->links; link; link = link->next_part) {
        gml_paper_activate(self, link->primitive);
    }
}

void gml_paper_view_give(gml_paper *self, gml_paper_range *view) {
    gml_paper_view_enter_order(self, view);
    for (gml_paper_link *link = view->links; link; link = link->next_part) {
        gml_paper_deactivate(self, link->primitive);
    }
}
