/* Private pools of a random program: captures, graphs that take turns, and pools that are put back
 * into an earlier state. */
#include "lake/lake.h"
#include "support/stress.h"

stress_pool *stress_pool_of(stress *self, const stress_lake *at, uint64_t number) {
    return &self->pools[at - self->shared->lakes][number - 1];
}

gml_pool_id stress_pool_id(const stress *self, uint64_t number) {
    return (gml_pool_id){1, self->number * STRESS_POOLS + number};
}

uint64_t stress_life_of(stress *self, const stress_lake *at, uint64_t number) {
    return stress_pool_of(self, at, number)->life * STRESS_POOLS + number;
}

/* ---- uses ------------------------------------------------------------------------------------ */

static void end_use(stress_pool *pool) {
    if (--pool->uses == 0) {
        pool->life++;
        pool->is_plain = false;
    }
}

static void release(stress *self, stress_lake *at, uint64_t number) {
    end_use(stress_pool_of(self, at, number));
    stress_expect(self, ASK(gml_lake_release_pool(at->lake, stress_pool_id(self, number))));
}

/* It keeps its idle memory while the thread is in it. */
static void enter(stress *self, stress_lake *at, uint64_t number) {
    gml_pool_id id = stress_pool_id(self, number);
    stress_pool *pool = stress_pool_of(self, at, number);
    gml_status status = ASK(gml_lake_enter_pool(at->lake, id));
    stress_expect(self, status);
    if (status == GML_OK) {
        pool->uses++;
        pool->is_plain = true;
        stress_expect(self, ASK(gml_lake_trim(at->lake, NULL)));
        CHECK_OK(ASK(gml_lake_end_pool(at->lake, id)));
    }
}

static void hold(stress *self, stress_lake *at, uint64_t number) {
    gml_pool_id id = stress_pool_id(self, number);
    stress_pool *pool = stress_pool_of(self, at, number);
    gml_status status = ASK(gml_lake_hold_pool(at->lake, id));
    stress_expect(self, status);
    pool->uses += status == GML_OK;
    bool helps = check_below(&self->random, 2);
    status = gml_lake_set_pool(at->lake, id, GML_POOL_HELPS, helps);
    CHECK_STATUS(status, pool->uses ? GML_OK : GML_INVALID_ARGUMENT);
}

/* ---- captures -------------------------------------------------------------------------------- */

/* While any graph is captured on the device, none begins that takes turns. */
static void begin_capture(stress *self, stress_lake *at, uint64_t number) {
    stress_pool *pool = stress_pool_of(self, at, number);
    uint64_t turn = check_below(&self->random, STRESS_TURNS + 1);
    gml_status status =
        ASK(gml_lake_begin_pool_in_turn(at->lake, stress_pool_id(self, number), turn));
    if (status == GML_UNSUPPORTED) {
        CHECK(turn && !self->shared->is_alone);
        return;
    }
    stress_expect(self, status);
    if (status != GML_OK) {
        return;
    }
    CHECK_OK(gml_streams_set_capturing(stress_streams(at), stress_capturing_stream(self), true));
    pool->uses++;
    self->captured_on = at;
    self->captured_in = number;
    self->takes_turn = turn && at->lake->pools.ops->live_chunks && !at->is_arena && !pool->is_plain;
    stress_counts.captures++;
}

/* What was captured in turn has contents from here on, and is a graph. */
static void end_turn(stress *self, stress_lake *at) {
    for (size_t i = 0; i < self->count; i++) {
        self->blocks[i].is_captured &= self->blocks[i].at != at;
    }
    stress_graph *graph = &self->graphs[self->graph_count++ % STRESS_GRAPHS];
    *graph = (stress_graph){at->lake, gml_last_graph()};
    stress_counts.turns++;
}

/* A capture that takes turns may find no memory for its outputs, or another one begun meanwhile. */
static bool is_failed_turn(const stress *self, gml_status status) {
    return self->takes_turn && (status == GML_OUT_OF_MEMORY || status == GML_UNSUPPORTED ||
                                stress_is_explained(self->shared, status));
}

