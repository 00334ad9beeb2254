/* The policy `caching`: every rule of PyTorch's allocator that decides an address or a statistic.
 */
#include "driver/backends.h"
#include "policy/torch/heap.h"
#include "support/policy_fixture.h"

#include <stdlib.h>
#include <string.h>

/* ---- giving memory back ---------------------------------------------------------------------- */

TEST(full_memory_is_flushed_and_asked_again) {
    fixture f = fixture_of(&gml_caching_policy);
    f.capacity_bytes = 100 * MIB;
    fixture_start(&f);
    give(&f, get(&f, 40 * MIB, 0));
    give(&f, get(&f, 40 * MIB, 1)); /* of another stream: no use to stream 0 */
    gml_block *live = get(&f, 20 * MIB, 2);
    gml_block *block = get(&f, 80 * MIB, 0);
    CHECK_EQ(block->state, GML_STATE_GROW);
    gml_torch_stats stats = stats_of(&f);
    CHECK_EQ(stats.num_alloc_retries, 1);
    CHECK_EQ(stats.num_sync_all_streams, 1);
    CHECK_EQ(stats.num_device_free, 2);
    CHECK_EQ(f.policy->reserved_bytes, 100 * MIB);
    gml_block *refused = NULL;
    CHECK_STATUS(f.policy->ops->allocate(f.policy, 512, 0, &refused), GML_OUT_OF_MEMORY);
    CHECK(refused == NULL);
    CHECK_EQ(stats_of(&f).num_alloc_retries, 2);
    is_sound(&f);
    give(&f, live);
    CHECK_EQ(get(&f, 512, 5)->state, GML_STATE_GROW);
    fixture_stop(&f);
}

/* A block of which the program let go while another stream used it. */
typedef struct late_free {
    gml_policy *policy;
    gml_block *block;
} late_free;

static void free_late(void *context) {
    late_free *late = context;
    if (late->block) {
        late->policy->ops->free(late->policy, late->block);
        late->block = NULL;
    }
}

TEST(frees_that_wait_are_finished_after_the_search) {
    fixture f = fixture_of(&gml_caching_policy);
    f.capacity_bytes = 100 * MIB;
    fixture_start(&f);
    gml_block *low = get(&f, 30 * MIB, 0);
    late_free late = {f.policy, low};
    gml_block *live = get(&f, 30 * MIB, 0);
    f.policy->finish_frees = free_late;
    f.policy->finish_context = &late;
    gml_block *block = get(&f, 40 * MIB, 0);
    CHECK(late.block == low); /* there was room without it */
    give(&f, block);
    block = get(&f, 30 * MIB, 1);
    CHECK(late.block == NULL);
    CHECK_EQ(block->state, GML_STATE_GROW);
    CHECK_EQ(stats_of(&f).num_device_free, 2); /* the one of 30 MiB went back as well */
    CHECK_EQ(f.policy->reserved_bytes, 60 * MIB);
    late.block = live;
    CHECK_OK(f.policy->ops->trim(f.policy, NULL));
    CHECK_EQ(f.policy->reserved_bytes, 30 * MIB);
    fixture_stop(&f);
}

TEST(several_oversize_blocks_are_released_from_the_largest) {
    fixture f = fixture_of(&gml_caching_policy);
    f.capacity_bytes = 300 * MIB;
    f.knobs.max_split_size = 40 * MIB;
    fixture_start(&f);
    gml_block *cached[4];
    const uint64_t sizes[4] = {30 * MIB, 60 * MIB, 80 * MIB, 100 * MIB};
    for (int i = 0; i < 4; i++) {
        cached[i] = get(&f, sizes[i], 0);
    }
    for (int i = 0; i < 4; i++) {
        give(&f, cached[i]);
    }
    CHECK_EQ(get(&f, 170 * MIB, 0)->state, GML_STATE_GROW); /* 100 and 80 go, 60 and 30 stay */
    CHECK_EQ(f.policy->reserved_bytes, (30 + 60 + 170) * MIB);
    CHECK_EQ(stats_of(&f).num_alloc_retries, 0);
    fixture_stop(&f);
}

