#include "planner/skyline.h"

#include <stdlib.h>
#include <string.h>

/* ---- the heap -------------------------------------------------------------------------------- */

static bool is_below(const gml_skyline_entry *a, const gml_skyline_entry *b) {
    return a->height != b->height ? a->height < b->height : a->slot < b->slot;
}

static gml_status push(gml_skyline *skyline, uint32_t slot) {
    if (skyline->heap_count == skyline->heap_room) {
        size_t room = skyline->heap_room * 2;
        gml_skyline_entry *heap = realloc(skyline->heap, room * sizeof *heap);
        if (!heap) {
            return GML_NO_HOST_MEMORY;
        }
        skyline->heap = heap;
        skyline->heap_room = room;
    }
    gml_skyline_entry entry = {skyline->segments[slot].height, slot};
    size_t at = skyline->heap_count++;
    while (at > 0 && is_below(&entry, &skyline->heap[(at - 1) / 2])) {
        skyline->heap[at] = skyline->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    skyline->heap[at] = entry;
    return GML_OK;
}

static gml_skyline_entry pop(gml_skyline *skyline) {
    gml_skyline_entry *heap = skyline->heap;
    gml_skyline_entry top = heap[0];
    gml_skyline_entry entry = heap[--skyline->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= skyline->heap_count) {
            break;
        }
        child += child + 1 < skyline->heap_count && is_below(&heap[child + 1], &heap[child]);
        if (!is_below(&heap[child], &entry)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = entry;
    return top;
}

/* ---- the segments ---------------------------------------------------------------------------- */

gml_status gml_skyline_open(gml_skyline *skyline, uint32_t slots) {
    *skyline = (gml_skyline){.slots = slots, .heap_room = 64};
    skyline->segments = calloc((size_t)slots + 1, sizeof *skyline->segments);
    skyline->heap = malloc(skyline->heap_room * sizeof *skyline->heap);
    if (!skyline->segments || !skyline->heap) {
        gml_skyline_close(skyline);
        return GML_NO_HOST_MEMORY;
    }
    return GML_OK;
}

void gml_skyline_close(gml_skyline *skyline) {
    free(skyline->segments);
    free(skyline->heap);
    *skyline = (gml_skyline){0};
}

/* A segment [begin, end) behind `previous`. */
static void set(gml_skyline *skyline, uint32_t begin, uint32_t end, uint32_t previous,
                uint64_t height) {
    skyline->segments[begin] = (gml_segment){height, end, previous};
    skyline->segments[end].previous = begin;
}

gml_status gml_skyline_reset(gml_skyline *skyline, const uint64_t *heights) {
    skyline->heap_count = 0;
    memset(skyline->segments, 0, skyline->slots * sizeof *skyline->segments);
    skyline->segments[skyline->slots].height = UINT64_MAX;
    uint32_t previous = GML_NO_SEGMENT;
    for (uint32_t begin = 0, end; begin < skyline->slots; begin = end) {
        uint64_t height = heights ? heights[begin] : 0;
        end = heights ? begin + 1 : skyline->slots;
        while (end < skyline->slots && heights[end] == height) {
            end++;
        }
        set(skyline, begin, end, previous, height);
        previous = begin;
        gml_status status = push(skyline, begin);
        if (status != GML_OK) {
            return status;
        }
    }
    return GML_OK;
}

uint32_t gml_skyline_take(gml_skyline *skyline) {
    for (;;) {
        gml_skyline_entry entry = pop(skyline);
        const gml_segment *segment = &skyline->segments[entry.slot];
        if (segment->next != 0 && segment->height == entry.height) {
            return entry.slot;
        }
    }
}

/* The height before `at`, infinite at the left end. */
static uint64_t height_before(const gml_skyline *skyline, uint32_t at) {
    uint32_t previous = skyline->segments[at].previous;
    return previous == GML_NO_SEGMENT ? UINT64_MAX : skyline->segments[previous].height;
}

/* Merges segment `at` with neighbours of the same height; puts it into the heap unless it became
 * part of one already there. */
static gml_status merge_level(gml_skyline *skyline, uint32_t at) {
    gml_segment *segment = &skyline->segments[at];
    uint32_t next = segment->next;
    if (skyline->segments[next].height == segment->height) {
        uint32_t end = skyline->segments[next].next;
        skyline->segments[next].next = 0;
        set(skyline, at, end, segment->previous, segment->height);
    }
    if (height_before(skyline, at) != segment->height) {
        return push(skyline, at);
    }
    uint32_t previous = segment->previous;
    set(skyline, previous, segment->next, skyline->segments[previous].previous, segment->height);
    segment->next = 0;
    return GML_OK;
}

gml_status gml_skyline_raise(gml_skyline *skyline, uint32_t at, uint32_t begin, uint32_t end,
                             uint64_t size_bytes, uint32_t *taken) {
    gml_segment old = skyline->segments[at];
    *taken = GML_NO_SEGMENT;
    uint32_t previous = old.previous;
    if (at < begin) {
        set(skyline, at, begin, old.previous, old.height);
        previous = at;
        *taken = at;
    }
    gml_status status = GML_OK;
    set(skyline, begin, end, previous, old.height + size_bytes);
    if (end < old.next) {
        set(skyline, end, old.next, begin, old.height);
        if (*taken == GML_NO_SEGMENT) {
            *taken = end;
        } else {
            status = push(skyline, end);
        }
    }
    return status == GML_OK ? merge_level(skyline, begin) : status;
}

uint64_t gml_skyline_depth(const gml_skyline *skyline, uint32_t at) {
    const gml_segment *segment = &skyline->segments[at];
    uint64_t before = height_before(skyline, at), behind = skyline->segments[segment->next].height;
    return (before < behind ? before : behind) - segment->height;
}

gml_status gml_skyline_lift(gml_skyline *skyline, uint32_t at) {
    skyline->segments[at].height += gml_skyline_depth(skyline, at);
    return merge_level(skyline, at);
}
