/* The base range against a plain array of 512-byte lines, and its driver calls under failure.
 */
#include "core/base_range.h"
#include "core/freeset.h"
#include "driver/handed.h"
#include "hooks/fault.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define CHUNK (2 * MIB)

enum { SLOTS = 24, LINES = SLOTS * 16, LINE_BYTES = CHUNK / 16, MAX_HELD = 256 };

/* The world as an array: 0 absent, 1 free in set 0, 2 free in set 1, 3 used. */
typedef struct line_model {
    unsigned char lines[LINES];
    gml_extent *held[MAX_HELD];
    size_t held_count;
} line_model;

static gml_driver *open_driver(void) {
    gml_driver *driver = NULL;
    char reason[256];
    CHECK_OK(gml_driver_open("sim", 0, 0, &driver, reason, sizeof reason));
    return driver;
}

static void fill_lines(line_model *model, uint64_t offset, uint64_t size_bytes, int value) {
    memset(&model->lines[offset / LINE_BYTES], value, size_bytes / LINE_BYTES);
}

/* Every extent says what the array says, and none could merge with its neighbour. */
static void compare(const gml_base_range *range, const line_model *model, gml_freeset *sets) {
    for (uint64_t line = 0; line < LINES; line++) {
        const gml_extent *extent = gml_base_range_find(range, line * LINE_BYTES);
        int value = extent->kind == GML_EXTENT_ABSENT ? 0
                    : extent->kind == GML_EXTENT_USED ? 3
                    : extent->set == &sets[0]         ? 1
                                                      : 2;
        CHECK_EQ(value, model->lines[line]);
    }
    CHECK_OK(gml_base_range_check(range));
    for (int i = 0; i < 2; i++) {
        CHECK(gml_freeset_is_valid(&sets[i], range));
    }
}

static void grow_some(gml_base_range *range, line_model *model, gml_freeset *sets,
                      check_random *random) {
    int set = (int)check_below(random, 2);
    uint64_t count = 1 + check_below(random, 4);
    uint64_t missing = 0;
    for (int slot = 0; slot < SLOTS; slot++) {
        missing += model->lines[slot * 16] == 0;
    }
    uint64_t chunk_bytes = CHUNK << check_below(random, 4);
    gml_status status = gml_base_range_grow(range, count * CHUNK, chunk_bytes, &sets[set]);
    CHECK_STATUS(status, count <= missing ? GML_OK : GML_OUT_OF_MEMORY);
    uint64_t left = count <= missing ? count : 0;
    for (uint64_t slot = 0; slot < SLOTS && left; slot++) {
        if (model->lines[slot * 16] == 0) {
            fill_lines(model, slot * CHUNK, CHUNK, 1 + set);
            left--;
        }
    }
}

static void claim_some(gml_base_range *range, line_model *model, check_random *random) {
    gml_extent *extent = gml_base_range_find(range, check_below(random, LINES) * LINE_BYTES);
    if (extent->kind != GML_EXTENT_FREE || model->held_count == MAX_HELD) {
        return;
    }
    uint64_t lines = extent->size_bytes / LINE_BYTES;
    uint64_t first = check_below(random, lines);
    uint64_t count = 1 + check_below(random, lines - first);
    uint64_t offset = extent->offset + first * LINE_BYTES;
    CHECK_OK(gml_base_range_prepare(range, 2));
    gml_extent *claimed = gml_base_range_claim(range, offset, count * LINE_BYTES, model);
    CHECK_EQ(claimed->offset, offset);
    CHECK_EQ(claimed->size_bytes, count * LINE_BYTES);
    fill_lines(model, offset, count * LINE_BYTES, 3);
    model->held[model->held_count++] = claimed;
}

