/* The base range: one range of addresses per device in which every physical chunk has its
 * permanent place, and the extents that tile it.
 *
 * The space is a row of granules. A chunk is a power of two of them, at an offset that is a
 * multiple of its size, and stays there as long as it is held. Large chunks cost fewer driver
 * calls, small ones waste less: the caller that grows the space chooses their size. Splitting and
 * merging extents is arithmetic; only growing and shrinking call the driver. Offsets are bytes from
 * `base`.
 *
 * Extents tile [0, slots * granule_bytes) without holes. An extent is
 *   absent  whole chunks without a mapping (there may be a handle left over from a failure),
 *   free    mapped and in one freeset,
 *   used    mapped and held by an owner.
 * Two neighbours that are both absent, or both free in the same freeset, do not exist: they merge.
 */
#ifndef GML_CORE_BASE_RANGE_H
#define GML_CORE_BASE_RANGE_H

#include "base/list.h"
#include "base/pool.h"
#include "base/tree.h"
#include "driver/driver.h"

struct gml_freeset;

typedef enum gml_extent_kind {
    GML_EXTENT_ABSENT,
    GML_EXTENT_FREE,
    GML_EXTENT_USED
} gml_extent_kind;

/* In the order of use: what every claim and merge reads lies in the first two cache lines. */
typedef struct gml_extent {
    struct gml_extent *previous, *next; /* in address order */
    uint64_t offset;
    uint64_t size_bytes;
    struct gml_freeset *set; /* free: where it is found */
    void *owner;             /* used: whom it serves */
    uint64_t instant; /* free: when the last byte of it was freed, see fences.h; 0: not yet used */
    gml_extent_kind kind;
    bool is_indexed;     /* free: head, tail and whole are in the freeset's trees */
    gml_tree_node fit;   /* by whole size; in the freeset, or by offset among the absent */
    gml_link unindexed;  /* free: in the freeset's list while they are not */
    gml_tree_node head;  /* by the bytes before the first chunk boundary; see freeset.h */
    gml_tree_node tail;  /* by the bytes behind the last chunk boundary */
    gml_tree_node whole; /* by the bytes of whole chunks */
} gml_extent;

typedef struct gml_base_range {
    gml_driver *driver;
    gml_address base;
    uint64_t granule_bytes; /* the smallest chunk */
    uint64_t largest_bytes; /* chunk that was ever made */
    uint64_t slots;         /* granules that fit into the reservation */
    uint64_t host_limit;    /* bytes of them that only chunks of the host may take */
    bool takes_host;        /* what it grows by is the host's; set around one growth */
    uint64_t held_bytes;    /* of chunks of the device: the reserved memory */
    uint64_t host_bytes;    /* of chunks of the host */
    uint64_t present_bytes; /* of both that are mapped; the rest is left over from failures */
    uint64_t chunk_count;   /* held */
    gml_handle *handles;    /* by granule: the chunk that begins there; 0: none */
    uint8_t *orders;        /* by granule: the chunk that covers it has 1 << order granules */
    gml_extent **starts;    /* by granule: the first extent that begins in it, or NULL */
    uint64_t *start_bits;   /* bit i: starts[i] is not NULL */
    uint64_t *start_words;  /* bit w: start_bits[w] is not 0 */
    gml_tree absent;        /* absent extents by offset */
    uint64_t stuck_offset;  /* absent, but still mapped since the driver refused to unmap: */
    uint64_t stuck_bytes;   /* the next growth begins with it; 0: none */
    gml_handle *collected;  /* see gml_base_range_collect() */
    size_t collected_count, collected_room;
    gml_pool extents;
} gml_base_range;

/* Reserves addresses for `slots` granules, and for `host_bytes` of the host's memory beside; no
 * physical memory yet. Leaks nothing on failure. */
gml_status gml_base_range_open(gml_base_range *range, gml_driver *driver, uint64_t granule_bytes,
                               uint64_t slots, uint64_t host_bytes);

/* The device's memory that may still come. */
static inline uint64_t gml_base_range_left(const gml_base_range *range) {
    return range->slots * range->granule_bytes - range->host_limit - range->held_bytes;
}

/* What failures have left without a mapping. */
static inline uint64_t gml_base_range_leftover(const gml_base_range *range) {
    return range->held_bytes + range->host_bytes - range->present_bytes;
}

/* Where the chunk that covers `offset` begins, and its size. For an absent granule, itself.
 * pre: offset <= slots * granule_bytes. */
static inline uint64_t gml_base_range_chunk_bytes(const gml_base_range *range, uint64_t offset) {
    return range->granule_bytes << range->orders[offset / range->granule_bytes];
}

static inline uint64_t gml_base_range_chunk_begin(const gml_base_range *range, uint64_t offset) {
    uint64_t slot = offset / range->granule_bytes;
    unsigned order = range->orders[slot];
    return (slot >> order << order) * range->granule_bytes;
}

