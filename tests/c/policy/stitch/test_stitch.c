/* What the policy `stitch` promises, through the public interface. */
#include "support/contract.h"

#include <stdlib.h>
#include <string.h>

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define CHUNK (2 * MIB)

static gml_lake *open_with(const char *driver, const char *policy, uint64_t capacity_bytes,
                           const gml_setting *settings, size_t count) {
    const gml_lake_config config = {
        .driver = driver,
        .policy = policy,
        .capacity_bytes = capacity_bytes,
        .settings = settings,
        .setting_count = count,
    };
    return lake_open_by(&config);
}

static gml_lake *open_sim(void) {
    return open_with("sim", "stitch", 0, NULL, 0);
}

static void close_lake(gml_lake *lake) {
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_close(lake));
}

static gml_address allocate_on(gml_lake *lake, uint64_t size_bytes, gml_stream stream) {
    gml_address address = 0;
    CHECK_OK(gml_lake_allocate(lake, size_bytes, stream, &address));
    return address;
}

static gml_address allocate(gml_lake *lake, uint64_t size_bytes) {
    return allocate_on(lake, size_bytes, 0);
}

static void release(gml_lake *lake, gml_address address) {
    CHECK_OK(gml_lake_free(lake, address));
}

static gml_state state_of(gml_lake *lake, gml_address address) {
    gml_block_info info = {0};
    CHECK_OK(gml_lake_block(lake, address, &info));
    return info.state;
}

/* 2 * count chunks, of which every other stays in use; kept[i] receives those. */
static void fragment(gml_lake *lake, size_t count, gml_address *kept) {
    gml_address freed[64];
    for (size_t i = 0; i < count; i++) {
        freed[i] = allocate(lake, CHUNK);
        kept[i] = allocate(lake, CHUNK);
    }
    for (size_t i = 0; i < count; i++) {
        release(lake, freed[i]);
    }
}

TEST(a_view_reads_back_and_leaves_its_neighbours_alone) {
    gml_lake *lake = open_with("host", "stitch", 256 * MIB, NULL, 0);
    gml_address kept[8];
    void *bytes;
    fragment(lake, 8, kept);
    for (int i = 0; i < 8; i++) {
        CHECK_OK(gml_lake_bytes(lake, kept[i], &bytes));
        memset(bytes, 0x40 + i, CHUNK);
    }
    gml_address view = allocate(lake, 8 * CHUNK);
    CHECK_OK(gml_lake_bytes(lake, view, &bytes));
    memset(bytes, 0x7f, 8 * CHUNK);
    for (int i = 0; i < 8; i++) {
        CHECK_OK(gml_lake_bytes(lake, kept[i], &bytes));
        const unsigned char *mine = bytes;
        CHECK_EQ(mine[0], 0x40 + i);
        CHECK_EQ(mine[CHUNK - 1], 0x40 + i);
    }
    close_lake(lake);
}

TEST(blocks_that_share_a_chunk_keep_their_bytes) {
    gml_lake *lake = open_with("host", "stitch", 256 * MIB, NULL, 0);
    gml_address blocks[20];
    void *bytes;
    for (int i = 0; i < 20; i++) {
        blocks[i] = allocate(lake, 3 * MIB + 512);
        CHECK_OK(gml_lake_bytes(lake, blocks[i], &bytes));
        memset(bytes, i, 3 * MIB + 512);
    }
    for (int i = 0; i < 20; i += 3) {
        release(lake, blocks[i]);
        blocks[i] = allocate(lake, 2 * MIB + 1024);
        CHECK_OK(gml_lake_bytes(lake, blocks[i], &bytes));
        memset(bytes, 100 + i, 2 * MIB + 1024);
    }
    for (int i = 0; i < 20; i++) {
        CHECK_OK(gml_lake_bytes(lake, blocks[i], &bytes));
        size_t last = i % 3 ? 3 * MIB + 511 : 2 * MIB + 1023;
        int expected = i % 3 ? i : 100 + i;
        const unsigned char *mine = bytes;
        CHECK_EQ(mine[0], expected);
        CHECK_EQ(mine[last], expected);
    }
    CHECK(lake_stats_of(lake).reserved_bytes <= 31 * CHUNK);
    close_lake(lake);
}

