/* A recorded state put into the policy `caching`. */
#include "support/policy_fixture.h"

static const gml_address far = UINT64_C(0x7f0000000000);

TEST(restore_places_segments_and_blocks) {
    fixture f = fixture_of(&gml_caching_policy);
    fixture_start(&f);
    const gml_recorded_segment segments[] = {
        {far, 2 * MIB, 0, true},
        {far + 32 * MIB, 20 * MIB, 3, false},
        {far + 64 * MIB, 30 * MIB, 3, false},
    };
    const gml_recorded_block blocks[] = {
        {0, far + 512, 1024, 1000},
        {1, far + MIB, MIB, MIB},                                /* up to the end */
        {2, far + 32 * MIB, 5 * MIB, 5 * MIB},                   /* 512 KiB of slack */
        {3, far + 37 * MIB + 512 * KIB, 4 * MIB, 4 * MIB - 100}, /* then a true free block */
    };
    gml_block *live[4] = {0};
    CHECK_OK(f.policy->ops->restore(f.policy, segments, 3, blocks, 4, live));
    is_sound(&f);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(live[i]->address, blocks[i].address);
        CHECK_EQ(live[i]->requested_bytes, blocks[i].requested_bytes);
    }
    CHECK_EQ(live[0]->block_bytes, 1024);
    CHECK_EQ(live[2]->block_bytes, 5 * MIB + 512 * KIB);
    CHECK_EQ(live[3]->block_bytes, 4 * MIB);
    gml_torch_stats stats = stats_of(&f);
    CHECK_EQ(stats.segment[GML_POOL_ALL].current, 3);
    CHECK_EQ(stats.inactive_split[GML_POOL_SMALL].current, 2);
    CHECK_EQ(stats.inactive_split[GML_POOL_LARGE].current, 1);
    CHECK_EQ(get(&f, 512, 0)->address, far);
    CHECK_EQ(get(&f, 512, 0)->address, far + 1536);
    CHECK_EQ(get(&f, 4 * MIB, 3)->address, far + 41 * MIB + 512 * KIB);
    CHECK_EQ(get(&f, 12 * MIB, 3)->address, far + 64 * MIB);
    for (int i = 0; i < 4; i++) {
        give(&f, live[i]);
        is_sound(&f);
    }
    gml_block *unused[1];
    CHECK_STATUS(f.policy->ops->restore(f.policy, segments, 0, NULL, 0, unused),
                 GML_INVALID_ARGUMENT);
    fixture_stop(&f);
}

/* Where one segment ends the next may begin. */
TEST(restore_parts_segments_side_by_side) {
    fixture f = fixture_of(&gml_caching_policy);
    fixture_start(&f);
    const gml_recorded_segment segments[] = {
        {far, 20 * MIB, 0, false},
        {far + 20 * MIB, 20 * MIB, 0, false},
    };
    const gml_recorded_block blocks[] = {
        {0, far, 10 * MIB, 10 * MIB}, /* the rest of its segment is free */
        {1, far + 20 * MIB, 20 * MIB, 20 * MIB},
    };
    gml_block *live[2] = {0};
    CHECK_OK(f.policy->ops->restore(f.policy, segments, 2, blocks, 2, live));
    is_sound(&f);
    gml_block *fresh = get(&f, 20 * MIB, 0);
    CHECK(fresh->address != blocks[1].address);
    give(&f, fresh);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(live[i]->address, blocks[i].address);
        give(&f, live[i]);
    }
    fixture_stop(&f);
}

TEST(restore_refuses_contradictions) {
    const gml_recorded_segment good = {far, 20 * MIB, 0, false};
    const gml_recorded_segment bad_segments[][2] = {
        {{far, 20 * MIB, 0, false}, {far + 10 * MIB, 20 * MIB, 0, false}},
        {{far + 64 * MIB, 20 * MIB, 0, false}, {far, 20 * MIB, 0, false}},
        {{far, 0, 0, false}, {far + 64 * MIB, 20 * MIB, 0, false}},
        {{0, 2 * MIB, 0, false}, {far, 20 * MIB, 0, false}},
        {{far + 1, 2 * MIB, 0, false}, {far + 64 * MIB, 20 * MIB, 0, false}},
        {{far, 2 * MIB, 0, false}, {UINT64_MAX - 1023, 2 * MIB, 0, false}},
    };
    const gml_recorded_block bad_blocks[][2] = {
        {{0, far - 512, 512, 512}, {1, far + MIB, MIB, MIB}},        /* before it */
        {{0, far, 2 * MIB, MIB}, {1, far + MIB, MIB, MIB}},          /* overlap */
        {{0, far + MIB, MIB, MIB}, {1, far, MIB, MIB}},              /* order */
        {{0, far, MIB, MIB}, {1, far + 19 * MIB, 2 * MIB, MIB}},     /* over the end */
        {{0, far, MIB, MIB}, {1, far + 20 * MIB, MIB, MIB}},         /* behind it */
        {{0, far + 100, MIB, MIB}, {1, far + 2 * MIB, MIB, MIB}},    /* alignment */
        {{0, far, MIB, MIB}, {1, far + 2 * MIB, MIB + 1, MIB}},      /* size */
        {{0, far, MIB, MIB + 1}, {1, far + 2 * MIB, MIB, MIB}},      /* request */
        {{0, far, MIB, 0}, {1, far + 2 * MIB, MIB, MIB}},            /* nothing asked */
        {{0, far, MIB, MIB}, {1, far + MIB, UINT64_MAX - 511, MIB}}, /* wraps */
    };
    fixture f = fixture_of(&gml_caching_policy);
    fixture_start(&f);
    gml_block *live[2];
    for (size_t i = 0; i < sizeof bad_segments / sizeof *bad_segments; i++) {
        CHECK_STATUS(f.policy->ops->restore(f.policy, bad_segments[i], 2, NULL, 0, live),
                     GML_CORRUPT);
    }
    for (size_t i = 0; i < sizeof bad_blocks / sizeof *bad_blocks; i++) {
        CHECK_STATUS(f.policy->ops->restore(f.policy, &good, 1, bad_blocks[i], 2, live),
                     GML_CORRUPT);
    }
    CHECK_EQ(f.driver->calls[GML_CALL_MALLOC], 0);
    is_sound(&f);
    fixture_stop(&f);
}

TEST(restore_that_fails_halfway_gives_all_back) {
    fixture f = fixture_of(&gml_caching_policy);
    f.device_bytes = 30 * MIB;
    fixture_start(&f);
    const gml_recorded_segment segments[] = {
        {far, 20 * MIB, 0, false},
        {far + 64 * MIB, 20 * MIB, 0, false},
    };
    gml_block *live[1];
    CHECK_STATUS(f.policy->ops->restore(f.policy, segments, 2, NULL, 0, live), GML_OUT_OF_MEMORY);
    CHECK_EQ(f.policy->reserved_bytes, 0);
    is_sound(&f);
    fixture_stop(&f);
}
