/* The claims of findings within objects: every run of every access is listed, sorted and counted.
 */
#include "diagnosis/check_book.h"

#include <stdlib.h>

enum { SORTING = 4 }; /* cost of listing and sorting a run, in looks */

static unsigned long long number(uint64_t value) {
    return value;
}

/* ---- dead write ------------------------------------------------------------------------------ */

static bool is_plain_write(const gml_access *access) {
    return access->flags == GML_ACCESS_WRITES;
}

/* Appends what one API accesses of the object: by plain writes only, or in any other way only. */
static gml_status append_uses(gml_byte_set *runs, const gml_check_book *book, uint32_t object,
                              uint64_t api, bool writes) {
    gml_status status = GML_OK;
    size_t end = gml_check_use_from(book, object, api + 1);
    for (size_t i = gml_check_use_from(book, object, api); status == GML_OK && i < end; i++) {
        const gml_access *access = &book->trace->accesses[book->uses[i].access];
        if (is_plain_write(access) == writes) {
            status = gml_byte_set_append_access(runs, book->trace, access, 1);
        }
    }
    return status;
}

/* The bytes accessed after `from` writes and before `to` writes. */
static gml_status find_between(gml_byte_set *runs, const gml_check_book *book,
                               const gml_finding *finding) {
    uint32_t object = finding->object;
    size_t end = gml_check_use_from(book, object, finding->to_api);
    gml_status status = append_uses(runs, book, object, finding->to_api, false);
    for (size_t i = gml_check_use_from(book, object, finding->from_api + 1);
         status == GML_OK && i < end; i++) {
        const gml_access *access = &book->trace->accesses[book->uses[i].access];
        size_t before = runs->count;
        status = gml_byte_set_append_access(runs, book->trace, access, 1);
        status = status == GML_OK ? gml_check_look(book, SORTING * (runs->count - before)) : status;
    }
    gml_byte_set_normalize(runs);
    return status;
}

typedef struct dead_runs {
    gml_byte_set first, second, both, between;
} dead_runs;

static gml_status find_dead(const gml_check_book *book, const gml_finding *finding,
                            dead_runs *found, gml_byte_set *dead) {
    gml_status status = append_uses(&found->first, book, finding->object, finding->from_api, true);
    if (status == GML_OK) {
        status = append_uses(&found->second, book, finding->object, finding->to_api, true);
    }
    if (status == GML_OK) {
        gml_byte_set_normalize(&found->first);
        gml_byte_set_normalize(&found->second);
        status = gml_byte_set_common(&found->both, &found->first, &found->second);
    }
    if (status == GML_OK) {
        status = find_between(&found->between, book, finding);
    }
    return status == GML_OK ? gml_byte_set_without(dead, &found->both, &found->between) : status;
}

gml_status gml_check_dead_write(const gml_check_book *book, const gml_finding *finding,
                                gml_byte_set *dead) {
    if (finding->from_api >= finding->to_api || finding->to_api >= book->trace->api_count) {
        return GML_CHECK_REFUSE(book, "dead write of object %u: API %llu does not come before %llu",
                                finding->object, number(finding->from_api),
                                number(finding->to_api));
    }
    dead_runs found = {0};
    gml_status status = find_dead(book, finding, &found, dead);
    gml_byte_set_clear(&found.first);
    gml_byte_set_clear(&found.second);
    gml_byte_set_clear(&found.both);
    gml_byte_set_clear(&found.between);
    uint64_t bytes = gml_byte_set_bytes(dead);
    if (status == GML_OK && (bytes != finding->bytes || bytes == 0)) {
        status = GML_CHECK_REFUSE(
            book,
            "dead write of object %u: of %llu B said to be dead, APIs %llu and %llu write %llu B "
            "with no access between",
            finding->object, number(finding->bytes), number(finding->from_api),
            number(finding->to_api), number(bytes));
    }
    return status;
}

/* ---- overallocation -------------------------------------------------------------------------- */

/* A copy or a set that reads nothing of the object says what is there, not what is needed. */
static bool is_filling(const gml_check_book *book, size_t use) {
    return book->trace->apis[book->uses[use].api].kind != GML_API_KERNEL &&
           !(book->trace->accesses[book->uses[use].access].flags & ~(uint32_t)GML_ACCESS_WRITES);
}

static bool is_only_filled(const gml_check_book *book, uint32_t object) {
    bool is_only = true;
    for (size_t i = book->first_use[object]; i < book->first_use[object + 1]; i++) {
        is_only = is_only && is_filling(book, i);
    }
    return is_only;
}

/* Everything that is needed, in whole elements. */
static gml_status find_accessed(gml_byte_set *runs, const gml_check_book *book, uint32_t object) {
    gml_status status = GML_OK;
    bool counts_all = is_only_filled(book, object);
    for (size_t i = book->first_use[object]; status == GML_OK && i < book->first_use[object + 1];
         i++) {
        if (counts_all || !is_filling(book, i)) {
            status = gml_byte_set_append_access(runs, book->trace,
                                                &book->trace->accesses[book->uses[i].access],
                                                book->trace->objects[object].element_bytes);
        }
    }
    gml_byte_set_normalize(runs);
    return status;
}

gml_status gml_check_overallocation(const gml_check_book *book, const gml_finding *finding) {
    gml_byte_set accessed = {0};
    gml_status status = find_accessed(&accessed, book, finding->object);
    uint64_t needed = gml_byte_set_bytes(&accessed);
    gml_byte_set_clear(&accessed);
    uint64_t size = book->trace->objects[finding->object].size_bytes;
    if (status == GML_OK && finding->bytes > size - needed) {
        status = GML_CHECK_REFUSE(
            book, "overallocation of object %u: %llu B less, but %llu of its %llu B are accessed",
            finding->object, number(finding->bytes), number(needed), number(size));
    }
    return status;
}

