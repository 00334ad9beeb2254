/* States of private pools: saved, and put back after other work. Under every policy that can. */
#include "driver/streams.h"
#include "gmlake_sleep.h"
#include "lake/lake.h"
#include "policy/stitch/stitch.h"
#include "support/breaking.h"
#include "support/call_watch.h"
#include "support/contract.h"

#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

enum { MOST = 160, STREAMS = 3, STEPS = 150, SIDE = 7 };

static const gml_pool_id GRAPH = {1, 7};
static const gml_pool_id OTHER = {2, 7};

/* ---- a pool and what lives in it ------------------------------------------------------------- */

typedef struct live_set {
    live_block blocks[MOST];
    size_t count;
} live_set;

/* What a restore tells. */
typedef struct told {
    gml_address ended[MOST], begun[MOST];
    size_t ended_count, begun_count;
} told;

static void note(void *context, bool is_new, gml_address address) {
    told *to = context;
    if (is_new) {
        to->begun[to->begun_count++] = address;
    } else {
        CHECK_EQ(to->begun_count, 0); /* those that end come first */
        to->ended[to->ended_count++] = address;
    }
}

static size_t times_in(const gml_address *list, size_t count, gml_address address) {
    size_t times = 0;
    for (size_t i = 0; i < count; i++) {
        times += list[i] == address;
    }
    return times;
}

static bool has_states(gml_lake *lake) {
    gml_pool_state *state = NULL;
    CHECK_OK(gml_lake_hold_pool(lake, OTHER));
    bool is_saved = gml_lake_save_pool(lake, OTHER, &state) == GML_OK;
    CHECK_OK(gml_lake_release_pool(lake, OTHER));
    gml_pool_state_free(state);
    return is_saved;
}

/* NULL where the policy has no states of pools. */
static gml_lake *open_pool(uint64_t capacity_bytes) {
    gml_lake *lake = lake_open(capacity_bytes);
    bool is_found = has_states(lake);
    CHECK_EQ(is_found, !strcmp(contract_policy, "stitch") || !strcmp(contract_policy, "plan"));
    if (is_found) {
        CHECK_OK(gml_lake_hold_pool(lake, GRAPH));
        return lake;
    }
    CHECK_OK(gml_lake_close(lake));
    return NULL;
}

static void finish(gml_lake *lake) {
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    lake_finish(lake);
}

static gml_address take_in(gml_lake *lake, uint64_t size_bytes, gml_stream stream) {
    gml_address address = 0;
    CHECK_OK(gml_lake_allocate_in(lake, GRAPH, size_bytes, stream, &address));
    return address;
}

static gml_pool_state *save(gml_lake *lake) {
    gml_pool_state *state = NULL;
    CHECK_OK(gml_lake_save_pool(lake, GRAPH, &state));
    return state;
}

/* Many small ones; large ones of odd sizes, so that some are stitched. */
static uint64_t draw_size(check_random *random) {
    uint64_t size_bytes = lake_draw_size(random);
    return check_below(random, 3) ? size_bytes : 1 + size_bytes % 20000;
}

/* Random requests and frees in the pool; the address of each request goes to `places`. */
static void work(gml_lake *lake, live_set *live, size_t steps, uint64_t seed, gml_address *places) {
    check_random random = {seed};
    for (size_t step = 0; step < steps; step++) {
        places[step] = 0;
        if (live->count < MOST && check_below(&random, 9) > 3) {
            live_block *block = &live->blocks[live->count++];
            block->size_bytes = draw_size(&random);
            block->stream = check_below(&random, STREAMS);
            block->seed = check_next(&random);
            block->address = take_in(lake, block->size_bytes, block->stream);
            places[step] = block->address;
            lake_fill(lake, block);
        } else if (live->count) {
            live_block *block = &live->blocks[check_below(&random, live->count)];
            lake_check_filled(lake, block);
            lake_give(lake, block->address);
            *block = live->blocks[--live->count];
        }
    }
}

