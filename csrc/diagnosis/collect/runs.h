/* The bytes that one launch marked in an object, as runs. */
#ifndef GML_DIAGNOSE_COLLECT_RUNS_H
#define GML_DIAGNOSE_COLLECT_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A part of an object's cells; see table.h. */
typedef struct gml_marks {
    const uint32_t *bits;     /* of one kind, from the byte `first` on */
    const uint32_t *others;   /* of the other kind */
    const uint32_t *counters; /* from the granule that begins at `first`, or NULL */
    uint64_t first, end;      /* bytes of the object; `first` begins a word of bits and a granule */
    unsigned granule_shift;
    bool is_written;
} gml_marks;

/* `repeat` runs, each element of them accessed `weight` times. */
typedef struct gml_marked_run {
    uint64_t offset, size_bytes, stride_bytes, repeat;
    uint32_t weight;
} gml_marked_run;

/* All zero: empty. May be used for one object after the other. */
typedef struct gml_runs {
    gml_marked_run *items;
    size_t count;
    bool is_exact; /* else they cover bytes that were not marked */
    bool is_even;  /* weights are an average, or not known */

    size_t capacity, most; /* its own */
    uint64_t gap, open, open_end;
    uint32_t open_weight, even_weight;
    double weighted_bytes, bytes;
} gml_runs;

/* At most `most` items, at least 1. Where the marks need more, all weights become their average,
 * and then runs are joined with what lies between. False without host memory. */
bool gml_runs_find(gml_runs *runs, const gml_marks *marks, size_t most);

#endif
