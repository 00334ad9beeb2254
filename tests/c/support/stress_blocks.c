/* Blocks of a random program: allocating, using, freeing, handing over. */
#include "support/stress.h"

#define MIB (UINT64_C(1) << 20)

/* ---- contents -------------------------------------------------------------------------------- */

void stress_touch(stress_block *held) {
    stress_lake *at = held->at;
    const live_block *block = &held->block;
    void *bytes = NULL;
    if (held->is_captured || held->is_orphan) {
        return;
    }
    (void)pthread_rwlock_rdlock(&at->awake);
    bool is_host = lake_is_host();
    if (stress_is_asleep(at)) {
        CHECK_STATUS(gml_lake_bytes(at->lake, block->address, &bytes), GML_UNSUPPORTED);
    } else if (is_host && !CHECK_OK(gml_lake_bytes(at->lake, block->address, &bytes))) {
        held->is_stamped = false;
    } else {
        bool looks = held->is_stamped && held->stamped >= at->lost_nap;
        if (stress_queue(at, block->stream, bytes, block->size_bytes, block->seed, !looks)) {
            held->stamped = looks ? held->stamped : at->sleeps;
            held->is_stamped = true;
        }
    }
    (void)pthread_rwlock_unlock(&at->awake);
}

void stress_touch_all(stress *self, const stress_lake *at) {
    for (size_t i = 0; i < self->count; i++) {
        if (self->blocks[i].at == at) {
            stress_touch(&self->blocks[i]);
        }
    }
}

