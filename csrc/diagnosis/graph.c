/* Every edge leads from an API to one with a higher number, since that is how they were invoked.
 * So a walk in order of invocation meets the origin of each edge before its end, and the level that
 * Kahn's algorithm gives an API, one above the highest of its origins, is known when it is met. Of
 * the origins of one object the walk keeps the highest level only: no edge is ever stored. */
#include "diagnosis/graph.h"

#include <stdlib.h>

/* Levels are stored plus one; 0: none. */
typedef struct object_levels {
    uint64_t write;
    uint64_t reads; /* the highest since that write */
} object_levels;

typedef struct level_walk {
    gml_trace_index *index;
    object_levels *objects;
    uint64_t *streams; /* of the last API of each */
} level_walk;

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static uint64_t after_write(const object_levels *object) {
    return larger(object->write, object->reads);
}

/* The level of the API: one above those of all it depends on. */
static uint64_t level_of(const level_walk *walk, size_t a) {
    const gml_object_trace *trace = walk->index->trace;
    const gml_api *api = &trace->apis[a];
    uint64_t level = walk->streams[walk->index->stream_of[a]];
    if (api->object != GML_NO_OBJECT) {
        return larger(level, after_write(&walk->objects[api->object]));
    }
    const gml_access *accesses = trace->accesses + api->first_access;
    for (uint32_t i = 0; i < api->access_count; i++) {
        const object_levels *object = &walk->objects[accesses[i].object];
        bool is_write = accesses[i].flags & GML_ACCESS_WRITES;
        level = larger(level, is_write ? after_write(object) : object->write);
    }
    return level;
}

static void record(level_walk *walk, size_t a, uint64_t kept) {
    const gml_object_trace *trace = walk->index->trace;
    const gml_api *api = &trace->apis[a];
    walk->streams[walk->index->stream_of[a]] = kept;
    if (api->object != GML_NO_OBJECT) {
        walk->objects[api->object] = (object_levels){.write = kept};
        return;
    }
    const gml_access *accesses = trace->accesses + api->first_access;
    for (uint32_t i = 0; i < api->access_count; i++) {
        object_levels *object = &walk->objects[accesses[i].object];
        if (accesses[i].flags & GML_ACCESS_WRITES) {
            *object = (object_levels){.write = kept};
        } else {
            object->reads = larger(object->reads, kept);
        }
    }
}

gml_status gml_graph_levels(gml_trace_index *index) {
    const gml_object_trace *trace = index->trace;
    level_walk walk = {
        .index = index,
        .objects = calloc(trace->object_count + 1, sizeof *walk.objects),
        .streams = calloc(index->stream_count, sizeof *walk.streams),
    };
    gml_status status = walk.objects && walk.streams ? GML_OK : GML_NO_HOST_MEMORY;
    for (size_t a = 0; status == GML_OK && a < trace->api_count; a++) {
        uint64_t level = level_of(&walk, a);
        index->times[a] = level;
        index->time_count = larger(index->time_count, level + 1);
        record(&walk, a, level + 1);
    }
    free(walk.objects);
    free(walk.streams);
    return status;
}
