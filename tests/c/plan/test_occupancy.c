/* Occupancy against a plain array with one entry per line. */
#include "plan/occupancy.h"
#include "support/check.h"

#include <string.h>

#define LINE UINT64_C(512)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* Sanitizers end the program on a request for absurdly much memory unless told to say no. */
GML_API const char *
__asan_default_options(void); // NOLINT(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
GML_API const char *
__tsan_default_options(void); // NOLINT(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)

const char *
__asan_default_options(void) // NOLINT(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
{
    return "allocator_may_return_null=1";
}

const char *
__tsan_default_options(void) // NOLINT(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
{
    return "allocator_may_return_null=1";
}

static void
take(gml_occupancy *occupancy, uint64_t offset, uint64_t size_bytes)
{
    CHECK_OK(gml_occupancy_prepare(occupancy, offset, size_bytes));
    gml_occupancy_take(occupancy, offset, size_bytes);
}

static void
give(gml_occupancy *occupancy, uint64_t offset, uint64_t size_bytes)
{
    CHECK_OK(gml_occupancy_prepare(occupancy, offset, size_bytes));
    gml_occupancy_give(occupancy, offset, size_bytes);
}

TEST(nothing_is_used_at_first)
{
    gml_occupancy occupancy;
    gml_occupancy_init(&occupancy, 2 * MIB);
    uint64_t offset, bytes;
    CHECK(gml_occupancy_is_free(&occupancy, 0, GIB));
    CHECK(gml_occupancy_is_cell_free(&occupancy, 0));
    CHECK(gml_occupancy_is_cell_free(&occupancy, 1000000));
    CHECK(gml_occupancy_next_free(&occupancy, 5 * MIB, GIB, &offset, &bytes));
    CHECK_EQ(offset, 5 * MIB);
    CHECK_EQ(bytes, GIB - 5 * MIB);
    CHECK(!gml_occupancy_next_free(&occupancy, GIB, GIB, &offset, &bytes));
    gml_occupancy_close(&occupancy);
}

TEST(neighbours_do_not_touch)
{
    gml_occupancy occupancy;
    gml_occupancy_init(&occupancy, 2 * MIB);
    take(&occupancy, MIB + LINE, 4 * MIB); /* the end of one cell, a whole one, the start of one */
    CHECK_EQ(occupancy.used_bytes, 4 * MIB);
    CHECK(gml_occupancy_is_free(&occupancy, 0, MIB + LINE));
    CHECK(gml_occupancy_is_free(&occupancy, 5 * MIB + LINE, 100 * MIB));
    CHECK(!gml_occupancy_is_free(&occupancy, 0, MIB + 2 * LINE));
    CHECK(!gml_occupancy_is_free(&occupancy, 5 * MIB, 100 * MIB));
    CHECK(!gml_occupancy_is_free(&occupancy, 2 * MIB, LINE));
    CHECK(!gml_occupancy_is_free(&occupancy, 0, GIB));
    give(&occupancy, MIB + LINE, 4 * MIB);
    CHECK(gml_occupancy_is_free(&occupancy, 0, GIB));
    CHECK_EQ(occupancy.used_bytes, 0);
    gml_occupancy_close(&occupancy);
}

/* What was taken at once may be given back in pieces, and the other way round. */
TEST(whole_cells_and_pieces_mix)
{
    gml_occupancy occupancy;
    gml_occupancy_init(&occupancy, 2 * MIB);
    take(&occupancy, 0, 6 * MIB);
    give(&occupancy, 3 * MIB, MIB);
    CHECK(gml_occupancy_is_free(&occupancy, 3 * MIB, MIB));
    CHECK(!gml_occupancy_is_free(&occupancy, 3 * MIB - LINE, LINE));
    CHECK(!gml_occupancy_is_free(&occupancy, 4 * MIB, LINE));
    CHECK(!gml_occupancy_is_cell_free(&occupancy, 1));
    give(&occupancy, 2 * MIB, MIB);
    CHECK(gml_occupancy_is_cell_free(&occupancy, 1));
    take(&occupancy, 2 * MIB, LINE);
    take(&occupancy, 2 * MIB + LINE, 2 * MIB - LINE);
    give(&occupancy, 0, 6 * MIB);
    for (uint64_t cell = 0; cell < 3; cell++) {
        CHECK(gml_occupancy_is_cell_free(&occupancy, cell));
    }
    take(&occupancy, 0, 6 * MIB);
    give(&occupancy, 0, 6 * MIB);
    take(&occupancy, 2 * MIB + LINE, LINE); /* no line of the past is left in the bitmap */
    CHECK(gml_occupancy_is_free(&occupancy, 2 * MIB, LINE));
    CHECK(gml_occupancy_is_free(&occupancy, 2 * MIB + 2 * LINE, GIB));
    gml_occupancy_close(&occupancy);
}

