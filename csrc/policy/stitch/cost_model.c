/* The prices behind the ladder. */
#include "policy/stitch/cost_model.h"

#include "base/rounding.h"

#define MIB (UINT64_C(1) << 20)

/* By kind. A view wastes a part of a chunk at its end, so the waste is about (views at the peak, 25
 * to 75) x chunk; calls are about held / chunk. The figures were chosen by replaying
 * benchmarks/recordings/varying and examples/traces, and programs of random sizes. */
static const struct {
    uint64_t largest_bytes; /* chunk, at most */
    uint64_t of_held;       /* a chunk is at most this part of the memory held, */
    uint64_t of_room;       /* and this part of the room: the end needs small ones; */
    uint64_t surely;        /* but it may always be this part of what all lakes hold; 0: not */
    uint64_t slack;         /* spending may exceed the peak of live bytes by this part; 0: not */
    uint64_t pressure;      /* begins when less than this part is left; 0: never */
} prices[] = {
    [GML_OPTIMIZE_FOR_TIME] = {64 * MIB, 32, 128, 0, 13, 0},
    [GML_OPTIMIZE_FOR_BALANCED] = {16 * MIB, 512, 4096, 4096, 400, 3},
    [GML_OPTIMIZE_FOR_MEMORY] = {4 * MIB, 8192, 16384, 0, 0, 1},
};

/* Of chunks that processes hand to each other: each costs some 0.15 ms on its way, whatever its
 * size, so they may be twice as large as for `time`, from the first on. */
#define LARGEST_HANDED (128 * MIB)

/* A block keeps all of its chunk from other processes, and most blocks are small: what is left of
 * many would be large chunks of which little is used. So small blocks lie in chunks of this part,
 * apart from larger ones. For two processes of random sizes, by calls at an H200's prices, that
 * leaves a tenth of the refusals or fewer, at 0.8 to 1.1 times the cost; large chunks of 64 MiB
 * besides leave next to none, at 1.4 to 1.7 times. */
enum { SMALL_PART = 4 };

/* One block more than those of a small program may be spent: blocks that are replaced by ones a
 * little larger slide along then, instead of being stitched each time. */
#define LEAST_SPENT (64 * MIB)
enum { LEAST_SPENT_PART = 32 }; /* of the peak, at most */

/* A chunk is at most this part of the device or capacity. */
enum { LEAST_CHUNKS = 512, LEAST_LARGE_CHUNKS = 128 };

enum { LEAST_PART_OF_ALL = 32 };

/* In memory that can sleep, a block from this size on is a cache or the like, which lives as long
 * as its program: nobody will stitch parts of it, and each of its chunks costs calls at every sleep
 * and wake. So they are large while they are a small part of the room. */
#define LONG_LIVED (1024 * MIB)
enum { LARGE_PART_OF_ROOM = 8 };

void gml_cost_model_init(gml_cost_model *costs, gml_optimize_for kind, bool can_sleep,
                         uint64_t chunk_bytes, uint64_t granule_bytes, uint64_t limit_bytes) {
    bool is_balanced = kind == GML_OPTIMIZE_FOR_BALANCED;
    *costs = (gml_cost_model){.kind = kind,
                              .chunks = is_balanced && can_sleep ? GML_OPTIMIZE_FOR_TIME : kind,
                              .largest_bytes = granule_bytes,
                              .large_bytes = granule_bytes};
    while (!chunk_bytes && costs->largest_bytes * 2 <= limit_bytes / LEAST_CHUNKS) {
        costs->largest_bytes *= 2;
    }
    while (!chunk_bytes && can_sleep &&
           costs->large_bytes * 2 <= limit_bytes / LEAST_LARGE_CHUNKS) {
        costs->large_bytes *= 2;
    }
}

static bool is_shared(const gml_base_range *range) {
    return GML_DEVICE_READ(range->driver->device, spare_bytes) > 0;
}

/* Whether other processes are handed chunks, and their size is not the user's choice. */
static bool is_handed(const gml_cost_model *costs, const gml_base_range *range) {
    return costs->kind == GML_OPTIMIZE_FOR_BALANCED && is_shared(range);
}

