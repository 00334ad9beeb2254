/* One object with all its fixes. Each byte has two numbers: its last writer in the trace, and its
 * last writer when fixed. Any API that reads a byte must find both equal. */
#include "diagnosis/check_book.h"
#include "diagnosis/check_bytes.h"

#include <stdlib.h>

/* Writers. API a is FIRST_API + a. */
enum { NEVER_WRITTEN = 0, BEFORE_TRACE = 1, OTHER_OBJECT = 2, FIRST_API = 3 };
enum { IN_TRACE = 0, WHEN_FIXED = 1, WORDS };

/* Bytes that an API does not write. */
typedef struct dead_bytes {
    uint64_t api;
    gml_byte_set runs;
} dead_bytes;

typedef struct object_walk {
    const gml_check_book *book;
    uint32_t object;
    uint64_t start, end; /* the APIs that may access it, both included */
    uint64_t lent;       /* the API from which on another lives in its memory, or GML_NO_API */
    bool is_removed, is_guest;
    const gml_finding *first, *last; /* that say which access is the first or last in time */
    const gml_finding **idle;        /* by to_api */
    size_t idle_count, idle_seen;
    dead_bytes *dead; /* by api */
    size_t dead_count, dead_seen;
    gml_byte_map map;
    gml_byte_set runs; /* of the access at hand */
} object_walk;

static unsigned long long number(uint64_t value) {
    return value;
}

/* ---- what the findings say ------------------------------------------------------------------- */

static bool has_uses(const gml_check_book *book, uint32_t object) {
    return book->first_use[object] < book->first_use[object + 1];
}

static gml_status refuse_claim(const object_walk *walk, const gml_finding *finding) {
    return GML_CHECK_REFUSE(
        walk->book, "the finding of pattern %u in object %u: not with APIs %llu and %llu",
        finding->pattern, finding->object, number(finding->from_api), number(finding->to_api));
}

static gml_status read_early(object_walk *walk, const gml_finding *finding) {
    uint64_t alloc = walk->book->alloc[walk->object];
    if (alloc == GML_NO_API || finding->from_api != alloc ||
        !gml_check_accesses(walk->book, walk->object, finding->to_api)) {
        return refuse_claim(walk, finding);
    }
    walk->start = walk->book->diagnosis->lives[walk->object].earliest;
    walk->first = finding;
    return GML_OK;
}

static gml_status read_late(object_walk *walk, const gml_finding *finding) {
    bool is_leak = finding->pattern == GML_PATTERN_MEMORY_LEAK;
    if (finding->to_api != walk->book->free[walk->object] ||
        (is_leak && finding->to_api != GML_NO_API) || (!is_leak && finding->to_api == GML_NO_API) ||
        gml_check_is_kept(walk->book, walk->object)) {
        return refuse_claim(walk, finding);
    }
    if (is_leak && !has_uses(walk->book, walk->object)) {
        return finding->from_api == walk->book->alloc[walk->object] ? GML_OK
                                                                    : refuse_claim(walk, finding);
    }
    if (!gml_check_accesses(walk->book, walk->object, finding->from_api)) {
        return refuse_claim(walk, finding);
    }
    walk->end = walk->book->diagnosis->lives[walk->object].latest;
    walk->last = finding;
    return GML_OK;
}

static gml_status read_reuse(object_walk *walk, const gml_check_entry *entry) {
    const gml_finding *finding = entry->finding;
    bool is_kept = gml_check_is_kept(walk->book, finding->other);
    if (is_kept || !gml_check_accesses(walk->book, finding->other, finding->from_api) ||
        !gml_check_accesses(walk->book, finding->object, finding->to_api)) {
        return refuse_claim(walk, finding);
    }
    if (entry->gives_memory) {
        uint64_t from = walk->book->uses[walk->book->first_use[finding->object]].api;
        walk->lent = from < walk->lent ? from : walk->lent;
    } else {
        walk->is_guest = true;
    }
    return GML_OK;
}

static gml_status read_entry(object_walk *walk, const gml_check_entry *entry) {
    const gml_finding *finding = entry->finding;
    switch (finding->pattern) {
    case GML_PATTERN_EARLY_ALLOCATION:
        return read_early(walk, finding);
    case GML_PATTERN_LATE_DEALLOCATION:
    case GML_PATTERN_MEMORY_LEAK:
        return read_late(walk, finding);
    case GML_PATTERN_REDUNDANT_ALLOCATION:
        return read_reuse(walk, entry);
    case GML_PATTERN_UNUSED_ALLOCATION:
        walk->is_removed = true;
        return gml_check_is_kept(walk->book, walk->object) ? refuse_claim(walk, finding) : GML_OK;
    case GML_PATTERN_TEMPORARY_IDLENESS:
        walk->idle[walk->idle_count++] = finding;
        return GML_OK;
    case GML_PATTERN_DEAD_WRITE:
        walk->dead[walk->dead_count].api = finding->from_api;
        return gml_check_dead_write(walk->book, finding, &walk->dead[walk->dead_count++].runs);
    case GML_PATTERN_OVERALLOCATION:
        return gml_check_overallocation(walk->book, finding);
    case GML_PATTERN_STRUCTURED_ACCESS:
        return gml_check_slices(walk->book, finding);
    default:
        return GML_OK;
    }
}

