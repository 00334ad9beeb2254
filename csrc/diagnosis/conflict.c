#include "diagnosis/conflict.h"

#include "diagnosis/spans.h"

enum { MOST_TESTS = 64 };

/* Whether one of the runs meets the span from `begin` to before `end`. */
static bool run_meets(const gml_access_range *runs, uint64_t begin, uint64_t end) {
    uint64_t run = 0; /* the first that ends after `begin` */
    uint64_t first_end = runs->offset + runs->size_bytes;
    if (first_end <= begin) {
        if (runs->repeat == 1) {
            return false;
        }
        run = (begin - first_end) / runs->stride_bytes + 1;
    }
    return run < runs->repeat && runs->offset + run * runs->stride_bytes < end;
}

/* pre: a->repeat <= b->repeat. Charges its tests to *tests. */
static bool ranges_meet(const gml_access_range *a, const gml_access_range *b, uint32_t *tests) {
    for (uint64_t run = 0; run < a->repeat && *tests > 0; run++, --*tests) {
        uint64_t begin = a->offset + run * a->stride_bytes;
        if (run_meets(b, begin, begin + a->size_bytes)) {
            return true;
        }
    }
    return false;
}

bool gml_accesses_meet(const gml_object_trace *trace, const gml_access *a, const gml_access *b) {
    if (gml_access_is_whole(trace, a) || gml_access_is_whole(trace, b)) {
        return true;
    }
    uint32_t tests = MOST_TESTS;
    for (uint32_t i = 0; i < a->range_count && tests > 0; i++) {
        const gml_access_range *left = &trace->ranges[a->first_range + i];
        for (uint32_t j = 0; j < b->range_count && tests > 0; j++) {
            const gml_access_range *right = &trace->ranges[b->first_range + j];
            bool is_left_shorter = left->repeat <= right->repeat;
            if (ranges_meet(is_left_shorter ? left : right, is_left_shorter ? right : left,
                            &tests)) {
                return true;
            }
        }
    }
    return false;
}
