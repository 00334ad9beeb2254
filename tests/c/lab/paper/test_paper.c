/* `gmlake-paper` against the paper: the states of Algorithm 1 one by one, StitchFree, fragLimit,
 * and the driver calls of each. */
#include "paper/paper.h"
#include "support/check.h"
#include "support/rig.h"

#define MIB (UINT64_C(1) << 20)

static const gml_setting no_frag_limit[] = {{"frag_limit", 2 * MIB}};

static test_rig
open_rig(uint64_t capacity_bytes, const gml_setting *settings, size_t setting_count)
{
    test_rig rig;
    CHECK_OK(rig_open(&rig, &(rig_config){.driver = "sim",
                                          .policy = &gml_paper_policy,
                                          .capacity_bytes = capacity_bytes,
                                          .settings = settings,
                                          .setting_count = setting_count}));
    return rig;
}

/* Allocates and checks everything that holds after any allocation. */
static gml_block *
take(test_rig *rig, uint64_t size_bytes, gml_stream stream, gml_state state)
{
    gml_block *block = NULL;
    CHECK_OK(rig->policy->ops->allocate(rig->policy, size_bytes, stream, &block));
    CHECK_OK(rig->policy->ops->check(rig->policy));
    CHECK_EQ(block->state, state);
    CHECK_EQ(block->requested_bytes, size_bytes);
    CHECK_EQ(block->stream, stream);
    CHECK(block->block_bytes >= size_bytes && block->address % GML_ALIGNMENT == 0);
    CHECK(shadow_begin(rig->shadow, block->address, block->block_bytes, stream));
    CHECK_EQ(rig->policy->reserved_bytes, shadow_count(rig->shadow).held_bytes);
    return block;
}

static void
give(test_rig *rig, gml_block *block)
{
    CHECK(shadow_end(rig->shadow, block->address, block->block_bytes, block->stream));
    rig->policy->ops->free(rig->policy, block);
    CHECK_OK(rig->policy->ops->check(rig->policy));
}

static void
finish(test_rig *rig)
{
    CHECK_OK(rig_destroy_policy(rig));
    CHECK_EQ(rig_leftovers(rig), 0);
    CHECK(!shadow_breach(rig->shadow)[0]);
    rig_close(rig);
}

static gml_usage
usage_of(const test_rig *rig)
{
    gml_usage usage;
    rig->policy->ops->usage(rig->policy, &usage);
    return usage;
}

TEST(s1_exact_primitive_makes_no_driver_call)
{
    test_rig rig = open_rig(0, no_frag_limit, 1);
    gml_block *block = take(&rig, 7 * MIB, 0, GML_STATE_GROW);
    CHECK_EQ(block->block_bytes, 8 * MIB);
    gml_address address = block->address;
    give(&rig, block);
    uint64_t calls = rig_calls(&rig);
    block = take(&rig, 8 * MIB, 0, GML_STATE_EXACT);
    CHECK_EQ(block->address, address);
    CHECK_EQ(rig_calls(&rig), calls);
    give(&rig, block);
    finish(&rig);
}

TEST(grow_maps_and_opens_each_chunk)
{
    test_rig rig = open_rig(0, no_frag_limit, 1);
    (void)take(&rig, 64 * MIB, 0, GML_STATE_GROW);
    CHECK_EQ(rig.driver->calls[GML_CALL_CREATE], 32);
    CHECK_EQ(rig.driver->calls[GML_CALL_RESERVE], 1);
    CHECK_EQ(rig.driver->calls[GML_CALL_MAP], 32);
    CHECK_EQ(rig.driver->calls[GML_CALL_SET_ACCESS], 32);
    CHECK_EQ(rig.policy->reserved_bytes, 64 * MIB);
    finish(&rig);
}

TEST(s2_split_leaves_two_primitives_and_a_view)
{
    test_rig rig = open_rig(0, no_frag_limit, 1);
    gml_block *block = take(&rig, 20 * MIB, 0, GML_STATE_GROW);
    gml_address whole = block->address;
    give(&rig, block);
    gml_block *first = take(&rig, 6 * MIB, 0, GML_STATE_SPLIT);
    CHECK(first->address != whole);
    CHECK_EQ(usage_of(&rig).views, 1);
    CHECK_EQ(usage_of(&rig).view_bytes, 20 * MIB);
    gml_block *rest = take(&rig, 14 * MIB, 0, GML_STATE_EXACT);
    CHECK_EQ(rig.policy->reserved_bytes, 20 * MIB);
    /* The view over both halves serves the old size again, once both are idle. */
    give(&rig, first);
    CHECK_EQ(usage_of(&rig).largest_free_bytes, 6 * MIB);
    give(&rig, rest);
    uint64_t calls = rig_calls(&rig);
    block = take(&rig, 20 * MIB, 0, GML_STATE_EXACT);
    CHECK_EQ(block->address, whole);
    CHECK_EQ(rig_calls(&rig), calls);
    finish(&rig);
}

