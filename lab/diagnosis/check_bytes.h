/* State of each byte of an object, for the independent check: a few words, the same for all bytes
 * of a segment. Segments are split where a set of runs begins or ends, and merged when they become
 * equal. */
#ifndef GML_DIAGNOSE_CHECK_BYTES_H
#define GML_DIAGNOSE_CHECK_BYTES_H

#include "diagnosis/check_byte_set.h"

/* All zero: empty. Segment i ends before ends[i], and its words begin at words[i * width]. */
typedef struct gml_byte_map {
    uint64_t *ends;
    uint64_t *words;
    size_t count;
    size_t width;    /* words of a segment */
    uint64_t *looks; /* that are left, at segments and at eight words each; the caller's */
} gml_byte_map;

/* One segment with all words 0. The caller closes the map either way. */
gml_status gml_byte_map_open(gml_byte_map *map, uint64_t size_bytes, size_t width, uint64_t *looks);
void gml_byte_map_close(gml_byte_map *map);

/* Sees, and may change, the words of a segment. Anything but GML_OK ends the visit. */
typedef gml_status (*gml_byte_visit)(void *state, uint64_t *words, uint64_t begin);

/* Visits every byte of a set, segment by segment. GML_UNSUPPORTED where no looks are left. */
gml_status gml_byte_map_visit(gml_byte_map *map, const gml_byte_set *runs, gml_byte_visit visit,
                              void *state);

#endif
