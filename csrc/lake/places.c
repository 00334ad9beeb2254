/* Places of elastic buffers: what is mapped there, and when it goes. */
#include "base/status.h"
#include "core/mapping.h"
#include "lake/elastic.h"

#include <inttypes.h>
#include <stdlib.h>

/* A place that is mapped, but of no use: the driver refused to take a half-made mapping back. */
#define NO_CHUNK UINT64_C(1)

/* ---- idle mappings --------------------------------------------------------------------------- */

/* After the work that was queued when the buffer shrank. */
static gml_status
wait_for_idle(gml_lake *lake, gml_elastic *of)
{
    gml_status status = GML_OK;
    if (of->is_unordered) {
        status = gml_driver_device_synchronize(lake->driver);
    } else if (of->is_recorded) {
        status = gml_driver_event_synchronize(lake->driver, of->event);
    }
    if (status == GML_OK) {
        of->is_unordered = of->is_recorded = false;
    }
    return status;
}

/* Unmaps what is mapped at [first, end). pre: no work uses it. */
static gml_status
unmap_places(gml_lake *lake, gml_elastic *of, size_t first, size_t end)
{
    gml_status status = GML_OK;
    while (first < end && status == GML_OK) {
        size_t behind = first;
        while (behind < end && of->homes[behind]) {
            behind++;
        }
        if (behind > first) {
            status = gml_driver_unmap(lake->driver, of->address + first * of->chunk_bytes,
                                      (behind - first) * of->chunk_bytes);
        }
        for (; first < behind && status == GML_OK; first++) {
            of->homes[first] = 0;
        }
        first += status == GML_OK; /* that one is not mapped */
    }
    return status;
}

static gml_status
end_idle(gml_lake *lake, gml_elastic *of)
{
    if (of->mapped_end == of->count) {
        return GML_OK;
    }
    gml_status status = wait_for_idle(lake, of);
    if (status == GML_OK) {
        status = unmap_places(lake, of, of->count, of->mapped_end);
    }
    if (status == GML_OK) {
        of->mapped_end = of->count;
    }
    return status;
}

/* ---- mapping --------------------------------------------------------------------------------- */

/* Maps the chunks of [first, end), none of which is mapped, and opens access. */
static gml_status
map_run(gml_lake *lake, gml_elastic *of, size_t first, size_t end)
{
    gml_status status = GML_OK;
    for (size_t i = first; i < end && status == GML_OK; i++) {
        gml_chunk chunk = {0};
        status = lake->policy->ops->chunk(lake->policy, of->blocks[i]->address, &chunk);
        of->handles[i] = chunk.handle;
    }
    uint64_t stuck_bytes = 0;
    if (status == GML_OK) {
        status = gml_mapping_add(lake->driver, of->address + first * of->chunk_bytes,
                                 &of->handles[first], end - first, GML_ACCESS_RANGE, &stuck_bytes);
    }
    size_t mapped = status == GML_OK ? end : first + (size_t)(stuck_bytes / of->chunk_bytes);
    for (size_t i = first; i < mapped; i++) {
        of->homes[i] = status == GML_OK ? of->blocks[i]->address : NO_CHUNK;
    }
    of->mapped_end = mapped > of->mapped_end ? mapped : of->mapped_end;
    return status;
}

static bool
is_in_place(const gml_elastic *of, size_t place)
{
    return of->homes[place] == of->blocks[place]->address;
}

gml_status
gml_elastic_map(gml_lake *lake, gml_elastic *of, size_t first, size_t end)
{
    gml_status status = GML_OK;
    while (first < end && status == GML_OK) {
        size_t behind = first;
        while (behind < end && !is_in_place(of, behind)) {
            behind++;
        }
        if (behind > first && first < of->mapped_end) {
            status = wait_for_idle(lake, of);
            if (status == GML_OK) {
                status = unmap_places(lake, of, first,
                                      behind < of->mapped_end ? behind : of->mapped_end);
            }
        }
        if (behind > first && status == GML_OK) {
            status = map_run(lake, of, first, behind);
        }
        first = behind + 1; /* that one is in place */
    }
    return status;
}

/* ---- use ------------------------------------------------------------------------------------- */

gml_status
gml_elastic_begin_uses(gml_lake *lake, const gml_elastic *of, size_t first, size_t end)
{
    gml_watcher *watcher = lake->watcher;
    gml_status status = GML_OK;
    for (size_t i = first; i < end && watcher && status == GML_OK; i++) {
        gml_address address = of->address + i * of->chunk_bytes;
        status = gml_lake_watched(
            lake, watcher->begin_use(watcher, address, of->chunk_bytes, of->stream));
    }
    return status;
}

void
gml_elastic_end_uses(gml_lake *lake, const gml_elastic *of, size_t first, size_t end)
{
    for (size_t i = first; i < end && lake->watcher; i++) {
        gml_lake_end_use(lake, of->address + i * of->chunk_bytes);
    }
}