/* Before the limit is reached, the device is asked how far it has come; else it is waited for. */
static void bound_views(bool may_ask) {
    const gml_setting settings[] = {{"max_views", 4}, {"reuse_allow_opportunistic", may_ask}};
    gml_lake *lake = open_with("sim", "stitch", 0, settings, 2);
    gml_address kept[32];
    fragment(lake, 32, kept);
    for (uint64_t chunks = 2; chunks < 20; chunks++) {
        release(lake, allocate(lake, chunks * CHUNK));
        CHECK(lake_stats_of(lake).views <= 4);
    }
    gml_stats stats = lake_stats_of(lake);
    CHECK(stats.driver_calls[GML_CALL_UNMAP] > 0);
    CHECK_EQ(stats.driver_calls[GML_CALL_DEVICE_SYNCHRONIZE] > 0, !may_ask);
    CHECK_EQ(stats.driver_calls[GML_CALL_EVENT_RECORD_ALL] > 0, may_ask);
    CHECK(stats.reserved_bytes <= 66 * CHUNK);
    close_lake(lake);
}

TEST(idle_views_are_bounded_and_used_by_no_work) {
    bound_views(true);
    bound_views(false);
}

TEST(a_bad_chunk_size_or_capacity_is_named) {
    const gml_setting setting = {"chunk_size", 3 * MIB};
    gml_lake_config config = {
        .driver = "sim", .policy = "stitch", .settings = &setting, .setting_count = 1};
    gml_lake *lake;
    char reason[256];
    CHECK_STATUS(gml_lake_open(&config, &lake, reason, sizeof reason), GML_INVALID_ARGUMENT);
    CHECK(strstr(reason, "chunk_size") != NULL);
    config.setting_count = 0;
    config.capacity_bytes = MIB;
    CHECK_STATUS(gml_lake_open(&config, &lake, reason, sizeof reason), GML_INVALID_ARGUMENT);
    CHECK(strstr(reason, "capacity") != NULL);
}

#define GIB (UINT64_C(1) << 30)

/* Of eight heads one goes with the tail and leaves nothing, the smallest; the others stay as they
 * are, and serve what is as large. */
TEST(leftovers_that_fit_together_are_found_among_many) {
    enum { HEADS = 8 };
    const gml_setting memory = {"optimize_for", 2};
    gml_lake *lake = open_with("sim", "stitch", GIB, &memory, 1);
    gml_address heads[HEADS], tail;
    for (uint64_t i = 0; i < HEADS; i++) {
        uint64_t head_bytes = MIB + (i + 1) * 96 * KIB;
        (void)allocate(lake, 2 * CHUNK - head_bytes);
        heads[i] = allocate(lake, head_bytes);
    }
    (void)allocate(lake, CHUNK); /* the last head must not meet the tail */
    tail = allocate(lake, MIB + 256 * KIB);
    (void)allocate(lake, 2 * CHUNK - MIB - 256 * KIB);
    for (size_t i = 0; i < HEADS; i++) {
        release(lake, heads[i]);
    }
    release(lake, tail);
    uint64_t before = lake_stats_of(lake).reserved_bytes;
    (void)allocate(lake, 2 * MIB + 352 * KIB);
    for (uint64_t i = 1; i < HEADS; i++) {
        CHECK_EQ(state_of(lake, allocate(lake, MIB + (i + 1) * 96 * KIB)), GML_STATE_EXACT);
    }
    CHECK_EQ(lake_stats_of(lake).reserved_bytes, before);
    close_lake(lake);
}

