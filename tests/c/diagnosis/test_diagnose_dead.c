/* Dead writes: copies and sets whose bytes are overwritten before anything accesses them. */
#include "diagnosis/findings.h"
#include "diagnosis/scenario.h"

#include <stdlib.h>
#include <string.h>

enum { READS = GML_ACCESS_READS, WRITES = GML_ACCESS_WRITES, TOUCHES = GML_ACCESS_TOUCHES };

/* An API with one access to the whole object. */
static uint32_t use(scenario *t, gml_api_kind kind, uint32_t object, uint32_t flags) {
    uint32_t api = (uint32_t)scenario_call(t, kind);
    scenario_access(t, object, flags);
    return api;
}

static size_t count_dead(scenario *t) {
    CHECK_OK(scenario_diagnose(t, SCENARIO_EVERY_PATTERN));
    return scenario_total(t, GML_PATTERN_DEAD_WRITE);
}

/* ---- ranges ---------------------------------------------------------------------------------- */

TEST(columns_of_a_large_matrix_are_compared_as_columns) {
    const uint64_t n = 4096;
    scenario t;
    scenario_open(&t);
    uint32_t x = scenario_new_of(&t, n * n * 4, 4);
    for (uint64_t k = 0; k < 2 * n; k++) {
        use(&t, GML_API_COPY, x, WRITES);
        scenario_runs(&t, 4 * (k * 1027 % n), 4, 4 * n, n);
    }
    scenario_free(&t, x);
    CHECK_EQ(count_dead(&t), n);
    CHECK(t.diagnosis.time_ns < 1000 * 1000 * 1000);
    scenario_close(&t);
}
