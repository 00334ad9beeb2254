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

TEST(the_same_size_again_is_exact_and_calls_nothing) {
    gml_lake *lake = open_sim();
    gml_address first = allocate(lake, 20 * MIB);
    CHECK_EQ(state_of(lake, first), GML_STATE_GROW);
    release(lake, first);
    uint64_t before = lake_calls(lake);
    gml_address again = allocate(lake, 20 * MIB);
    CHECK_EQ(again, first);
    CHECK_EQ(state_of(lake, again), GML_STATE_EXACT);
    CHECK_EQ(lake_calls(lake), before);
    close_lake(lake);
}

TEST(a_new_view_is_one_reserve_one_map_per_chunk_one_set_access) {
    gml_lake *lake = open_sim();
    gml_address kept[16];
    fragment(lake, 16, kept);
    gml_stats before = lake_stats_of(lake);
    gml_address view = allocate(lake, 16 * CHUNK);
    gml_stats after = lake_stats_of(lake);
    CHECK_EQ(state_of(lake, view), GML_STATE_STITCH);
    CHECK_EQ(after.driver_calls[GML_CALL_RESERVE] - before.driver_calls[GML_CALL_RESERVE], 1);
    CHECK_EQ(after.driver_calls[GML_CALL_MAP] - before.driver_calls[GML_CALL_MAP], 16);
    CHECK_EQ(after.driver_calls[GML_CALL_SET_ACCESS] - before.driver_calls[GML_CALL_SET_ACCESS], 1);
    CHECK_EQ(after.driver_calls[GML_CALL_CREATE], before.driver_calls[GML_CALL_CREATE]);
    CHECK_EQ(after.reserved_bytes, 32 * CHUNK);
    CHECK_EQ(after.views, 1);
    CHECK_EQ(after.view_bytes, 16 * CHUNK);
    close_lake(lake);
}