static const live_block *find_in(const live_set *live, const live_block *wanted) {
    for (size_t i = 0; i < live->count; i++) {
        if (live->blocks[i].seed == wanted->seed) {
            return &live->blocks[i];
        }
    }
    return NULL;
}

/* Goes back from `now` to `saved`: its blocks live, where they did, and what lived all the time has
 * its bytes. */
static void restore(gml_lake *lake, const gml_pool_state *state, const live_set *now,
                    const live_set *saved) {
    static told to;
    to.ended_count = to.begun_count = 0;
    uint64_t calls = lake_calls(lake);
    CHECK_OK(gml_lake_restore_pool(lake, state, note, &to));
    CHECK_EQ(lake_calls(lake), calls);
    CHECK_OK(gml_lake_check(lake));
    CHECK_EQ(lake_stats_of(lake).live_blocks, saved->count);
    CHECK_EQ(to.ended_count, now->count);
    CHECK_EQ(to.begun_count, saved->count);
    for (size_t i = 0; i < now->count; i++) {
        CHECK_EQ(times_in(to.ended, to.ended_count, now->blocks[i].address), 1);
    }
    for (size_t i = 0; i < saved->count; i++) {
        const live_block *block = &saved->blocks[i];
        gml_block_info info = {0};
        CHECK_OK(gml_lake_block(lake, block->address, &info));
        CHECK_EQ(info.requested_bytes, block->size_bytes);
        CHECK_EQ(info.stream, block->stream);
        CHECK_EQ(info.pool.first, GRAPH.first);
        CHECK_EQ(times_in(to.begun, to.begun_count, block->address), 1);
        if (find_in(now, block)) {
            lake_check_filled(lake, block);
        }
    }
    for (size_t i = 0; i < saved->count; i++) {
        lake_fill(lake, &saved->blocks[i]);
    }
    for (size_t i = 0; i < saved->count; i++) {
        lake_check_filled(lake, &saved->blocks[i]); /* no two share memory */
    }
}

static uint64_t held_bytes(gml_lake *lake, const live_set *live) {
    const gml_block *block = gml_map_find(&lake->blocks, live->blocks[0].address);
    return gml_stitch_of(block->owner)->live_bytes;
}

/* From a state on; the result lies in `places`. */
static void work_and_restore(gml_lake *lake, const gml_pool_state *state, const live_set *saved,
                             uint64_t seed, gml_address *places) {
    live_set now = *saved;
    uint64_t before_bytes = held_bytes(lake, saved);
    work(lake, &now, STEPS, seed, places);
    restore(lake, state, &now, saved);
    CHECK_EQ(held_bytes(lake, saved), before_bytes);
}

/* Until the pool holds all that this work needs. */
static void warm_up(gml_lake *lake, const gml_pool_state *state, const live_set *saved,
                    uint64_t seed) {
    gml_address places[STEPS];
    uint64_t before_bytes;
    do {
        before_bytes = lake_stats_of(lake).reserved_bytes;
        work_and_restore(lake, state, saved, seed, places);
    } while (lake_stats_of(lake).reserved_bytes > before_bytes);
}

/* ---- any program ----------------------------------------------------------------------------- */

static void try_seed(uint64_t seed) {
    gml_lake *lake = open_pool(0);
    if (!lake) {
        return;
    }
    live_set saved = {.count = 0};
    gml_address places[STEPS], first[STEPS], again[STEPS];
    work(lake, &saved, STEPS, seed, places);
    gml_pool_state *early = save(lake);
    warm_up(lake, early, &saved, seed + 1);
    uint64_t reserved_bytes = lake_stats_of(lake).reserved_bytes;
    gml_pool_state *state = save(lake);
    work_and_restore(lake, state, &saved, seed + 1, first);
    work_and_restore(lake, state, &saved, seed + 1, again);
    CHECK(memcmp(first, again, sizeof first) == 0);
    work_and_restore(lake, state, &saved, seed + 2, places);
    if (lake_stats_of(lake).reserved_bytes == reserved_bytes) {
        work_and_restore(lake, early, &saved, seed + 1, again);
        CHECK(memcmp(first, again, sizeof first) == 0);
    }
    lake_drain(lake, saved.blocks, saved.count);
    live_set none = {.count = 0};
    restore(lake, state, &none, &saved);
    lake_drain(lake, saved.blocks, saved.count);
    gml_pool_state_free(state);
    finish(lake);
    gml_pool_state_free(early);
}

