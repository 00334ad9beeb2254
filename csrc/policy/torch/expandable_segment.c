/* Reservations and granules behind expandable_segment.h. Every driver call may fail: the state of
 * each granule then shows what is left to undo. */
#include "policy/torch/expandable_segment.h"

#include "base/rounding.h"
#include "base/status.h"
#include "core/mapping.h"
#include "policy/torch/rounding.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIRST_ROOM = 64,
    ABANDON_ATTEMPTS = 6, /* there is no later moment to repeat a call in */
};

static uint64_t granule_bytes_of(const gml_torch_heap *heap, bool is_small) {
    return is_small
               ? gml_round_up(GML_TORCH_SMALL_SEGMENT, heap->base.driver->info.granularity_bytes)
               : heap->knobs.large_segment_size;
}

static gml_address address_of(const gml_expandable_segment *segment, size_t place) {
    return segment->base.address + place * segment->granule_bytes;
}

/* ---- one granule ----------------------------------------------------------------------------- */

static gml_status create_granule(gml_torch_heap *heap, gml_expandable_segment *segment,
                                 size_t place) {
    gml_status status =
        gml_driver_create(heap->base.driver, segment->granule_bytes, &segment->handles[place]);
    if (status == GML_OK) {
        segment->granules[place] = GML_GRANULE_LOOSE;
        segment->handle_count++;
        heap->base.reserved_bytes += segment->granule_bytes;
        heap->base.small_bytes += segment->base.lane->is_small ? segment->granule_bytes : 0;
    }
    return status;
}

static gml_status release_granule(gml_torch_heap *heap, gml_expandable_segment *segment,
                                  size_t place) {
    gml_status status = gml_driver_release(heap->base.driver, segment->handles[place]);
    if (status == GML_OK) {
        segment->handles[place] = 0;
        segment->granules[place] = GML_GRANULE_ABSENT;
        segment->handle_count--;
        heap->base.reserved_bytes -= segment->granule_bytes;
        heap->base.small_bytes -= segment->base.lane->is_small ? segment->granule_bytes : 0;
    }
    return status;
}

static gml_status unmap_granule(gml_torch_heap *heap, gml_expandable_segment *segment,
                                size_t place) {
    gml_status status =
        gml_driver_unmap(heap->base.driver, address_of(segment, place), segment->granule_bytes);
    if (status == GML_OK) {
        segment->backed_count -= segment->granules[place] == GML_GRANULE_BACKED;
        segment->granules[place] = GML_GRANULE_LOOSE;
    }
    return status;
}

/* The statistic follows reserved_bytes, by the net change of a whole operation. */
static void count_reserved(gml_torch_heap *heap, const gml_expandable_segment *segment,
                           uint64_t before_bytes) {
    gml_torch_stats_change(heap->stats.reserved_bytes, segment->base.lane->is_small,
                           heap->base.reserved_bytes, before_bytes);
}

/* ---- backing --------------------------------------------------------------------------------- */

static gml_status ensure_room(gml_torch_heap *heap, gml_expandable_segment *segment, size_t room) {
    if (room <= segment->room) {
        return GML_OK;
    }
    size_t doubled = segment->room ? 2 * segment->room : FIRST_ROOM;
    room = room > doubled ? room : doubled;
    gml_handle *handles = realloc(segment->handles, room * sizeof *handles);
    if (!handles) {
        return gml_torch_no_host_memory(heap);
    }
    segment->handles = handles;
    gml_granule *granules = realloc(segment->granules, room * sizeof *granules);
    if (!granules) {
        return gml_torch_no_host_memory(heap);
    }
    segment->granules = granules;
    size_t added = room - segment->room;
    memset(handles + segment->room, 0, added * sizeof *handles);
    memset(granules + segment->room, 0, added * sizeof *granules);
    segment->room = room;
    return GML_OK;
}

