#include "diagnosis/index.h"

#include "base/reason.h"
#include "base/sort.h"
#include "diagnosis/graph.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t MOST_BYTES = UINT64_C(1) << 48;
static const uint64_t MOST_SUM = UINT64_C(1) << 62;
static const uint64_t MOST_ITEMS = UINT64_C(1) << 32;

/* ---- checks ---------------------------------------------------------------------------------- */

typedef struct trace_check {
    const gml_object_trace *trace;
    gml_object_life *lives; /* so far: allocated, freed */
    uint64_t *last_api;     /* to access each object, plus 1 */
    uint8_t *seen_flags;    /* bit 1 << flags of each access of that API to it */
    char *reason;
    size_t reason_bytes;
} trace_check;

#define REFUSE(check, ...)                                                                         \
    gml_refuse(GML_INVALID_ARGUMENT, (check)->reason, (check)->reason_bytes, __VA_ARGS__)

static gml_status check_counts(const trace_check *check) {
    const gml_object_trace *trace = check->trace;
    if ((trace->api_count && !trace->apis) || (trace->object_count && !trace->objects) ||
        (trace->access_count && !trace->accesses) || (trace->range_count && !trace->ranges)) {
        return REFUSE(check, "an array of the trace is missing");
    }
    if (trace->api_count >= MOST_ITEMS || trace->access_count >= MOST_ITEMS ||
        trace->object_count >= MOST_ITEMS - 1) {
        return REFUSE(check, "the trace has 2^32 APIs, objects or accesses, or more");
    }
    return GML_OK;
}

/* The error in the object; NULL: valid. */
static const char *object_fault(const gml_object *object) {
    if (!object->size_bytes || object->size_bytes > MOST_BYTES) {
        return "a size outside 1 to 2^48";
    }
    if (!object->element_bytes) {
        return "elements of 0 bytes";
    }
    if (object->flags & ~(uint32_t)(GML_OBJECT_BEFORE | GML_OBJECT_KEPT)) {
        return "unknown flags";
    }
    return NULL;
}

static gml_status check_objects(const trace_check *check) {
    uint64_t sum = 0;
    for (size_t o = 0; o < check->trace->object_count; o++) {
        const char *fault = object_fault(&check->trace->objects[o]);
        if (fault) {
            return REFUSE(check, "object %zu has %s", o, fault);
        }
        sum += check->trace->objects[o].size_bytes;
        if (sum > MOST_SUM) {
            return REFUSE(check, "the objects have more than 2^62 bytes in sum");
        }
    }
    return GML_OK;
}

/* The error in the range of an object of that size; NULL: valid. */
static const char *range_fault(const gml_access_range *range, uint64_t object_bytes) {
    if (!range->size_bytes || !range->repeat || !range->weight) {
        return "a size, a repeat or a weight of 0";
    }
    if (range->size_bytes > object_bytes || range->offset > object_bytes - range->size_bytes) {
        return "an end outside its object";
    }
    if (range->repeat == 1) {
        return NULL;
    }
    if (range->stride_bytes < range->size_bytes) {
        return "a stride below its size";
    }
    uint64_t room = object_bytes - range->size_bytes - range->offset;
    return range->repeat - 1 > room / range->stride_bytes ? "an end outside its object" : NULL;
}

static gml_status check_ranges(const trace_check *check, size_t a, size_t access_number) {
    const gml_object_trace *trace = check->trace;
    const gml_access *access = &trace->accesses[access_number];
    if (access->range_count > trace->range_count ||
        (access->range_count && access->first_range > trace->range_count - access->range_count)) {
        return REFUSE(check, "access %zu of API %zu has ranges that are not there", access_number,
                      a);
    }
    uint64_t object_bytes = trace->objects[access->object].size_bytes;
    for (uint32_t i = 0; i < access->range_count; i++) {
        const char *fault = range_fault(&trace->ranges[access->first_range + i], object_bytes);
        if (fault) {
            return REFUSE(check, "range %u of access %zu of API %zu to object %u has %s", i,
                          access_number, a, access->object, fault);
        }
    }
    return GML_OK;
}

