/* The policy `expandable`: granules, holes, merging by state, and giving back. */
#include "driver/backends.h"
#include "policy/torch/expandable_segment.h"
#include "support/policy_fixture.h"

#include <string.h>

static fixture started(uint64_t device_bytes, uint64_t capacity_bytes) {
    fixture f = fixture_of(&gml_expandable_policy);
    f.device_bytes = device_bytes;
    f.capacity_bytes = capacity_bytes;
    fixture_start(&f);
    return f;
}

static uint64_t calls_of(const fixture *f, gml_driver_call call) {
    return f->driver->calls[call];
}

static uint64_t trimmed(fixture *f) {
    uint64_t released_bytes = UINT64_MAX;
    CHECK_OK(f->policy->ops->trim(f->policy, &released_bytes));
    is_sound(f);
    return released_bytes;
}

/* ---- granules -------------------------------------------------------------------------------- */

TEST(one_reservation_per_pool_and_stream) {
    fixture f = started(16 * GIB, 0);
    gml_block *small = get(&f, 512, 0);
    gml_block *large = get(&f, 2 * MIB, 0);
    CHECK_EQ(calls_of(&f, GML_CALL_RESERVE), 2);
    get(&f, 512, 1);
    get(&f, 100 * MIB, 0);
    CHECK_EQ(calls_of(&f, GML_CALL_RESERVE), 3);
    CHECK(small->is_small && !large->is_small);
    const gml_torch_heap *heap = (const gml_torch_heap *)f.policy;
    for (const gml_torch_segment *segment = heap->segments; segment; segment = segment->next) {
        uint64_t eighteen_bytes = 18 * GIB; /* 16 and an eighth of it, whole granules */
        CHECK(segment->size_bytes >= eighteen_bytes);
        CHECK(segment->size_bytes < eighteen_bytes + 20 * MIB);
    }
    fixture_stop(&f);
}

TEST(memory_comes_in_granules_of_the_pool) {
    fixture f = started(0, 0);
    get(&f, 512, 0);
    CHECK_EQ(f.policy->reserved_bytes, 2 * MIB);
    get(&f, MIB + 1, 0);
    CHECK_EQ(f.policy->reserved_bytes, 22 * MIB);
    CHECK_EQ(calls_of(&f, GML_CALL_CREATE), 2);
    get(&f, 50 * MIB, 0); /* 20 MiB less the first request is there: two granules more */
    CHECK_EQ(f.policy->reserved_bytes, 62 * MIB);
    CHECK_EQ(calls_of(&f, GML_CALL_CREATE), 4);
    CHECK_EQ(calls_of(&f, GML_CALL_MAP), 4);
    CHECK_EQ(calls_of(&f, GML_CALL_SET_ACCESS), 3); /* one per mapped range */
    CHECK_EQ(stats_of(&f).num_device_alloc, 3);
    fixture_stop(&f);
}

TEST(granule_follows_large_segment_size) {
    fixture f = fixture_of(&gml_expandable_policy);
    f.knobs.large_segment_size = 12 * MIB;
    fixture_start(&f);
    get(&f, 13 * MIB, 0);
    CHECK_EQ(f.policy->reserved_bytes, 24 * MIB);
    fixture_stop(&f);
}

TEST(growth_is_contiguous_and_splits_to_512) {
    fixture f = started(0, 0);
    gml_block *a = get(&f, 30 * MIB, 0);
    CHECK_EQ(a->state, GML_STATE_GROW);
    CHECK_EQ(a->block_bytes, 30 * MIB);
    gml_block *b = get(&f, 10 * MIB - 512, 0); /* what the second granule left, but for 512 */
    CHECK_EQ(b->state, GML_STATE_SPLIT);
    CHECK_EQ(b->address, a->address + 30 * MIB);
    CHECK_EQ(b->block_bytes, 10 * MIB - 512);
    gml_block *c = get(&f, 5 * MIB, 0); /* begins in those 512 bytes */
    CHECK_EQ(c->state, GML_STATE_GROW);
    CHECK_EQ(c->address, a->address + 40 * MIB - 512);
    give(&f, a);
    gml_block *again = get(&f, 30 * MIB, 0);
    CHECK_EQ(again->state, GML_STATE_EXACT);
    CHECK_EQ(again->address, c->address + 512 - 40 * MIB);
    fixture_stop(&f);
}

/* Best fit counts what a block could grow to, so the block that ends the mapped range is spared. */
TEST(best_fit_prefers_blocks_that_cannot_grow) {
    fixture f = started(0, 0);
    gml_block *a = get(&f, 18 * MIB, 0);
    get(&f, 2 * MIB, 0);
    gml_block *tail = get(&f, 4 * MIB, 0); /* a third granule, 16 MiB of it left at the end */
    give(&f, a);
    CHECK_EQ(get(&f, 12 * MIB, 0)->address, a->address);
    CHECK(tail->address > a->address);
    fixture_stop(&f);
}

