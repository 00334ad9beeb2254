/* Which object may live in the memory of one that is no longer used.
 *
 * The paper walks a list of first and last accesses from its tail (section 5.1, figure 3). An
 * object is Initial until the walk meets its last access, In Use until it meets its first, and then
 * Done; it takes the memory of the nearest object to its left that is still Initial, which becomes
 * Reused. To be Initial and to the left means that its last access lies before: since a last access
 * is placed after a first one of the same time, at a lower time. So the walk needs the first
 * accesses only, from the latest on, and for each the highest last access below it among those not
 * yet reused.
 *
 * The paper first parts objects into groups of similar size. Any fixed borders between groups keep
 * some similar sizes apart, so there are none here: objects are sorted by size, and each looks at
 * all that differ by at most the allowed part of the smaller of both. If all objects belong to one
 * group, as in figure 3, this gives the paper's pairs.
 *
 * With several streams all accesses to the one must complete before any to the other starts; a
 * limited number of the nearest objects is tried. An object that may read bytes it never wrote
 * takes no memory, since it would read another's bytes. */
#include "base/sort.h"
#include "diagnosis/findings.h"
#include "diagnosis/written.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_TRIES = 32 };

/* The most that sizes differ, of the smaller one. */
static const double REUSE_PERCENT = 10;

typedef struct stream_end {
    uint32_t stream;
    uint32_t turns; /* of the stream, that have to be over */
} stream_end;

typedef struct reuse_pass {
    const gml_trace_index *index;
    gml_findings *out;
    gml_keyed *list; /* room for twice the objects */

    uint32_t *by_size; /* the objects that may give their memory, by size and number */
    uint32_t *place;   /* of each of them in by_size */
    uint32_t *by_last; /* the same by the time of their last access and number */
    size_t giver_count;
    uint32_t *by_first; /* the objects that may take memory, by the time of their first access */
    size_t taker_count;

    /* The leaf of by_size[i] is tree[giver_count + i]: one above its place in by_last, or 0 if it
     * is not Initial or not to the left. A node has the highest of its children. */
    uint32_t *tree;

    /* With several streams: */
    stream_end *ends; /* of giver o: from first_end[o] to before first_end[o + 1] */
    size_t *first_end;
    uint32_t *seen; /* per stream: whom it was last looked at for, plus 1 */
    uint32_t *over; /* per stream: the turns that are over before the taker starts */
} reuse_pass;

/* ---- who takes part -------------------------------------------------------------------------- */

/* A kept object may be read after the trace. */
static bool may_give(const gml_trace_index *index, size_t o) {
    const gml_object_life *life = &index->lives[o];
    bool is_kept = index->trace->objects[o].flags & GML_OBJECT_KEPT && life->free == GML_NO_API;
    return life->access_count && !is_kept;
}

static bool may_take(const gml_trace_index *index, size_t o) {
    return index->lives[o].access_count && index->lives[o].alloc != GML_NO_API;
}

/* Sorts the list and writes it to `into`. */
static void sort_into(reuse_pass *pass, size_t count, uint32_t *into) {
    gml_sort_keyed(pass->list, pass->list + count, count);
    for (size_t i = 0; i < count; i++) {
        into[i] = (uint32_t)pass->list[i].index;
    }
}

static void sort_objects(reuse_pass *pass) {
    const gml_trace_index *index = pass->index;
    size_t objects = index->trace->object_count;
    for (size_t o = 0; o < objects; o++) {
        if (may_give(index, o)) {
            pass->list[pass->giver_count++] = (gml_keyed){index->trace->objects[o].size_bytes, o};
        }
    }
    sort_into(pass, pass->giver_count, pass->by_size);
    size_t count = 0;
    for (size_t o = 0; o < objects; o++) {
        if (may_give(index, o)) {
            pass->list[count++] = (gml_keyed){index->times[index->lives[o].last], o};
        }
    }
    sort_into(pass, count, pass->by_last);
    for (size_t o = 0; o < objects; o++) {
        if (may_take(index, o)) {
            pass->list[pass->taker_count++] = (gml_keyed){index->times[index->lives[o].first], o};
        }
    }
    sort_into(pass, pass->taker_count, pass->by_first);
}

/* ---- the tree -------------------------------------------------------------------------------- */

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

static void set_leaf(const reuse_pass *pass, size_t place, uint32_t value) {
    size_t node = pass->giver_count + place;
    pass->tree[node] = value;
    for (node /= 2; node > 0; node /= 2) {
        pass->tree[node] = larger(pass->tree[2 * node], pass->tree[2 * node + 1]);
    }
}