TEST(s2_takes_the_smallest_that_is_large_enough)
{
    test_rig rig = open_rig(0, no_frag_limit, 1);
    gml_block *large = take(&rig, 40 * MIB, 0, GML_STATE_GROW);
    gml_block *small = take(&rig, 10 * MIB, 0, GML_STATE_GROW);
    give(&rig, large);
    give(&rig, small);
    (void)take(&rig, 8 * MIB, 0, GML_STATE_SPLIT);
    (void)take(&rig, 40 * MIB, 0, GML_STATE_EXACT);
    (void)take(&rig, 2 * MIB, 0, GML_STATE_EXACT);
    finish(&rig);
}

TEST(s3_stitches_largest_first_and_splits_the_last)
{
    test_rig rig = open_rig(0, no_frag_limit, 1);
    gml_block *blocks[3];
    const uint64_t sizes[] = {4 * MIB, 10 * MIB, 6 * MIB};
    for (size_t i = 0; i < 3; i++) {
        blocks[i] = take(&rig, sizes[i], 0, GML_STATE_GROW);
    }
    for (size_t i = 0; i < 3; i++) {
        give(&rig, blocks[i]);
    }
    uint64_t created = rig.driver->calls[GML_CALL_CREATE];
    /* 10 + 6 suffice for 14 when the 6 is cut into 4 and 2; the old 4 is not touched. */
    gml_block *stitched = take(&rig, 14 * MIB, 0, GML_STATE_STITCH);
    CHECK_EQ(rig.driver->calls[GML_CALL_CREATE], created);
    CHECK_EQ(usage_of(&rig).views, 2);
    gml_block *four = take(&rig, 4 * MIB, 0, GML_STATE_EXACT);
    gml_block *two = take(&rig, 2 * MIB, 0, GML_STATE_EXACT);
    CHECK_EQ(rig.policy->reserved_bytes, 20 * MIB);
    give(&rig, stitched);
    give(&rig, four);
    give(&rig, two);
    stitched = take(&rig, 14 * MIB, 0, GML_STATE_EXACT);
    give(&rig, stitched);
    finish(&rig);
}

TEST(s3_new_view_costs_one_reserve_and_a_map_per_chunk)
{
    test_rig rig = open_rig(0, no_frag_limit, 1);
    gml_block *a = take(&rig, 10 * MIB, 0, GML_STATE_GROW);
    gml_block *b = take(&rig, 6 * MIB, 0, GML_STATE_GROW);
    give(&rig, a);
    give(&rig, b);
    uint64_t reserves = rig.driver->calls[GML_CALL_RESERVE];
    uint64_t maps = rig.driver->calls[GML_CALL_MAP];
    uint64_t calls = rig_calls(&rig);
    (void)take(&rig, 16 * MIB, 0, GML_STATE_STITCH);
    CHECK_EQ(rig.driver->calls[GML_CALL_RESERVE], reserves + 1);
    CHECK_EQ(rig.driver->calls[GML_CALL_MAP], maps + 8);
    CHECK_EQ(rig_calls(&rig), calls + 1 + 8 + 8);
    finish(&rig);
}

TEST(s4_creates_only_what_is_missing)
{
    test_rig rig = open_rig(0, no_frag_limit, 1);
    gml_block *a = take(&rig, 10 * MIB, 0, GML_STATE_GROW);
    give(&rig, a);
    (void)take(&rig, 16 * MIB, 0, GML_STATE_GROW);
    CHECK_EQ(rig.policy->reserved_bytes, 16 * MIB);
    CHECK_EQ(usage_of(&rig).views, 1);
    finish(&rig);
}

