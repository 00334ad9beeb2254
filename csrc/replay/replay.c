/* A recorded trace run through a lake: ids become addresses. */
#include "base/clock.h"
#include "base/map.h"
#include "base/room.h"
#include "gmlake_replay.h"
#include "lake/lake.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The allocation of an id between its alloc and its free. */
enum { ADDRESS_NONE = 0, ADDRESS_REFUSED = 1, ADDRESS_EMPTY = 2 };

struct gml_replay {
    gml_lake *lake;
    gml_address *addresses; /* by id: an address, or one of the values above */
    uint64_t id_count;
    gml_address *late; /* to be freed when memory runs out, or else after the next allocation */
    size_t late_count, late_room;
    gml_map pools; /* in use, by number; the values mean nothing */
    bool follows_segments;
    void (*lake_finish)(void *); /* the lake's own gml_policy.finish_frees, while ours is set */
    void *lake_context;
};

gml_status gml_replay_open(gml_lake *lake, uint64_t id_count, gml_replay **out) {
    if (id_count > SIZE_MAX / sizeof(gml_address)) {
        return GML_INVALID_ARGUMENT;
    }
    gml_replay *replay = calloc(1, sizeof *replay);
    gml_address *addresses = calloc(id_count ? id_count : 1, sizeof *addresses);
    if (!replay || !addresses) {
        free(replay);
        free(addresses);
        return GML_NO_HOST_MEMORY;
    }
    replay->lake = lake;
    replay->addresses = addresses;
    replay->id_count = id_count;
    *out = replay;
    return GML_OK;
}

void gml_replay_close(gml_replay *replay) {
    if (replay) {
        gml_map_clear(&replay->pools);
        free(replay->late);
        free(replay->addresses);
        free(replay);
    }
}

static gml_status corrupt(gml_replay *replay, const gml_request *request, const char *what) {
    return gml_lake_fail(replay->lake, GML_CORRUPT, "%s (id %" PRIu64 ")", what, request->id);
}

/* ---- frees that wait for other streams ------------------------------------------------------- */

static gml_status free_late(gml_replay *replay, gml_address address) {
    if (!gml_make_room(&replay->late, &replay->late_room, replay->late_count + 1,
                       sizeof *replay->late)) {
        return GML_NO_HOST_MEMORY;
    }
    replay->late[replay->late_count++] = address;
    return GML_OK;
}

/* pre: the lake's lock is held. The addresses are of live blocks, so nothing can fail. */
static void free_all_late(gml_replay *replay) {
    for (size_t i = 0; i < replay->late_count; i++) {
        (void)gml_lake_free_locked(replay->lake, replay->late[i]);
    }
    replay->late_count = 0;
}

static void finish_frees(void *context) {
    gml_replay *replay = context;
    free_all_late(replay);
    if (replay->lake_finish) {
        replay->lake_finish(replay->lake_context);
    }
}

/* From here on the policy waits for the late frees too, where it waits at all. */
static gml_status begin_late(gml_policy *policy, void *context) {
    gml_replay *replay = context;
    replay->lake_finish = policy->finish_frees;
    replay->lake_context = policy->finish_context;
    policy->finish_frees = finish_frees;
    policy->finish_context = replay;
    return GML_OK;
}

static gml_status end_late(gml_policy *policy, void *context) {
    gml_replay *replay = context;
    free_all_late(replay);
    policy->finish_frees = replay->lake_finish;
    policy->finish_context = replay->lake_context;
    return GML_OK;
}

/* ---- private pools --------------------------------------------------------------------------- */

static gml_pool_id pool_of(uint32_t number) {
    return (gml_pool_id){.second = number};
}

/* PyTorch keeps the memory of a pool until its last use ends, and so does a lake where a graph was
 * captured in it. */
static gml_status use_pool(gml_replay *replay, uint32_t number) {
    if (gml_map_find(&replay->pools, number)) {
        return GML_OK;
    }
    gml_status status = gml_map_reserve(&replay->pools, 1);
    if (status == GML_OK) {
        status = gml_lake_begin_pool(replay->lake, pool_of(number));
    }
    if (status == GML_OK) {
        (void)gml_map_insert(&replay->pools, number, replay);
        status = gml_lake_end_pool(replay->lake, pool_of(number));
    }
    return status;
}

/* Memory that is live stays, and the next request of the pool uses it anew. */
static gml_status end_pool(gml_replay *replay, uint32_t number) {
    return gml_map_take(&replay->pools, number)
               ? gml_lake_release_pool(replay->lake, pool_of(number))
               : GML_OK;
}

/* ---- one request ----------------------------------------------------------------------------- */

static gml_status ask(gml_replay *replay, const gml_request *request, gml_address *out) {
    if (!request->pool) {
        return gml_lake_allocate(replay->lake, request->size_bytes, request->stream, out);
    }
    gml_status status = use_pool(replay, request->pool);
    return status == GML_OK ? gml_lake_allocate_in(replay->lake, pool_of(request->pool),
                                                   request->size_bytes, request->stream, out)
                            : status;
}