TEST(free_runs_are_found_across_cells)
{
    gml_occupancy occupancy;
    gml_occupancy_init(&occupancy, 2 * MIB);
    take(&occupancy, 0, 2 * MIB + LINE);
    take(&occupancy, 9 * MIB, 2 * MIB);
    uint64_t offset, bytes;
    CHECK(gml_occupancy_next_free(&occupancy, 0, GIB, &offset, &bytes));
    CHECK_EQ(offset, 2 * MIB + LINE);
    CHECK_EQ(bytes, 7 * MIB - LINE);
    CHECK(gml_occupancy_next_free(&occupancy, 0, 3 * MIB, &offset, &bytes));
    CHECK_EQ(bytes, MIB - LINE);
    CHECK(!gml_occupancy_next_free(&occupancy, 0, 2 * MIB + LINE, &offset, &bytes));
    CHECK(gml_occupancy_next_free(&occupancy, 9 * MIB, 5000 * GIB, &offset, &bytes));
    CHECK_EQ(offset, 11 * MIB);
    CHECK_EQ(bytes, 5000 * GIB - 11 * MIB);
    gml_occupancy_close(&occupancy);
}

TEST(no_host_memory_is_a_status)
{
    gml_occupancy occupancy;
    gml_occupancy_init(&occupancy, 2 * MIB);
    take(&occupancy, MIB, 2 * MIB);
    uint64_t cell_count = occupancy.cell_count;
    CHECK_STATUS(gml_occupancy_prepare(&occupancy, UINT64_C(1) << 62, LINE), GML_NO_HOST_MEMORY);
    CHECK_EQ(occupancy.cell_count, cell_count);
    CHECK(!gml_occupancy_is_free(&occupancy, 0, 2 * MIB));
    give(&occupancy, MIB, 2 * MIB);
    CHECK(gml_occupancy_is_free(&occupancy, 0, GIB));
    gml_occupancy_close(&occupancy);
    gml_occupancy_close(&occupancy); /* a second time is harmless */
}

TEST(an_empty_range_is_free_and_costs_nothing)
{
    gml_occupancy occupancy;
    gml_occupancy_init(&occupancy, 2 * MIB);
    take(&occupancy, 7 * MIB, 0);
    CHECK_EQ(occupancy.cell_count, 0);
    CHECK(gml_occupancy_is_free(&occupancy, 0, 0));
    give(&occupancy, 7 * MIB, 0);
    gml_occupancy_close(&occupancy);
}

/* ---- against a plain array ------------------------------------------------------------------- */

enum { BLOCKS = 48, STEPS = 6000 };

typedef struct test_range {
    uint64_t offset, size_bytes;
} test_range;

typedef struct test_world {
    gml_occupancy occupancy;
    check_random random;
    uint64_t lines; /* in the model */
    bool *is_used;
    uint64_t used;
    test_range blocks[BLOCKS];
    size_t count;
} test_world;

static bool
model_is_free(const test_world *world, uint64_t first, uint64_t count)
{
    return !memchr(world->is_used + first, true, count);
}

static void
model_mark(test_world *world, test_range range, bool used)
{
    memset(world->is_used + range.offset / LINE, used, range.size_bytes / LINE);
    world->used = used ? world->used + range.size_bytes : world->used - range.size_bytes;
}