static bool is_live(const trace_check *check, uint32_t o) {
    const gml_object_life *life = &check->lives[o];
    bool is_there = check->trace->objects[o].flags & GML_OBJECT_BEFORE || life->alloc != GML_NO_API;
    return is_there && life->free == GML_NO_API;
}

static bool are_access_flags(uint32_t flags) {
    return flags == GML_ACCESS_READS || flags == GML_ACCESS_WRITES ||
           flags == (GML_ACCESS_READS | GML_ACCESS_WRITES) || flags == GML_ACCESS_TOUCHES;
}

static gml_status check_access(const trace_check *check, size_t a, size_t access_number) {
    const gml_access *access = &check->trace->accesses[access_number];
    uint32_t o = access->object;
    if (o >= check->trace->object_count) {
        return REFUSE(check, "API %zu accesses object %u, which is not there", a, o);
    }
    if (!are_access_flags(access->flags) || access->reserved) {
        return REFUSE(check, "access %zu of API %zu has unknown flags", access_number, a);
    }
    if (!is_live(check, o)) {
        return REFUSE(check, "API %zu accesses object %u %s", a, o,
                      check->lives[o].free == GML_NO_API ? "before its allocation"
                                                         : "after its free");
    }
    uint8_t bit = (uint8_t)(1 << access->flags);
    uint8_t seen = check->last_api[o] == a + 1 ? check->seen_flags[o] : 0;
    if (seen & bit) {
        return REFUSE(check, "API %zu has two accesses to object %u with the same flags", a, o);
    }
    check->last_api[o] = a + 1;
    check->seen_flags[o] = seen | bit;
    return check_ranges(check, a, access_number);
}

static gml_status check_alloc(const trace_check *check, size_t a, uint32_t o) {
    if (check->trace->objects[o].flags & GML_OBJECT_BEFORE) {
        return REFUSE(check, "API %zu allocates object %u, which is said to exist before", a, o);
    }
    if (check->lives[o].alloc != GML_NO_API) {
        return REFUSE(check, "API %zu allocates object %u once more", a, o);
    }
    check->lives[o].alloc = a;
    return GML_OK;
}

static gml_status check_free(const trace_check *check, size_t a, uint32_t o) {
    if (!is_live(check, o)) {
        return REFUSE(check, "API %zu frees object %u %s", a, o,
                      check->lives[o].free == GML_NO_API ? "before its allocation" : "once more");
    }
    check->lives[o].free = a;
    return GML_OK;
}

/* An allocation or a free. */
static gml_status check_ends(const trace_check *check, size_t a) {
    const gml_api *api = &check->trace->apis[a];
    if (api->access_count) {
        return REFUSE(check, "API %zu, an allocation or a free, has accesses", a);
    }
    if (api->object >= check->trace->object_count) {
        return REFUSE(check, "API %zu allocates or frees object %u, which is not there", a,
                      api->object);
    }
    return api->kind == GML_API_ALLOC ? check_alloc(check, a, api->object)
                                      : check_free(check, a, api->object);
}

/* pre: its accesses begin at `next_access`. */
static gml_status check_accesses(const trace_check *check, size_t a, size_t next_access) {
    const gml_api *api = &check->trace->apis[a];
    if (api->object != GML_NO_OBJECT) {
        return REFUSE(check, "API %zu names object %u but neither allocates nor frees it", a,
                      api->object);
    }
    if (api->access_count > check->trace->access_count - next_access) {
        return REFUSE(check, "API %zu has more accesses than there are", a);
    }
    for (uint32_t i = 0; i < api->access_count; i++) {
        gml_status status = check_access(check, a, next_access + i);
        if (status != GML_OK) {
            return status;
        }
    }
    return GML_OK;
}