TEST(what_lived_lives_again_and_what_follows_gets_the_same_places) {
    for (uint64_t seed = 1; seed <= 12; seed++) {
        try_seed(1000 * seed);
    }
}

/* ---- what a state holds for ------------------------------------------------------------------ */

TEST(an_empty_pool_has_a_state_too) {
    gml_lake *lake = open_pool(0);
    if (!lake) {
        return;
    }
    gml_pool_state *state = save(lake);
    gml_address address = take_in(lake, 4 * MIB, 1), small = take_in(lake, 700, 1);
    told to = {.ended_count = 0};
    CHECK_OK(gml_lake_restore_pool(lake, state, note, &to));
    CHECK_EQ(to.ended_count, 2);
    CHECK_EQ(to.begun_count, 0);
    CHECK_STATUS(gml_lake_free(lake, address), GML_UNKNOWN_ADDRESS);
    CHECK_STATUS(gml_lake_free(lake, small), GML_UNKNOWN_ADDRESS);
    gml_pool_state_free(state);
    finish(lake);
}

TEST(pools_of_other_policies_have_none) {
    gml_lake *lake = open_pool(0);
    if (lake) {
        CHECK_OK(gml_lake_set_pool(lake, GRAPH, GML_POOL_IS_WHOLE, true)); /* PyTorch's algorithm */
    } else {
        lake = lake_open(0);
        CHECK_OK(gml_lake_hold_pool(lake, GRAPH));
    }
    gml_address address = take_in(lake, 4 * MIB, 1);
    gml_pool_state *none = NULL;
    CHECK_STATUS(gml_lake_save_pool(lake, GRAPH, &none), GML_UNSUPPORTED);
    CHECK(none == NULL);
    lake_give(lake, address);
    uint64_t released_bytes = 0;
    CHECK_OK(gml_lake_trim(lake, &released_bytes)); /* it is not kept for it */
    CHECK(released_bytes > 0);
    finish(lake);
}

/* ---- sleep ----------------------------------------------------------------------------------- */

enum { SLEEPERS = 6 };

static const uint64_t sleeper_bytes[SLEEPERS] = {1000, 3 * MIB, 5 * MIB, 2 * MIB, 4 * MIB, 700000};

/* Blocks in a pool of a lake that can sleep; NULL where the policy has no states. The third and the
 * fourth leave holes where the fifth is stitched. */
static gml_lake *open_sleepers(gml_address *blocks) {
    gml_lake *lake = open_pool(0);
    if (!lake) {
        return NULL;
    }
    finish(lake);
    gml_lake_config config = lake_config_of(0);
    config.can_sleep = true;
    lake = lake_open_by(&config);
    CHECK_OK(gml_lake_hold_pool(lake, GRAPH));
    for (size_t i = 0; i < SLEEPERS; i++) {
        blocks[i] = take_in(lake, sleeper_bytes[i], 1);
        if (i == 3) {
            gml_address between = take_in(lake, 2 * MIB, 1);
            lake_give(lake, blocks[1]);
            lake_give(lake, blocks[3]);
            blocks[3] = between;
            blocks[1] = 0;
        }
    }
    return lake;
}

/* Writes bytes of its own into each block, or checks them. */
static void look_into(gml_lake *lake, const gml_address *blocks, bool writes) {
    for (size_t i = 0; i < SLEEPERS && lake_is_host(); i++) {
        void *found = NULL;
        if (!blocks[i]) {
            continue;
        }
        CHECK_OK(gml_lake_bytes(lake, blocks[i], &found));
        unsigned char *bytes = found;
        uint64_t wrong = 0;
        for (uint64_t at = 0; at < sleeper_bytes[i]; at += 499) {
            bytes[at] = writes ? (unsigned char)(i * 31 + at % 241 + 1) : bytes[at];
            wrong += bytes[at] != (unsigned char)(i * 31 + at % 241 + 1);
        }
        CHECK_EQ(wrong, 0);
    }
}

