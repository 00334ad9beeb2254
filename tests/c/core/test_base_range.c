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