static int compare_idle(const void *a, const void *b) {
    const gml_finding *left = *(const gml_finding *const *)a;
    const gml_finding *right = *(const gml_finding *const *)b;
    return (left->to_api > right->to_api) - (left->to_api < right->to_api);
}

static int compare_dead(const void *a, const void *b) {
    const dead_bytes *left = a, *right = b;
    return (left->api > right->api) - (left->api < right->api);
}

static gml_status read_entries(object_walk *walk, const gml_check_entry *entries, size_t count) {
    walk->idle = malloc((count + 1) * sizeof(void *));
    walk->dead = calloc(count + 1, sizeof *walk->dead);
    if (!walk->idle || !walk->dead) {
        return GML_NO_HOST_MEMORY;
    }
    gml_status status = GML_OK;
    for (size_t i = 0; status == GML_OK && i < count; i++) {
        status = read_entry(walk, &entries[i]);
    }
    qsort(walk->idle, walk->idle_count, sizeof(void *), compare_idle);
    qsort(walk->dead, walk->dead_count, sizeof *walk->dead, compare_dead);
    return status;
}

/* ---- is it there ----------------------------------------------------------------------------- */

static gml_status check_there(const object_walk *walk, uint64_t api) {
    const char *why = NULL;
    if (walk->is_removed) {
        why = "it is removed";
    } else if (api < walk->start) {
        why = "it is allocated later";
    } else if (api > walk->end) {
        why = "it is freed before";
    } else if (api >= walk->lent) {
        why = "another object lives in its memory";
    }
    return why ? GML_CHECK_REFUSE(walk->book, "API %llu accesses object %u: %s", number(api),
                                  walk->object, why)
               : GML_OK;
}

/* No access may be earlier than the one said to be first, nor later than the last. */
static gml_status check_times(const object_walk *walk, uint64_t api) {
    const uint64_t *times = walk->book->diagnosis->times;
    if (walk->first && times[api] < times[walk->first->to_api]) {
        return GML_CHECK_REFUSE(walk->book, "API %llu accesses object %u before its first access",
                                number(api), walk->object);
    }
    if (walk->last && times[api] > times[walk->last->from_api]) {
        return GML_CHECK_REFUSE(walk->book, "API %llu accesses object %u after its last access",
                                number(api), walk->object);
    }
    return GML_OK;
}

/* `before`: the access to the object before this one, or GML_NO_API. */
static gml_status check_idle(object_walk *walk, uint64_t before, uint64_t api) {
    for (; walk->idle_seen < walk->idle_count; walk->idle_seen++) {
        const gml_finding *finding = walk->idle[walk->idle_seen];
        if (finding->to_api > api) {
            return GML_OK;
        }
        if (finding->to_api < api || finding->from_api != before) {
            return refuse_claim(walk, finding);
        }
    }
    return GML_OK;
}

/* ---- its bytes ------------------------------------------------------------------------------- */

static gml_status see_read(void *state, uint64_t *words, uint64_t begin) {
    const object_walk *walk = state;
    if (words[IN_TRACE] == words[WHEN_FIXED]) {
        return GML_OK;
    }
    return GML_CHECK_REFUSE(walk->book, "byte %llu of object %u is read with another content",
                            number(begin), walk->object);
}

static gml_status see_kept(void *state, uint64_t *words, uint64_t begin) {
    return words[IN_TRACE] == NEVER_WRITTEN ? GML_OK : see_read(state, words, begin);
}

static gml_status see_write(void *state, uint64_t *words, uint64_t begin) {
    (void)begin;
    words[IN_TRACE] = *(const uint64_t *)state;
    return GML_OK;
}

static gml_status see_fixed_write(void *state, uint64_t *words, uint64_t begin) {
    (void)begin;
    words[WHEN_FIXED] = *(const uint64_t *)state;
    return GML_OK;
}

static gml_status list_runs(object_walk *walk, const gml_access *access) {
    walk->runs.count = 0;
    gml_status status = gml_byte_set_append_access(&walk->runs, walk->book->trace, access, 1);
    gml_byte_set_normalize(&walk->runs);
    return status;
}

static gml_status read_bytes(object_walk *walk, const gml_access *access) {
    gml_status status = list_runs(walk, access);
    return status == GML_OK ? gml_byte_map_visit(&walk->map, &walk->runs, see_read, walk) : status;
}

