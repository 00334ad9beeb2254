/* The last events of a lake: what is kept, in which order, and how many. */
#include "gmlake_replay.h"
#include "support/contract.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB (UINT64_C(1) << 20)

enum { ROOM = 64 };

typedef struct events {
    gml_request list[ROOM];
    size_t count;
    uint64_t total;
} events;

static events events_of(gml_lake *lake) {
    events seen = {0};
    CHECK_OK(gml_lake_history(lake, seen.list, ROOM, &seen.count, &seen.total));
    return seen;
}

static bool is_of_segment(const gml_request *event) {
    return event->kind == GML_REQUEST_SEGMENT_ALLOC || event->kind == GML_REQUEST_SEGMENT_FREE;
}

/* The same but for what came from and went to the device. */
static events requests_of(gml_lake *lake) {
    events seen = events_of(lake);
    size_t count = 0;
    for (size_t i = 0; i < seen.count; i++) {
        if (!is_of_segment(&seen.list[i])) {
            seen.list[count++] = seen.list[i];
        }
    }
    seen.total -= seen.count - count;
    seen.count = count;
    return seen;
}

/* A lake that holds enough for two blocks of `size_bytes`: they are no reason to ask for more. */
static gml_lake *warm_lake(uint64_t size_bytes) {
    gml_lake *lake = lake_open(0);
    gml_address first = lake_take(lake, size_bytes, 0), second = lake_take(lake, size_bytes, 0);
    lake_give(lake, first);
    lake_give(lake, second);
    return lake;
}

