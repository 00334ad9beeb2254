/* What one stream frees serves another: when, in which order, and what it costs in driver calls.
 * Streams run by hand, and every hand-over is checked for an order behind it. */
#include "support/call_watch.h"
#include "support/policies.h"
#include "support/sharing.h"

#define BLOCK (64 * MIB)

/* ---- one stream ------------------------------------------------------------------------------ */

TEST(one_stream_makes_no_event_call) {
    for (size_t i = 0; lending_policy(i); i++) {
        gml_lake *lake = sharing_open(
            &(sharing_config){.policy = lending_policy(i), .capacity_bytes = 512 * MIB});
        check_random random = {7};
        gml_address blocks[16] = {0};
        for (int step = 0; step < 4000; step++) {
            gml_address *block = &blocks[check_below(&random, 16)];
            if (*block) {
                sharing_give(lake, *block);
                *block = 0;
            } else {
                *block = sharing_take(lake, 1 + check_below(&random, 24 * MIB), 3);
            }
            if (step % 100 == 0) {
                CHECK_OK(gml_lake_mark(lake));
            }
            if (step % 1000 == 999) {
                CHECK_OK(gml_lake_trim(lake, NULL));
            }
        }
        for (size_t k = 0; k < 16; k++) {
            sharing_give(lake, blocks[k]);
        }
        CHECK_OK(gml_lake_trim(lake, NULL));
        CHECK_EQ(call_watch_event_calls(lake), 0);
        CHECK_EQ(sharing_calls(lake, GML_CALL_STREAM_SYNCHRONIZE), 0);
        sharing_finish(lake);
    }
}

TEST(its_own_memory_serves_a_stream_at_once) {
    gml_lake *lake = sharing_open_with(NULL, 0, NULL, 0);
    sharing_leave(lake, MIB, 2);
    gml_address first = sharing_take(lake, BLOCK, 1);
    uint64_t calls = call_watch_event_calls(lake);
    sharing_give(lake, first);
    CHECK_EQ(sharing_take(lake, BLOCK, 1), first);
    sharing_give(lake, first);
    CHECK_EQ(call_watch_event_calls(lake), calls);
    sharing_finish(lake);
}

/* ---- two streams ----------------------------------------------------------------------------- */

TEST(complete_memory_serves_another_stream_without_a_wait) {
    gml_lake *lake = sharing_open(&(sharing_config){.runs_at_once = true});
    sharing_leave(lake, BLOCK, 1);
    gml_address second = sharing_take(lake, BLOCK, 2);
    CHECK_EQ(sharing_reserved(lake), BLOCK);
    CHECK_EQ(sharing_calls(lake, GML_CALL_STREAM_WAIT), 0);
    CHECK(sharing_calls(lake, GML_CALL_EVENT_RECORD) <= 1);
    CHECK_EQ(sharing_calls(lake, GML_CALL_DEVICE_SYNCHRONIZE), 0);
    CHECK_EQ(lake_stats_of(lake).cross_stream_waits, 0);
    CHECK_EQ(lake_stats_of(lake).borrowed_bytes, BLOCK);
    sharing_give(lake, second);
    sharing_finish(lake);
}

TEST(incomplete_memory_is_lent_with_one_record_and_one_wait) {
    gml_lake *lake = sharing_open_with(NULL, 0, NULL, 0);
    sharing_leave(lake, BLOCK, 1);
    CHECK_EQ(call_watch_event_calls(lake), 0); /* a free costs nothing */
    gml_address second = sharing_take(lake, BLOCK, 2);
    sharing_tally made = sharing_count(lake);
    CHECK_EQ(made.records, 1);
    CHECK_EQ(made.waits, 1);
    CHECK_EQ(sharing_reserved(lake), BLOCK);
    CHECK_EQ(lake_stats_of(lake).cross_stream_waits, 1);
    gml_stream_pair pair = sharing_pair(lake, 1, 2);
    CHECK_EQ(pair.waits, 1);
    CHECK_EQ(pair.borrowed_bytes, BLOCK);
    CHECK(pair.borrows >= 1);
    CHECK_EQ(sharing_pair(lake, 2, 1).borrowed_bytes, 0);
    sharing_give(lake, second);
    sharing_finish(lake);
}