static void unclaim_some(gml_base_range *range, line_model *model, gml_freeset *sets,
                         check_random *random) {
    if (!model->held_count) {
        return;
    }
    size_t index = (size_t)check_below(random, model->held_count);
    int set = (int)check_below(random, 2);
    gml_extent *extent = model->held[index];
    fill_lines(model, extent->offset, extent->size_bytes, 1 + set);
    gml_base_range_unclaim(range, extent, &sets[set], 0);
    model->held[index] = model->held[--model->held_count];
}

static void shrink_or_move(gml_base_range *range, line_model *model, gml_freeset *sets,
                           check_random *random) {
    gml_extent *extent = gml_base_range_find(range, check_below(random, LINES) * LINE_BYTES);
    if (extent->kind != GML_EXTENT_FREE) {
        return;
    }
    if (check_below(random, 2)) {
        int set = (int)check_below(random, 2);
        uint64_t lines = extent->size_bytes / LINE_BYTES;
        uint64_t begin = check_below(random, lines);
        uint64_t offset = extent->offset + begin * LINE_BYTES;
        uint64_t size_bytes = (1 + check_below(random, lines - begin)) * LINE_BYTES;
        fill_lines(model, offset, size_bytes, 1 + set);
        CHECK_OK(gml_base_range_prepare(range, 2));
        (void)gml_base_range_move(range, offset, size_bytes, &sets[set], 0);
    } else if (extent->whole.size_bytes) {
        uint64_t released = 0, size_bytes = extent->whole.size_bytes;
        fill_lines(model, extent->whole.address, size_bytes, 0);
        CHECK_OK(gml_base_range_shrink(range, extent, 0, &released));
        CHECK_EQ(released, size_bytes);
    }
}

TEST(random_changes_agree_with_an_array) {
    for (uint64_t seed = 1; seed <= 10; seed++) {
        check_random random = {seed};
        gml_driver *driver = open_driver();
        gml_base_range range;
        gml_freeset sets[2];
        static line_model model;
        memset(&model, 0, sizeof model);
        gml_freeset_init(&sets[0], 0);
        gml_freeset_init(&sets[1], MIB);
        CHECK_OK(gml_base_range_open(&range, driver, CHUNK, SLOTS));
        for (int i = 0; i < 2000; i++) {
            switch (check_below(&random, 8)) {
            case 0:
                grow_some(&range, &model, sets, &random);
                break;
            case 1:
                shrink_or_move(&range, &model, sets, &random);
                break;
            case 2:
            case 3:
            case 4:
                claim_some(&range, &model, &random);
                break;
            case 5:
                gml_freeset_index(&sets[check_below(&random, 2)]);
                break;
            default:
                unclaim_some(&range, &model, sets, &random);
                break;
            }
            if (i % 16 == 0) {
                compare(&range, &model, sets);
            }
        }
        CHECK_OK(gml_base_range_close(&range));
        gml_driver_close(driver);
    }
}

TEST(an_extent_knows_its_head_whole_and_tail) {
    gml_driver *driver = open_driver();
    gml_base_range range;
    gml_freeset set;
    gml_freeset_init(&set, 0);
    CHECK_OK(gml_base_range_open(&range, driver, CHUNK, 8));
    CHECK_OK(gml_base_range_grow(&range, 8 * CHUNK, CHUNK, &set));
    CHECK_OK(gml_base_range_prepare(&range, 4));
    (void)gml_base_range_claim(&range, 0, CHUNK + MIB, NULL);
    (void)gml_base_range_claim(&range, 5 * CHUNK + MIB / 2, CHUNK, NULL);
    const gml_extent *middle = gml_base_range_find(&range, 2 * CHUNK);
    CHECK_EQ(middle->head.size_bytes, MIB);
    CHECK_EQ(middle->whole.size_bytes, 3 * CHUNK);
    CHECK_EQ(middle->tail.size_bytes, MIB / 2);
    CHECK_EQ(set.whole_bytes, 4 * CHUNK);
    (void)gml_base_range_claim(&range, 2 * CHUNK, 3 * CHUNK + 512, NULL);
    const gml_extent *inner = gml_base_range_find(&range, 5 * CHUNK + 512);
    CHECK_EQ(inner->head.size_bytes + inner->whole.size_bytes + inner->tail.size_bytes, 0);
    CHECK_OK(gml_base_range_close(&range));
    gml_driver_close(driver);
}