void stress_end_capture(stress *self) {
    stress_lake *at = self->captured_on;
    if (!at) {
        return;
    }
    gml_pool_id id = stress_pool_id(self, self->captured_in);
    CHECK_OK(gml_streams_set_capturing(stress_streams(at), stress_capturing_stream(self), false));
    bool is_over = check_below(&self->random, 6) == 0;
    gml_status status =
        is_over ? ASK(gml_lake_abandon_pool(at->lake, id)) : ASK(gml_lake_end_pool(at->lake, id));
    if (status != GML_OK && is_failed_turn(self, status)) {
        if (status != GML_UNSUPPORTED && status != GML_OUT_OF_MEMORY) {
            stress_expect(self, status);
        }
        is_over = true;
    } else {
        stress_expect(self, status);
    }
    if (is_over) {
        end_use(stress_pool_of(self, at, self->captured_in));
    } else if (self->takes_turn) {
        end_turn(self, at);
    }
    self->captured_on = NULL;
    self->takes_turn = false;
}

void stress_spoil_graph(stress *self, stress_lake *at) {
    (void)at;
    if (!self->graph_count) {
        return;
    }
    size_t known = self->graph_count < STRESS_GRAPHS ? self->graph_count : STRESS_GRAPHS;
    const stress_graph *graph = &self->graphs[check_below(&self->random, known)];
    gml_status status =
        ASK(gml_lake_spoil_graph(graph->lake, graph->number, stress_capturing_stream(self)));
    if (status != GML_UNKNOWN_ADDRESS && status != GML_UNSUPPORTED) { /* gone; a capture, asleep */
        stress_expect(self, status);
        stress_counts.spoiled += status == GML_OK;
    }
}

/* ---- states ---------------------------------------------------------------------------------- */

static void save(stress *self, stress_lake *at, uint64_t number, stress_state *into) {
    stress_pool *pool = stress_pool_of(self, at, number);
    gml_status status =
        ASK(gml_lake_save_pool(at->lake, stress_pool_id(self, number), &into->saved));
    bool may_wait = stress_may_capture(self, at);
    if (!pool->uses && !stress_is_explained(self->shared, status)) {
        CHECK_STATUS(status, GML_INVALID_ARGUMENT);
    } else if (status != GML_UNSUPPORTED && !(status == GML_NOT_READY && may_wait)) {
        stress_expect(self, status);
    }
    if (status != GML_OK) {
        return;
    }
    into->at = at;
    into->pool = number;
    into->life = stress_life_of(self, at, number);
    into->count = 0;
    pool->is_plain = true;
    for (size_t i = 0; i < self->count; i++) {
        if (self->blocks[i].at == at && self->blocks[i].life == into->life) {
            into->blocks[into->count++] = self->blocks[i];
        }
    }
    stress_counts.states++;
}

static void forget(stress_state *of) {
    gml_pool_state_free(of->saved);
    of->saved = NULL;
    of->count = 0;
}

typedef struct told {
    size_t ended, begun;
    gml_address addresses[STRESS_LIVE]; /* of those that ended */
} told;

static void see(void *context, bool is_new, gml_address address) {
    told *to = context;
    bool has_room = to->ended < STRESS_LIVE;
    CHECK(is_new || has_room);
    if (!is_new && has_room) {
        to->addresses[to->ended++] = address;
    }
    to->begun += is_new;
}

/* Takes those out that are told to have ended; how many blocks of the pool there were. */
static size_t take_ended(stress *self, const stress_state *of, const told *to, stress_block *out) {
    size_t kept = 0, taken = 0;
    for (size_t i = 0; i < self->count; i++) {
        const stress_block held = self->blocks[i];
        bool has_ended = false;
        for (size_t j = 0; j < to->ended && held.at == of->at; j++) {
            has_ended |= to->addresses[j] == held.block.address;
        }
        CHECK(!has_ended || held.life == of->life);
        if (has_ended) {
            out[taken++] = held;
        } else {
            self->blocks[kept++] = held;
        }
    }
    self->count = kept;
    return taken;
}