/* Makes a stuck granule loose. */
static gml_status free_stuck(gml_torch_heap *heap, gml_expandable_segment *segment, size_t place) {
    if (segment->granules[place] != GML_GRANULE_STUCK) {
        return GML_OK;
    }
    if (gml_driver_is_frozen(heap->base.driver)) {
        return gml_driver_fail(heap->base.driver, GML_OUT_OF_MEMORY,
                               "a granule cannot be mapped anew while a graph is being captured");
    }
    return unmap_granule(heap, segment, place);
}

/* Makes every granule of the range loose, with the handles that are missing. */
static gml_status gather_handles(gml_torch_heap *heap, gml_expandable_segment *segment,
                                 size_t first, size_t count) {
    uint64_t missing_bytes = 0;
    for (size_t place = first; place < first + count; place++) {
        gml_status status = free_stuck(heap, segment, place);
        if (status != GML_OK) {
            return status;
        }
        if (segment->granules[place] == GML_GRANULE_ABSENT) {
            missing_bytes += segment->granule_bytes;
        }
    }
    if (heap->capacity_bytes && heap->base.reserved_bytes + missing_bytes > heap->capacity_bytes) {
        return gml_driver_fail(heap->base.driver, GML_OUT_OF_MEMORY,
                               "mapping more would exceed the capacity");
    }
    gml_status status = GML_OK;
    for (size_t place = first; place < first + count && status == GML_OK; place++) {
        if (segment->granules[place] == GML_GRANULE_ABSENT) {
            status = create_granule(heap, segment, place);
        }
    }
    return status;
}

/* Releases loose handles in the range; those that the driver refuses to release stay strays. */
static void drop_loose(gml_torch_heap *heap, gml_expandable_segment *segment, size_t first,
                       size_t count) {
    gml_driver_begin_undo(heap->base.driver);
    for (size_t place = first; place < first + count; place++) {
        if (segment->granules[place] == GML_GRANULE_LOOSE) {
            (void)release_granule(heap, segment, place);
        }
    }
    gml_driver_end_undo(heap->base.driver);
}

/* Maps loose granules; those that cannot be unmapped after a failure are left stuck. */
static gml_status map_loose(gml_torch_heap *heap, gml_expandable_segment *segment, size_t first,
                            size_t count) {
    uint64_t stuck_bytes = 0;
    gml_status status = gml_mapping_add(heap->base.driver, address_of(segment, first),
                                        segment->handles + first, count, &stuck_bytes);
    size_t mapped = status == GML_OK ? count : (size_t)(stuck_bytes / segment->granule_bytes);
    for (size_t place = first; place < first + mapped; place++) {
        segment->granules[place] = status == GML_OK ? GML_GRANULE_BACKED : GML_GRANULE_STUCK;
    }
    segment->backed_count += status == GML_OK ? count : 0;
    return status;
}

gml_status gml_expandable_back(gml_torch_heap *heap, gml_expandable_segment *segment, size_t first,
                               size_t count) {
    gml_status status = ensure_room(heap, segment, first + count);
    if (status != GML_OK) {
        return status;
    }
    uint64_t before_bytes = heap->base.reserved_bytes;
    status = gather_handles(heap, segment, first, count);
    if (status == GML_OK) {
        status = map_loose(heap, segment, first, count);
    }
    if (status != GML_OK) {
        drop_loose(heap, segment, first, count);
    }
    count_reserved(heap, segment, before_bytes);
    return status;
}

gml_status gml_expandable_unback(gml_torch_heap *heap, gml_expandable_segment *segment,
                                 size_t first, size_t count, size_t *unbacked) {
    *unbacked = 0;
    gml_status status = GML_OK;
    uint64_t before_bytes = heap->base.reserved_bytes;
    for (size_t place = first; place < first + count; place++) {
        gml_status unmapped = unmap_granule(heap, segment, place);
        status = gml_first_failure(status, unmapped);
        if (unmapped != GML_OK) {
            break;
        }
        *unbacked += 1;
        status = gml_first_failure(status, release_granule(heap, segment, place));
    }
    count_reserved(heap, segment, before_bytes);
    return status;
}

