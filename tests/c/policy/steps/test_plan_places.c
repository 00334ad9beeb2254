/* Places that a lake is told. */
#include "gmlake_steps.h"
#include "support/trainer.h"

#include <stdlib.h>
#include <string.h>

/* A step may take memory for its plan before the first request: it is counted at once. */
TEST(what_a_step_takes_is_counted) {
    gml_stats stats;
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    const gml_placed_request request = {.size_bytes = 12 * MIB};
    CHECK_OK(gml_lake_add_places(lake, 1, &request, 1));
    CHECK_OK(gml_lake_begin_step(lake, 1));
    CHECK_OK(gml_lake_stats(lake, &stats));
    CHECK_EQ(stats.reserved_bytes, 12 * MIB);
    CHECK_OK(gml_lake_end_step(lake, NULL));
    CHECK_OK(gml_lake_close(lake));
}

TEST(places_out_of_range_are_refused) {
    static const gml_placed_request wrong[] = {
        {.size_bytes = MIB, .offset = 100},
        {.size_bytes = 100, .offset = 512},
        {.size_bytes = MIB, .offset = UINT64_MAX / 512 * 512},
    };
    gml_lake *lake = trainer_open_lake("sim", "stitch", 0);
    CHECK_STATUS(gml_lake_add_places(lake, 0, wrong, 1), GML_MISUSE);
    CHECK_OK(gml_lake_watch_steps(lake));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_STATUS(gml_lake_add_places(lake, 0, &wrong[i], 1), GML_INVALID_ARGUMENT);
    }
    CHECK_OK(gml_lake_close(lake));
}
