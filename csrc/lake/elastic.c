/* Elastic buffers: reserved addresses backed by chunks of the lake's policy.
 *
 * A chunk in use is a live block of the policy's, mapped at its place in the buffer as well.
 * Shrinking frees the blocks, and the mappings stay, idle: where the buffer grows again and gets
 * the same chunks, no call is made. An idle mapping is unmapped when its place needs another chunk,
 * and before its chunk goes: the base range has that done (gml_driver_end_aliases()), so whatever
 * is mapped is a chunk that the policy holds.
 */
#include "base/rounding.h"
#include "base/size.h"
#include "base/status.h"
#include "core/mapping.h"
#include "gmlake_elastic.h"
#include "lake/lake.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

typedef struct gml_elastic {
    gml_address address;
    uint64_t size_bytes, chunk_bytes;
    gml_stream stream;
    size_t count;        /* of chunks in use: they are at the first places */
    size_t mapped_end;   /* no place from this one on is mapped */
    gml_block **blocks;  /* by place, of those in use */
    gml_address *bases;  /* by place: where the chunk that is mapped lies in the policy; 0: none */
    gml_handle *handles; /* by place: that chunk; 0: of no use, a half-made mapping that the driver
                            refused to take back */
    gml_event event;     /* behind the work that may use idle mappings, where it is recorded */
    bool has_event, is_recorded;
    bool is_unordered; /* no event could be recorded: the device must have finished */
    bool is_over;      /* closed, and still mapped */
    gml_link all;      /* in lake->elastic_list */
} gml_elastic;

static gml_elastic *of_link(gml_link *link) {
    return (gml_elastic *)(void *)((char *)link - offsetof(gml_elastic, all));
}

/* ---- idle mappings --------------------------------------------------------------------------- */

