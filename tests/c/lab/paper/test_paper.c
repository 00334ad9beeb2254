/* `gmlake-paper` against the paper: the states of Algorithm 1 one by one, StitchFree, fragLimit,
 * and the driver calls of each. */
#include "paper/paper.h"
#include "support/check.h"
#include "support/harness.h"

#define MIB (UINT64_C(1) << 20)

static const gml_setting no_frag_limit[] = {{"frag_limit", 2 * MIB}};

static test_harness open_harness(uint64_t capacity_bytes, const gml_setting *settings,
                                 size_t setting_count) {
    test_harness harness;
    CHECK_OK(harness_open(&harness, &(harness_config){.driver = "sim",
                                                      .policy = &gml_paper_policy,
                                                      .capacity_bytes = capacity_bytes,
                                                      .settings = settings,
                                                      .setting_count = setting_count}));
    return harness;
}

/* Allocates and checks everything that holds after any allocation. */
static gml_block *take(test_harness *harness, uint64_t size_bytes, gml_stream stream,
                       gml_state state) {
    gml_block *block = NULL;
    CHECK_OK(harness->policy->ops->allocate(harness->policy, size_bytes, stream, &block));
    CHECK_OK(harness->policy->ops->check(harness->policy));
    CHECK_EQ(block->state, state);
    CHECK_EQ(block->requested_bytes, size_bytes);
    CHECK_EQ(block->stream, stream);
    CHECK(block->block_bytes >= size_bytes && block->address % GML_ALIGNMENT == 0);
    CHECK(harness_begin(harness, block));
    CHECK_EQ(harness->policy->reserved_bytes, harness->driver->held_bytes);
    return block;
}

static void give(test_harness *harness, gml_block *block) {
    harness_end(harness, block);
    harness->policy->ops->free(harness->policy, block);
    CHECK_OK(harness->policy->ops->check(harness->policy));
}

static void finish(test_harness *harness) {
    CHECK_OK(harness_destroy_policy(harness));
    CHECK_EQ(harness_leftovers(harness), 0);
    harness_close(harness);
}

static gml_usage usage_of(const test_harness *harness) {
    gml_usage usage;
    harness->policy->ops->usage(harness->policy, &usage);
    return usage;
}

TEST(s1_exact_primitive_makes_no_driver_call) {
    test_harness harness = open_harness(0, no_frag_limit, 1);
    gml_block *block = take(&harness, 7 * MIB, 0, GML_STATE_GROW);
    CHECK_EQ(block->block_bytes, 8 * MIB);
    gml_address address = block->address;
    give(&harness, block);
    uint64_t calls = harness_calls(&harness);
    block = take(&harness, 8 * MIB, 0, GML_STATE_EXACT);
    CHECK_EQ(block->address, address);
    CHECK_EQ(harness_calls(&harness), calls);
    give(&harness, block);
    finish(&harness);
}

TEST(grow_maps_and_opens_each_chunk) {
    test_harness harness = open_harness(0, no_frag_limit, 1);
    (void)take(&harness, 64 * MIB, 0, GML_STATE_GROW);
    CHECK_EQ(harness.driver->calls[GML_CALL_CREATE], 32);
    CHECK_EQ(harness.driver->calls[GML_CALL_RESERVE], 1);
    CHECK_EQ(harness.driver->calls[GML_CALL_MAP], 32);
    CHECK_EQ(harness.driver->calls[GML_CALL_SET_ACCESS], 32);
    CHECK_EQ(harness.policy->reserved_bytes, 64 * MIB);
    finish(&harness);
}

TEST(s2_split_leaves_two_primitives_and_a_view) {
    test_harness harness = open_harness(0, no_frag_limit, 1);
    gml_block *block = take(&harness, 20 * MIB, 0, GML_STATE_GROW);
    gml_address whole = block->address;
    give(&harness, block);
    gml_block *first = take(&harness, 6 * MIB, 0, GML_STATE_SPLIT);
    CHECK(first->address != whole);
    CHECK_EQ(usage_of(&harness).views, 1);
    CHECK_EQ(usage_of(&harness).view_bytes, 20 * MIB);
    gml_block *rest = take(&harness, 14 * MIB, 0, GML_STATE_EXACT);
    CHECK_EQ(harness.policy->reserved_bytes, 20 * MIB);
    /* The view over both halves serves the old size again, once both are idle. */
    give(&harness, first);
    CHECK_EQ(usage_of(&harness).largest_free_bytes, 6 * MIB);
    give(&harness, rest);
    uint64_t calls = harness_calls(&harness);
    block = take(&harness, 20 * MIB, 0, GML_STATE_EXACT);
    CHECK_EQ(block->address, whole);
    CHECK_EQ(harness_calls(&harness), calls);
    finish(&harness);
}

