/* Plan files: what was written is read again, and nothing else is a plan. */
#include "base/fnv.h"
#include "planner/plan.h"
#include "planner/support/tape.h"
#include "planner/support/training.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 24, CHECKSUM_AT = 16 };

static const gml_planner_options quick = {.budget_ms = 10};

typedef struct file_bytes {
    uint8_t *bytes;
    size_t count;
} file_bytes;

/* ---- plans ----------------------------------------------------------------------------------- */

static gml_plan *plan_after(size_t steps, training program) {
    step_tape tape = {.step_count = 0};
    for (size_t i = 0; i < steps; i++) {
        training_step(&program, &tape);
    }
    gml_profile *profile = tape_profile(&tape);
    gml_plan *plan = NULL;
    if (!CHECK_OK(gml_plan_build(profile, &quick, &plan, NULL, 0))) {
        abort();
    }
    gml_profile_free(profile);
    tape_close(&tape);
    return plan;
}

static gml_plan *plan_of(training program) {
    return plan_after(3, program);
}

/* One step; two lanes; gradients that wrap. */
static gml_plan *rich_plan(void) {
    return plan_of((training){.layers = 8, .keeps_gradients = true, .has_side_stream = true});
}

/* The same with a period of two steps. */
static gml_plan *two_step_plan(void) {
    return plan_of((training){.layers = 8, .batch_bytes = 3 << 20, .keeps_gradients = true});
}

/* With requests that have no offset, of sizes that others have as well. */
static gml_plan *plan_with_gaps(void) {
    return plan_after(1, (training){.layers = 6, .keeps_gradients = true});
}

static file_bytes encode(const gml_plan *plan) {
    file_bytes file = {NULL, 0};
    if (!CHECK_OK(gml_plan_encode(plan, &file.bytes, &file.count))) {
        abort();
    }
    return file;
}

/* ---- there and back -------------------------------------------------------------------------- */

static bool are_equal(const void *a, const void *b, size_t count, size_t item_bytes) {
    return count == 0 || memcmp(a, b, count * item_bytes) == 0;
}

static void check_equal_plans(const gml_plan *a, const gml_plan *b) {
    CHECK_EQ(a->steps, b->steps);
    CHECK_EQ(a->period, b->period);
    CHECK_EQ(a->fingerprint, b->fingerprint);
    CHECK_EQ(a->placed_count, b->placed_count);
    CHECK(are_equal(a->step_time, b->step_time, 3, sizeof a->step_time[0]));
    CHECK(are_equal(a->step_entry, b->step_entry, 3, sizeof a->step_entry[0]));
    if (CHECK_EQ(a->entry_count, b->entry_count)) {
        CHECK(are_equal(a->entries, b->entries, a->entry_count, sizeof *a->entries));
    }
    if (CHECK_EQ(a->lane_count, b->lane_count)) {
        for (size_t i = 0; i < a->lane_count; i++) {
            CHECK_EQ(a->lanes[i].stream, b->lanes[i].stream);
            CHECK_EQ(a->lanes[i].peak_bytes, b->lanes[i].peak_bytes);
            CHECK_EQ(a->lanes[i].lower_bound_bytes, b->lanes[i].lower_bound_bytes);
            CHECK_EQ(a->lanes[i].method, b->lanes[i].method);
        }
    }
}

static void check_round_trip(gml_plan *plan) {
    file_bytes file = encode(plan);
    gml_plan *again = NULL;
    char reason[200] = "";
    if (!CHECK_OK(gml_plan_decode(file.bytes, file.count, &again, reason, sizeof reason))) {
        printf("    %s\n", reason);
    } else {
        check_equal_plans(plan, again);
        file_bytes second = encode(again);
        CHECK_EQ(second.count, file.count);
        CHECK(second.count == file.count && memcmp(second.bytes, file.bytes, file.count) == 0);
        gml_plan_info info;
        gml_plan_describe(again, &info);
        CHECK_EQ(info.time_ns, 0);
        free(second.bytes);
    }
    gml_plan_free(again);
    free(file.bytes);
    gml_plan_free(plan);
}

TEST(what_is_written_is_read_again) {
    check_round_trip(rich_plan());
    check_round_trip(two_step_plan());
    check_round_trip(plan_with_gaps());
    check_round_trip(plan_of((training){.layers = 1}));
}

/* ---- damage ---------------------------------------------------------------------------------- */

static gml_status try_decode(const uint8_t *bytes, size_t count, gml_plan **out) {
    /* A copy of exactly this size, so that a sanitizer sees what is read behind it. */
    uint8_t *copy = malloc(count ? count : 1);
    if (!copy) {
        abort();
    }
    memcpy(copy, bytes, count);
    char reason[200] = "";
    gml_status status = gml_plan_decode(copy, count, out, reason, sizeof reason);
    CHECK(status == GML_OK || reason[0] != '\0');
    free(copy);
    return status;
}