static void sleep_well(gml_lake *lake) {
    uint64_t released_bytes = 0;
    gml_sleep_report report = {0};
    CHECK_OK(gml_lake_sleep(lake, GML_BACKUP_HOST, &report));
    CHECK_OK(gml_lake_trim(lake, &released_bytes));
}

static void wake_up(gml_lake *lake) {
    uint64_t released_bytes = 0;
    gml_sleep_report report = {0};
    CHECK_OK(gml_lake_trim(lake, &released_bytes));
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_wake(lake, &report));
    CHECK_OK(gml_lake_check(lake));
}

static void put_back(gml_lake *lake, const gml_pool_state *state) {
    told to = {.ended_count = 0};
    CHECK_OK(gml_lake_restore_pool(lake, state, note, &to));
}

static void give_all(gml_lake *lake, const gml_address *blocks) {
    for (size_t i = 0; i < SLEEPERS; i++) {
        if (blocks[i]) {
            lake_give(lake, blocks[i]);
        }
    }
}

TEST(a_pool_is_saved_and_put_back_in_sleep) {
    gml_address blocks[SLEEPERS];
    gml_lake *lake = open_sleepers(blocks);
    if (!lake) {
        return;
    }
    look_into(lake, blocks, true);
    sleep_well(lake);
    gml_pool_state *state = save(lake);
    lake_give(lake, blocks[0]);
    lake_give(lake, blocks[4]);
    put_back(lake, state);
    put_back(lake, state);
    wake_up(lake);
    look_into(lake, blocks, false);
    give_all(lake, blocks);
    gml_pool_state_free(state);
    finish(lake);
}

/* ---- events and counters --------------------------------------------------------------------- */

static size_t count_events(gml_lake *lake, uint32_t kind, gml_address address) {
    enum { EVENTS = 64 };
    gml_request events[EVENTS];
    size_t count = gml_history_copy(&lake->history, events, EVENTS), found = 0;
    for (size_t i = 0; i < count; i++) {
        found += events[i].kind == kind && events[i].address == address;
    }
    return found;
}

TEST(events_and_counters_are_those_of_frees_and_allocations) {
    gml_lake *lake = open_pool(0);
    if (!lake) {
        return;
    }
    CHECK_OK(gml_lake_keep_history(lake, 64));
    gml_address kept = take_in(lake, 4 * MIB, 1), again = take_in(lake, 900, 1);
    gml_pool_state *state = save(lake);
    lake_give(lake, again);
    gml_address ended = take_in(lake, 3 * MIB, 2);
    gml_stats before = lake_stats_of(lake);
    told to = {.ended_count = 0};
    CHECK_OK(gml_lake_restore_pool(lake, state, note, &to));
    gml_stats after = lake_stats_of(lake);
    gml_torch_stats torch;
    CHECK_OK(gml_lake_torch_stats(lake, &torch));
    CHECK_EQ(after.allocations - before.allocations, 2);
    CHECK_EQ(after.frees - before.frees, 2);
    CHECK_EQ(after.live_blocks, 2);
    CHECK_EQ(after.requested_bytes, 4 * MIB + 900);
    CHECK_EQ(torch.allocated_bytes[GML_POOL_SMALL].current, 1024);
    CHECK_EQ(torch.allocated_bytes[GML_POOL_LARGE].current, 4 * MIB);
    CHECK_EQ(torch.allocation[GML_POOL_ALL].current, 2);
    CHECK_EQ(count_events(lake, GML_REQUEST_FREE, ended), 1);
    CHECK_EQ(count_events(lake, GML_REQUEST_FREE, kept), 1);
    CHECK_EQ(count_events(lake, GML_REQUEST_ALLOC, kept), 2);
    CHECK_EQ(count_events(lake, GML_REQUEST_FREE, again), 1);
    CHECK_EQ(count_events(lake, GML_REQUEST_ALLOC, again), 2);
    lake_give(lake, kept);
    lake_give(lake, again);
    gml_pool_state_free(state);
    finish(lake);
}