TEST(s2_takes_the_smallest_that_is_large_enough) {
    test_harness harness = open_harness(0, no_frag_limit, 1);
    gml_block *large = take(&harness, 40 * MIB, 0, GML_STATE_GROW);
    gml_block *small = take(&harness, 10 * MIB, 0, GML_STATE_GROW);
    give(&harness, large);
    give(&harness, small);
    (void)take(&harness, 8 * MIB, 0, GML_STATE_SPLIT);
    (void)take(&harness, 40 * MIB, 0, GML_STATE_EXACT);
    (void)take(&harness, 2 * MIB, 0, GML_STATE_EXACT);
    finish(&harness);
}

TEST(s3_stitches_largest_first_and_splits_the_last) {
    test_harness harness = open_harness(0, no_frag_limit, 1);
    gml_block *blocks[3];
    const uint64_t sizes[] = {4 * MIB, 10 * MIB, 6 * MIB};
    for (size_t i = 0; i < 3; i++) {
        blocks[i] = take(&harness, sizes[i], 0, GML_STATE_GROW);
    }
    for (size_t i = 0; i < 3; i++) {
        give(&harness, blocks[i]);
    }
    uint64_t created = harness.driver->calls[GML_CALL_CREATE];
    /* 10 + 6 suffice for 14 when the 6 is cut into 4 and 2; the old 4 is not touched. */
    gml_block *stitched = take(&harness, 14 * MIB, 0, GML_STATE_STITCH);
    CHECK_EQ(harness.driver->calls[GML_CALL_CREATE], created);
    CHECK_EQ(usage_of(&harness).views, 2);
    gml_block *four = take(&harness, 4 * MIB, 0, GML_STATE_EXACT);
    gml_block *two = take(&harness, 2 * MIB, 0, GML_STATE_EXACT);
    CHECK_EQ(harness.policy->reserved_bytes, 20 * MIB);
    give(&harness, stitched);
    give(&harness, four);
    give(&harness, two);
    stitched = take(&harness, 14 * MIB, 0, GML_STATE_EXACT);
    give(&harness, stitched);
    finish(&harness);
}

TEST(s3_new_view_costs_one_reserve_and_a_map_per_chunk) {
    test_harness harness = open_harness(0, no_frag_limit, 1);
    gml_block *a = take(&harness, 10 * MIB, 0, GML_STATE_GROW);
    gml_block *b = take(&harness, 6 * MIB, 0, GML_STATE_GROW);
    give(&harness, a);
    give(&harness, b);
    uint64_t reserves = harness.driver->calls[GML_CALL_RESERVE];
    uint64_t maps = harness.driver->calls[GML_CALL_MAP];
    uint64_t calls = harness_calls(&harness);
    (void)take(&harness, 16 * MIB, 0, GML_STATE_STITCH);
    CHECK_EQ(harness.driver->calls[GML_CALL_RESERVE], reserves + 1);
    CHECK_EQ(harness.driver->calls[GML_CALL_MAP], maps + 8);
    CHECK_EQ(harness_calls(&harness), calls + 1 + 8 + 8);
    finish(&harness);
}

TEST(s4_creates_only_what_is_missing) {
    test_harness harness = open_harness(0, no_frag_limit, 1);
    gml_block *a = take(&harness, 10 * MIB, 0, GML_STATE_GROW);
    give(&harness, a);
    (void)take(&harness, 16 * MIB, 0, GML_STATE_GROW);
    CHECK_EQ(harness.policy->reserved_bytes, 16 * MIB);
    CHECK_EQ(usage_of(&harness).views, 1);
    finish(&harness);
}

