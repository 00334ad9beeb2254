/* The policy `caching`: every rule of PyTorch's allocator that decides an address or a statistic.
 */
#include "driver/backends.h"
#include "policy/torch/heap.h"
#include "support/policy_fixture.h"

#include <stdlib.h>
#include <string.h>

/* ---- where a request goes -------------------------------------------------------------------- */

TEST(pool_is_chosen_by_rounded_size) {
    fixture f = fixture_of(&gml_caching_policy);
    fixture_start(&f);
    gml_block *small = get(&f, MIB, 0);
    CHECK(small->is_small);
    CHECK_EQ(f.policy->reserved_bytes, 2 * MIB);
    gml_block *large = get(&f, MIB + 1, 0);
    CHECK(!large->is_small);
    CHECK_EQ(large->block_bytes, MIB + 512);
    CHECK_EQ(f.policy->reserved_bytes, 22 * MIB);
    /* the free half of the small segment serves no large request, nor the other way round */
    give(&f, large);
    CHECK_EQ(get(&f, 600 * KIB, 0)->address, small->address + MIB);
    CHECK_EQ(get(&f, 600 * KIB, 0)->state, GML_STATE_GROW);
    CHECK_EQ(f.policy->reserved_bytes, 24 * MIB);
    fixture_stop(&f);
}

TEST(best_fit_takes_the_smallest_then_the_lowest) {
    fixture f = fixture_of(&gml_caching_policy);
    fixture_start(&f);
    gml_block *blocks[4];
    const uint64_t sizes[4] = {30 * MIB, 12 * MIB, 20 * MIB, 12 * MIB};
    for (int i = 0; i < 4; i++) {
        blocks[i] = get(&f, sizes[i], 0);
    }
    gml_address low = blocks[1]->address;
    gml_address high = blocks[3]->address;
    gml_address middle = blocks[2]->address;
    CHECK(low < high);
    for (int i = 3; i >= 0; i--) { /* the higher one first: recency does not count */
        give(&f, blocks[i]);
    }
    CHECK_EQ(get(&f, 12 * MIB, 0)->address, low);
    CHECK_EQ(get(&f, 11 * MIB + 1, 0)->address, high);
    CHECK_EQ(get(&f, 12 * MIB, 0)->address, middle);
    fixture_stop(&f);
}

TEST(best_fit_takes_the_oldest_segment_where_told) {
    fixture f = fixture_of(&gml_caching_policy);
    f.knobs.oldest_segment_first = 1;
    fixture_start(&f);
    gml_block *old = get(&f, 12 * MIB, 0);
    CHECK_OK(gml_driver_expect_malloc(f.driver, old->address - 64 * MIB, 12 * MIB));
    gml_block *young = get(&f, 12 * MIB, 0);
    gml_address old_address = old->address, young_address = young->address;
    CHECK(young_address < old_address);
    give(&f, young);
    give(&f, old);
    CHECK_EQ(get(&f, 12 * MIB, 0)->address, old_address);
    CHECK_EQ(get(&f, 12 * MIB, 0)->address, young_address);
    fixture_stop(&f);
}

TEST(small_blocks_split_down_to_512) {
    fixture f = fixture_of(&gml_caching_policy);
    fixture_start(&f);
    gml_block *first = get(&f, 1024, 0);
    gml_block *second = get(&f, 512, 0);
    CHECK_EQ(first->state, GML_STATE_GROW);
    CHECK_EQ(second->state, GML_STATE_SPLIT);
    CHECK_EQ(second->address, first->address + 1024);
    give(&f, first);
    gml_block *half = get(&f, 512, 0); /* remaining is 512, just enough */
    CHECK_EQ(half->state, GML_STATE_SPLIT);
    CHECK_EQ(half->block_bytes, 512);
    gml_block *rest = get(&f, 512, 0);
    CHECK_EQ(rest->state, GML_STATE_EXACT);
    CHECK_EQ(rest->address, half->address + 512);
    fixture_stop(&f);
}

TEST(large_blocks_keep_up_to_one_mib) {
    fixture f = fixture_of(&gml_caching_policy);
    fixture_start(&f);
    gml_block *block = get(&f, 12 * MIB, 0);
    give(&f, block);
    block = get(&f, 11 * MIB, 0); /* remaining is 1 MiB: kept */
    CHECK_EQ(block->state, GML_STATE_EXACT);
    CHECK_EQ(block->block_bytes, 12 * MIB);
    CHECK_EQ(block->requested_bytes, 11 * MIB);
    give(&f, block);
    block = get(&f, 11 * MIB - 512, 0); /* remaining is 1 MiB + 512: cut off */
    CHECK_EQ(block->state, GML_STATE_SPLIT);
    CHECK_EQ(block->block_bytes, 11 * MIB - 512);
    gml_block *rest = get(&f, MIB + 1, 0);
    CHECK_EQ(rest->address, block->address + 11 * MIB - 512);
    CHECK_EQ(rest->block_bytes, MIB + 512);
    CHECK_EQ(f.policy->reserved_bytes, 12 * MIB);
    fixture_stop(&f);
}

