/* STAlloc's synthesis: its steps on examples worked out by hand, and valid on anything. */
#include "stalloc/stalloc.h"
#include "stalloc/stalloc_idle.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 400, UNIT = 512 };

/* Lifetimes, the instance made of them, and where each ends up. */
typedef struct stage {
    gml_lifetime lifetimes[MOST];
    uint32_t members[MOST];
    uint64_t offsets[MOST], by_item[MOST];
    uint64_t peak;
    gml_problem problem;
    gml_instance instance;
} stage;

static void begin(stage *scene) {
    memset(scene, 0, sizeof *scene);
    scene->problem.lifetimes = scene->lifetimes;
}

/* Sizes in units. */
static void add(stage *scene, uint64_t size, uint64_t start, uint64_t end, uint32_t phase_start,
                uint32_t phase_end) {
    size_t i = scene->problem.count++;
    scene->members[i] = (uint32_t)i;
    scene->lifetimes[i] = (gml_lifetime){.size_bytes = size * UNIT,
                                         .start = start,
                                         .end = end,
                                         .phase_start = phase_start,
                                         .phase_end = phase_end};
}

static void open_instance(stage *scene) {
    CHECK_OK(gml_instance_open(&scene->instance, &scene->problem, scene->members,
                               scene->problem.count, NULL));
}

static gml_status place(stage *scene) {
    open_instance(scene);
    gml_status status =
        gml_stalloc_place(&scene->problem, &scene->instance, scene->by_item, &scene->peak);
    for (size_t i = 0; status == GML_OK && i < scene->problem.count; i++) {
        scene->offsets[scene->instance.lifetime[i]] = scene->by_item[i];
    }
    gml_instance_close(&scene->instance);
    return status;
}

static bool is_valid(const stage *scene) {
    char reason[200] = "";
    if (gml_planner_check(&scene->problem, scene->offsets, scene->peak, reason, sizeof reason) !=
        GML_OK) {
        printf("    %s\n", reason);
        return false;
    }
    return true;
}

/* The groups only: requests of more than one item, and the addresses of lifetimes in them. */
static size_t group(stage *scene, gml_stalloc_requests *requests) {
    open_instance(scene);
    CHECK_OK(gml_stalloc_requests_open(requests, scene->problem.count));
    CHECK_OK(gml_stalloc_group(&scene->problem, &scene->instance, requests));
    for (size_t i = 0; i < scene->problem.count; i++) {
        scene->offsets[scene->instance.lifetime[i]] = requests->addresses[i];
    }
    gml_instance_close(&scene->instance);
    size_t groups = 0;
    for (size_t i = 0; i < requests->count; i++) {
        groups += requests->list[i].count > 1;
    }
    return groups;
}

/* ---- HomoSize groups ------------------------------------------------------------------------- */

TEST(a_request_joins_the_layer_that_ended_last_before_it) {
    stage s;
    begin(&s);
    add(&s, 1, 0, 4, 0, 0);
    add(&s, 1, 1, 6, 0, 0);
    add(&s, 1, 6, 8, 0, 0); /* the second ended at 6, the first at 4 */
    add(&s, 1, 7, 9, 0, 0); /* only the first is not in use */
    CHECK_OK(place(&s));
    CHECK_EQ(s.offsets[2], s.offsets[1]);
    CHECK_EQ(s.offsets[3], s.offsets[0]);
    CHECK_EQ(s.peak, 2 * UNIT);
    CHECK(is_valid(&s));
}

/* Algorithm 1 as it stands in the paper, with a scan over all layers. */
static uint64_t scan_layers(const stage *scene, uint64_t *ends, size_t *layers, size_t number) {
    const gml_lifetime *lifetime = &scene->lifetimes[number];
    size_t chosen = *layers;
    for (size_t i = 0; i < *layers; i++) {
        if (ends[i] <= lifetime->start && (chosen == *layers || ends[i] >= ends[chosen])) {
            chosen = i;
        }
    }
    *layers += chosen == *layers;
    ends[chosen] = lifetime->end;
    return chosen * UNIT;
}

