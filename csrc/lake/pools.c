/* Pools by id, and the begins that have not ended. */
#include "lake/pools.h"

#include "base/mix.h"
#include "base/rounding.h"
#include "base/status.h"

#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

/* What one capture holds that takes turns. */
typedef struct graph {
    gml_link link; /* must be first; in pool->graphs */
    gml_heap heap;
    uint64_t number; /* no other graph of the process has it */
    bool is_open;    /* the capture goes on */
    bool has_failed; /* no graph came of it */
} graph;

typedef struct pool {
    gml_link link; /* must be first; in gml_pools.all */
    gml_pool_id id;
    struct pool *next_alike; /* another pool whose id has the same key; or NULL */
    gml_heap heap;
    gml_link graphs;    /* that take turns */
    gml_link begins;    /* begins of it that have not ended, the latest last */
    size_t use_count;   /* 0: idle memory may be released, and the pool goes when it is empty */
    uint64_t life;      /* see gml_pools_look_up() */
    size_t graph_count; /* captures begun, and states saved, since it was last without uses, less
                           failed captures */
    unsigned flags;     /* of gml_pool_flag */
    bool is_entered;    /* since it was last without uses: by threads that capture nothing, or its
                           state was saved */
} pool;

enum { TURN_CHUNK_BYTES = 2 << 20 }; /* of memory that takes turns, unless configured */

typedef struct begin {
    gml_link link;    /* must be first; in gml_pools.begun */
    gml_link of_pool; /* in pool->begins */
    pool *pool;
    pthread_t thread;
    bool is_capture;
    graph *graph; /* of a capture that takes turns, else NULL */
} begin;

void gml_pools_init(gml_pools *pools) {
    gml_list_init(&pools->all);
    gml_list_init(&pools->begun);
    gml_list_init(&pools->turns.all);
}

static begin *begin_of_pool(gml_link *link) {
    return (begin *)(void *)((char *)link - offsetof(begin, of_pool));
}

static bool is_begun(const pool *seen) {
    return !gml_list_is_empty(&seen->begins);
}

static bool is_in_use(const pool *seen) {
    return seen->use_count > 0 || is_begun(seen);
}

static gml_status refuse(const gml_pools *pools, gml_pool_id id, const char *text) {
    return gml_driver_fail(pools->driver, GML_INVALID_ARGUMENT,
                           "the private pool (%" PRIu64 ", %" PRIu64 ") %s", id.first, id.second,
                           text);
}

/* ---- by id ----------------------------------------------------------------------------------- */

/* In gml_pools.by_id; never 0. */
static uint64_t key_of(gml_pool_id id) {
    uint64_t key = gml_mix(gml_mix(id.first) + id.second);
    return key ? key : 1;
}

static bool is_id(const pool *candidate, gml_pool_id id) {
    return candidate->id.first == id.first && candidate->id.second == id.second;
}

static pool *find_pool(const gml_pools *pools, gml_pool_id id) {
    pool *candidate = gml_map_find(&pools->by_id, key_of(id));
    while (candidate && !is_id(candidate, id)) {
        candidate = candidate->next_alike;
    }
    return candidate;
}

/* pre: there is room for one more in the map. */
static void add_by_id(gml_pools *pools, pool *added) {
    uint64_t key = key_of(added->id);
    added->next_alike = gml_map_take(&pools->by_id, key);
    (void)gml_map_insert(&pools->by_id, key, added);
}