/* Whether its content is there to be read. pre: held->at->awake is locked. */
static bool has_content(const stress_block *held) {
    return held->is_stamped && !held->is_orphan && !held->is_captured &&
           held->stamped >= held->at->lost_nap && !stress_is_asleep(held->at);
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void end_block(stress *self, size_t index) {
    stress_block *held = &self->blocks[index];
    CHECK_OK(ASK(gml_lake_free(held->at->lake, held->block.address)));
    if (self->shared->is_alone && check_below(&self->random, 8) == 0) {
        CHECK_STATUS(gml_lake_free(held->at->lake, held->block.address), GML_UNKNOWN_ADDRESS);
    }
    *held = self->blocks[--self->count];
}

void stress_end_block(stress *self, size_t index) {
    if (check_below(&self->random, 2)) {
        stress_touch(&self->blocks[index]);
    }
    end_block(self, index);
}

/* ---- other streams --------------------------------------------------------------------------- */

/* The lake is told, and the order is the program's own affair. */
static void use_recorded(stress *self, stress_block *held, gml_stream user) {
    stress_lake *at = held->at;
    gml_status status = ASK(gml_lake_record_stream(at->lake, held->block.address, user));
    stress_expect(self, status);
    const stress_slot *slot = stress_slot_of(at, user);
    if (status == GML_OK && slot && self->shared->is_alone) {
        held->users |= UINT64_C(1) << (slot - at->slots);
        (void)(has_content(held) && stress_read_on(held, user));
    }
}

/* The lake is not told, and the block is freed: what CUDA programs do that have its own stream wait
 * before it allocates again. */
static void use_untold(stress *self, stress_block *held, gml_stream user) {
    stress_slot *own = stress_slot_of(held->at, held->block.stream);
    if (own && user != own->handle && has_content(held) && !held->life &&
        stress_read_on(held, user)) {
        stress_owe(held->at, own, user);
        stress_counts.untold++;
        end_block(self, (size_t)(held - self->blocks));
    }
}

void stress_use_elsewhere(stress *self) {
    if (!self->count) {
        return;
    }
    stress_block *held = &self->blocks[check_below(&self->random, self->count)];
    (void)pthread_rwlock_rdlock(&held->at->awake);
    pthread_rwlock_t *awake = &held->at->awake;
    uint64_t choice = check_below(&self->random, 4);
    if (choice < 2 || !self->shared->is_alone) {
        use_recorded(self, held,
                     choice ? stress_own_stream(self, held->at)
                            : stress_any_stream(self, held->at));
    } else {
        gml_stream own = stress_own_stream(self, held->at);
        use_untold(self, held, choice == 2 ? own : STRESS_UNSEEN);
    }
    (void)pthread_rwlock_unlock(awake);
}

/* ---- beginning ------------------------------------------------------------------------------- */

/* Nothing that lay idle would have served it. */
static void check_refusal(stress_block *held) {
    live_block *block = &held->block;
    CHECK_OK(gml_lake_trim(held->at->lake, NULL));
    CHECK_STATUS(
        gml_lake_allocate(held->at->lake, block->size_bytes, block->stream, &block->address),
        GML_OUT_OF_MEMORY);
}

static bool are_apart(const live_block *one, const live_block *other) {
    return one->address + one->size_bytes <= other->address ||
           other->address + other->size_bytes <= one->address;
}

static void add_block(stress *self, uint64_t named) {
    stress_block *held = &self->blocks[self->count++];
    gml_block_info info = {0};
    bool is_captured = self->captured_on == held->at && (!named || named == self->captured_in) &&
                       held->block.stream == stress_capturing_stream(self);
    held->is_captured = self->takes_turn && is_captured;
    uint64_t pool = is_captured ? self->captured_in : named;
    CHECK_OK(gml_lake_block(held->at->lake, held->block.address, &info));
    CHECK(!pool || info.pool.second == stress_pool_id(self, pool).second);
    for (uint64_t i = 1; i <= STRESS_POOLS; i++) { /* one may have helped out */
        pool = info.pool.second == stress_pool_id(self, i).second ? i : pool;
    }
    /* What a graph that takes turns asked for is its own, and no part of the pool's state. */
    held->life = pool && !held->is_captured ? stress_life_of(self, held->at, pool) : 0;
    for (size_t i = 0; i + 1 < self->count; i++) {
        const stress_block *other = &self->blocks[i];
        CHECK(other->at != held->at || are_apart(&other->block, &held->block));
    }
    (void)pthread_rwlock_rdlock(&held->at->awake);
    held->born = held->at->sleeps;
    (void)pthread_rwlock_unlock(&held->at->awake);
    held->serial = self->shared->is_alone ? ++self->shared->serial : 0;
    stress_touch(held);
}

/* Up to 6 MiB: a lake has room for a few dozen. Where bytes cost nothing, also larger ones, of few
 * sizes, as programs have them. */
static uint64_t draw_size(check_random *random) {
    static const uint64_t usual[] = {3 * MIB + 512, 8 * MIB, 10 * MIB, 16 * MIB, 21 * MIB + 4096};
    switch (check_below(random, lake_is_host() ? 4 : 5)) {
    case 0:
        return 1 + check_below(random, 4096);
    case 1:
        return 1 + check_below(random, MIB);
    case 2:
        return 1 + check_below(random, 3 * MIB);
    case 3:
        return (1 + check_below(random, 3)) * 2 * MIB;
    default:
        return usual[check_below(random, sizeof usual / sizeof *usual)];
    }
}

/* One that is awake, as a rule. */
static stress_lake *draw_lake(stress *self) {
    stress_lake *at = stress_any_lake(self);
    for (int i = 0; i < 3 && stress_is_asleep(at); i++) {
        at = stress_any_lake(self);
    }
    return at;
}

/* A private pool to name, if this thread has one there; 0: none. */
static uint64_t draw_named(stress *self, const stress_lake *at) {
    uint64_t number = 1 + check_below(&self->random, STRESS_POOLS);
    return stress_pool_of(self, at, number)->uses && check_below(&self->random, 4) == 0 ? number
                                                                                        : 0;
}

/* Frees half of what it has there. */
static void make_room(stress *self, const stress_lake *at) {
    for (size_t i = self->count; i > 0; i--) {
        if (self->blocks[i - 1].at == at && check_below(&self->random, 2)) {
            stress_end_block(self, i - 1);
        }
    }
}

void stress_begin_block(stress *self) {
    stress_lake *at = draw_lake(self);
    stress_block *held = &self->blocks[self->count];
    live_block *block = &held->block;
    *held = (stress_block){.at = at};
    block->size_bytes = draw_size(&self->random);
    block->stream = stress_any_stream(self, at);
    block->seed = check_next(&self->random);
    uint64_t named = draw_named(self, at);
    stress_pay(at, block->stream);
    gml_status status =
        named ? ASK(gml_lake_allocate_in(at->lake, stress_pool_id(self, named), block->size_bytes,
                                         block->stream, &block->address))
              : ASK(gml_lake_allocate(at->lake, block->size_bytes, block->stream, &block->address));
    if (status == GML_OK) {
        CHECK(!self->shared->is_alone || !stress_is_asleep(at));
        add_block(self, named);
        return;
    }
    if (status == GML_UNSUPPORTED) {
        CHECK(self->shared->is_alone ? stress_is_asleep(at) : at->can_sleep);
        return;
    }
    stress_counts.refused += status == GML_OUT_OF_MEMORY;
    if (status != GML_OUT_OF_MEMORY) {
        stress_expect(self, status);
    } else if (self->shared->is_alone && self->shared->fault == STRESS_NONE && !self->captured_on &&
               !named) {
        check_refusal(held);
    }
    make_room(self, at);
}

void stress_exchange_block(stress *self) {
    stress_block *mine = &self->blocks[check_below(&self->random, self->count)];
    stress_lakes *shared = self->shared;
    if (mine->is_captured || mine->life) {
        return; /* this thread ends its capture, and knows its pools */
    }
    (void)pthread_mutex_lock(&shared->lock);
    stress_block *slot = &shared->exchange[check_below(&self->random, STRESS_EXCHANGED)];
    stress_block theirs = *slot;
    *slot = *mine;
    (void)pthread_mutex_unlock(&shared->lock);
    *mine = theirs.at ? theirs : self->blocks[--self->count];
}