TEST(layers_are_those_of_algorithm_1) {
    static stage s;
    for (uint64_t seed = 0; seed < 100; seed++) {
        check_random random = {seed};
        uint64_t ends[MOST], start = 0;
        size_t layers = 0;
        begin(&s);
        while (s.problem.count < MOST) {
            start += check_below(&random, 3);
            add(&s, 1, start, start + 1 + check_below(&random, 40), 0, 0);
        }
        CHECK_OK(place(&s));
        bool is_same = true;
        for (size_t i = 0; i < MOST; i++) {
            is_same = is_same && s.offsets[i] == scan_layers(&s, ends, &layers, i);
        }
        CHECK(is_same);
        CHECK_EQ(s.peak, layers * UNIT);
    }
}

TEST(larger_layers_lie_below_smaller_ones) {
    stage s;
    begin(&s);
    add(&s, 1, 0, 10, 0, 0);
    add(&s, 4, 1, 9, 0, 0);
    add(&s, 2, 2, 8, 0, 0);
    CHECK_OK(place(&s));
    CHECK_EQ(s.offsets[1], 0);
    CHECK_EQ(s.offsets[2], 4 * UNIT);
    CHECK_EQ(s.offsets[0], 6 * UNIT);
    CHECK_EQ(s.peak, 7 * UNIT);
}

TEST(smaller_requests_go_into_idle_intervals_of_larger_layers) {
    stage s;
    begin(&s);
    add(&s, 4, 2, 4, 0, 0);
    add(&s, 4, 8, 12, 0, 0);
    add(&s, 3, 4, 8, 0, 0);   /* fills the gap but for one unit */
    add(&s, 1, 5, 7, 0, 0);   /* that unit */
    add(&s, 2, 0, 2, 0, 0);   /* before the first */
    add(&s, 1, 12, 20, 0, 0); /* behind the last */
    CHECK_OK(place(&s));
    CHECK_EQ(s.peak, 4 * UNIT);
    CHECK_EQ(s.offsets[3], 3 * UNIT);
    CHECK(is_valid(&s));
}

TEST(a_request_that_is_a_moment_too_long_gets_its_own_layer) {
    stage s;
    begin(&s);
    add(&s, 4, 0, 4, 0, 0);
    add(&s, 4, 8, 12, 0, 0);
    add(&s, 1, 4, 9, 0, 0);
    CHECK_OK(place(&s));
    CHECK_EQ(s.peak, 5 * UNIT);
    CHECK_EQ(s.offsets[2], 4 * UNIT);
}

TEST(of_several_idle_intervals_the_latest_begin_wins) {
    stage s;
    begin(&s);
    add(&s, 4, 0, 4, 0, 0);
    add(&s, 4, 0, 6, 0, 0);
    add(&s, 4, 0, 5, 0, 0);
    add(&s, 1, 7, 9, 0, 0);
    CHECK_OK(place(&s));
    CHECK_EQ(s.offsets[3], s.offsets[1]);
}

/* ---- HomoPhase groups ------------------------------------------------------------------------ */

/* Buffers of a forward pass, freed in reverse order in a backward pass. */
static void add_forward(stage *scene) {
    for (uint64_t i = 0; i < 5; i++) {
        add(scene, 1, i, 100 - 8 * i, 1, 2);
    }
}

/* Buffers that a backward pass allocates while it frees those above. */
static void add_backward(stage *scene, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        add(scene, 1, 68 + 8 * i, 168, 2, 3);
    }
}

TEST(a_group_is_packed_side_by_side) {
    stage s;
    gml_stalloc_requests requests;
    begin(&s);
    add_forward(&s);
    add(&s, 3, 50, 60, 0, 2); /* a phase is not known */
    CHECK_EQ(group(&s, &requests), 1);
    CHECK_EQ(requests.count, 2);
    const gml_stalloc_request *whole = &requests.list[1];
    CHECK_EQ(whole->size_bytes, 5 * UNIT);
    CHECK_EQ(whole->start, 0);
    CHECK_EQ(whole->end, 100);
    for (uint64_t i = 0; i < 5; i++) {
        CHECK_EQ(s.offsets[i], i * UNIT); /* by descending ends */
    }
    gml_stalloc_requests_close(&requests);
}

TEST(what_does_not_fill_its_group_is_no_group) {
    stage s;
    gml_stalloc_requests requests;
    begin(&s);
    for (uint64_t i = 0; i < 6; i++) {
        add(&s, 1, 10 * i, 10 * i + 5, 1, 1); /* short-lived, within one phase */
    }
    CHECK_EQ(group(&s, &requests), 0);
    CHECK_EQ(requests.count, 6);
    gml_stalloc_requests_close(&requests);
}