TEST(freed_neighbours_merge_in_any_order) {
    const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int order = 0; order < 6; order++) {
        fixture f = fixture_of(&gml_caching_policy);
        fixture_start(&f);
        gml_block *blocks[3];
        for (int i = 0; i < 3; i++) {
            blocks[i] = get(&f, i < 2 ? 5 * MIB : 10 * MIB - 512, 0);
        }
        gml_address base = blocks[0]->address;
        CHECK_EQ(blocks[2]->address, base + 10 * MIB);
        CHECK_EQ(blocks[2]->block_bytes, 10 * MIB); /* with the last 512 bytes as slack */
        for (int i = 0; i < 3; i++) {
            give(&f, blocks[orders[order][i]]);
            is_sound(&f);
        }
        gml_block *whole = get(&f, 20 * MIB, 0);
        CHECK_EQ(whole->state, GML_STATE_EXACT);
        CHECK_EQ(whole->address, base);
        fixture_stop(&f);
    }
}

TEST(streams_share_nothing) {
    enum { STREAMS = 3000 };
    fixture f = fixture_of(&gml_caching_policy);
    fixture_start(&f);
    gml_address *addresses = calloc(STREAMS, sizeof *addresses);
    for (gml_stream stream = 0; stream < STREAMS; stream++) {
        gml_block *block = get(&f, 4096, stream ? stream : UINT64_MAX);
        CHECK_EQ(block->state, GML_STATE_GROW);
        addresses[stream] = block->address;
        give(&f, block);
    }
    CHECK_EQ(f.policy->reserved_bytes, 2 * MIB * STREAMS);
    CHECK_EQ(get(&f, 4096, 0)->state, GML_STATE_GROW);
    for (gml_stream stream = STREAMS; stream-- > 0;) {
        CHECK_EQ(get(&f, 4096, stream ? stream : UINT64_MAX)->address, addresses[stream]);
    }
    free(addresses);
    fixture_stop(&f);
}

TEST(oversize_blocks_are_not_split) {
    fixture f = fixture_of(&gml_caching_policy);
    f.knobs.max_split_size = 40 * MIB;
    fixture_start(&f);
    gml_block *big = get(&f, 64 * MIB, 0);
    gml_address address = big->address;
    give(&f, big);
    gml_block *other = get(&f, 20 * MIB, 0); /* below the limit: the oversize block is not for it */
    CHECK_EQ(other->state, GML_STATE_GROW);
    gml_block *near = get(&f, 44 * MIB + 512, 0); /* less than 20 MiB of slack: taken whole */
    CHECK_EQ(near->address, address);
    CHECK_EQ(near->block_bytes, 64 * MIB);
    give(&f, near);
    gml_block *far = get(&f, 44 * MIB, 0); /* exactly 20 MiB of slack: too much */
    CHECK_EQ(far->state, GML_STATE_GROW);
    CHECK(far->address != address);
    gml_torch_stats stats = stats_of(&f);
    CHECK_EQ(stats.oversize_segments.current, 2);
    CHECK_EQ((uint64_t)stats.max_split_size, 40 * MIB);
    fixture_stop(&f);
}

TEST(no_limit_shows_as_minus_one) {
    fixture f = fixture_of(&gml_caching_policy);
    fixture_start(&f);
    CHECK(stats_of(&f).max_split_size == -1);
    fixture_stop(&f);
}

/* ---- giving memory back ---------------------------------------------------------------------- */

TEST(trim_frees_whole_segments_only) {
    fixture f = fixture_of(&gml_caching_policy);
    fixture_start(&f);
    gml_block *kept = get(&f, 5 * MIB, 0);
    gml_block *neighbour = get(&f, 5 * MIB, 0);
    gml_block *alone = get(&f, 30 * MIB, 7);
    give(&f, neighbour);
    give(&f, alone);
    uint64_t released_bytes = 0;
    CHECK_OK(f.policy->ops->trim(f.policy, &released_bytes));
    CHECK_EQ(released_bytes, 30 * MIB);
    CHECK_EQ(f.policy->reserved_bytes, 20 * MIB);
    uint64_t synchronised = f.driver->calls[GML_CALL_DEVICE_SYNCHRONIZE];
    CHECK_EQ(synchronised, 1);
    CHECK_OK(f.policy->ops->trim(f.policy, &released_bytes));
    CHECK_EQ(released_bytes, 0);
    CHECK_EQ(f.driver->calls[GML_CALL_DEVICE_SYNCHRONIZE], synchronised);
    CHECK_EQ(stats_of(&f).num_sync_all_streams, 2);
    give(&f, kept);
    CHECK_OK(f.policy->ops->trim(f.policy, NULL));
    CHECK_EQ(f.policy->reserved_bytes, 0);
    fixture_stop(&f);
}

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
    CHECK(strstr(f.driver->reason, "512 B") && strstr(f.driver->reason, "capacity"));
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

