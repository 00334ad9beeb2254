/* Queues, events and waits: order, pending events, synchronisation, captures, threads. */
#include "driver/streams.h"
#include "support/check.h"

#include <stddef.h>

/* What ran, in order. */
typedef struct journal {
    int entries[64];
    size_t count;
} journal;

typedef struct note {
    journal *to;
    int value;
} note;

static void write_note(void *context) {
    note *written = context;
    written->to->entries[written->to->count++] = written->value;
}

static gml_streams *open_streams(bool is_manual) {
    gml_streams *streams = NULL;
    CHECK_OK(gml_streams_open(&streams));
    CHECK_OK(gml_streams_set_manual(streams, is_manual));
    return streams;
}

static gml_event new_event(gml_streams *streams) {
    gml_event event = 0;
    CHECK_OK(gml_streams_event_create(streams, &event));
    CHECK(event != 0);
    return event;
}

TEST(a_wait_means_the_recording_before_it) {
    gml_streams *streams = open_streams(true);
    uint64_t done = 9;
    gml_event event = new_event(streams);
    CHECK_OK(gml_streams_event_record(streams, event, 1));
    CHECK_OK(gml_streams_stream_wait(streams, 2, event));
    CHECK_OK(gml_streams_event_record(streams, event, 3));
    CHECK_OK(gml_streams_stream_wait(streams, 4, event));
    CHECK_OK(gml_streams_advance(streams, 3, 1, NULL)); /* the second recording only */
    CHECK_OK(gml_streams_event_query(streams, event));
    CHECK_OK(gml_streams_advance(streams, 2, 1, &done));
    CHECK_EQ(done, 0);
    CHECK_OK(gml_streams_advance(streams, 4, 1, &done));
    CHECK_EQ(done, 1);
    CHECK_OK(gml_streams_advance(streams, 1, 1, NULL));
    CHECK_OK(gml_streams_advance(streams, 2, 1, &done));
    CHECK_EQ(done, 1);
    gml_streams_close(streams);
}

/* Stream 1 records, 2 waits for 1 and records, 3 waits for 2: a chain. Makes the events. */
static void queue_chain(gml_streams *streams, note *notes, gml_event *events) {
    for (uint64_t i = 0; i < 3; i++) {
        events[i] = new_event(streams);
        if (i > 0) {
            CHECK_OK(gml_streams_stream_wait(streams, i + 1, events[i - 1]));
        }
        CHECK_OK(gml_streams_enqueue(streams, i + 1, write_note, &notes[i]));
        CHECK_OK(gml_streams_event_record(streams, events[i], i + 1));
    }
}

TEST(an_event_behind_all_streams_is_synchronised_and_destroyed_as_others_are) {
    gml_streams *streams = open_streams(true);
    journal ran = {0};
    note notes[3] = {{&ran, 1}, {&ran, 2}, {&ran, 3}};
    gml_event events[3];
    queue_chain(streams, notes, events);
    gml_event all = new_event(streams);
    CHECK_OK(gml_streams_event_record_all(streams, all));
    CHECK_OK(gml_streams_stream_wait(streams, 9, all));
    CHECK_OK(gml_streams_enqueue(streams, 1, write_note, &notes[0])); /* later */
    CHECK_OK(gml_streams_event_synchronize(streams, all));
    CHECK_EQ(ran.count, 3);
    CHECK_OK(gml_streams_event_record_all(streams, all)); /* anew */
    CHECK_STATUS(gml_streams_event_query(streams, all), GML_NOT_READY);
    CHECK_OK(gml_streams_stream_wait(streams, 9, all));
    CHECK_OK(gml_streams_event_destroy(streams, all));
    CHECK_STATUS(gml_streams_event_record_all(streams, all), GML_INVALID_ARGUMENT);
    CHECK_OK(gml_streams_stream_synchronize(streams, 9));
    CHECK_EQ(ran.count, 4);
    gml_streams_close(streams);
}

TEST(unknown_events_are_invalid) {
    gml_streams *streams = open_streams(true);
    gml_event event = new_event(streams);
    CHECK_OK(gml_streams_event_destroy(streams, event));
    CHECK_STATUS(gml_streams_event_destroy(streams, event), GML_INVALID_ARGUMENT);
    CHECK_STATUS(gml_streams_event_record(streams, event, 0), GML_INVALID_ARGUMENT);
    CHECK_STATUS(gml_streams_event_query(streams, event), GML_INVALID_ARGUMENT);
    CHECK_STATUS(gml_streams_event_synchronize(streams, event), GML_INVALID_ARGUMENT);
    CHECK_STATUS(gml_streams_stream_wait(streams, 0, event), GML_INVALID_ARGUMENT);
    CHECK_STATUS(gml_streams_event_query(streams, 0), GML_INVALID_ARGUMENT);
    CHECK(new_event(streams) != event);
    gml_streams_close(streams);
}
