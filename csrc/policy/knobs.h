/* Every setting of every policy, by name, with its range. */
#ifndef GML_POLICY_KNOBS_H
#define GML_POLICY_KNOBS_H

#include "gmlake.h"

enum {
    GML_ROUNDUP_INTERVALS = 16 /* powers of two from 1 MiB to 32768 MiB, as PyTorch counts them */
};

typedef struct gml_knobs {
    /* stitch */
    uint64_t frag_limit;   /* smallest request that may be stitched, bytes */
    uint64_t chunk_size;   /* physical chunk, bytes; a multiple of the device granularity */
    uint64_t optimize_for; /* a gml_optimize_for; see policy/stitch/cost_model.h */
    uint64_t max_views;    /* cached views kept at most */
    uint64_t host;         /* memory of the host to be taken before a refusal, bytes; 0: none */
    uint64_t arena;        /* the one allocation to serve from, bytes; 0: none */
    /* the same: what streams lend each other */
    uint64_t reuse_allow_opportunistic; /* 0 or 1, and so the next: reuse completed memory */
    uint64_t reuse_allow_internal_dependencies; /* reuse after a wait */
    uint64_t borrow_waits; /* of one stream for another, per 1024 requests; see share.c */
    /* caching and expandable, by PyTorch's names */
    uint64_t max_split_size;                                  /* bytes; UINT64_MAX: unlimited */
    uint64_t max_non_split_rounding;                          /* bytes */
    uint64_t large_segment_size;                              /* bytes */
    uint64_t memory_limit;                                    /* bytes; 0: none */
    uint64_t garbage_collection_percent;                      /* of that or capacity; 0: off */
    uint64_t oldest_segment_first;                            /* 0 or 1; of blocks alike */
    uint64_t roundup_power2_divisions[GML_ROUNDUP_INTERVALS]; /* 0: off */
    bool is_whole; /* no setting: see GML_POOL_IS_WHOLE */
} gml_knobs;

/* All defaults. */
void gml_knobs_init(gml_knobs *knobs);

/* Applies settings in order. "roundup_power2_divisions" sets every interval,
 * "roundup_power2_divisions.256" the one of 256 MiB. GML_INVALID_ARGUMENT with one line in `reason`
 * for an unknown name (it lists the known ones) or a value out of range (it gives the range). */
gml_status gml_knobs_apply(gml_knobs *knobs, const gml_setting *settings, size_t count,
                           char *reason, size_t reason_bytes);

#endif
