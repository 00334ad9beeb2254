/* Idle memory released for somebody else: as much as is wanted, and none that work may still use.
 */
#include "driver/device.h"
#include "driver/streams.h"
#include "gmlake_elastic.h"
#include "gmlake_sleep.h"
#include "lake/lake.h"
#include "support/contract.h"
#include "support/policies.h"

#define MIB (UINT64_C(1) << 20)

static uint64_t give(gml_lake *lake, uint64_t wanted_bytes, bool *is_pending) {
    uint64_t released_bytes = 0;
    CHECK_OK(gml_lake_give(lake, wanted_bytes, NULL, false, &released_bytes, is_pending));
    CHECK_OK(gml_lake_check(lake));
    return released_bytes;
}

TEST(nothing_is_given_during_a_capture) {
    gml_lake *lake = lake_open(64 * MIB);
    bool is_pending = true;
    gml_address first = lake_take(lake, 16 * MIB, 1);
    lake_give(lake, lake_take(lake, 16 * MIB, 1));
    lake_give(lake, first);
    (void)give(lake, 1, &is_pending); /* all of its work is known to be done */
    gml_device_freeze(lake->driver->device, 1);
    CHECK_EQ(give(lake, UINT64_MAX, &is_pending), 0);
    CHECK(!is_pending);
    CHECK_EQ(gml_lake_idle_bytes(lake), 0);
    gml_device_freeze(lake->driver->device, -1);
    CHECK(contract_is_arena || give(lake, UINT64_MAX, &is_pending) > 0);
    lake_finish(lake);
}

int main(void) {
    return contract_main_with_arenas();
}