/* Whichever of two neighbours was freed last, and whichever of them is given back last. */
TEST(merged_memory_is_as_old_as_its_latest_free) {
    for (int later = 0; later < 2; later++) {
        for (int last = 0; last < 2; last++) {
            gml_driver *driver = open_driver();
            gml_base_range range;
            gml_freeset set;
            gml_extent *halves[2];
            gml_freeset_init(&set, 0);
            CHECK_OK(gml_base_range_open(&range, driver, CHUNK, 2));
            CHECK_OK(gml_base_range_grow(&range, 2 * CHUNK, CHUNK, &set));
            CHECK_OK(gml_base_range_prepare(&range, 4));
            halves[0] = gml_base_range_claim(&range, 0, CHUNK, NULL);
            halves[1] = gml_base_range_claim(&range, CHUNK, CHUNK, NULL);
            gml_base_range_unclaim(&range, halves[!last], &set, later == last ? 3 : 7);
            gml_base_range_unclaim(&range, halves[last], &set, later == last ? 7 : 3);
            const gml_extent *merged = gml_base_range_find(&range, 0);
            CHECK_EQ(merged->size_bytes, 2 * CHUNK);
            CHECK_EQ(merged->instant, 7);
            CHECK_OK(gml_base_range_close(&range));
            gml_driver_close(driver);
        }
    }
}

/* Chunks are as large as alignment and what is asked for allow, and never above what is wished. */
TEST(chunks_are_powers_of_two_at_multiples_of_their_size) {
    gml_driver *driver = open_driver();
    gml_base_range range;
    gml_freeset set;
    gml_freeset_init(&set, 0);
    CHECK_OK(gml_base_range_open(&range, driver, CHUNK, 64));
    CHECK_OK(gml_base_range_grow(&range, 3 * CHUNK, CHUNK, &set));
    CHECK_OK(gml_base_range_grow(&range, 20 * CHUNK, 8 * CHUNK, &set));
    /* Three of one granule; then up to the boundaries of 4 and 8; one of 8; what is left of 20. */
    static const struct {
        uint64_t begin, granules;
    } expected[] = {{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 4}, {8, 8}, {16, 4}, {20, 2}, {22, 1}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        for (uint64_t granule = 0; granule < expected[i].granules; granule++) {
            uint64_t offset = (expected[i].begin + granule) * CHUNK + 512;
            CHECK_EQ(gml_base_range_chunk_begin(&range, offset), expected[i].begin * CHUNK);
            CHECK_EQ(gml_base_range_chunk_bytes(&range, offset), expected[i].granules * CHUNK);
        }
    }
    CHECK_EQ(range.chunk_count, 9);
    CHECK_EQ(range.held_bytes, 23 * CHUNK);
    CHECK_EQ(gml_base_range_boundary(&range, 23 * CHUNK), 23 * CHUNK);
    CHECK_EQ(gml_base_range_boundary(&range, 9 * CHUNK), 16 * CHUNK);
    CHECK_OK(gml_base_range_close(&range));
    gml_driver_close(driver);
}

