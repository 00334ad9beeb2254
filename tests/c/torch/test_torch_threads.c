/* Eight threads that ask as PyTorch does: four streams, two devices, memory that runs short, blocks
 * freed by other threads than those that asked, while another thread changes limits and lets the
 * streams run. The bytes of every block tell whether anybody else has been given them.
 *
 * GMLAKE_STRESS_SECONDS says for how long, 2 unless told. */
#include "driver/streams.h"
#include "gmlake_torch.h"
#include "lake/lake.h"
#include "support/check.h"
#include "support/stamp.h"
#include "support/torch_calls.h"
#include "torch/registry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)

enum {
    THREADS = 8,
    STREAMS = 4,
    DEVICES = 2,
    HELD = 24,      /* blocks that a thread holds at most */
    EXCHANGED = 16, /* blocks on their way to whoever frees them */
    QUEUED = 64,    /* more work than this never waits on a stream */
};

typedef struct block {
    void *address; /* NULL: none */
    uint64_t size_bytes, seed;
    int device;
    gml_stream stream;
} block;

typedef struct worker {
    pthread_t thread;
    check_random random;
    block held[HELD];
    uint64_t served, refused, recorded, empties; /* `empties`: addresses for size 0 */
} worker;

static pthread_mutex_t exchange_lock = PTHREAD_MUTEX_INITIALIZER;
static block exchange[EXCHANGED]; /* guarded by the lock */
static atomic_bool is_over;
static atomic_bool was_refused, was_lent; /* of some worker, once at least */

static void *handle_of(gml_stream stream) {
    return (void *)(uintptr_t)stream; /* NOLINT(performance-no-int-to-ptr): no memory is there */
}

static gml_stream random_stream(worker *self) {
    return check_below(&self->random, STREAMS);
}

/* ---- the life of a block --------------------------------------------------------------------- */

static uint64_t random_size(worker *self) {
    switch (check_below(&self->random, 8)) {
    case 0:
        return 1 + check_below(&self->random, 6 * MIB);
    case 1:
    case 2:
        return (1 + check_below(&self->random, 3)) * MIB;
    case 3:
        return check_below(&self->random, 64) ? 4 * MIB : 0;
    default:
        return 1 + check_below(&self->random, 16 * KIB);
    }
}

static block allocate(worker *self) {
    block made = {
        .size_bytes = random_size(self),
        .seed = check_next(&self->random),
        .device = (int)check_below(&self->random, DEVICES),
        .stream = random_stream(self),
    };
    made.address = torch_allocate(made.size_bytes, made.device, handle_of(made.stream));
    if (made.address) {
        self->served++;
        self->empties += made.size_bytes == 0;
        stamp_write(made.address, made.size_bytes, made.seed, 64 * KIB);
    } else {
        self->refused += made.size_bytes > 0;
        atomic_store_explicit(&was_refused, true, memory_order_relaxed);
    }
    return made;
}

static void release(const block *old) {
    if (old->address) {
        CHECK(stamp_holds(old->address, old->size_bytes, old->seed, 64 * KIB));
        CHECK(torch_free(old->address));
    }
}

/* Leaves the block for another thread and takes what lies there instead. */
static block swap(worker *self, block given) {
    pthread_mutex_lock(&exchange_lock);
    block *slot = &exchange[check_below(&self->random, EXCHANGED)];
    block taken = *slot;
    *slot = given;
    pthread_mutex_unlock(&exchange_lock);
    return taken;
}

/* ---- threads --------------------------------------------------------------------------------- */

static void nothing(void *context) {
    (void)context;
}

/* Lets another stream use the block, with work queued there that is not done. */
static void lend(worker *self, const block *lent) {
    gml_stream other = random_stream(self);
    gml_streams *streams = gml_torch_lake(lent->device)->driver->streams;
    (void)gml_streams_enqueue(streams, other, nothing, NULL);
    torch_record_stream(lent->address, handle_of(other));
    self->recorded++;
    atomic_store_explicit(&was_lent, true, memory_order_relaxed);
}

static void ask_about(const block *known) {
    gml_block_info seen;
    gml_lake *lake = gml_torch_lake(known->device);
    CHECK_OK(gml_lake_block(lake, (gml_address)(uintptr_t)known->address, &seen));
    CHECK(seen.block_bytes >= known->size_bytes);
}