static gml_status check_apis(const trace_check *check) {
    const gml_object_trace *trace = check->trace;
    size_t next_access = 0;
    for (size_t a = 0; a < trace->api_count; a++) {
        const gml_api *api = &trace->apis[a];
        if (api->kind >= GML_API_KIND_COUNT || api->reserved) {
            return REFUSE(check, "API %zu has an unknown kind", a);
        }
        if (api->first_access != next_access) {
            return REFUSE(check, "the accesses of API %zu do not follow those before it", a);
        }
        gml_status status = api->kind <= GML_API_FREE ? check_ends(check, a)
                                                      : check_accesses(check, a, next_access);
        if (status != GML_OK) {
            return status;
        }
        next_access += api->access_count;
    }
    if (next_access != trace->access_count) {
        return REFUSE(check, "access %zu belongs to no API", next_access);
    }
    return GML_OK;
}

static gml_status check_all_allocated(const trace_check *check) {
    for (size_t o = 0; o < check->trace->object_count; o++) {
        if (check->lives[o].alloc == GML_NO_API &&
            !(check->trace->objects[o].flags & GML_OBJECT_BEFORE)) {
            return REFUSE(check, "object %zu has no allocation and is not said to exist before", o);
        }
    }
    return GML_OK;
}

static gml_status check_trace(const trace_check *check) {
    gml_status status = check_apis(check);
    return status == GML_OK ? check_all_allocated(check) : status;
}

/* Sets `alloc` and `free` of the lives; all other members are none. */
static gml_status start_lives(gml_trace_index *index, trace_check *check) {
    size_t objects = index->trace->object_count;
    index->lives = malloc((objects + 1) * sizeof *index->lives);
    check->lives = index->lives;
    check->last_api = calloc(objects + 1, sizeof *check->last_api);
    check->seen_flags = calloc(objects + 1, sizeof *check->seen_flags);
    gml_status status = GML_NO_HOST_MEMORY;
    if (index->lives && check->last_api && check->seen_flags) {
        for (size_t o = 0; o < objects; o++) {
            index->lives[o] = (gml_object_life){GML_NO_API, GML_NO_API, GML_NO_API, GML_NO_API,
                                                GML_NO_API, GML_NO_API, 0,          0};
        }
        status = check_trace(check);
    }
    free(check->last_api);
    free(check->seen_flags);
    return status;
}

/* ---- uses ------------------------------------------------------------------------------------ */

static gml_status list_uses(gml_trace_index *index) {
    const gml_object_trace *trace = index->trace;
    index->uses = malloc((trace->access_count + 1) * sizeof *index->uses);
    index->api_of = malloc((trace->access_count + 1) * sizeof *index->api_of);
    index->first_use = calloc(trace->object_count + 2, sizeof *index->first_use);
    if (!index->uses || !index->api_of || !index->first_use) {
        return GML_NO_HOST_MEMORY;
    }
    size_t *next = index->first_use + 1; /* of object o, at o: where its next use goes */
    for (size_t i = 0; i < trace->access_count; i++) {
        next[trace->accesses[i].object + 1]++;
    }
    for (size_t o = 0; o < trace->object_count; o++) {
        next[o + 1] += next[o];
    }
    for (size_t a = 0; a < trace->api_count; a++) {
        size_t first = trace->apis[a].first_access;
        for (size_t i = first; i < first + trace->apis[a].access_count; i++) {
            index->api_of[i] = (uint32_t)a;
            index->uses[next[trace->accesses[i].object]++] = (uint32_t)i;
        }
    }
    return GML_OK;
}

/* ---- streams --------------------------------------------------------------------------------- */

/* Streams are numbered in order of their handles. */
static gml_status number_streams(gml_trace_index *index) {
    const gml_object_trace *trace = index->trace;
    size_t count = trace->api_count;
    gml_keyed *list = malloc((2 * count + 1) * sizeof *list);
    if (!list) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t a = 0; a < count; a++) {
        list[a] = (gml_keyed){trace->apis[a].stream, a};
    }
    gml_sort_keyed(list, list + count, count);
    uint32_t turn = 0;
    index->stream_count = 1;
    for (size_t i = 0; i < count; i++, turn++) {
        if (i > 0 && list[i].key != list[i - 1].key) {
            index->stream_count++;
            turn = 0;
        }
        index->stream_of[list[i].index] = (uint32_t)(index->stream_count - 1);
        index->turn[list[i].index] = turn;
    }
    free(list);
    return GML_OK;
}