/* Sizes of all magnitudes; cell boundaries are met often. */
static test_range
random_range(test_world *world)
{
    check_random *random = &world->random;
    uint64_t cell_lines = world->occupancy.cell_bytes / LINE;
    uint64_t lines = 1 + check_below(random, UINT64_C(1) << check_below(random, 22));
    if (check_below(random, 3) == 0) {
        lines = cell_lines * (1 + check_below(random, 6));
    }
    lines = lines > world->lines / 2 ? world->lines / 2 : lines;
    uint64_t first = check_below(random, world->lines - lines + 1);
    if (check_below(random, 3) == 0) {
        first -= first % cell_lines;
    }
    return (test_range){first * LINE, lines * LINE};
}

static void
check_next_free(test_world *world)
{
    uint64_t from = check_below(&world->random, world->lines);
    uint64_t limit = from + check_below(&world->random, world->lines - from + 1);
    uint64_t begin = from;
    while (begin < limit && world->is_used[begin]) {
        begin++;
    }
    uint64_t end = begin;
    while (end < limit && !world->is_used[end]) {
        end++;
    }
    uint64_t offset = 0, bytes = 0;
    bool found =
        gml_occupancy_next_free(&world->occupancy, from * LINE, limit * LINE, &offset, &bytes);
    CHECK_EQ(found, begin < limit);
    if (found) {
        CHECK_EQ(offset, begin * LINE);
        CHECK_EQ(bytes, (end - begin) * LINE);
    }
}

static void
check_cells(test_world *world)
{
    uint64_t cell_lines = world->occupancy.cell_bytes / LINE;
    for (uint64_t cell = 0; cell * cell_lines < world->lines; cell++) {
        uint64_t first = cell * cell_lines;
        uint64_t count = world->lines - first < cell_lines ? world->lines - first : cell_lines;
        CHECK_EQ(gml_occupancy_is_cell_free(&world->occupancy, cell),
                 model_is_free(world, first, count));
    }
}

/* Gives back a whole block, or its first or last part. */
static void
give_some(test_world *world)
{
    size_t index = check_below(&world->random, world->count);
    test_range *block = &world->blocks[index], part = *block;
    uint64_t lines = block->size_bytes / LINE;
    if (lines > 1 && check_below(&world->random, 4) == 0) {
        uint64_t cut = (1 + check_below(&world->random, lines - 1)) * LINE;
        bool is_first = check_below(&world->random, 2);
        part = is_first ? (test_range){block->offset, cut}
                        : (test_range){block->offset + cut, block->size_bytes - cut};
        *block = is_first ? (test_range){block->offset + cut, block->size_bytes - cut}
                          : (test_range){block->offset, cut};
    } else {
        *block = world->blocks[--world->count];
    }
    give(&world->occupancy, part.offset, part.size_bytes);
    model_mark(world, part, false);
}

static bool is_line_used[4 * GIB / LINE];

static void
run_world(uint64_t seed, uint64_t cell_bytes, uint64_t total_bytes)
{
    test_world world = {.random = {seed}, .lines = total_bytes / LINE};
    world.is_used = is_line_used;
    memset(is_line_used, false, world.lines);
    gml_occupancy_init(&world.occupancy, cell_bytes);
    for (int step = 0; step < STEPS; step++) {
        test_range range = random_range(&world);
        bool is_free = model_is_free(&world, range.offset / LINE, range.size_bytes / LINE);
        CHECK_EQ(gml_occupancy_is_free(&world.occupancy, range.offset, range.size_bytes), is_free);
        if (is_free && world.count < BLOCKS) {
            take(&world.occupancy, range.offset, range.size_bytes);
            model_mark(&world, range, true);
            world.blocks[world.count++] = range;
        } else if (world.count > 0) {
            give_some(&world);
        }
        CHECK_EQ(world.occupancy.used_bytes, world.used);
        if (step % 32 == 0) {
            check_next_free(&world);
        }
        if (step % 512 == 0) {
            check_cells(&world);
        }
    }
    gml_occupancy_close(&world.occupancy);
}

TEST(it_agrees_with_a_plain_array)
{
    static const uint64_t cells[] = {2 * MIB, 8 * MIB, 20 * MIB, 512, 100 * LINE};
    for (uint64_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        run_world(1 + i, cells[i], cells[i] < MIB ? 3 * MIB : 333 * MIB);
        run_world(11 + i, cells[i], cells[i] < MIB ? MIB : 50 * MIB);
    }
    run_world(21, 2 * MIB, 4 * GIB);
}