static gml_status allocate(gml_replay *replay, const gml_request *request, gml_address *out) {
    bool has_late = replay->late_count > 0;
    if (has_late) {
        (void)gml_lake_with_policy(replay->lake, begin_late, replay);
    }
    gml_status status = ask(replay, request, out);
    if (has_late) {
        (void)gml_lake_with_policy(replay->lake, end_late, replay);
    }
    return status;
}

static gml_status replay_alloc(gml_replay *replay, const gml_request *request,
                               gml_replay_result *result) {
    gml_address *slot = &replay->addresses[request->id];
    if (*slot != ADDRESS_NONE) {
        return corrupt(replay, request, "allocated while it is live");
    }
    gml_address address = 0;
    gml_status status = allocate(replay, request, &address);
    result->allocations++;
    if (status == GML_OUT_OF_MEMORY) {
        *slot = ADDRESS_REFUSED;
        result->first_refused = result->refused++ ? result->first_refused : request->id;
        return GML_OK;
    }
    if (status == GML_OK) {
        *slot = address ? address : ADDRESS_EMPTY;
    }
    return status;
}

static gml_status replay_free(gml_replay *replay, const gml_request *request) {
    gml_address *slot = &replay->addresses[request->id];
    gml_address address = *slot;
    if (address == ADDRESS_NONE) {
        return corrupt(replay, request, "freed while it is not live");
    }
    *slot = ADDRESS_NONE;
    if (address <= ADDRESS_EMPTY) {
        return GML_OK;
    }
    return request->pool == GML_REQUEST_LATE ? free_late(replay, address)
                                             : gml_lake_free(replay->lake, address);
}

static gml_status replay_let_go(gml_replay *replay, const gml_request *request) {
    gml_address address = replay->addresses[request->id];
    if (address > ADDRESS_EMPTY) {
        gml_lake_let_go(replay->lake, address);
    }
    return GML_OK;
}

static bool has_id(const gml_request *request) {
    return request->kind == GML_REQUEST_ALLOC || request->kind == GML_REQUEST_FREE ||
           request->kind == GML_REQUEST_FREE_REQUESTED;
}

static gml_status expect_segment(gml_policy *policy, void *context) {
    const gml_request *request = context;
    return gml_driver_expect_malloc(policy->driver, request->address, request->size_bytes);
}

static gml_status replay_segment(gml_replay *replay, const gml_request *request) {
    gml_request segment = *request;
    return replay->follows_segments ? gml_lake_with_policy(replay->lake, expect_segment, &segment)
                                    : GML_OK;
}

static gml_status replay_one(gml_replay *replay, const gml_request *request,
                             gml_replay_result *result) {
    if (has_id(request) && request->id >= replay->id_count) {
        return corrupt(replay, request, "an id that was not announced");
    }
    switch ((gml_request_kind)request->kind) {
    case GML_REQUEST_ALLOC:
        return replay_alloc(replay, request, result);
    case GML_REQUEST_FREE:
        return replay_free(replay, request);
    case GML_REQUEST_TRIM:
        return request->pool ? end_pool(replay, request->pool) : gml_lake_trim(replay->lake, NULL);
    case GML_REQUEST_SEGMENT_ALLOC:
        return replay_segment(replay, request);
    case GML_REQUEST_FREE_REQUESTED:
        return replay_let_go(replay, request);
    case GML_REQUEST_SEGMENT_FREE:
    case GML_REQUEST_OOM:
        return GML_OK;
    case GML_REQUEST_MARK:
        return gml_lake_mark(replay->lake);
    case GML_REQUEST_KIND_COUNT:
    default:
        return corrupt(replay, request, "an event of unknown kind");
    }
}

gml_status gml_replay_run(gml_replay *replay, const gml_request *requests, size_t count,
                          gml_address *addresses, gml_replay_result *result) {
    *result = (gml_replay_result){.first_refused = UINT64_MAX};
    gml_status status = GML_OK;
    uint64_t begin_ns = gml_clock_ns();
    for (size_t i = 0; i < count && status == GML_OK; i++) {
        status = replay_one(replay, &requests[i], result);
        if (addresses) {
            bool is_alloc = requests[i].kind == GML_REQUEST_ALLOC && status == GML_OK;
            gml_address address = is_alloc ? replay->addresses[requests[i].id] : 0;
            addresses[i] = address > ADDRESS_EMPTY ? address : 0;
        }
        result->events += status == GML_OK;
    }
    result->seconds_ns = gml_clock_ns() - begin_ns;
    gml_stats stats;
    (void)gml_lake_stats(replay->lake, &stats);
    result->peak_live_bytes = stats.peak_live_bytes;
    result->peak_reserved_bytes = stats.peak_reserved_bytes;
    return status;
}

static gml_status check_addresses(gml_policy *policy, void *context) {
    (void)context;
    gml_driver *driver = policy->driver;
    return driver->ops->expect_malloc
               ? GML_OK
               : gml_driver_fail(driver, GML_UNSUPPORTED, "the driver %s chooses its own addresses",
                                 driver->ops->name);
}

gml_status gml_replay_follow_segments(gml_replay *replay) {
    gml_status status = gml_lake_with_policy(replay->lake, check_addresses, NULL);
    replay->follows_segments = status == GML_OK;
    return status;
}
