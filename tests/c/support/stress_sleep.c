/* Lakes of a random program that sleep and wake.
 *
 * What a sleep may do to contents: after a sleep that succeeded without a backup they hold
 * anything; after any other, and after every failure, they hold what was there, as soon as the lake
 * is awake.
 */
#include "gmlake_sleep.h"
#include "support/stamp.h"
#include "support/stress.h"

#include <stdatomic.h>

#define MIB (UINT64_C(1) << 20)

/* While memory goes or comes, calls fail more often than else: to undo a failure fails as well. */
static void strike_often(stress *self, stress_lake *at) {
    static const uint64_t chances[] = {0, 0, 5000, 50000, 300000};
    if (self->shared->per_million) {
        atomic_store(&at->strikes.per_million, chances[check_below(&self->random, 5)]);
    }
}

static void strike_as_a_rule(stress *self, stress_lake *at) {
    atomic_store(&at->strikes.per_million, self->shared->per_million);
}

static void count_sleep(gml_backup backup) {
    stress_counts.plain_sleeps += backup == GML_BACKUP_NONE;
    stress_counts.host_sleeps += backup == GML_BACKUP_HOST;
}

/* One failure alone can be undone, unless memory that is held beyond the limit was given up. */
static bool is_undone(const stress *self, const stress_lake *at) {
    stress_fault fault = self->shared->fault;
    return (fault == STRESS_CALL || fault == STRESS_PIECE) &&
           at->device->held_bytes <= at->device->limit_bytes;
}

static void fall_asleep(stress *self, stress_lake *at) {
    gml_sleep_report report = {0};
    gml_backup backup = (gml_backup)check_below(&self->random, 2);
    (void)pthread_rwlock_wrlock(&at->awake);
    bool was_asleep = stress_is_asleep(at), can_undo = is_undone(self, at);
    strike_often(self, at);
    gml_status status = ASK(gml_lake_sleep(at->lake, backup, &report));
    strike_as_a_rule(self, at);
    if (!at->can_sleep) {
        CHECK_STATUS(status, GML_UNSUPPORTED);
    } else if (was_asleep) {
        CHECK_STATUS(status, GML_INVALID_ARGUMENT);
    } else if (status == GML_UNSUPPORTED) {
        CHECK(stress_may_capture(self, at) && !stress_is_asleep(at));
    } else {
        at->sleeps++;
        at->is_saved = STRESS_MAYBE;
        stress_counts.failed_sleeps += status != GML_OK;
        stress_counts.half_sleeps += status != GML_OK && stress_is_asleep(at);
        stress_expect(self, status);
        CHECK(status == GML_OK || !can_undo || !stress_is_asleep(at));
    }
    if (status == GML_OK) {
        count_sleep(backup);
        CHECK(stress_is_asleep(at) && !was_asleep);
        at->lost_nap = backup == GML_BACKUP_NONE ? at->sleeps : at->lost_nap;
        at->saved_nap = backup == GML_BACKUP_HOST ? at->sleeps : at->saved_nap;
        at->is_saved = backup == GML_BACKUP_HOST ? STRESS_YES : STRESS_NO;
    }
    (void)pthread_rwlock_unlock(&at->awake);
}

/* Whether it is awake now. */
static bool wake(stress *self, stress_lake *at) {
    gml_sleep_report report = {0};
    (void)pthread_rwlock_wrlock(&at->awake);
    bool was_asleep = stress_is_asleep(at), is_sure = self->shared->fault == STRESS_NONE;
    uint64_t held_bytes = self->shared->is_alone ? at->device->held_bytes : 0;
    strike_often(self, at);
    gml_status status = ASK(gml_lake_wake(at->lake, &report));
    strike_as_a_rule(self, at);
    bool is_asleep = stress_is_asleep(at);
    if (!at->can_sleep) {
        CHECK_STATUS(status, GML_UNSUPPORTED);
    } else if (!was_asleep) {
        CHECK_STATUS(status, GML_INVALID_ARGUMENT);
    } else if (status == GML_UNSUPPORTED) {
        CHECK(stress_may_capture(self, at));
    } else {
        stress_counts.wakes += status == GML_OK;
        stress_counts.failed_wakes += status != GML_OK;
        if (status != GML_OUT_OF_MEMORY) { /* there may be a limit */
            stress_expect(self, status);
        } else if (self->shared->is_alone && is_sure) {
            CHECK_EQ(at->device->held_bytes, held_bytes); /* nothing was taken in vain */
        }
    }
    CHECK_EQ(is_asleep, was_asleep && status != GML_OK);
    (void)pthread_rwlock_unlock(&at->awake);
    return was_asleep && !is_asleep;
}

