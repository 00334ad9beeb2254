/* Streams that are not the lake's to touch, over every policy: some are gone, and CUDA crashes on a
 * handle of these; some are another device's, on which no event of this device can be recorded and
 * for which waiting for this device is no wait. */
#include "driver/streams.h"
#include "lake/lake.h"
#include "support/contract.h"

#include <string.h>

#define MIB (UINT64_C(1) << 20)

enum { STREAM = 1, OTHER = 2, GONE = 8, FOREIGN = 9 };

static const gml_driver_ops *inner; /* of the lake's driver, behind `outer` */
static gml_driver_ops outer;
static bool is_gone;

static void check_there(gml_stream stream) {
    CHECK(!is_gone || stream != GONE);
}

static gml_status stream_capturing(gml_driver *self, gml_stream stream, bool *out) {
    check_there(stream);
    return inner->stream_capturing(self, stream, out);
}

static gml_status stream_wait(gml_driver *self, gml_stream stream, gml_event event) {
    check_there(stream);
    return inner->stream_wait(self, stream, event);
}

static gml_status stream_synchronize(gml_driver *self, gml_stream stream) {
    check_there(stream);
    return inner->stream_synchronize(self, stream);
}

static gml_status event_record(gml_driver *self, gml_event event, gml_stream stream) {
    check_there(stream);
    if (stream == FOREIGN) {
        return gml_driver_fail(self, GML_DRIVER_FAILED, "the event is of another context");
    }
    return inner->event_record(self, event, stream);
}

static gml_status device_synchronize(gml_driver *self) {
    gml_streams *streams = self->streams;
    gml_status status = GML_OK;
    for (gml_stream stream = 0; stream < FOREIGN && status == GML_OK; stream++) {
        status = gml_streams_stream_synchronize(streams, stream);
    }
    return status;
}

static gml_lake *open_watched(uint64_t capacity_bytes) {
    gml_lake *lake = lake_open_unchecked(capacity_bytes);
    inner = lake->driver->ops;
    outer = *inner;
    outer.stream_capturing = stream_capturing;
    outer.stream_wait = stream_wait;
    outer.stream_synchronize = stream_synchronize;
    outer.event_record = event_record;
    outer.device_synchronize = device_synchronize;
    lake->driver->ops = &outer;
    is_gone = false;
    CHECK_OK(gml_streams_set_manual(lake->driver->streams, true));
    return lake;
}

/* ---- gone ------------------------------------------------------------------------------------ */

TEST(a_stream_that_is_gone_is_not_touched) {
    gml_lake *lake = open_watched(64 * MIB);
    for (int i = 0; i < 2; i++) {
        is_gone = false;
        lake_give(lake, lake_take(lake, 40 * MIB, GONE));
        is_gone = true; /* nobody says so */
        if (i == 0) {
            CHECK_OK(gml_lake_trim(lake, NULL));
            CHECK_EQ(lake_stats_of(lake).reserved_bytes, 0);
        }
    }
    lake_give(lake, lake_take(lake, 40 * MIB, STREAM));
    lake_give(lake, lake_take(lake, 20 * MIB, OTHER));
    CHECK_OK(gml_lake_trim(lake, NULL));
    lake_finish(lake);
}

int main(void) {
    return contract_main_with_arenas();
}
