/* Each piece of host memory that a state of a private pool takes is refused once: nothing changes
 * then, and nothing is lost. */
#include "lake/lake.h"
#include "support/contract.h"
#include "support/host_memory.h"

#define MIB (UINT64_C(1) << 20)

enum { SMALL = 200, LARGE = 150, OTHERS = 500, STREAMS = 100, VIEWS = 160 };

static const gml_pool_id GRAPH = {1, 7};

typedef struct pool_test {
    gml_lake *lake;
    gml_address small[SMALL], large[LARGE], view;
} pool_test;

static gml_address take_on(gml_lake *lake, uint64_t size_bytes, gml_stream stream) {
    gml_address address = 0;
    CHECK_OK(gml_lake_allocate_in(lake, GRAPH, size_bytes, stream, &address));
    return address;
}

static gml_address take_in(gml_lake *lake, uint64_t size_bytes) {
    return take_on(lake, size_bytes, 1);
}

/* Small blocks, large ones, and a view over two holes between them. */
static void open_test(pool_test *test) {
    test->lake = lake_open_unchecked(0); /* the checker asks for memory, too */
    CHECK_OK(gml_lake_hold_pool(test->lake, GRAPH));
    for (size_t i = 0; i < SMALL; i++) {
        test->small[i] = take_in(test->lake, 600 * (i + 1));
    }
    for (size_t i = 0; i < LARGE; i++) {
        test->large[i] = take_in(test->lake, 2 * MIB);
    }
    lake_give(test->lake, test->large[1]);
    lake_give(test->lake, test->large[3]);
    test->view = take_in(test->lake, 4 * MIB);
}

static void free_all(pool_test *test) {
    for (size_t i = 0; i < SMALL; i++) {
        lake_give(test->lake, test->small[i]);
    }
    for (size_t i = 0; i < LARGE; i++) {
        if (i != 1 && i != 3) {
            lake_give(test->lake, test->large[i]);
        }
    }
    lake_give(test->lake, test->view);
}

/* Takes what host memory was given back: for views, for free memory of many streams, and for blocks
 * that are no pool's. */
static void use_up(gml_lake *lake, gml_address others[OTHERS]) {
    gml_address row[5];
    for (size_t i = 0; i < 5; i++) {
        row[i] = take_on(lake, 2 * MIB, 2);
    }
    lake_give(lake, row[1]);
    lake_give(lake, row[3]);
    for (size_t i = 1; i <= VIEWS; i++) {
        lake_give(lake, take_on(lake, 4 * MIB - 512 * i, 2));
    }
    for (gml_stream stream = 3; stream < STREAMS; stream++) {
        lake_give(lake, take_on(lake, 2 * MIB, stream));
    }
    for (size_t i = 0; i < OTHERS; i++) {
        others[i] = lake_take(lake, 600, 1);
    }
}

static void count(void *context, bool is_new, gml_address address) {
    (void)address;
    ((size_t *)context)[is_new]++;
}

/* Whether a call with that piece refused went well; how many pieces it asked for is in `asked`. */
static bool restore_refused(const pool_test *test, const gml_pool_state *state, uint64_t which) {
    size_t told[2] = {0, 0};
    gml_stats before = lake_stats_of(test->lake);
    asked = 0;
    refused_one = which;
    is_armed = true;
    gml_status status = gml_lake_restore_pool(test->lake, state, count, told);
    is_armed = false;
    gml_stats after = lake_stats_of(test->lake);
    CHECK_OK(gml_lake_check(test->lake));
    if (status == GML_OK) {
        CHECK_EQ(told[true], SMALL + LARGE - 1);
        CHECK_EQ(after.live_blocks - before.live_blocks, told[true] - told[false]);
    } else {
        CHECK_STATUS(status, GML_NO_HOST_MEMORY);
        CHECK_EQ(told[false] + told[true], 0);
        CHECK_EQ(after.live_blocks, before.live_blocks);
        CHECK_EQ(after.frees, before.frees);
    }
    return status == GML_OK;
}

TEST(each_piece_of_a_restore_is_refused) {
    contract_policy = "stitch";
    contract_driver = "sim";
    bool is_done = false;
    uint64_t refused = 0;
    CHECK_OK(
        gml_lake_close(lake_open_unchecked(0))); /* the first one takes what the process keeps */
    for (uint64_t which = 1; !is_done; which++) {
        int64_t before = host_pieces;
        pool_test test;
        gml_pool_state *state = NULL;
        open_test(&test);
        CHECK_OK(gml_lake_save_pool(test.lake, GRAPH, &state));
        free_all(&test);
        gml_address others[OTHERS];
        use_up(test.lake, others);
        is_done = restore_refused(&test, state, which);
        if (!is_done) {
            refused++;
            CHECK(restore_refused(&test, state, 0));
        }
        free_all(&test);
        for (size_t i = 0; i < OTHERS; i++) {
            lake_give(test.lake, others[i]);
        }
        gml_pool_state_free(state);
        CHECK_OK(gml_lake_release_pool(test.lake, GRAPH));
        lake_finish(test.lake);
        CHECK_EQ(host_pieces, before);
    }
    CHECK(refused >= 5); /* two lists, the table, extents, placements */
}

TEST(each_piece_of_a_save_is_refused) {
    contract_policy = "stitch";
    contract_driver = "sim";
    pool_test test;
    gml_pool_state *state = NULL;
    open_test(&test);
    for (uint64_t which = 1; !state; which++) {
        asked = 0;
        refused_one = which;
        is_armed = true;
        gml_status status = gml_lake_save_pool(test.lake, GRAPH, &state);
        is_armed = false;
        CHECK(status == GML_OK || (status == GML_NO_HOST_MEMORY && !state));
        CHECK(status == GML_OK || which <= 2);
        CHECK_OK(gml_lake_check(test.lake));
    }
    free_all(&test);
    CHECK(restore_refused(&test, state, 0));
    free_all(&test);
    gml_pool_state_free(state);
    CHECK_OK(gml_lake_release_pool(test.lake, GRAPH));
    lake_finish(test.lake);
}
