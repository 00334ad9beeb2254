/* What the core relies on in plain memory, streams, contexts and captures: one test per sentence of
 * docs/driver.md, over every backend. */
#include "support/driver_contract.h"

#include <pthread.h>
#include <string.h>

/* ---- streams, events, contexts --------------------------------------------------------------- */

TEST(an_event_behind_all_streams_completes_after_their_work) {
    gml_driver *driver = open_driver();
    gml_stream first = new_stream(), second = new_stream();
    gml_event event = 0;
    CHECK_OK(gml_driver_event_create(driver, &event));
    for (int i = 0; i < 2; i++) { /* an event may be recorded again */
        CHECK_OK(gml_driver_event_record_all(driver, event));
        CHECK_OK(gml_driver_stream_wait(driver, first, event));
        CHECK_OK(gml_driver_stream_wait(driver, second, event));
        CHECK_OK(gml_driver_event_synchronize(driver, event));
        CHECK_OK(gml_driver_event_query(driver, event));
    }
    CHECK_OK(gml_driver_device_synchronize(driver));
    CHECK_OK(gml_driver_event_destroy(driver, event));
    gml_driver_close(driver);
}

static void set_capturing(gml_driver *driver, gml_stream stream, bool is_capturing) {
    gml_cu_stream handle = (gml_cu_stream)(uintptr_t)stream;
    void *graph = NULL;
    if (!contract_is_cuda()) {
        CHECK_OK(gml_streams_set_capturing(gml_driver_streams(driver), stream, is_capturing));
    } else if (is_capturing) {
        CHECK_EQ(contract_cuda()->cuStreamBeginCapture(handle, 0), GML_CU_SUCCESS);
    } else {
        CHECK_EQ(contract_cuda()->cuStreamEndCapture(handle, &graph), GML_CU_SUCCESS);
        CHECK(graph != NULL);
        CHECK_EQ(contract_cuda()->cuGraphDestroy(graph), GML_CU_SUCCESS);
    }
}

TEST(a_capturing_stream_is_told_and_left_alone) {
    gml_driver *driver = open_driver();
    gml_stream stream = new_stream();
    gml_event event = 0;
    bool is_capturing = true;
    CHECK_OK(gml_driver_event_create(driver, &event));
    CHECK_OK(gml_driver_event_record(driver, event, 0));
    CHECK_OK(gml_driver_stream_capturing(driver, stream, &is_capturing));
    CHECK(!is_capturing);
    set_capturing(driver, stream, true);
    CHECK_OK(gml_driver_stream_capturing(driver, stream, &is_capturing));
    CHECK(is_capturing);
    CHECK_STATUS(gml_driver_stream_synchronize(driver, stream), GML_MISUSE);
    CHECK_STATUS(gml_driver_event_record(driver, event, stream), GML_MISUSE);
    if (!contract_is_cuda()) { /* where it would break the capture */
        CHECK_STATUS(gml_driver_event_record_all(driver, event), GML_MISUSE);
    }
    CHECK_STATUS(gml_driver_stream_wait(driver, stream, event), GML_MISUSE);
    set_capturing(driver, stream, false); /* on `cuda` this fails if the capture was broken */
    CHECK_OK(gml_driver_stream_synchronize(driver, stream));
    CHECK_OK(gml_driver_event_destroy(driver, event));
    gml_driver_close(driver);
}

/* ---- the table itself ------------------------------------------------------------------------ */

TEST(info_describes_the_device) {
    gml_driver *driver = open_driver();
    CHECK(driver->info.has_virtual_memory);
    CHECK(driver->info.name[0] != '\0');
    CHECK(driver->info.total_bytes >= driver->info.free_bytes);
    CHECK(driver->info.free_bytes > 0);
    gml_driver_close(driver);
}

int main(void) {
    return driver_contract_main();
}
