/* Queues, events and waits: order, pending events, synchronisation, captures, threads. */
#include "driver/streams.h"
#include "support/check.h"

#include <pthread.h>
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

TEST(automatic_work_runs_at_once) {
    gml_streams *streams = open_streams(false);
    journal ran = {0};
    note one = {&ran, 1};
    gml_event event = new_event(streams);
    CHECK_OK(gml_streams_enqueue(streams, 7, write_note, &one));
    CHECK_EQ(ran.count, 1);
    CHECK_OK(gml_streams_event_record(streams, event, 7));
    CHECK_OK(gml_streams_event_query(streams, event));
    CHECK_OK(gml_streams_wait(streams, 8, event));
    CHECK_OK(gml_streams_enqueue(streams, 8, write_note, &one));
    CHECK_EQ(ran.count, 2);
    gml_streams_close(streams);
}

TEST(manual_work_waits_for_the_test) {
    gml_streams *streams = open_streams(true);
    journal ran = {0};
    note notes[3] = {{&ran, 0}, {&ran, 1}, {&ran, 2}};
    uint64_t done = 0;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(gml_streams_enqueue(streams, 0, write_note, &notes[i]));
    }
    CHECK_EQ(ran.count, 0);
    CHECK_OK(gml_streams_advance(streams, 0, 2, &done));
    CHECK_EQ(done, 2);
    CHECK_EQ(ran.count, 2);
    CHECK_OK(gml_streams_advance(streams, 0, 5, &done));
    CHECK_EQ(done, 1);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(ran.entries[i], i);
    }
    gml_streams_close(streams);
}

TEST(an_event_is_pending_until_its_place_is_reached) {
    gml_streams *streams = open_streams(true);
    journal ran = {0};
    note one = {&ran, 1};
    gml_event event = new_event(streams);
    CHECK_OK(gml_streams_event_query(streams, event)); /* never recorded */
    CHECK_OK(gml_streams_enqueue(streams, 3, write_note, &one));
    CHECK_OK(gml_streams_event_record(streams, event, 3));
    CHECK_STATUS(gml_streams_event_query(streams, event), GML_NOT_READY);
    CHECK_OK(gml_streams_advance(streams, 3, 1, NULL));
    CHECK_STATUS(gml_streams_event_query(streams, event), GML_NOT_READY);
    CHECK_OK(gml_streams_advance(streams, 3, 1, NULL));
    CHECK_OK(gml_streams_event_query(streams, event));
    gml_streams_close(streams);
}

TEST(a_wait_holds_its_stream_and_no_other) {
    gml_streams *streams = open_streams(true);
    journal ran = {0};
    note one = {&ran, 1};
    note two = {&ran, 2};
    note three = {&ran, 3};
    uint64_t done = 9;
    gml_event event = new_event(streams);
    CHECK_OK(gml_streams_enqueue(streams, 1, write_note, &one));
    CHECK_OK(gml_streams_event_record(streams, event, 1));
    CHECK_OK(gml_streams_wait(streams, 2, event));
    CHECK_OK(gml_streams_enqueue(streams, 2, write_note, &two));
    CHECK_OK(gml_streams_enqueue(streams, 3, write_note, &three));
    CHECK_OK(gml_streams_advance(streams, 2, 10, &done));
    CHECK_EQ(done, 0);
    CHECK_OK(gml_streams_advance(streams, 3, 10, &done));
    CHECK_EQ(done, 1);
    CHECK_OK(gml_streams_advance(streams, 1, 10, &done));
    CHECK_EQ(done, 2);
    CHECK_EQ(ran.count, 2);
    CHECK_OK(gml_streams_advance(streams, 2, 10, &done));
    CHECK_EQ(done, 2);
    CHECK_EQ(ran.entries[2], 2);
    gml_streams_close(streams);
}

TEST(a_wait_means_the_recording_before_it) {
    gml_streams *streams = open_streams(true);
    uint64_t done = 9;
    gml_event event = new_event(streams);
    CHECK_OK(gml_streams_event_record(streams, event, 1));
    CHECK_OK(gml_streams_wait(streams, 2, event));
    CHECK_OK(gml_streams_event_record(streams, event, 3));
    CHECK_OK(gml_streams_wait(streams, 4, event));
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
            CHECK_OK(gml_streams_wait(streams, i + 1, events[i - 1]));
        }
        CHECK_OK(gml_streams_enqueue(streams, i + 1, write_note, &notes[i]));
        CHECK_OK(gml_streams_event_record(streams, events[i], i + 1));
    }
}

