/* Pools by id, and the begins that have not ended. */
#include "lake/pools.h"

#include "base/mix.h"
#include "base/status.h"

#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

typedef struct pool {
    gml_link link; /* must be first; in gml_pools.all */
    gml_pool_id id;
    struct pool *next_alike; /* another pool whose id has the same key; or NULL */
    gml_policy *policy;
    gml_link begins;  /* begins of it that have not ended, the latest last */
    size_t use_count; /* begins not yet released; 0: idle memory may be released */
} pool;

typedef struct begin {
    gml_link link;    /* must be first; in gml_pools.begun */
    gml_link of_pool; /* in pool->begins */
    pool *pool;
    pthread_t thread;
} begin;

void
gml_pools_init(gml_pools *pools)
{
    *pools = (gml_pools){0};
    gml_list_init(&pools->all);
    gml_list_init(&pools->begun);
}

static begin *
begin_of_pool(gml_link *link)
{
    return (begin *)(void *)((char *)link - offsetof(begin, of_pool));
}

static bool
is_begun(const pool *seen)
{
    return !gml_list_is_empty(&seen->begins);
}

/* ---- by id ----------------------------------------------------------------------------------- */

/* In gml_pools.by_id; never 0. */
static uint64_t
key_of(gml_pool_id id)
{
    uint64_t key = gml_mix(gml_mix(id.first) + id.second);
    return key ? key : 1;
}

static bool
is_id(const pool *candidate, gml_pool_id id)
{
    return candidate->id.first == id.first && candidate->id.second == id.second;
}

static pool *
find_pool(const gml_pools *pools, gml_pool_id id)
{
    pool *candidate = gml_map_find(&pools->by_id, key_of(id));
    while (candidate && !is_id(candidate, id)) {
        candidate = candidate->next_alike;
    }
    return candidate;
}

/* pre: there is room for one more in the map. */
static void
add_by_id(gml_pools *pools, pool *added)
{
    uint64_t key = key_of(added->id);
    added->next_alike = gml_map_take(&pools->by_id, key);
    (void)gml_map_insert(&pools->by_id, key, added);
}

static void
remove_by_id(gml_pools *pools, pool *removed)
{
    uint64_t key = key_of(removed->id);
    pool *first = gml_map_take(&pools->by_id, key);
    pool **place = &first;
    while (*place != removed) {
        place = &(*place)->next_alike;
    }
    *place = removed->next_alike;
    if (first) { /* in the place that was just left */
        (void)gml_map_insert(&pools->by_id, key, first);
    }
}

/* ---- making and forgetting ------------------------------------------------------------------- */

/* A new pool, or NULL with the reason in *status and the driver. */
static pool *
add_pool(gml_pools *pools, gml_driver *driver, uint64_t capacity_bytes, const gml_knobs *knobs,
         gml_pool_id id, gml_status *status)
{
    pool *added = calloc(1, sizeof *added);
    if (!added || gml_map_reserve(&pools->by_id, 1) != GML_OK) {
        free(added);
        *status = gml_driver_fail(driver, GML_NO_HOST_MEMORY,
                                  "the host has no memory for a private pool");
        return NULL;
    }
    *status = gml_caching_policy.create(driver, capacity_bytes, knobs, &added->policy);
    if (*status != GML_OK) {
        free(added);
        return NULL;
    }
    added->id = id;
    gml_list_init(&added->begins);
    gml_list_append(&pools->all, &added->link);
    add_by_id(pools, added);
    return added;
}

/* Frees a pool with everything it holds. */
static gml_status
forget(gml_pools *pools, pool *forgotten)
{
    gml_status status = forgotten->policy->ops->destroy(forgotten->policy);
    remove_by_id(pools, forgotten);
    gml_list_remove(&forgotten->link);
    free(forgotten);
    return status;
}

void
gml_pools_end_all(gml_pools *pools, gml_driver *driver)
{
    for (gml_link *link = pools->begun.next, *next; link != &pools->begun; link = next) {
        next = link->next;
        (void)__atomic_sub_fetch(&driver->device->captures, 1, __ATOMIC_RELAXED);
        free(link);
    }
    gml_list_init(&pools->begun);
}

gml_status
gml_pools_close(gml_pools *pools)
{
    gml_status first = GML_OK;
    for (gml_link *link = pools->all.next, *next; link != &pools->all; link = next) {
        next = link->next;
        first = gml_first_failure(first, forget(pools, (pool *)link));
    }
    gml_map_clear(&pools->by_id);
    gml_pools_init(pools);
    return first;
}

/* ---- begin, end, release --------------------------------------------------------------------- */

gml_status
gml_pools_begin(gml_pools *pools, gml_driver *driver, uint64_t capacity_bytes,
                const gml_knobs *knobs, gml_pool_id id)
{
    begin *added = calloc(1, sizeof *added);
    if (!added) {
        return gml_driver_fail(driver, GML_NO_HOST_MEMORY,
                               "the host has no memory to begin a private pool");
    }
    gml_status status = GML_OK;
    pool *begun = find_pool(pools, id);
    if (!begun) {
        begun = add_pool(pools, driver, capacity_bytes, knobs, id, &status);
    }
    if (!begun) {
        free(added);
        return status;
    }
    if (!is_begun(begun)) {
        pools->closed_bytes -= begun->policy->reserved_bytes;
    }
    begun->use_count++;
    added->pool = begun;
    added->thread = pthread_self();
    gml_list_append(&pools->begun, &added->link);
    gml_list_append(&begun->begins, &added->of_pool);
    (void)__atomic_add_fetch(&driver->device->captures, 1, __ATOMIC_RELAXED);
    return GML_OK;
}

