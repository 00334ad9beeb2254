/* Graphs that take turns, over every policy: what they share, what stays each graph's own, and what
 * comes back. Where a policy does not stitch they share nothing, and all else holds. */
#include "driver/streams.h"
#include "gmlake_sleep.h"
#include "lake/lake.h"
#include "support/breaking.h"
#include "support/census.h"
#include "support/contract.h"

#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

enum { EAGER = 1, CAPTURER = 5, OTHER_CAPTURER = 6, TURN = 3, OTHER_TURN = 4 };

static const gml_pool_id SHARED = {0, 99};

static bool shares(gml_lake *lake) {
    return lake->pools.ops->live_chunks != NULL;
}

static void set_capturing(gml_lake *lake, gml_stream stream, bool is_capturing) {
    CHECK_OK(gml_streams_set_capturing(lake->driver->streams, stream, is_capturing));
}

static void begin(gml_lake *lake, gml_pool_id id, uint64_t turn) {
    CHECK_OK(gml_lake_begin_pool_in_turn(lake, id, turn));
    set_capturing(lake, CAPTURER, true);
}

static gml_status try_end(gml_lake *lake, gml_pool_id id) {
    set_capturing(lake, CAPTURER, false);
    return gml_lake_end_pool(lake, id);
}

static void end(gml_lake *lake, gml_pool_id id) {
    CHECK_OK(try_end(lake, id));
}

static uint64_t reserved(gml_lake *lake) {
    uint64_t reserved_bytes = lake_stats_of(lake).reserved_bytes;
    CHECK_EQ(lake->driver->held_bytes, reserved_bytes);
    CHECK_OK(gml_lake_check(lake));
    return reserved_bytes;
}

/* The same, and every byte of it is told of once. */
static uint64_t counted(gml_lake *lake) {
    uint64_t reserved_bytes = reserved(lake);
    CHECK_EQ(census_of(lake).physical_bytes, reserved_bytes);
    return reserved_bytes;
}

typedef struct graph {
    gml_pool_id id;
    gml_address output, temporary; /* the second was freed before the capture ended */
    uint64_t output_bytes, temporary_bytes;
} graph;

static graph capture(gml_lake *lake, gml_pool_id id, uint64_t turn, uint64_t temporary_bytes,
                     uint64_t output_bytes) {
    begin(lake, id, turn);
    graph made = {id, 0, 0, output_bytes, temporary_bytes};
    made.temporary = lake_take(lake, temporary_bytes, CAPTURER);
    made.output = lake_take(lake, output_bytes, CAPTURER);
    lake_give(lake, made.temporary);
    end(lake, id);
    return made;
}

/* Nothing on `sim`, whose memory has no bytes. */
static void write_bytes(gml_lake *lake, gml_address address, uint64_t size_bytes, int value) {
    void *bytes;
    if (lake_is_host()) {
        CHECK_OK(gml_driver_bytes(lake->driver, address, size_bytes, &bytes));
        memset(bytes, value, size_bytes);
    }
}

static bool are_bytes(gml_lake *lake, gml_address address, uint64_t size_bytes, int value) {
    const unsigned char *bytes = NULL;
    if (!lake_is_host()) {
        return true;
    }
    CHECK_OK(gml_driver_bytes(lake->driver, address, size_bytes, (void **)&bytes));
    uint64_t i = 0;
    while (i < size_bytes && bytes[i] == value) {
        i++;
    }
    return i == size_bytes;
}

static void drop(gml_lake *lake, const graph *ended) {
    lake_give(lake, ended->output);
    CHECK_OK(gml_lake_release_pool(lake, ended->id));
}

static gml_pool_id own_pool(size_t i) {
    return (gml_pool_id){1, 10 + i};
}

TEST(other_turns_and_none_share_nothing) {
    gml_lake *lake = lake_open(0);
    graph first = capture(lake, own_pool(0), TURN, 40 * MIB, 4 * MIB);
    uint64_t alone = reserved(lake);
    graph second = capture(lake, own_pool(1), OTHER_TURN, 40 * MIB, 4 * MIB);
    CHECK_EQ(reserved(lake), 2 * alone);
    graph third = capture(lake, own_pool(2), 0, 40 * MIB, 4 * MIB);
    CHECK_EQ(reserved(lake), 3 * alone);
    drop(lake, &first);
    CHECK_EQ(reserved(lake), 2 * alone);
    drop(lake, &second);
    drop(lake, &third);
    lake_finish(lake);
}

