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

/* ---- random work ----------------------------------------------------------------------------- */

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
    CHECK_OK(gml_model_driver_open(GML_MODEL_SIM, GIB, 0, &f.driver, reason, sizeof reason));
    f.knobs.large_segment_size = 21 * MIB;
    CHECK_STATUS(f.ops->create(f.driver, 0, &f.knobs, &f.policy), GML_INVALID_ARGUMENT);
    CHECK(strstr(f.driver->reason, "large_segment_size is 21MiB, but must be a multiple") != NULL);
    f.knobs.large_segment_size = 20 * MIB;
    f.driver->info.has_virtual_memory = false;
    CHECK_STATUS(f.ops->create(f.driver, 0, &f.knobs, &f.policy), GML_UNSUPPORTED);
    gml_driver_close(f.driver);
}
