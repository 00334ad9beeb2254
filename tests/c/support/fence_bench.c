/* Opening, closing, and calls that must not fail. */
#include "support/fence_bench.h"

#include "hooks/fault.h"

const gml_fence_rules bench_all_rules = {.follows_events = true,
                                         .is_opportunistic = true,
                                         .may_wait = true,
                                         .most_waits = GML_WAIT_WINDOW};

void bench_open_failing(bench *self, const gml_fence_rules *rules, uint64_t fail_call) {
    gml_driver *inner = NULL;
    char reason[GML_REASON_BYTES];
    *self = (bench){0};
    CHECK_OK(gml_driver_open("sim", 0, 0, &inner, reason, sizeof reason));
    CHECK_OK(gml_fault_driver_open(inner, fail_call, 0, 0, &self->driver));
    self->queues = self->driver->streams;
    CHECK_OK(gml_streams_set_manual(self->queues, true));
    gml_fences_init(&self->fences, self->driver, rules);
    for (size_t i = 0; i < SEEKERS; i++) {
        gml_seeker_open(&self->fences, &self->seekers[i], FIRST_STREAM + i);
    }
}

void bench_open(bench *self, gml_fence_rules rules) {
    bench_open_failing(self, &rules, 0);
}

void bench_close(bench *self) {
    for (size_t i = 0; i < SEEKERS; i++) {
        gml_seeker_close(&self->fences, &self->seekers[i]);
    }
    CHECK(gml_list_is_empty(&self->fences.all_pairs));
    CHECK_EQ(self->fences.events.idle_count + self->fences.mark_count, self->fences.events.count);
    gml_fences_close(&self->fences);
    /* One of either may have failed on purpose. */
    CHECK(self->driver->calls[GML_CALL_EVENT_DESTROY] + 1 >=
          self->driver->calls[GML_CALL_EVENT_CREATE]);
    gml_driver_close(self->driver);
}

static gml_status refuse_mark(gml_driver *self, gml_event event) {
    (void)event;
    return gml_driver_fail(self, GML_UNSUPPORTED, "an old driver");
}

void bench_make_old(gml_driver *driver) {
    static gml_driver_ops old;
    old = *driver->ops;
    old.event_record_all = refuse_mark;
    driver->ops = &old;
}

static void do_nothing(void *context) {
    (void)context;
}

uint64_t bench_free(bench *self, size_t stream) {
    CHECK_OK(gml_streams_enqueue(self->queues, FIRST_STREAM + stream, do_nothing, NULL));
    return gml_fence_now(&self->fences);
}

bool bench_passes(bench *self, size_t borrower, size_t owner, uint64_t instant, gml_effort effort) {
    bool is_passed = false;
    CHECK_OK(gml_fence_pass(&self->fences, &self->seekers[borrower], &self->seekers[owner], instant,
                            effort, &is_passed));
    return is_passed;
}

void bench_advance(bench *self, size_t stream, uint64_t count) {
    CHECK_OK(gml_streams_advance(self->queues, FIRST_STREAM + stream, count, NULL));
}
