/* The exact search: against brute force where that is possible, and on published instances. */
#include "planner/exact.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_ITEMS = 4096, FEW = 10, UNIT = 512, AMPLE_MS = 20000 };

/* ---- problems -------------------------------------------------------------------------------- */

typedef struct items {
    gml_lifetime lifetimes[MOST_ITEMS];
    size_t count;
} items;

static items given; /* too large for a stack */

static void clear(void) {
    memset(&given, 0, sizeof given);
}

static void add(uint64_t size_bytes, uint64_t start, uint64_t end) {
    given.lifetimes[given.count++] =
        (gml_lifetime){.size_bytes = size_bytes, .start = start, .end = end};
}

static void fill_randomly(check_random *random, size_t count, uint64_t most_units, uint64_t times,
                          uint64_t longest) {
    clear();
    for (size_t i = 0; i < count; i++) {
        uint64_t start = check_below(random, times);
        uint64_t end = start + 1 + check_below(random, longest);
        add((1 + check_below(random, most_units)) * UNIT, start, end);
    }
}

/* Lives that fill `most_units` units at every time: at times no placement is as low. */
static void fill_tightly(check_random *random, size_t count, uint64_t most_units) {
    uint64_t live = 0;
    clear();
    for (uint64_t time = 0; given.count < count; time++) {
        for (size_t i = 0; i < given.count; i++) {
            gml_lifetime *item = &given.lifetimes[i];
            if (item->end == UINT64_MAX && !check_below(random, 3)) {
                item->end = time;
                live -= item->size_bytes / UNIT;
            }
        }
        while (live < most_units && given.count < count) {
            uint64_t room = most_units - live;
            uint64_t size = 1 + check_below(random, room < 3 ? room : 3);
            add(size * UNIT, time, UINT64_MAX);
            live += size;
        }
    }
    for (size_t i = 0; i < given.count; i++) {
        bool is_open = given.lifetimes[i].end == UINT64_MAX;
        given.lifetimes[i].end = is_open ? 100 : given.lifetimes[i].end;
    }
}

/* Eight lives of which 4 units are live at every time but that need 5, and up to two more. */
static void fill_with_gap(check_random *random, size_t more) {
    static const uint64_t lives[][3] = {{2, 0, 1}, {2, 0, 2}, {1, 1, 3}, {1, 1, 5},
                                        {1, 2, 5}, {1, 2, 3}, {2, 3, 6}, {2, 5, 6}};
    uint64_t scale = 1 + check_below(random, 9);
    clear();
    for (size_t i = 0; i < sizeof lives / sizeof *lives; i++) {
        add(lives[i][0] * scale * UNIT, lives[i][1], lives[i][2]);
    }
    for (size_t i = 0; i < more; i++) {
        uint64_t start = check_below(random, 8);
        add((1 + check_below(random, 2 * scale)) * UNIT, start, start + 1 + check_below(random, 4));
    }
}

static void shuffle(check_random *random) {
    for (size_t i = given.count; i > 1; i--) {
        size_t j = (size_t)check_below(random, i);
        gml_lifetime other = given.lifetimes[j];
        given.lifetimes[j] = given.lifetimes[i - 1];
        given.lifetimes[i - 1] = other;
    }
}

static gml_instance open_given(void) {
    static uint32_t members[MOST_ITEMS];
    for (size_t i = 0; i < given.count; i++) {
        members[i] = (uint32_t)i;
    }
    gml_problem problem = {.lifetimes = given.lifetimes, .count = given.count};
    gml_instance instance;
    CHECK_OK(gml_instance_open(&instance, &problem, members, given.count, NULL));
    return instance;
}

/* ---- truth ----------------------------------------------------------------------------------- */

static uint64_t top_of(const gml_instance *instance, const uint64_t *offsets, size_t item) {
    return offsets[item] + instance->sizes[item];
}

static bool is_valid(const gml_instance *instance, const uint64_t *offsets,
                     uint64_t capacity_bytes) {
    for (size_t a = 0; a < instance->count; a++) {
        if (top_of(instance, offsets, a) > capacity_bytes || offsets[a] % UNIT) {
            return false;
        }
        for (size_t b = 0; b < a; b++) {
            if (gml_items_meet(instance, a, b) && offsets[a] < top_of(instance, offsets, b) &&
                offsets[b] < top_of(instance, offsets, a)) {
                return false;
            }
        }
    }
    return true;
}

typedef struct brute_force {
    const gml_instance *instance;
    uint64_t offsets[FEW];
    bool is_placed[FEW];
    uint64_t best;
} brute_force;