TEST(s5_reports_what_cannot_be_had_and_goes_on)
{
    test_rig rig = open_rig(32 * MIB, no_frag_limit, 1);
    gml_block *held = take(&rig, 20 * MIB, 0, GML_STATE_GROW);
    gml_block *none = NULL;
    CHECK_STATUS(rig.policy->ops->allocate(rig.policy, 14 * MIB, 0, &none), GML_OUT_OF_MEMORY);
    CHECK(!none && rig.driver->reason[0]);
    CHECK_STATUS(rig.policy->ops->allocate(rig.policy, UINT64_C(1) << 48, 0, &none),
                 GML_OUT_OF_MEMORY);
    CHECK_OK(rig.policy->ops->check(rig.policy));
    CHECK_EQ(rig.policy->reserved_bytes, 20 * MIB);
    give(&rig, held);
    (void)take(&rig, 32 * MIB, 0, GML_STATE_GROW);
    finish(&rig);
}

TEST(idle_memory_of_other_streams_is_given_back_before_refusing)
{
    test_rig rig = open_rig(32 * MIB, no_frag_limit, 1);
    give(&rig, take(&rig, 20 * MIB, 1, GML_STATE_GROW));
    (void)take(&rig, 20 * MIB, 2, GML_STATE_GROW);
    CHECK_EQ(rig.policy->reserved_bytes, 20 * MIB);
    finish(&rig);
}

TEST(streams_share_nothing)
{
    test_rig rig = open_rig(0, no_frag_limit, 1);
    give(&rig, take(&rig, 20 * MIB, 1, GML_STATE_GROW));
    give(&rig, take(&rig, 4096, 1, GML_STATE_GROW));
    (void)take(&rig, 20 * MIB, UINT64_MAX, GML_STATE_GROW);
    (void)take(&rig, 4096, UINT64_MAX, GML_STATE_GROW);
    CHECK_EQ(rig.policy->reserved_bytes, 44 * MIB);
    finish(&rig);
}

TEST(overlapping_views_block_each_other)
{
    test_rig rig = open_rig(0, no_frag_limit, 1);
    gml_block *a = take(&rig, 10 * MIB, 0, GML_STATE_GROW);
    gml_block *b = take(&rig, 8 * MIB, 0, GML_STATE_GROW);
    gml_block *c = take(&rig, 6 * MIB, 0, GML_STATE_GROW);
    give(&rig, a);
    give(&rig, b);
    gml_block *ab = take(&rig, 18 * MIB, 0, GML_STATE_STITCH);
    give(&rig, ab);
    give(&rig, c);
    gml_block *abc = take(&rig, 24 * MIB, 0, GML_STATE_STITCH);
    /* The view over a and b exists, but its memory is in use. */
    ab = take(&rig, 18 * MIB, 0, GML_STATE_GROW);
    CHECK_EQ(rig.policy->reserved_bytes, 42 * MIB);
    give(&rig, abc);
    give(&rig, ab);
    finish(&rig);
}

TEST(frag_limit_keeps_small_blocks_whole)
{
    test_rig rig = open_rig(0, NULL, 0); /* the paper's 128 MiB */
    gml_block *large = take(&rig, 256 * MIB, 0, GML_STATE_GROW);
    gml_block *below = take(&rig, 100 * MIB, 0, GML_STATE_GROW);
    give(&rig, below);
    /* A block below the limit is not split, however well it would fit. */
    gml_block *tiny = take(&rig, 4 * MIB, 0, GML_STATE_GROW);
    give(&rig, large);
    /* ... nor stitched. */
    (void)take(&rig, 300 * MIB, 0, GML_STATE_GROW);
    CHECK_EQ(rig.policy->reserved_bytes, 404 * MIB);
    /* One of at least the limit is split, for a small request too. */
    give(&rig, take(&rig, 512 * MIB, 0, GML_STATE_GROW));
    (void)take(&rig, 6 * MIB, 0, GML_STATE_SPLIT);
    give(&rig, tiny);
    finish(&rig);
}