/* What lived before and lives on has its content; the others have none. */
static void put_back(stress *self, const stress_state *of, const stress_block *before,
                     size_t count) {
    for (size_t i = 0; i < of->count; i++) {
        stress_block *held = &self->blocks[self->count++];
        *held = of->blocks[i];
        held->is_stamped = false;
        held->born = of->at->sleeps;
        held->users = 0;
        for (size_t j = 0; j < count; j++) {
            if (before[j].serial == held->serial) {
                *held = before[j];
            }
        }
    }
    stress_touch_all(self, of->at);
}

static size_t count_in(const stress *self, const stress_lake *at, uint64_t life) {
    size_t count = 0;
    for (size_t i = 0; i < self->count; i++) {
        count += self->blocks[i].at == at && self->blocks[i].life == life;
    }
    return count;
}

static void restore(stress *self, stress_state *of) {
    static stress_block before[STRESS_LIVE];
    told to = {0};
    stress_lake *at = of->at;
    bool is_there =
        stress_pool_of(self, at, of->pool)->uses && stress_life_of(self, at, of->pool) == of->life;
    bool may_wait = stress_may_capture(self, at);
    size_t count = count_in(self, at, of->life);
    if (self->count + of->count > STRESS_LIVE) {
        return;
    }
    gml_status status = ASK(gml_lake_restore_pool(at->lake, of->saved, see, &to));
    size_t taken = take_ended(self, of, &to, before);
    if (!is_there) {
        CHECK_STATUS(status, GML_INVALID_ARGUMENT);
        CHECK_EQ(to.ended + to.begun, 0);
        forget(of);
    } else if (status == GML_OK) {
        CHECK_EQ(to.begun, of->count);
        CHECK_EQ(to.ended, count);
        CHECK_EQ(taken, count);
        put_back(self, of, before, taken);
        stress_counts.restored++;
    } else if (!(status == GML_NOT_READY && may_wait)) {
        CHECK_EQ(to.begun, 0);
        CHECK(!to.ended ||
              self->shared->fault == STRESS_RANDOM); /* after three failures in a row */
        stress_expect(self, status);
    }
}

/* By one thread, which knows all blocks of a pool. */
static void change_state(stress *self, stress_lake *at, uint64_t number) {
    stress_state *of = &self->states[check_below(&self->random, STRESS_STATES)];
    if (!self->shared->is_alone || self->takes_turn) {
        return;
    }
    if (!of->saved) {
        save(self, at, number, of);
    } else if (check_below(&self->random, 4)) {
        restore(self, of);
    } else {
        forget(of);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

void stress_change_pool(stress *self, stress_lake *at) {
    uint64_t number = 1 + check_below(&self->random, STRESS_POOLS);
    uint64_t choice = check_below(&self->random, 16);
    if (choice < 6) {
        change_state(self, at, number);
    } else if (choice < 7) {
        hold(self, at, number);
    } else if (choice < 8 && !self->captured_on) {
        enter(self, at, number);
    } else if (self->captured_on) {
        stress_end_capture(self);
    } else if (stress_pool_of(self, at, number)->uses && choice < 10) {
        release(self, at, number);
    } else {
        begin_capture(self, at, number);
    }
}

void stress_release_pools(stress *self) {
    for (size_t i = 0; i < STRESS_STATES; i++) {
        forget(&self->states[i]);
    }
    for (size_t i = 0; i < self->shared->lake_count; i++) {
        for (uint64_t number = 1; number <= STRESS_POOLS; number++) {
            while (self->pools[i][number - 1].uses) {
                release(self, &self->shared->lakes[i], number);
            }
        }
    }
}