TEST(garbage_collection_frees_old_blocks) {
    fixture f = fixture_of(&gml_caching_policy);
    f.capacity_bytes = 200 * MIB;
    f.knobs.garbage_collection_percent = 50;
    fixture_start(&f);
    give(&f, get(&f, 30 * MIB, 0));
    get(&f, 32 * MIB, 0);
    give(&f, get(&f, 4096, 0));
    for (int i = 0; i < 10; i++) { /* ages count searches of the large pool, of any stream */
        give(&f, get(&f, 20 * MIB, 1));
    }
    give(&f, get(&f, 50 * MIB, 0));
    CHECK_EQ(f.policy->reserved_bytes, 134 * MIB); /* 34 MiB above the threshold */
    get(&f, 60 * MIB, 0);
    /* Ages are 13, 2 and 1: the first pass, from their average on, frees the 30 MiB. The second,
     * from the average of 2 and 1 on, frees the 20 MiB. */
    gml_torch_stats stats = stats_of(&f);
    CHECK_EQ(stats.num_device_free, 2);
    CHECK_EQ(f.policy->reserved_bytes, (134 - 30 - 20 + 60) * MIB);
    CHECK_EQ(stats.num_alloc_retries, 0);
    CHECK_EQ(get(&f, 50 * MIB, 0)->state, GML_STATE_EXACT);
    fixture_stop(&f);
}

/* ---- statistics ------------------------------------------------------------------------------ */

TEST(check_notices_damage) {
    fixture f = fixture_of(&gml_caching_policy);
    fixture_start(&f);
    gml_torch_block *block = (gml_torch_block *)get(&f, 5 * MIB, 0);
    gml_torch_heap *heap = (gml_torch_heap *)f.policy;
    is_sound(&f);
    uint64_t *const numbers[] = {
        &heap->stats.active[GML_POOL_ALL].current,
        &heap->stats.inactive_split_bytes[GML_POOL_LARGE].current,
        &heap->stats.segment[GML_POOL_SMALL].current,
        &heap->base.reserved_bytes,
        &block->base.block_bytes,
        &block->next->base.address,
        &block->next->node.size_bytes,
        &block->base.requested_bytes,
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        *numbers[i] += 512 * MIB;
        CHECK_STATUS(f.policy->ops->check(f.policy), GML_CORRUPT);
        *numbers[i] -= 512 * MIB;
    }
    block->use = GML_TORCH_FREE;
    CHECK_STATUS(f.policy->ops->check(f.policy), GML_CORRUPT);
    block->use = GML_TORCH_LIVE;
    block->next->prev = NULL;
    CHECK_STATUS(f.policy->ops->check(f.policy), GML_CORRUPT);
    block->next->prev = block;
    fixture_stop(&f);
}

/* ---- what others see ------------------------------------------------------------------------- */

TEST(create_refuses_an_odd_segment_size) {
    fixture f = fixture_of(&gml_caching_policy);
    char reason[GML_REASON_BYTES];
    CHECK_OK(gml_model_driver_open(GML_MODEL_SIM, 0, 0, &f.driver, reason, sizeof reason));
    f.knobs.large_segment_size = 20 * MIB + 100;
    CHECK_STATUS(gml_caching_policy.create(f.driver, 0, &f.knobs, &f.policy), GML_INVALID_ARGUMENT);
    CHECK(strstr(f.driver->reason, "large_segment_size"));
    gml_driver_close(f.driver);
}

/* ---- random work ----------------------------------------------------------------------------- */

TEST(random_work_keeps_every_invariant) {
    for (uint64_t seed = 1; seed <= 4; seed++) {
        fixture f = fixture_of(&gml_caching_policy);
        f.capacity_bytes = seed % 2 ? 0 : GIB;
        f.knobs.max_split_size = seed > 2 ? 30 * MIB : UINT64_MAX;
        f.knobs.garbage_collection_percent = seed == 4 ? 60 : 0;
        fixture_start(&f);
        uint64_t refused = fixture_work(&f, seed, 20000, 50);
        CHECK(f.capacity_bytes ? refused > 0 : refused == 0);
        CHECK_OK(f.policy->ops->trim(f.policy, NULL));
        CHECK_EQ(f.policy->reserved_bytes, 0);
        fixture_stop(&f);
    }
}

TEST(a_repeated_step_makes_no_driver_call) {
    fixture f = fixture_of(&gml_caching_policy);
    f.never_trims = true;
    fixture_start(&f);
    fixture_work(&f, 5, 90, 10);
    uint64_t calls = 0;
    for (int repeat = 0; repeat < 3; repeat++) {
        calls = count_calls(&f);
        fixture_work(&f, 5, 90, 10);
    }
    CHECK_EQ(count_calls(&f), calls);
    fixture_stop(&f);
}