TEST(small_requests_split_and_merge)
{
    test_rig rig = open_rig(0, NULL, 0);
    gml_block *a = take(&rig, 1, 0, GML_STATE_GROW);
    CHECK(a->is_small);
    CHECK_EQ(a->block_bytes, 512);
    gml_block *b = take(&rig, MIB, 0, GML_STATE_SPLIT);
    CHECK_EQ(b->address, a->address + 512);
    CHECK_EQ(rig.driver->calls[GML_CALL_MALLOC], 1);
    CHECK_EQ(rig.policy->reserved_bytes, 2 * MIB);
    gml_address address = a->address;
    give(&rig, a);
    a = take(&rig, 300, 0, GML_STATE_EXACT);
    CHECK_EQ(a->address, address);
    give(&rig, a);
    give(&rig, b);
    CHECK_EQ(usage_of(&rig).largest_free_bytes, 2 * MIB);
    gml_block *large = take(&rig, MIB + 1, 0, GML_STATE_GROW);
    CHECK(!large->is_small);
    CHECK_EQ(large->block_bytes, 2 * MIB);
    finish(&rig);
}

TEST(stitch_free_bounds_idle_views_by_last_use)
{
    const gml_setting settings[] = {{"frag_limit", 2 * MIB}, {"max_views", 3}};
    test_rig rig = open_rig(0, settings, 2);
    gml_block *parts[12];
    for (size_t i = 0; i < 12; i++) {
        parts[i] = take(&rig, 2 * MIB, 0, GML_STATE_GROW);
    }
    for (size_t i = 0; i < 12; i++) {
        give(&rig, parts[i]);
    }
    /* Stitch 4, 6, 8; use 4 again; then 10 pushes out 6, the least recently used. */
    for (uint64_t size = 4; size <= 8; size += 2) {
        give(&rig, take(&rig, size * MIB, 0, GML_STATE_STITCH));
    }
    give(&rig, take(&rig, 4 * MIB, 0, GML_STATE_EXACT));
    give(&rig, take(&rig, 10 * MIB, 0, GML_STATE_STITCH));
    CHECK_EQ(usage_of(&rig).views, 3);
    give(&rig, take(&rig, 4 * MIB, 0, GML_STATE_EXACT));
    give(&rig, take(&rig, 8 * MIB, 0, GML_STATE_EXACT));
    give(&rig, take(&rig, 6 * MIB, 0, GML_STATE_STITCH));
    CHECK_EQ(usage_of(&rig).views, 3);
    CHECK_EQ(rig.policy->reserved_bytes, 24 * MIB);
    finish(&rig);
}

TEST(stitch_free_bounds_idle_views_by_bytes)
{
    const gml_setting settings[] = {{"frag_limit", 2 * MIB}, {"max_view_bytes", 16 * MIB}};
    test_rig rig = open_rig(0, settings, 2);
    gml_block *parts[8];
    for (size_t i = 0; i < 8; i++) {
        parts[i] = take(&rig, 2 * MIB, 0, GML_STATE_GROW);
    }
    for (size_t i = 0; i < 8; i++) {
        give(&rig, parts[i]);
    }
    for (uint64_t size = 4; size <= 12; size += 2) {
        give(&rig, take(&rig, size * MIB, 0, GML_STATE_STITCH));
        CHECK(usage_of(&rig).view_bytes <= 16 * MIB);
    }
    finish(&rig);
}

TEST(views_in_use_are_never_removed)
{
    const gml_setting settings[] = {{"frag_limit", 2 * MIB}, {"max_views", 1}};
    test_rig rig = open_rig(0, settings, 2);
    gml_block *parts[6];
    for (size_t i = 0; i < 6; i++) {
        parts[i] = take(&rig, 2 * MIB, 0, GML_STATE_GROW);
    }
    for (size_t i = 0; i < 6; i++) {
        give(&rig, parts[i]);
    }
    gml_block *a = take(&rig, 4 * MIB, 0, GML_STATE_STITCH);
    gml_block *b = take(&rig, 8 * MIB, 0, GML_STATE_STITCH);
    CHECK(shadow_use(rig.shadow, a->address, a->block_bytes, 0));
    give(&rig, a);
    give(&rig, b);
    finish(&rig);
}