static void act(worker *self) {
    block *one = &self->held[check_below(&self->random, HELD)];
    uint64_t kind = check_below(&self->random, 1024);
    if (kind == 0) {
        torch_trim();
    } else if (kind < 128 && one->address) {
        lend(self, one);
    } else if (kind < 160 && one->address) {
        ask_about(one);
    } else if (kind < 256) {
        *one = swap(self, *one);
    } else {
        release(one);
        *one = allocate(self);
    }
}

static void *work(void *context) {
    worker *self = context;
    while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
        act(self);
    }
    for (int i = 0; i < HELD; i++) {
        release(&self->held[i]);
    }
    return NULL;
}

static double now_seconds(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool is_missing_something(void) {
    return !atomic_load_explicit(&was_refused, memory_order_relaxed) ||
           !atomic_load_explicit(&was_lent, memory_order_relaxed);
}

/* Lets every stream run a little behind, and now and then changes what holds for all lakes; longer
 * than it should where the machine is so busy that something has not happened yet. */
static void direct(double seconds) {
    double end = now_seconds() + seconds;
    for (uint64_t round = 0; now_seconds() < end || is_missing_something(); round++) {
        for (int device = 0; device < DEVICES; device++) {
            gml_lake *lake = gml_torch_lake(device);
            for (gml_stream stream = 0; stream < STREAMS; stream++) {
                CHECK_OK(gml_streams_advance(lake->driver->streams, stream, QUEUED, NULL));
            }
            if (round % 64 == 0) {
                gml_stats stats;
                CHECK_OK(gml_lake_stats(lake, &stats));
                CHECK_OK(gml_lake_check(lake));
                gml_registry_limit(device, round % 128 ? 0.75 : 1.0);
            }
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
}

/* ---- the end --------------------------------------------------------------------------------- */

static double stress_seconds(void) {
    const char *text = getenv("GMLAKE_STRESS_SECONDS"); /* NOLINT(concurrency-mt-unsafe) */
    double seconds = text ? strtod(text, NULL) : 0;
    return seconds > 0 ? seconds : 2;
}

static void check_nothing_is_left(uint64_t served) {
    uint64_t allocations = 0;
    gml_registry_limit(0, 1.0);
    torch_trim();
    for (int device = 0; device < DEVICES; device++) {
        gml_stats stats;
        gml_lake *lake = gml_torch_lake(device);
        CHECK_OK(gml_streams_device_synchronize(lake->driver->streams));
        torch_trim();
        CHECK_OK(gml_lake_check(lake));
        CHECK_OK(gml_lake_stats(lake, &stats));
        CHECK_EQ(stats.live_blocks, 0);
        CHECK_EQ(stats.allocations, stats.frees);
        CHECK_EQ(stats.reserved_bytes, 0);
        CHECK_EQ(lake->uses.pending_count, 0);
        CHECK_EQ(lake->driver->held_bytes, 0);
        allocations += stats.allocations;
    }
    CHECK_EQ(allocations, served);
}

TEST(no_block_is_ever_shared) {
    static worker workers[THREADS];
    const gml_lake_config config = {
        .driver = "host", .policy = "stitch", .capacity_bytes = 160 * MIB};
    uint64_t served = 0;
    uint64_t refused = 0;
    uint64_t recorded = 0;
    CHECK_OK(gml_torch_configure(&config, NULL, 0));
    for (int device = 0; device < DEVICES; device++) {
        CHECK(torch_free(torch_allocate(1, device, NULL)));
        served++;
        CHECK_OK(gml_streams_set_manual(gml_torch_lake(device)->driver->streams, true));
    }
    for (int i = 0; i < THREADS; i++) {
        workers[i].random.state = (uint64_t)i + 1;
        CHECK_EQ(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    direct(stress_seconds());
    atomic_store(&is_over, true);
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQ(pthread_join(workers[i].thread, NULL), 0);
        served += workers[i].served;
        refused += workers[i].refused;
        recorded += workers[i].recorded;
        CHECK_EQ(workers[i].empties, 0);
    }
    for (int i = 0; i < EXCHANGED; i++) {
        release(&exchange[i]);
    }
    check_nothing_is_left(served);
    CHECK(refused > 0 && recorded > 0);
    printf("%" PRIu64 " served, %" PRIu64 " refused, %" PRIu64 " lent\n", served, refused,
           recorded);
}
