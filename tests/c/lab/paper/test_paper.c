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

TEST(idle_memory_of_other_streams_is_given_back_before_refusing) {
    test_harness harness = open_harness(32 * MIB, no_frag_limit, 1);
    give(&harness, take(&harness, 20 * MIB, 1, GML_STATE_GROW));
    (void)take(&harness, 20 * MIB, 2, GML_STATE_GROW);
    CHECK_EQ(harness.policy->reserved_bytes, 20 * MIB);
    finish(&harness);
}
