/* With plans a program gets the memory that it gets without: two lakes run the same, one of them in
 * steps, and every request lies at the same place in both. */
#include "gmlake_steps.h"
#include "support/trainer.h"

#include <string.h>

enum { KINDS = 3, BLOCKS = 64, STEPS = 120 };

/* The same program on both lakes. */
typedef struct twins {
    gml_lake *lakes[2]; /* without steps, and with */
    gml_address blocks[BLOCKS][2];
    size_t count;
    uint64_t least_bytes, apart, served; /* requests at other places; by plans */
} twins;

static void take(twins *self, uint64_t size_bytes, gml_stream stream) {
    gml_address *block = self->blocks[self->count++];
    for (size_t i = 0; i < 2; i++) {
        block[i] = trainer_take(self->lakes[i], size_bytes, stream);
    }
    self->apart += block[0] != block[1];
}

static void give(twins *self, size_t at) {
    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(gml_lake_free(self->lakes[i], self->blocks[at][i]));
    }
    memmove(&self->blocks[at], &self->blocks[at + 1], (--self->count - at) * sizeof *self->blocks);
}

/* A step of that kind; one in `changes` requests is another than usual, and lives on for a while.
 */
static void run_step(twins *self, uint64_t kind, check_random *noise, uint64_t changes) {
    check_random usual = {kind};
    size_t before = self->count;
    for (int i = 0; i < 90; i++) {
        uint64_t size_bytes = self->least_bytes + check_below(&usual, 9 * MIB);
        bool is_taken = check_below(&usual, 100) < 55;
        if (changes && check_below(noise, changes) == 0) {
            size_bytes += 512 * (1 + check_below(noise, 4000));
        }
        if (is_taken && self->count < BLOCKS) {
            take(self, size_bytes, 0);
        } else if (self->count > before) {
            give(self, before + check_below(&usual, self->count - before));
        }
    }
    while (self->count > (changes ? before + 1 : before)) {
        give(self, self->count - 1);
    }
}

/* `carries`: blocks live from step to step. */
static void run_program(twins *self, uint64_t seed, uint64_t changes, bool carries) {
    check_random random = {seed};
    for (int step = 0; step < STEPS; step++) {
        uint64_t kind = check_below(&random, KINDS);
        gml_step_report report;
        CHECK_OK(gml_lake_begin_step(self->lakes[1], kind));
        run_step(self, kind, &random, check_below(&random, 4) ? 0 : changes);
        CHECK_OK(gml_lake_end_step(self->lakes[1], &report));
        self->served += report.served;
        if (check_below(&random, 5) == 0) { /* something between steps */
            take(self, self->least_bytes + check_below(&random, 40 * MIB), 0);
            give(self, self->count - 1);
        }
        while (self->count > (carries ? 6 : 0)) {
            give(self, 0);
        }
    }
}

static twins open_twins(uint64_t least_bytes) {
    twins self = {.least_bytes = least_bytes};
    for (size_t i = 0; i < 2; i++) {
        self.lakes[i] = trainer_open_lake("sim", "stitch", 0);
    }
    CHECK_OK(gml_lake_watch_steps(self.lakes[1]));
    return self;
}

static void close_twins(twins *self) {
    while (self->count) {
        give(self, 0);
    }
    trainer_close(self->lakes[0]);
    trainer_close(self->lakes[1]);
}

static void compare(uint64_t least_bytes, bool carries) {
    for (uint64_t seed = 1; seed <= 6; seed++) {
        twins self = open_twins(least_bytes);
        run_program(&self, seed, seed % 2 ? 0 : 50, carries);
        CHECK(self.served > 200);
        CHECK_EQ(self.apart, 0);
        CHECK_EQ(trainer_calls(self.lakes[0]), trainer_calls(self.lakes[1]));
        CHECK_EQ(trainer_stats(self.lakes[0]).peak_reserved_bytes,
                 trainer_stats(self.lakes[1]).peak_reserved_bytes);
        close_twins(&self);
    }
}

TEST(every_request_lies_where_it_would) {
    compare(MIB + 512, false);
    compare(MIB + 512, true);
}

TEST(so_do_small_ones) {
    compare(1, false);
    compare(1, true);
}
