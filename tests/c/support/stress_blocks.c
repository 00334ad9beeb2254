/* Blocks of a random program: allocating, freeing, handing over. */
#include "support/stamp.h"
#include "support/stress.h"

#define MIB (UINT64_C(1) << 20)

enum {
    OWN_STREAMS = 5, /* of each thread, which come and go; 0 is everybody's */
    CAPTURING = OWN_STREAMS,
    LASTING,
    THREAD_STREAMS,
};

gml_stream stress_own_stream(stress *self) {
    return 1 + self->number * THREAD_STREAMS + check_below(&self->random, OWN_STREAMS);
}

gml_stream stress_capturing_stream(const stress *self) {
    return 1 + self->number * THREAD_STREAMS + CAPTURING;
}

gml_stream stress_lasting_stream(const stress *self) {
    return 1 + self->number * THREAD_STREAMS + LASTING;
}

gml_stream stress_any_stream(stress *self, const stress_lake *at) {
    uint64_t choice = check_below(&self->random, 8);
    if (choice == 0) {
        return 0;
    }
    bool captures = choice < 5 && self->captured_on == at;
    return captures ? stress_capturing_stream(self) : stress_own_stream(self);
}

/* ---- contents -------------------------------------------------------------------------------- */

void stress_touch(stress_block *held) {
    stress_lake *at = held->at;
    const live_block *block = &held->block;
    void *bytes = NULL;
    if (!lake_is_host() || held->is_captured) {
        return;
    }
    (void)pthread_rwlock_rdlock(&at->awake);
    if (stress_is_asleep(at)) {
        CHECK_STATUS(gml_lake_bytes(at->lake, block->address, &bytes), GML_UNSUPPORTED);
    } else if (!CHECK_OK(gml_lake_bytes(at->lake, block->address, &bytes))) {
        held->is_stamped = false;
    } else if (held->is_stamped && held->stamped >= at->lost_nap) {
        CHECK(stamp_holds(bytes, block->size_bytes, block->seed, STRESS_STRIDE_BYTES));
    } else {
        stamp_write(bytes, block->size_bytes, block->seed, STRESS_STRIDE_BYTES);
        held->is_stamped = true;
        held->stamped = at->sleeps;
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

/* ---- living and ending ----------------------------------------------------------------------- */

void stress_end_block(stress *self, size_t index) {
    stress_block *held = &self->blocks[index];
    stress_touch(held);
    stress_expect(self, gml_lake_free(held->at->lake, held->block.address));
    if (self->shared->is_alone && check_below(&self->random, 8) == 0) {
        CHECK_STATUS(gml_lake_free(held->at->lake, held->block.address), GML_UNKNOWN_ADDRESS);
    }
    *held = self->blocks[--self->count];
}

/* Nothing that lay idle would have served it. */
static void check_refusal(stress_block *held) {
    live_block *block = &held->block;
    CHECK_OK(gml_lake_trim(held->at->lake, NULL));
    CHECK_STATUS(
        gml_lake_allocate(held->at->lake, block->size_bytes, block->stream, &block->address),
        GML_OUT_OF_MEMORY);
}

static void read_first(void *context) {
    (void)*(const volatile char *)context;
}

/* What was queued reads memory whenever it comes to run: it must still be mapped then. By one
 * thread only, as others do not see the order of streams. */
static void queue_use(stress *self, const stress_block *held) {
    void *bytes = NULL;
    bool is_captured =
        self->captured_on == held->at && held->block.stream == stress_capturing_stream(self);
    if (lake_is_host() && self->shared->is_alone && !is_captured &&
        (held->at->can_sleep || held->at->has_elastic) &&
        CHECK_OK(gml_lake_bytes(held->at->lake, held->block.address, &bytes))) {
        CHECK_OK(
            gml_streams_enqueue(stress_streams(held->at), held->block.stream, read_first, bytes));
    }
}

static void add_block(stress *self) {
    stress_block *held = &self->blocks[self->count++];
    held->is_captured = self->takes_turn && self->captured_on == held->at &&
                        held->block.stream == stress_capturing_stream(self);
    (void)pthread_rwlock_rdlock(&held->at->awake);
    held->born = held->at->sleeps;
    (void)pthread_rwlock_unlock(&held->at->awake);
    stress_touch(held);
    if (check_below(&self->random, 4) == 0) {
        queue_use(self, held);
    }
}

/* Up to 6 MiB: a lake has room for a few dozen. */
static uint64_t draw_size(check_random *random) {
    switch (check_below(random, 4)) {
    case 0:
        return 1 + check_below(random, 4096);
    case 1:
        return 1 + check_below(random, MIB);
    case 2:
        return 1 + check_below(random, 3 * MIB);
    default:
        return (1 + check_below(random, 3)) * 2 * MIB;
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

/* Whether to name the pool of this thread's captures, if it has one there. */
static bool draw_named(stress *self, const stress_lake *at) {
    return self->captures[at - self->shared->lakes] && check_below(&self->random, 4) == 0;
}

void stress_begin_block(stress *self) {
    stress_lake *at = draw_lake(self);
    stress_block *held = &self->blocks[self->count];
    live_block *block = &held->block;
    *held = (stress_block){.at = at};
    block->size_bytes = draw_size(&self->random);
    block->stream = stress_any_stream(self, at);
    block->seed = check_next(&self->random);
    gml_pool_id pool = {1, 1 + self->number};
    bool is_named = draw_named(self, at);
    gml_status status =
        is_named ? gml_lake_allocate_in(at->lake, pool, block->size_bytes, block->stream,
                                        &block->address)
                 : gml_lake_allocate(at->lake, block->size_bytes, block->stream, &block->address);
    if (status == GML_OK) {
        CHECK(!self->shared->is_alone || !stress_is_asleep(at));
        add_block(self);
        return;
    }
    if (status == GML_UNSUPPORTED) {
        CHECK(self->shared->is_alone ? stress_is_asleep(at) : at->can_sleep);
        return;
    }
    stress_counts.refused += status == GML_OUT_OF_MEMORY;
    if (status != GML_OUT_OF_MEMORY) {
        stress_expect(self, status);
    } else if (self->shared->is_alone && !self->shared->per_million && !self->captured_on &&
               !is_named) {
        check_refusal(held);
    }
    for (size_t i = self->count; i > 0; i--) { /* half of what it has there */
        if (self->blocks[i - 1].at == at && check_below(&self->random, 2)) {
            stress_end_block(self, i - 1);
        }
    }
}

void stress_exchange_block(stress *self) {
    stress_block *mine = &self->blocks[check_below(&self->random, self->count)];
    stress_lakes *shared = self->shared;
    if (mine->is_captured) {
        return; /* this thread ends its capture */
    }
    (void)pthread_mutex_lock(&shared->lock);
    stress_block *slot = &shared->exchange[check_below(&self->random, STRESS_EXCHANGED)];
    stress_block theirs = *slot;
    *slot = *mine;
    (void)pthread_mutex_unlock(&shared->lock);
    *mine = theirs.at ? theirs : self->blocks[--self->count];
}
