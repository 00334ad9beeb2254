#include "diagnosis/fix.h"

#include "base/room.h"
#include "diagnosis/slices.h"

#include <stdlib.h>

static const uint32_t SPLIT = UINT32_C(1) << GML_PATTERN_STRUCTURED_ACCESS;
static const uint32_t SHRUNK = UINT32_C(1) << GML_PATTERN_OVERALLOCATION;
static const uint32_t REMOVED = UINT32_C(1) << GML_PATTERN_UNUSED_ALLOCATION;
static const uint32_t LODGED = UINT32_C(1) << GML_PATTERN_REDUNDANT_ALLOCATION;

static gml_room room_of(const gml_trace_index *index, uint32_t object) {
    const gml_object_life *life = &index->lives[object];
    return (gml_room){
        .start = life->alloc == GML_NO_API ? 0 : life->alloc + 1,
        .end = life->free == GML_NO_API ? index->trace->api_count + 1 : life->free + 1,
        .bytes = index->trace->objects[object].size_bytes,
        .first_hole = GML_NO_OBJECT,
        .last_hole = GML_NO_OBJECT,
        .host = object,
    };
}

gml_status gml_fixes_open(gml_fixes *fixes, const gml_trace_index *index) {
    size_t count = index->trace->object_count;
    *fixes = (gml_fixes){.index = index, .rooms = malloc((count + 1) * sizeof *fixes->rooms)};
    if (!fixes->rooms) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t o = 0; o < count; o++) {
        fixes->rooms[o] = room_of(index, (uint32_t)o);
    }
    return GML_OK;
}

void gml_fixes_close(gml_fixes *fixes) {
    free(fixes->rooms);
    free(fixes->holes);
    free(fixes->slices);
    *fixes = (gml_fixes){0};
}

void gml_fixes_drop(gml_fixes *fixes, uint32_t object) {
    gml_room *room = &fixes->rooms[object];
    for (uint32_t i = room->first_hole; i != GML_NO_OBJECT; i = fixes->holes[i].next) {
        fixes->hole_count--;
    }
    fixes->slice_count -= room->slice_count;
    *room = room_of(fixes->index, object);
}

/* ---- lives ----------------------------------------------------------------------------------- */

static void begin_late(gml_room *room, const gml_object_life *life) {
    if (life->earliest != GML_NO_API) {
        room->start = life->earliest + 1;
    }
}

static void end_early(gml_room *room, const gml_object_life *life) {
    if (life->latest != GML_NO_API) {
        room->end = life->latest + 2;
    } else {
        room->end = life->alloc != GML_NO_API ? life->alloc + 2 : room->start;
    }
}

/* ---- holes ----------------------------------------------------------------------------------- */