TEST(a_group_is_filled_to_seven_tenths) {
    for (uint64_t missing = 0; missing < 2; missing++) {
        stage s;
        gml_stalloc_requests requests;
        begin(&s);
        add(&s, 1, 0, 100 - missing, 1, 2);
        add(&s, 1, 0, 100, 1, 2);
        for (uint64_t i = 0; i < 3; i++) {
            add(&s, 1, 50, 100, 1, 2);
        }
        CHECK_EQ(group(&s, &requests), missing ? 0 : 1);
        gml_stalloc_requests_close(&requests);
    }
}

TEST(a_small_group_is_no_group) {
    stage s;
    gml_stalloc_requests requests;
    begin(&s);
    for (uint64_t i = 0; i < 5; i++) {
        add(&s, 10, 0, 10, 1, 2);
    }
    add(&s, 1, 0, 10, 5, 6);
    add(&s, 1, 0, 10, 5, 6);
    CHECK_EQ(group(&s, &requests), 1);
    CHECK_EQ(requests.count, 3);
    gml_stalloc_requests_close(&requests);
}

/* Figure 7, left. */
TEST(fusion_puts_the_smaller_group_into_the_bubbles_of_the_larger) {
    stage s;
    gml_stalloc_requests requests;
    begin(&s);
    add_forward(&s);
    add_backward(&s, 5);
    CHECK_EQ(group(&s, &requests), 1);
    CHECK_EQ(requests.count, 1);
    CHECK_EQ(requests.list[0].size_bytes, 5 * UNIT);
    CHECK_EQ(requests.list[0].end, 168);
    for (uint64_t i = 0; i < 5; i++) {
        CHECK_EQ(s.offsets[i], i * UNIT);
        CHECK_EQ(s.offsets[5 + i], (4 - i) * UNIT); /* beside what was freed right before it */
    }
    gml_stalloc_requests_close(&requests);
}

TEST(fusion_runs_backwards_where_the_larger_group_comes_second) {
    stage s;
    gml_stalloc_requests requests;
    begin(&s);
    add_forward(&s);
    add_backward(&s, 6);
    CHECK_EQ(group(&s, &requests), 1);
    CHECK_EQ(requests.list[0].size_bytes, 6 * UNIT);
    CHECK_EQ(requests.list[0].start, 0);
    for (uint64_t i = 0; i < 5; i++) {
        CHECK_EQ(s.offsets[5 + i], i * UNIT); /* by ascending starts */
        CHECK_EQ(s.offsets[i], (4 - i) * UNIT);
    }
    gml_stalloc_requests_close(&requests);
}

TEST(fusion_takes_the_earliest_start_that_fits) {
    stage s;
    gml_stalloc_requests requests;
    begin(&s);
    add(&s, 2, 0, 100, 1, 2);
    add(&s, 3, 0, 90, 1, 2);
    add(&s, 1, 95, 135, 2, 3);  /* beside the second, which begins at 2 units */
    add(&s, 1, 105, 135, 2, 3); /* these beside the first */
    add(&s, 1, 104, 135, 2, 3);
    add(&s, 1, 91, 135, 2, 3); /* before the one of 95 */
    CHECK_EQ(group(&s, &requests), 1);
    CHECK_EQ(requests.list[0].size_bytes, 5 * UNIT);
    CHECK_EQ(s.offsets[4], 0);
    CHECK_EQ(s.offsets[3], 1 * UNIT);
    CHECK_EQ(s.offsets[5], 2 * UNIT);
    CHECK_EQ(s.offsets[2], 3 * UNIT);
    gml_stalloc_requests_close(&requests);
}

/* Figure 7, right. */
TEST(fusion_is_rejected_where_the_product_falls) {
    stage s;
    gml_stalloc_requests requests;
    begin(&s);
    add_forward(&s);
    for (uint64_t i = 0; i < 5; i++) {
        add(&s, 1, 60 + i, 168, 2, 3); /* before anything of the first group was freed */
    }
    CHECK_EQ(group(&s, &requests), 2);
    CHECK_EQ(requests.count, 2);
    gml_stalloc_requests_close(&requests);
}

