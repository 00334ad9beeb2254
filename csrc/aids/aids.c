/* The wrappers in their order. */
#include "aids/aids.h"

#include "aids/fault.h"
#include "aids/race.h"

gml_status
gml_aids_wrap(const gml_aids *aids, gml_driver **driver, gml_watcher **watcher)
{
    gml_status status = GML_OK;
    if (aids->check_order) {
        status = gml_race_driver_open(*driver, driver, watcher);
    }
    if (status == GML_OK && (aids->fail_call || aids->fail_per_million || aids->skip_calls)) {
        status = gml_fault_driver_open(*driver, aids->fail_call, aids->fail_per_million,
                                       aids->fail_seed, driver);
        if (status == GML_OK) {
            status = gml_fault_driver_skip(*driver, aids->skip_calls);
        }
    }
    return status;
}
