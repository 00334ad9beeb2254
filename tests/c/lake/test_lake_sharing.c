/* What a program tells a lake of its streams, and what the lake tells of them, over every policy.
 * Streams are advanced by hand; a call on one that is gone fails the test, as it would crash CUDA.
 */
#include "driver/streams.h"
#include "lake/lake.h"
#include "support/contract.h"

#include <stdlib.h>
#include <string.h>

#define ALL UINT64_MAX

enum { OWN = 1, SIDE = 2, OTHER = 3, BLOCK_BYTES = 4 << 20, MOST_PAIRS = 16 };

static const gml_pool_id GRAPH = {1, 7};

/* ---- a driver that watches one stream -------------------------------------------------------- */

static const gml_driver_ops *inner; /* of the lake's driver, behind `outer` */
static gml_driver_ops outer;
static bool is_gone, is_deaf; /* SIDE was destroyed; events cannot be recorded on it, nor waits */
static size_t device_waits, events;

static gml_status
answer_for(gml_driver *self, gml_stream stream)
{
    CHECK(!is_gone || stream != SIDE);
    return is_deaf && stream == SIDE
               ? gml_driver_fail(self, GML_DRIVER_FAILED, "the stream takes no event")
               : GML_OK;
}

static gml_status
stream_capturing(gml_driver *self, gml_stream stream, bool *out)
{
    CHECK(!is_gone || stream != SIDE);
    return inner->stream_capturing(self, stream, out);
}

static gml_status
stream_wait(gml_driver *self, gml_stream stream, gml_event event)
{
    gml_status status = answer_for(self, stream);
    return status == GML_OK ? inner->stream_wait(self, stream, event) : status;
}

static gml_status
stream_synchronize(gml_driver *self, gml_stream stream)
{
    gml_status status = answer_for(self, stream);
    return status == GML_OK ? inner->stream_synchronize(self, stream) : status;
}

static gml_status
event_record(gml_driver *self, gml_event event, gml_stream stream)
{
    gml_status status = answer_for(self, stream);
    return status == GML_OK ? inner->event_record(self, event, stream) : status;
}

static gml_status
event_create(gml_driver *self, gml_event *out)
{
    events++;
    return inner->event_create(self, out);
}

static gml_status
event_destroy(gml_driver *self, gml_event event)
{
    events--;
    return inner->event_destroy(self, event);
}

static gml_status
device_synchronize(gml_driver *self)
{
    device_waits++;
    return inner->device_synchronize(self);
}

static gml_lake *
open_watched(void)
{
    gml_lake *lake = lake_open(0);
    inner = lake->driver->ops;
    outer = *inner;
    outer.stream_capturing = stream_capturing;
    outer.stream_wait = stream_wait;
    outer.stream_synchronize = stream_synchronize;
    outer.event_record = event_record;
    outer.event_create = event_create;
    outer.event_destroy = event_destroy;
    outer.device_synchronize = device_synchronize;
    lake->driver->ops = &outer;
    is_gone = is_deaf = false;
    device_waits = events = 0;
    CHECK_OK(gml_streams_set_manual(gml_driver_streams(lake->driver), true));
    return lake;
}

/* ---- work ------------------------------------------------------------------------------------ */

static void
advance(gml_lake *lake, gml_stream stream)
{
    CHECK_OK(gml_streams_advance(gml_driver_streams(lake->driver), stream, ALL, NULL));
}

/* An allocation that lets the lake look at its events, and leaves nothing behind. */
static void
look(gml_lake *lake)
{
    lake_give(lake, lake_take(lake, 512, OWN));
}

static uint64_t
deferred(gml_lake *lake)
{
    return lake_stats_of(lake).deferred_free_bytes;
}

/* A block of OWN that SIDE works on. */
static gml_address
lend(gml_lake *lake)
{
    gml_address address = lake_take(lake, BLOCK_BYTES, OWN);
    CHECK_OK(gml_lake_record_stream(lake, address, SIDE));
    lake_queue_work(lake, SIDE);
    return address;
}

static void
forget_side(gml_lake *lake)
{
    CHECK_OK(gml_lake_release_stream(lake, SIDE));
    is_gone = true;
}

