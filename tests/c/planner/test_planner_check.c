/* The independent check: by hand, and against the definition of a valid placement. */
#include "planner/support/placement.h"

#include <string.h>

static gml_status check_scene(const stage *scene) {
    return gml_planner_check(&scene->problem, scene->offsets, scene->peak, NULL, 0);
}

/* ---- by hand --------------------------------------------------------------------------------- */

TEST(touching_in_time_or_address_is_no_meeting) {
    stage s;
    stage_open(&s, 512, 0);
    stage_place(&s, 512, 0, 5, 0, 0);
    stage_place(&s, 512, 5, 9, 0, 0);    /* begins when the first ends */
    stage_place(&s, 1024, 0, 9, 0, 512); /* lies right above both */
    s.peak = 1536;
    CHECK_OK(check_scene(&s));
    s.lifetimes[1].start = 4;
    CHECK_STATUS(check_scene(&s), GML_CORRUPT);
}

TEST(every_lifetime_has_an_offset) {
    stage s;
    stage_open(&s, 512, 0);
    stage_place(&s, 512, 0, 5, 0, GML_NO_OFFSET);
    CHECK_STATUS(check_scene(&s), GML_CORRUPT);
}

TEST(values_out_of_range_are_refused) {
    stage s;
    stage_open(&s, 512, 0);
    stage_place(&s, 512, 0, 5, 0, 0);
    s.peak = 512;
    CHECK_OK(check_scene(&s));
    s.lifetimes[0].size_bytes = 0;
    CHECK_STATUS(check_scene(&s), GML_CORRUPT);
    s.lifetimes[0].size_bytes = (UINT64_C(1) << 48) + 1;
    CHECK_STATUS(check_scene(&s), GML_CORRUPT);
    s.lifetimes[0].size_bytes = 512;
    s.lifetimes[0].start = 5;
    CHECK_STATUS(check_scene(&s), GML_CORRUPT);
    s.lifetimes[0].start = 0;
    s.problem.alignment_bytes = 768;
    CHECK_STATUS(check_scene(&s), GML_CORRUPT);
    s.problem.alignment_bytes = 512;
    s.problem.period = 4; /* the lifetime is longer */
    CHECK_STATUS(check_scene(&s), GML_CORRUPT);
    s.problem.period = 5;
    CHECK_OK(check_scene(&s));
    stage_order(&s, 1, 1, 2); /* orderings do not go with a period */
    CHECK_STATUS(check_scene(&s), GML_CORRUPT);
}

TEST(an_older_owner_of_some_bytes_counts) {
    stage s;
    stage_open(&s, 1, 0);
    stage_place(&s, 8, 0, 10, 1, 0);
    stage_place(&s, 4, 12, 14, 2, 0); /* ordered */
    stage_place(&s, 8, 20, 30, 2, 0); /* its upper half had the first one last */
    stage_order(&s, 11, 1, 2);
    s.peak = 8;
    CHECK_OK(check_scene(&s));
    stage_place(&s, 2, 40, 41, 3, 6);
    CHECK_STATUS(check_scene(&s), GML_CORRUPT);
    stage_order(&s, 35, 2, 3); /* by way of stream 2 also after stream 1 */
    CHECK_OK(check_scene(&s));
    s.lifetimes[2].size_bytes = 6; /* then only stream 1 had those bytes */
    CHECK_STATUS(check_scene(&s), GML_CORRUPT);
}

/* ---- against the definition ------------------------------------------------------------------ */

static void mutate(stage *scene, check_random *random) {
    size_t a = check_below(random, scene->problem.count);
    size_t b = check_below(random, scene->problem.count);
    uint64_t kept = scene->offsets[a];
    switch (check_below(random, 6)) {
    case 0: /* shift */
        scene->offsets[a] = check_below(random, STAGE_BYTES - scene->lifetimes[a].size_bytes + 1);
        break;
    case 1: /* swap */
        scene->offsets[a] = scene->offsets[b];
        scene->offsets[b] = kept;
        break;
    case 2: /* drop */
        scene->lifetimes[a] = scene->lifetimes[scene->problem.count - 1];
        scene->offsets[a] = scene->offsets[--scene->problem.count];
        break;
    case 3: /* duplicate */
        if (scene->problem.count < STAGE_MOST) {
            scene->lifetimes[scene->problem.count] = scene->lifetimes[a];
            scene->offsets[scene->problem.count++] = kept;
        }
        break;
    case 4: /* grow */
        scene->lifetimes[a].size_bytes++;
        break;
    default: /* another stream, or another time of an ordering */
        if (scene->problem.ordering_count) {
            scene->orderings[check_below(random, scene->problem.ordering_count)].time =
                check_below(random, STAGE_TIMES);
        } else {
            scene->lifetimes[a].stream = check_below(random, 3);
        }
    }
    for (size_t i = 0; i < scene->problem.count; i++) {
        uint64_t size = scene->lifetimes[i].size_bytes;
        scene->offsets[i] =
            scene->offsets[i] + size > STAGE_BYTES ? STAGE_BYTES - size : scene->offsets[i];
    }
    if (check_below(random, 8)) {
        stage_settle_peak(scene);
    }
}

TEST(the_check_agrees_with_the_definition) {
    unsigned valid = 0, invalid = 0;
    for (uint64_t seed = 0; seed < 6000; seed++) {
        check_random random = {seed};
        stage s;
        stage_fill(&s, &random);
        if (s.problem.count == 0) {
            continue;
        }
        CHECK(stage_is_valid(&s));
        CHECK_OK(check_scene(&s));
        for (unsigned round = 0; round < 3 && s.problem.count; round++) {
            mutate(&s, &random);
            bool truth = stage_is_valid(&s);
            if (!CHECK_STATUS(check_scene(&s), truth ? GML_OK : GML_CORRUPT)) {
                printf("    seed %" PRIu64 " round %u\n", seed, round);
                return;
            }
            *(truth ? &valid : &invalid) += 1;
        }
    }
    CHECK(valid > 2000 && invalid > 2000);
}