/* Growth takes what another process handed over: the largest that fits, and no other size. */
TEST(chunks_have_the_sizes_that_were_handed_over) {
    gml_handed handed = {.lock = PTHREAD_MUTEX_INITIALIZER, .bytes = 7 * CHUNK, .count = 3};
    handed.pieces[0] = (gml_shared_piece){-1, 2 * CHUNK};
    handed.pieces[1] = (gml_shared_piece){-1, 4 * CHUNK};
    handed.pieces[2] = (gml_shared_piece){-1, CHUNK + 512};
    gml_driver *driver = open_driver();
    gml_base_range range;
    gml_freeset set;
    gml_freeset_init(&set, 0);
    driver->device->handed = &handed;
    CHECK_OK(gml_base_range_open(&range, driver, CHUNK, 64));
    CHECK_OK(gml_base_range_grow(&range, 8 * CHUNK, 8 * CHUNK, &set));
    CHECK_EQ(gml_base_range_chunk_bytes(&range, 0), 4 * CHUNK);
    CHECK_EQ(gml_base_range_chunk_bytes(&range, 4 * CHUNK), 4 * CHUNK);
    handed.count = 1;
    CHECK_OK(gml_base_range_grow(&range, 4 * CHUNK, 8 * CHUNK, &set));
    CHECK_EQ(gml_base_range_chunk_bytes(&range, 8 * CHUNK), 2 * CHUNK);
    handed.pieces[0].size_bytes = CHUNK + 512;
    CHECK_OK(gml_base_range_grow(&range, 4 * CHUNK, 8 * CHUNK, &set));
    CHECK_EQ(gml_base_range_chunk_bytes(&range, 12 * CHUNK), 4 * CHUNK);
    CHECK_EQ(range.held_bytes, 16 * CHUNK);
    CHECK_OK(gml_base_range_close(&range));
    gml_driver_close(driver);
}

/* A chunk that the driver refused to take back keeps its size, whatever is grown over it later. */
TEST(a_chunk_left_over_is_used_as_it_is) {
    gml_driver *driver = NULL;
    gml_base_range range;
    gml_freeset set;
    gml_freeset_init(&set, 0);
    /* reserve, create, map, set_access, unmap; the release of the only chunk fails. */
    CHECK_OK(gml_fault_driver_open(open_driver(), 6, 0, 0, &driver));
    CHECK_OK(gml_base_range_open(&range, driver, CHUNK, 16));
    CHECK_OK(gml_base_range_grow(&range, 4 * CHUNK, 4 * CHUNK, &set));
    uint64_t released_bytes = 0;
    gml_extent *extent = gml_base_range_find(&range, 0);
    CHECK_STATUS(gml_base_range_shrink(&range, extent, 0, &released_bytes), GML_DRIVER_FAILED);
    CHECK_EQ(range.held_bytes, 4 * CHUNK);
    CHECK_EQ(range.present_bytes, 0);
    CHECK_OK(gml_base_range_check(&range));
    CHECK_OK(gml_base_range_grow(&range, CHUNK, CHUNK, &set));
    CHECK_EQ(range.present_bytes, 4 * CHUNK);
    CHECK_EQ(set.whole_bytes, 4 * CHUNK);
    CHECK_OK(gml_base_range_check(&range));
    CHECK_OK(gml_base_range_close(&range));
    gml_driver_close(driver);
}

/* Fails each driver call of a growth in turn; afterwards the same growth succeeds. */
TEST(a_failed_growth_leaves_nothing_behind) {
    for (uint64_t nth = 2; nth < 19; nth++) {
        gml_driver *driver = NULL;
        gml_base_range range;
        gml_freeset set;
        gml_freeset_init(&set, 0);
        CHECK_OK(gml_fault_driver_open(open_driver(), nth, 0, 0, &driver));
        CHECK_OK(gml_base_range_open(&range, driver, CHUNK, 8));
        gml_status status = gml_base_range_grow(&range, 8 * CHUNK, CHUNK, &set);
        CHECK_STATUS(status, nth == 18 ? GML_DRIVER_FAILED : GML_OUT_OF_MEMORY);
        if (status != GML_OK) {
            CHECK_EQ(range.held_bytes, 0);
            CHECK_EQ(set.free_bytes, 0);
            CHECK_OK(gml_base_range_check(&range));
            CHECK_OK(gml_base_range_grow(&range, 8 * CHUNK, CHUNK, &set));
        }
        CHECK_EQ(set.whole_bytes, 8 * CHUNK);
        CHECK_OK(gml_base_range_check(&range));
        CHECK_OK(gml_base_range_close(&range));
        gml_driver_close(driver);
    }
}