/* What the host has of a block is what the block holds, and is had of no block that came later. */
static void look_at_saved(stress *self, const stress_block *held) {
    stress_lake *at = held->at;
    const live_block *block = &held->block;
    const void *bytes = NULL;
    (void)pthread_rwlock_rdlock(&at->awake);
    gml_status status = gml_lake_saved(at->lake, block->address, block->size_bytes, &bytes);
    bool was_saved = held->born < at->saved_nap;
    bool had_content =
        held->is_stamped && held->stamped >= at->lost_nap && held->stamped < at->saved_nap;
    if (held->life) { /* it may be saved with all of its pool, and is another block when restored */
        CHECK(status == GML_OK || status == GML_UNKNOWN_ADDRESS);
    } else if (was_saved && at->is_saved == STRESS_YES) {
        CHECK_OK(status);
    } else if (self->shared->is_alone && at->is_saved != STRESS_MAYBE) {
        CHECK_STATUS(status, GML_UNKNOWN_ADDRESS);
    } else if (status != GML_OK) {
        CHECK_STATUS(status, GML_UNKNOWN_ADDRESS);
    }
    stress_counts.saved += status == GML_OK;
    if (status == GML_OK && had_content && lake_is_host()) {
        CHECK(stamp_holds(bytes, block->size_bytes, block->seed, STRESS_STRIDE_BYTES));
    }
    (void)pthread_rwlock_unlock(&at->awake);
}

static void forget_saved(stress *self, stress_lake *at) {
    (void)pthread_rwlock_wrlock(&at->awake);
    gml_status status = ASK(gml_lake_forget_saved(at->lake));
    stress_expect(self, status);
    if (!stress_is_asleep(at)) {
        at->is_saved = STRESS_NO;
    }
    (void)pthread_rwlock_unlock(&at->awake);
}

static void look_at_all_saved(stress *self, const stress_lake *at) {
    for (size_t i = 0; i < self->count; i++) {
        if (self->blocks[i].at == at) {
            look_at_saved(self, &self->blocks[i]);
        }
    }
}

void stress_change_sleep(stress *self) {
    stress_lake *at = stress_any_lake(self);
    uint64_t choice = check_below(&self->random, 16);
    if (choice < 2) {
        look_at_all_saved(self, at);
    } else if (choice < 3) {
        forget_saved(self, at);
    } else if (choice < 12 && stress_is_asleep(at)) {
        look_at_all_saved(self, at);
        if (wake(self, at)) {
            stress_touch_all(self, at);
            stress_touch_buffers(self, at);
        }
    } else if (choice < 4) {
        CHECK(!wake(self, at) || !self->shared->is_alone);
    } else {
        fall_asleep(self, at);
        look_at_all_saved(self, at);
    }
}

void stress_wake_finally(stress *self, stress_lake *at) {
    enum { TRIES = 1 + STRIKES_NUMBERS };
    gml_sleep_report report = {0};
    (void)pthread_rwlock_wrlock(&at->awake);
    atomic_store(&at->strikes.per_million, 0);
    __atomic_store_n(&at->device->limit_bytes, 0, __ATOMIC_RELAXED); /* what others hold stays */
    gml_status status = GML_OK;
    for (int i = 0; i < TRIES && stress_is_asleep(at); i++) {
        status = ASK(gml_lake_wake(at->lake, &report));
        stress_expect(self, status);
    }
    CHECK(status == GML_OK || self->shared->fault == STRESS_PIECES);
    CHECK_OK(gml_lake_set_limit(at->lake, 0));
    strike_as_a_rule(self, at);
    (void)pthread_rwlock_unlock(&at->awake);
    stress_touch_all(self, at);
    stress_touch_buffers(self, at);
}
