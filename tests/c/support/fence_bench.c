/* Opening, closing, and calls that must not fail. */
#include "support/fence_bench.h"

#include "hooks/fault.h"

const gml_fence_rules bench_all_rules = {.follows_events = true,
                                         .is_opportunistic = true,
                                         .may_wait = true,
                                         .most_waits = GML_WAIT_WINDOW};

void
bench_open_failing(bench *self, const gml_fence_rules *rules, uint64_t fail_call)
{
    gml_driver *inner = NULL;
    char reason[GML_REASON_BYTES];
    *self = (bench){0};
    CHECK_OK(gml_driver_open("sim", 0, 0, &inner, reason, sizeof reason));
    CHECK_OK(gml_fault_driver_open(inner, fail_call, 0, 0, &self->driver));
    self->queues = gml_driver_streams(self->driver);
    CHECK_OK(gml_streams_set_manual(self->queues, true));
    gml_fences_init(&self->fences, self->driver, rules);
    for (size_t i = 0; i < STREAMS; i++) {
        gml_timeline_open(&self->fences, &self->lines[i], FIRST_STREAM + i);
    }
}

void
bench_open(bench *self, gml_fence_rules rules)
{
    bench_open_failing(self, &rules, 0);
}

void
bench_close(bench *self)
{
    for (size_t i = 0; i < STREAMS; i++) {
        gml_timeline_close(&self->fences, &self->lines[i]);
    }
    CHECK_EQ(self->fences.events.idle_count, self->fences.events.count);
    CHECK(gml_list_is_empty(&self->fences.all_pairs));
    gml_fences_close(&self->fences);
    /* One of either may have failed on purpose. */
    CHECK(self->driver->calls[GML_CALL_EVENT_DESTROY] + 1 >=
          self->driver->calls[GML_CALL_EVENT_CREATE]);
    gml_driver_close(self->driver);
}

uint64_t
bench_calls(const bench *self, gml_driver_call call)
{
    return self->driver->calls[call];
}

uint64_t
bench_all_calls(const bench *self)
{
    uint64_t calls = 0;
    for (size_t i = 0; i < GML_CALL_COUNT; i++) {
        calls += self->driver->calls[i];
    }
    return calls;
}

uint64_t
bench_now(bench *self, size_t line)
{
    return gml_fence_now(&self->fences, &self->lines[line]);
}

bool
bench_passes(bench *self, size_t borrower, size_t owner, uint64_t instant, gml_effort effort)
{
    bool is_passed = false;
    CHECK_OK(gml_fence_pass(&self->fences, &self->lines[borrower], &self->lines[owner], instant,
                            effort, &is_passed));
    return is_passed;
}

bool
bench_marks(bench *self, size_t line)
{
    bool is_marked = false;
    CHECK_OK(gml_fence_mark(&self->fences, &self->lines[line], &is_marked));
    return is_marked;
}

bool
bench_waits(bench *self, size_t line)
{
    bool is_done = false;
    CHECK_OK(gml_fence_wait(&self->fences, &self->lines[line], &is_done));
    return is_done;
}

void
bench_advance(bench *self, size_t line, uint64_t count)
{
    CHECK_OK(gml_streams_advance(self->queues, FIRST_STREAM + line, count, NULL));
}

const gml_pair *
bench_pair(bench *self)
{
    return gml_pair_of_link(self->fences.all_pairs.next);
}