TEST(synchronising_runs_what_is_needed_and_no_more) {
    gml_streams *streams = open_streams(true);
    journal ran = {0};
    note notes[4] = {{&ran, 1}, {&ran, 2}, {&ran, 3}, {&ran, 4}};
    gml_event events[3];
    queue_chain(streams, notes, events);
    CHECK_OK(gml_streams_enqueue(streams, 1, write_note, &notes[3]));
    CHECK_OK(gml_streams_event_synchronize(streams, events[1]));
    CHECK_EQ(ran.count, 2);
    CHECK_STATUS(gml_streams_event_query(streams, events[2]), GML_NOT_READY);
    CHECK_OK(gml_streams_synchronize(streams, 3));
    CHECK_EQ(ran.count, 3);
    CHECK_OK(gml_streams_synchronize_all(streams));
    CHECK_EQ(ran.count, 4);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(ran.entries[i], i + 1);
    }
    gml_streams_close(streams);
}

TEST(an_event_behind_all_streams_waits_for_what_each_was_given) {
    gml_streams *streams = open_streams(true);
    journal ran = {0};
    note notes[4] = {{&ran, 1}, {&ran, 2}, {&ran, 3}, {&ran, 4}};
    gml_event event = new_event(streams);
    uint64_t done = 9;
    CHECK_OK(gml_streams_event_record_all(streams, event));
    CHECK_OK(gml_streams_event_query(streams, event)); /* nothing was given to any */
    for (uint64_t i = 0; i < 3; i++) {
        CHECK_OK(gml_streams_enqueue(streams, i, write_note, &notes[i]));
    }
    CHECK_OK(gml_streams_event_record_all(streams, event));
    CHECK_OK(gml_streams_wait(streams, 5, event));
    CHECK_OK(gml_streams_enqueue(streams, 5, write_note, &notes[3]));
    CHECK_OK(gml_streams_enqueue(streams, 2, write_note, &notes[3])); /* later */
    for (gml_stream stream = 0; stream < 3; stream++) {
        CHECK_STATUS(gml_streams_event_query(streams, event), GML_NOT_READY);
        CHECK_OK(gml_streams_advance(streams, 5, 1, &done));
        CHECK_EQ(done, 0);
        CHECK_OK(gml_streams_advance(streams, stream, 2, NULL));
    }
    CHECK_OK(gml_streams_event_query(streams, event));
    CHECK_OK(gml_streams_advance(streams, 5, 2, &done));
    CHECK_EQ(done, 2);
    CHECK_EQ(ran.count, 4);
    gml_streams_close(streams);
}

TEST(an_event_behind_all_streams_is_synchronised_and_destroyed_as_others_are) {
    gml_streams *streams = open_streams(true);
    journal ran = {0};
    note notes[3] = {{&ran, 1}, {&ran, 2}, {&ran, 3}};
    gml_event events[3];
    queue_chain(streams, notes, events);
    gml_event all = new_event(streams);
    CHECK_OK(gml_streams_event_record_all(streams, all));
    CHECK_OK(gml_streams_wait(streams, 9, all));
    CHECK_OK(gml_streams_enqueue(streams, 1, write_note, &notes[0])); /* later */
    CHECK_OK(gml_streams_event_synchronize(streams, all));
    CHECK_EQ(ran.count, 3);
    CHECK_OK(gml_streams_event_record_all(streams, all)); /* anew */
    CHECK_STATUS(gml_streams_event_query(streams, all), GML_NOT_READY);
    CHECK_OK(gml_streams_wait(streams, 9, all));
    CHECK_OK(gml_streams_event_destroy(streams, all));
    CHECK_STATUS(gml_streams_event_record_all(streams, all), GML_INVALID_ARGUMENT);
    CHECK_OK(gml_streams_synchronize(streams, 9));
    CHECK_EQ(ran.count, 4);
    gml_streams_close(streams);
}

TEST(leaving_manual_mode_runs_everything) {
    gml_streams *streams = open_streams(true);
    journal ran = {0};
    note notes[3] = {{&ran, 1}, {&ran, 2}, {&ran, 3}};
    gml_event events[3];
    queue_chain(streams, notes, events);
    CHECK_OK(gml_streams_set_manual(streams, false));
    CHECK_EQ(ran.count, 3);
    CHECK_OK(gml_streams_event_query(streams, events[2]));
    gml_streams_close(streams);
}