TEST(captures_take_turns_one_after_the_other) {
    gml_lake *lake = lake_open(0);
    graph before = capture(lake, own_pool(0), TURN, 24 * MIB, 4 * MIB);
    uint64_t held = reserved(lake);
    gml_status while_another = shares(lake) ? GML_UNSUPPORTED : GML_OK;
    CHECK_OK(gml_lake_begin_pool(lake, SHARED));
    CHECK_STATUS(gml_lake_begin_pool_in_turn(lake, own_pool(1), TURN), while_another);
    if (while_another == GML_OK) {
        end(lake, own_pool(1));
        CHECK_OK(gml_lake_release_pool(lake, own_pool(1)));
    }
    CHECK_STATUS(gml_lake_release_pool(lake, own_pool(1)), GML_INVALID_ARGUMENT);
    end(lake, SHARED);
    CHECK_EQ(reserved(lake), held);

    /* One that begins meanwhile is told of at the end, which frees the pool. */
    begin(lake, own_pool(1), TURN);
    gml_address output = lake_take(lake, 24 * MIB, CAPTURER);
    CHECK_OK(gml_lake_begin_pool(lake, SHARED));
    set_capturing(lake, CAPTURER, false);
    CHECK_STATUS(gml_lake_end_pool(lake, own_pool(1)), while_another);
    end(lake, SHARED);
    lake_give(lake, output);
    CHECK_STATUS(gml_lake_release_pool(lake, own_pool(1)),
                 shares(lake) ? GML_INVALID_ARGUMENT : GML_OK);
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_EQ(counted(lake), held);
    CHECK_OK(gml_lake_release_pool(lake, SHARED));
    CHECK_OK(gml_lake_release_pool(lake, SHARED));
    drop(lake, &before);
    lake_finish(lake);
}

TEST(memory_that_runs_out_at_the_end_fails_the_capture) {
    gml_lake *lake = lake_open(64 * MIB);
    if (!shares(lake)) {
        CHECK_OK(gml_lake_close(lake));
        return;
    }
    graph first = capture(lake, own_pool(0), TURN, 40 * MIB, 4 * MIB);
    write_bytes(lake, first.output, 4 * MIB, 3);
    uint64_t held = reserved(lake);
    begin(lake, own_pool(1), TURN);
    gml_address output = lake_take(lake, 40 * MIB, CAPTURER); /* lies in the memory of the first */
    CHECK_STATUS(try_end(lake, own_pool(1)), GML_OUT_OF_MEMORY);
    CHECK(!gml_driver_is_frozen(lake->driver));
    CHECK_STATUS(gml_lake_release_pool(lake, own_pool(1)), GML_INVALID_ARGUMENT);
    lake_give(lake, output);
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_EQ(counted(lake), held);
    CHECK(are_bytes(lake, first.output, 4 * MIB, 3));
    graph again = capture(lake, own_pool(1), TURN, 40 * MIB, 4 * MIB);
    drop(lake, &first);
    drop(lake, &again);
    lake_finish(lake);
}

/* ---- failures -------------------------------------------------------------------------------- */

typedef struct outcome {
    bool is_whole;
    bool has_begun, has_ended;
    gml_address output;
} outcome;

static outcome try_capture(gml_lake *lake, gml_pool_id id, uint64_t temporary_bytes) {
    outcome out = {.has_begun = gml_lake_begin_pool_in_turn(lake, id, TURN) == GML_OK};
    gml_address temporary = 0;
    if (!out.has_begun) {
        return out;
    }
    set_capturing(lake, CAPTURER, true);
    out.is_whole = gml_lake_allocate(lake, temporary_bytes, CAPTURER, &temporary) == GML_OK;
    out.is_whole &= gml_lake_allocate(lake, 4 * MIB, CAPTURER, &out.output) == GML_OK;
    lake_give(lake, temporary);
    gml_status status = try_end(lake, id);
    CHECK(status == GML_OK || status == GML_DRIVER_FAILED || status == GML_OUT_OF_MEMORY);
    out.has_ended = status == GML_OK;
    out.is_whole &= out.has_ended;
    return out;
}

static void drop_outcome(gml_lake *lake, gml_pool_id id, outcome of) {
    lake_give(lake, of.output);
    if (of.has_ended) {
        CHECK_OK(gml_lake_release_pool(lake, id));
    } else {
        CHECK_STATUS(gml_lake_release_pool(lake, id), GML_INVALID_ARGUMENT);
    }
}