/* ---- holes ----------------------------------------------------------------------------------- */

/* Ten granules of 20 MiB, some of them freed and trimmed away. */
static void fill_and_punch(fixture *f, gml_block *blocks[10], const int *punched) {
    for (int i = 0; i < 10; i++) {
        blocks[i] = get(f, 20 * MIB, 0);
    }
    for (; *punched >= 0; punched++) {
        give(f, blocks[*punched]);
    }
    trimmed(f);
}

TEST(the_lowest_hole_that_fits_is_filled_first) {
    fixture f = started(0, 0);
    gml_block *blocks[10];
    const int punched[] = {2, 5, 6, 8, -1};
    fill_and_punch(&f, blocks, punched);
    CHECK_EQ(f.policy->reserved_bytes, 120 * MIB);
    gml_address base = blocks[0]->address;
    CHECK_EQ(get(&f, 40 * MIB, 0)->address, base + 100 * MIB); /* holes 5 and 6 */
    CHECK_EQ(get(&f, 20 * MIB, 0)->address, base + 40 * MIB);  /* hole 2 */
    CHECK_EQ(get(&f, 21 * MIB, 0)->address, base + 200 * MIB); /* too large for hole 8 */
    CHECK_EQ(calls_of(&f, GML_CALL_RESERVE), 1);
    fixture_stop(&f);
}

TEST(a_hole_joins_the_free_memory_around_it) {
    fixture f = started(0, 0);
    gml_block *blocks[3];
    blocks[0] = get(&f, 30 * MIB, 0); /* a granule and a half */
    blocks[1] = get(&f, 40 * MIB, 0);
    blocks[2] = get(&f, 10 * MIB, 0);
    gml_address base = blocks[0]->address;
    CHECK_EQ(blocks[2]->address, base + 70 * MIB);
    give(&f, blocks[1]);
    CHECK_EQ(trimmed(&f), 20 * MIB); /* granule 2; half of 1 and half of 3 stay free */
    CHECK_EQ(f.policy->reserved_bytes, 60 * MIB);
    sight seen = fixture_visit(&f);
    CHECK_EQ(seen.spans, 2); /* one per mapped range */
    CHECK_EQ(seen.size_bytes, 60 * MIB);
    gml_block *across = get(&f, 40 * MIB, 0);
    CHECK_EQ(across->address, base + 30 * MIB);
    CHECK_EQ(across->state, GML_STATE_GROW);
    CHECK_EQ(across->block_bytes, 40 * MIB);
    CHECK_EQ(f.policy->reserved_bytes, 80 * MIB);
    fixture_stop(&f);
}

/* free, hole, free, hole: neither hole suffices alone, and both are mapped for one request. */
TEST(several_holes_are_mapped_for_one_request) {
    fixture f = started(0, 0);
    gml_block *blocks[4];
    blocks[0] = get(&f, 10 * MIB, 0);
    blocks[1] = get(&f, 40 * MIB, 0);
    blocks[2] = get(&f, 20 * MIB, 0);
    blocks[3] = get(&f, 50 * MIB, 0);
    gml_address base = blocks[0]->address;
    give(&f, blocks[1]);
    CHECK_EQ(trimmed(&f), 20 * MIB); /* 20..40 */
    give(&f, blocks[2]);
    give(&f, blocks[3]);
    CHECK_EQ(get(&f, 110 * MIB, 0)->address, base + 10 * MIB);
    CHECK_EQ(f.policy->reserved_bytes, 120 * MIB);
    fixture_stop(&f);
}

TEST(idle_neighbours_merge_only_in_equal_state) {
    fixture f = started(0, 0);
    gml_block *blocks[10];
    const int punched[] = {4, -1};
    fill_and_punch(&f, blocks, punched);
    give(&f, blocks[3]); /* free, next to unmapped */
    is_sound(&f);
    give(&f, blocks[5]);
    is_sound(&f);
    uint64_t creates = calls_of(&f, GML_CALL_CREATE);
    gml_block *low = get(&f, 20 * MIB, 0);
    gml_block *high = get(&f, 20 * MIB, 0);
    CHECK_EQ(calls_of(&f, GML_CALL_CREATE), creates);
    /* block 3 could grow into the hole, block 5 could not: it serves first */
    CHECK_EQ(low->address, blocks[0]->address + 100 * MIB);
    CHECK_EQ(high->address, blocks[0]->address + 60 * MIB);
    fixture_stop(&f);
}

