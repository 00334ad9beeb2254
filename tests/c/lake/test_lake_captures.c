/* Lakes of one device, and captures: one begins or ends between their calls, never within one. */
#include "driver/wrapped.h"
#include "gmlake_sleep.h"
#include "lake/lake.h"
#include "support/check.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#define MIB (UINT64_C(1) << 20)

static const gml_pool_id GRAPH = {1, 7};

/* ---- a call on one lake, and a change of the captures in its middle -------------------------- */

typedef struct meeting {
    gml_device device;
    gml_lake *busy, *other;
    gml_address block; /* in `busy` */
    bool is_expected;  /* at the next driver call of `busy` */
    bool was_frozen;
    void (*change)(struct meeting *at);
    pthread_t thread;
    atomic_bool has_changed;
    uint64_t calls; /* of the driver that saw it */
} meeting;

static meeting at;

static void *change(void *context) {
    at.change(&at);
    atomic_store(&at.has_changed, true);
    return context;
}

/* Whether another thread waits for a lock that this one holds: glibc keeps 2 there then. */
static bool is_awaited(const pthread_mutex_t *lock) {
    return __atomic_load_n(&lock->__data.__lock, __ATOMIC_RELAXED) == 2;
}

static void meet(void) {
    if (at.is_expected && at.calls++ == 0) {
        CHECK_EQ(pthread_create(&at.thread, NULL, change, NULL), 0);
        while (!atomic_load(&at.has_changed) && !is_awaited(&at.busy->lock)) {
            (void)sched_yield();
        }
    }
    if (at.is_expected) {
        CHECK_EQ(gml_device_is_frozen(&at.device), at.was_frozen);
    }
}

#define MEET(upper, lower, parameters, arguments, cost_bytes)                                      \
    static gml_status meet_##lower parameters {                                                    \
        gml_driver *driver = gml_wrapped_inner(self);                                              \
        meet();                                                                                    \
        return gml_wrapped_relay(self, driver->ops->lower arguments);                              \
    }
GML_DRIVER_TABLE(MEET, MEET)
#undef MEET

static void destroy(gml_driver *self) {
    gml_driver_close(gml_wrapped_inner(self));
    free(self);
}

static gml_status wrap(const gml_lake_hooks *self, gml_hook_layer layer, gml_driver **driver,
                       gml_checker **checker) {
    (void)self;
    (void)checker;
    gml_wrapped *meeting_driver =
        layer == GML_HOOK_BELOW_SLEEP ? calloc(1, sizeof *meeting_driver) : NULL;
    if (meeting_driver) {
        gml_wrap(meeting_driver, *driver, destroy);
#define ENTRY(upper, lower, parameters, arguments, cost_bytes)                                     \
    meeting_driver->ops.lower = meet_##lower;
        GML_DRIVER_TABLE(ENTRY, ENTRY)
#undef ENTRY
        *driver = &meeting_driver->base;
    }
    return GML_OK;
}

static gml_lake *open_lake(const char *policy, bool meets) {
    static const gml_lake_hooks hooks = {wrap};
    const gml_lake_config config = {
        .driver = "sim",
        .policy = policy,
        .capacity_bytes = 256 * MIB,
        .can_sleep = true,
        .shared = &at.device,
        .hooks = meets ? &hooks : NULL,
    };
    gml_lake *lake = NULL;
    CHECK_OK(gml_lake_open(&config, &lake, NULL, 0));
    return lake;
}

/* ---- what is called -------------------------------------------------------------------------- */

static void allocate(void) {
    gml_address block = 0;
    CHECK_OK(gml_lake_allocate(at.busy, 48 * MIB, 0, &block));
}

static void trim(void) {
    uint64_t released_bytes = 0;
    CHECK_OK(gml_lake_trim(at.busy, &released_bytes));
    CHECK(released_bytes >= 30 * MIB);
}

static void fall_asleep(void) {
    gml_sleep_report report = {0};
    CHECK_OK(gml_lake_sleep(at.busy, GML_BACKUP_NONE, &report));
    CHECK(report.released_bytes >= 60 * MIB);
}

static void wake(void) {
    gml_sleep_report report = {0};
    CHECK_OK(gml_lake_wake(at.busy, &report));
}

static void end(void) {
    CHECK_OK(gml_lake_close(at.busy));
    at.busy = NULL;
}

/* ---- what changes ---------------------------------------------------------------------------- */

static void begin_pool(meeting *of) {
    CHECK_OK(gml_lake_begin_pool(of->other, GRAPH));
}

static void end_pool(meeting *of) {
    CHECK_OK(gml_lake_end_pool(of->other, GRAPH));
}

static void freeze(meeting *of) {
    gml_device_freeze(&of->device, 1);
}

static void thaw(meeting *of) {
    gml_device_freeze(&of->device, -1);
}

static void close_capturing(meeting *of) {
    CHECK_OK(gml_lake_close(of->other));
    of->other = NULL;
}

/* ---- both at once ---------------------------------------------------------------------------- */

/* `before` is done first, by one thread. Every driver call of `call` sees the device as it was. */
static void check_meeting(const char *policy, void (*before)(void), void (*call)(void),
                          void (*changes)(meeting *of)) {
    gml_address idle = 0;
    at = (meeting){.change = changes};
    at.busy = open_lake(policy, true);
    at.other = open_lake(policy, false);
    CHECK_OK(gml_lake_allocate(at.busy, 30 * MIB, 0, &at.block));
    CHECK_OK(gml_lake_allocate(at.busy, 30 * MIB, 0, &idle));
    CHECK_OK(gml_lake_free(at.busy, idle));
    if (before) {
        before();
    }
    at.was_frozen = gml_device_is_frozen(&at.device);
    at.is_expected = true;
    call();
    CHECK(at.calls > 0);
    CHECK_EQ(pthread_join(at.thread, NULL), 0);
    CHECK(gml_device_is_frozen(&at.device) != at.was_frozen);
    at.is_expected = false;
    if (changes == freeze) {
        thaw(&at);
    }
    CHECK_OK(gml_lake_close(at.other)); /* which ends its captures */
    CHECK_OK(gml_lake_close(at.busy));
    CHECK(at.device.sharers == NULL);
}

static void capture_on_other(void) {
    begin_pool(&at);
}

static void freeze_device(void) {
    freeze(&at);
}

static void (*const calls[])(void) = {allocate, trim, fall_asleep, end};
static const char *const policies[] = {"stitch", "caching"};

TEST(a_capture_begins_after_the_calls_on_other_lakes) {
    for (size_t policy = 0; policy < 2; policy++) {
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
            check_meeting(policies[policy], NULL, calls[i], begin_pool);
            check_meeting(policies[policy], NULL, calls[i], freeze);
        }
        check_meeting(policies[policy], fall_asleep, wake, begin_pool);
        check_meeting(policies[policy], fall_asleep, wake, freeze);
    }
}

TEST(a_capture_ends_after_the_calls_on_other_lakes) {
    for (size_t policy = 0; policy < 2; policy++) {
        check_meeting(policies[policy], capture_on_other, allocate, end_pool);
        check_meeting(policies[policy], capture_on_other, allocate, close_capturing);
        check_meeting(policies[policy], freeze_device, allocate, thaw);
    }
}

int main(void) {
    return check_all();
}