/* The first use of the object after an API, as a place in index->uses. */
static size_t use_after(const gml_trace_index *index, uint32_t object, uint64_t api) {
    size_t low = index->first_use[object], high = index->first_use[object + 1];
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (index->api_of[index->uses[middle]] > api) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* Whether the object is accessed by both and by none between them. */
static bool are_neighbours(const gml_trace_index *index, uint32_t object, uint64_t from,
                           uint64_t to) {
    size_t place = use_after(index, object, from);
    return place > index->first_use[object] && place < index->first_use[object + 1] &&
           index->api_of[index->uses[place - 1]] == from && index->api_of[index->uses[place]] == to;
}

static void link_holes(gml_fixes *fixes, gml_room *room, uint32_t first, uint32_t last) {
    if (first == GML_NO_OBJECT) {
        return;
    }
    if (room->first_hole == GML_NO_OBJECT) {
        room->first_hole = first;
    } else {
        fixes->holes[room->last_hole].next = first;
    }
    room->last_hole = last;
}

static gml_status make_hole(gml_fixes *fixes, const gml_finding *finding) {
    if (!are_neighbours(fixes->index, finding->object, finding->from_api, finding->to_api)) {
        return GML_OK;
    }
    if (!gml_make_room(&fixes->holes, &fixes->hole_capacity, fixes->hole_count + 1,
                       sizeof *fixes->holes)) {
        return GML_NO_HOST_MEMORY;
    }
    uint32_t hole = (uint32_t)fixes->hole_count++;
    fixes->holes[hole] = (gml_hole){finding->from_api + 2, finding->to_api + 1, GML_NO_OBJECT};
    link_holes(fixes, &fixes->rooms[finding->object], hole, hole);
    return GML_OK;
}

/* ---- slices ---------------------------------------------------------------------------------- */

static gml_status copy_slices(gml_fixes *fixes, uint32_t object, const gml_slices *found) {
    if (!gml_make_room(&fixes->slices, &fixes->slice_capacity, fixes->slice_count + found->count,
                       sizeof *fixes->slices)) {
        return GML_NO_HOST_MEMORY;
    }
    gml_room *room = &fixes->rooms[object];
    room->fixed |= SPLIT;
    room->first_slice = fixes->slice_count;
    room->slice_count = found->count;
    for (size_t i = 0; i < found->count; i++) {
        const gml_slice *slice = &found->items[i];
        fixes->slices[fixes->slice_count++] = (gml_slice_life){
            .start = slice->earliest + 1,
            .end = slice->latest + 2,
            .bytes = slice->bytes,
        };
    }
    return GML_OK;
}

static gml_status split(gml_fixes *fixes, uint32_t object) {
    gml_slices found = {0};
    gml_status status = gml_slices_find(&found, fixes->index, object, false);
    if (status == GML_OK && found.count > 1) {
        status = copy_slices(fixes, object, &found);
    }
    gml_slices_clear(&found);
    return status;
}

/* ---- one finding ----------------------------------------------------------------------------- */

/* Slices live only as long as they are used, and removed objects never: other fixes of such an
 * object change nothing. */
gml_status gml_fixes_take(gml_fixes *fixes, const gml_finding *finding) {
    gml_room *room = &fixes->rooms[finding->object];
    const gml_object_life *life = &fixes->index->lives[finding->object];
    switch (finding->pattern) {
    case GML_PATTERN_EARLY_ALLOCATION:
        begin_late(room, life);
        return GML_OK;
    case GML_PATTERN_LATE_DEALLOCATION:
    case GML_PATTERN_MEMORY_LEAK:
        end_early(room, life);
        return GML_OK;
    case GML_PATTERN_TEMPORARY_IDLENESS:
        return make_hole(fixes, finding);
    case GML_PATTERN_OVERALLOCATION:
        room->fixed |= SHRUNK;
        room->bytes -= finding->bytes < room->bytes ? finding->bytes : room->bytes;
        return GML_OK;
    case GML_PATTERN_STRUCTURED_ACCESS:
        return room->fixed & (SPLIT | SHRUNK | LODGED) || room->is_lent
                   ? GML_OK
                   : split(fixes, finding->object);
    case GML_PATTERN_UNUSED_ALLOCATION:
        room->fixed |= REMOVED;
        return GML_OK;
    default:
        return GML_OK;
    }
}

/* ---- stretches ------------------------------------------------------------------------------- */

static void tell_holes(const gml_fixes *fixes, const gml_room *room, int64_t bytes,
                       gml_stretch_sink sink, void *state) {
    for (uint32_t i = room->first_hole; bytes != 0 && i != GML_NO_OBJECT;
         i = fixes->holes[i].next) {
        sink(state, fixes->holes[i].start, fixes->holes[i].end, -bytes);
    }
}

void gml_fixes_tell_life(const gml_fixes *fixes, uint32_t object, gml_stretch_sink sink,
                         void *state) {
    gml_room life = room_of(fixes->index, object);
    sink(state, life.start, life.end, (int64_t)life.bytes);
}

void gml_fixes_tell_change(const gml_fixes *fixes, uint32_t object, int64_t sign,
                           gml_stretch_sink sink, void *state) {
    const gml_room *room = &fixes->rooms[object];
    gml_room life = room_of(fixes->index, object);
    int64_t before = sign * (int64_t)life.bytes, after = sign * (int64_t)room->bytes;
    if (room->fixed & (REMOVED | SPLIT)) {
        sink(state, life.start, life.end, -before);
    } else {
        sink(state, life.start, room->start, -before);
        sink(state, room->start, room->end, after - before);
        sink(state, room->end, life.end, -before);
        tell_holes(fixes, room, after, sink, state);
    }
    for (size_t i = 0; !(room->fixed & REMOVED) && i < room->slice_count; i++) {
        const gml_slice_life *slice = &fixes->slices[room->first_slice + i];
        sink(state, slice->start, slice->end, sign * (int64_t)slice->bytes);
    }
}

/* ---- joined rooms ---------------------------------------------------------------------------- */

/* The room that the object's became part of; shortens the way for the next time. */
static uint32_t find_host(gml_fixes *fixes, uint32_t object) {
    gml_room *rooms = fixes->rooms;
    while (rooms[object].host != object) {
        rooms[object].host = rooms[rooms[object].host].host;
        object = rooms[object].host;
    }
    return object;
}

bool gml_fixes_may_lend(const gml_fixes *fixes, const gml_finding *finding) {
    const gml_room *other = &fixes->rooms[finding->other], *own = &fixes->rooms[finding->object];
    const gml_object_life *first = &fixes->index->lives[finding->other];
    const gml_object_life *second = &fixes->index->lives[finding->object];
    return !other->is_lent && !(own->fixed & LODGED) &&
           !((other->fixed | own->fixed) & (SPLIT | REMOVED)) && first->latest != GML_NO_API &&
           second->earliest != GML_NO_API && first->latest < second->earliest;
}

void gml_fixes_lend(gml_fixes *fixes, const gml_finding *finding) {
    fixes->rooms[finding->other].is_lent = true;
    fixes->rooms[finding->object].fixed |= LODGED;
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

void gml_fixes_tell_join(gml_fixes *fixes, const gml_finding *finding, int64_t sign,
                         gml_stretch_sink sink, void *state) {
    const gml_room *host = &fixes->rooms[find_host(fixes, finding->other)];
    const gml_room *guest = &fixes->rooms[finding->object];
    int64_t bytes = sign * (int64_t)larger(host->bytes, guest->bytes);
    int64_t host_bytes = sign * (int64_t)host->bytes, guest_bytes = sign * (int64_t)guest->bytes;
    sink(state, host->start, host->end, bytes - host_bytes);
    sink(state, guest->start, guest->end, -guest_bytes);
    sink(state, host->end, larger(host->end, guest->end), bytes);
    tell_holes(fixes, host, bytes - host_bytes, sink, state);
    tell_holes(fixes, guest, bytes - guest_bytes, sink, state);
}

void gml_fixes_join(gml_fixes *fixes, const gml_finding *finding) {
    uint32_t place = find_host(fixes, finding->other);
    gml_room *host = &fixes->rooms[place], *guest = &fixes->rooms[finding->object];
    guest->host = place;
    host->bytes = larger(host->bytes, guest->bytes);
    host->end = larger(host->end, guest->end);
    link_holes(fixes, host, guest->first_hole, guest->last_hole);
}
