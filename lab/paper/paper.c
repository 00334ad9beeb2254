/* Algorithm 1 of GMLake: which pBlocks and sBlocks serve a request, and the policy around it. */
#include "paper/paper.h"

#include "base/rounding.h"
#include "base/size.h"
#include "base/status.h"

#include <stdlib.h>

#define DEFAULT_CHUNK_BYTES (UINT64_C(2) << 20)        /* section 3.2: "a uniform chunk size" */
#define DEFAULT_FRAG_LIMIT_BYTES (UINT64_C(128) << 20) /* section 4.2.3: "e.g., 128 MB" */

static gml_paper *paper_of(gml_policy *base) {
    return (gml_paper *)(void *)base;
}

/* The lane of `stream`, made on first use; NULL when the host has no memory. */
static gml_paper_lane *lane_of(gml_paper *self, gml_stream stream) {
    if (self->last_lane && self->last_lane->stream == stream) {
        return self->last_lane;
    }
    gml_paper_lane *lane = (gml_paper_lane *)(void *)gml_tree_at_least(&self->lanes, stream, 0);
    if (!lane || lane->stream != stream) {
        lane = gml_pool_take(&self->lane_pool);
        if (!lane) {
            return NULL;
        }
        lane->stream = stream;
        lane->node.size_bytes = stream;
        gml_tree_insert(&self->lanes, &lane->node);
    }
    self->last_lane = lane;
    return lane;
}

/* S1: an idle sBlock or pBlock of exactly this size, or NULL. */
static gml_paper_range *find_exact(const gml_paper_lane *lane, uint64_t size_bytes) {
    gml_tree_node *view = gml_tree_at_least(&lane->idle_views, size_bytes, 0);
    if (view && view->size_bytes == size_bytes) {
        return gml_paper_range_of(view);
    }
    gml_tree_node *primitive = gml_tree_at_least(&lane->idle_primitives, size_bytes, 0);
    return primitive && primitive->size_bytes == size_bytes ? gml_paper_range_of(primitive) : NULL;
}

/* S2: the smallest larger pBlock that may be split, or NULL. */
static gml_paper_range *find_larger(const gml_paper *self, const gml_paper_lane *lane,
                                    uint64_t size_bytes) {
    uint64_t least_bytes = size_bytes + 1;
    if (least_bytes < self->frag_limit_bytes) {
        least_bytes = self->frag_limit_bytes;
    }
    return gml_paper_range_of(gml_tree_at_least(&lane->idle_primitives, least_bytes, 0));
}

static void append(gml_paper_chain *chain, gml_paper_range *primitive) {
    if (chain->last) {
        chain->last->next_candidate = primitive;
    } else {
        chain->first = primitive;
    }
    primitive->next_candidate = NULL;
    chain->last = primitive;
    chain->size_bytes += primitive->node.size_bytes;
}

/* S3 and S4: idle pBlocks, largest first, until they hold `size_bytes` or none is left. Nothing
 * below frag_limit takes part, on either side. */
static gml_paper_chain collect_candidates(const gml_paper *self, const gml_paper_lane *lane,
                                          uint64_t size_bytes) {
    gml_paper_chain chain = {0};
    gml_tree_node *node = NULL;
    if (size_bytes >= self->frag_limit_bytes) {
        node = gml_tree_last(&lane->idle_primitives);
    }
    while (node && chain.size_bytes < size_bytes && node->size_bytes >= self->frag_limit_bytes) {
        append(&chain, gml_paper_range_of(node));
        node = gml_tree_previous(node);
    }
    return chain;
}

/* S3 and S4, once S1 and S2 have found nothing. */
static gml_status stitch_or_grow(gml_paper *self, gml_paper_lane *lane, uint64_t size_bytes,
                                 gml_paper_range **out, gml_state *state) {
    gml_paper_chain chain = collect_candidates(self, lane, size_bytes);
    gml_status status = GML_OK;
    *state = chain.size_bytes < size_bytes ? GML_STATE_GROW : GML_STATE_STITCH;
    if (chain.size_bytes < size_bytes) {
        bool is_alone = !chain.first;
        status = gml_paper_grow(self, lane, size_bytes - chain.size_bytes, out);
        if (status != GML_OK || is_alone) {
            return status;
        }
        append(&chain, *out);
    } else if (chain.size_bytes > size_bytes) {
        /* The first half keeps the struct, and so its place in the chain. */
        uint64_t surplus_bytes = chain.size_bytes - size_bytes;
        status = gml_paper_split(self, chain.last, chain.last->node.size_bytes - surplus_bytes);
        chain.size_bytes = size_bytes;
    }
    return status == GML_OK ? gml_paper_stitch(self, lane, &chain, out) : status;
}