/* The latest begin of the pool by this thread, else by any; NULL: none. */
static begin *
latest_of_pool(pool *wanted)
{
    pthread_t thread = pthread_self();
    begin *latest = NULL;
    for (gml_link *link = wanted->begins.previous; link != &wanted->begins; link = link->previous) {
        begin *candidate = begin_of_pool(link);
        if (pthread_equal(candidate->thread, thread)) {
            return candidate;
        }
        latest = latest ? latest : candidate;
    }
    return latest;
}

gml_status
gml_pools_end(gml_pools *pools, gml_driver *driver, gml_pool_id id)
{
    pool *ended = find_pool(pools, id);
    begin *latest = ended ? latest_of_pool(ended) : NULL;
    if (!latest) {
        return gml_driver_fail(driver, GML_INVALID_ARGUMENT,
                               "the private pool (%" PRIu64 ", %" PRIu64 ") is not begun", id.first,
                               id.second);
    }
    gml_list_remove(&latest->link);
    gml_list_remove(&latest->of_pool);
    free(latest);
    if (!is_begun(ended)) {
        pools->closed_bytes += ended->policy->reserved_bytes;
    }
    (void)__atomic_sub_fetch(&driver->device->captures, 1, __ATOMIC_RELAXED);
    return GML_OK;
}

/* Releases the idle memory of a released pool, and frees the pool once it is empty. */
static gml_status
trim_pool(gml_pools *pools, pool *trimmed)
{
    gml_policy *policy = trimmed->policy;
    uint64_t released_bytes = 0;
    gml_status status = GML_OK;
    if (policy->reserved_bytes) {
        status = policy->ops->trim(policy, &released_bytes);
    }
    pools->closed_bytes -= released_bytes;
    if (policy->reserved_bytes == 0) {
        status = gml_first_failure(status, forget(pools, trimmed));
    }
    return status;
}

gml_status
gml_pools_trim(gml_pools *pools)
{
    gml_status first = GML_OK;
    for (gml_link *link = pools->all.next, *next; link != &pools->all; link = next) {
        next = link->next;
        pool *candidate = (pool *)link;
        if (candidate->use_count == 0 && !is_begun(candidate)) {
            first = gml_first_failure(first, trim_pool(pools, candidate));
        }
    }
    return first;
}

gml_status
gml_pools_release(gml_pools *pools, gml_driver *driver, gml_pool_id id)
{
    pool *released = find_pool(pools, id);
    if (!released || released->use_count == 0) {
        return gml_driver_fail(driver, GML_INVALID_ARGUMENT,
                               "the private pool (%" PRIu64 ", %" PRIu64 ") has no use to release",
                               id.first, id.second);
    }
    /* The use has ended whether or not the device takes its memory back now: a later trim will. */
    if (--released->use_count == 0 && !gml_driver_is_frozen(driver)) {
        (void)trim_pool(pools, released);
    }
    return GML_OK;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* The latest begin of this thread, else of any. pre: a pool is begun. */
static const begin *
latest_begin(const gml_pools *pools)
{
    pthread_t thread = pthread_self();
    for (const gml_link *link = pools->begun.previous; link != &pools->begun;
         link = link->previous) {
        const begin *candidate = (const begin *)link;
        if (pthread_equal(candidate->thread, thread)) {
            return candidate;
        }
    }
    return (const begin *)pools->begun.previous;
}

gml_status
gml_pools_find(gml_pools *pools, gml_driver *driver, gml_stream stream, gml_policy **out)
{
    bool is_capturing = false;
    gml_status status = GML_OK;
    if (!gml_list_is_empty(&pools->begun)) {
        status = gml_driver_stream_capturing(driver, stream, &is_capturing);
    }
    if (status == GML_OK) {
        *out = is_capturing ? latest_begin(pools)->pool->policy : NULL;
    }
    return status;
}

uint64_t
gml_pools_reserved(const gml_pools *pools)
{
    uint64_t reserved_bytes = pools->closed_bytes;
    for (const gml_link *link = pools->begun.next; link != &pools->begun; link = link->next) {
        const begin *seen = (const begin *)link;
        bool is_first = seen->pool->begins.next == &seen->of_pool; /* each pool counts once */
        reserved_bytes += is_first ? seen->pool->policy->reserved_bytes : 0;
    }
    return reserved_bytes;
}

void
gml_pools_each(const gml_pools *pools,
               void (*see)(void *context, gml_pool_id id, gml_policy *policy), void *context)
{
    for (gml_link *link = pools->all.next; link != &pools->all; link = link->next) {
        const pool *seen = (const pool *)link;
        see(context, seen->id, seen->policy);
    }
}