TEST(what_an_event_covers_costs_nothing_more) {
    gml_lake *lake = sharing_open_with(NULL, 0, NULL, 0);
    gml_address between = sharing_leave_two(lake, BLOCK, 1);
    uint64_t reserved = sharing_reserved(lake);
    gml_address first = sharing_take(lake, BLOCK, 2);
    sharing_tally before = sharing_count(lake);
    CHECK_EQ(before.records, 1);
    gml_address second = sharing_take(lake, BLOCK, 2);
    sharing_tally after = sharing_count(lake);
    CHECK_EQ(after.records, before.records);
    CHECK_EQ(after.waits, before.waits);
    CHECK_EQ(sharing_reserved(lake), reserved);

    sharing_leave(lake, BLOCK, 1); /* grows: there is no free memory left */
    gml_address third = sharing_take(lake, BLOCK, 2);
    CHECK_EQ(sharing_count(lake).records, before.records + 1);
    CHECK_EQ(sharing_count(lake).waits, before.waits + 1);
    CHECK_EQ(sharing_reserved(lake), reserved + BLOCK);
    sharing_give(lake, between);
    sharing_give(lake, first);
    sharing_give(lake, second);
    sharing_give(lake, third);
    sharing_finish(lake);
}

TEST(what_was_borrowed_comes_back_by_the_same_rules) {
    gml_lake *lake = sharing_open_with(NULL, 0, NULL, 0);
    sharing_leave(lake, BLOCK, 1);
    for (uint64_t round = 1; round <= 5; round++) {
        sharing_leave(lake, BLOCK, 2);
        sharing_leave(lake, BLOCK, 1);
        CHECK_EQ(sharing_pair(lake, 1, 2).waits, round);
        CHECK_EQ(sharing_pair(lake, 2, 1).waits, round);
        CHECK_EQ(sharing_count(lake).records, 2 * round);
    }
    CHECK_EQ(sharing_reserved(lake), BLOCK);
    CHECK_EQ(sharing_calls(lake, GML_CALL_DEVICE_SYNCHRONIZE), 0);
    sharing_finish(lake);
}

TEST(memory_goes_round_many_streams) {
    enum { STREAMS = 16 };
    gml_lake *lake = sharing_open_with(NULL, 0, NULL, 0);
    check_random random = {5};
    gml_stream last = 1;
    sharing_leave(lake, BLOCK, last);
    for (int i = 0; i < 500; i++) {
        gml_stream stream = 1 + check_below(&random, STREAMS);
        gml_address block = sharing_take(lake, BLOCK, stream);
        if (check_below(&random, 3) == 0) {
            sharing_run(lake, 1 + check_below(&random, STREAMS));
        }
        sharing_give(lake, block);
    }
    CHECK_EQ(sharing_reserved(lake), BLOCK);
    sharing_finish(lake);
}

TEST(small_requests_borrow_as_well) {
    gml_lake *lake = sharing_open_with(NULL, 0, NULL, 0);
    sharing_leave(lake, BLOCK, 1);
    gml_address small = sharing_take(lake, 4096, 2);
    CHECK_EQ(sharing_reserved(lake), BLOCK);
    sharing_give(lake, small);
    sharing_finish(lake);
}

/* ---- what is taken --------------------------------------------------------------------------- */

/* Stream 1 holds blocks of these sizes with others in between, and frees them in this order. */
static void leave_in_order(gml_lake *lake, const uint64_t sizes[3], const size_t order[3],
                           gml_address blocks[3], gml_address between[3]) {
    for (size_t i = 0; i < 3; i++) {
        blocks[i] = sharing_take(lake, sizes[i], 1);
        between[i] = sharing_take(lake, 2 * MIB, 1);
    }
    for (size_t i = 0; i < 3; i++) {
        sharing_give(lake, blocks[order[i]]);
    }
}

