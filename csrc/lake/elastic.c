/* Elastic buffers: reserved addresses whose memory is made up of chunks of the lake's policy.
 *
 * A chunk in use is a live block of the policy's, mapped at its place in the buffer as well.
 * Shrinking frees the blocks, and the mappings stay, idle: where the buffer grows again and gets
 * the same chunks, no call is made. An idle mapping goes when its place shall have another chunk,
 * and before any memory goes back to the device.
 */
#include "lake/elastic.h"

#include "base/rounding.h"
#include "base/status.h"
#include "gmlake_elastic.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- growing and shrinking ------------------------------------------------------------------- */

/* Takes a chunk for a place from the policy. Before memory is refused all that is idle in the lake
 * goes back to the device, once, where *may_trim. */
static gml_status
take_chunk(gml_lake *lake, gml_elastic *of, size_t place, size_t end, bool *may_trim)
{
    gml_policy *policy = lake->policy;
    gml_block *block = NULL;
    uint64_t missing_bytes = (end - place) * of->chunk_bytes, released_bytes = 0;
    gml_status status =
        policy->ops->take_chunk(policy, of->homes[place], missing_bytes, of->stream, &block);
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

/* The chunks of [first, end) have served nobody. */
static void
give_back(const gml_elastic *of, size_t first, size_t end)
{
    for (size_t i = end; i > first; i--) {
        gml_block *block = of->blocks[i - 1];
        block->owner->ops->free(block->owner, block);
    }
}

/* The chunks of [first, end) are live blocks from here on. pre: the table has room. */
static void
begin_blocks(gml_lake *lake, const gml_elastic *of, size_t first, size_t end)
{
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
static gml_status
check_capture(gml_lake *lake, const gml_elastic *of)
{
    bool is_capturing = gml_driver_is_frozen(lake->driver);
    gml_status status = is_capturing
                            ? GML_OK
                            : gml_driver_stream_capturing(lake->driver, of->stream, &is_capturing);
    return status == GML_OK && is_capturing
               ? gml_driver_fail(lake->driver, GML_UNSUPPORTED,
                                 "an elastic buffer cannot grow while a graph is being captured")
               : status;
}

/* All of it or nothing. */
static gml_status
grow_to(gml_lake *lake, gml_elastic *of, size_t end, bool may_trim)
{
    gml_status status = check_capture(lake, of);
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
        status = gml_elastic_map(lake, of, of->count, end);
    }
    if (status == GML_OK) {
        status = gml_elastic_begin_uses(lake, of, of->count, end);
    }
    if (status != GML_OK) {
        gml_elastic_end_uses(lake, of, of->count, taken);
        give_back(of, of->count, taken);
    } else {
        begin_blocks(lake, of, of->count, end);
        of->count = end;
    }
    gml_lake_note_reserved(lake);
    return status;
}

/* To `end`, and to `wished` where that needs nothing from others. */
static gml_status
grow(gml_lake *lake, gml_elastic *of, size_t end, size_t wished)
{
    gml_status status = grow_to(lake, of, wished, wished == end);
    if (status == GML_OUT_OF_MEMORY && wished > end) {
        status = grow_to(lake, of, end, true);
    }
    if (status == GML_OUT_OF_MEMORY) {
        uint64_t asked_bytes = (end - of->count) * of->chunk_bytes;
        gml_lake_explain_refusal(lake, asked_bytes);
        gml_history_add(&lake->history, GML_REQUEST_OOM, 0, 0, asked_bytes, of->stream);
    }
    return status;
}

static void
shrink(gml_lake *lake, gml_elastic *of, size_t end)
{
    gml_elastic_end_uses(lake, of, end, of->count);
    gml_elastic_note_idle(lake, of);
    while (of->count > end) {
        of->count--;
        of->blocks[of->count]->is_elastic = false;
        (void)gml_lake_free_locked(lake, of->blocks[of->count]->address);
    }
}

/* ---- the interface --------------------------------------------------------------------------- */

/* A buffer without memory; NULL, and *status says why. */
static gml_elastic *
make(gml_lake *lake, uint64_t size_bytes, gml_stream stream, gml_status *status)
{
    uint64_t chunk_bytes = lake->policy->chunk_bytes;
    size_t places = (size_t)gml_divide_up(size_bytes, chunk_bytes);
    gml_elastic *of = calloc(1, sizeof *of);
    if (of) {
        *of = (gml_elastic){
            .chunk_bytes = chunk_bytes,
            .size_bytes = places * chunk_bytes,
            .stream = stream,
            .blocks = calloc(places, sizeof(gml_block *)),
            .homes = calloc(places, sizeof(gml_address)),
            .handles = calloc(places, sizeof(gml_handle)),
        };
    }
    *status = of && of->blocks && of->homes && of->handles
                  ? gml_driver_reserve(lake->driver, of->size_bytes, 0, &of->address)
                  : gml_driver_fail(lake->driver, GML_NO_HOST_MEMORY,
                                    "no host memory for an elastic buffer of %zu chunks", places);
    if (*status != GML_OK && of) {
        gml_elastic_release(of);
        of = NULL;
    }
    return of;
}

/* The open buffer that begins at `address`, or NULL with a reason. */
static gml_elastic *
find(gml_lake *lake, gml_address address)
{
    gml_elastic *of = address ? gml_map_find(&lake->elastics, address) : NULL;
    if (!of || of->is_over) {
        (void)gml_driver_fail(lake->driver, GML_UNKNOWN_ADDRESS,
                              "no elastic buffer begins at 0x%" PRIx64, address);
        return NULL;
    }
    return of;
}

static gml_status
open_locked(gml_lake *lake, uint64_t size_bytes, gml_stream stream, gml_address *out)
{
    gml_driver *driver = lake->driver;
    if (!lake->policy->chunk_bytes) {
        return gml_driver_fail(driver, GML_UNSUPPORTED,
                               "elastic buffers need the policy stitch or plan, without an arena");
    }
    if (!size_bytes || size_bytes > GML_LARGEST_REQUEST || stream == UINT64_MAX) {
        return gml_driver_fail(driver, GML_INVALID_ARGUMENT,
                               "an elastic buffer has 1 to 2^48 bytes, not %" PRIu64
                               ", and a stream that exists",
                               size_bytes);
    }
    (void)gml_elastics_end_late(lake); /* what fails is tried again at the next chance */
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

gml_status
gml_lake_open_elastic(gml_lake *lake, uint64_t size_bytes, gml_stream stream, gml_address *out)
{
    pthread_mutex_lock(&lake->lock);
    gml_status status = open_locked(lake, size_bytes, stream, out);
    pthread_mutex_unlock(&lake->lock);
    return status;
}

static gml_status
resize_locked(gml_lake *lake, gml_elastic *of, uint64_t size_bytes, uint64_t ahead_bytes)
{
    if (size_bytes > of->size_bytes) {
        return gml_driver_fail(lake->driver, GML_INVALID_ARGUMENT,
                               "%" PRIu64 " bytes asked for of an elastic buffer of %" PRIu64,
                               size_bytes, of->size_bytes);
    }
    size_t end = (size_t)gml_divide_up(size_bytes, of->chunk_bytes);
    if (end < of->count) {
        shrink(lake, of, end);
    }
    if (end <= of->count) {
        return GML_OK;
    }
    if (lake->sleeper && gml_sleeper_is_asleep(lake->sleeper)) {
        return gml_driver_fail(lake->driver, GML_UNSUPPORTED,
                               "this memory is asleep: wake it before a buffer grows");
    }
    uint64_t most_bytes = of->size_bytes - size_bytes;
    uint64_t wished_bytes = size_bytes + (ahead_bytes < most_bytes ? ahead_bytes : most_bytes);
    return grow(lake, of, end, (size_t)gml_divide_up(wished_bytes, of->chunk_bytes));
}

gml_status
gml_lake_resize_elastic(gml_lake *lake, gml_address address, uint64_t size_bytes,
                        uint64_t ahead_bytes, uint64_t *memory_bytes)
{
    pthread_mutex_lock(&lake->lock);
    gml_elastic *of = find(lake, address);
    gml_status status = of ? resize_locked(lake, of, size_bytes, ahead_bytes) : GML_UNKNOWN_ADDRESS;
    if (status == GML_OK) {
        *memory_bytes = of->count * of->chunk_bytes;
    }
    gml_lake_show_request(lake, status);
    pthread_mutex_unlock(&lake->lock);
    return status;
}

gml_status
gml_lake_close_elastic(gml_lake *lake, gml_address address)
{
    pthread_mutex_lock(&lake->lock);
    gml_elastic *of = find(lake, address);
    if (of) {
        shrink(lake, of, 0);
        of->is_over = true;
        gml_list_remove(&of->all);
        gml_list_append(lake->elastic_list.next, &of->all); /* before the first */
        (void)gml_elastics_end_late(lake);
        gml_lake_show(lake);
    }
    pthread_mutex_unlock(&lake->lock);
    return of ? GML_OK : GML_UNKNOWN_ADDRESS;
}

gml_status
gml_lake_elastic(gml_lake *lake, gml_address address, gml_elastic_info *out)
{
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

gml_status
gml_lake_elastic_bytes(gml_lake *lake, gml_address address, void **out)
{
    pthread_mutex_lock(&lake->lock);
    const gml_elastic *of = find(lake, address);
    gml_status status =
        of ? gml_driver_bytes(lake->driver, of->address, of->count * of->chunk_bytes, out)
           : GML_UNKNOWN_ADDRESS;
    pthread_mutex_unlock(&lake->lock);
    return status;
}