/* ---- giving back ----------------------------------------------------------------------------- */

TEST(trim_takes_whole_granules_after_the_device) {
    fixture f = started(0, 0);
    gml_block *a = get(&f, 100 * MIB, 5);
    gml_block *b = get(&f, 70 * MIB, 5);
    give(&f, a);
    CHECK_EQ(trimmed(&f), 100 * MIB);
    CHECK_EQ(calls_of(&f, GML_CALL_DEVICE_SYNCHRONIZE), 1);
    CHECK_EQ(calls_of(&f, GML_CALL_UNMAP), 5); /* granule by granule */
    CHECK_EQ(calls_of(&f, GML_CALL_RELEASE), 5);
    CHECK_EQ(stats_of(&f).num_device_free, 1);
    CHECK_EQ(trimmed(&f), 0); /* half a granule behind b is free and stays */
    CHECK_EQ(f.policy->reserved_bytes, 80 * MIB);
    CHECK_EQ(calls_of(&f, GML_CALL_UNRESERVE), 0);
    give(&f, b);
    CHECK_EQ(trimmed(&f), 80 * MIB);
    CHECK_EQ(calls_of(&f, GML_CALL_UNRESERVE), 1); /* with nothing in it, the range goes too */
    get(&f, 512, 5);
    fixture_stop(&f);
}

TEST(full_memory_moves_to_another_stream) {
    fixture f = started(0, 200 * MIB);
    give(&f, get(&f, 150 * MIB, 1));
    gml_block *block = get(&f, 150 * MIB, 2);
    CHECK_EQ(block->state, GML_STATE_GROW);
    CHECK_EQ(stats_of(&f).num_alloc_retries, 1);
    CHECK_EQ(f.policy->reserved_bytes, 160 * MIB);
    gml_block *refused = NULL;
    CHECK_STATUS(f.policy->ops->allocate(f.policy, 60 * MIB, 1, &refused), GML_OUT_OF_MEMORY);
    CHECK(refused == NULL);
    CHECK(strstr(f.driver->reason, "60.0 MiB") != NULL);
    is_sound(&f);
    CHECK_EQ(f.policy->reserved_bytes, 160 * MIB);
    fixture_stop(&f);
}

TEST(the_capacity_bounds_what_is_mapped) {
    fixture f = started(0, 30 * MIB); /* one granule, and no second one */
    gml_block *refused = NULL;
    CHECK_STATUS(f.policy->ops->allocate(f.policy, 21 * MIB, 0, &refused), GML_OUT_OF_MEMORY);
    get(&f, 20 * MIB, 0);
    CHECK_EQ(f.policy->reserved_bytes, 20 * MIB);
    fixture_stop(&f);
}

/* PyTorch asks its limit for a whole segment, and maps whole granules then. */
TEST(the_memory_limit_bounds_what_a_segment_would_be) {
    fixture f = started(GIB, 0);
    f.knobs.memory_limit = 50 * MIB;
    fixture_stop(&f);
    fixture_start(&f);
    gml_block *first = get(&f, 30 * MIB, 0);
    CHECK_EQ(f.policy->reserved_bytes, 40 * MIB);
    gml_block *refused = NULL;
    CHECK_STATUS(f.policy->ops->allocate(f.policy, 12 * MIB, 0, &refused), GML_OUT_OF_MEMORY);
    CHECK_EQ(f.policy->reserved_bytes, 40 * MIB);
    gml_block *rest = get(&f, 10 * MIB, 0);
    CHECK_EQ(f.policy->reserved_bytes, 40 * MIB);
    give(&f, rest);
    give(&f, first);
    CHECK_EQ(get(&f, 42 * MIB, 0)->block_bytes, 42 * MIB);
    CHECK_EQ(f.policy->reserved_bytes, 60 * MIB);
    fixture_stop(&f);
}

TEST(without_a_limit_only_what_is_missing_counts) {
    fixture f = started(GIB, 60 * MIB);
    gml_block *first = get(&f, 30 * MIB, 0);
    gml_block *second = get(&f, 30 * MIB, 0); /* 10 MiB are there, a granule is left */
    CHECK_EQ(f.policy->reserved_bytes, 60 * MIB);
    give(&f, first);
    give(&f, second);
    fixture_stop(&f);
}

TEST(a_request_beyond_any_segment_is_refused) {
    fixture f = started(64 * MIB, 0);
    gml_block *refused = NULL;
    CHECK_STATUS(f.policy->ops->allocate(f.policy, UINT64_C(1) << 48, 0, &refused),
                 GML_OUT_OF_MEMORY);
    CHECK_STATUS(f.policy->ops->allocate(f.policy, 65 * MIB, 0, &refused), GML_OUT_OF_MEMORY);
    CHECK_EQ(f.policy->reserved_bytes, 0);
    get(&f, 60 * MIB, 0);
    fixture_stop(&f);
}