/* Captures two graphs; a third one is captured before, so that they have to replace memory. */
static bool survive(uint64_t nth, uint64_t per_million) {
    gml_lake_config config = lake_config_of(0);
    config.hooks = GML_HOOKS(.fail_call = nth, .fail_per_million = per_million, .fail_seed = nth,
                             .check_order = true);
    gml_lake *lake = NULL;
    char reason[256];
    if (gml_lake_open(&config, &lake, reason, sizeof reason) != GML_OK) {
        return false;
    }
    bool is_whole = true;
    outcome outcomes[3];
    for (size_t i = 0; i < 3; i++) {
        outcomes[i] = try_capture(lake, own_pool(i), (i % 2 ? 12 : 6) * MIB);
        is_whole &= outcomes[i].is_whole;
        if (outcomes[i].has_ended && outcomes[i].output) {
            write_bytes(lake, outcomes[i].output, 4 * MIB, 70 + (int)i);
        }
        (void)reserved(lake);
    }
    for (size_t i = 0; i < 3; i++) {
        if (outcomes[i].has_ended && outcomes[i].output) {
            CHECK(are_bytes(lake, outcomes[i].output, 4 * MIB, 70 + (int)i));
        }
        drop_outcome(lake, own_pool(i), outcomes[i]);
        (void)reserved(lake);
    }
    for (int attempt = 0; attempt < 20 && reserved(lake); attempt++) {
        is_whole &= gml_lake_trim(lake, NULL) == GML_OK;
    }
    CHECK_EQ(reserved(lake), 0);
    gml_status closed = gml_lake_close(lake);
    CHECK(closed == GML_OK || closed == GML_DRIVER_FAILED);
    return is_whole && closed == GML_OK;
}

TEST(each_failing_call_is_survived) {
    size_t failures = 0;
    for (uint64_t nth = 1; nth < 130; nth++) {
        failures += !survive(nth, 0);
    }
    CHECK(failures > 3);
}

/* At the end of a capture, once what was shared is unmapped: nothing is mapped any more, not even
 * what was. */
TEST(addresses_without_memory_are_given_back) {
    gml_lake_config config = lake_config_of(0);
    config.hooks = &breaking_hooks;
    gml_lake *lake = lake_open_by(&config);
    graph first = capture(lake, own_pool(0), TURN, 24 * MIB, 4 * MIB);
    write_bytes(lake, first.output, 4 * MIB, 1);
    uint64_t held = counted(lake);
    begin(lake, own_pool(1), TURN);
    gml_address blocks[4];
    for (size_t i = 0; i < 4; i++) {
        blocks[i] = lake_take(lake, 4 * MIB, CAPTURER);
    }
    lake_give(lake, blocks[1]);
    breaking_refuse(GML_CALL_MAP, true);
    CHECK_STATUS(try_end(lake, own_pool(1)), shares(lake) ? GML_OUT_OF_MEMORY : GML_OK);
    breaking_refuse(GML_CALL_MAP, false);
    (void)reserved(lake);
    lake_give(lake, blocks[0]);
    lake_give(lake, blocks[2]);
    lake_give(lake, blocks[3]);
    CHECK_STATUS(gml_lake_release_pool(lake, own_pool(1)),
                 shares(lake) ? GML_INVALID_ARGUMENT : GML_OK);
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_EQ(counted(lake), held);
    CHECK(are_bytes(lake, first.output, 4 * MIB, 1));
    drop(lake, &first);
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_EQ(reserved(lake), 0);
    CHECK_OK(gml_lake_close(lake));
}

TEST(memory_that_the_driver_keeps_is_released_later) {
    gml_lake_config config = lake_config_of(0);
    config.hooks = &breaking_hooks;
    gml_lake *lake = lake_open_by(&config);
    graph first = capture(lake, own_pool(0), TURN, 12 * MIB, 4 * MIB);
    graph second = capture(lake, own_pool(1), TURN, 24 * MIB, 4 * MIB);
    breaking_refuse(GML_CALL_RELEASE, true);
    breaking_refuse(GML_CALL_FREE, true);
    drop(lake, &first);
    drop(lake, &second);
    (void)gml_lake_trim(lake, NULL);
    (void)reserved(lake);
    breaking_refuse(GML_CALL_RELEASE, false);
    breaking_refuse(GML_CALL_FREE, false);
    first = capture(lake, own_pool(0), TURN, 24 * MIB, 4 * MIB);
    write_bytes(lake, first.output, 4 * MIB, 1);
    write_bytes(lake, first.temporary, 24 * MIB, 2);
    CHECK(are_bytes(lake, first.output, 4 * MIB, 1));
    drop(lake, &first);
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_EQ(reserved(lake), 0);
    CHECK_OK(gml_lake_close(lake));
}

