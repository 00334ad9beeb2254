/* The policy `caching`: PyTorch's CUDACachingAllocator as it stands in 2.6 to 2.13, without
 * expandable segments, so that its placements and statistics can be compared with recorded ones. */
#include "base/rounding.h"
#include "policy/torch/caching_segment.h"
#include "policy/torch/heap.h"
#include "policy/torch/heap_check.h"

#include <inttypes.h>

/* There is no later moment to repeat a call in. */
enum { DESTROY_ATTEMPTS = 3 };

static gml_status caching_destroy(gml_policy *self) {
    gml_torch_heap *heap = (gml_torch_heap *)self;
    gml_status first = GML_OK;
    for (const gml_torch_segment *segment = heap->segments; segment; segment = segment->next) {
        gml_status status = GML_DRIVER_FAILED;
        for (int i = 0; i < DESTROY_ATTEMPTS && status != GML_OK; i++) {
            status = gml_driver_free(self->driver, segment->address);
            first = first != GML_OK ? first : status;
        }
    }
    gml_torch_heap_destroy(heap);
    return first;
}

/* PyTorch counts searches, the age of its free blocks, only where it may collect them. */
static bool has_garbage_limit(const gml_torch_heap *heap) {
    return gml_torch_bound(heap) && heap->knobs.garbage_collection_percent;
}

static gml_torch_block *find_free(gml_torch_heap *heap, const gml_torch_request *request) {
    gml_torch_lane *lane = request->lane;
    if (has_garbage_limit(heap)) {
        heap->searches[lane->is_small]++;
    }
    gml_tree_node *node = gml_tree_at_least(&lane->free, request->size_bytes, 0);
    if (!node || !gml_torch_may_serve(heap, gml_torch_block_of(node), request->size_bytes)) {
        return NULL;
    }
    return gml_torch_block_of(node);
}

/* Small blocks may be cut down to 512 bytes; a large one keeps up to 1 MiB behind its request.
 * Those of a pool that is served whole stay so. */
static bool must_split(const gml_torch_heap *heap, const gml_torch_block *block,
                       uint64_t size_bytes) {
    uint64_t remaining_bytes = block->base.block_bytes - size_bytes;
    if (heap->knobs.is_whole) {
        return false;
    }
    if (block->lane->is_small) {
        return remaining_bytes >= GML_ALIGNMENT;
    }
    return size_bytes < heap->knobs.max_split_size && remaining_bytes > GML_SMALL_LIMIT;
}

static gml_status add_segment(gml_torch_heap *heap, const gml_torch_request *request,
                              gml_torch_block **out) {
    return gml_caching_segment_add(heap, request->lane, request->segment_bytes, out);
}

/* Collects garbage, asks; frees oversize blocks, asks. */
static gml_status obtain(gml_torch_heap *heap, const gml_torch_request *request,
                         gml_torch_block **out) {
    bool may_free = !gml_driver_is_frozen(heap->base.driver) && !heap->base.is_kept;
    gml_status status = may_free && has_garbage_limit(heap) ? gml_caching_collect(heap) : GML_OK;
    if (status == GML_OK) {
        status = add_segment(heap, request, out);
    }
    if (status == GML_OUT_OF_MEMORY && may_free) {
        bool enough;
        gml_status released = gml_caching_release_oversize(heap, request, &enough);
        if (released != GML_OK) {
            return released;
        }
        if (enough) {
            status = add_segment(heap, request, out);
        }
    }
    return status;
}

static const gml_torch_rules rules = {
    .find_free = find_free,
    .obtain = obtain,
    .obtain_again = add_segment,
    .must_split = must_split,
    .release_all = gml_caching_release_all,
    .give = gml_caching_give,
    .idle_bytes = gml_caching_idle_bytes,
};

static gml_status caching_create(gml_driver *driver, uint64_t capacity_bytes,
                                 const gml_knobs *knobs, gml_policy **out) {
    if (knobs->large_segment_size % GML_ALIGNMENT) {
        return gml_driver_fail(driver, GML_INVALID_ARGUMENT,
                               "large_segment_size must be a multiple of 512 bytes");
    }
    gml_torch_heap *heap = gml_torch_heap_create(&gml_caching_policy, &rules, driver,
                                                 capacity_bytes, knobs, sizeof(gml_torch_segment));
    if (!heap) {
        return gml_driver_fail(driver, GML_NO_HOST_MEMORY,
                               "the host has no memory for a caching policy");
    }
    *out = &heap->base;
    return GML_OK;
}

static gml_status caching_check(gml_policy *self) {
    gml_torch_heap *heap = (gml_torch_heap *)self;
    gml_torch_recount recount = {0};
    gml_status status = GML_OK;
    for (const gml_torch_segment *segment = heap->segments; segment && status == GML_OK;
         segment = segment->next) {
        bool is_small = segment->lane->is_small;
        recount.segments[is_small]++;
        recount.reserved_bytes[is_small] += segment->size_bytes;
        recount.oversize_segments += segment->size_bytes >= heap->knobs.max_split_size;
        status = gml_torch_check_segment(heap, segment, &recount);
    }
    if (status == GML_OK) {
        status = gml_torch_check_lanes(heap, &recount);
    }
    return status == GML_OK ? gml_torch_check_stats(heap, &recount) : status;
}

/* A segment is one chunk if the driver backs malloc with mapped memory. */
static gml_status caching_chunk(gml_policy *self, gml_address address, gml_chunk *out) {
    const gml_torch_segment *segment = ((gml_torch_heap *)self)->segments;
    while (segment && address - segment->address >= segment->size_bytes) {
        segment = segment->next;
    }
    if (!segment) {
        return gml_driver_fail(self->driver, GML_UNSUPPORTED,
                               "0x%" PRIx64 " lies in no segment of the policy", address);
    }
    uint64_t granule_bytes = self->driver->info.granularity_bytes;
    *out = (gml_chunk){.address = segment->address,
                       .size_bytes = gml_round_up(segment->size_bytes, granule_bytes)};
    return gml_driver_behind_malloc(self->driver, segment->address, &out->handle);
}

const gml_policy_ops gml_caching_policy = {
    .name = "caching",
    .help = "PyTorch's caching allocator, address for address",
    .create = caching_create,
    .destroy = caching_destroy,
    .allocate = gml_torch_allocate,
    .free = gml_torch_heap_free,
    .trim = gml_torch_trim,
    .give = gml_torch_give,
    .idle_bytes = gml_torch_idle_bytes,
    .usage = gml_torch_usage,
    .check = caching_check,
    .visit = gml_torch_visit,
    .chunk = caching_chunk,
    .torch_stats = gml_torch_stats_fill,
    .reset_peaks = gml_torch_reset_peaks,
};