TEST(groups_that_do_not_follow_each_other_are_not_fused) {
    stage s;
    gml_stalloc_requests requests;
    begin(&s);
    add_forward(&s);
    add_backward(&s, 5);
    for (size_t i = 5; i < 10; i++) {
        s.lifetimes[i].phase_start = 7;
    }
    CHECK_EQ(group(&s, &requests), 2);
    gml_stalloc_requests_close(&requests);
}

/* Figure 6: what a group leaves of a layer serves smaller requests, and equal groups share one. */
TEST(groups_of_one_size_share_a_layer) {
    stage s;
    begin(&s);
    for (uint32_t batch = 0; batch < 3; batch++) {
        for (uint64_t i = 0; i < 5; i++) {
            add(&s, 2, 200 * batch + i, 200 * batch + 100 - i, 2 * batch + 1, 2 * batch + 2);
        }
        add(&s, 5, 200 * batch + 110, 200 * batch + 190, 0, 0);
    }
    CHECK_OK(place(&s));
    CHECK_EQ(s.peak, 10 * UNIT);
    CHECK(is_valid(&s));
    for (size_t i = 0; i < 5; i++) {
        CHECK_EQ(s.offsets[6 + i], s.offsets[i]);
        CHECK_EQ(s.offsets[12 + i], s.offsets[i]);
    }
}

/* ---- anything -------------------------------------------------------------------------------- */

static void add_random(stage *scene, check_random *random) {
    size_t count = check_below(random, MOST);
    uint64_t phases = 1 + check_below(random, 9), span = 20 + check_below(random, 600);
    bool is_phased = check_below(random, 4) != 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t start = check_below(random, span);
        uint64_t end = start + 1 + check_below(random, check_below(random, 3) ? 12 : span);
        uint64_t size = 1 + check_below(random, UINT64_C(1) << check_below(random, 12));
        uint32_t from = (uint32_t)(start * phases / span), to = (uint32_t)(end * phases / span);
        add(scene, size, start, end, is_phased ? from + 1 : 0, is_phased ? to + 1 : 0);
    }
}

TEST(placements_are_valid_and_repeat) {
    static stage one, other;
    for (uint64_t seed = 0; seed < 1500; seed++) {
        for (unsigned round = 0; round < 2; round++) {
            stage *scene = round ? &other : &one;
            check_random random = {seed};
            begin(scene);
            add_random(scene, &random);
            CHECK_OK(place(scene));
        }
        if (!CHECK(is_valid(&one)) ||
            !CHECK(memcmp(one.offsets, other.offsets, sizeof one.offsets) == 0)) {
            printf("    seed %" PRIu64 "\n", seed);
            return;
        }
    }
}

TEST(nothing_at_all_has_a_peak_of_nothing) {
    stage s;
    begin(&s);
    s.peak = 7;
    CHECK_OK(place(&s));
    CHECK_EQ(s.peak, 0);
}

/* ---- idle intervals -------------------------------------------------------------------------- */

TEST(the_idle_set_finds_what_a_scan_finds) {
    check_random random = {11};
    gml_idle_set set = gml_idle_open();
    struct {
        uint64_t begin, end, size;
    } model[MOST];
    size_t count = 0;
    for (unsigned round = 0; round < 20000; round++) {
        uint64_t from = check_below(&random, 200), until = from + check_below(&random, 60);
        uint64_t size = check_below(&random, 20);
        if (check_below(&random, 2) && count < MOST) {
            CHECK(gml_idle_add(&set, from, until, 0, size));
            if (from < until && size) {
                model[count].begin = from;
                model[count].end = until;
                model[count++].size = size;
            }
            continue;
        }
        gml_idle_node *found = gml_idle_find(&set, from, until, size);
        size_t best = MOST;
        for (size_t i = 0; i < count; i++) {
            bool holds = model[i].begin <= from && model[i].end >= until && model[i].size >= size;
            if (holds && (best == MOST || model[i].begin > model[best].begin)) {
                best = i;
            }
        }
        if (!CHECK_EQ(found != NULL, best != MOST) || !found || best == MOST) {
            continue;
        }
        CHECK_EQ(found->begin, model[best].begin);
        CHECK(found->end >= until && found->size_bytes >= size);
        for (size_t i = 0; i < count; i++) {
            if (model[i].begin == found->begin && model[i].end == found->end &&
                model[i].size == found->size_bytes) {
                model[i] = model[--count];
                break;
            }
        }
        gml_idle_remove(&set, found);
    }
    gml_idle_close(&set);
}