static void remove_by_id(gml_pools *pools, pool *removed) {
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

/* A heap that takes turns has a driver of its own, whose reasons are passed on. */
static void pass_reason(gml_pools *pools, gml_status status, const gml_driver *from) {
    if (status != GML_OK && from != pools->driver) {
        gml_driver_take_reason(pools->driver, from);
    }
}

/* ---- making and forgetting ------------------------------------------------------------------- */

static uint64_t next_life(void) {
    static uint64_t lives;
    return __atomic_add_fetch(&lives, 1, __ATOMIC_RELAXED);
}

/* A new pool, or NULL with the reason in the driver. */
static pool *add_pool(gml_pools *pools, gml_pool_id id) {
    pool *added = calloc(1, sizeof *added);
    if (!added || gml_map_reserve(&pools->by_id, 1) != GML_OK) {
        free(added);
        (void)gml_driver_fail(pools->driver, GML_NO_HOST_MEMORY,
                              "the host has no memory for a private pool");
        return NULL;
    }
    added->id = id;
    added->life = next_life();
    gml_list_init(&added->graphs);
    gml_list_init(&added->begins);
    gml_list_append(&pools->all, &added->link);
    add_by_id(pools, added);
    return added;
}

/* Gives the memory of a heap back, live blocks included. */
static gml_status close_heap(gml_pools *pools, gml_heap *heap) {
    gml_status status = GML_OK;
    if (heap->policy) {
        gml_driver *driver = heap->policy->driver;
        status = heap->policy->ops->destroy(heap->policy);
        if (driver != pools->driver) {
            pass_reason(pools, status, driver);
            gml_driver_close(driver);
        }
    }
    if (heap->turn) {
        gml_turn_leave(heap->turn);
    }
    pools->reserved_bytes -= heap->counted_bytes;
    return status;
}

static gml_status forget_graph(gml_pools *pools, graph *forgotten) {
    gml_status status = close_heap(pools, &forgotten->heap);
    gml_list_remove(&forgotten->link);
    free(forgotten);
    return status;
}

/* Frees a pool with everything it holds. */
static gml_status forget(gml_pools *pools, pool *forgotten) {
    gml_status status = GML_OK;
    for (gml_link *link = forgotten->graphs.next, *next; link != &forgotten->graphs; link = next) {
        next = link->next;
        status = gml_first_failure(status, forget_graph(pools, (graph *)link));
    }
    status = gml_first_failure(status, close_heap(pools, &forgotten->heap));
    remove_by_id(pools, forgotten);
    gml_list_remove(&forgotten->link);
    free(forgotten);
    return status;
}

/* The same for one that nobody uses, if it never served: no driver call is needed. */
static void forget_unused(gml_pools *pools, pool *candidate) {
    if (!is_in_use(candidate) && !candidate->heap.policy && gml_list_is_empty(&candidate->graphs)) {
        (void)forget(pools, candidate);
    }
}

void gml_pools_end_all(gml_pools *pools) {
    for (gml_link *link = pools->begun.next, *next; link != &pools->begun; link = next) {
        next = link->next;
        const begin *ended = (const begin *)link;
        (void)__atomic_sub_fetch(&pools->driver->device->captures, ended->is_capture,
                                 __ATOMIC_RELAXED);
        free(link);
    }
    gml_list_init(&pools->begun);
}

gml_status gml_pools_close(gml_pools *pools) {
    gml_status first = GML_OK;
    for (gml_link *link = pools->all.next, *next; link != &pools->all; link = next) {
        next = link->next;
        first = gml_first_failure(first, forget(pools, (pool *)link));
    }
    gml_map_clear(&pools->by_id);
    gml_turns_close(&pools->turns);
    gml_pools_init(pools);
    return first;
}

/* ---- heaps ----------------------------------------------------------------------------------- */

static void keep_heap(gml_heap *heap, bool is_kept) {
    gml_policy *policy = heap->policy;
    if (policy) {
        policy->awaits_device |= policy->is_kept;
        policy->is_kept = is_kept;
    }
}

/* Tells the heaps whether graphs use them. */
static void follow_graphs(pool *of) {
    bool is_kept = of->graph_count > 0;
    keep_heap(&of->heap, is_kept);
    if (of->heap.policy) {
        of->heap.policy->holds_results = is_kept && of->is_entered;
    }
    for (gml_link *link = of->graphs.next; link != &of->graphs; link = link->next) {
        graph *told = (graph *)link;
        keep_heap(&told->heap, is_kept && !told->has_failed);
    }
}

/* The chunks of graphs that take turns have one size: each can lie where another one lies. */
static gml_status make_turn_policy(gml_pools *pools, gml_heap *heap) {
    gml_driver *driver;
    gml_status status = gml_common_open(&heap->turn->common, &driver);
    if (status != GML_OK) {
        return status;
    }
    gml_knobs knobs = *pools->knobs;
    if (!knobs.chunk_size) {
        knobs.chunk_size = gml_round_up(TURN_CHUNK_BYTES, driver->info.granularity_bytes);
    }
    status = pools->ops->create_private(driver, pools->capacity_bytes, &knobs, &heap->policy);
    if (status != GML_OK) {
        pass_reason(pools, status, driver);
        gml_driver_close(driver);
    }
    return status;
}

/* Blocks of a pool that are served whole are those of PyTorch, which never split them either. One
 * allocation in place of virtual memory has no room for a second range of addresses. */
static gml_status make_policy(gml_pools *pools, const pool *of, gml_heap *heap) {
    bool is_whole = of->flags & GML_POOL_IS_WHOLE;
    gml_knobs knobs = *pools->knobs;
    knobs.is_whole = is_whole;
    const gml_policy_ops *ops =
        is_whole || pools->driver->arena_bytes ? &gml_caching_policy : pools->ops;
    gml_status (*create)(gml_driver *, uint64_t, const gml_knobs *, gml_policy **) =
        ops->create_private ? ops->create_private : ops->create;
    return create(pools->driver, pools->capacity_bytes, &knobs, &heap->policy);
}

/* Whether a pool is out of use and all that its heap holds is idle: another may have it. */
static bool is_parked(const pool *candidate) {
    gml_policy *policy = candidate->heap.policy;
    return policy && policy->ops->idle_bytes && !is_in_use(candidate) && !policy->is_kept &&
           !policy->awaits_device && gml_list_is_empty(&candidate->graphs) &&
           policy->reserved_bytes && policy->ops->idle_bytes(policy) == policy->reserved_bytes;
}

/* Takes the heap of a pool that was dropped; false: none is parked. A graph may run where the work
 * of the other pool has not ended, so a capture gets none. */
static bool take_parked(gml_pools *pools, const pool *of, gml_heap *out) {
    bool may_take = pools->has_parked && !gml_driver_is_frozen(pools->driver);
    for (gml_link *link = pools->all.next; link != &pools->all && may_take; link = link->next) {
        pool *candidate = (pool *)link;
        bool is_alike = !((candidate->flags ^ of->flags) & GML_POOL_IS_WHOLE);
        if (is_alike && is_parked(candidate)) {
            *out = candidate->heap;
            candidate->heap = (gml_heap){0};
            (void)forget(pools, candidate);
            return true;
        }
    }
    return false;
}

/* Makes the policy of a heap of the pool, if need be. */
static gml_status use_heap(gml_pools *pools, pool *of, gml_heap *heap, gml_heap **out) {
    if (!heap->policy) {
        gml_status status = GML_OK;
        if (heap->turn) {
            status = make_turn_policy(pools, heap);
        } else if (!take_parked(pools, of, heap)) {
            status = make_policy(pools, of, heap);
        }
        if (status != GML_OK) {
            return status;
        }
        heap->policy->pool = of->id;
        heap->policy->finish_frees = pools->finish_frees;
        heap->policy->finish_context = pools->finish_context;
        follow_graphs(of);
    }
    *out = heap;
    return GML_OK;
}

/* ---- uses ------------------------------------------------------------------------------------ */

/* The pool, made if need be, with one use more; NULL with a reason in the driver. */
static pool *hold(gml_pools *pools, gml_pool_id id) {
    pool *held = find_pool(pools, id);
    held = held ? held : add_pool(pools, id);
    if (held) {
        held->use_count++;
    }
    return held;
}

gml_status gml_pools_hold(gml_pools *pools, gml_pool_id id) {
    return hold(pools, id) ? GML_OK : GML_NO_HOST_MEMORY;
}

static void end_use(pool *used) {
    if (--used->use_count == 0) {
        used->life = next_life();
        used->graph_count = 0;
        used->is_entered = false;
        follow_graphs(used);
    }
}

/* Whether captures in the pool can take turns. Where threads work in it without a capture, or it is
 * put back into earlier states, its graphs share their memory by the rules of who does that. */
static bool may_take_turns(const gml_pools *pools, const pool *candidate) {
    return pools->ops->live_chunks && !pools->driver->arena_bytes &&
           !(candidate->flags & GML_POOL_IS_WHOLE) && !candidate->is_entered;
}

/* *out is NULL where the captures of the pool take no turns. */
static gml_status begin_graph(gml_pools *pools, pool *of, uint64_t turn, graph **out) {
    *out = NULL;
    if (!turn || !may_take_turns(pools, of)) {
        return GML_OK;
    }
    if (gml_driver_is_frozen(pools->driver)) {
        return gml_driver_fail(pools->driver, GML_UNSUPPORTED,
                               "graphs that take turns are captured one after the other, and "
                               "another capture is in progress on this device");
    }
    graph *begun = calloc(1, sizeof *begun);
    if (begun) {
        begun->heap.turn = gml_turn_join(&pools->turns, pools->driver, turn);
    }
    if (!begun || !begun->heap.turn) {
        free(begun);
        return gml_driver_fail(pools->driver, GML_NO_HOST_MEMORY,
                               "the host has no memory for graphs that take turns");
    }
    begun->number = next_life();
    begun->is_open = true;
    gml_list_append(&of->graphs, &begun->link);
    *out = begun;
    return GML_OK;
}

gml_status gml_pools_begin(gml_pools *pools, gml_pool_id id, bool is_capture, uint64_t turn) {
    begin *added = calloc(1, sizeof *added);
    if (!added) {
        return gml_driver_fail(pools->driver, GML_NO_HOST_MEMORY,
                               "the host has no memory to begin a private pool");
    }
    pool *begun = hold(pools, id);
    if (!begun) {
        free(added);
        return GML_NO_HOST_MEMORY;
    }
    *added = (begin){.pool = begun, .thread = pthread_self(), .is_capture = is_capture};
    gml_status status = begin_graph(pools, begun, is_capture ? turn : 0, &added->graph);
    if (status != GML_OK) {
        end_use(begun);
        forget_unused(pools, begun);
        free(added);
        return status;
    }
    begun->is_entered |= !is_capture;
    begun->graph_count += is_capture;
    follow_graphs(begun);
    gml_list_append(&pools->begun, &added->link);
    gml_list_append(&begun->begins, &added->of_pool);
    if (is_capture) {
        (void)__atomic_add_fetch(&pools->driver->device->captures, 1, __ATOMIC_RELAXED);
    }
    return GML_OK;
}

/* The latest begin of the pool by this thread, else by any; NULL: none. */
static begin *latest_of_pool(pool *wanted) {
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

/* Keeps what lives in the memory of the capture from its turn. */
static gml_status settle(gml_pools *pools, const graph *ended) {
    if (gml_driver_is_frozen(pools->driver)) {
        return gml_driver_fail(pools->driver, GML_UNSUPPORTED,
                               "graphs that take turns are captured one after the other, and "
                               "another capture has begun meanwhile on this device");
    }
    gml_status status = gml_turn_settle(ended->heap.policy);
    pass_reason(pools, status, ended->heap.policy->driver);
    return status;
}

static _Thread_local uint64_t last_graph; /* see gml_last_graph() */

uint64_t gml_last_graph(void) {
    return last_graph;
}

/* Blocks of a failed capture may live on, so it settles too, where that is possible. */
static gml_status end_graph(gml_pools *pools, graph *ended) {
    gml_status status = GML_OK;
    ended->is_open = false;
    if (ended->heap.policy) {
        status = settle(pools, ended);
        ended->has_failed |= status != GML_OK;
        last_graph = ended->has_failed ? 0 : ended->number;
    } else {
        (void)forget_graph(pools, ended);
    }
    return status;
}

gml_status gml_pools_end(gml_pools *pools, gml_pool_id id, bool has_failed) {
    pool *ended = find_pool(pools, id);
    begin *latest = ended ? latest_of_pool(ended) : NULL;
    if (!latest) {
        return refuse(pools, id, "is not begun");
    }
    bool is_capture = latest->is_capture;
    graph *of = latest->graph;
    gml_list_remove(&latest->link);
    gml_list_remove(&latest->of_pool);
    free(latest);
    if (is_capture) {
        (void)__atomic_sub_fetch(&pools->driver->device->captures, 1, __ATOMIC_RELAXED);
    }
    gml_status status = GML_OK;
    last_graph = is_capture ? 0 : last_graph;
    if (of) {
        of->has_failed = has_failed;
        status = end_graph(pools, of);
    }
    if ((has_failed || status != GML_OK) && ended->use_count) {
        ended->graph_count -= is_capture && ended->graph_count;
        follow_graphs(ended);
        end_use(ended);
    }
    forget_unused(pools, ended);
    return has_failed ? GML_OK : status;
}

/* ---- giving memory back ---------------------------------------------------------------------- */

/* Releases the idle memory of a heap. pre: no graph uses it. */
static gml_status trim_heap(gml_pools *pools, gml_heap *heap) {
    gml_policy *policy = heap->policy;
    uint64_t released_bytes = 0;
    gml_status status = GML_OK;
    if (policy->reserved_bytes) {
        status = policy->ops->trim(policy, &released_bytes);
        pass_reason(pools, status, policy->driver);
        gml_pools_count(pools, heap);
    }
    return status;
}

/* The same for each graph's, which is freed once it is empty. */
static gml_status trim_graphs(gml_pools *pools, pool *trimmed) {
    gml_status first = GML_OK;
    for (gml_link *link = trimmed->graphs.next, *next; link != &trimmed->graphs; link = next) {
        next = link->next;
        graph *candidate = (graph *)link;
        gml_policy *policy = candidate->heap.policy;
        if (candidate->is_open || policy->is_kept) {
            continue;
        }
        first = gml_first_failure(first, trim_heap(pools, &candidate->heap));
        if (!policy->reserved_bytes) {
            first = gml_first_failure(first, forget_graph(pools, candidate));
        }
    }
    return first;
}

/* A pool that lives will be asked for small blocks again. */
#define SPARED_BYTES (UINT64_C(2) << 20)

static bool is_spared(const pool *candidate) {
    return is_begun(candidate) ||
           (candidate->use_count > 0 && candidate->heap.policy->reserved_bytes <= SPARED_BYTES);
}

/* Releases the idle memory of a pool, except what is spared, and frees the pool once it is empty
 * and unused. */
static gml_status trim_pool(gml_pools *pools, pool *trimmed, bool is_urgent) {
    gml_status status = trim_graphs(pools, trimmed);
    const gml_policy *policy = trimmed->heap.policy;
    if (policy && !policy->is_kept && (is_urgent || !is_spared(trimmed))) {
        status = gml_first_failure(status, trim_heap(pools, &trimmed->heap));
    }
    if (!trimmed->heap.counted_bytes && gml_list_is_empty(&trimmed->graphs) &&
        !is_in_use(trimmed)) {
        status = gml_first_failure(status, forget(pools, trimmed));
    }
    return status;
}

gml_status gml_pools_trim(gml_pools *pools, bool is_urgent) {
    gml_status first = GML_OK;
    for (gml_link *link = pools->all.next, *next; link != &pools->all; link = next) {
        next = link->next;
        first = gml_first_failure(first, trim_pool(pools, (pool *)link, is_urgent));
    }
    gml_turns_trim(&pools->turns);
    return first;
}

void gml_pools_unpark(gml_pools *pools, bool is_of_pool) {
    pools->drops = is_of_pool ? pools->drops : 0;
    if (!pools->has_parked || gml_driver_is_frozen(pools->driver)) {
        return;
    }
    pools->has_parked = false;
    for (gml_link *link = pools->all.next, *next; link != &pools->all; link = next) {
        next = link->next;
        if (is_parked((const pool *)link)) {
            (void)trim_pool(pools, (pool *)link, true);
        }
    }
}

uint64_t gml_pools_idle(const gml_pools *pools) {
    uint64_t sum_bytes = 0;
    for (const gml_link *link = pools->all.next; link != &pools->all; link = link->next) {
        gml_policy *policy = ((const pool *)link)->heap.policy;
        if (policy && policy->ops->idle_bytes && !is_spared((const pool *)link)) {
            sum_bytes += policy->ops->idle_bytes(policy);
        }
    }
    return sum_bytes;
}

gml_status gml_pools_release(gml_pools *pools, gml_pool_id id) {
    pool *released = find_pool(pools, id);
    if (!released || released->use_count == 0) {
        return refuse(pools, id, "has no use to release");
    }
    end_use(released);
    bool is_dropped = released->use_count == 0;
    pools->drops += is_dropped;
    /* The use has ended whether or not the device takes its memory back now: a later trim will. */
    pools->has_parked |= is_dropped && pools->drops > 1; /* now, or once its last block ends */
    if (pools->has_parked && is_parked(released)) {
        return GML_OK;
    }
    if (is_dropped && !gml_driver_is_frozen(pools->driver)) {
        (void)trim_pool(pools, released, true);
    } else {
        forget_unused(pools, released);
    }
    return GML_OK;
}

gml_status gml_pools_set(gml_pools *pools, gml_pool_id id, gml_pool_flag flag, bool is_set) {
    pool *changed = find_pool(pools, id);
    if (!changed || changed->use_count == 0) {
        return refuse(pools, id, "is not in use");
    }
    unsigned flags = is_set ? changed->flags | flag : changed->flags & ~(unsigned)flag;
    if (changed->heap.policy && (flags ^ changed->flags) & GML_POOL_IS_WHOLE) {
        return refuse(pools, id, "has served requests; whether blocks are split is set before");
    }
    changed->flags = flags;
    return GML_OK;
}

/* ---- who serves ------------------------------------------------------------------------------ */

/* While graphs are captured: whether one of them is on `stream`. */
static gml_status is_captured(const gml_pools *pools, gml_stream stream, bool *out) {
    *out = false;
    return gml_driver_is_frozen(pools->driver)
               ? gml_driver_stream_capturing(pools->driver, stream, out)
               : GML_OK;
}

/* The graph of the pool whose capture takes turns and goes on, or NULL. */
static graph *open_graph(const pool *seen) {
    graph *last = (graph *)seen->graphs.previous; /* no other can be open */
    return !gml_list_is_empty(&seen->graphs) && last->is_open ? last : NULL;
}

gml_status gml_pools_find(gml_pools *pools, gml_pool_id id, gml_stream stream, gml_heap **out) {
    pool *wanted = find_pool(pools, id);
    if (!wanted || !is_in_use(wanted)) {
        return refuse(pools, id, "is not in use");
    }
    gml_status status = GML_OK;
    bool is_of_graph = false;
    graph *open = open_graph(wanted);
    if (open || !wanted->graph_count) { /* a thread may enter a pool while its stream captures */
        status = is_captured(pools, stream, &is_of_graph);
    }
    if (status == GML_OK && is_of_graph && !open) {
        wanted->graph_count++;
        follow_graphs(wanted);
    }
    gml_heap *heap = open && is_of_graph ? &open->heap : &wanted->heap;
    return status == GML_OK ? use_heap(pools, wanted, heap, out) : status;
}

gml_status gml_pools_look_up(gml_pools *pools, gml_pool_id id, gml_heap **out, uint64_t *life) {
    pool *wanted = find_pool(pools, id);
    if (!wanted || wanted->use_count == 0) {
        return refuse(pools, id, "is not in use");
    }
    *life = wanted->life;
    return use_heap(pools, wanted, &wanted->heap, out);
}

gml_status gml_pools_look_up_again(gml_pools *pools, gml_pool_id id, uint64_t life,
                                   gml_heap **out) {
    pool *wanted = find_pool(pools, id);
    if (!wanted || wanted->life != life) {
        return refuse(pools, id, "was released since its state was saved");
    }
    return use_heap(pools, wanted, &wanted->heap, out);
}

void gml_pools_keep(gml_pools *pools, gml_pool_id id) {
    pool *kept = find_pool(pools, id);
    kept->graph_count++;
    kept->is_entered = true;
    follow_graphs(kept);
}

/* The latest capture begun by this thread, else by any; NULL: none is begun. */
static const begin *latest_capture(const gml_pools *pools) {
    pthread_t thread = pthread_self();
    const begin *latest = NULL;
    for (const gml_link *link = pools->begun.previous; link != &pools->begun;
         link = link->previous) {
        const begin *candidate = (const begin *)link;
        if (candidate->is_capture && pthread_equal(candidate->thread, thread)) {
            return candidate;
        }
        latest = candidate->is_capture && !latest ? candidate : latest;
    }
    return latest;
}

gml_status gml_pools_find_capture(gml_pools *pools, gml_stream stream, gml_heap **out) {
    *out = NULL;
    const begin *latest = latest_capture(pools);
    bool is_of_graph = false;
    gml_status status = latest ? is_captured(pools, stream, &is_of_graph) : GML_OK;
    if (!is_of_graph) {
        return status;
    }
    gml_heap *heap = latest->graph ? &latest->graph->heap : &latest->pool->heap;
    return use_heap(pools, latest->pool, heap, out);
}

gml_status gml_pools_help(gml_pools *pools, uint64_t size_bytes, gml_stream stream, gml_heap **heap,
                          gml_block **out) {
    gml_status status = GML_OK;
    for (gml_link *link = pools->all.next; link != &pools->all && status == GML_OK && !*out;
         link = link->next) {
        pool *helper = (pool *)link;
        gml_policy *policy = helper->heap.policy;
        if (policy && helper->flags & GML_POOL_HELPS && !policy->is_kept) {
            policy->is_closed = true;
            status = policy->ops->allocate(policy, size_bytes, stream, out);
            policy->is_closed = false;
            gml_pools_count(pools, &helper->heap);
            *heap = &helper->heap;
            status = status == GML_OUT_OF_MEMORY ? GML_OK : status;
        }
    }
    return status;
}

static graph *find_graph(const gml_pools *pools, uint64_t number) {
    for (gml_link *link = pools->all.next; link != &pools->all; link = link->next) {
        const pool *of = (const pool *)link;
        for (gml_link *each = of->graphs.next; each != &of->graphs; each = each->next) {
            graph *candidate = (graph *)each;
            if (candidate->number == number) {
                return candidate;
            }
        }
    }
    return NULL;
}

gml_status gml_pools_spoil(gml_pools *pools, uint64_t graph_number, gml_stream stream) {
    const graph *found = find_graph(pools, graph_number);
    if (!found || found->is_open) {
        return GML_UNKNOWN_ADDRESS;
    }
    gml_status status = gml_common_spoil(found->heap.policy->driver, stream);
    pass_reason(pools, status, found->heap.policy->driver);
    return status;
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void visit_heaps(const pool *of, void (*see)(void *context, const gml_heap *heap),
                        void *context) {
    if (of->heap.policy) {
        see(context, &of->heap);
    }
    for (const gml_link *link = of->graphs.next; link != &of->graphs; link = link->next) {
        const graph *seen = (const graph *)link;
        if (seen->heap.policy) {
            see(context, &seen->heap);
        }
    }
}

static void add_bytes(void *context, const gml_heap *heap) {
    *(uint64_t *)context +=
        heap->turn ? gml_common_bytes(heap->policy->driver) : heap->counted_bytes;
}

void gml_pools_each(const gml_pools *pools, void (*see)(void *context, const gml_pool_info *info),
                    void *context) {
    for (gml_link *link = pools->all.next; link != &pools->all; link = link->next) {
        const pool *seen = (const pool *)link;
        gml_pool_info info = {
            .id = seen->id,
            .use_count = seen->use_count,
            .flags = seen->flags,
            .is_kept = seen->graph_count > 0,
        };
        visit_heaps(seen, add_bytes, &info.reserved_bytes);
        see(context, &info);
    }
}

void gml_pools_each_heap(const gml_pools *pools, void (*see)(void *context, const gml_heap *heap),
                         void *context) {
    for (gml_link *link = pools->all.next; link != &pools->all; link = link->next) {
        visit_heaps((const pool *)link, see, context);
    }
}
