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