TEST(a_cached_view_serves_again_after_others_used_its_chunks) {
    gml_lake *lake = open_sim();
    gml_address kept[16];
    fragment(lake, 16, kept);
    gml_address view = allocate(lake, 16 * CHUNK);
    release(lake, view);
    gml_address single = allocate(lake, CHUNK);
    CHECK_EQ(lake_stats_of(lake).reserved_bytes, 32 * CHUNK);
    gml_address other = allocate(lake, 15 * CHUNK);
    CHECK(other != view);
    release(lake, single);
    release(lake, other);
    uint64_t before = lake_calls(lake);
    CHECK_EQ(allocate(lake, 16 * CHUNK), view);
    CHECK_EQ(lake_calls(lake), before);
    close_lake(lake);
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

TEST(odd_sizes_share_chunks) {
    gml_lake *lake = open_sim();
    for (int i = 0; i < 100; i++) {
        (void)allocate(lake, 3 * CHUNK / 2);
    }
    CHECK_EQ(lake_stats_of(lake).reserved_bytes, 150 * CHUNK);
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

TEST(small_requests_give_their_slab_back) {
    gml_lake *lake = open_sim();
    gml_address blocks[64];
    for (int i = 0; i < 64; i++) {
        blocks[i] = allocate(lake, 32 * KIB);
    }
    CHECK_EQ(lake_stats_of(lake).reserved_bytes, CHUNK);
    CHECK_EQ(state_of(lake, blocks[0]), GML_STATE_GROW);
    CHECK_EQ(state_of(lake, blocks[1]), GML_STATE_SPLIT);
    for (int i = 0; i < 64; i++) {
        release(lake, blocks[i]);
    }
    (void)allocate(lake, 2 * MIB);
    CHECK_EQ(lake_stats_of(lake).reserved_bytes, CHUNK);
    close_lake(lake);
}

TEST(below_frag_limit_nothing_is_stitched) {
    const gml_setting setting = {"frag_limit", 64 * MIB};
    gml_lake *lake = open_with("sim", "stitch", 0, &setting, 1);
    gml_address kept[32];
    fragment(lake, 32, kept);
    CHECK_EQ(state_of(lake, allocate(lake, 8 * CHUNK)), GML_STATE_GROW);
    CHECK_EQ(lake_stats_of(lake).reserved_bytes, 72 * CHUNK);
    CHECK_EQ(state_of(lake, allocate(lake, 32 * CHUNK)), GML_STATE_STITCH);
    close_lake(lake);
}

TEST(before_refusing_frag_limit_is_ignored) {
    const gml_setting setting = {"frag_limit", 64 * MIB};
    gml_lake *lake = open_with("sim", "stitch", 32 * CHUNK, &setting, 1);
    gml_address kept[16];
    fragment(lake, 16, kept);
    CHECK_EQ(state_of(lake, allocate(lake, 8 * CHUNK)), GML_STATE_STITCH);
    close_lake(lake);
}

TEST(growth_takes_steps_and_less_where_a_step_does_not_fit) {
    const gml_setting setting = {"growth", 8 * CHUNK};
    gml_lake *lake = open_with("sim", "stitch", 10 * CHUNK, &setting, 1);
    (void)allocate(lake, CHUNK);
    CHECK_EQ(lake_stats_of(lake).reserved_bytes, 8 * CHUNK);
    (void)allocate(lake, 9 * CHUNK);
    CHECK_EQ(lake_stats_of(lake).reserved_bytes, 10 * CHUNK);
    gml_address address;
    CHECK_STATUS(gml_lake_allocate(lake, CHUNK, 0, &address), GML_OUT_OF_MEMORY);
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

TEST(trim_gives_back_what_is_idle_and_keeps_what_lives) {
    gml_lake *lake = open_with("host", "stitch", 256 * MIB, NULL, 0);
    gml_address kept[16];
    uint64_t released;
    void *bytes;
    fragment(lake, 16, kept);
    gml_address view = allocate(lake, 16 * CHUNK);
    CHECK_OK(gml_lake_bytes(lake, view, &bytes));
    memset(bytes, 0x5a, 16 * CHUNK);
    for (int i = 0; i < 16; i++) {
        release(lake, kept[i]);
    }
    CHECK_OK(gml_lake_trim(lake, &released));
    CHECK_EQ(released, 16 * CHUNK);
    CHECK_EQ(lake_stats_of(lake).reserved_bytes, 16 * CHUNK);
    CHECK_OK(gml_lake_bytes(lake, view, &bytes));
    CHECK_EQ(((unsigned char *)bytes)[16 * CHUNK - 1], 0x5a);
    release(lake, view);
    CHECK_OK(gml_lake_trim(lake, &released));
    CHECK_EQ(released, 16 * CHUNK);
    CHECK_EQ(lake_stats_of(lake).reserved_bytes, 0);
    CHECK_EQ(lake_stats_of(lake).views, 0);
    CHECK_EQ(state_of(lake, allocate(lake, 16 * CHUNK)), GML_STATE_GROW);
    CHECK_OK(gml_lake_check(lake));
    close_lake(lake);
}

TEST(streams_that_may_not_share_keep_their_memory_until_there_is_no_other) {
    static const gml_setting settings[] = {{"reuse_follow_event_dependencies", 0},
                                           {"reuse_allow_opportunistic", 0},
                                           {"reuse_allow_internal_dependencies", 0}};
    gml_lake *lake = open_with("sim", "stitch", 8 * CHUNK, settings, 3);
    release(lake, allocate_on(lake, 4 * CHUNK, 1));
    gml_address second = allocate_on(lake, 4 * CHUNK, 2);
    CHECK_EQ(state_of(lake, second), GML_STATE_GROW);
    CHECK_EQ(lake_stats_of(lake).driver_calls[GML_CALL_DEVICE_SYNCHRONIZE], 0);
    gml_address third = allocate_on(lake, 4 * CHUNK, 2);
    CHECK_EQ(lake_stats_of(lake).driver_calls[GML_CALL_DEVICE_SYNCHRONIZE], 1);
    CHECK_EQ(lake_stats_of(lake).reserved_bytes, 8 * CHUNK);
    release(lake, second);
    release(lake, third);
    gml_address back = allocate_on(lake, 8 * CHUNK, 1);
    CHECK_EQ(lake_stats_of(lake).driver_calls[GML_CALL_DEVICE_SYNCHRONIZE], 2);
    CHECK_EQ(lake_stats_of(lake).driver_calls[GML_CALL_EVENT_RECORD], 0);
    release(lake, back);
    close_lake(lake);
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

TEST(a_request_that_can_never_fit_takes_nothing) {
    gml_lake *lake = open_with("sim", "stitch", 40960 * CHUNK, NULL, 0);
    (void)allocate(lake, 10 * MIB);
    uint64_t before = lake_calls(lake);
    gml_address address;
    CHECK_STATUS(gml_lake_allocate(lake, 50000 * CHUNK, 0, &address), GML_OUT_OF_MEMORY);
    CHECK_EQ(lake_calls(lake), before);
    CHECK_EQ(lake_stats_of(lake).reserved_bytes, 10 * MIB);
    close_lake(lake);
}

TEST(a_full_device_is_asked_before_chunks_are_made_in_vain) {
    const gml_setting setting = {"chunk_size", 4 * MIB};
    gml_lake *lake = open_with("sim", "stitch", 63 * MIB, &setting, 1);
    (void)allocate(lake, 10 * MIB);
    gml_stats before = lake_stats_of(lake);
    gml_address address;
    CHECK_STATUS(gml_lake_allocate(lake, 60 * MIB, 0, &address), GML_OUT_OF_MEMORY);
    CHECK_EQ(lake_stats_of(lake).driver_calls[GML_CALL_CREATE],
             before.driver_calls[GML_CALL_CREATE]);
    close_lake(lake);
}

#define GIB (UINT64_C(1) << 30)

/* A block is told by a number in every page of it. */
static void mark_pages(gml_lake *lake, gml_address address, uint64_t size_bytes, uint64_t number) {
    void *bytes;
    CHECK_OK(gml_lake_bytes(lake, address, &bytes));
    for (uint64_t at = 0; at + sizeof number <= size_bytes; at += 64 * KIB) {
        memcpy((char *)bytes + at, &number, sizeof number);
    }
    memcpy((char *)bytes + size_bytes - sizeof number, &number, sizeof number);
}

static uint64_t wrong_pages(gml_lake *lake, gml_address address, uint64_t size_bytes,
                            uint64_t number) {
    void *bytes;
    uint64_t wrong = 0, seen;
    CHECK_OK(gml_lake_bytes(lake, address, &bytes));
    for (uint64_t at = 0; at + sizeof number <= size_bytes; at += 64 * KIB) {
        memcpy(&seen, (char *)bytes + at, sizeof seen);
        wrong += seen != number;
    }
    memcpy(&seen, (char *)bytes + size_bytes - sizeof seen, sizeof seen);
    return wrong + (seen != number);
}

/* Random blocks over chunks of 2 to 16 MiB: views of several sizes of chunk, heads, cuts and tails
 * among them, each keeps its bytes. */
TEST(blocks_over_chunks_of_several_sizes_keep_their_bytes) {
    enum { LIVE = 48, ROUNDS = 1500 };
    const gml_setting settings[] = {{"optimize_for", 0}, {"max_views", 200}};
    for (uint64_t seed = 1; seed <= 2; seed++) {
        gml_lake *lake = open_with("host", "stitch", 9 * GIB, settings, 2);
        struct {
            gml_address address;
            uint64_t size_bytes, number;
        } live[LIVE] = {0};
        check_random random = {seed};
        uint64_t wrong = 0;
        for (uint64_t i = 1; i <= ROUNDS; i++) {
            size_t k = check_below(&random, LIVE);
            if (live[k].address) {
                wrong += wrong_pages(lake, live[k].address, live[k].size_bytes, live[k].number);
                release(lake, live[k].address);
            }
            live[k].size_bytes = 512 * (2048 + check_below(&random, 120 * 1024));
            live[k].number = i;
            live[k].address = allocate(lake, live[k].size_bytes);
            mark_pages(lake, live[k].address, live[k].size_bytes, i);
        }
        CHECK_EQ(wrong, 0);
        gml_stats stats = lake_stats_of(lake);
        CHECK(stats.states[GML_STATE_STITCH] > 20);
        CHECK(stats.driver_calls[GML_CALL_CREATE] * 6 * MIB < stats.reserved_bytes);
        close_lake(lake);
    }
}

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

TEST(streams_that_take_turns_at_the_limit_reuse_their_views) {
    gml_lake *lake = open_with("sim", "stitch", 64 * CHUNK, NULL, 0);
    gml_address kept[32];
    fragment(lake, 32, kept);
    for (int i = 0; i < 50; i++) {
        release(lake, allocate_on(lake, 20 * CHUNK, 1));
        release(lake, allocate_on(lake, 20 * CHUNK, 2));
    }
    CHECK(lake_stats_of(lake).views <= 4);
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

/* Many small placements lie under one large one that comes and goes; none is looked at twice. */
TEST(what_lies_under_a_large_block_serves_again_when_it_ends) {
    enum { COUNT = 200 };
    gml_lake *lake = open_sim();
    gml_address small[COUNT];
    for (int i = 0; i < COUNT; i++) {
        small[i] = allocate(lake, 3 * MIB);
    }
    for (int i = 0; i < COUNT; i++) {
        release(lake, small[i]);
    }
    for (int round = 0; round < 3; round++) {
        gml_address large = allocate(lake, COUNT * 3 * MIB);
        gml_address beside = allocate(lake, 3 * MIB);
        CHECK_OK(gml_lake_check(lake));
        release(lake, beside);
        release(lake, large);
    }
    for (int i = 0; i < COUNT; i++) {
        CHECK_EQ(allocate(lake, 3 * MIB), small[i]);
    }
    close_lake(lake);
}

/* Uses up the credit for new views with sizes that never repeat. */
static void spend_credit(gml_lake *lake, int views) {
    for (int i = 0; i < views; i++) {
        release(lake, allocate(lake, 3 * CHUNK + 512 * (uint64_t)i));
    }
}

TEST(without_credit_a_refused_growth_leaves_all_in_order) {
    gml_lake *lake = open_with("sim", "stitch", 1000 * MIB, NULL, 0);
    gml_address blocks[240];
    for (int i = 0; i < 240; i++) {
        blocks[i] = allocate(lake, 2 * CHUNK);
    }
    for (int i = 0; i < 10; i += 2) {
        release(lake, blocks[i]);
    }
    spend_credit(lake, 2000);
    gml_address address;
    (void)gml_lake_allocate(lake, 44 * MIB, 0, &address);
    CHECK_OK(gml_lake_check(lake));
    close_lake(lake);
}

/* Each block is replaced by one a little larger, as a key-value cache grows by concatenation. */
TEST(sizes_that_grow_bit_by_bit_cost_no_more_than_under_caching) {
    gml_lake *lakes[2] = {open_sim(), open_with("sim", "caching", 0, NULL, 0)};
    for (int which = 0; which < 2; which++) {
        gml_address cache[40];
        for (int i = 0; i < 40; i++) {
            cache[i] = allocate(lakes[which], 32 * KIB * 1500);
        }
        for (uint64_t token = 1501; token < 1600; token++) {
            for (int i = 0; i < 40; i++) {
                gml_address larger = allocate(lakes[which], 32 * KIB * token);
                release(lakes[which], cache[i]);
                cache[i] = larger;
            }
        }
    }
    gml_stats ours = lake_stats_of(lakes[0]), theirs = lake_stats_of(lakes[1]);
    CHECK(ours.peak_reserved_bytes <= theirs.peak_reserved_bytes + 2 * CHUNK);
    CHECK(ours.states[GML_STATE_STITCH] < 1024);
    close_lake(lakes[0]);
    close_lake(lakes[1]);
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

/* Twelve free chunks, 0, 2, ... 22, with one in use between each two; and a view over six of them
 * that served a block, the last ones: its address. */
static gml_address view_over_six(gml_lake *lake, gml_address *kept) {
    fragment(lake, 12, kept);
    gml_address view = allocate(lake, 6 * CHUNK);
    CHECK_EQ(state_of(lake, view), GML_STATE_STITCH);
    release(lake, view);
    release(lake, allocate(lake, CHUNK)); /* any other request takes its chunks from it */
    return view;
}

/* Six single free chunks are asked for, the lowest: the sixth is one of the view's, and stays in
 * use. */
static gml_address take_one_of_view(gml_lake *lake) {
    gml_address taken[6];
    for (size_t i = 0; i < 6; i++) {
        taken[i] = allocate(lake, CHUNK);
    }
    for (size_t i = 0; i < 5; i++) {
        release(lake, taken[i]);
    }
    return taken[5];
}

TEST(a_view_over_free_chunks_serves_where_others_would_be_chosen) {
    gml_address kept[12];
    gml_lake *lake = open_sim();
    gml_address view = view_over_six(lake, kept);
    release(lake, kept[0]); /* three chunks in a row, which a new view would begin with */
    uint64_t before = lake_calls(lake);
    CHECK_EQ(allocate(lake, 6 * CHUNK), view);
    CHECK_EQ(state_of(lake, view), GML_STATE_EXACT);
    CHECK_EQ(lake_calls(lake), before);
    close_lake(lake);
}

TEST(a_view_over_a_chunk_in_use_does_not_serve) {
    gml_address kept[12];
    gml_lake *lake = open_sim();
    gml_address view = view_over_six(lake, kept);
    release(lake, kept[0]);
    release(lake, kept[1]); /* five in a row: six singles are left for take_one_of_view() */
    gml_address single = take_one_of_view(lake);
    gml_address other = allocate(lake, 6 * CHUNK);
    CHECK(other != view);
    CHECK_EQ(state_of(lake, other), GML_STATE_STITCH);
    release(lake, single);
    close_lake(lake);
}

TEST(a_view_of_which_a_run_ends_in_use_does_not_serve) {
    gml_address kept[12];
    gml_lake *lake = open_sim();
    (void)view_over_six(lake, kept);
    release(lake, kept[0]);
    gml_address single = take_one_of_view(lake);
    gml_address view = allocate(lake, 6 * CHUNK); /* three in a row, and three others */
    CHECK_EQ(state_of(lake, view), GML_STATE_STITCH);
    release(lake, view);
    gml_address begin = allocate(lake, 2 * CHUNK), end = allocate(lake, CHUNK);
    CHECK_EQ(end, begin + 2 * CHUNK);
    release(lake, begin);
    CHECK(allocate(lake, 6 * CHUNK) != view);
    release(lake, single);
    close_lake(lake);
}

TEST(a_view_over_free_chunks_of_another_stream_does_not_serve) {
    gml_address kept[12], freed[6];
    gml_lake *lake = open_sim();
    gml_address view = view_over_six(lake, kept);
    for (size_t i = 0; i < 6; i++) {
        freed[i] = allocate_on(lake, CHUNK, 1);
        (void)allocate_on(lake, CHUNK, 1);
    }
    for (size_t i = 0; i < 6; i++) {
        release(lake, freed[i]);
    }
    gml_address other = allocate_on(lake, 6 * CHUNK, 1);
    CHECK(other != view);
    CHECK_EQ(state_of(lake, other), GML_STATE_STITCH);
    close_lake(lake);
}

/* Two views of six chunks whose chunks are all free. Without a look at the first, those of the
 * second would be chosen. */
static void make_two_views(gml_lake *lake, gml_address *kept, gml_address *first,
                           gml_address *second) {
    *first = view_over_six(lake, kept);
    release(lake, kept[0]);
    gml_address used = take_one_of_view(lake);
    *second = allocate(lake, 6 * CHUNK);
    CHECK(*second != *first);
    release(lake, *second);
    release(lake, used);
    release(lake, allocate(lake, CHUNK));
}

TEST(of_views_over_free_chunks_the_first_that_was_made_serves) {
    for (int is_third_choice = 0; is_third_choice < 2; is_third_choice++) {
        gml_address kept[12], first, second;
        gml_lake *lake = open_sim();
        make_two_views(lake, kept, &first, &second);
        if (is_third_choice) {
            release(lake, kept[1]);
        }
        uint64_t before = lake_calls(lake);
        CHECK_EQ(allocate(lake, 6 * CHUNK), first);
        CHECK_EQ(lake_calls(lake), before);
        close_lake(lake);
    }
}

TEST(once_nothing_is_in_use_no_view_waits_for_its_size) {
    for (int is_view_last = 0; is_view_last < 2; is_view_last++) {
        gml_address freed[13];
        gml_lake *lake = open_sim();
        fragment(lake, 12, freed);
        gml_address view = allocate(lake, 6 * CHUNK);
        CHECK_EQ(state_of(lake, view), GML_STATE_STITCH);
        freed[12] = is_view_last ? view : freed[0];
        freed[0] = is_view_last ? freed[0] : view;
        for (size_t i = 0; i < 13; i++) {
            release(lake, freed[i]);
        }
        CHECK(allocate(lake, 6 * CHUNK) != view);
        close_lake(lake);
    }
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