TEST(many_failing_calls_are_survived) {
    size_t failures = 0;
    for (uint64_t seed = 1; seed < 40; seed++) {
        failures += !survive(seed * 1000, 20000 * (1 + seed % 5));
    }
    CHECK(failures > 3);
}

/* ---- at random ------------------------------------------------------------------------------- */

enum { MOST_LIVE = 24, MOST_TEMPORARY = 64 };

typedef struct random_graph {
    gml_pool_id id;
    live_block outputs[MOST_LIVE];
    size_t output_count;
    gml_address temporaries[MOST_TEMPORARY];
    uint64_t temporary_bytes[MOST_TEMPORARY];
    size_t temporary_count;
    bool is_there;
} random_graph;

static void note_temporary(random_graph *of, const live_block *freed) {
    if (of->temporary_count < MOST_TEMPORARY) {
        of->temporaries[of->temporary_count] = freed->address;
        of->temporary_bytes[of->temporary_count++] = freed->size_bytes;
    }
}

static void capture_at_random(gml_lake *lake, random_graph *of, check_random *random) {
    of->output_count = of->temporary_count = 0;
    of->is_there = true;
    begin(lake, of->id, TURN + check_below(random, 2));
    for (size_t step = 0; step < 80; step++) {
        bool is_full = of->output_count == MOST_LIVE;
        if (is_full || (of->output_count && check_below(random, 5) < 2)) {
            size_t at = check_below(random, of->output_count);
            note_temporary(of, &of->outputs[at]);
            lake_give(lake, of->outputs[at].address);
            of->outputs[at] = of->outputs[--of->output_count];
        } else {
            uint64_t size_bytes = lake_draw_size(random);
            of->outputs[of->output_count++] =
                (live_block){lake_take(lake, size_bytes, CAPTURER), size_bytes,
                             check_below(random, 1000), CAPTURER};
        }
    }
    while (of->output_count > 4) {
        note_temporary(of, &of->outputs[--of->output_count]);
        lake_give(lake, of->outputs[of->output_count].address);
    }
    end(lake, of->id);
    for (size_t i = 0; i < of->output_count; i++) {
        lake_fill(lake, &of->outputs[i]);
    }
}

/* Overwrites what was temporary, as far as it is still mapped, then writes the outputs, which may
 * have had some of its memory. */
static void replay(gml_lake *lake, const random_graph *of, int value) {
    for (size_t i = 0; i < of->temporary_count; i++) {
        void *bytes;
        if (lake_is_host() && gml_driver_bytes(lake->driver, of->temporaries[i],
                                               of->temporary_bytes[i], &bytes) == GML_OK) {
            memset(bytes, value, of->temporary_bytes[i]);
        }
    }
    for (size_t i = 0; i < of->output_count; i++) {
        lake_fill(lake, &of->outputs[i]);
    }
}

static void end_at_random(gml_lake *lake, random_graph *of) {
    for (size_t i = 0; i < of->output_count; i++) {
        lake_check_filled(lake, &of->outputs[i]);
        lake_give(lake, of->outputs[i].address);
    }
    CHECK_OK(gml_lake_release_pool(lake, of->id));
    of->is_there = false;
}

TEST(random_graphs_spoil_no_output) {
    for (uint64_t seed = 1; seed <= 3; seed++) {
        gml_lake *lake = lake_open(0);
        check_random random = {seed};
        random_graph graphs[6] = {0};
        for (size_t i = 0; i < 6; i++) {
            /* Without turns, graphs of one pool have to run in the order of their captures. */
            graphs[i].id = i < 3 || !shares(lake) ? own_pool(i) : SHARED;
        }
        for (size_t round = 0; round < 40; round++) {
            random_graph *at = &graphs[check_below(&random, 6)];
            if (!at->is_there) {
                capture_at_random(lake, at, &random);
            } else if (check_below(&random, 3) == 0) {
                end_at_random(lake, at);
            } else {
                replay(lake, at, (int)check_below(&random, 256));
            }
            if (check_below(&random, 8) == 0) {
                CHECK_OK(gml_lake_trim(lake, NULL));
            }
            (void)counted(lake);
        }
        for (size_t i = 0; i < 6; i++) {
            if (graphs[i].is_there) {
                end_at_random(lake, &graphs[i]);
            }
        }
        lake_finish(lake);
    }
}

int main(void) {
    return contract_main();
}