TEST(memory_limit_is_another_capacity) {
    fixture f = fixture_of(&gml_caching_policy);
    f.capacity_bytes = 100 * MIB;
    f.knobs.memory_limit = 50 * MIB + 1;
    fixture_start(&f);
    give(&f, get(&f, 30 * MIB, 0));
    CHECK_EQ(get(&f, 50 * MIB, 0)->state, GML_STATE_GROW);
    CHECK_EQ(stats_of(&f).num_alloc_retries, 1);
    gml_block *refused = NULL;
    CHECK_STATUS(f.policy->ops->allocate(f.policy, 512, 0, &refused), GML_OUT_OF_MEMORY);
    CHECK(strstr(f.driver->reason, "capacity is 50.0 MiB") != NULL);
    fixture_stop(&f);
}

TEST(a_full_device_counts_like_the_capacity) {
    fixture f = fixture_of(&gml_caching_policy);
    f.device_bytes = 64 * MIB;
    fixture_start(&f);
    give(&f, get(&f, 40 * MIB, 0));
    CHECK_EQ(get(&f, 50 * MIB, 0)->state, GML_STATE_GROW);
    CHECK_EQ(stats_of(&f).num_alloc_retries, 1);
    gml_block *refused = NULL;
    CHECK_STATUS(f.policy->ops->allocate(f.policy, 20 * MIB, 0, &refused), GML_OUT_OF_MEMORY);
    fixture_stop(&f);
}

