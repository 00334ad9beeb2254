/* Everything that a program may tell a lake, at random: streams that end and whose handles come
 * back, both servers, marks, trims, pools, limits, refusals, failing calls. The driver checks the
 * order of streams, and on `host` every block keeps its content.
 *
 * GMLAKE_STORM_OPERATIONS: how many for each policy and driver; GMLAKE_STORM_SEED: where to begin.
 */
#include "gmlake_plan.h"
#include "support/contract.h"

#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define CAPACITY (512 * MIB)

enum { MOST_LIVE = 150, STREAMS = 5, SEED_OPERATIONS = 2500 };

typedef struct storm {
    gml_lake *lake;
    check_random random;
    live_block blocks[MOST_LIVE];
    size_t count;
    bool forgets;   /* streams end: not where a model serves whoever has the handle */
    bool has_pools; /* which are such models */
    bool may_fail;  /* calls of the driver do */
    bool is_in_pool;
    uint64_t refused; /* requests */
} storm;

static uint64_t
from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

/* GML_OK, or what a failing driver explains. */
static void
expect(const storm *self, gml_status status)
{
    bool is_explained =
        self->may_fail && (status == GML_DRIVER_FAILED || status == GML_OUT_OF_MEMORY);
    if (!is_explained) {
        CHECK_OK(status);
    }
}

static void
end_block(storm *self, size_t at)
{
    lake_check_filled(self->lake, &self->blocks[at]);
    expect(self, gml_lake_free(self->lake, self->blocks[at].address));
    self->blocks[at] = self->blocks[--self->count];
}

static void
begin_block(storm *self)
{
    live_block *block = &self->blocks[self->count];
    block->size_bytes = lake_draw_size(&self->random);
    block->stream = check_below(&self->random, STREAMS);
    block->seed = check_next(&self->random);
    gml_status status =
        gml_lake_allocate(self->lake, block->size_bytes, block->stream, &block->address);
    if (status == GML_OK) {
        self->count++;
        lake_fill(self->lake, block);
        return;
    }
    if (status != GML_OUT_OF_MEMORY) {
        expect(self, status);
    }
    self->refused++;
    for (size_t i = self->count / 2; i > 0; i--) {
        end_block(self, check_below(&self->random, self->count));
    }
}

static void
toggle_pool(storm *self)
{
    const gml_pool_id id = {1, 2};
    gml_status status =
        self->is_in_pool ? gml_lake_end_pool(self->lake, id) : gml_lake_begin_pool(self->lake, id);
    expect(self, status);
    self->is_in_pool ^= status == GML_OK;
}

static void
tell_something(storm *self)
{
    gml_lake *lake = self->lake;
    switch (check_below(&self->random, 12)) {
    case 0:
    case 1:
        if (self->forgets) {
            expect(self, gml_lake_forget_stream(lake, 1 + check_below(&self->random, STREAMS - 1)));
        }
        break;
    case 2:
    case 3:
        CHECK_OK(gml_lake_serve_with(lake, check_below(&self->random, 2) ? GML_SERVER_CACHING
                                                                         : GML_SERVER_POLICY));
        break;
    case 4:
        expect(self, gml_lake_trim(lake, NULL));
        break;
    case 5:
        expect(self, gml_lake_mark(lake));
        break;
    case 6:
        CHECK_OK(gml_lake_set_limit(lake, check_below(&self->random, 2) * (CAPACITY / 2)));
        break;
    case 7:
        expect(self, gml_lake_distrust_stream(lake, 1 + check_below(&self->random, STREAMS - 1)));
        break;
    case 8:
        if (self->has_pools) {
            toggle_pool(self);
        }
        break;
    default:
        if (self->count) {
            const live_block *block = &self->blocks[check_below(&self->random, self->count)];
            expect(self, gml_lake_record_stream(lake, block->address,
                                                check_below(&self->random, STREAMS)));
        }
    }
}

static void
operate(storm *self)
{
    uint64_t choice = check_below(&self->random, 100);
    if (choice < 50 && self->count < MOST_LIVE) {
        begin_block(self);
    } else if (choice < 88 && self->count) {
        end_block(self, check_below(&self->random, self->count));
    } else {
        tell_something(self);
    }
}

/* One lake from its opening to its end. */
static void
run_seed(uint64_t seed, size_t operations)
{
    gml_lake_config config = lake_config_of(CAPACITY);
    storm self = {.random = {seed}};
    bool is_ours = strcmp(contract_policy, "stitch") == 0 || strcmp(contract_policy, "plan") == 0;
    self.has_pools = seed % 3 == 1;
    self.forgets = is_ours && !self.has_pools;
    self.may_fail = seed % 4 == 3;
    if (self.may_fail) {
        config.fail_per_million = 2000;
        config.fail_seed = seed;
    }
    char reason[256];
    if (!CHECK_OK(gml_lake_open(&config, &self.lake, reason, sizeof reason))) {
        return;
    }
    for (size_t i = 0; i < operations; i++) {
        operate(&self);
        if (i % 64 == 0) {
            CHECK_OK(gml_lake_check(self.lake));
        }
    }
    if (self.is_in_pool) {
        toggle_pool(&self);
    }
    while (self.count) {
        end_block(&self, self.count - 1);
    }
    CHECK_OK(gml_lake_check(self.lake));
    gml_status status = gml_lake_close(self.lake);
    if (!self.may_fail) {
        CHECK_OK(status);
    }
}

TEST(whatever_a_program_tells_its_lake)
{
    uint64_t operations = from_environment("GMLAKE_STORM_OPERATIONS", 20000);
    uint64_t seed = from_environment("GMLAKE_STORM_SEED", 1);
    for (uint64_t done = 0; done < operations; done += SEED_OPERATIONS) {
        run_seed(seed++, SEED_OPERATIONS);
    }
}

static const contract_test tests[] = {
    {"whatever a program tells its lake", test_whatever_a_program_tells_its_lake},
};

int
main(void)
{
    return contract_run(tests, sizeof tests / sizeof *tests);
}