static uint64_t now_ns(void) {
    struct timespec now;
    CHECK_EQ(clock_gettime(CLOCK_REALTIME, &now), 0);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static void check_event(const gml_request *event, gml_request_kind kind, gml_address address,
                        uint64_t size_bytes, gml_stream stream) {
    CHECK_EQ(event->kind, kind);
    CHECK_EQ(event->address, address);
    CHECK_EQ(event->size_bytes, size_bytes);
    CHECK_EQ(event->stream, stream);
    CHECK_EQ(event->pool, 0);
}

TEST(nothing_is_kept_at_first) {
    gml_lake *lake = lake_open(0);
    lake_give(lake, lake_take(lake, MIB, 0));
    events seen = events_of(lake);
    CHECK_EQ(seen.count, 0);
    CHECK_EQ(seen.total, 0);
    lake_finish(lake);
}

TEST(every_kind_is_noted_in_order) {
    gml_lake *lake = lake_open(64 * MIB);
    gml_address refused;
    uint64_t released_bytes, begin_ns = now_ns();
    CHECK_OK(gml_lake_keep_history(lake, ROOM));
    gml_address first = lake_take(lake, 3 * MIB + 5, 4);
    gml_address second = lake_take(lake, 100, 0);
    CHECK_STATUS(gml_lake_allocate(lake, 100 * MIB, 4, &refused), GML_OUT_OF_MEMORY);
    lake_give(lake, first);
    lake_give(lake, second);
    CHECK_OK(gml_lake_trim(lake, &released_bytes));
    events seen = requests_of(lake);
    CHECK_EQ(seen.count, 8);
    CHECK_EQ(seen.total, 8);
    check_event(&seen.list[0], GML_REQUEST_ALLOC, first, 3 * MIB + 5, 4);
    check_event(&seen.list[1], GML_REQUEST_ALLOC, second, 100, 0);
    check_event(&seen.list[2], GML_REQUEST_OOM, 0, 100 * MIB, 4);
    check_event(&seen.list[3], GML_REQUEST_FREE_REQUESTED, first, 3 * MIB + 5, 4);
    check_event(&seen.list[4], GML_REQUEST_FREE, first, 3 * MIB + 5, 4);
    check_event(&seen.list[5], GML_REQUEST_FREE_REQUESTED, second, 100, 0);
    check_event(&seen.list[6], GML_REQUEST_FREE, second, 100, 0);
    check_event(&seen.list[7], GML_REQUEST_TRIM, 0, released_bytes, 0);
    CHECK_EQ(seen.list[3].id, seen.list[0].id);
    CHECK_EQ(seen.list[4].id, seen.list[0].id);
    CHECK_EQ(seen.list[6].id, seen.list[1].id);
    CHECK(seen.list[0].id != seen.list[1].id);
    for (size_t i = 0; i < seen.count; i++) {
        uint64_t earliest_ns = i ? seen.list[i - 1].time_ns : begin_ns;
        CHECK(seen.list[i].time_ns >= earliest_ns && seen.list[i].time_ns <= now_ns());
    }
    lake_finish(lake);
}

TEST(the_ring_keeps_the_youngest) {
    gml_lake *lake = warm_lake(5120);
    CHECK_OK(gml_lake_keep_history(lake, 7));
    for (uint64_t i = 1; i <= 10; i++) {
        lake_give(lake, lake_take(lake, i * 512, 0));
    }
    events seen = events_of(lake);
    CHECK_EQ(seen.total, 30);
    CHECK_EQ(seen.count, 7);
    static const uint64_t sizes[] = {8, 9, 9, 9, 10, 10, 10};
    for (size_t i = 0; i < 7; i++) {
        CHECK_EQ(seen.list[i].size_bytes, sizes[i] * 512);
    }
    CHECK_EQ(seen.list[0].kind, GML_REQUEST_FREE);
    CHECK_EQ(seen.list[4].kind, GML_REQUEST_ALLOC);

    /* Less room than events: the youngest, and not a byte more. */
    gml_request some[4];
    memset(some, 0x5a, sizeof some);
    CHECK_OK(gml_lake_history(lake, some, 3, &seen.count, &seen.total));
    CHECK_EQ(seen.count, 3);
    CHECK_EQ(some[0].kind, GML_REQUEST_ALLOC);
    CHECK_EQ(some[0].size_bytes, 5120);
    CHECK_EQ(some[3].size_bytes, UINT64_C(0x5a5a5a5a5a5a5a5a));
    CHECK_OK(gml_lake_history(lake, some, 0, &seen.count, &seen.total));
    CHECK_EQ(seen.count, 0);
    CHECK_OK(gml_lake_history(lake, NULL, 0, &seen.count, &seen.total));
    CHECK_EQ(seen.count, 7); /* there are to copy */
    CHECK_EQ(seen.total, 30);
    lake_finish(lake);
}

/* ---- what is reserved ------------------------------------------------------------------------ */

typedef struct place {
    gml_address begin, end;
} place;

typedef struct places {
    place list[4096];
    size_t count;
} places;

/* Takes [begin, end) out of the place that holds all of it; false where none does. */
static bool take_out(places *held, gml_address begin, gml_address end) {
    for (size_t i = 0; i < held->count; i++) {
        place around = held->list[i];
        if (around.begin <= begin && end <= around.end) {
            held->list[i] = (place){around.begin, begin};
            held->list[held->count++] = (place){end, around.end};
            return true;
        }
    }
    return false;
}

/* Adds [begin, end), joined with its neighbours; false where any of it is held. */
static bool put_in(places *held, gml_address begin, gml_address end) {
    size_t kept = 0;
    bool is_new = true;
    for (size_t i = 0; i < held->count; i++) {
        place other = held->list[i];
        is_new &= other.begin == other.end || other.end <= begin || end <= other.begin;
        if (other.begin == other.end) {
            continue;
        }
        if (other.end == begin || other.begin == end) {
            begin = other.begin < begin ? other.begin : begin;
            end = other.end > end ? other.end : end;
        } else {
            held->list[kept++] = other;
        }
    }
    held->list[kept++] = (place){begin, end};
    held->count = kept;
    return is_new;
}

static void hold_span(void *context, const gml_span_info *span) {
    if (!span->is_view) {
        CHECK(put_in(context, span->address, span->address + span->size_bytes));
    }
}

static void pass_range(void *context, const gml_range_info *range) {
    (void)context;
    (void)range;
}

static places places_of(gml_lake *lake) {
    places held = {0};
    CHECK_OK(gml_lake_visit(lake, &(gml_visitor){&held, hold_span, pass_range, NULL, NULL}));
    return held;
}

static uint64_t bytes_of(const places *held) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < held->count; i++) {
        bytes += held->list[i].end - held->list[i].begin;
    }
    return bytes;
}

/* Goes through the events; what is live must be held when it is served. Returns how many there were
 * of segments. */