/* The oversize block that fits is enough: what else is cached stays, and no retry is counted. */
TEST(one_fitting_oversize_block_is_released_first) {
    fixture f = fixture_of(&gml_caching_policy);
    f.capacity_bytes = 300 * MIB;
    f.knobs.max_split_size = 40 * MIB;
    fixture_start(&f);
    gml_block *cached[3];
    const uint64_t sizes[3] = {30 * MIB, 100 * MIB, 150 * MIB};
    for (int i = 0; i < 3; i++) {
        cached[i] = get(&f, sizes[i], 0);
    }
    for (int i = 0; i < 3; i++) {
        give(&f, cached[i]);
    }
    CHECK_EQ(get(&f, 60 * MIB, 0)->state, GML_STATE_GROW);
    CHECK_EQ(f.policy->reserved_bytes, (30 + 150 + 60) * MIB);
    gml_torch_stats stats = stats_of(&f);
    CHECK_EQ(stats.num_alloc_retries, 0);
    CHECK_EQ(stats.num_sync_all_streams, 0);
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

TEST(garbage_collection_waits_for_the_threshold) {
    fixture f = fixture_of(&gml_caching_policy);
    f.capacity_bytes = 200 * MIB;
    f.knobs.garbage_collection_percent = 50;
    fixture_start(&f);
    give(&f, get(&f, 40 * MIB, 0));
    get(&f, 60 * MIB, 0);
    get(&f, 20 * MIB, 0); /* the search finds the 40 MiB block */
    CHECK_EQ(stats_of(&f).num_device_free, 0);
    CHECK_EQ(f.policy->reserved_bytes, 100 * MIB);
    fixture_stop(&f);
}

/* ---- statistics ------------------------------------------------------------------------------ */

TEST(statistics_of_a_small_segment) {
    fixture f = fixture_of(&gml_caching_policy);
    fixture_start(&f);
    gml_block *a = get(&f, 1000, 0); /* a new segment: 1024 live, the rest a split block */
    gml_torch_stats stats = stats_of(&f);
    check_stat(&stats.segment[GML_POOL_SMALL], 1, 1, 1, 0);
    check_stat(&stats.reserved_bytes[GML_POOL_ALL], 2 * MIB, 2 * MIB, 2 * MIB, 0);
    check_stat(&stats.active_bytes[GML_POOL_SMALL], 1024, 1024, 1024, 0);
    check_stat(&stats.inactive_split[GML_POOL_SMALL], 1, 1, 1, 0);
    check_stat(&stats.inactive_split_bytes[GML_POOL_ALL], 2 * MIB - 1024, 2 * MIB - 1024,
               2 * MIB - 1024, 0);
    check_stat(&stats.inactive_split[GML_POOL_LARGE], 0, 0, 0, 0);

    gml_block *b = get(&f, 512, 0); /* shrinks the split block, which stays one */
    stats = stats_of(&f);
    check_stat(&stats.inactive_split[GML_POOL_SMALL], 1, 1, 1, 0);
    check_stat(&stats.inactive_split_bytes[GML_POOL_SMALL], 2 * MIB - 1536, 2 * MIB - 1024,
               2 * MIB - 1024, 512);
    check_stat(&stats.active[GML_POOL_ALL], 2, 2, 2, 0);

    give(&f, a); /* its neighbours are live: one more split block */
    stats = stats_of(&f);
    check_stat(&stats.inactive_split[GML_POOL_SMALL], 2, 2, 2, 0);
    check_stat(&stats.inactive_split_bytes[GML_POOL_SMALL], 2 * MIB - 512, 2 * MIB - 512, 2 * MIB,
               512);

    give(&f, b); /* merges with both: the segment is whole, and no split block is left */
    stats = stats_of(&f);
    check_stat(&stats.inactive_split[GML_POOL_SMALL], 0, 2, 2, 2);
    check_stat(&stats.inactive_split_bytes[GML_POOL_SMALL], 0, 2 * MIB - 512, 2 * MIB, 2 * MIB);
    check_stat(&stats.active[GML_POOL_ALL], 0, 2, 2, 2);
    check_stat(&stats.active_bytes[GML_POOL_ALL], 0, 1536, 1536, 1536);

    CHECK_OK(f.policy->ops->trim(f.policy, NULL));
    stats = stats_of(&f);
    check_stat(&stats.segment[GML_POOL_SMALL], 0, 1, 1, 1);
    check_stat(&stats.reserved_bytes[GML_POOL_SMALL], 0, 2 * MIB, 2 * MIB, 2 * MIB);
    CHECK_EQ(stats.num_device_alloc, 1);
    CHECK_EQ(stats.num_device_free, 1);
    f.policy->ops->reset_peaks(f.policy);
    stats = stats_of(&f);
    check_stat(&stats.active_bytes[GML_POOL_ALL], 0, 0, 1536, 1536);
    fixture_stop(&f);
}

TEST(statistics_of_taking_and_merging_split_blocks) {
    fixture f = fixture_of(&gml_caching_policy);
    fixture_start(&f);
    gml_block *a = get(&f, 5 * MIB, 0);
    gml_block *b = get(&f, 5 * MIB, 0);
    gml_block *c = get(&f, 10 * MIB - 512, 0); /* the split block becomes live whole */
    gml_torch_stats stats = stats_of(&f);
    check_stat(&stats.inactive_split[GML_POOL_LARGE], 0, 1, 1, 1);
    check_stat(&stats.inactive_split_bytes[GML_POOL_LARGE], 0, 15 * MIB, 15 * MIB, 15 * MIB);
    check_stat(&stats.active_bytes[GML_POOL_LARGE], 20 * MIB, 20 * MIB, 20 * MIB, 0);
    give(&f, a);
    give(&f, b); /* grows a's block by the net change of 5 MiB; the count does not move */
    stats = stats_of(&f);
    check_stat(&stats.inactive_split[GML_POOL_LARGE], 1, 1, 2, 1);
    check_stat(&stats.inactive_split_bytes[GML_POOL_LARGE], 10 * MIB, 15 * MIB, 25 * MIB, 15 * MIB);
    give(&f, c);
    stats = stats_of(&f);
    check_stat(&stats.inactive_split[GML_POOL_LARGE], 0, 1, 2, 2);
    fixture_stop(&f);
}

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

TEST(visit_and_usage_tell_the_truth) {
    fixture f = fixture_of(&gml_caching_policy);
    fixture_start(&f);
    gml_block *a = get(&f, 5 * MIB, 0);
    get(&f, 6 * MIB, 0);
    get(&f, 1000, 9);
    give(&f, a);
    sight seen = fixture_visit(&f);
    CHECK_EQ(seen.spans, 2);
    CHECK_EQ(seen.ranges, 5);
    CHECK_EQ(seen.used_ranges, 2);
    CHECK_EQ(seen.size_bytes, 22 * MIB);
    CHECK_EQ(seen.range_bytes, 22 * MIB);
    CHECK_EQ(seen.used_bytes, 6 * MIB + 1024);
    gml_usage usage;
    f.policy->ops->usage(f.policy, &usage);
    CHECK_EQ(usage.reserved_bytes, 22 * MIB);
    CHECK_EQ(usage.largest_free_bytes, 9 * MIB);
    uint64_t mallocs = f.driver->calls[GML_CALL_MALLOC];
    get(&f, usage.largest_free_bytes, 0);
    CHECK_EQ(f.driver->calls[GML_CALL_MALLOC], mallocs);
    fixture_stop(&f);
}

TEST(create_refuses_an_odd_segment_size) {
    fixture f = fixture_of(&gml_caching_policy);
    char reason[GML_REASON_BYTES];
    CHECK_OK(gml_sim_driver_open(0, 0, &f.driver, reason, sizeof reason));
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
