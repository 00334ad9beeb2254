/* Vector clocks, in order of invocation. An edge whose origin is already known to be complete costs
 * one look; the others merge two clocks.
 *
 * The graph of levels treats an object as a whole. That is too coarse here: two streams that each
 * write one half of an object need no order, and a program may not order them. So accesses count by
 * their ranges, and only those that certainly overlap. */
#include "diagnosis/conflict.h"
#include "diagnosis/graph.h"
#include "diagnosis/spans.h"

#include <stdlib.h>

static const uint64_t MOST_CLOCK_BYTES = UINT64_C(1) << 30;

enum { MOST_LOOKS = 32 };

#define NONE UINT32_MAX

/* Of one object. */
typedef struct object_accesses {
    uint32_t owner;  /* the last API that wrote all of it, or NONE */
    uint32_t newest; /* access since then, or NONE; the one before it: older[newest] */
} object_accesses;

typedef struct clock_walk {
    gml_trace_index *index;
    object_accesses *objects;
    uint32_t *older; /* of each access */
    uint32_t *last;  /* API of each stream, or NONE */
} clock_walk;

/* `from` is over before `to` starts, and so is all that is over before `from`. */
static void follow(const clock_walk *walk, uint32_t from, size_t to) {
    if (from == NONE || gml_index_is_ordered(walk->index, from, to)) {
        return;
    }
    size_t streams = walk->index->stream_count;
    uint32_t *clock = walk->index->clocks + to * streams;
    const uint32_t *other = walk->index->clocks + (size_t)from * streams;
    for (size_t s = 0; s < streams; s++) {
        clock[s] = other[s] > clock[s] ? other[s] : clock[s];
    }
    clock[walk->index->stream_of[from]] = walk->index->turn[from] + 1;
}

/* All accesses since the last to the whole object, since `to` writes all of it. */
static void follow_all(const clock_walk *walk, const object_accesses *object, size_t to) {
    follow(walk, object->owner, to);
    for (uint32_t i = object->newest; i != NONE; i = walk->older[i]) {
        follow(walk, walk->index->api_of[i], to);
    }
}

static void follow_conflicts(const clock_walk *walk, const gml_access *access, size_t to) {
    const gml_object_trace *trace = walk->index->trace;
    const object_accesses *object = &walk->objects[access->object];
    follow(walk, object->owner, to);
    uint32_t looks = MOST_LOOKS;
    for (uint32_t i = object->newest; i != NONE && looks > 0; i = walk->older[i], looks--) {
        uint32_t from = walk->index->api_of[i];
        bool one_writes = (access->flags | trace->accesses[i].flags) & GML_ACCESS_WRITES;
        if (one_writes && !gml_index_is_ordered(walk->index, from, to) &&
            gml_accesses_meet(trace, access, &trace->accesses[i])) {
            follow(walk, from, to);
        }
    }
}

static bool owns(const clock_walk *walk, const gml_access *access) {
    return access->flags & GML_ACCESS_WRITES && gml_access_is_whole(walk->index->trace, access);
}

static void walk_accesses(clock_walk *walk, size_t a) {
    const gml_object_trace *trace = walk->index->trace;
    uint32_t first = (uint32_t)trace->apis[a].first_access;
    uint32_t end = first + trace->apis[a].access_count;
    for (uint32_t i = first; i < end; i++) {
        const gml_access *access = &trace->accesses[i];
        if (owns(walk, access)) {
            follow_all(walk, &walk->objects[access->object], a);
        } else {
            follow_conflicts(walk, access, a);
        }
    }
    for (uint32_t i = first; i < end; i++) {
        object_accesses *object = &walk->objects[trace->accesses[i].object];
        if (owns(walk, &trace->accesses[i])) {
            *object = (object_accesses){(uint32_t)a, NONE};
        } else if (object->owner != a) {
            walk->older[i] = object->newest;
            object->newest = i;
        }
    }
}

static void walk_apis(clock_walk *walk) {
    const gml_trace_index *index = walk->index;
    for (size_t a = 0; a < index->trace->api_count; a++) {
        uint32_t *last = &walk->last[index->stream_of[a]];
        follow(walk, *last, a);
        *last = (uint32_t)a;
        walk_accesses(walk, a);
    }
}

static gml_status open_walk(clock_walk *walk) {
    gml_trace_index *index = walk->index;
    const gml_object_trace *trace = index->trace;
    index->clocks = calloc(trace->api_count * index->stream_count, sizeof *index->clocks);
    walk->objects = calloc(trace->object_count + 1, sizeof *walk->objects);
    walk->older = calloc(trace->access_count + 1, sizeof *walk->older);
    walk->last = calloc(index->stream_count, sizeof *walk->last);
    if (!index->clocks || !walk->objects || !walk->older || !walk->last) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t o = 0; o < trace->object_count; o++) {
        walk->objects[o] = (object_accesses){NONE, NONE};
    }
    for (size_t s = 0; s < index->stream_count; s++) {
        walk->last[s] = NONE;
    }
    return GML_OK;
}

gml_status gml_graph_clocks(gml_trace_index *index) {
    if (index->stream_count > MOST_CLOCK_BYTES / sizeof *index->clocks / index->trace->api_count) {
        return GML_OK;
    }
    clock_walk walk = {.index = index};
    gml_status status = open_walk(&walk);
    if (status == GML_OK) {
        walk_apis(&walk);
    }
    free(walk.objects);
    free(walk.older);
    free(walk.last);
    return status;
}

/* ---- what the clocks say --------------------------------------------------------------------- */

uint32_t gml_index_over(const gml_trace_index *index, uint64_t api, size_t stream) {
    if (index->clocks) {
        return index->clocks[api * index->stream_count + stream];
    }
    return stream == index->stream_of[api] ? index->turn[api] : 0;
}

bool gml_index_is_ordered(const gml_trace_index *index, uint64_t from, uint64_t to) {
    return index->turn[from] < gml_index_over(index, to, index->stream_of[from]);
}
