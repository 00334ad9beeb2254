/* `gmlake-paper`: the allocation strategy of "GMLake: Efficient and Transparent GPU Memory
 * Defragmentation for Large-scale DNN Training with Virtual Memory Stitching" (Guo et al., ASPLOS
 * 2024), section 3.3, section 4 and Algorithm 1. Shared by its files.
 *
 * A *primitive* is the paper's pBlock: chunks, and an address range of its own over them. A *view*
 * is its sBlock: an address range over the chunks of several primitives. Views may overlap one
 * another, so each counts how many of its primitives are active, and can serve only at 0.
 *
 * Streams share nothing: each has a *lane* of free lists.
 */
#ifndef GML_POLICY_PAPER_PAPER_H
#define GML_POLICY_PAPER_PAPER_H

#include "base/pool.h"
#include "base/tree.h"
#include "policy/policy.h"

enum { GML_PAPER_SEGMENT_BYTES = 2 << 20 }; /* of the small requests, as in PyTorch */

typedef struct gml_paper_range gml_paper_range;
typedef struct gml_paper_link gml_paper_link;
typedef struct gml_paper_cell gml_paper_cell;

/* The free lists of one stream. */
typedef struct gml_paper_lane {
    gml_tree_node node; /* in gml_paper.lanes; its size_bytes is the stream, its address 0 */
    gml_stream stream;
    gml_tree idle_primitives;  /* by size: those that no live block uses */
    gml_tree idle_views;       /* by size: those without an active primitive */
    gml_tree idle_cells;       /* by size: free pieces of small segments */
    uint64_t stitchable_bytes; /* sum of the idle primitives of at least frag_limit */
} gml_paper_lane;

/* "view `view` covers primitive `primitive`", in the lists of both. */
struct gml_paper_link {
    gml_paper_range *view, *primitive;
    gml_paper_link *next_part;                 /* of the view, in address order */
    gml_paper_link *previous_view, *next_view; /* of the primitive, in no order */
};

/* A primitive or a view. */
struct gml_paper_range {
    gml_block block;    /* first: what the lake sees while the range is handed out */
    gml_tree_node node; /* its address and size; in an idle tree of the lane while idle */
    gml_paper_lane *lane;
    gml_paper_range *previous, *next; /* in the list of primitives, of views, or of leftovers */
    uint64_t mapped_bytes;            /* mapped from the start: all, but in a leftover */
    bool is_reserved;                 /* the address range is held */
    bool is_view;
    bool is_handed_out;
    gml_paper_link *links; /* a primitive's views; a view's primitives */
    /* Of a primitive. */
    gml_paper_range *next_candidate; /* in a gml_paper_chain */
    gml_handle *handles;
    size_t handle_count;
    bool is_active; /* handed out, or part of a view that is */
    /* Of a view. */
    uint64_t active_parts;
    gml_paper_range *older, *newer; /* least recently used order of the views not handed out */
};

/* A piece of a 2 MiB segment for requests up to 1 MiB. The pieces of a segment form a list. */
struct gml_paper_cell {
    gml_block block;
    gml_tree_node node;
    gml_paper_lane *lane;
    gml_paper_cell *before, *after;                  /* neighbours in the segment */
    gml_paper_cell *previous_segment, *next_segment; /* of a segment's first cell */
    bool is_used;
};

typedef struct gml_paper_list {
    gml_paper_range *first;
    size_t count;
} gml_paper_list;

/* Idle primitives that are to be stitched, in this order. */
typedef struct gml_paper_chain {
    gml_paper_range *first, *last;
    uint64_t size_bytes; /* their sum */
} gml_paper_chain;

typedef struct gml_paper {
    gml_policy base;
    uint64_t limit_bytes; /* reserved_bytes never goes above */
    uint64_t chunk_bytes;
    uint64_t frag_limit_bytes;
    uint64_t max_views, max_view_bytes;
    gml_tree lanes;
    gml_paper_lane *last_lane; /* the one used last, or NULL */
    gml_paper_list primitives, views;
    gml_paper_list leftovers; /* out of use, but the driver refused to take a part back */
    uint64_t view_bytes;
    gml_paper_range *oldest, *newest; /* views not handed out, by last use */
    gml_paper_cell *segments;
    gml_pool lane_pool, range_pool, link_pool, cell_pool;
    gml_handle *handles; /* scratch of stitching */
    size_t handle_capacity;
} gml_paper;

static inline gml_paper_range *gml_paper_range_of(gml_tree_node *node) {
    return node ? (gml_paper_range *)(void *)((char *)node - offsetof(gml_paper_range, node))
                : NULL;
}

