#include "diagnosis/written.h"

#include "base/room.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RUNS = 4096, MOST_LOOKS = 1 << 16 };

typedef struct run {
    uint64_t begin, end;
} run;

/* The bytes written so far: disjoint runs that do not touch each other, ascending. */
typedef struct written_set {
    run *runs;
    size_t count, capacity;
    size_t looks; /* at runs so far */
} written_set;

/* It would take too long to tell. */
static bool is_too_long(const written_set *set) {
    return set->count > MOST_RUNS || set->looks > MOST_LOOKS;
}

/* The first run that ends at `offset` or after it. */
static size_t find_run(const written_set *set, uint64_t offset) {
    size_t low = 0, high = set->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (set->runs[middle].end < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool has_run(written_set *set, run wanted) {
    set->looks++;
    size_t i = find_run(set, wanted.end);
    return i < set->count && set->runs[i].begin <= wanted.begin;
}

/* For so many runs more. */
static gml_status make_room(written_set *set, size_t more) {
    return gml_make_room(&set->runs, &set->capacity, set->count + more, sizeof *set->runs)
               ? GML_OK
               : GML_NO_HOST_MEMORY;
}

static gml_status add_run(written_set *set, run added) {
    gml_status status = make_room(set, 1);
    if (status != GML_OK) {
        return status;
    }
    size_t first = find_run(set, added.begin), next = first;
    for (; next < set->count && set->runs[next].begin <= added.end; next++) {
        added.begin = set->runs[next].begin < added.begin ? set->runs[next].begin : added.begin;
        added.end = set->runs[next].end > added.end ? set->runs[next].end : added.end;
    }
    if (next != first + 1) {
        memmove(&set->runs[first + 1], &set->runs[next], (set->count - next) * sizeof *set->runs);
    }
    set->runs[first] = added;
    set->count = set->count + 1 - (next - first);
    set->looks++;
    return GML_OK;
}

/* Behind the last run, or as part of it. */
static void append_run(written_set *set, run added) {
    run *last = &set->runs[set->count ? set->count - 1 : 0];
    if (!set->count || last->end < added.begin) {
        set->runs[set->count++] = added;
    } else if (last->end < added.end) {
        last->end = added.end;
    }
}

/* ---- accesses -------------------------------------------------------------------------------- */

/* The range with a stride of its size is one run. */
static gml_access_range joined(const gml_access_range *range) {
    gml_access_range result = *range;
    if (range->repeat > 1 && range->stride_bytes == range->size_bytes) {
        result.size_bytes *= range->repeat;
        result.repeat = 1;
    }
    return result;
}

static run run_of(const gml_access_range *range, uint64_t number) {
    uint64_t begin = range->offset + (number ? number * range->stride_bytes : 0);
    return (run){begin, begin + range->size_bytes};
}

static bool has_range(written_set *set, const gml_access_range *range) {
    run last = run_of(range, range->repeat - 1);
    if (has_run(set, (run){range->offset, last.end})) {
        return true;
    }
    for (uint64_t i = 0; i < range->repeat; i++) {
        if (is_too_long(set) || !has_run(set, run_of(range, i))) {
            return false;
        }
    }
    return true;
}

/* Merges the runs so far with those of the range. As they are kept at the end of the room, writing
 * never overtakes reading. */
static gml_status merge_range(written_set *set, const gml_access_range *range) {
    size_t added = (size_t)range->repeat, old_count = set->count;
    gml_status status = make_room(set, added);
    if (status != GML_OK) {
        return status;
    }
    const run *old = memmove(set->runs + added, set->runs, old_count * sizeof *set->runs);
    set->count = 0;
    set->looks += added;
    for (size_t i = 0, j = 0; i < old_count || j < added;) {
        run next = run_of(range, j < added ? j : 0);
        bool take_old = j == added || (i < old_count && old[i].begin <= next.begin);
        append_run(set, take_old ? old[i] : next);
        i += take_old;
        j += !take_old;
    }
    return GML_OK;
}

static gml_status add_range(written_set *set, const gml_access_range *range) {
    if (range->repeat == 1) {
        return add_run(set, run_of(range, 0));
    }
    if (is_too_long(set) || range->repeat > MOST_LOOKS) {
        set->looks = MOST_LOOKS + 1;
        return GML_OK;
    }
    return merge_range(set, range);
}

static bool has_access(written_set *set, const gml_object_trace *trace, const gml_access *access) {
    if (!access->range_count) {
        return has_run(set, (run){0, trace->objects[access->object].size_bytes});
    }
    for (uint32_t i = 0; i < access->range_count; i++) {
        gml_access_range range = joined(&trace->ranges[access->first_range + i]);
        if (!has_range(set, &range)) {
            return false;
        }
    }
    return true;
}

static gml_status add_access(written_set *set, const gml_object_trace *trace,
                             const gml_access *access) {
    if (!access->range_count) {
        return add_run(set, (run){0, trace->objects[access->object].size_bytes});
    }
    gml_status status = GML_OK;
    for (uint32_t i = 0; status == GML_OK && i < access->range_count; i++) {
        gml_access_range range = joined(&trace->ranges[access->first_range + i]);
        status = add_range(set, &range);
    }
    return status;
}

/* ---- an object ------------------------------------------------------------------------------- */

static bool is_whole(const written_set *set, uint64_t size_bytes) {
    return set->count == 1 && set->runs[0].end - set->runs[0].begin == size_bytes;
}

/* The uses from `begin` to before `end` are those of one API: it reads first. */
static gml_status meet_api(written_set *set, const gml_trace_index *index, size_t begin, size_t end,
                           bool *is_written) {
    const gml_object_trace *trace = index->trace;
    gml_status status = GML_OK;
    for (size_t i = begin; i < end && *is_written; i++) {
        const gml_access *access = &trace->accesses[index->uses[i]];
        *is_written = access->flags == GML_ACCESS_WRITES || has_access(set, trace, access);
    }
    for (size_t i = begin; status == GML_OK && i < end && *is_written; i++) {
        const gml_access *access = &trace->accesses[index->uses[i]];
        if (access->flags == GML_ACCESS_WRITES) {
            status = add_access(set, trace, access);
        }
    }
    return status;
}

gml_status gml_object_is_written_first(const gml_trace_index *index, uint32_t object,
                                       bool *is_written_first) {
    written_set set = {0};
    uint64_t size_bytes = index->trace->objects[object].size_bytes;
    size_t begin = index->first_use[object], end = index->first_use[object + 1];
    bool is_written = true;
    gml_status status = GML_OK;
    while (status == GML_OK && is_written && begin < end && !is_whole(&set, size_bytes)) {
        size_t next = begin + 1;
        while (next < end &&
               index->api_of[index->uses[next]] == index->api_of[index->uses[begin]]) {
            next++;
        }
        status = meet_api(&set, index, begin, next, &is_written);
        is_written = is_written && !is_too_long(&set);
        begin = next;
    }
    free(set.runs);
    *is_written_first = is_written;
    return status;
}