static void give_three(gml_lake *lake, const gml_address blocks[3]) {
    for (size_t i = 0; i < 3; i++) {
        sharing_give(lake, blocks[i]);
    }
}

/* Of what was gathered the smallest range that fits serves. */
TEST(what_fits_best_is_taken) {
    static const uint64_t sizes[] = {48 * MIB, 32 * MIB, 40 * MIB};
    static const size_t order[] = {0, 2, 1};
    gml_lake *lake = sharing_open_with(NULL, 0, NULL, 0);
    gml_address blocks[3], between[3];
    leave_in_order(lake, sizes, order, blocks, between);
    gml_address taken = sharing_take(lake, 32 * MIB, 2);
    CHECK_EQ(taken, blocks[1]);
    CHECK_EQ(sharing_count(lake).waits, 1);
    sharing_give(lake, taken);
    give_three(lake, between);
    sharing_finish(lake);
}

TEST(memory_is_borrowed_before_the_driver_is_asked) {
    gml_lake *lake = sharing_open_with(NULL, 0, NULL, 0);
    sharing_leave(lake, 48 * MIB, 1);
    gml_address block = sharing_take(lake, BLOCK, 2); /* 48 MiB of it are there */
    CHECK_EQ(sharing_reserved(lake), BLOCK);
    sharing_give(lake, block);
    sharing_finish(lake);
}

/* ---- views ----------------------------------------------------------------------------------- */

enum { PIECES = 4 };

/* Stream 1 leaves a view of PIECES ranges of 8 MiB, which nothing else keeps apart but blocks in
 * `between`. Returns its address. */
static gml_address leave_view(gml_lake *lake, gml_address between[PIECES]) {
    gml_address pieces[PIECES];
    for (size_t i = 0; i < PIECES; i++) {
        pieces[i] = sharing_take(lake, 8 * MIB, 1);
        between[i] = sharing_take(lake, 4 * MIB, 1);
    }
    for (size_t i = 0; i < PIECES; i++) {
        sharing_give(lake, pieces[i]);
    }
    gml_address view = sharing_take(lake, PIECES * 8 * MIB, 1);
    CHECK_EQ(lake_stats_of(lake).views, 1);
    sharing_give(lake, view);
    return view;
}

static void give_between(gml_lake *lake, const gml_address between[PIECES]) {
    for (size_t i = 0; i < PIECES; i++) {
        sharing_give(lake, between[i]);
    }
}

TEST(a_view_is_taken_over_as_it_is) {
    gml_lake *lake = sharing_open_with(NULL, 0, NULL, 0);
    gml_address between[PIECES];
    gml_address view = leave_view(lake, between);
    uint64_t calls = sharing_memory_calls(lake);
    gml_address block = sharing_take(lake, PIECES * 8 * MIB, 2);
    CHECK_EQ(block, view);
    CHECK_EQ(sharing_memory_calls(lake), calls);
    CHECK_EQ(sharing_count(lake).waits, 1);
    sharing_give(lake, block);
    give_between(lake, between);
    sharing_finish(lake);
}

/* That another stream has looked at it, in vain, changes nothing. */
TEST(a_view_that_others_cannot_reach_serves_its_owner) {
    gml_lake *lake = sharing_open_with("reuse_allow_internal_dependencies", 0, NULL, 0);
    gml_address between[PIECES];
    gml_address view = leave_view(lake, between);
    gml_address grown = sharing_take(lake, PIECES * 8 * MIB, 2);
    CHECK_EQ(lake_stats_of(lake).borrowed_bytes, 0);
    uint64_t calls = sharing_memory_calls(lake);
    gml_address block = sharing_take(lake, PIECES * 8 * MIB, 1);
    CHECK_EQ(block, view);
    CHECK_EQ(sharing_memory_calls(lake), calls);
    sharing_give(lake, block);
    sharing_give(lake, grown);
    give_between(lake, between);
    sharing_finish(lake);
}