TEST(s5_reports_what_cannot_be_had_and_goes_on) {
    test_harness harness = open_harness(32 * MIB, no_frag_limit, 1);
    gml_block *held = take(&harness, 20 * MIB, 0, GML_STATE_GROW);
    gml_block *none = NULL;
    CHECK_STATUS(harness.policy->ops->allocate(harness.policy, 14 * MIB, 0, &none),
                 GML_OUT_OF_MEMORY);
    CHECK(!none && harness.driver->reason[0]);
    CHECK_STATUS(harness.policy->ops->allocate(harness.policy, UINT64_C(1) << 48, 0, &none),
                 GML_OUT_OF_MEMORY);
    CHECK_OK(harness.policy->ops->check(harness.policy));
    CHECK_EQ(harness.policy->reserved_bytes, 20 * MIB);
    give(&harness, held);
    (void)take(&harness, 32 * MIB, 0, GML_STATE_GROW);
    finish(&harness);
}

TEST(idle_memory_of_other_streams_is_given_back_before_refusing) {
    test_harness harness = open_harness(32 * MIB, no_frag_limit, 1);
    give(&harness, take(&harness, 20 * MIB, 1, GML_STATE_GROW));
    (void)take(&harness, 20 * MIB, 2, GML_STATE_GROW);
    CHECK_EQ(harness.policy->reserved_bytes, 20 * MIB);
    finish(&harness);
}

TEST(streams_share_nothing) {
    test_harness harness = open_harness(0, no_frag_limit, 1);
    give(&harness, take(&harness, 20 * MIB, 1, GML_STATE_GROW));
    give(&harness, take(&harness, 4096, 1, GML_STATE_GROW));
    (void)take(&harness, 20 * MIB, UINT64_MAX - 1, GML_STATE_GROW);
    (void)take(&harness, 4096, UINT64_MAX - 1, GML_STATE_GROW);
    CHECK_EQ(harness.policy->reserved_bytes, 44 * MIB);
    finish(&harness);
}

TEST(overlapping_views_block_each_other) {
    test_harness harness = open_harness(0, no_frag_limit, 1);
    gml_block *a = take(&harness, 10 * MIB, 0, GML_STATE_GROW);
    gml_block *b = take(&harness, 8 * MIB, 0, GML_STATE_GROW);
    gml_block *c = take(&harness, 6 * MIB, 0, GML_STATE_GROW);
    give(&harness, a);
    give(&harness, b);
    gml_block *ab = take(&harness, 18 * MIB, 0, GML_STATE_STITCH);
    give(&harness, ab);
    give(&harness, c);
    gml_block *abc = take(&harness, 24 * MIB, 0, GML_STATE_STITCH);
    /* The view over a and b exists, but its memory is in use. */
    ab = take(&harness, 18 * MIB, 0, GML_STATE_GROW);
    CHECK_EQ(harness.policy->reserved_bytes, 42 * MIB);
    give(&harness, abc);
    give(&harness, ab);
    finish(&harness);
}

TEST(frag_limit_keeps_small_blocks_whole) {
    test_harness harness = open_harness(0, NULL, 0); /* the paper's 128 MiB */
    gml_block *large = take(&harness, 256 * MIB, 0, GML_STATE_GROW);
    gml_block *below = take(&harness, 100 * MIB, 0, GML_STATE_GROW);
    give(&harness, below);
    /* A block below the limit is not split, however well it would fit. */
    gml_block *tiny = take(&harness, 4 * MIB, 0, GML_STATE_GROW);
    give(&harness, large);
    /* ... nor stitched. */
    (void)take(&harness, 300 * MIB, 0, GML_STATE_GROW);
    CHECK_EQ(harness.policy->reserved_bytes, 404 * MIB);
    /* One of at least the limit is split, for a small request too. */
    give(&harness, take(&harness, 512 * MIB, 0, GML_STATE_GROW));
    (void)take(&harness, 6 * MIB, 0, GML_STATE_SPLIT);
    give(&harness, tiny);
    finish(&harness);
}