void
gml_elastic_note_idle(gml_lake *lake, gml_elastic *of)
{
    gml_driver *driver = lake->driver;
    bool is_capturing = gml_driver_is_frozen(driver);
    gml_status status =
        is_capturing ? GML_OK : gml_driver_stream_capturing(driver, of->stream, &is_capturing);
    if (status == GML_OK && !is_capturing && !of->has_event) {
        status = gml_driver_event_create(driver, &of->event);
        of->has_event = status == GML_OK;
    }
    if (status == GML_OK && !is_capturing) {
        status = gml_driver_event_record(driver, of->event, of->stream);
    }
    of->is_recorded = status == GML_OK && !is_capturing;
    of->is_unordered |= !of->is_recorded;
}

/* ---- the end --------------------------------------------------------------------------------- */

void
gml_elastic_release(gml_elastic *of)
{
    free(of->blocks);
    free(of->homes);
    free(of->handles);
    free(of);
}

/* Takes the mappings and the addresses back. After a failure a later call goes on. */
static gml_status
unmake(gml_lake *lake, gml_elastic *of)
{
    gml_driver *driver = lake->driver;
    gml_status status = end_idle(lake, of);
    if (status == GML_OK && of->has_event) {
        status = gml_driver_event_destroy(driver, of->event);
        of->has_event = status != GML_OK;
    }
    if (status == GML_OK) {
        status = gml_driver_unreserve(driver, of->address, of->size_bytes);
    }
    return status;
}

/* Ends what was closed and could not be ended then. */
static gml_status
end_late(gml_lake *lake, gml_elastic *of)
{
    gml_status status = unmake(lake, of);
    if (status == GML_OK) {
        (void)gml_map_take(&lake->elastics, of->address);
        gml_list_remove(&of->all);
        gml_elastic_release(of);
    }
    return status;
}

gml_status
gml_elastics_end_late(gml_lake *lake)
{
    gml_link *all = &lake->elastic_list;
    gml_status first = GML_OK;
    for (gml_link *link = all->next, *next; link != all && gml_elastic_of_link(link)->is_over;
         link = next) {
        next = link->next;
        first = gml_first_failure(first, end_late(lake, gml_elastic_of_link(link)));
    }
    return first;
}

gml_status
gml_elastics_settle(gml_lake *lake)
{
    gml_status first = GML_OK;
    for (gml_link *link = lake->elastic_list.next; link != &lake->elastic_list; link = link->next) {
        first = gml_first_failure(first, end_idle(lake, gml_elastic_of_link(link)));
    }
    return gml_first_failure(first, gml_elastics_end_late(lake));
}

static gml_status
end_finally(gml_lake *lake, gml_elastic *of)
{
    gml_driver *driver = lake->driver;
    gml_status first = GML_OK;
    for (size_t i = 0; i < of->mapped_end; i++) {
        if (of->homes[i]) {
            gml_address address = of->address + i * of->chunk_bytes;
            first = gml_first_failure(first, gml_unmap_finally(driver, address, of->chunk_bytes));
        }
    }
    if (of->has_event) {
        first = gml_first_failure(first, gml_driver_event_destroy(driver, of->event));
    }
    first = gml_first_failure(first, gml_unreserve_finally(driver, of->address, of->size_bytes));
    gml_elastic_release(of);
    return first;
}

gml_status
gml_elastics_end(gml_lake *lake)
{
    gml_link *all = &lake->elastic_list;
    for (gml_link *link = all->next; link != all; link = link->next) {
        gml_elastic_end_uses(lake, gml_elastic_of_link(link), 0, gml_elastic_of_link(link)->count);
    }
    gml_status first = gml_list_is_empty(all) ? GML_OK : gml_synchronize_finally(lake->driver);
    for (gml_link *link = all->next, *next; link != all; link = next) {
        next = link->next;
        first = gml_first_failure(first, end_finally(lake, gml_elastic_of_link(link)));
    }
    gml_list_init(all);
    gml_map_clear(&lake->elastics);
    return first;
}

/* ---- invariants ------------------------------------------------------------------------------ */

gml_status
gml_elastics_check(gml_lake *lake)
{
    for (gml_link *link = lake->elastic_list.next; link != &lake->elastic_list; link = link->next) {
        const gml_elastic *of = gml_elastic_of_link(link);
        for (size_t i = 0; i < of->count; i++) {
            if (gml_map_find(&lake->blocks, of->blocks[i]->address) != of->blocks[i] ||
                !is_in_place(of, i)) {
                return gml_driver_fail(lake->driver, GML_CORRUPT,
                                       "chunk %zu of the elastic buffer at 0x%" PRIx64
                                       " is not live, or not in its place",
                                       i, of->address);
            }
        }
    }
    return GML_OK;
}