TEST(frag_limit_holds_where_the_range_space_has_holes) {
    const gml_setting setting = {"frag_limit", 64 * MIB};
    gml_lake *lake = open_with("sim", "stitch", 256 * CHUNK, &setting, 1);
    gml_address kept[10];
    fragment(lake, 10, kept);
    CHECK_OK(gml_lake_trim(lake, NULL));
    gml_address address = allocate(lake, 4 * CHUNK);
    CHECK(state_of(lake, address) != GML_STATE_GROW || lake_stats_of(lake).views == 0);
    close_lake(lake);
}

/* ---- random programs ------------------------------------------------------------------------- */

typedef struct step {
    uint64_t size_bytes; /* 0: free `slot` */
    size_t slot;
} step;

enum { STEPS = 3000, SLOTS = 200 };

/* A program that begins and ends with nothing live. */
static size_t make_program(check_random *random, step *steps) {
    uint64_t sizes[24];
    bool live[SLOTS] = {false};
    size_t count = 0;
    for (int i = 0; i < 24; i++) {
        sizes[i] = UINT64_C(1) << (9 + check_below(random, 17));
        sizes[i] += check_below(random, sizes[i]);
    }
    for (int i = 0; i < STEPS; i++) {
        size_t slot = (size_t)check_below(random, SLOTS);
        uint64_t size_bytes = live[slot] ? 0 : sizes[check_below(random, 24)];
        steps[count++] = (step){size_bytes, slot};
        live[slot] = !live[slot];
    }
    for (size_t slot = 0; slot < SLOTS; slot++) {
        if (live[slot]) {
            steps[count++] = (step){0, slot};
        }
    }
    return count;
}

/* Runs the program; how many addresses were not those in `addresses`, which receives them. */
static size_t run_program(gml_lake *lake, const step *steps, size_t count, gml_address *addresses) {
    gml_address slots[SLOTS];
    size_t others = 0;
    for (size_t i = 0; i < count; i++) {
        gml_address *slot = &slots[steps[i].slot];
        if (!steps[i].size_bytes) {
            release(lake, *slot);
            continue;
        }
        *slot = allocate(lake, steps[i].size_bytes);
        others += *slot != addresses[i];
        addresses[i] = *slot;
    }
    return others;
}

/* Once the base range has grown for the last time, the next run makes the views that are
 * missing, and from then on nothing changes. */
TEST(a_repeated_program_comes_to_the_same_addresses_and_calls_nothing) {
    enum { MOST_RUNS = 8 };
    static step steps[STEPS + SLOTS];
    static gml_address addresses[STEPS + SLOTS];
    for (uint64_t seed = 1; seed <= 25; seed++) {
        check_random random = {seed};
        gml_lake *lake = open_sim();
        size_t count = make_program(&random, steps);
        int runs = 0;
        while (run_program(lake, steps, count, addresses) && runs < MOST_RUNS) {
            runs++;
        }
        CHECK(runs < MOST_RUNS);
        CHECK_OK(gml_lake_check(lake));
        uint64_t before = lake_calls(lake);
        CHECK_EQ(run_program(lake, steps, count, addresses), 0);
        if (!CHECK_EQ(lake_calls(lake), before)) {
            fprintf(stderr, "seed %" PRIu64 "\n", seed);
        }
        close_lake(lake);
    }
}

TEST(reserved_is_never_above_caching_by_more_than_a_growth_step) {
    static step steps[STEPS + SLOTS];
    static gml_address addresses[STEPS + SLOTS];
    for (uint64_t seed = 1; seed <= 25; seed++) {
        check_random random = {1000 + seed};
        size_t count = make_program(&random, steps);
        gml_lake *ours = open_sim();
        gml_lake *theirs = open_with("sim", "caching", 0, NULL, 0);
        (void)run_program(ours, steps, count, addresses);
        (void)run_program(theirs, steps, count, addresses);
        uint64_t bound = lake_stats_of(theirs).peak_reserved_bytes + CHUNK;
        if (!CHECK(lake_stats_of(ours).peak_reserved_bytes <= bound)) {
            fprintf(stderr, "seed %" PRIu64 "\n", 1000 + seed);
        }
        close_lake(ours);
        close_lake(theirs);
    }
}
