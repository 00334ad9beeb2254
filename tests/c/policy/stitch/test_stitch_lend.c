/* Whole chunks that the policy `stitch` lends, and takes back. */
#include "policy/stitch/stitch.h"
#include "support/check.h"
#include "support/rig.h"

#define MIB (UINT64_C(1) << 20)
#define CHUNK (2 * MIB)

enum { MOST_LENT = 64 };

typedef struct loan {
    test_rig rig;
    gml_stitch *stitch;
    gml_pond *pond;
    gml_placement *chunks[MOST_LENT];
} loan;

static loan
open_loan(uint64_t capacity_bytes)
{
    loan self = {.stitch = NULL};
    CHECK_OK(rig_open(&self.rig, &(rig_config){.driver = "sim",
                                               .policy = &gml_stitch_policy,
                                               .capacity_bytes = capacity_bytes}));
    self.stitch = gml_stitch_of(self.rig.policy);
    CHECK_OK(gml_pond_find(self.stitch, 0, &self.pond));
    return self;
}

static void
close_loan(loan *self)
{
    uint64_t released_bytes;
    gml_policy *policy = self->rig.policy;
    CHECK_OK(policy->ops->check(policy));
    CHECK_OK(policy->ops->trim(policy, &released_bytes));
    CHECK_EQ(policy->reserved_bytes, 0);
    CHECK_OK(rig_destroy_policy(&self->rig));
    CHECK_EQ(rig_leftovers(&self->rig), 0);
    rig_close(&self->rig);
}

static gml_block *
take(loan *self, uint64_t size_bytes)
{
    gml_block *block = NULL;
    gml_policy *policy = self->rig.policy;
    CHECK_OK(policy->ops->allocate(policy, size_bytes, 0, &block));
    return block;
}

static void
take_back(loan *self, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        gml_stitch_take_back(self->stitch, self->chunks[i]);
    }
    CHECK_OK(self->rig.policy->ops->check(self->rig.policy));
}

TEST(lent_chunks_serve_nobody_else)
{
    loan self = open_loan(16 * CHUNK);
    gml_policy *policy = self.rig.policy;
    policy->ops->free(policy, take(&self, 4 * CHUNK));
    CHECK_OK(gml_stitch_lend(self.stitch, self.pond, 8, self.chunks)); /* 4 of them new */
    CHECK_EQ(policy->reserved_bytes, 8 * CHUNK);
    CHECK_OK(policy->ops->check(policy));
    for (size_t i = 0; i < 8; i++) {
        for (size_t k = 0; k < i; k++) {
            CHECK(self.chunks[i]->block.address != self.chunks[k]->block.address);
        }
    }
    gml_block *block = take(&self, 8 * CHUNK), *refused = NULL;
    CHECK_STATUS(policy->ops->allocate(policy, MIB, 0, &refused), GML_OUT_OF_MEMORY);
    CHECK_STATUS(gml_stitch_lend(self.stitch, self.pond, 1, self.chunks + 8), GML_OUT_OF_MEMORY);
    take_back(&self, 8);
    CHECK_STATUS(gml_stitch_lend(self.stitch, self.pond, 9, self.chunks), GML_OUT_OF_MEMORY);
    CHECK_OK(policy->ops->check(policy));
    policy->ops->free(policy, block);
    block = take(&self, 16 * CHUNK);
    policy->ops->free(policy, block);
    close_loan(&self);
}

/* A cell is whole chunks at a multiple of its size, however large chunks are. */
TEST(cells_are_all_of_one_size)
{
    loan self = open_loan(UINT64_C(16) << 30);
    gml_policy *policy = self.rig.policy;
    uint64_t cell_bytes = gml_stitch_cell_bytes(self.stitch);
    CHECK_EQ(cell_bytes, 16 * MIB);
    gml_block *block = take(&self, UINT64_C(6) << 30); /* in chunks of several sizes */
    gml_block *odd = take(&self, 3 * CHUNK);
    policy->ops->free(policy, block);
    CHECK_OK(gml_stitch_lend(self.stitch, self.pond, MOST_LENT, self.chunks));
    for (size_t i = 0; i < MOST_LENT; i++) {
        CHECK_EQ(self.chunks[i]->block.block_bytes, cell_bytes);
        CHECK_EQ(self.chunks[i]->only_run.offset % cell_bytes, 0);
    }
    CHECK_OK(policy->ops->check(policy));
    take_back(&self, MOST_LENT);
    policy->ops->free(policy, odd);
    close_loan(&self);
}

/* Before memory is taken from the device. */
TEST(what_another_stream_has_free_is_lent)
{
    loan self = open_loan(16 * CHUNK);
    gml_policy *policy = self.rig.policy;
    gml_block *block = NULL;
    CHECK_OK(policy->ops->allocate(policy, 8 * CHUNK, 1, &block));
    policy->ops->free(policy, block);
    CHECK_OK(gml_stitch_lend(self.stitch, self.pond, 6, self.chunks));
    CHECK_EQ(policy->reserved_bytes, 8 * CHUNK);
    take_back(&self, 6);
    close_loan(&self);
}
