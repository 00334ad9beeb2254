/* A list of devices, and a set of ranges that grows and is cut. */
#include "driver/cuda_peers.h"

/* A range that replaces the middle of another leaves two pieces of it. */
enum { MOST_NEW_RANGES = 2 };

void gml_cuda_peers_init(gml_cuda_peers *peers, gml_cu_location owner, bool has_others) {
    peers->access[0] = (gml_cu_access){owner, GML_CU_ACCESS_READ_WRITE};
    peers->count = 1;
    peers->keeps_ranges = has_others;
    peers->range_objects.object_bytes = sizeof(gml_cuda_range);
}

void gml_cuda_peers_clear(gml_cuda_peers *peers) {
    peers->ranges = (gml_tree){0};
    gml_pool_clear(&peers->range_objects);
}

bool gml_cuda_peers_has(const gml_cuda_peers *peers, gml_cu_device device) {
    for (size_t i = 0; i < peers->count; i++) {
        if (peers->access[i].location.id == device) {
            return true;
        }
    }
    return false;
}

void gml_cuda_peers_add(gml_cuda_peers *peers, gml_cu_device device) {
    peers->access[peers->count++] =
        (gml_cu_access){{GML_CU_LOCATION_DEVICE, device}, GML_CU_ACCESS_READ_WRITE};
}

bool gml_cuda_peers_prepare(gml_cuda_peers *peers) {
    return !peers->keeps_ranges || gml_pool_reserve(&peers->range_objects, MOST_NEW_RANGES);
}

/* pre: prepared, and no kept range overlaps it. */
static void add_range(gml_cuda_peers *peers, uint64_t address, uint64_t size_bytes) {
    gml_cuda_range *added = gml_pool_take(&peers->range_objects);
    added->node.address = address;
    added->size_bytes = size_bytes;
    gml_tree_insert(&peers->ranges, &added->node);
}

static gml_cuda_range *range_of(gml_tree_node *node) {
    return (gml_cuda_range *)node;
}

/* The first range that ends above `address`, or NULL. */
static gml_cuda_range *first_above(const gml_cuda_peers *peers, uint64_t address) {
    gml_tree_node *after = gml_tree_at_least(&peers->ranges, 0, address);
    gml_tree_node *before = after ? gml_tree_previous(after) : gml_tree_last(&peers->ranges);
    bool reaches = before && before->address + range_of(before)->size_bytes > address;
    return range_of(reaches ? before : after);
}

void gml_cuda_peers_closed(gml_cuda_peers *peers, uint64_t address, uint64_t size_bytes) {
    uint64_t end = address + size_bytes;
    gml_cuda_range *cut = first_above(peers, address);
    while (cut && cut->node.address < end) {
        uint64_t cut_end = cut->node.address + cut->size_bytes;
        gml_cuda_range *next = range_of(gml_tree_next(&cut->node));
        if (cut->node.address < address) {
            cut->size_bytes = address - cut->node.address;
        } else {
            gml_tree_remove(&peers->ranges, &cut->node);
            gml_pool_give(&peers->range_objects, cut);
        }
        if (cut_end > end) {
            add_range(peers, end, cut_end - end);
        }
        cut = next;
    }
}

void gml_cuda_peers_opened(gml_cuda_peers *peers, uint64_t address, uint64_t size_bytes) {
    if (peers->keeps_ranges) {
        gml_cuda_peers_closed(peers, address, size_bytes);
        add_range(peers, address, size_bytes);
    }
}

const gml_cuda_range *gml_cuda_peers_first(const gml_cuda_peers *peers) {
    return (const gml_cuda_range *)gml_tree_first(&peers->ranges);
}

const gml_cuda_range *gml_cuda_peers_next(const gml_cuda_range *range) {
    return (const gml_cuda_range *)gml_tree_next(&range->node);
}