bool gml_cost_model_makes_whole(const gml_cost_model *costs, const gml_base_range *range) {
    return costs->chunks == GML_OPTIMIZE_FOR_TIME || is_handed(costs, range);
}

uint64_t gml_cost_model_small(const gml_cost_model *costs, const gml_base_range *range) {
    uint64_t small_bytes = gml_least(costs->largest_bytes, LARGEST_HANDED) / SMALL_PART;
    return is_handed(costs, range) && small_bytes >= range->granule_bytes ? small_bytes : 0;
}

uint64_t gml_cost_model_room(const gml_base_range *range) {
    uint64_t space_bytes = gml_base_range_left(range);
    if (is_shared(range)) {
        return space_bytes; /* other processes may give it */
    }
    uint64_t device_bytes =
        gml_least(gml_device_room(range->driver->device), gml_driver_left(range->driver));
    uint64_t spare_bytes = gml_driver_spare(range->driver);
    return spare_bytes < space_bytes
               ? spare_bytes + gml_least(space_bytes - spare_bytes, device_bytes)
               : space_bytes;
}

bool gml_cost_model_is_tight(const gml_cost_model *costs, const gml_base_range *range) {
    uint64_t part = prices[costs->kind].pressure;
    uint64_t room_bytes = gml_cost_model_room(range);
    return part && room_bytes <= (range->held_bytes + room_bytes) / part;
}

/* What is held, for the size of chunks: beside large lakes a small one is not worth small chunks.
 */
static uint64_t counted_bytes(const gml_base_range *range, uint64_t all_bytes) {
    uint64_t part_bytes = all_bytes / LEAST_PART_OF_ALL;
    return range->held_bytes > part_bytes ? range->held_bytes : part_bytes;
}

uint64_t gml_cost_model_chunk(const gml_cost_model *costs, const gml_base_range *range,
                              uint64_t size_bytes) {
    if (is_handed(costs, range)) {
        uint64_t small_bytes = gml_cost_model_small(costs, range);
        return size_bytes <= small_bytes ? small_bytes
                                         : gml_least(costs->largest_bytes, LARGEST_HANDED);
    }
    gml_optimize_for kind = costs->chunks;
    if (size_bytes >= LONG_LIVED && kind == GML_OPTIMIZE_FOR_TIME &&
        costs->large_bytes <= gml_cost_model_room(range) / LARGE_PART_OF_ROOM) {
        return costs->large_bytes;
    }
    uint64_t of_room = prices[kind].of_room * (gml_cost_model_is_tight(costs, range) ? 4 : 1);
    uint64_t wanted_bytes = gml_cost_model_room(range) / of_room;
    uint64_t all_bytes = GML_DEVICE_READ(range->driver->device, held_bytes);
    if (prices[kind].surely && wanted_bytes < all_bytes / prices[kind].surely) {
        wanted_bytes = all_bytes / prices[kind].surely;
    }
    wanted_bytes = gml_least(wanted_bytes, counted_bytes(range, all_bytes) / prices[kind].of_held);
    uint64_t largest_bytes = gml_least(costs->largest_bytes, prices[kind].largest_bytes);
    uint64_t chunk_bytes = range->granule_bytes;
    while (chunk_bytes * 2 <= wanted_bytes && chunk_bytes * 2 <= largest_bytes) {
        chunk_bytes *= 2;
    }
    return chunk_bytes;
}

bool gml_cost_model_may_spend(const gml_cost_model *costs, const gml_base_range *range,
                              uint64_t more_bytes, uint64_t peak_bytes) {
    uint64_t part = prices[costs->kind].slack;
    if (!part || gml_cost_model_is_tight(costs, range)) {
        return false;
    }
    uint64_t slack_bytes = peak_bytes / part;
    uint64_t least_bytes = gml_least(LEAST_SPENT, peak_bytes / LEAST_SPENT_PART);
    slack_bytes = slack_bytes > least_bytes ? slack_bytes : least_bytes;
    return range->held_bytes + more_bytes <= peak_bytes + slack_bytes;
}