/* ---- structured access ----------------------------------------------------------------------- */

/* A run, and the place of its API among those that access the object. */
typedef struct owned_run {
    gml_byte_range run;
    size_t owner;
} owned_run;

typedef struct owned_runs {
    owned_run *items;
    size_t count, capacity;
    size_t *parents; /* of each owner: APIs of one slice end up below one */
    uint64_t *bytes;
    size_t owner_count;
} owned_runs;

static size_t root_of(const owned_runs *owned, size_t owner) {
    while (owned->parents[owner] != owner) {
        owned->parents[owner] = owned->parents[owned->parents[owner]];
        owner = owned->parents[owner];
    }
    return owner;
}

static int compare_owned(const void *a, const void *b) {
    const owned_run *left = a, *right = b;
    return (left->run.begin > right->run.begin) - (left->run.begin < right->run.begin);
}

static gml_status append_owned(owned_runs *owned, const gml_byte_set *runs, size_t owner) {
    size_t needed = owned->count + runs->count;
    if (needed > owned->capacity) {
        size_t capacity = 2 * owned->capacity > needed ? 2 * owned->capacity : needed;
        owned_run *items = realloc(owned->items, capacity * sizeof *items);
        if (!items) {
            return GML_NO_HOST_MEMORY;
        }
        owned->items = items;
        owned->capacity = capacity;
    }
    for (size_t i = 0; i < runs->count; i++) {
        owned->items[owned->count++] = (owned_run){runs->items[i], owner};
    }
    return GML_OK;
}

static gml_status list_owned(owned_runs *owned, const gml_check_book *book, uint32_t object) {
    gml_byte_set runs = {0};
    gml_status status = GML_OK;
    for (size_t i = book->first_use[object]; status == GML_OK && i < book->first_use[object + 1];) {
        uint32_t api = book->uses[i].api;
        runs.count = 0;
        for (; status == GML_OK && i < book->first_use[object + 1] && book->uses[i].api == api;
             i++) {
            status = gml_byte_set_append_access(&runs, book->trace,
                                                &book->trace->accesses[book->uses[i].access],
                                                book->trace->objects[object].element_bytes);
        }
        gml_byte_set_normalize(&runs);
        if (status == GML_OK) {
            status = append_owned(owned, &runs, owned->owner_count++);
        }
    }
    gml_byte_set_clear(&runs);
    return status;
}

/* From left to right: a run that begins below the highest end so far belongs to the slice with that
 * end. */
static void join_owners(owned_runs *owned) {
    for (size_t i = 0; i < owned->owner_count; i++) {
        owned->parents[i] = i;
    }
    if (owned->count > 1) {
        qsort(owned->items, owned->count, sizeof *owned->items, compare_owned);
    }
    uint64_t reached = 0;
    size_t by = 0;
    for (size_t i = 0; i < owned->count; i++) {
        owned_run item = owned->items[i];
        if (item.run.begin < reached) {
            owned->parents[root_of(owned, item.owner)] = root_of(owned, by);
        }
        if (item.run.end > reached) {
            uint64_t begin = item.run.begin > reached ? item.run.begin : reached;
            owned->bytes[item.owner] += item.run.end - begin;
            reached = item.run.end;
            by = item.owner;
        }
    }
}

/* How many slices there are; the bytes of the largest. */
static size_t count_slices(owned_runs *owned, uint64_t *largest) {
    size_t count = 0;
    for (size_t i = 0; i < owned->owner_count; i++) {
        size_t root = root_of(owned, i);
        count += root == i;
        if (root != i) {
            owned->bytes[root] += owned->bytes[i];
        }
    }
    *largest = 0;
    for (size_t i = 0; i < owned->owner_count; i++) {
        bool is_larger = root_of(owned, i) == i && owned->bytes[i] > *largest;
        *largest = is_larger ? owned->bytes[i] : *largest;
    }
    return count;
}

static gml_status check_owned(const gml_check_book *book, const gml_finding *finding,
                              owned_runs *owned) {
    owned->parents = calloc(owned->owner_count + 1, sizeof *owned->parents);
    owned->bytes = calloc(owned->owner_count + 1, sizeof *owned->bytes);
    if (!owned->parents || !owned->bytes) {
        return GML_NO_HOST_MEMORY;
    }
    join_owners(owned);
    uint64_t largest;
    size_t count = count_slices(owned, &largest);
    uint64_t rest = book->trace->objects[finding->object].size_bytes - largest;
    if (count < 2 || count != finding->pieces || rest != finding->bytes) {
        return GML_CHECK_REFUSE(
            book,
            "structured access to object %u: %llu slices and %llu B beside the largest are said, "
            "there are %zu and %llu B",
            finding->object, number(finding->pieces), number(finding->bytes), count, number(rest));
    }
    return GML_OK;
}

gml_status gml_check_slices(const gml_check_book *book, const gml_finding *finding) {
    uint32_t flags = book->trace->objects[finding->object].flags;
    if (flags & GML_OBJECT_BEFORE || gml_check_is_kept(book, finding->object)) {
        return GML_CHECK_REFUSE(
            book, "structured access to object %u: its content from before or for after would go",
            finding->object);
    }
    owned_runs owned = {0};
    gml_status status = list_owned(&owned, book, finding->object);
    if (status == GML_OK) {
        status = check_owned(book, finding, &owned);
    }
    free(owned.items);
    free(owned.parents);
    free(owned.bytes);
    return status;
}
