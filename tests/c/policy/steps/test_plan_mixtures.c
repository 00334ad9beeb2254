/* Trainings of mixtures of experts get the memory that they get without plans: every request lies
 * where it would, however often the tokens are shared out as before. GMLAKE_MIXTURES: so many are
 * drawn.
 */
#include "support/mixture.h"

#include <stdlib.h>

#define GIB (UINT64_C(1) << 30)

enum { FEW = 40 };

TEST(mixtures_of_experts) {
    const char *wanted = getenv("GMLAKE_MIXTURES");
    uint64_t count = wanted ? strtoull(wanted, NULL, 10) : FEW, planned_steps = 0;
    for (uint64_t seed = 1; seed <= count; seed++) {
        mixture sizes = mixture_draw(seed);
        mixture_result result = mixture_run(&sizes, 80 * GIB);
        planned_steps += result.planned_steps;
        CHECK_EQ(result.apart, 0);
        CHECK_EQ(result.reserved_bytes[1], result.reserved_bytes[0]);
        CHECK_EQ(result.calls[1], result.calls[0]);
        if (wanted) {
            printf("%" PRIu64 ": %" PRIu64 " blocks, %" PRIu64 " experts, %" PRIu64 " tokens%s: "
                   "%" PRIu64 " %" PRIu64 " MiB, %" PRIu64 " steps by a plan\n",
                   seed, sizes.layers, sizes.experts, sizes.tokens,
                   sizes.has_checkpoints ? ", checkpoints" : "", result.reserved_bytes[0] >> 20,
                   result.reserved_bytes[1] >> 20, result.planned_steps);
        }
    }
    CHECK(planned_steps > count);
}

/* Few views are allowed, so that those of plans are forgotten too. */
TEST(with_few_views) {
    uint64_t planned_steps = 0;
    for (uint64_t seed = 1; seed <= FEW; seed++) {
        mixture sizes = mixture_draw(seed);
        sizes.max_views = 20 + seed;
        mixture_result result = mixture_run(&sizes, 80 * GIB);
        planned_steps += result.planned_steps;
        CHECK_EQ(result.apart, 0);
        CHECK_EQ(result.calls[1], result.calls[0]);
    }
    CHECK(planned_steps > 0);
}

/* What ends in a step ends earlier or later than before, and what is asked for is the same. */
TEST(what_ends_at_other_times) {
    uint64_t planned_steps = 0;
    for (uint64_t seed = 1; seed <= FEW; seed++) {
        mixture sizes = mixture_draw(seed);
        sizes.ends_late = 200;
        sizes.routing = MIXTURE_LATE;
        mixture_result result = mixture_run(&sizes, 80 * GIB);
        planned_steps += result.planned_steps;
        CHECK_EQ(result.apart, 0);
        CHECK_EQ(result.reserved_bytes[1], result.reserved_bytes[0]);
    }
    CHECK(planned_steps > 0);
}