static void
finish(gml_lake *lake)
{
    is_gone = false; /* for the streams of this backend there is no end */
    look(lake);
    CHECK_OK(gml_streams_set_manual(gml_driver_streams(lake->driver), false));
    look(lake);
    CHECK_EQ(deferred(lake), 0);
    lake_finish(lake);
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* What the lake says of two streams; zeros where it says nothing. Each pair is there once. */
static gml_stream_pair
pair_of(gml_lake *lake, gml_stream owner, gml_stream borrower)
{
    gml_stream_pair pairs[MOST_PAIRS];
    gml_stream_pair found = {0};
    size_t count = 0;
    CHECK_OK(gml_lake_stream_pairs(lake, pairs, MOST_PAIRS, &count));
    CHECK(count <= MOST_PAIRS);
    size_t matches = 0;
    for (size_t i = 0; i < count; i++) {
        if (pairs[i].owner == owner && pairs[i].borrower == borrower) {
            found = pairs[i];
            matches++;
        }
    }
    CHECK(matches <= 1);
    return found;
}

TEST(deferred_bytes_are_counted_for_each_stream_that_is_waited_for)
{
    gml_lake *lake = open_watched();
    gml_address first = lend(lake);
    gml_address second = lend(lake);
    CHECK_OK(gml_lake_record_stream(lake, second, OTHER));
    lake_queue_work(lake, OTHER);
    CHECK_EQ(deferred(lake), 0);
    lake_give(lake, first);
    CHECK_EQ(deferred(lake), BLOCK_BYTES);
    lake_give(lake, second);
    CHECK_EQ(deferred(lake), 2 * BLOCK_BYTES);
    CHECK_EQ(pair_of(lake, OWN, SIDE).deferred_free_bytes, 2 * BLOCK_BYTES);
    CHECK_EQ(pair_of(lake, OWN, OTHER).deferred_free_bytes, BLOCK_BYTES);
    CHECK_EQ(pair_of(lake, SIDE, OWN).deferred_free_bytes, 0);

    advance(lake, SIDE);
    look(lake);
    CHECK_EQ(deferred(lake), BLOCK_BYTES);
    CHECK_EQ(pair_of(lake, OWN, SIDE).deferred_free_bytes, 0);
    CHECK_EQ(pair_of(lake, OWN, OTHER).deferred_free_bytes, BLOCK_BYTES);
    advance(lake, OTHER);
    look(lake);
    CHECK_EQ(deferred(lake), 0);
    finish(lake);
}

TEST(pairs_are_counted_and_copied_as_far_as_there_is_room)
{
    gml_lake *lake = open_watched();
    gml_stream_pair pairs[3];
    size_t count = 9;
    CHECK_OK(gml_lake_stream_pairs(lake, NULL, 0, &count));
    CHECK_EQ(count, 0);
    gml_address address = lake_take(lake, BLOCK_BYTES, OWN);
    for (gml_stream stream = 10; stream < 30; stream++) {
        CHECK_OK(gml_lake_record_stream(lake, address, stream));
        lake_queue_work(lake, stream);
    }
    lake_give(lake, address);
    CHECK_OK(gml_lake_stream_pairs(lake, NULL, 0, &count));
    CHECK_EQ(count, 20);
    memset(pairs, 0, sizeof pairs);
    CHECK_OK(gml_lake_stream_pairs(lake, pairs, 2, &count));
    CHECK_EQ(count, 20);
    CHECK_EQ(pairs[1].deferred_free_bytes, BLOCK_BYTES);
    CHECK_EQ(pairs[2].owner, 0);
    finish(lake);
}

/* ---- streams that go ------------------------------------------------------------------------- */

TEST(a_block_waits_for_a_stream_that_went_before_it_was_freed)
{
    gml_lake *lake = open_watched();
    gml_address first = lend(lake);
    forget_side(lake);
    lake_give(lake, first);
    look(lake);
    CHECK_EQ(deferred(lake), BLOCK_BYTES);
    advance(lake, SIDE);
    look(lake);
    CHECK_EQ(deferred(lake), 0);
    CHECK_EQ(device_waits, 0);
    finish(lake);
}

TEST(a_block_waits_for_a_stream_that_went_after_it_was_freed)
{
    gml_lake *lake = open_watched();
    gml_address first = lend(lake);
    lake_give(lake, first);
    forget_side(lake);
    look(lake);
    CHECK_EQ(deferred(lake), BLOCK_BYTES);
    advance(lake, SIDE);
    look(lake);
    CHECK_EQ(deferred(lake), 0);
    finish(lake);
}

TEST(a_stream_that_went_is_done_with_a_block_that_lives_on)
{
    gml_lake *lake = open_watched();
    gml_address first = lend(lake);
    CHECK_OK(gml_lake_record_stream(lake, first, OTHER));
    gml_address second = lake_take(lake, BLOCK_BYTES, OWN);
    CHECK_OK(gml_lake_record_stream(lake, second, OTHER));
    lake_queue_work(lake, OTHER);
    forget_side(lake);
    advance(lake, SIDE);
    lake_give(lake, second);
    look(lake); /* at the events of both streams */
    CHECK_EQ(deferred(lake), BLOCK_BYTES);
    lake_give(lake, first);
    CHECK_EQ(deferred(lake), 2 * BLOCK_BYTES);
    CHECK_EQ(pair_of(lake, OWN, SIDE).deferred_free_bytes, 0);
    advance(lake, OTHER);
    look(lake);
    CHECK_EQ(deferred(lake), 0);
    finish(lake);
}

TEST(the_next_stream_of_the_same_handle_is_another_one)
{
    gml_lake *lake = open_watched();
    gml_address first = lake_take(lake, BLOCK_BYTES, OWN);
    gml_address owned = lake_take(lake, BLOCK_BYTES, SIDE);
    gml_address old = lend(lake);
    forget_side(lake);
    is_gone = false;
    advance(lake, SIDE);
    CHECK_OK(gml_lake_record_stream(lake, first, SIDE));
    CHECK_OK(gml_lake_record_stream(lake, owned, SIDE));
    lake_queue_work(lake, SIDE);
    lake_give(lake, old);
    look(lake);
    CHECK_EQ(deferred(lake), 0);
    CHECK_OK(gml_lake_record_stream(lake, owned, SIDE)); /* which is known still */
    lake_give(lake, first);
    lake_give(lake, owned);
    look(lake);
    CHECK_EQ(deferred(lake), 2 * BLOCK_BYTES);
    CHECK_EQ(pair_of(lake, SIDE, SIDE).deferred_free_bytes, BLOCK_BYTES);
    advance(lake, SIDE);
    look(lake);
    CHECK_EQ(deferred(lake), 0);
    finish(lake);
}

TEST(the_device_is_waited_for_where_a_stream_went_that_takes_no_event)
{
    gml_lake *lake = open_watched();
    gml_address first = lend(lake);
    is_deaf = true;
    forget_side(lake);
    CHECK_EQ(device_waits, 0);
    lake_give(lake, first);
    CHECK_EQ(device_waits, 1);
    CHECK_EQ(deferred(lake), 0);
    finish(lake);
}

TEST(nothing_is_called_where_a_stream_goes_during_a_capture)
{
    gml_lake *lake = open_watched();
    gml_address first = lend(lake);
    gml_address second = lend(lake);
    CHECK_OK(gml_lake_begin_pool(lake, GRAPH));
    lake_give(lake, second);
    gml_stats before = lake_stats_of(lake);
    CHECK_OK(gml_lake_release_stream(lake, SIDE));
    CHECK_EQ(
        memcmp(before.driver_calls, lake_stats_of(lake).driver_calls, sizeof before.driver_calls),
        0);
    is_gone = true;
    lake_give(lake, first);
    CHECK_EQ(deferred(lake), 2 * BLOCK_BYTES);
    CHECK_OK(gml_lake_end_pool(lake, GRAPH));
    look(lake);
    CHECK_EQ(deferred(lake), 0);
    CHECK(device_waits > 0);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    finish(lake);
}

TEST(a_lake_may_end_with_events_of_streams_that_went)
{
    gml_lake *lake = open_watched();
    (void)lend(lake);
    lake_give(lake, lend(lake));
    forget_side(lake);
    CHECK(events > 0);
    CHECK_OK(gml_lake_close(lake));
    CHECK_EQ(events, 0);
}

TEST(streams_that_the_lake_does_not_know_are_nobody)
{
    gml_lake *lake = open_watched();
    gml_stats before = lake_stats_of(lake);
    CHECK_OK(gml_lake_release_stream(lake, 77));
    CHECK_OK(gml_lake_release_stream(lake, 0));
    CHECK_OK(gml_lake_order_streams(lake, 77, 78));
    CHECK_OK(gml_lake_mark_external_stream(lake, 77));
    gml_stats after = lake_stats_of(lake);
    CHECK_EQ(memcmp(&before, &after, sizeof before), 0);
    finish(lake);
}

/* A block that SIDE reads goes through forgetting, with the n-th call failing: never early. */
static bool
is_safe_with_failure(uint64_t fail_call)
{
    gml_lake_config config = lake_config_of(0);
    config.hooks = GML_HOOKS(.fail_call = fail_call, .check_order = true);
    gml_lake *lake;
    if (gml_lake_open(&config, &lake, NULL, 0) != GML_OK) {
        return true;
    }
    gml_streams *streams = gml_driver_streams(lake->driver);
    gml_address address = 0;
    bool was_done = true;
    if (gml_lake_allocate(lake, BLOCK_BYTES, OWN, &address) == GML_OK) {
        CHECK_OK(gml_lake_record_stream(lake, address, SIDE));
        CHECK_OK(gml_streams_set_manual(streams, true));
        lake_queue_work(lake, SIDE);
        (void)gml_lake_release_stream(lake, SIDE);
        CHECK_OK(gml_lake_free(lake, address));
        uint64_t left = 0;
        bool is_held = deferred(lake) > 0;
        CHECK_OK(gml_streams_advance(streams, SIDE, 1, &left));
        was_done = is_held || left == 0;
    }
    CHECK_OK(gml_streams_set_manual(streams, false));
    (void)gml_lake_close(lake);
    return was_done;
}

TEST(forgetting_survives_the_failure_of_each_call)
{
    for (uint64_t fail_call = 1; fail_call <= 30; fail_call++) {
        CHECK(is_safe_with_failure(fail_call));
    }
}

int
main(void)
{
    return contract_main();
}