gml_status gml_expandable_sweep(gml_torch_heap *heap, gml_expandable_segment *segment) {
    gml_status first = GML_OK;
    uint64_t before_bytes = heap->base.reserved_bytes;
    bool has_strays = segment->handle_count > segment->backed_count;
    for (size_t place = 0; has_strays && place < segment->room; place++) {
        if (segment->granules[place] == GML_GRANULE_STUCK) {
            first = gml_first_failure(first, unmap_granule(heap, segment, place));
        }
        if (segment->granules[place] == GML_GRANULE_LOOSE) {
            first = gml_first_failure(first, release_granule(heap, segment, place));
        }
    }
    count_reserved(heap, segment, before_bytes);
    return first;
}

/* ---- the reservation ------------------------------------------------------------------------- */

uint64_t gml_expandable_segment_span(const gml_torch_heap *heap, bool is_small) {
    uint64_t total_bytes = heap->base.driver->info.total_bytes;
    return gml_round_up(total_bytes + total_bytes / 8, granule_bytes_of(heap, is_small));
}

gml_status gml_expandable_segment_open(gml_torch_heap *heap, gml_torch_lane *lane,
                                       gml_expandable_segment **out) {
    gml_expandable_segment *segment = (gml_expandable_segment *)gml_torch_segment_new(heap, lane);
    if (!segment) {
        return gml_torch_no_host_memory(heap);
    }
    uint64_t span_bytes = gml_expandable_segment_span(heap, lane->is_small);
    gml_address address;
    gml_status status = gml_driver_reserve(heap->base.driver, span_bytes, 0, &address);
    if (status != GML_OK) {
        gml_torch_segment_discard(heap, &segment->base);
        return status;
    }
    segment->granule_bytes = granule_bytes_of(heap, lane->is_small);
    gml_torch_segment_enter(heap, &segment->base, address, span_bytes, GML_TORCH_UNMAPPED);
    *out = segment;
    return GML_OK;
}

gml_status gml_expandable_segment_close(gml_torch_heap *heap, gml_expandable_segment *segment) {
    gml_status status =
        gml_driver_unreserve(heap->base.driver, segment->base.address, segment->base.size_bytes);
    if (status == GML_OK) {
        gml_torch_segment_leave(heap, &segment->base);
        free(segment->handles);
        free(segment->granules);
        gml_torch_segment_discard(heap, &segment->base);
    }
    return status;
}

/* One pass over the remaining granules; after a failure the next pass resumes where it stopped. */
static gml_status empty_segment(gml_torch_heap *heap, gml_expandable_segment *segment) {
    gml_status first = GML_OK;
    for (size_t place = 0; place < segment->room; place++) {
        gml_granule granule = segment->granules[place];
        if (granule == GML_GRANULE_BACKED || granule == GML_GRANULE_STUCK) {
            first = gml_first_failure(first, unmap_granule(heap, segment, place));
        }
        if (segment->granules[place] == GML_GRANULE_LOOSE) {
            first = gml_first_failure(first, release_granule(heap, segment, place));
        }
    }
    if (first == GML_OK) {
        first = gml_driver_unreserve(heap->base.driver, segment->base.address,
                                     segment->base.size_bytes);
    }
    return first;
}

gml_status gml_expandable_segment_abandon(gml_torch_heap *heap, gml_expandable_segment *segment) {
    gml_status first = GML_OK;
    if (segment->handle_count) {
        first = gml_driver_device_synchronize(heap->base.driver);
    }
    gml_status status = GML_DRIVER_FAILED;
    for (int i = 0; i < ABANDON_ATTEMPTS && status != GML_OK; i++) {
        status = empty_segment(heap, segment);
        first = gml_first_failure(first, status);
    }
    free(segment->handles);
    free(segment->granules);
    return first;
}