TEST(statistics_have_no_segments_and_no_splits) {
    fixture f = started(0, 0);
    gml_block *a = get(&f, 5 * MIB, 0);
    gml_block *b = get(&f, 30 * MIB, 0);
    give(&f, a);
    gml_torch_stats stats = stats_of(&f);
    check_stat(&stats.segment[GML_POOL_ALL], 0, 0, 0, 0);
    check_stat(&stats.inactive_split[GML_POOL_ALL], 0, 0, 0, 0);
    check_stat(&stats.inactive_split_bytes[GML_POOL_ALL], 0, 0, 0, 0);
    check_stat(&stats.active[GML_POOL_LARGE], 1, 2, 2, 1);
    check_stat(&stats.active_bytes[GML_POOL_ALL], 30 * MIB, 35 * MIB, 35 * MIB, 5 * MIB);
    check_stat(&stats.reserved_bytes[GML_POOL_LARGE], 40 * MIB, 40 * MIB, 40 * MIB, 0);
    give(&f, b);
    trimmed(&f);
    stats = stats_of(&f);
    check_stat(&stats.reserved_bytes[GML_POOL_LARGE], 0, 40 * MIB, 40 * MIB, 40 * MIB);
    fixture_stop(&f);
}

/* ---- random work ----------------------------------------------------------------------------- */

TEST(random_work_keeps_every_invariant) {
    for (uint64_t seed = 1; seed <= 4; seed++) {
        fixture f = fixture_of(&gml_expandable_policy);
        f.capacity_bytes = seed % 2 ? 0 : GIB;
        f.knobs.max_split_size = seed > 2 ? 30 * MIB : UINT64_MAX;
        fixture_start(&f);
        uint64_t refused = fixture_work(&f, seed, 20000, 50);
        CHECK(f.capacity_bytes ? refused > 0 : refused == 0);
        trimmed(&f);
        CHECK_EQ(f.policy->reserved_bytes, 0);
        fixture_stop(&f);
    }
}

TEST(a_repeated_step_makes_no_driver_call) {
    fixture f = fixture_of(&gml_expandable_policy);
    f.never_trims = true;
    fixture_start(&f);
    uint64_t calls = 0;
    for (int repeat = 0; repeat < 4; repeat++) {
        calls = count_calls(&f);
        fixture_work(&f, 5, 90, 10);
    }
    CHECK_EQ(count_calls(&f), calls);
    fixture_stop(&f);
}

TEST(check_notices_damage) {
    fixture f = started(0, 0);
    gml_torch_block *block = (gml_torch_block *)get(&f, 5 * MIB, 0);
    gml_expandable_segment *segment = (gml_expandable_segment *)block->segment;
    is_sound(&f);
    segment->granules[0] = GML_GRANULE_LOOSE;
    CHECK_STATUS(f.policy->ops->check(f.policy), GML_CORRUPT);
    segment->granules[0] = GML_GRANULE_BACKED;
    segment->handle_count++;
    CHECK_STATUS(f.policy->ops->check(f.policy), GML_CORRUPT);
    segment->handle_count--;
    f.policy->reserved_bytes += 512;
    CHECK_STATUS(f.policy->ops->check(f.policy), GML_CORRUPT);
    f.policy->reserved_bytes -= 512;
    gml_torch_block *unmapped = block->next->next;
    CHECK_EQ(unmapped->use, GML_TORCH_UNMAPPED);
    unmapped->use = GML_TORCH_FREE;
    CHECK_STATUS(f.policy->ops->check(f.policy), GML_CORRUPT);
    unmapped->use = GML_TORCH_UNMAPPED;
    fixture_stop(&f);
}

TEST(create_refuses_what_cannot_work) {
    fixture f = fixture_of(&gml_expandable_policy);
    char reason[GML_REASON_BYTES];
    CHECK_OK(gml_sim_driver_open(GIB, 0, &f.driver, reason, sizeof reason));
    f.knobs.large_segment_size = 21 * MIB;
    CHECK_STATUS(f.ops->create(f.driver, 0, &f.knobs, &f.policy), GML_INVALID_ARGUMENT);
    CHECK(strstr(f.driver->reason, "large_segment_size is 21MiB, but must be a multiple") != NULL);
    f.knobs.large_segment_size = 20 * MIB;
    f.driver->info.has_virtual_memory = false;
    CHECK_STATUS(f.ops->create(f.driver, 0, &f.knobs, &f.policy), GML_UNSUPPORTED);
    gml_driver_close(f.driver);
}
