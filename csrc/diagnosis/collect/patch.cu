// Called by the Sanitizer's patches at every access of a kernel to global memory.
//
// `make patch` turns this file into patch_image.h, which the driver compiles for the device at hand.
// A test compiles it for the host.
#include "table.h"

#ifdef __CUDACC__
#define PATCH extern "C" __device__ __noinline__
#define MARK static __device__ __noinline__
#define DEVICE static __device__ __forceinline__

DEVICE unsigned lane(void) {
    unsigned number;
    asm("mov.u32 %0, %%laneid;" : "=r"(number));
    return number;
}
#endif

enum { READ_FLAG = 1, WRITE_FLAG = 2, PREFETCH_FLAG = 8, BLOCK_BYTES = 16 };

DEVICE gml_table_object *find_object(gml_table *table, unsigned long long address) {
    unsigned low = 0;
    unsigned high = (unsigned)table->count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (table->objects[middle].begin <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    gml_table_object *object = table->objects + low - 1;
    return low > 0 && address - object->begin < object->size_bytes ? object : 0;
}

DEVICE void set_bits(unsigned *word, unsigned bits) {
    if (~*(volatile unsigned *)word & bits) { // most are set already, and atomics are slow
        atomicOr(word, bits);
    }
}

DEVICE void mark_bytes(const gml_table_object *object, unsigned long long from,
                       unsigned long long to, unsigned kinds) {
    unsigned long long words = (object->size_bytes + GML_MARK_BYTES - 1) / GML_MARK_BYTES;
    unsigned *bits = (unsigned *)object->cells;
    while (from < to) {
        unsigned long long next = (from / GML_MARK_BYTES + 1) * GML_MARK_BYTES;
        unsigned count = (unsigned)((next < to ? next : to) - from);
        unsigned mask = (~0U >> (GML_MARK_BYTES - count)) << (from % GML_MARK_BYTES);
        if (kinds & GML_MARK_READ) {
            set_bits(bits + from / GML_MARK_BYTES, mask);
        }
        if (kinds & GML_MARK_WRITTEN) {
            set_bits(bits + words + from / GML_MARK_BYTES, mask);
        }
        from = next;
    }
}

DEVICE void count_accesses(const gml_table_object *object, unsigned long long from,
                           unsigned long long to, unsigned times) {
    unsigned long long words = (object->size_bytes + GML_MARK_BYTES - 1) / GML_MARK_BYTES;
    unsigned *counters = (unsigned *)object->cells + 2 * words;
    unsigned long long last = (to - 1) >> object->granule_shift;
    for (unsigned long long i = from >> object->granule_shift; i <= last; i++) {
        atomicAdd(counters + i, times);
    }
}

DEVICE void widen(gml_table_object *object, unsigned long long from, unsigned long long to,
                  unsigned kinds) {
    if (~*(volatile unsigned *)&object->kinds & kinds) {
        atomicOr(&object->kinds, kinds);
    }
    if (from < *(volatile unsigned long long *)&object->low) {
        atomicMin(&object->low, from);
    }
    if (to > *(volatile unsigned long long *)&object->high) {
        atomicMax(&object->high, to);
    }
}

// pre: size_bytes > 0.
DEVICE void mark(gml_table *table, unsigned long long address, unsigned long long size_bytes,
               unsigned kinds, unsigned times) {
    gml_table_object *object = find_object(table, address);
    if (!object) {
        return;
    }
    unsigned long long from = address - object->begin;
    unsigned long long to = from + size_bytes;
    to = to < object->size_bytes ? to : object->size_bytes;
    widen(object, from, to, kinds);
    if (object->cells) {
        mark_bytes(object, from, to, kinds);
        if (object->granule_shift != GML_NO_COUNTERS) {
            count_accesses(object, from, to, times * __popc(kinds)); // an atomic is two
        }
    }
}

// Where all threads of a warp access the same address, one marks it for all; a bulk copy is one
// instruction of a warp.
MARK void mark_of_warp(gml_table *table, unsigned long long address, unsigned long long size_bytes,
                       unsigned kinds, bool is_bulk) {
    unsigned active = __activemask();
    unsigned leader = __ffs(active) - 1;
    unsigned times = is_bulk ? 1 : __popc(active);
    bool is_same = is_bulk || __all_sync(active, __shfl_sync(active, address, leader) == address);
    if (!is_same) {
        times = 1;
    } else if (lane() != leader) {
        return;
    }
    mark(table, address, size_bytes, kinds, times);
}

PATCH int gml_patch_access(void *table, unsigned long long pc, void *address, unsigned size_bytes,
                           unsigned flags, const void *value) {
    unsigned kinds = flags & (READ_FLAG | WRITE_FLAG);
    if (table && kinds && !(flags & PREFETCH_FLAG)) {
        mark_of_warp((gml_table *)table, (unsigned long long)address, size_bytes, kinds, false);
    }
    return 0;
}

// To shared memory, without passing through registers.
PATCH int gml_patch_async(void *table, unsigned long long pc, void *from, unsigned to,
                          unsigned size_bytes) {
    if (table && from && size_bytes) {
        mark_of_warp((gml_table *)table, (unsigned long long)from, size_bytes, GML_MARK_READ,
                     false);
    }
    return 0;
}

PATCH int gml_patch_bulk_read(void *table, unsigned long long pc, unsigned long long from,
                              unsigned to, unsigned barrier, unsigned data, unsigned multicast) {
    unsigned long long size_bytes = (data & 0xFFFF) * BLOCK_BYTES;
    if (table && size_bytes) {
        mark_of_warp((gml_table *)table, from, size_bytes, GML_MARK_READ, true);
    }
    return 0;
}

DEVICE int mark_bulk(void *table, unsigned long long to, unsigned blocks, unsigned kinds) {
    if (table && blocks) {
        mark_of_warp((gml_table *)table, to, (unsigned long long)blocks * BLOCK_BYTES, kinds, true);
    }
    return 0;
}

PATCH int gml_patch_bulk_write(void *table, unsigned long long pc, unsigned long long to,
                               unsigned from, unsigned blocks) {
    return mark_bulk(table, to, blocks, GML_MARK_WRITTEN);
}

PATCH int gml_patch_bulk_reduce(void *table, unsigned long long pc, unsigned long long to,
                                unsigned from, unsigned blocks) {
    return mark_bulk(table, to, blocks, GML_MARK_READ | GML_MARK_WRITTEN);
}