static uint64_t rest_on_placed(const brute_force *brute, size_t item) {
    uint64_t offset = 0;
    for (size_t other = 0; other < brute->instance->count; other++) {
        if (brute->is_placed[other] && gml_items_meet(brute->instance, item, other)) {
            uint64_t top = top_of(brute->instance, brute->offsets, other);
            offset = top > offset ? top : offset;
        }
    }
    return offset;
}

/* In the order of their offsets, the items of a best placement rest on those before them. */
static void try_orders(brute_force *brute, size_t placed, uint64_t lowest, uint64_t peak) {
    if (peak >= brute->best || brute->best == brute->instance->lower_bound) {
        return;
    }
    if (placed == brute->instance->count) {
        brute->best = peak;
        return;
    }
    for (size_t item = 0; item < brute->instance->count; item++) {
        uint64_t offset = rest_on_placed(brute, item);
        if (!brute->is_placed[item] && offset >= lowest) {
            brute->offsets[item] = offset;
            uint64_t top = top_of(brute->instance, brute->offsets, item);
            brute->is_placed[item] = true;
            try_orders(brute, placed + 1, offset, top > peak ? top : peak);
            brute->is_placed[item] = false;
        }
    }
}

static uint64_t lowest_peak(const gml_instance *instance) {
    brute_force brute = {.instance = instance, .best = UINT64_MAX};
    try_orders(&brute, 0, 0, 0);
    return brute.best;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static gml_exact_outcome search_within(const gml_instance *instance, uint64_t capacity_bytes,
                                       uint64_t milliseconds, uint64_t *offsets) {
    gml_budget budget = gml_budget_of(milliseconds, 1);
    gml_exact_outcome outcome = GML_EXACT_UNDECIDED;
    CHECK_OK(gml_exact_search(instance, capacity_bytes, &budget, offsets, &outcome));
    if (outcome == GML_EXACT_FOUND) {
        CHECK(is_valid(instance, offsets, capacity_bytes));
    }
    return outcome;
}

static uint64_t stack_all(const gml_instance *instance, uint64_t *offsets) {
    uint64_t top = 0;
    for (size_t i = 0; i < instance->count; i++) {
        offsets[i] = top;
        top += instance->sizes[i];
    }
    return top;
}

/* ---- small ones ------------------------------------------------------------------------------ */

/* Whether the lower bound was not reached. */
static bool compare_with_brute_force(void) {
    gml_instance instance = open_given();
    uint64_t offsets[FEW], best = lowest_peak(&instance);
    CHECK_EQ(search_within(&instance, best, AMPLE_MS, offsets), GML_EXACT_FOUND);
    CHECK_EQ(search_within(&instance, best + 7 * UNIT, AMPLE_MS, offsets), GML_EXACT_FOUND);
    CHECK_EQ(search_within(&instance, best - 1, AMPLE_MS, offsets), GML_EXACT_IMPOSSIBLE);

    gml_budget budget = gml_budget_of(AMPLE_MS, 1);
    bool is_proven = false;
    uint64_t peak = stack_all(&instance, offsets);
    CHECK_OK(gml_exact_improve(&instance, 0, &budget, offsets, &peak, &is_proven));
    CHECK_EQ(peak, best);
    CHECK(is_proven);
    CHECK(is_valid(&instance, offsets, best));
    bool is_above_bound = best > instance.lower_bound;
    gml_instance_close(&instance);
    return is_above_bound;
}

TEST(agrees_with_brute_force) {
    check_random random = {1};
    unsigned above_bound = 0;
    for (unsigned round = 0; round < 1500; round++) {
        fill_randomly(&random, 1 + check_below(&random, 7), 1 + check_below(&random, 6),
                      2 + check_below(&random, 9), 1 + check_below(&random, 9));
        above_bound += compare_with_brute_force();
    }
    for (unsigned round = 0; round < 4000; round++) {
        fill_tightly(&random, FEW - check_below(&random, 3), 4 + 2 * check_below(&random, 2));
        above_bound += compare_with_brute_force();
    }
    for (unsigned round = 0; round < 300; round++) {
        fill_with_gap(&random, check_below(&random, 3));
        shuffle(&random);
        above_bound += compare_with_brute_force();
    }
    CHECK(above_bound > 100);
}

TEST(serves_sizes_up_to_the_limit) {
    uint64_t offsets[FEW], large = UINT64_C(1) << 48;
    clear();
    add(large, 0, 3);
    add(large / 2, 1, 4);
    add(large / 2, 3, UINT64_MAX);
    add(large, 4, UINT64_C(1) << 62);
    gml_instance coarse = open_given();
    CHECK_EQ(search_within(&coarse, 3 * (large / 2), AMPLE_MS, offsets), GML_EXACT_FOUND);
    CHECK_EQ(search_within(&coarse, 3 * (large / 2) - 1, AMPLE_MS, offsets), GML_EXACT_IMPOSSIBLE);
    gml_instance_close(&coarse);

    add(UNIT, 0, 5); /* now 32 bits do not hold the sum in units */
    gml_instance fine = open_given();
    CHECK_EQ(search_within(&fine, UINT64_MAX, AMPLE_MS, offsets), GML_EXACT_UNDECIDED);
    gml_instance_close(&fine);
}

/* ---- larger ones ----------------------------------------------------------------------------- */

/* Items that tile a rectangle, so that there is a placement without any gap. */
static void tile(check_random *random, uint64_t least, uint64_t from, uint64_t to, uint64_t high) {
    struct rectangle {
        uint64_t from, to, low, high;
    } open[MOST_ITEMS] = {{from, to, 0, high}};
    for (size_t count = 1; count;) {
        struct rectangle all = open[--count], rest = all;
        bool is_small = all.to - all.from < least || all.high - all.low < least;
        if (is_small) {
            add((all.high - all.low) * UNIT, all.from, all.to);
        } else if (check_below(random, 2)) {
            all.to = rest.from = all.from + 1 + check_below(random, all.to - all.from - 1);
            open[count++] = all;
            open[count++] = rest;
        } else {
            all.high = rest.low = all.low + 1 + check_below(random, all.high - all.low - 1);
            open[count++] = all;
            open[count++] = rest;
        }
    }
}

TEST(finds_placements_without_gaps) {
    static uint64_t offsets[MOST_ITEMS];
    check_random random = {7};
    for (unsigned round = 0; round < 100; round++) {
        clear();
        tile(&random, 6, 0, 30, 30);
        shuffle(&random);
        gml_instance instance = open_given();
        CHECK_EQ(instance.lower_bound, 30 * UNIT);
        CHECK_EQ(search_within(&instance, 30 * UNIT, AMPLE_MS, offsets), GML_EXACT_FOUND);
        gml_instance_close(&instance);
    }
}

/* Each strategy has to find what there is by itself, from the worst order as well. */
static void run_each_strategy(uint64_t capacity_bytes, gml_exact_outcome expected) {
    gml_instance instance = open_given();
    for (unsigned i = 0; i < GML_EXACT_CHOICES; i++) {
        for (unsigned key = 0; key < GML_EXACT_KEYS; key++) {
            gml_exact_key by = (gml_exact_key)key;
            gml_exact_strategy strategy = {(gml_exact_choice)i, {by, by, by}};
            gml_exact_space space;
            gml_budget budget = gml_budget_of(AMPLE_MS, 1);
            uint32_t members[MOST_ITEMS];
            for (uint32_t item = 0; item < instance.count; item++) {
                members[item] = item;
            }
            gml_exact_outcome outcome = GML_EXACT_UNDECIDED;
            CHECK_OK(gml_exact_space_open(&space, &instance, capacity_bytes));
            CHECK_OK(gml_exact_run(&space, &strategy, members, (uint32_t)instance.count, UINT64_MAX,
                                   &budget, &outcome));
            CHECK_EQ(outcome, expected);
            gml_exact_space_close(&space);
        }
    }
    gml_instance_close(&instance);
}

TEST(finds_what_there_is_with_each_strategy) {
    check_random random = {14};
    for (unsigned round = 0; round < 3000; round++) {
        fill_tightly(&random, 6 + check_below(&random, FEW - 5), 4 + check_below(&random, 5));
        shuffle(&random);
        gml_instance instance = open_given();
        uint64_t best = lowest_peak(&instance);
        gml_instance_close(&instance);
        run_each_strategy(best, GML_EXACT_FOUND);
    }
}

/* Many in each slot, and a life of all the time that can be anywhere between them. */
TEST(finds_tilings_with_each_strategy) {
    check_random random = {13};
    for (unsigned round = 0; round < 300; round++) {
        uint64_t middle = 3 + check_below(&random, 4), high = middle + 3 + check_below(&random, 4);
        clear();
        tile(&random, 2, 0, 5, middle);
        tile(&random, 2, 0, 6, high - middle);
        add(2 * UNIT, 0, 7);
        shuffle(&random);
        if (given.count <= 16) {
            run_each_strategy((high + 2) * UNIT, GML_EXACT_FOUND);
        }
    }
}

TEST(searches_independent_ranges_of_time_one_by_one) {
    static uint64_t offsets[MOST_ITEMS];
    check_random random = {8};
    clear();
    for (uint64_t part = 0; part < 60; part++) {
        tile(&random, 6, 40 * part, 40 * part + 20, 20);
    }
    shuffle(&random);
    gml_instance instance = open_given();
    CHECK(instance.count > 600);
    CHECK_EQ(search_within(&instance, 20 * UNIT, AMPLE_MS, offsets), GML_EXACT_FOUND);
    gml_instance_close(&instance);
}
