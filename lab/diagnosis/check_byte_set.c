#include "diagnosis/check_byte_set.h"

#include <stdlib.h>

enum { LEAST_CAPACITY = 16 };

void gml_byte_set_clear(gml_byte_set *runs) {
    free(runs->items);
    *runs = (gml_byte_set){0};
}

gml_status gml_byte_set_append(gml_byte_set *runs, uint64_t begin, uint64_t end) {
    if (runs->count == runs->capacity) {
        size_t capacity = runs->capacity ? 2 * runs->capacity : LEAST_CAPACITY;
        gml_byte_range *items = realloc(runs->items, capacity * sizeof *items);
        if (!items) {
            return GML_NO_HOST_MEMORY;
        }
        runs->items = items;
        runs->capacity = capacity;
    }
    runs->items[runs->count++] = (gml_byte_range){begin, end};
    return GML_OK;
}

static gml_status append_units(gml_byte_set *runs, uint64_t begin, uint64_t end,
                               uint64_t unit_bytes, uint64_t size) {
    uint64_t past = end % unit_bytes;
    end += past ? unit_bytes - past : 0;
    return gml_byte_set_append(runs, begin - begin % unit_bytes, end < size ? end : size);
}

static gml_status append_range(gml_byte_set *runs, const gml_access_range *range,
                               uint64_t unit_bytes, uint64_t size) {
    uint64_t offset = range->offset;
    if (range->stride_bytes == range->size_bytes) {
        return append_units(runs, offset, offset + range->size_bytes * range->repeat, unit_bytes,
                            size);
    }
    if (runs->count >= GML_MOST_RUNS || range->repeat > GML_MOST_RUNS - runs->count) {
        return GML_UNSUPPORTED;
    }
    gml_status status = GML_OK;
    for (uint64_t i = 0; status == GML_OK && i < range->repeat; i++) {
        status = append_units(runs, offset, offset + range->size_bytes, unit_bytes, size);
        offset += range->stride_bytes;
    }
    return status;
}

gml_status gml_byte_set_append_access(gml_byte_set *runs, const gml_object_trace *trace,
                                      const gml_access *access, uint64_t unit_bytes) {
    uint64_t size = trace->objects[access->object].size_bytes;
    if (runs->count >= GML_MOST_RUNS) {
        return GML_UNSUPPORTED;
    }
    if (access->range_count == 0) {
        return gml_byte_set_append(runs, 0, size);
    }
    gml_status status = GML_OK;
    for (uint32_t i = 0; status == GML_OK && i < access->range_count; i++) {
        status = append_range(runs, &trace->ranges[access->first_range + i], unit_bytes, size);
    }
    return status;
}

static int compare_runs(const void *a, const void *b) {
    const gml_byte_range *left = a, *right = b;
    return (left->begin > right->begin) - (left->begin < right->begin);
}

static bool is_ascending(const gml_byte_set *runs) {
    for (size_t i = 1; i < runs->count; i++) {
        if (runs->items[i].begin < runs->items[i - 1].begin) {
            return false;
        }
    }
    return true;
}

void gml_byte_set_normalize(gml_byte_set *runs) {
    if (!is_ascending(runs)) {
        qsort(runs->items, runs->count, sizeof *runs->items, compare_runs);
    }
    size_t count = 0;
    for (size_t i = 0; i < runs->count; i++) {
        gml_byte_range run = runs->items[i];
        if (count > 0 && run.begin <= runs->items[count - 1].end) {
            gml_byte_range *last = &runs->items[count - 1];
            last->end = run.end > last->end ? run.end : last->end;
        } else {
            runs->items[count++] = run;
        }
    }
    runs->count = count;
}

gml_status gml_byte_set_common(gml_byte_set *out, const gml_byte_set *a, const gml_byte_set *b) {
    gml_status status = GML_OK;
    for (size_t i = 0, j = 0; status == GML_OK && i < a->count && j < b->count;) {
        gml_byte_range left = a->items[i], right = b->items[j];
        uint64_t begin = left.begin > right.begin ? left.begin : right.begin;
        uint64_t end = left.end < right.end ? left.end : right.end;
        if (begin < end) {
            status = gml_byte_set_append(out, begin, end);
        }
        i += left.end == end;
        j += right.end == end;
    }
    return status;
}

gml_status gml_byte_set_without(gml_byte_set *out, const gml_byte_set *a, const gml_byte_set *b) {
    gml_status status = GML_OK;
    for (size_t i = 0, j = 0; status == GML_OK && i < a->count; i++) {
        uint64_t begin = a->items[i].begin, end = a->items[i].end;
        while (j < b->count && b->items[j].end <= begin) {
            j++;
        }
        for (size_t k = j; status == GML_OK && k < b->count && b->items[k].begin < end; k++) {
            if (b->items[k].begin > begin) {
                status = gml_byte_set_append(out, begin, b->items[k].begin);
            }
            begin = b->items[k].end;
        }
        if (status == GML_OK && begin < end) {
            status = gml_byte_set_append(out, begin, end);
        }
    }
    return status;
}

uint64_t gml_byte_set_bytes(const gml_byte_set *runs) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < runs->count; i++) {
        bytes += runs->items[i].end - runs->items[i].begin;
    }
    return bytes;
}
