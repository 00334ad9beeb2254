/* Times in which an object lives without use: at its ends, in between, always, or forever. */
#include "base/sort.h"
#include "diagnosis/findings.h"

#include <stdlib.h>

/* Fewer APIs in between are no finding. */
enum { EARLY_APIS = 1, LATE_APIS = 1, IDLE_APIS = 2 };

typedef struct timing_pass {
    const gml_trace_index *index;
    gml_findings *out;
    gml_keyed *list; /* room for twice the accesses of any object */
} timing_pass;

static gml_status add(const timing_pass *pass, gml_pattern pattern, size_t object, uint64_t from,
                      uint64_t to) {
    gml_finding finding = {
        .pattern = pattern,
        .object = (uint32_t)object,
        .other = GML_NO_OBJECT,
        .from_api = from,
        .to_api = to,
        .distance = gml_index_distance(pass->index, from, to),
        .bytes = pass->index->trace->objects[object].size_bytes,
    };
    return gml_findings_add(pass->out, &finding);
}

static bool has_flag(const timing_pass *pass, size_t object, uint32_t flag) {
    return pass->index->trace->objects[object].flags & flag;
}

/* ---- at the ends ----------------------------------------------------------------------------- */

static gml_status find_early(const timing_pass *pass, size_t object) {
    const gml_object_life *life = &pass->index->lives[object];
    bool is_early = gml_index_between(pass->index, life->alloc, life->first) >= EARLY_APIS;
    return is_early ? add(pass, GML_PATTERN_EARLY_ALLOCATION, object, life->alloc, life->first)
                    : GML_OK;
}

static gml_status find_late(const timing_pass *pass, size_t object) {
    const gml_object_life *life = &pass->index->lives[object];
    bool is_late = gml_index_between(pass->index, life->last, life->free) >= LATE_APIS;
    return is_late ? add(pass, GML_PATTERN_LATE_DEALLOCATION, object, life->last, life->free)
                   : GML_OK;
}

/* Nothing is known of accesses before the trace, nor after it to an object that is kept. */
static gml_status find_unused(const timing_pass *pass, size_t object) {
    const gml_object_life *life = &pass->index->lives[object];
    bool may_be_used_later = has_flag(pass, object, GML_OBJECT_KEPT) && life->free == GML_NO_API;
    bool is_unused =
        !life->access_count && !has_flag(pass, object, GML_OBJECT_BEFORE) && !may_be_used_later;
    return is_unused ? add(pass, GML_PATTERN_UNUSED_ALLOCATION, object, life->alloc, life->free)
                     : GML_OK;
}

static gml_status find_leak(const timing_pass *pass, size_t object) {
    const gml_object_life *life = &pass->index->lives[object];
    if (life->free != GML_NO_API || has_flag(pass, object, GML_OBJECT_KEPT)) {
        return GML_OK;
    }
    uint64_t from = life->access_count ? life->last : life->alloc;
    return add(pass, GML_PATTERN_MEMORY_LEAK, object, from, GML_NO_API);
}

/* ---- in between ------------------------------------------------------------------------------ */

/* The numbers of the APIs that access the object, by time and then number; one that has several
 * accesses stands there several times. */
static size_t list_by_time(const timing_pass *pass, size_t object) {
    const gml_trace_index *index = pass->index;
    size_t count = 0;
    for (size_t i = index->first_use[object]; i < index->first_use[object + 1]; i++) {
        uint32_t api = index->api_of[index->uses[i]];
        pass->list[count++] = (gml_keyed){index->times[api], api};
    }
    if (index->stream_count > 1) {
        gml_sort_keyed(pass->list, pass->list + count, count);
    }
    return count;
}

/* From each place on, the lowest number: into the second half of the list, as keys. */
static void list_least(gml_keyed *list, size_t count) {
    uint64_t least = GML_NO_API;
    for (size_t i = count; i-- > 0;) {
        least = list[i].index < least ? list[i].index : least;
        list[count + i].key = least;
    }
}

/* Two accesses count as consecutive where no other lies between them, neither in time nor in order
 * of invocation: else the object cannot be away from the one to the other. */
static gml_status find_idle(const timing_pass *pass, size_t object) {
    gml_keyed *list = pass->list;
    size_t count = list_by_time(pass, object);
    list_least(list, count);
    uint64_t highest = 0;
    gml_status status = GML_OK;
    for (size_t i = 0; status == GML_OK && i + 1 < count; i++) {
        uint64_t from = list[i].index, to = list[count + i + 1].key;
        highest = from > highest ? from : highest;
        bool is_consecutive =
            from == highest && from < to && pass->index->times[to] == list[i + 1].key;
        if (is_consecutive && gml_index_between(pass->index, from, to) >= IDLE_APIS) {
            status = add(pass, GML_PATTERN_TEMPORARY_IDLENESS, object, from, to);
        }
    }
    return status;
}

/* ---- the pass -------------------------------------------------------------------------------- */

typedef gml_status (*find_one)(const timing_pass *, size_t);

static gml_status find_patterns(const timing_pass *pass) {
    static const find_one finders[] = {find_early, find_late, find_unused, find_leak, find_idle};
    gml_status status = GML_OK;
    for (size_t i = 0; i < sizeof finders / sizeof *finders; i++) {
        for (size_t o = 0; status == GML_OK && o < pass->index->trace->object_count; o++) {
            status = finders[i](pass, o);
        }
    }
    return status;
}

static size_t most_uses(const gml_trace_index *index) {
    size_t most = 0;
    for (size_t o = 0; o < index->trace->object_count; o++) {
        most = index->lives[o].access_count > most ? index->lives[o].access_count : most;
    }
    return most;
}

gml_status gml_find_timing(const gml_trace_index *index, gml_findings *out) {
    timing_pass pass = {.index = index, .out = out};
    pass.list = malloc((2 * most_uses(index) + 1) * sizeof *pass.list);
    if (!pass.list) {
        return GML_NO_HOST_MEMORY;
    }
    gml_status status = find_patterns(&pass);
    free(pass.list);
    return status;
}