TEST(a_view_serves_its_owner_again_once_its_chunks_are_back) {
    for (int runs_at_once = 0; runs_at_once < 2; runs_at_once++) {
        gml_lake *lake = sharing_open(&(sharing_config){.runs_at_once = runs_at_once});
        gml_address between[PIECES];
        gml_address view = leave_view(lake, between);
        sharing_leave(lake, 8 * MIB, 2); /* one of its ranges */
        CHECK_EQ(sharing_pair(lake, 1, 2).borrowed_bytes, 8 * MIB);
        uint64_t calls = sharing_memory_calls(lake);
        gml_address block = sharing_take(lake, PIECES * 8 * MIB, 1);
        CHECK_EQ(block, view);
        CHECK_EQ(sharing_memory_calls(lake), calls);
        CHECK_EQ(sharing_pair(lake, 2, 1).borrowed_bytes, 8 * MIB);
        CHECK_EQ(sharing_count(lake).waits, runs_at_once ? 0 : 2);
        sharing_give(lake, block);
        give_between(lake, between);
        sharing_finish(lake);
    }
}

/* ---- trim ------------------------------------------------------------------------------------ */

TEST(trim_gives_back_what_is_lent_and_borrowed) {
    gml_lake *lake = sharing_open_with(NULL, 0, NULL, 0);
    gml_address between = sharing_leave_two(lake, BLOCK, 1);
    gml_address borrowed = sharing_take(lake, BLOCK, 2);
    uint64_t released = 0;
    CHECK_OK(gml_lake_trim(lake, &released));
    CHECK_EQ(released, BLOCK);
    CHECK_EQ(sharing_reserved(lake), BLOCK + 2 * MIB);
    sharing_give(lake, borrowed);
    CHECK_OK(gml_lake_trim(lake, &released));
    CHECK_EQ(released, BLOCK);
    uint64_t calls = call_watch_event_calls(lake) + sharing_memory_calls(lake);
    CHECK_OK(gml_lake_trim(lake, &released)); /* nothing to give back: nothing to ask */
    CHECK_EQ(call_watch_event_calls(lake) + sharing_memory_calls(lake), calls);
    sharing_give(lake, between);
    sharing_finish(lake);
}

/* ---- programs that repeat themselves --------------------------------------------------------- */

/* One step of two streams in turn: each needs what the other has just freed. */
static void run_step(gml_lake *lake, uint64_t lag) {
    static const uint64_t sizes[] = {24 * MIB, 6 * MIB, 40 * MIB, 3 * MIB, 17 * MIB + 4096};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    gml_address blocks[SIZES];
    for (gml_stream turn = 0; turn < 6; turn++) {
        gml_stream stream = 1 + turn % 2;
        for (size_t i = 0; i < SIZES; i++) {
            blocks[i] = sharing_take(lake, sizes[(i + turn) % SIZES], stream);
        }
        for (size_t i = 0; i < SIZES; i++) {
            sharing_give(lake, blocks[i * 2 % SIZES]);
        }
        if (turn >= lag) {
            sharing_run(lake, 1 + (turn - lag) % 2);
        }
    }
}

TEST(a_periodic_program_comes_to_make_no_memory_call) {
    enum { WARM_STEPS = 8, STEPS = 40 };
    for (uint64_t lag = 0; lag < 4; lag++) {
        gml_lake *lake = sharing_open(&(sharing_config){.runs_at_once = lag == 0});
        for (int step = 0; step < WARM_STEPS; step++) {
            run_step(lake, lag);
        }
        uint64_t calls = sharing_memory_calls(lake);
        uint64_t reserved = sharing_reserved(lake);
        for (int step = 0; step < STEPS; step++) {
            run_step(lake, lag);
        }
        CHECK_EQ(sharing_memory_calls(lake), calls);
        CHECK_EQ(sharing_reserved(lake), reserved);
        CHECK(reserved <= 128 * MIB); /* 91 MiB of one stream, not of both */
        sharing_finish(lake);
    }
}