static size_t follow(places *held, const gml_request *list, size_t count) {
    size_t of_segments = 0;
    for (size_t i = 0; i < count; i++) {
        gml_address begin = list[i].address, end = begin + list[i].size_bytes;
        if (list[i].kind == GML_REQUEST_SEGMENT_ALLOC) {
            CHECK(put_in(held, begin, end));
        } else if (list[i].kind == GML_REQUEST_SEGMENT_FREE) {
            CHECK(take_out(held, begin, end));
        }
        of_segments += is_of_segment(&list[i]);
    }
    return of_segments;
}

/* From what was held when it began, the events lead to what is held at the end, place by place. */
TEST(segments_tell_what_is_held) {
    enum { EVENTS = 8192 };
    gml_lake *lake = lake_open(0);
    gml_request *list = calloc(EVENTS, sizeof *list);
    live_block blocks[24];
    uint64_t total, released_bytes;
    size_t count, left = lake_churn(lake, blocks, 24, 200, 2, 3);
    CHECK_OK(gml_lake_keep_history(lake, EVENTS));
    places held = places_of(lake);
    lake_drain(lake, blocks, left);
    CHECK_OK(gml_lake_trim(lake, &released_bytes));
    left = lake_churn(lake, blocks, 24, 600, 2, 5);
    CHECK_OK(gml_lake_history(lake, list, EVENTS, &count, &total));
    CHECK_EQ(count, total);
    CHECK(follow(&held, list, count) >= 2);
    CHECK_EQ(bytes_of(&held), lake_stats_of(lake).reserved_bytes);
    places found = places_of(lake);
    CHECK_EQ(bytes_of(&found), bytes_of(&held));
    for (size_t i = 0; i < found.count; i++) {
        CHECK(take_out(&held, found.list[i].begin, found.list[i].end));
    }
    lake_drain(lake, blocks, left);
    free(list);
    lake_finish(lake);
}

/* Memory comes before the block that asked for it, in the same call. */
TEST(a_segment_comes_before_its_block) {
    gml_lake *lake = lake_open(0);
    CHECK_OK(gml_lake_keep_history(lake, ROOM));
    gml_address address = lake_take(lake, 20 * MIB, 0);
    events seen = events_of(lake);
    const gml_request *segment = &seen.list[0];
    CHECK_EQ(seen.count, 2);
    CHECK_EQ(segment->kind, GML_REQUEST_SEGMENT_ALLOC);
    CHECK_EQ(segment->id, 0);
    CHECK_EQ(segment->size_bytes, lake_stats_of(lake).reserved_bytes);
    CHECK(segment->address <= address && segment->size_bytes >= 20 * MIB);
    check_event(&seen.list[1], GML_REQUEST_ALLOC, address, 20 * MIB, 0);
    lake_give(lake, address);
    CHECK_EQ(events_of(lake).total, 4);
    lake_finish(lake);
}

/* What was kept is a trace: replaying it on another lake does the same. */
TEST(a_history_can_be_replayed) {
    enum { EVENTS = 4096 };
    gml_lake *lake = lake_open(0);
    gml_request *list = calloc(EVENTS, sizeof *list);
    live_block blocks[24];
    uint64_t total;
    size_t count;
    CHECK_OK(gml_lake_keep_history(lake, EVENTS));
    lake_drain(lake, blocks, lake_churn(lake, blocks, 24, 900, 2, 3));
    CHECK_OK(gml_lake_history(lake, list, EVENTS, &count, &total));
    CHECK_EQ(count, total);
    gml_stats recorded = lake_stats_of(lake);

    gml_lake *other = lake_open(0);
    gml_replay *replay = NULL;
    gml_replay_result result = {0};
    CHECK_OK(gml_replay_open(other, total, &replay));
    CHECK_OK(gml_replay_run(replay, list, count, NULL, &result));
    gml_stats replayed = lake_stats_of(other);
    CHECK_EQ(replayed.allocations, recorded.allocations);
    CHECK_EQ(replayed.peak_live_bytes, recorded.peak_live_bytes);
    CHECK_EQ(replayed.peak_reserved_bytes, recorded.peak_reserved_bytes);
    CHECK_EQ(replayed.live_blocks, 0);
    gml_replay_close(replay);
    free(list);
    lake_finish(other);
    lake_finish(lake);
}

int main(void) {
    return contract_main_with_arenas();
}