TEST(a_destroyed_event_still_releases_its_waiters) {
    gml_streams *streams = open_streams(true);
    uint64_t done = 9;
    gml_event event = new_event(streams);
    CHECK_OK(gml_streams_event_record(streams, event, 1));
    CHECK_OK(gml_streams_wait(streams, 2, event));
    CHECK_OK(gml_streams_event_destroy(streams, event));
    CHECK_OK(gml_streams_advance(streams, 2, 1, &done));
    CHECK_EQ(done, 0);
    CHECK_OK(gml_streams_advance(streams, 1, 1, NULL));
    CHECK_OK(gml_streams_advance(streams, 2, 1, &done));
    CHECK_EQ(done, 1);
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
    CHECK_STATUS(gml_streams_wait(streams, 0, event), GML_INVALID_ARGUMENT);
    CHECK_STATUS(gml_streams_event_query(streams, 0), GML_INVALID_ARGUMENT);
    CHECK(new_event(streams) != event);
    gml_streams_close(streams);
}

TEST(a_capturing_stream_refuses) {
    gml_streams *streams = open_streams(false);
    journal ran = {0};
    note one = {&ran, 1};
    bool is_capturing = true;
    gml_event mine = new_event(streams);
    gml_event other = new_event(streams);
    CHECK_OK(gml_streams_event_record(streams, mine, 5));
    CHECK_OK(gml_streams_event_record(streams, other, 6));
    CHECK_OK(gml_streams_capturing(streams, 5, &is_capturing));
    CHECK(!is_capturing);
    CHECK_OK(gml_streams_set_capturing(streams, 5, true));
    CHECK_OK(gml_streams_capturing(streams, 5, &is_capturing));
    CHECK(is_capturing);
    CHECK_STATUS(gml_streams_enqueue(streams, 5, write_note, &one), GML_MISUSE);
    CHECK_STATUS(gml_streams_event_record(streams, other, 5), GML_MISUSE);
    CHECK_STATUS(gml_streams_event_record_all(streams, other), GML_MISUSE);
    CHECK_STATUS(gml_streams_wait(streams, 5, other), GML_MISUSE);
    CHECK_STATUS(gml_streams_synchronize(streams, 5), GML_MISUSE);
    CHECK_STATUS(gml_streams_synchronize_all(streams), GML_MISUSE);
    CHECK_STATUS(gml_streams_event_query(streams, mine), GML_MISUSE);
    CHECK_STATUS(gml_streams_event_synchronize(streams, mine), GML_MISUSE);
    CHECK_OK(gml_streams_event_query(streams, other));
    CHECK_OK(gml_streams_synchronize(streams, 6));
    CHECK_OK(gml_streams_set_capturing(streams, 5, false));
    CHECK_OK(gml_streams_synchronize_all(streams));
    CHECK_OK(gml_streams_event_query(streams, mine));
    CHECK_EQ(ran.count, 0);
    gml_streams_close(streams);
}

/* ---- many threads, one set of queues --------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 500 };

typedef struct worker {
    gml_streams *streams;
    gml_stream stream;
    gml_event *events; /* one per worker */
    uint64_t ran;      /* written by the queue alone, under its lock */
} worker;

static void count_one(void *context) {
    (*(uint64_t *)context)++;
}

static void *work(void *argument) {
    worker *self = argument;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        gml_event neighbour = self->events[(self->stream + i) % THREADS];
        CHECK_OK(gml_streams_enqueue(self->streams, self->stream, count_one, &self->ran));
        CHECK_OK(
            gml_streams_event_record(self->streams, self->events[self->stream - 1], self->stream));
        CHECK_OK(gml_streams_wait(self->streams, self->stream, neighbour));
        gml_status status = gml_streams_event_query(self->streams, neighbour);
        CHECK(status == GML_OK || status == GML_NOT_READY);
        if (i % 16 == 0) {
            CHECK_OK(gml_streams_event_synchronize(self->streams, neighbour));
        }
        CHECK_OK(gml_streams_advance(self->streams, self->stream, 1, NULL));
    }
    CHECK_OK(gml_streams_synchronize(self->streams, self->stream));
    return NULL;
}

TEST(threads_share_the_queues) {
    gml_streams *streams = open_streams(true);
    gml_event events[THREADS];
    worker workers[THREADS];
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        events[i] = new_event(streams);
        workers[i] = (worker){streams, i + 1, events, 0};
    }
    for (size_t i = 0; i < THREADS; i++) {
        CHECK_EQ(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    }
    CHECK_OK(gml_streams_synchronize_all(streams));
    for (size_t i = 0; i < THREADS; i++) {
        CHECK_EQ(workers[i].ran, ROUNDS);
    }
    gml_streams_close(streams);
}