TEST(trim_gives_back_idle_blocks_and_the_views_over_them)
{
    test_rig rig = open_rig(0, no_frag_limit, 1);
    gml_block *a = take(&rig, 20 * MIB, 0, GML_STATE_GROW);
    gml_block *keep = take(&rig, 6 * MIB, 0, GML_STATE_GROW);
    gml_block *small = take(&rig, 100, 0, GML_STATE_GROW);
    give(&rig, a);
    gml_block *part = take(&rig, 8 * MIB, 0, GML_STATE_SPLIT);
    uint64_t released_bytes = 0;
    CHECK_OK(rig.policy->ops->trim(rig.policy, &released_bytes));
    CHECK_EQ(released_bytes, 12 * MIB);
    CHECK_EQ(rig.policy->reserved_bytes, 16 * MIB);
    CHECK_EQ(usage_of(&rig).views, 0);
    CHECK(shadow_use(rig.shadow, part->address, part->block_bytes, 0));
    give(&rig, part);
    give(&rig, keep);
    give(&rig, small);
    CHECK_OK(rig.policy->ops->trim(rig.policy, &released_bytes));
    CHECK_EQ(released_bytes, 16 * MIB);
    CHECK_EQ(rig_leftovers(&rig), 0);
    finish(&rig);
}

/* The old address of a split block may still be in use by queued work: it must stay mapped until
 * the device has been waited for. */
TEST(nothing_is_unmapped_under_pending_work)
{
    test_rig rig = open_rig(0, no_frag_limit, 1);
    give(&rig, take(&rig, 20 * MIB, 0, GML_STATE_GROW));
    gml_block *part = take(&rig, 6 * MIB, 0, GML_STATE_SPLIT);
    CHECK(!shadow_breach(rig.shadow)[0]);
    give(&rig, part);
    uint64_t released_bytes;
    CHECK_OK(rig.policy->ops->trim(rig.policy, &released_bytes));
    CHECK(!shadow_breach(rig.shadow)[0]);
    finish(&rig);
}

TEST(a_repeated_step_stops_calling_the_driver)
{
    static const uint64_t sizes[] = {30, 6, 2, 44, 18, 90, 12, 12, 64, 4};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    test_rig rig = open_rig(0, no_frag_limit, 1);
    uint64_t calls = 0;
    for (size_t step = 0; step < 20; step++) {
        calls = rig_calls(&rig);
        gml_block *blocks[COUNT];
        for (size_t i = 0; i < COUNT; i++) {
            CHECK_OK(rig.policy->ops->allocate(rig.policy, sizes[i] * MIB, 0, &blocks[i]));
            if (i % 3 == 2) {
                rig.policy->ops->free(rig.policy, blocks[i - 1]);
            }
        }
        for (size_t i = 0; i < COUNT; i++) {
            if (i % 3 != 1 || i + 1 >= COUNT) {
                rig.policy->ops->free(rig.policy, blocks[i]);
            }
        }
        CHECK_OK(rig.policy->ops->check(rig.policy));
    }
    CHECK_EQ(rig_calls(&rig), calls);
    finish(&rig);
}

TEST(a_chunk_size_off_the_granularity_is_refused)
{
    test_rig rig;
    const gml_setting settings[] = {{"chunk_size", 3 * MIB}};
    CHECK_STATUS(rig_open(&rig, &(rig_config){.driver = "sim",
                                              .policy = &gml_paper_policy,
                                              .settings = settings,
                                              .setting_count = 1}),
                 GML_INVALID_ARGUMENT);
    CHECK(rig.driver->reason[0]);
    rig_close(&rig);
}

static void
count_span(void *context, const gml_span_info *span)
{
    uint64_t *bytes = context;
    bytes[0] += span->is_view ? 0 : span->size_bytes;
    bytes[1] += span->is_view ? 0 : span->used_bytes;
}

static void
count_range(void *context, const gml_range_info *range)
{
    uint64_t *bytes = context;
    bytes[2] += range->requested_bytes;
}

TEST(visit_shows_memory_once_and_requests_once)
{
    test_rig rig = open_rig(0, no_frag_limit, 1);
    give(&rig, take(&rig, 20 * MIB, 0, GML_STATE_GROW));
    (void)take(&rig, 5 * MIB, 0, GML_STATE_SPLIT);
    (void)take(&rig, 700, 0, GML_STATE_GROW);
    give(&rig, take(&rig, 6 * MIB, 0, GML_STATE_SPLIT));
    (void)take(&rig, 14 * MIB, 0, GML_STATE_EXACT);
    uint64_t bytes[3] = {0};
    rig.policy->ops->visit(rig.policy, &(gml_visitor){bytes, count_span, count_range, NULL});
    CHECK_EQ(bytes[0], rig.policy->reserved_bytes);
    CHECK_EQ(bytes[1], 20 * MIB + 1024);
    CHECK_EQ(bytes[2], 19 * MIB + 700);
    finish(&rig);
}