/* After the work that was queued when the buffer shrank. */
static gml_status wait_for_idle(gml_lake *lake, gml_elastic *of) {
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

/* Unmaps the mappings in [first, end). pre: no work uses them. */
static gml_status unmap_places(gml_lake *lake, gml_elastic *of, size_t first, size_t end) {
    gml_status status = GML_OK;
    while (first < end && status == GML_OK) {
        size_t behind = first;
        while (behind < end && of->bases[behind]) {
            behind++;
        }
        if (behind > first) {
            status = gml_driver_unmap(lake->driver, of->address + first * of->chunk_bytes,
                                      (behind - first) * of->chunk_bytes);
        }
        for (; first < behind && status == GML_OK; first++) {
            of->bases[first] = 0;
        }
        first += status == GML_OK; /* that one is not mapped */
    }
    while (of->mapped_end > of->count && !of->bases[of->mapped_end - 1]) {
        of->mapped_end--;
    }
    return status;
}

static gml_status end_idle(gml_lake *lake, gml_elastic *of) {
    if (of->mapped_end == of->count) {
        return GML_OK;
    }
    gml_status status = wait_for_idle(lake, of);
    return status == GML_OK ? unmap_places(lake, of, of->count, of->mapped_end) : status;
}

gml_status gml_elastics_end_aliases(void *context, gml_address address, uint64_t size_bytes) {
    gml_lake *lake = context;
    gml_status status = GML_OK;
    gml_link *all = &lake->elastic_list;
    for (gml_link *link = all->next; link != all && status == GML_OK; link = link->next) {
        gml_elastic *of = of_link(link);
        for (size_t first = of->count; first < of->mapped_end && status == GML_OK; first++) {
            size_t end = first;
            while (end < of->mapped_end && of->bases[end] - address < size_bytes) {
                end++;
            }
            if (end > first) { /* work that used them was queued before the chunks were freed */
                status = unmap_places(lake, of, first, end);
                first = end;
            }
        }
    }
    return status;
}

/* ---- mapping --------------------------------------------------------------------------------- */

/* The chunk of the policy that lies there now; 0, with a reason, if none does. */
static gml_handle chunk_at(gml_lake *lake, gml_address address) {
    gml_chunk chunk = {0};
    gml_status status = lake->policy->ops->chunk(lake->policy, address, &chunk);
    return status == GML_OK ? chunk.handle : 0;
}

/* Maps the chunks of [first, end), none of which is mapped, and opens access. */
static gml_status map_run(gml_lake *lake, gml_elastic *of, size_t first, size_t end) {
    gml_status status = GML_OK;
    for (size_t i = first; i < end && status == GML_OK; i++) {
        of->handles[i] = chunk_at(lake, of->blocks[i]->address);
        status = of->handles[i] ? GML_OK : GML_UNSUPPORTED;
    }
    uint64_t stuck_bytes = 0;
    if (status == GML_OK) {
        status = gml_mapping_add(lake->driver, of->address + first * of->chunk_bytes,
                                 &of->handles[first], end - first, &stuck_bytes);
    }
    size_t mapped = status == GML_OK ? end : first + (size_t)(stuck_bytes / of->chunk_bytes);
    for (size_t i = first; i < mapped; i++) {
        of->bases[i] = of->blocks[i]->address;
        of->handles[i] = status == GML_OK ? of->handles[i] : 0;
    }
    of->mapped_end = mapped > of->mapped_end ? mapped : of->mapped_end;
    return status;
}

static bool is_in_place(gml_lake *lake, const gml_elastic *of, size_t place) {
    gml_address address = of->blocks[place]->address;
    return of->bases[place] == address && of->handles[place] == chunk_at(lake, address);
}

/* Maps the chunk of each place in [first, end) that lacks it. After a failure the mapped places are
 * known. */
static gml_status map_places(gml_lake *lake, gml_elastic *of, size_t first, size_t end) {
    gml_status status = GML_OK;
    while (first < end && status == GML_OK) {
        size_t behind = first;
        while (behind < end && !is_in_place(lake, of, behind)) {
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

/* Tells the checker that uses of the mappings of [first, end) begin or end. */
static gml_status begin_uses(gml_lake *lake, const gml_elastic *of, size_t first, size_t end) {
    gml_checker *checker = lake->checker;
    gml_status status = GML_OK;
    for (size_t i = first; i < end && checker && status == GML_OK; i++) {
        gml_address address = of->address + i * of->chunk_bytes;
        status = gml_lake_checked(
            lake, checker->begin_use(checker, address, of->chunk_bytes, of->stream));
    }
    return status;
}

static void end_uses(gml_lake *lake, const gml_elastic *of, size_t first, size_t end) {
    for (size_t i = first; i < end && lake->checker; i++) {
        gml_lake_end_use(lake, of->address + i * of->chunk_bytes);
    }
}

/* What the device was given by now is the last that may use the newly idle mappings. */
static void note_idle(gml_lake *lake, gml_elastic *of) {
    gml_driver *driver = lake->driver;
    gml_status status = gml_driver_is_frozen(driver) ? GML_MISUSE : GML_OK;
    if (status == GML_OK && !of->has_event) {
        status = gml_driver_event_create(driver, &of->event);
        of->has_event = status == GML_OK;
    }
    if (status == GML_OK) {
        status = gml_driver_event_record_all(driver, of->event);
    }
    of->is_recorded = status == GML_OK;
    of->is_unordered |= !of->is_recorded;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Frees the host memory of a buffer that is in no list. */
static void release(gml_elastic *of) {
    free(of->blocks);
    free(of->bases);
    free(of->handles);
    free(of);
}

/* Unmaps the buffer and frees its addresses. After a failure a later call resumes. */
static gml_status unmake(gml_lake *lake, gml_elastic *of) {
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

/* Destroys a closed buffer that could not be destroyed when it was closed. */
static gml_status end_late(gml_lake *lake, gml_elastic *of) {
    gml_status status = unmake(lake, of);
    if (status == GML_OK) {
        (void)gml_map_take(&lake->elastics, of->address);
        gml_list_remove(&of->all);
        release(of);
    }
    return status;
}

/* The open ones are not looked at. */
gml_status gml_elastics_end_closed(gml_lake *lake) {
    gml_link *all = &lake->elastic_list;
    gml_status first = GML_OK;
    for (gml_link *link = all->next, *next; link != all && of_link(link)->is_over; link = next) {
        next = link->next;
        first = gml_first_failure(first, end_late(lake, of_link(link)));
    }
    return first;
}

static gml_status end_finally(gml_lake *lake, gml_elastic *of) {
    gml_driver *driver = lake->driver;
    gml_status first = GML_OK;
    for (size_t i = 0; i < of->mapped_end; i++) {
        if (of->bases[i]) {
            gml_address address = of->address + i * of->chunk_bytes;
            first = gml_first_failure(first, gml_unmap_finally(driver, address, of->chunk_bytes));
        }
    }
    if (of->has_event) {
        first = gml_first_failure(first, gml_driver_event_destroy(driver, of->event));
    }
    first = gml_first_failure(first, gml_unreserve_finally(driver, of->address, of->size_bytes));
    release(of);
    return first;
}

gml_status gml_elastics_end(gml_lake *lake) {
    gml_link *all = &lake->elastic_list;
    for (gml_link *link = all->next; link != all; link = link->next) {
        end_uses(lake, of_link(link), 0, of_link(link)->count);
    }
    gml_status first = gml_list_is_empty(all) ? GML_OK : gml_synchronize_finally(lake->driver);
    for (gml_link *link = all->next, *next; link != all; link = next) {
        next = link->next;
        first = gml_first_failure(first, end_finally(lake, of_link(link)));
    }
    gml_list_init(all);
    gml_map_clear(&lake->elastics);
    return first;
}

/* ---- growing and shrinking ------------------------------------------------------------------- */

/* Takes a chunk for a place from the policy. If the policy is out of memory, trims the lake and
 * retries, once, if *may_trim. */
static gml_status take_chunk(gml_lake *lake, gml_elastic *of, size_t place, size_t end,
                             bool *may_trim) {
    gml_policy *policy = lake->policy;
    gml_block *block = NULL;
    uint64_t missing_bytes = (end - place) * of->chunk_bytes, released_bytes = 0;
    gml_status status =
        policy->ops->take_chunk(policy, of->bases[place], missing_bytes, of->stream, &block);
    if (status == GML_OUT_OF_MEMORY && *may_trim) {
        *may_trim = false;
        lake->torch.num_alloc_retries++;
        (void)gml_lake_trim_locked(lake, &released_bytes);
        status = policy->ops->take_chunk(policy, 0, missing_bytes, of->stream, &block);
    }
    if (status != GML_OK) {
        return status;
    }
    block->owner = policy;
    block->uses = NULL;
    of->blocks[place] = block;
    return GML_OK;
}

/* Frees the chunks of [first, end), which no work has used. */
static void give_back(const gml_elastic *of, size_t first, size_t end) {
    for (size_t i = end; i > first; i--) {
        gml_block *block = of->blocks[i - 1];
        block->owner->ops->free(block->owner, block);
    }
}

/* The chunks of [first, end) are live blocks from here on. pre: the table has room. */
static void begin_blocks(gml_lake *lake, const gml_elastic *of, size_t first, size_t end) {
    for (size_t i = first; i < end; i++) {
        gml_block *block = of->blocks[i];
        block->id = lake->next_id++;
        (void)gml_map_insert(&lake->blocks, block->address, block);
        gml_lake_count_allocation(lake, block);
        block->is_elastic = true;
        gml_history_add(&lake->history, GML_REQUEST_ALLOC, block->id, block->address,
                        block->requested_bytes, of->stream);
    }
}

/* Whether mappings may change now: not while a graph is captured. */
static gml_status check_capture(gml_lake *lake) {
    return gml_driver_is_frozen(lake->driver)
               ? gml_driver_fail(lake->driver, GML_UNSUPPORTED,
                                 "an elastic buffer cannot grow while a graph is being captured")
               : GML_OK;
}

/* All of it or nothing. */
static gml_status grow_to(gml_lake *lake, gml_elastic *of, size_t end, bool may_trim) {
    gml_status status = check_capture(lake);
    if (status == GML_OK && gml_map_reserve(&lake->blocks, end - of->count) != GML_OK) {
        status = gml_driver_fail(lake->driver, GML_NO_HOST_MEMORY,
                                 "the table of live blocks cannot grow");
    }
    size_t taken = of->count;
    while (taken < end && status == GML_OK) {
        status = take_chunk(lake, of, taken, end, &may_trim);
        taken += status == GML_OK;
    }
    if (status == GML_OK) {
        status = map_places(lake, of, of->count, end);
    }
    if (status == GML_OK) {
        status = begin_uses(lake, of, of->count, end);
    }
    if (status != GML_OK) {
        end_uses(lake, of, of->count, taken);
        give_back(of, of->count, taken);
    } else {
        begin_blocks(lake, of, of->count, end);
        of->count = end;
    }
    gml_lake_note_reserved(lake);
    return status;
}

/* To `end`, and to `wished` if that needs no trimming. is_final: a lack of memory is a refusal. */
static gml_status grow(gml_lake *lake, gml_elastic *of, size_t end, size_t wished, bool is_final) {
    lake->driver->tried = 0;
    gml_status status = grow_to(lake, of, wished, wished == end);
    if (status == GML_OUT_OF_MEMORY && wished > end) {
        status = grow_to(lake, of, end, true);
    }
    if (status == GML_OUT_OF_MEMORY && is_final && gml_device_spare(lake->driver->device)) {
        gml_device_spend(lake->driver->device, 1);
        status = grow_to(lake, of, end, true);
        gml_device_spend(lake->driver->device, -1);
    }
    if (status == GML_OUT_OF_MEMORY) {
        gml_driver_note(lake->driver, GML_TRIED_IDLE);
        gml_note_all_tried(lake->driver->tried);
    }
    if (status == GML_OUT_OF_MEMORY && is_final) {
        gml_lake_refuse_locked(lake, NULL, (end - of->count) * of->chunk_bytes, of->stream);
    } else if (status == GML_OK) {
        (void)gml_take_tried();
    }
    return status;
}

static void shrink(gml_lake *lake, gml_elastic *of, size_t end) {
    end_uses(lake, of, end, of->count);
    note_idle(lake, of);
    while (of->count > end) {
        of->count--;
        of->blocks[of->count]->is_elastic = false;
        (void)gml_lake_free_locked(lake, of->blocks[of->count]->address);
    }
}

/* ---- the interface --------------------------------------------------------------------------- */

/* A buffer without memory; NULL, and *status says why. */
static gml_elastic *make(gml_lake *lake, uint64_t size_bytes, gml_stream stream,
                         gml_status *status) {
    uint64_t chunk_bytes = lake->policy->chunk_bytes;
    size_t places = (size_t)gml_divide_up(size_bytes, chunk_bytes);
    gml_elastic *of = calloc(1, sizeof *of);
    if (of) {
        *of = (gml_elastic){
            .chunk_bytes = chunk_bytes,
            .size_bytes = places * chunk_bytes,
            .stream = stream,
            .blocks = calloc(places, sizeof(gml_block *)),
            .bases = calloc(places, sizeof(gml_address)),
            .handles = calloc(places, sizeof(gml_handle)),
        };
    }
    *status = of && of->blocks && of->bases && of->handles
                  ? gml_driver_reserve(lake->driver, of->size_bytes, 0, &of->address)
                  : gml_driver_fail(lake->driver, GML_NO_HOST_MEMORY,
                                    "no host memory for an elastic buffer of %zu chunks", places);
    if (*status != GML_OK && of) {
        release(of);
        of = NULL;
    }
    return of;
}

/* The open buffer that begins at `address`, or NULL with a reason. */
static gml_elastic *find(gml_lake *lake, gml_address address) {
    gml_elastic *of = address ? gml_map_find(&lake->elastics, address) : NULL;
    if (!of || of->is_over) {
        (void)gml_driver_fail(lake->driver, GML_UNKNOWN_ADDRESS,
                              "no elastic buffer begins at 0x%" PRIx64, address);
        return NULL;
    }
    return of;
}

static gml_status open_locked(gml_lake *lake, uint64_t size_bytes, gml_stream stream,
                              gml_address *out) {
    gml_driver *driver = lake->driver;
    if (!lake->policy->chunk_bytes) {
        return gml_driver_fail(
            driver, GML_UNSUPPORTED,
            "elastic buffers need the policy stitch, or one around it, without an arena");
    }
    if (!size_bytes || size_bytes > GML_LARGEST_REQUEST || stream == UINT64_MAX) {
        return gml_driver_fail(driver, GML_INVALID_ARGUMENT,
                               "an elastic buffer has 1 to 2^48 bytes, not %" PRIu64
                               ", and a stream that exists",
                               size_bytes);
    }
    (void)gml_elastics_end_closed(lake); /* what fails is tried again at the next chance */
    gml_status status = gml_map_reserve(&lake->elastics, 1);
    if (status != GML_OK) {
        return gml_driver_fail(driver, status, "the table of elastic buffers cannot grow");
    }
    gml_elastic *of = make(lake, size_bytes, stream, &status);
    if (!of) {
        return status;
    }
    (void)gml_map_insert(&lake->elastics, of->address, of);
    gml_list_append(&lake->elastic_list, &of->all);
    *out = of->address;
    return GML_OK;
}

gml_status gml_lake_open_elastic(gml_lake *lake, uint64_t size_bytes, gml_stream stream,
                                 gml_address *out) {
    pthread_mutex_lock(&lake->lock);
    gml_status status = open_locked(lake, size_bytes, stream, out);
    pthread_mutex_unlock(&lake->lock);
    return status;
}

static gml_status resize_locked(gml_lake *lake, gml_elastic *of, uint64_t size_bytes,
                                uint64_t ahead_bytes, bool is_final) {
    if (size_bytes > of->size_bytes) {
        return gml_driver_fail(
            lake->driver, GML_INVALID_ARGUMENT, "%s asked for of an elastic buffer of %s",
            gml_exact_size_of(size_bytes).text, gml_exact_size_of(of->size_bytes).text);
    }
    size_t end = (size_t)gml_divide_up(size_bytes, of->chunk_bytes);
    if (end < of->count) {
        shrink(lake, of, end);
    }
    if (end <= of->count) {
        return GML_OK;
    }
    if (gml_lake_sleeps(lake)) {
        return gml_driver_fail(lake->driver, GML_UNSUPPORTED,
                               "this memory is asleep: wake it before a buffer grows");
    }
    uint64_t most_bytes = of->size_bytes - size_bytes;
    uint64_t wished_bytes = size_bytes + (ahead_bytes < most_bytes ? ahead_bytes : most_bytes);
    return grow(lake, of, end, (size_t)gml_divide_up(wished_bytes, of->chunk_bytes), is_final);
}

static gml_status resize(gml_lake *lake, gml_address address, uint64_t size_bytes,
                         uint64_t ahead_bytes, bool is_final, uint64_t *memory_bytes) {
    pthread_mutex_lock(&lake->lock);
    gml_elastic *of = find(lake, address);
    gml_status status =
        of ? resize_locked(lake, of, size_bytes, ahead_bytes, is_final) : GML_UNKNOWN_ADDRESS;
    if (status == GML_OK) {
        *memory_bytes = of->count * of->chunk_bytes;
    }
    pthread_mutex_unlock(&lake->lock);
    gml_lake_tell(lake);
    return status;
}

gml_status gml_lake_resize_elastic(gml_lake *lake, gml_address address, uint64_t size_bytes,
                                   uint64_t ahead_bytes, uint64_t *memory_bytes) {
    return resize(lake, address, size_bytes, ahead_bytes, true, memory_bytes);
}

gml_status gml_lake_try_elastic(gml_lake *lake, gml_address address, uint64_t size_bytes,
                                uint64_t ahead_bytes, uint64_t *memory_bytes) {
    return resize(lake, address, size_bytes, ahead_bytes, false, memory_bytes);
}

gml_status gml_lake_close_elastic(gml_lake *lake, gml_address address) {
    pthread_mutex_lock(&lake->lock);
    gml_elastic *of = find(lake, address);
    if (of) {
        shrink(lake, of, 0);
        of->is_over = true;
        gml_list_remove(&of->all);
        gml_list_append(lake->elastic_list.next, &of->all); /* before the first */
        (void)gml_elastics_end_closed(lake);
    }
    pthread_mutex_unlock(&lake->lock);
    return of ? GML_OK : GML_UNKNOWN_ADDRESS;
}

gml_status gml_lake_elastic(gml_lake *lake, gml_address address, gml_elastic_info *out) {
    pthread_mutex_lock(&lake->lock);
    const gml_elastic *of = find(lake, address);
    if (of) {
        *out = (gml_elastic_info){
            .address = of->address,
            .size_bytes = of->size_bytes,
            .memory_bytes = of->count * of->chunk_bytes,
            .chunk_bytes = of->chunk_bytes,
        };
    }
    pthread_mutex_unlock(&lake->lock);
    return of ? GML_OK : GML_UNKNOWN_ADDRESS;
}

gml_status gml_lake_elastic_bytes(gml_lake *lake, gml_address address, void **out) {
    pthread_mutex_lock(&lake->lock);
    const gml_elastic *of = find(lake, address);
    gml_status status =
        of ? gml_driver_bytes(lake->driver, of->address, of->count * of->chunk_bytes, out)
           : GML_UNKNOWN_ADDRESS;
    pthread_mutex_unlock(&lake->lock);
    return status;
}

void gml_elastics_measure(const gml_lake *lake, uint64_t *out_chunks, uint64_t *out_bytes) {
    *out_chunks = *out_bytes = 0;
    for (gml_link *link = lake->elastic_list.next; link != &lake->elastic_list; link = link->next) {
        const gml_elastic *of = of_link(link);
        *out_chunks += of->count;
        *out_bytes += of->count * of->chunk_bytes;
    }
}

/* ---- invariants ------------------------------------------------------------------------------ */

/* Whether a place in use has the chunk of a live block, and whatever else is mapped is held. */
static bool is_right(gml_lake *lake, const gml_elastic *of, size_t place) {
    if (place < of->count) {
        gml_block *block = of->blocks[place];
        return gml_map_find(&lake->blocks, block->address) == block && is_in_place(lake, of, place);
    }
    gml_handle held = of->bases[place] ? chunk_at(lake, of->bases[place]) : 0;
    return !of->bases[place] || (held && (held == of->handles[place] || !of->handles[place]));
}

gml_status gml_elastics_check(gml_lake *lake) {
    for (gml_link *link = lake->elastic_list.next; link != &lake->elastic_list; link = link->next) {
        const gml_elastic *of = of_link(link);
        for (size_t i = 0; i < of->mapped_end; i++) {
            if (!is_right(lake, of, i)) {
                return gml_driver_fail(lake->driver, GML_CORRUPT,
                                       "chunk %zu of the elastic buffer at 0x%" PRIx64
                                       " is not live, not in its place, or gone",
                                       i, of->address);
            }
        }
    }
    return GML_OK;
}
