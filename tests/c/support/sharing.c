/* Short ways through gmlake.h and the queues below it. */
#include "support/sharing.h"

#include "driver/streams.h"
#include "hooks/test_hooks.h"
#include "lake/lake.h"
#include "support/call_watch.h"

#include <stdlib.h>

static gml_streams *queues_of(gml_lake *lake) {
    return lake->driver->streams;
}

gml_lake *sharing_open(const sharing_config *config) {
    const gml_lake_config full = {.driver = config->driver ? config->driver : "sim",
                                  .policy = config->policy ? config->policy : "stitch",
                                  .capacity_bytes = config->capacity_bytes,
                                  .settings = config->settings,
                                  .setting_count = config->setting_count,
                                  .hooks = GML_HOOKS(.check_order = true)};
    gml_lake *lake = NULL;
    char reason[256] = "";
    if (gml_lake_open(&full, &lake, reason, sizeof reason) != GML_OK) {
        fprintf(stderr, "the lake does not open: %s\n", reason);
        exit(1);
    }
    CHECK_OK(gml_streams_set_manual(queues_of(lake), !config->runs_at_once));
    call_watch_begin(lake);
    return lake;
}

gml_lake *sharing_open_with(const char *name, uint64_t value, const char *second_name,
                            uint64_t second_value) {
    const gml_setting settings[] = {{name, value}, {second_name, second_value}};
    size_t count = (name != NULL) + (size_t)(second_name != NULL);
    return sharing_open(&(sharing_config){.settings = settings, .setting_count = count});
}

void sharing_finish(gml_lake *lake) {
    sharing_run_all(lake);
    CHECK_OK(gml_lake_check(lake));
    CHECK_EQ(lake_stats_of(lake).live_blocks, 0);
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_EQ(sharing_reserved(lake), 0);
    CHECK_EQ(lake_stats_of(lake).views, 0);
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_close(lake));
    CHECK_EQ(call_watch_leftovers(), 0);
    if (!CHECK_EQ(call_watch_fault()[0], '\0')) {
        fprintf(stderr, "%s\n", call_watch_fault());
    }
}

gml_address sharing_take(gml_lake *lake, uint64_t size_bytes, gml_stream stream) {
    gml_address address = 0;
    if (!CHECK_OK(gml_lake_allocate(lake, size_bytes, stream, &address))) {
        char reason[256];
        gml_lake_reason(lake, reason, sizeof reason);
        fprintf(stderr, "%s\n", reason);
    }
    sharing_work(lake, stream);
    return address;
}

void sharing_give(gml_lake *lake, gml_address address) {
    CHECK_OK(gml_lake_free(lake, address));
}

void sharing_leave(gml_lake *lake, uint64_t size_bytes, gml_stream stream) {
    sharing_give(lake, sharing_take(lake, size_bytes, stream));
}

gml_address sharing_leave_two(gml_lake *lake, uint64_t size_bytes, gml_stream stream) {
    gml_address first = sharing_take(lake, size_bytes, stream);
    gml_address between = sharing_take(lake, UINT64_C(2) << 20, stream);
    gml_address second = sharing_take(lake, size_bytes, stream);
    sharing_give(lake, first);
    sharing_give(lake, second);
    return between;
}

static void do_nothing(void *context) {
    (void)context;
}

/* A stream that captures takes no work. */
void sharing_work(gml_lake *lake, gml_stream stream) {
    bool is_capturing = false;
    CHECK_OK(gml_streams_stream_capturing(queues_of(lake), stream, &is_capturing));
    if (!is_capturing) {
        CHECK_OK(gml_streams_enqueue(queues_of(lake), stream, do_nothing, NULL));
    }
}

void sharing_run(gml_lake *lake, gml_stream stream) {
    CHECK_OK(gml_streams_advance(queues_of(lake), stream, UINT64_MAX, NULL));
}

void sharing_run_all(gml_lake *lake) {
    CHECK_OK(gml_streams_set_manual(queues_of(lake), false));
    CHECK_OK(gml_streams_set_manual(queues_of(lake), true));
}

uint64_t sharing_reserved(gml_lake *lake) {
    return lake_stats_of(lake).reserved_bytes;
}

uint64_t sharing_memory_calls(gml_lake *lake) {
    gml_stats stats = lake_stats_of(lake);
    uint64_t calls = 0;
    for (size_t call = GML_CALL_CREATE; call <= GML_CALL_FREE; call++) {
        calls += stats.driver_calls[call];
    }
    return calls;
}

gml_stream_pair sharing_pair(gml_lake *lake, gml_stream owner, gml_stream borrower) {
    gml_stream_pair *pairs = NULL, found = {0};
    size_t count = 0;
    CHECK_OK(gml_lake_stream_pairs(lake, &pairs, &count));
    for (size_t i = 0; i < count; i++) {
        if (pairs[i].owner == owner && pairs[i].borrower == borrower) {
            found = pairs[i];
        }
    }
    free(pairs);
    return found;
}

sharing_tally sharing_count(gml_lake *lake) {
    gml_stats stats = lake_stats_of(lake);
    return (sharing_tally){.records = stats.driver_calls[GML_CALL_EVENT_RECORD_ALL],
                           .waits = stats.driver_calls[GML_CALL_STREAM_WAIT],
                           .creates = stats.driver_calls[GML_CALL_CREATE]};
}