/* Another block in the place of a saved one, of another size as asked for. */
TEST(a_block_in_the_same_place_has_the_saved_size) {
    gml_lake *lake = open_pool(0);
    if (!lake) {
        return;
    }
    for (uint64_t size_bytes = 1000; size_bytes <= 4000000; size_bytes *= 4000) {
        gml_address address = take_in(lake, size_bytes, 1);
        gml_pool_state *state = save(lake);
        lake_give(lake, address);
        CHECK_EQ(take_in(lake, size_bytes - 10, 1), address);
        told to = {.ended_count = 0};
        CHECK_OK(gml_lake_restore_pool(lake, state, note, &to));
        CHECK_EQ(lake_stats_of(lake).requested_bytes, size_bytes);
        lake_give(lake, address);
        CHECK_EQ(lake_stats_of(lake).requested_bytes, 0);
        gml_pool_state_free(state);
    }
    finish(lake);
}

/* ---- failing drivers ------------------------------------------------------------------------- */

/* Each call of a restore that waits fails once, also with the one or two after it: either nothing
 * has changed, or all has, or those that ended have. */
static bool break_at(const uint64_t numbers[BREAKING_MOST]) {
    gml_lake_config config = lake_config_of(0);
    config.hooks = &breaking_hooks;
    gml_lake *lake = lake_open_by(&config);
    CHECK_OK(gml_lake_hold_pool(lake, GRAPH));
    gml_address kept = take_in(lake, 4 * MIB, 1), saved = take_in(lake, 3 * MIB, 1);
    gml_pool_state *state = save(lake);
    lake_give(lake, saved);
    gml_address ended = take_in(lake, 2 * MIB, 1);
    CHECK_OK(gml_lake_record_stream(lake, ended, SIDE));
    told to = {.ended_count = 0};
    breaking_begin(numbers);
    gml_status status = gml_lake_restore_pool(lake, state, note, &to);
    bool is_struck = breaking_struck() > 0;
    breaking_begin((const uint64_t[BREAKING_MOST]){0});
    CHECK_OK(gml_lake_check(lake));
    if (status != GML_OK && to.ended_count == 0) {
        CHECK_EQ(lake_stats_of(lake).live_blocks, 2);
        CHECK_OK(gml_lake_restore_pool(lake, state, note, &to));
    } else if (status != GML_OK) {
        CHECK_EQ(to.ended_count, 1);
        CHECK_EQ(to.ended[0], ended);
        CHECK_EQ(to.begun_count, 0);
        CHECK(numbers[1] != 0); /* one failure alone is survived */
        CHECK_OK(gml_lake_restore_pool(lake, state, note, &to));
    }
    CHECK_EQ(times_in(to.begun, to.begun_count, kept), 1);
    CHECK_EQ(times_in(to.begun, to.begun_count, saved), 1);
    CHECK_EQ(lake_stats_of(lake).live_blocks, 2);
    CHECK_OK(gml_lake_check(lake));
    lake_give(lake, kept);
    lake_give(lake, saved);
    gml_pool_state_free(state);
    finish(lake);
    return is_struck;
}

TEST(each_failing_call_is_survived) {
    gml_lake *lake = open_pool(0);
    if (!lake) {
        return;
    }
    CHECK_OK(gml_lake_close(lake));
    for (uint64_t failures = 1; failures <= BREAKING_MOST; failures++) {
        bool is_struck = true;
        for (uint64_t first = 1; is_struck; first++) {
            uint64_t numbers[BREAKING_MOST] = {0};
            for (uint64_t i = 0; i < failures; i++) {
                numbers[i] = first + i;
            }
            is_struck = break_at(numbers);
        }
    }
}

int main(void) {
    return contract_main();
}