static inline gml_paper_cell *gml_paper_cell_of(gml_tree_node *node) {
    return node ? (gml_paper_cell *)(void *)((char *)node - offsetof(gml_paper_cell, node)) : NULL;
}

/* ---- range.c: a range and its driver calls --------------------------------------------------- */

/* Reserves node.size_bytes, maps the chunks there one by one and opens each: sets node.address.
 * On failure *range may hold what the driver refused to take back: see gml_paper_range_drop. */
gml_status gml_paper_range_map(gml_paper *self, gml_paper_range *range, const gml_handle *handles);

/* Releases a range that is in no list and no tree: returns its memory to the driver and frees the
 * struct, or keeps it as a leftover for gml_paper_sweep if the driver refuses. */
gml_status gml_paper_range_drop(gml_paper *self, gml_paper_range *range);

/* Retries to release the leftovers; returns the first failure. */
gml_status gml_paper_sweep(gml_paper *self);

/* Frees the structs of leftovers, with anything they hold. */
void gml_paper_forget_leftovers(gml_paper *self);

void gml_paper_list_add(gml_paper_list *list, gml_paper_range *range);
void gml_paper_list_remove(gml_paper_list *list, gml_paper_range *range);

/* ---- primitive.c: Alloc, Split, and giving back ---------------------------------------------- */

/* A new idle primitive: the paper's Alloc. */
gml_status gml_paper_grow(gml_paper *self, gml_paper_lane *lane, uint64_t size_bytes,
                          gml_paper_range **out);

/* Cuts an idle primitive into one of the first `size_bytes` and one of the rest, each at a new
 * address, and leaves a view over both. The first part keeps the struct. */
gml_status gml_paper_split(gml_paper *self, gml_paper_range *primitive, uint64_t size_bytes);

/* Releases an idle primitive, after the views over it. On failure it may stay, idle and whole, or
 * be a leftover. pre: nothing pending on the device touches it. */
gml_status gml_paper_release(gml_paper *self, gml_paper_range *primitive);

/* An idle primitive begins or ends to be in use. */
void gml_paper_activate(gml_paper *self, gml_paper_range *primitive);
void gml_paper_deactivate(gml_paper *self, gml_paper_range *primitive);

/* A view is handed out, or comes back. */
void gml_paper_view_take(gml_paper *self, gml_paper_range *view);
void gml_paper_view_give(gml_paper *self, gml_paper_range *view);

/* ---- paper_view.c: Stitch and StitchFree ----------------------------------------------------- */

/* A new idle view over the chain. */
gml_status gml_paper_stitch(gml_paper *self, gml_paper_lane *lane, const gml_paper_chain *chain,
                            gml_paper_range **out);

/* Lists a mapped view as new and idle. pre: its links are made, its primitives idle. */
void gml_paper_view_add(gml_paper *self, gml_paper_range *view);

/* Appends primitive `part` to the parts of `view`, after `last` (NULL: first), with a link taken
 * from the caller. */
void gml_paper_link_add(gml_paper_range *view, gml_paper_range *part, gml_paper_link *last,
                        gml_paper_link *link);

/* Removes a view that is not handed out. GML_OK also if its address range became a leftover; after
 * a failure the view is as before. pre: nothing pending on the device touches it. */
gml_status gml_paper_view_remove(gml_paper *self, gml_paper_range *view);

/* Removes a view from every list and tree, leaving its struct and driver state. */
void gml_paper_view_detach(gml_paper *self, gml_paper_range *view);

/* A part of `view` became active, or idle. */
void gml_paper_view_count(gml_paper_range *view, bool is_active);

/* In and out of the order of last use, which holds the views that are not handed out. */
void gml_paper_view_enter_order(gml_paper *self, gml_paper_range *view);
void gml_paper_view_leave_order(gml_paper *self, gml_paper_range *view);

/* StitchFree: removes views not handed out, least recently used first, until one more of
 * `size_bytes` stays within max_views and max_view_bytes. Does what it can. */
void gml_paper_stitch_free(gml_paper *self, uint64_t size_bytes);

/* ---- paper_small.c: requests up to 1 MiB, split as PyTorch does ------------------------------ */

gml_status gml_paper_small_allocate(gml_paper *self, gml_paper_lane *lane, uint64_t size_bytes,
                                    gml_block **out);
void gml_paper_small_free(gml_paper *self, gml_paper_cell *cell);

/* Releases segments without a used cell, or all; continues after a failure, returns the first. */
gml_status gml_paper_small_release(gml_paper *self, bool with_live);

/* ---- paper_check.c --------------------------------------------------------------------------- */

gml_status gml_paper_check(gml_policy *base);
void gml_paper_visit(gml_policy *base, const gml_visitor *visitor);

extern const gml_policy_ops gml_paper_policy;

#endif
