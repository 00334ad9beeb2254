/* A list of devices, and a set of ranges that grows and is cut. */
#include "driver/cuda_peers.h"

/* A range that replaces the middle of another leaves two pieces of it. */
enum { MOST_NEW_RANGES = 2 };

void gml_cuda_peers_init(gml_cuda_peers *peers, gml_cu_location owner, bool has_others) {
    peers->access[0] = (gml_cu_access){owner, GML_CU_ACCESS_READ_WRITE};
    peers->count = 1;
    peers->keeps_ranges = has_others;
    gml_ranges_init(&peers->open, 0, 0);
}

void gml_cuda_peers_clear(gml_cuda_peers *peers) {
    gml_ranges_clear(&peers->open);
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
    return !peers->keeps_ranges || gml_pool_reserve(&peers->open.objects, MOST_NEW_RANGES);
}

/* pre: prepared, and no kept range overlaps it. */
static void add_range(gml_ranges *open, uint64_t address, uint64_t size_bytes) {
    gml_range *added = gml_pool_take(&open->objects);
    *added = (gml_range){.node.address = address, .size_bytes = size_bytes};
    gml_ranges_enter(open, added);
}

void gml_cuda_peers_closed(gml_cuda_peers *peers, uint64_t address, uint64_t size_bytes) {
    gml_ranges *open = &peers->open;
    uint64_t end = address + size_bytes;
    gml_range *cut = gml_ranges_at(open, address);
    cut = cut ? cut : (gml_range *)(void *)gml_tree_at_least(&open->tree, 0, address);
    while (cut && cut->node.address < end) {
        uint64_t cut_end = cut->node.address + cut->size_bytes;
        gml_range *next = gml_ranges_next(cut);
        if (cut->node.address < address) {
            cut->size_bytes = address - cut->node.address;
        } else {
            gml_ranges_remove(open, cut);
        }
        if (cut_end > end) {
            add_range(open, end, cut_end - end);
        }
        cut = next;
    }
}

void gml_cuda_peers_opened(gml_cuda_peers *peers, uint64_t address, uint64_t size_bytes) {
    if (peers->keeps_ranges) {
        gml_cuda_peers_closed(peers, address, size_bytes);
        add_range(&peers->open, address, size_bytes);
    }
}