/* The current runs without their dead bytes. */
static gml_status drop_dead(object_walk *walk, uint64_t api) {
    while (walk->dead_seen < walk->dead_count && walk->dead[walk->dead_seen].api < api) {
        walk->dead_seen++;
    }
    gml_status status = GML_OK;
    for (size_t i = walk->dead_seen;
         status == GML_OK && i < walk->dead_count && walk->dead[i].api == api; i++) {
        gml_byte_set rest = {0};
        status = gml_byte_set_without(&rest, &walk->runs, &walk->dead[i].runs);
        gml_byte_set_clear(&walk->runs);
        walk->runs = rest;
    }
    return status;
}

static gml_status write_bytes(object_walk *walk, const gml_access *access, uint64_t api) {
    uint64_t writer = FIRST_API + api;
    gml_status status = list_runs(walk, access);
    if (status == GML_OK) {
        status = gml_byte_map_visit(&walk->map, &walk->runs, see_write, &writer);
    }
    if (status == GML_OK) {
        status = drop_dead(walk, api);
    }
    return status == GML_OK ? gml_byte_map_visit(&walk->map, &walk->runs, see_fixed_write, &writer)
                            : status;
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* Without bytes that are not written, or that held another's, both numbers stay the same. */
static bool may_differ(const object_walk *walk) {
    return walk->dead_count > 0 || walk->is_guest;
}

/* An API reads before it writes. An API only known to touch may do both. */
static gml_status walk_api(object_walk *walk, size_t first, size_t end) {
    const gml_check_book *book = walk->book;
    uint64_t api = book->uses[first].api;
    gml_status status = GML_OK;
    if (!may_differ(walk)) {
        return GML_OK;
    }
    for (size_t i = first; status == GML_OK && i < end; i++) {
        const gml_access *access = &book->trace->accesses[book->uses[i].access];
        if (access->flags != GML_ACCESS_WRITES) {
            status = read_bytes(walk, access);
        }
    }
    for (size_t i = first; status == GML_OK && i < end; i++) {
        const gml_access *access = &book->trace->accesses[book->uses[i].access];
        if (access->flags != GML_ACCESS_READS) {
            status = write_bytes(walk, access, api);
        }
    }
    return status;
}

static gml_status walk_uses(object_walk *walk) {
    const gml_check_book *book = walk->book;
    size_t end = book->first_use[walk->object + 1];
    uint64_t before = GML_NO_API;
    gml_status status = GML_OK;
    for (size_t i = book->first_use[walk->object]; status == GML_OK && i < end;) {
        uint64_t api = book->uses[i].api;
        size_t next = gml_check_use_from(book, walk->object, api + 1);
        status = check_there(walk, api);
        status = status == GML_OK ? check_times(walk, api) : status;
        status = status == GML_OK ? check_idle(walk, before, api) : status;
        status = status == GML_OK ? walk_api(walk, i, next) : status;
        before = api;
        i = next;
    }
    if (status == GML_OK && walk->idle_seen < walk->idle_count) {
        status = refuse_claim(walk, walk->idle[walk->idle_seen]);
    }
    return status;
}

static gml_status walk_object(object_walk *walk) {
    const gml_object *object = &walk->book->trace->objects[walk->object];
    gml_status status = gml_byte_map_open(&walk->map, object->size_bytes, WORDS, walk->book->looks);
    if (status != GML_OK) {
        return status;
    }
    bool is_before = object->flags & GML_OBJECT_BEFORE;
    walk->map.words[IN_TRACE] = is_before ? BEFORE_TRACE : NEVER_WRITTEN;
    walk->map.words[WHEN_FIXED] = walk->is_guest ? OTHER_OBJECT : walk->map.words[IN_TRACE];
    status = walk_uses(walk);
    if (status == GML_OK && gml_check_is_kept(walk->book, walk->object)) {
        gml_byte_range whole = {0, object->size_bytes};
        gml_byte_set all = {&whole, 1, 1};
        status = gml_byte_map_visit(&walk->map, &all, see_kept, walk);
    }
    return status;
}

gml_status gml_check_object(const gml_check_book *book, const gml_check_entry *entries,
                            size_t count) {
    object_walk walk = {
        .book = book, .object = entries->object, .end = GML_NO_API, .lent = GML_NO_API};
    gml_status status = read_entries(&walk, entries, count);
    if (status == GML_OK) {
        status = walk_object(&walk);
    }
    for (size_t i = 0; i < walk.dead_count; i++) {
        gml_byte_set_clear(&walk.dead[i].runs);
    }
    free((void *)walk.idle);
    free(walk.dead);
    gml_byte_map_close(&walk.map);
    gml_byte_set_clear(&walk.runs);
    return status;
}