/* Whether the chunk that covers `offset` is of the host. pre: present. */
static inline bool gml_base_range_is_on_host(const gml_base_range *range, uint64_t offset) {
    uint64_t slot = gml_base_range_chunk_begin(range, offset) / range->granule_bytes;
    return range->host_bytes && gml_driver_is_on_host(range->driver, range->handles[slot]);
}

/* Unmaps and releases everything; continues after a failure and returns the first. */
gml_status gml_base_range_close(gml_base_range *range);

/* The first chunk boundary that is not before `offset`. */
static inline uint64_t gml_base_range_boundary(const gml_base_range *range, uint64_t offset) {
    uint64_t begin = gml_base_range_chunk_begin(range, offset);
    return begin == offset ? offset : begin + gml_base_range_chunk_bytes(range, offset);
}

/* Whether the memory there is told of here; else another driver that maps it does. pre: present. */
static inline bool gml_base_range_is_told(const gml_base_range *range, uint64_t offset) {
    uint64_t slot = gml_base_range_chunk_begin(range, offset) / range->granule_bytes;
    return gml_driver_stands_for(range->driver, range->handles[slot]);
}

/* Appends the handles of the chunks that [offset, offset + size) touches to range->collected, which
 * the caller empties by setting its count to 0. pre: all of it is present. */
gml_status gml_base_range_collect(gml_base_range *range, uint64_t offset, uint64_t size_bytes);

/* The extent that covers `offset`. pre: offset < slots * granule_bytes. */
gml_extent *gml_base_range_find(const gml_base_range *range, uint64_t offset);

/* Where growing by chunks of that size begins: the lowest absent place, or the end; on a shared
 * device the lowest with room for one, so that small chunks fill gaps and large ones stay large. */
uint64_t gml_base_range_gap(const gml_base_range *range, uint64_t chunk_bytes);

/* Where the highest absent place ends: growing at the end goes downwards from there. */
uint64_t gml_base_range_end(const gml_base_range *range);

/* Adds `size_bytes` (a multiple of the granule), lowest gaps first, or highest, as free extents in
 * `set`.
 * Chunks are as large as their place allows, at most `chunk_bytes`, a granule times a power of two.
 * Driver calls: a create and a map for each chunk, a set_access for each contiguous run of places.
 * After a failure, completed runs stay, free; other new chunks are released, except handles that
 * the driver refuses to release: the next growth uses them and may then exceed the requested size.
 * GML_OUT_OF_MEMORY, with nothing done, if too few places are left. */
gml_status gml_base_range_grow(gml_base_range *range, uint64_t size_bytes, uint64_t chunk_bytes,
                               bool at_end, struct gml_freeset *set);

/* Removes the whole chunks of a free extent that begin at `offset` or behind it, ends what others
 * still map of them (gml_driver_end_aliases()), and releases them to the driver: the only way by
 * which a chunk that was in use goes. The caller has made sure that there is one, that no work uses
 * them and that no view maps them. *released_bytes is increased by what the driver took. After a
 * failure everything is consistent. pre: `offset` is where a chunk begins, or lies before the
 * extent's first. */
gml_status gml_base_range_shrink(gml_base_range *range, const gml_extent *extent, uint64_t offset,
                                 uint64_t *released_bytes);

/* Gives back the handles that an earlier failure left without a mapping, and adds to
 * *released_bytes. */
gml_status gml_base_range_release_leftovers(gml_base_range *range, uint64_t *released_bytes);

/* Room for `count` extents, so that the next claims cannot fail: each needs at most two. */
gml_status gml_base_range_prepare(gml_base_range *range, size_t count);

/* Cuts [offset, offset + size) out of a free extent and marks it used by `owner`.
 * pre: one free extent covers the range; two extents are prepared. */
gml_extent *gml_base_range_claim(gml_base_range *range, uint64_t offset, uint64_t size_bytes,
                                 void *owner);

/* Makes a used extent free in `set`, as freed at `instant`, and merges it with its free neighbours
 * there: the latest instant is that of them all. */
void gml_base_range_unclaim(gml_base_range *range, gml_extent *extent, struct gml_freeset *set,
                            uint64_t instant);

/* Moves [offset, offset + size) of a free extent to another freeset, as freed there at `instant`;
 * it merges there. Returns the extent it is now part of. pre: two extents are prepared, unless the
 * range is a whole extent. */
gml_extent *gml_base_range_move(gml_base_range *range, uint64_t offset, uint64_t size_bytes,
                                struct gml_freeset *set, uint64_t instant);

/* Tiling, index and handles agree; the reason goes to driver->reason. Linear. */
gml_status gml_base_range_check(const gml_base_range *range);

#endif