static gml_status find_times(gml_trace_index *index) {
    if (index->stream_count > 1) {
        gml_status status = gml_graph_levels(index);
        return status == GML_OK ? gml_graph_clocks(index) : status;
    }
    for (size_t a = 0; a < index->trace->api_count; a++) {
        index->times[a] = a;
    }
    index->time_count = index->trace->api_count;
    return GML_OK;
}

static void count_before(gml_trace_index *index) {
    for (size_t a = 0; a < index->trace->api_count; a++) {
        index->before[index->times[a] + 1]++;
    }
    for (uint64_t t = 0; t < index->time_count; t++) {
        index->before[t + 1] += index->before[t];
    }
}

static gml_status order_apis(gml_trace_index *index) {
    size_t count = index->trace->api_count;
    index->stream_of = malloc((count + 1) * sizeof *index->stream_of);
    index->turn = malloc((count + 1) * sizeof *index->turn);
    index->times = malloc((count + 1) * sizeof *index->times);
    index->before = calloc(count + 1, sizeof *index->before);
    if (!index->stream_of || !index->turn || !index->times || !index->before) {
        return GML_NO_HOST_MEMORY;
    }
    gml_status status = number_streams(index);
    if (status == GML_OK) {
        status = find_times(index);
    }
    if (status == GML_OK) {
        count_before(index);
    }
    return status;
}

/* ---- lives ----------------------------------------------------------------------------------- */

static void find_ends(const gml_trace_index *index, size_t o) {
    gml_object_life *life = &index->lives[o];
    size_t begin = index->first_use[o], end = index->first_use[o + 1];
    life->access_count = (uint32_t)(end - begin);
    if (begin == end) {
        return;
    }
    life->earliest = life->first = life->last = index->api_of[index->uses[begin]];
    life->latest = index->api_of[index->uses[end - 1]];
    for (size_t i = begin; i < end; i++) {
        uint32_t api = index->api_of[index->uses[i]];
        if (index->times[api] < index->times[life->first]) {
            life->first = api;
        }
        if (index->times[api] >= index->times[life->last]) {
            life->last = api;
        }
    }
}

gml_status gml_index_build(gml_trace_index *index, const gml_object_trace *trace, char *reason,
                           size_t reason_bytes) {
    memset(index, 0, sizeof *index);
    index->trace = trace;
    trace_check check = {.trace = trace, .reason = reason, .reason_bytes = reason_bytes};
    gml_status status = check_counts(&check);
    if (status == GML_OK) {
        status = check_objects(&check);
    }
    if (status == GML_OK) {
        status = start_lives(index, &check);
    }
    if (status == GML_OK) {
        status = list_uses(index);
    }
    if (status == GML_OK) {
        status = order_apis(index);
    }
    for (size_t o = 0; status == GML_OK && o < trace->object_count; o++) {
        find_ends(index, o);
    }
    return status;
}

void gml_index_clear(gml_trace_index *index) {
    free(index->uses);
    free(index->first_use);
    free(index->api_of);
    free(index->lives);
    free(index->times);
    free(index->before);
    free(index->stream_of);
    free(index->clocks);
    free(index->turn);
    memset(index, 0, sizeof *index);
}

/* ---- questions ------------------------------------------------------------------------------- */

uint64_t gml_index_distance(const gml_trace_index *index, uint64_t from, uint64_t to) {
    if (from == GML_NO_API || to == GML_NO_API || index->times[from] >= index->times[to]) {
        return 0;
    }
    return index->times[to] - index->times[from];
}

bool gml_index_fills(const gml_trace_index *index, uint32_t access) {
    uint32_t kind = index->trace->apis[index->api_of[access]].kind;
    return (kind == GML_API_COPY || kind == GML_API_SET) &&
           index->trace->accesses[access].flags == GML_ACCESS_WRITES;
}

uint64_t gml_index_between(const gml_trace_index *index, uint64_t from, uint64_t to) {
    if (gml_index_distance(index, from, to) == 0) {
        return 0;
    }
    return index->before[index->times[to]] - index->before[index->times[from] + 1];
}