/* Makes the checksum agree with what follows the header. */
static void seal(uint8_t *bytes, size_t count) {
    uint64_t sum = GML_FNV_BEGIN;
    for (size_t i = HEADER_BYTES; i < count; i++) {
        sum = gml_fnv_add(sum, bytes[i]);
    }
    for (size_t i = 0; i < 8; i++) {
        bytes[CHECKSUM_AT + i] = (uint8_t)(sum >> 8 * i);
    }
}

/* What a lane holds never overlaps: asked of the check directly, with problems made here. */
static void check_lane_by_itself(const gml_plan *plan, uint32_t lane) {
    gml_lifetime *lifetimes = calloc(plan->entry_count + 1, sizeof *lifetimes);
    uint64_t *offsets = calloc(plan->entry_count + 1, sizeof *offsets);
    gml_problem problem = {.lifetimes = lifetimes, .period = plan->period};
    for (size_t i = 0; lifetimes && offsets && i < plan->entry_count; i++) {
        const gml_plan_entry *entry = &plan->entries[i];
        if (entry->lane == lane && entry->offset != GML_NO_OFFSET) {
            offsets[problem.count] = entry->offset;
            lifetimes[problem.count++] = (gml_lifetime){
                .size_bytes = entry->size_bytes, .start = entry->start, .end = entry->end};
        }
    }
    if (problem.count > 0) {
        CHECK_OK(gml_planner_check(&problem, offsets, plan->lanes[lane].peak_bytes, NULL, 0));
    }
    free(lifetimes);
    free(offsets);
}

static void check_accepted(gml_plan *plan) {
    for (uint32_t lane = 0; lane < plan->lane_count; lane++) {
        check_lane_by_itself(plan, lane);
    }
}

static void cut_everywhere(gml_plan *plan) {
    file_bytes file = encode(plan);
    gml_plan *read = NULL;
    for (size_t count = 0; count < file.count; count++) {
        CHECK_STATUS(try_decode(file.bytes, count, &read), GML_CORRUPT);
        if (count >= HEADER_BYTES) {
            uint8_t checksum[8];
            memcpy(checksum, file.bytes + CHECKSUM_AT, 8);
            seal(file.bytes, count);
            CHECK_STATUS(try_decode(file.bytes, count, &read), GML_CORRUPT);
            memcpy(file.bytes + CHECKSUM_AT, checksum, 8);
        }
    }
    free(file.bytes);
    gml_plan_free(plan);
}

TEST(a_file_that_was_cut_is_refused) {
    cut_everywhere(rich_plan());
    cut_everywhere(two_step_plan());
}

TEST(a_file_with_something_behind_is_refused) {
    gml_plan *plan = rich_plan(), *read = NULL;
    file_bytes file = encode(plan);
    uint8_t *longer = realloc(file.bytes, file.count + 1);
    if (longer) {
        file = (file_bytes){longer, file.count + 1};
        file.bytes[file.count - 1] = 0;
        seal(file.bytes, file.count);
        CHECK_STATUS(try_decode(file.bytes, file.count, &read), GML_CORRUPT);
    }
    free(file.bytes);
    gml_plan_free(plan);
}

/* Whoever writes the checksum as well gets a plan that is valid, or none. */
static void change_everything(gml_plan *plan, size_t *accepted) {
    static const uint8_t changes[] = {0x01, 0x02, 0x10, 0x40, 0x80, 0xff};
    file_bytes file = encode(plan);
    for (size_t i = HEADER_BYTES; i < file.count; i++) {
        for (size_t k = 0; k < sizeof changes; k++) {
            gml_plan *read = NULL;
            file.bytes[i] ^= changes[k];
            seal(file.bytes, file.count);
            if (try_decode(file.bytes, file.count, &read) == GML_OK) {
                check_accepted(read);
                gml_plan_free(read);
                ++*accepted;
            }
            file.bytes[i] ^= changes[k];
        }
    }
    free(file.bytes);
    gml_plan_free(plan);
}

TEST(a_forged_plan_is_valid_or_refused) {
    size_t accepted = 0;
    change_everything(rich_plan(), &accepted);
    change_everything(two_step_plan(), &accepted);
    change_everything(plan_with_gaps(), &accepted);
    CHECK(accepted > 0);
}

TEST(another_version_is_named) {
    gml_plan *plan = rich_plan(), *read = NULL;
    file_bytes file = encode(plan);
    char reason[200] = "";
    file.bytes[8] = 1;
    CHECK_STATUS(gml_plan_decode(file.bytes, file.count, &read, reason, sizeof reason),
                 GML_UNSUPPORTED);
    CHECK(strstr(reason, "version 1") != NULL);
    CHECK_STATUS(gml_plan_decode(file.bytes, file.count, &read, NULL, 0), GML_UNSUPPORTED);
    free(file.bytes);
    gml_plan_free(plan);
}