static void hand_out(gml_paper *self, gml_paper_range *range, uint64_t requested_bytes,
                     gml_state state) {
    range->is_handed_out = true;
    range->block = (gml_block){.address = range->node.address,
                               .requested_bytes = requested_bytes,
                               .block_bytes = range->node.size_bytes,
                               .stream = range->lane->stream,
                               .state = state};
    if (range->is_view) {
        gml_paper_view_take(self, range);
    } else {
        gml_paper_activate(self, range);
    }
}

static gml_status allocate_large(gml_paper *self, gml_paper_lane *lane, uint64_t requested_bytes,
                                 gml_block **out) {
    uint64_t size_bytes = gml_round_up(requested_bytes, self->chunk_bytes);
    gml_state state = GML_STATE_EXACT;
    gml_status status = GML_OK;
    gml_paper_range *range = find_exact(lane, size_bytes);
    if (!range) {
        state = GML_STATE_SPLIT;
        range = find_larger(self, lane, size_bytes);
        status = range ? gml_paper_split(self, range, size_bytes)
                       : stitch_or_grow(self, lane, size_bytes, &range, &state);
    }
    if (status == GML_OK) {
        hand_out(self, range, requested_bytes, state);
        *out = &range->block;
    }
    return status;
}

static gml_status allocate_once(gml_paper *self, gml_paper_lane *lane, uint64_t size_bytes,
                                gml_block **out) {
    return size_bytes <= GML_SMALL_LIMIT ? gml_paper_small_allocate(self, lane, size_bytes, out)
                                         : allocate_large(self, lane, size_bytes, out);
}

/* Every idle primitive of a lane; continues after a failure and returns the first. */
static gml_status release_idle(gml_paper *self, gml_paper_lane *lane) {
    gml_status first = GML_OK;
    gml_tree_node *next;
    for (gml_tree_node *node = gml_tree_first(&lane->idle_primitives); node; node = next) {
        next = gml_tree_next(node);
        gml_status status = gml_paper_release(self, gml_paper_range_of(node));
        first = gml_first_failure(first, status);
    }
    return first;
}

static gml_status paper_trim(gml_policy *base, uint64_t *released_bytes) {
    gml_paper *self = paper_of(base);
    uint64_t held_bytes = base->reserved_bytes;
    *released_bytes = 0;
    if (gml_driver_is_frozen(base->driver)) {
        return GML_OK;
    }
    gml_status first = gml_driver_device_synchronize(base->driver);
    if (first != GML_OK) {
        return first;
    }
    first = gml_paper_sweep(self);
    for (gml_tree_node *node = gml_tree_first(&self->lanes); node; node = gml_tree_next(node)) {
        gml_status status = release_idle(self, (gml_paper_lane *)(void *)node);
        first = gml_first_failure(first, status);
    }
    gml_status status = gml_paper_small_release(self, false);
    *released_bytes = held_bytes - base->reserved_bytes;
    return gml_first_failure(first, status);
}

static gml_status paper_allocate(gml_policy *base, uint64_t size_bytes, gml_stream stream,
                                 gml_block **out) {
    gml_paper *self = paper_of(base);
    gml_paper_lane *lane = lane_of(self, stream);
    if (!lane) {
        return gml_driver_fail(base->driver, GML_NO_HOST_MEMORY, "no host memory for a stream");
    }
    gml_status status = allocate_once(self, lane, size_bytes, out);
    if (status == GML_OUT_OF_MEMORY) {
        /* Memory of other streams, or too small to stitch, may suffice. */
        uint64_t released_bytes;
        size_t views = self->views.count;
        (void)paper_trim(base, &released_bytes);
        if (released_bytes || self->views.count < views) {
            status = allocate_once(self, lane, size_bytes, out);
        }
    }
    return status;
}

static void paper_free(gml_policy *base, gml_block *block) {
    gml_paper *self = paper_of(base);
    if (block->is_small) {
        gml_paper_small_free(self, (gml_paper_cell *)(void *)block);
        return;
    }
    gml_paper_range *range = (gml_paper_range *)(void *)block;
    range->is_handed_out = false;
    if (range->is_view) {
        gml_paper_view_give(self, range);
    } else {
        gml_paper_deactivate(self, range);
    }
}

static uint64_t largest_of(const gml_tree *tree) {
    const gml_tree_node *last = gml_tree_last(tree);
    return last ? last->size_bytes : 0;
}

static void paper_usage(gml_policy *base, gml_usage *out) {
    gml_paper *self = paper_of(base);
    *out = (gml_usage){.reserved_bytes = base->reserved_bytes,
                       .small_bytes = base->small_bytes,
                       .views = self->views.count,
                       .view_bytes = self->view_bytes};
    const gml_paper_lane *lane = (gml_paper_lane *)(void *)gml_tree_at_least(&self->lanes, 0, 0);
    if (!lane || lane->stream != 0) {
        return;
    }
    const uint64_t sizes[] = {largest_of(&lane->idle_cells), largest_of(&lane->idle_primitives),
                              largest_of(&lane->idle_views), lane->stitchable_bytes};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i] > out->largest_free_bytes) {
            out->largest_free_bytes = sizes[i];
        }
    }
}