TEST(small_requests_split_and_merge) {
    test_harness harness = open_harness(0, NULL, 0);
    gml_block *a = take(&harness, 1, 0, GML_STATE_GROW);
    CHECK(a->is_small);
    CHECK_EQ(a->block_bytes, 512);
    gml_block *b = take(&harness, MIB, 0, GML_STATE_SPLIT);
    CHECK_EQ(b->address, a->address + 512);
    CHECK_EQ(harness.driver->calls[GML_CALL_MALLOC], 1);
    CHECK_EQ(harness.policy->reserved_bytes, 2 * MIB);
    gml_address address = a->address;
    give(&harness, a);
    a = take(&harness, 300, 0, GML_STATE_EXACT);
    CHECK_EQ(a->address, address);
    give(&harness, a);
    give(&harness, b);
    CHECK_EQ(usage_of(&harness).largest_free_bytes, 2 * MIB);
    gml_block *large = take(&harness, MIB + 1, 0, GML_STATE_GROW);
    CHECK(!large->is_small);
    CHECK_EQ(large->block_bytes, 2 * MIB);
    finish(&harness);
}

TEST(stitch_free_bounds_idle_views_by_last_use) {
    const gml_setting settings[] = {{"frag_limit", 2 * MIB}, {"max_views", 3}};
    test_harness harness = open_harness(0, settings, 2);
    gml_block *parts[12];
    for (size_t i = 0; i < 12; i++) {
        parts[i] = take(&harness, 2 * MIB, 0, GML_STATE_GROW);
    }
    for (size_t i = 0; i < 12; i++) {
        give(&harness, parts[i]);
    }
    /* Stitch 4, 6, 8; use 4 again; then 10 pushes out 6, the least recently used. */
    for (uint64_t size = 4; size <= 8; size += 2) {
        give(&harness, take(&harness, size * MIB, 0, GML_STATE_STITCH));
    }
    give(&harness, take(&harness, 4 * MIB, 0, GML_STATE_EXACT));
    give(&harness, take(&harness, 10 * MIB, 0, GML_STATE_STITCH));
    CHECK_EQ(usage_of(&harness).views, 3);
    give(&harness, take(&harness, 4 * MIB, 0, GML_STATE_EXACT));
    give(&harness, take(&harness, 8 * MIB, 0, GML_STATE_EXACT));
    give(&harness, take(&harness, 6 * MIB, 0, GML_STATE_STITCH));
    CHECK_EQ(usage_of(&harness).views, 3);
    CHECK_EQ(harness.policy->reserved_bytes, 24 * MIB);
    finish(&harness);
}

TEST(stitch_free_bounds_idle_views_by_bytes) {
    const gml_setting settings[] = {{"frag_limit", 2 * MIB}, {"max_view_bytes", 16 * MIB}};
    test_harness harness = open_harness(0, settings, 2);
    gml_block *parts[8];
    for (size_t i = 0; i < 8; i++) {
        parts[i] = take(&harness, 2 * MIB, 0, GML_STATE_GROW);
    }
    for (size_t i = 0; i < 8; i++) {
        give(&harness, parts[i]);
    }
    for (uint64_t size = 4; size <= 12; size += 2) {
        give(&harness, take(&harness, size * MIB, 0, GML_STATE_STITCH));
        CHECK(usage_of(&harness).view_bytes <= 16 * MIB);
    }
    finish(&harness);
}

TEST(views_in_use_are_never_removed) {
    const gml_setting settings[] = {{"frag_limit", 2 * MIB}, {"max_views", 1}};
    test_harness harness = open_harness(0, settings, 2);
    gml_block *parts[6];
    for (size_t i = 0; i < 6; i++) {
        parts[i] = take(&harness, 2 * MIB, 0, GML_STATE_GROW);
    }
    for (size_t i = 0; i < 6; i++) {
        give(&harness, parts[i]);
    }
    gml_block *a = take(&harness, 4 * MIB, 0, GML_STATE_STITCH);
    gml_block *b = take(&harness, 8 * MIB, 0, GML_STATE_STITCH);
    give(&harness, a);
    give(&harness, b);
    finish(&harness);
}

