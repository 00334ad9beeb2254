/* What one stream frees serves another: when, in which order, and what it costs in driver calls.
 * Streams run by hand, and every hand-over is checked for an order behind it. */
#include "support/call_watch.h"
#include "support/policies.h"
#include "support/sharing.h"

#define BLOCK (64 * MIB)

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

TEST(a_view_serves_its_owner_again_once_its_chunks_are_back) {
    for (int runs_at_once = 0; runs_at_once < 2; runs_at_once++) {
        gml_lake *lake = sharing_open(&(sharing_config){.runs_at_once = runs_at_once});
        gml_address between[PIECES];
        gml_address view = leave_view(lake, between);
        sharing_leave(lake, 8 * MIB, 2); /* one of its ranges */
        /* What the device has done with is taken as a whole. */
        const uint64_t moved_bytes = (runs_at_once ? (uint64_t)PIECES : 1) * 8 * MIB;
        CHECK_EQ(sharing_pair(lake, 1, 2).borrowed_bytes, moved_bytes);
        uint64_t calls = sharing_memory_calls(lake);
        gml_address block = sharing_take(lake, PIECES * 8 * MIB, 1);
        CHECK_EQ(block, view);
        CHECK_EQ(sharing_memory_calls(lake), calls);
        CHECK_EQ(sharing_pair(lake, 2, 1).borrowed_bytes, moved_bytes);
        CHECK_EQ(sharing_count(lake).waits, runs_at_once ? 0 : 2);
        sharing_give(lake, block);
        give_between(lake, between);
        sharing_finish(lake);
    }
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