/* The device's chunk and this policy's settings; GML_INVALID_ARGUMENT where they do not fit. */
static gml_status configure(gml_paper *self, uint64_t capacity_bytes, const gml_knobs *knobs) {
    const gml_device_info *info = &self->base.driver->info;
    if (!info->has_virtual_memory) {
        return gml_driver_fail(self->base.driver, GML_UNSUPPORTED,
                               "gmlake-paper needs a device with virtual memory management; "
                               "use the policy caching");
    }
    uint64_t granularity = info->granularity_bytes;
    self->chunk_bytes = gml_round_up(DEFAULT_CHUNK_BYTES, granularity);
    if (knobs->chunk_size) {
        self->chunk_bytes = knobs->chunk_size;
    }
    if (self->chunk_bytes % granularity) {
        return gml_driver_fail(self->base.driver, GML_INVALID_ARGUMENT,
                               "chunk_size is %s, but must be a multiple of the device's "
                               "granularity of %s",
                               gml_exact_size_of(self->chunk_bytes).text,
                               gml_exact_size_of(granularity).text);
    }
    self->limit_bytes = capacity_bytes ? capacity_bytes : info->total_bytes;
    self->frag_limit_bytes = knobs->frag_limit ? knobs->frag_limit : DEFAULT_FRAG_LIMIT_BYTES;
    self->max_views = knobs->max_views;
    self->max_view_bytes = knobs->max_view_bytes;
    return GML_OK;
}

static gml_status paper_create(gml_driver *driver, uint64_t capacity_bytes, const gml_knobs *knobs,
                               gml_policy **out) {
    gml_paper *self = calloc(1, sizeof *self);
    if (!self) {
        return gml_driver_fail(driver, GML_NO_HOST_MEMORY, "no host memory for a policy");
    }
    self->base.ops = &gml_paper_policy;
    self->base.driver = driver;
    self->lane_pool.object_bytes = sizeof(gml_paper_lane);
    self->range_pool.object_bytes = sizeof(gml_paper_range);
    self->link_pool.object_bytes = sizeof(gml_paper_link);
    self->cell_pool.object_bytes = sizeof(gml_paper_cell);
    gml_status status = configure(self, capacity_bytes, knobs);
    if (status != GML_OK) {
        free(self);
        return status;
    }
    *out = &self->base;
    return GML_OK;
}

/* Returns every range to the driver, views first; refused ranges become leftovers. */
static gml_status drop_everything(gml_paper *self) {
    gml_status first = GML_OK;
    while (self->views.first) {
        gml_paper_range *view = self->views.first;
        gml_paper_view_detach(self, view);
        gml_status status = gml_paper_range_drop(self, view);
        first = gml_first_failure(first, status);
    }
    while (self->primitives.first) {
        gml_paper_range *primitive = self->primitives.first;
        gml_paper_list_remove(&self->primitives, primitive);
        gml_status status = gml_paper_range_drop(self, primitive);
        first = gml_first_failure(first, status);
    }
    gml_status status = gml_paper_small_release(self, true);
    return gml_first_failure(first, status);
}

static gml_status paper_destroy(gml_policy *base) {
    gml_paper *self = paper_of(base);
    gml_status first = gml_driver_device_synchronize(base->driver);
    gml_status status = drop_everything(self);
    first = gml_first_failure(first, status);
    /* A call that failed before may succeed now; this is the last chance. */
    status = gml_paper_sweep(self);
    first = gml_first_failure(first, status);
    status = gml_paper_small_release(self, true);
    first = gml_first_failure(first, status);
    gml_paper_forget_leftovers(self);
    gml_pool_clear(&self->lane_pool);
    gml_pool_clear(&self->range_pool);
    gml_pool_clear(&self->link_pool);
    gml_pool_clear(&self->cell_pool);
    free(self->handles);
    free(self);
    return first;
}

/* The paper knows no graphs. */
static gml_status create_private(gml_driver *driver, uint64_t capacity_bytes,
                                 const gml_knobs *knobs, gml_policy **out) {
    return gml_caching_policy.create(driver, capacity_bytes, knobs, out);
}

const gml_policy_ops gml_paper_policy = {
    .name = "gmlake-paper",
    .help = "GMLake as published: best fit, and free blocks stitched where none is large enough",
    .create = paper_create,
    .create_private = create_private,
    .destroy = paper_destroy,
    .allocate = paper_allocate,
    .free = paper_free,
    .trim = paper_trim,
    .usage = paper_usage,
    .check = gml_paper_check,
    .visit = gml_paper_visit,
};