TEST(trim_gives_back_idle_blocks_and_the_views_over_them) {
    test_harness harness = open_harness(0, no_frag_limit, 1);
    gml_block *a = take(&harness, 20 * MIB, 0, GML_STATE_GROW);
    gml_block *keep = take(&harness, 6 * MIB, 0, GML_STATE_GROW);
    gml_block *small = take(&harness, 100, 0, GML_STATE_GROW);
    give(&harness, a);
    gml_block *part = take(&harness, 8 * MIB, 0, GML_STATE_SPLIT);
    uint64_t released_bytes = 0;
    CHECK_OK(harness.policy->ops->trim(harness.policy, &released_bytes));
    CHECK_EQ(released_bytes, 12 * MIB);
    CHECK_EQ(harness.policy->reserved_bytes, 16 * MIB);
    CHECK_EQ(usage_of(&harness).views, 0);
    give(&harness, part);
    give(&harness, keep);
    give(&harness, small);
    CHECK_OK(harness.policy->ops->trim(harness.policy, &released_bytes));
    CHECK_EQ(released_bytes, 16 * MIB);
    CHECK_EQ(harness_leftovers(&harness), 0);
    finish(&harness);
}

/* The old address of a split block may still be in use by queued work: it must stay mapped until
 * the device has been waited for. */
TEST(nothing_is_unmapped_under_pending_work) {
    test_harness harness = open_harness(0, no_frag_limit, 1);
    give(&harness, take(&harness, 20 * MIB, 0, GML_STATE_GROW));
    gml_block *part = take(&harness, 6 * MIB, 0, GML_STATE_SPLIT);
    give(&harness, part);
    uint64_t released_bytes;
    CHECK_OK(harness.policy->ops->trim(harness.policy, &released_bytes));
    finish(&harness);
}

TEST(a_repeated_step_stops_calling_the_driver) {
    static const uint64_t sizes[] = {30, 6, 2, 44, 18, 90, 12, 12, 64, 4};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    test_harness harness = open_harness(0, no_frag_limit, 1);
    uint64_t calls = 0;
    for (size_t step = 0; step < 20; step++) {
        calls = harness_calls(&harness);
        gml_block *blocks[COUNT];
        for (size_t i = 0; i < COUNT; i++) {
            CHECK_OK(harness.policy->ops->allocate(harness.policy, sizes[i] * MIB, 0, &blocks[i]));
            if (i % 3 == 2) {
                harness.policy->ops->free(harness.policy, blocks[i - 1]);
            }
        }
        for (size_t i = 0; i < COUNT; i++) {
            if (i % 3 != 1 || i + 1 >= COUNT) {
                harness.policy->ops->free(harness.policy, blocks[i]);
            }
        }
        CHECK_OK(harness.policy->ops->check(harness.policy));
    }
    CHECK_EQ(harness_calls(&harness), calls);
    finish(&harness);
}

TEST(a_chunk_size_off_the_granularity_is_refused) {
    test_harness harness;
    const gml_setting settings[] = {{"chunk_size", 3 * MIB}};
    CHECK_STATUS(harness_open(&harness, &(harness_config){.driver = "sim",
                                                          .policy = &gml_paper_policy,
                                                          .settings = settings,
                                                          .setting_count = 1}),
                 GML_INVALID_ARGUMENT);
    CHECK(harness.driver->reason[0]);
    harness_close(&harness);
}

static void count_span(void *context, const gml_span_info *span) {
    uint64_t *bytes = context;
    bytes[0] += span->is_view ? 0 : span->size_bytes;
    bytes[1] += span->is_view ? 0 : span->used_bytes;
}

static void count_range(void *context, const gml_range_info *range) {
    uint64_t *bytes = context;
    bytes[2] += range->requested_bytes;
}

TEST(visit_shows_memory_once_and_requests_once) {
    test_harness harness = open_harness(0, no_frag_limit, 1);
    give(&harness, take(&harness, 20 * MIB, 0, GML_STATE_GROW));
    (void)take(&harness, 5 * MIB, 0, GML_STATE_SPLIT);
    (void)take(&harness, 700, 0, GML_STATE_GROW);
    give(&harness, take(&harness, 6 * MIB, 0, GML_STATE_SPLIT));
    (void)take(&harness, 14 * MIB, 0, GML_STATE_EXACT);
    uint64_t bytes[3] = {0};
    harness.policy->ops->visit(harness.policy,
                               &(gml_visitor){bytes, count_span, count_range, NULL, NULL});
    CHECK_EQ(bytes[0], harness.policy->reserved_bytes);
    CHECK_EQ(bytes[1], 20 * MIB + 1024);
    CHECK_EQ(bytes[2], 19 * MIB + 700);
    finish(&harness);
}
