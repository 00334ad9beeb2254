/* Where the sum of live objects is highest: a rise to it, and then a fall or the end. */
#include "diagnosis/findings.h"

/* Live bytes in order of invocation. */
typedef struct peak_walk {
    gml_memory_peak *peaks; /* from the highest on; of equals the first comes first */
    size_t count;
    gml_memory_peak top; /* of the current rise */
    bool rises;
} peak_walk;

/* The rise is over: its top takes its place among the highest. */
static void end_rise(peak_walk *walk) {
    if (!walk->rises) {
        return;
    }
    walk->rises = false;
    size_t place = walk->count;
    while (place > 0 && walk->peaks[place - 1].bytes < walk->top.bytes) {
        place--;
    }
    if (place == GML_MARKED_PEAKS) {
        return;
    }
    walk->count += walk->count < GML_MARKED_PEAKS;
    for (size_t i = walk->count - 1; i > place; i--) {
        walk->peaks[i] = walk->peaks[i - 1];
    }
    walk->peaks[place] = walk->top;
}

static uint64_t bytes_before(const gml_object_trace *trace) {
    uint64_t bytes = 0;
    for (size_t o = 0; o < trace->object_count; o++) {
        bytes += trace->objects[o].flags & GML_OBJECT_BEFORE ? trace->objects[o].size_bytes : 0;
    }
    return bytes;
}

static void walk_lives(peak_walk *walk, const gml_object_trace *trace) {
    uint64_t live = bytes_before(trace);
    walk->rises = live > 0;
    walk->top = (gml_memory_peak){GML_NO_API, live};
    for (size_t a = 0; a < trace->api_count; a++) {
        const gml_api *api = &trace->apis[a];
        if (api->kind == GML_API_ALLOC) {
            live += trace->objects[api->object].size_bytes;
            walk->top = (gml_memory_peak){a, live};
            walk->rises = true;
        } else if (api->kind == GML_API_FREE) {
            end_rise(walk);
            live -= trace->objects[api->object].size_bytes;
        }
    }
    end_rise(walk);
}

/* Whether the object is live right after the API. */
static bool lives_after(const gml_object_life *life, uint64_t api) {
    if (api == GML_NO_API) {
        return life->alloc == GML_NO_API;
    }
    bool has_begun = life->alloc == GML_NO_API || life->alloc <= api;
    return has_begun && (life->free == GML_NO_API || life->free > api);
}

void gml_find_peaks(const gml_trace_index *index, gml_diagnosis *out) {
    peak_walk walk = {.peaks = out->peaks};
    walk_lives(&walk, index->trace);
    out->peak_count = walk.count;
    for (size_t o = 0; o < index->trace->object_count; o++) {
        gml_object_life *life = &index->lives[o];
        life->peaks = 0;
        for (size_t k = 0; k < walk.count; k++) {
            life->peaks |= lives_after(life, walk.peaks[k].api) ? UINT32_C(1) << k : 0;
        }
    }
}