static void fill_tree(const reuse_pass *pass) {
    for (size_t i = 0; i < pass->giver_count; i++) {
        pass->place[pass->by_size[i]] = (uint32_t)i;
    }
    for (size_t i = 0; i < pass->giver_count; i++) {
        pass->tree[pass->giver_count + pass->place[pass->by_last[i]]] = (uint32_t)(i + 1);
    }
    for (size_t node = pass->giver_count; node-- > 1;) {
        pass->tree[node] = larger(pass->tree[2 * node], pass->tree[2 * node + 1]);
    }
}

static uint32_t highest_in(const reuse_pass *pass, size_t begin, size_t end) {
    uint32_t highest = 0;
    for (begin += pass->giver_count, end += pass->giver_count; begin < end; begin /= 2, end /= 2) {
        if (begin % 2) {
            highest = larger(highest, pass->tree[begin++]);
        }
        if (end % 2) {
            highest = larger(highest, pass->tree[--end]);
        }
    }
    return highest;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static bool are_close(uint64_t smaller, uint64_t larger_bytes) {
    const double whole = 100;
    return (double)(larger_bytes - smaller) * whole <= REUSE_PERCENT * (double)smaller;
}

static uint64_t size_at(const reuse_pass *pass, size_t place) {
    return pass->index->trace->objects[pass->by_size[place]].size_bytes;
}

/* The first place of an object that is not too small. */
static size_t first_close(const reuse_pass *pass, uint64_t bytes) {
    size_t low = 0, high = pass->giver_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        uint64_t size_bytes = size_at(pass, middle);
        if (size_bytes < bytes && !are_close(size_bytes, bytes)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The first place, from `low` on, of an object that is too large. */
static size_t end_of_close(const reuse_pass *pass, uint64_t bytes, size_t low) {
    size_t high = pass->giver_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        uint64_t size_bytes = size_at(pass, middle);
        if (size_bytes <= bytes || are_close(bytes, size_bytes)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* ---- several streams ------------------------------------------------------------------------- */

/* The last turn of each stream that accesses the object. */
static size_t list_ends(const reuse_pass *pass, size_t o, stream_end *ends) {
    const gml_trace_index *index = pass->index;
    size_t count = 0;
    for (size_t i = index->first_use[o + 1]; i-- > index->first_use[o];) {
        uint32_t api = index->api_of[index->uses[i]];
        uint32_t stream = index->stream_of[api];
        if (pass->seen[stream] != o + 1) {
            pass->seen[stream] = (uint32_t)(o + 1);
            ends[count++] = (stream_end){stream, index->turn[api] + 1};
        }
    }
    return count;
}

static void list_all_ends(const reuse_pass *pass) {
    for (size_t o = 0; o < pass->index->trace->object_count; o++) {
        pass->first_end[o + 1] =
            pass->first_end[o] + list_ends(pass, o, pass->ends + pass->first_end[o]);
    }
    memset(pass->seen, 0, pass->index->stream_count * sizeof *pass->seen);
}

/* Sets pass->over to the APIs that complete before any access to the taker starts. Within a stream
 * its first access has the fewest. */
static void find_over(const reuse_pass *pass, size_t taker) {
    const gml_trace_index *index = pass->index;
    for (size_t s = 0; s < index->stream_count; s++) {
        pass->over[s] = UINT32_MAX;
    }
    for (size_t i = index->first_use[taker]; i < index->first_use[taker + 1]; i++) {
        uint32_t api = index->api_of[index->uses[i]];
        if (pass->seen[index->stream_of[api]] == taker + 1) {
            continue;
        }
        pass->seen[index->stream_of[api]] = (uint32_t)(taker + 1);
        for (size_t s = 0; s < index->stream_count; s++) {
            uint32_t over = gml_index_over(index, api, s);
            pass->over[s] = over < pass->over[s] ? over : pass->over[s];
        }
    }
}

static bool is_over(const reuse_pass *pass, uint32_t giver) {
    if (pass->index->stream_count == 1) {
        return true;
    }
    for (size_t i = pass->first_end[giver]; i < pass->first_end[giver + 1]; i++) {
        if (pass->ends[i].turns > pass->over[pass->ends[i].stream]) {
            return false;
        }
    }
    return true;
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* The nearest object whose memory the taker may have, as its place in by_last plus 1; 0: none. */
static uint32_t find_giver(const reuse_pass *pass, uint32_t taker) {
    uint64_t bytes = pass->index->trace->objects[taker].size_bytes;
    size_t begin = first_close(pass, bytes), end = end_of_close(pass, bytes, begin);
    uint32_t tried[MOST_TRIES], count = 0, found = highest_in(pass, begin, end);
    if (found && pass->index->stream_count > 1) {
        find_over(pass, taker);
    }
    while (found && !is_over(pass, pass->by_last[found - 1])) {
        tried[count++] = found;
        set_leaf(pass, pass->place[pass->by_last[found - 1]], 0);
        found = count < MOST_TRIES ? highest_in(pass, begin, end) : 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        set_leaf(pass, pass->place[pass->by_last[tried[i] - 1]], tried[i]);
    }
    return found;
}

static gml_status add_pair(const reuse_pass *pass, uint32_t taker, uint32_t giver) {
    const gml_trace_index *index = pass->index;
    uint64_t taker_bytes = index->trace->objects[taker].size_bytes;
    uint64_t giver_bytes = index->trace->objects[giver].size_bytes;
    gml_finding finding = {
        .pattern = GML_PATTERN_REDUNDANT_ALLOCATION,
        .object = taker,
        .other = giver,
        .from_api = index->lives[giver].last,
        .to_api = index->lives[taker].first,
        .distance = gml_index_distance(index, index->lives[giver].last, index->lives[taker].first),
        .bytes = taker_bytes < giver_bytes ? taker_bytes : giver_bytes,
    };
    return gml_findings_add(pass->out, &finding);
}

static gml_status give_to(const reuse_pass *pass, uint32_t taker) {
    uint32_t found = find_giver(pass, taker);
    bool is_written_first = false;
    gml_status status =
        found ? gml_object_is_written_first(pass->index, taker, &is_written_first) : GML_OK;
    if (status != GML_OK || !is_written_first) {
        return status;
    }
    uint32_t giver = pass->by_last[found - 1];
    set_leaf(pass, pass->place[giver], 0);
    return add_pair(pass, taker, giver);
}

static gml_status walk(const reuse_pass *pass) {
    const gml_trace_index *index = pass->index;
    gml_status status = GML_OK;
    size_t left = pass->giver_count; /* of by_last: those whose last access lies before */
    for (size_t i = pass->taker_count; status == GML_OK && i-- > 0;) {
        uint32_t taker = pass->by_first[i];
        uint64_t time = index->times[index->lives[taker].first];
        for (; left > 0 && index->times[index->lives[pass->by_last[left - 1]].last] >= time;
             left--) {
            set_leaf(pass, pass->place[pass->by_last[left - 1]], 0);
        }
        status = left ? give_to(pass, taker) : GML_OK;
    }
    return status;
}

/* ---- the pass -------------------------------------------------------------------------------- */

static gml_status open_streams(reuse_pass *pass) {
    const gml_trace_index *index = pass->index;
    if (index->stream_count == 1) {
        return GML_OK;
    }
    pass->ends = malloc((index->trace->access_count + 1) * sizeof *pass->ends);
    pass->first_end = calloc(index->trace->object_count + 1, sizeof *pass->first_end);
    pass->seen = calloc(index->stream_count, sizeof *pass->seen);
    pass->over = calloc(index->stream_count, sizeof *pass->over);
    if (!pass->ends || !pass->first_end || !pass->seen || !pass->over) {
        return GML_NO_HOST_MEMORY;
    }
    list_all_ends(pass);
    return GML_OK;
}

static gml_status open_pass(reuse_pass *pass) {
    size_t objects = pass->index->trace->object_count;
    pass->list = malloc((2 * objects + 1) * sizeof *pass->list);
    pass->by_size = malloc((objects + 1) * sizeof *pass->by_size);
    pass->place = malloc((objects + 1) * sizeof *pass->place);
    pass->by_last = malloc((objects + 1) * sizeof *pass->by_last);
    pass->by_first = malloc((objects + 1) * sizeof *pass->by_first);
    pass->tree = calloc(2 * objects + 2, sizeof *pass->tree);
    bool has_memory =
        pass->list && pass->by_size && pass->place && pass->by_last && pass->by_first && pass->tree;
    return has_memory ? open_streams(pass) : GML_NO_HOST_MEMORY;
}

static void close_pass(reuse_pass *pass) {
    free(pass->list);
    free(pass->by_size);
    free(pass->place);
    free(pass->by_last);
    free(pass->by_first);
    free(pass->tree);
    free(pass->ends);
    free(pass->first_end);
    free(pass->seen);
    free(pass->over);
}

gml_status gml_find_reuse(const gml_trace_index *index, gml_findings *out) {
    reuse_pass pass = {.index = index, .out = out};
    gml_status status = open_pass(&pass);
    if (status == GML_OK) {
        sort_objects(&pass);
        fill_tree(&pass);
        status = walk(&pass);
    }
    close_pass(&pass);
    return status;
}
