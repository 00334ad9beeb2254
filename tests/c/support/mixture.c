/* The model, its forward and backward pass, and how tokens are shared out. */
#include "support/mixture.h"

#include "gmlake_steps.h"
#include "support/contract.h"

#include <stdlib.h>

#define KIB (UINT64_C(1) << 10)

enum {
    MOST_LAYERS = 8,
    MOST_EXPERTS = 16,
    MOST_LIVE = 4096,
    MOST_KEPT = 256,
    MOST_LATE = 8,
    FIRST_LATE = 5,
    POOL = 3
};

typedef struct layer {
    size_t kept[MOST_KEPT]; /* for the backward pass, in the order of requests */
    size_t kept_count;
    uint64_t shares[MOST_EXPERTS];
} layer;

typedef struct run {
    const mixture *sizes;
    gml_lake *lakes[2];
    check_random random;
    gml_address blocks[MOST_LIVE][2]; /* 0: free slot */
    uint64_t sizes_of[MOST_LIVE];     /* of parameters */
    size_t parameters[MOST_LIVE];
    size_t gradients[MOST_LIVE];
    size_t late[MOST_LATE];
    size_t parameter_count, gradient_count, late_count;
    layer layers[MOST_LAYERS];
    uint64_t step;
    mixture_result result;
} run;

/* ---- blocks ---------------------------------------------------------------------------------- */

static void give_now(run *self, size_t slot) {
    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(gml_lake_free(self->lakes[i], self->blocks[slot][i]));
        self->blocks[slot][i] = 0;
    }
}

static void give_late(run *self) {
    while (self->late_count) {
        give_now(self, self->late[--self->late_count]);
    }
}

static size_t take(run *self, uint64_t size_bytes) {
    size_t slot = 0;
    if (self->late_count && check_below(&self->random, 4) == 0) {
        give_late(self);
    }
    while (self->blocks[slot][0]) {
        slot++;
    }
    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(gml_lake_allocate(self->lakes[i], size_bytes, 0, &self->blocks[slot][i]));
    }
    self->result.apart += self->blocks[slot][0] != self->blocks[slot][1];
    return slot;
}

static void give(run *self, size_t slot) {
    uint64_t one_in = self->step >= FIRST_LATE ? self->sizes->ends_late : 0;
    if (one_in && self->late_count < MOST_LATE && check_below(&self->random, one_in) == 0) {
        self->late[self->late_count++] = slot;
    } else {
        give_now(self, slot);
    }
}

static void use(run *self, uint64_t size_bytes) {
    give(self, take(self, size_bytes));
}

static void keep(run *self, layer *of, uint64_t size_bytes) {
    of->kept[of->kept_count++] = take(self, size_bytes);
}

/* ---- the program ----------------------------------------------------------------------------- */

static uint64_t hidden_bytes(const mixture *sizes) {
    return 2 * sizes->tokens * sizes->width;
}

static void share_out(check_random *random, const mixture *sizes, uint64_t *shares) {
    uint64_t weights[MOST_EXPERTS], sum = 0, left = sizes->chosen * sizes->tokens;
    for (uint64_t i = 0; i < sizes->experts; i++) {
        weights[i] = 1 + check_below(random, 100) + check_below(random, 100);
        sum += weights[i];
    }
    for (uint64_t i = 0; i < sizes->experts; i++) {
        shares[i] = sizes->chosen * sizes->tokens * weights[i] / sum;
        left -= shares[i];
    }
    shares[sizes->experts - 1] += left;
}

/* `to`: what the backward pass needs. */
static size_t forward_layer(run *self, layer *to, size_t x) {
    const mixture *sizes = self->sizes;
    uint64_t hidden = hidden_bytes(sizes), rows = sizes->chosen * sizes->tokens;
    keep(self, to, 4 * sizes->tokens);                /* rstd */
    keep(self, to, hidden);                           /* norm */
    keep(self, to, 3 * hidden);                       /* query, key, value */
    keep(self, to, hidden);                           /* mixed */
    keep(self, to, 4 * sizes->tokens * sizes->heads); /* log of the sums */
    keep(self, to, 8), keep(self, to, 8);             /* seeds */
    keep(self, to, hidden);                           /* the same, contiguous */
    size_t out = take(self, hidden);
    size_t sum = take(self, hidden);
    give(self, out);
    to->kept[to->kept_count++] = x;
    x = sum;
    keep(self, to, 4 * sizes->tokens);
    keep(self, to, hidden);
    size_t keys = take(self, 8 * rows); /* a random permutation */
    size_t values = take(self, 8 * rows);
    use(self, 16 * rows + 4 * KIB);
    give(self, keys);
    size_t places = take(self, 8 * rows);
    give(self, values);
    size_t routed = take(self, hidden);
    for (uint64_t i = 0; i < sizes->experts; i++) {
        uint64_t outer = 2 * to->shares[i] * sizes->width, inner = 2 * to->shares[i] * sizes->inner;
        keep(self, to, outer ? outer : 1);
        keep(self, to, inner ? inner : 1);
        keep(self, to, inner ? inner : 1);
        keep(self, to, inner ? inner : 1);
        keep(self, to, inner ? inner : 1);
        size_t mine = take(self, outer ? outer : 1);
        size_t next = take(self, hidden);
        give(self, routed);
        give(self, mine);
        routed = next;
    }
    to->kept[to->kept_count++] = places;
    sum = take(self, hidden);
    give(self, routed);
    to->kept[to->kept_count++] = x;
    return sum;
}

/* Frees all that a layer kept, last first, but for its input, which is the last where it has
 * checkpoints. */
static size_t backward_layer(run *self, layer *of, size_t gradient) {
    const mixture *sizes = self->sizes;
    uint64_t hidden = hidden_bytes(sizes);
    use(self, hidden);
    give(self, of->kept[--of->kept_count]); /* x */
    size_t places = of->kept[--of->kept_count];
    size_t inner_gradient = take(self, hidden);
    for (uint64_t i = sizes->experts; i-- > 0;) {
        uint64_t outer = 2 * of->shares[i] * sizes->width, inner = 2 * of->shares[i] * sizes->inner;
        outer = outer ? outer : 1;
        inner = inner ? inner : 1;
        size_t mine = take(self, outer);
        self->gradients[self->gradient_count++] = take(self, 2 * sizes->width * sizes->inner);
        size_t product = take(self, inner);
        give(self, mine);
        size_t gate = take(self, inner);
        size_t widen = take(self, inner);
        give(self, of->kept[--of->kept_count]);
        give(self, product);
        size_t silu = take(self, inner);
        give(self, of->kept[--of->kept_count]);
        give(self, gate);
        self->gradients[self->gradient_count++] = take(self, 2 * sizes->width * sizes->inner);
        size_t one = take(self, outer);
        give(self, of->kept[--of->kept_count]);
        give(self, widen);
        self->gradients[self->gradient_count++] = take(self, 2 * sizes->width * sizes->inner);
        size_t other = take(self, outer);
        give(self, of->kept[--of->kept_count]);
        give(self, silu);
        use(self, outer);
        give(self, one);
        give(self, other);
        size_t added = take(self, hidden);
        use(self, hidden);
        give(self, added);
        give(self, of->kept[--of->kept_count]);
    }
    give(self, places);
    size_t next = take(self, hidden);
    give(self, inner_gradient);
    use(self, 4 * KIB * sizes->width / 64);
    self->gradients[self->gradient_count++] = take(self, 2 * sizes->width);
    while (of->kept_count > 7) {
        give(self, of->kept[--of->kept_count]);
    }
    self->gradients[self->gradient_count++] = take(self, 2 * sizes->width * sizes->width);
    size_t mixed = take(self, hidden);
    size_t queries = take(self, 3 * hidden);
    use(self, 4 * sizes->tokens * sizes->heads);
    give(self, mixed);
    while (of->kept_count > 2) {
        give(self, of->kept[--of->kept_count]);
    }
    self->gradients[self->gradient_count++] = take(self, 6 * sizes->width * sizes->width);
    size_t normed = take(self, hidden);
    give(self, queries);
    self->gradients[self->gradient_count++] = take(self, 2 * sizes->width);
    use(self, hidden);
    while (of->kept_count) {
        give(self, of->kept[--of->kept_count]);
    }
    give(self, normed);
    give(self, gradient);
    return next;
}

static void run_step(run *self, bool is_first) {
    const mixture *sizes = self->sizes;
    uint64_t hidden = hidden_bytes(sizes), logits = 2 * sizes->tokens * sizes->vocab;
    size_t tokens = take(self, 8 * sizes->tokens);
    size_t x = take(self, hidden);
    size_t inputs[MOST_LAYERS];
    for (uint64_t i = 0; i < sizes->layers; i++) {
        layer *to = &self->layers[i];
        to->kept_count = 0;
        if (!sizes->has_checkpoints) {
            x = forward_layer(self, to, x);
            continue;
        }
        inputs[i] = x;
        layer lost = *to;
        size_t input = take(self, 512); /* stands for the input, which stays */
        x = forward_layer(self, &lost, input);
        while (lost.kept_count) {
            give(self, lost.kept[--lost.kept_count]);
        }
    }
    size_t norm = take(self, hidden), scores = take(self, logits);
    size_t wide = take(self, 2 * logits);
    size_t soft = take(self, 2 * logits);
    give(self, wide);
    use(self, 512);
    size_t loss = take(self, 4);
    size_t wide_gradient = take(self, 2 * logits);
    size_t scores_gradient = take(self, logits);
    give(self, wide_gradient);
    give(self, soft);
    give(self, scores);
    self->gradient_count = 0;
    self->gradients[self->gradient_count++] = take(self, 2 * sizes->vocab * sizes->width);
    size_t gradient = take(self, hidden);
    give(self, scores_gradient);
    give(self, norm);
    give(self, x);
    for (uint64_t i = sizes->layers; i-- > 0;) {
        layer *of = &self->layers[i];
        if (sizes->has_checkpoints) {
            give(self, forward_layer(self, of, inputs[i]));
        }
        gradient = backward_layer(self, of, gradient);
    }
    size_t embedding = take(self, 2 * sizes->vocab * sizes->width);
    give(self, gradient);
    give(self, embedding);
    if (is_first) {
        size_t count = self->parameter_count;
        static const int states = 2;
        for (size_t i = 0; i < count; i++) {
            for (int j = 0; j < states; j++) {
                self->parameters[self->parameter_count++] = take(self, self->sizes_of[i]);
            }
        }
    }
    while (self->gradient_count) {
        give(self, self->gradients[--self->gradient_count]);
    }
    give(self, tokens);
    give(self, loss);
}

static void parameter(run *self, uint64_t size_bytes) {
    self->sizes_of[self->parameter_count] = size_bytes;
    self->parameters[self->parameter_count++] = take(self, size_bytes);
}

static void build(run *self) {
    const mixture *sizes = self->sizes;
    parameter(self, 2 * sizes->vocab * sizes->width);
    for (uint64_t i = 0; i < sizes->layers; i++) {
        parameter(self, 2 * sizes->width);
        parameter(self, 2 * sizes->width);
        parameter(self, 6 * sizes->width * sizes->width);
        parameter(self, 2 * sizes->width * sizes->width);
        for (uint64_t j = 0; j < 3 * sizes->experts; j++) {
            parameter(self, 2 * sizes->width * sizes->inner);
        }
    }
}

/* ---- routing --------------------------------------------------------------------------------- */

static void route(run *self) {
    const mixture *sizes = self->sizes;
    uint64_t same = sizes->seed * 1000 + check_below(&self->random, POOL);
    bool repeats = sizes->routing == MIXTURE_LATE ||
                   (sizes->routing == MIXTURE_SOMETIMES && check_below(&self->random, 4));
    check_random again = {same};
    for (uint64_t i = 0; i < sizes->layers; i++) {
        bool is_late = sizes->routing == MIXTURE_LATE && i + 2 > sizes->layers &&
                       check_below(&self->random, 3) == 0;
        share_out(repeats && !is_late ? &again : &self->random, sizes, self->layers[i].shares);
    }
}

static uint64_t one_of(check_random *random, uint64_t low, uint64_t high, uint64_t step) {
    return low + step * check_below(random, (high - low) / step + 1);
}

mixture mixture_draw(uint64_t seed) {
    check_random random = {seed};
    mixture drawn = {.seed = seed};
    drawn.layers = one_of(&random, 3, 6, 1);
    drawn.experts = one_of(&random, 4, 16, 4);
    drawn.chosen = one_of(&random, 1, 2, 1);
    drawn.width = one_of(&random, 256, 1024, 128);
    drawn.inner = drawn.width * 11 / 4;
    drawn.heads = drawn.width / 64;
    drawn.vocab = one_of(&random, 8000, 32000, 8000);
    drawn.tokens = one_of(&random, 512, 8192, 512);
    drawn.steps = one_of(&random, 10, 16, 1);
    drawn.has_checkpoints = check_below(&random, 2);
    drawn.asks_between = check_below(&random, 2);
    drawn.routing = (mixture_routing)check_below(&random, MIXTURE_ROUTINGS);
    return drawn;
}

static gml_lake *open_lake(const mixture *sizes, uint64_t capacity_bytes) {
    const gml_setting setting = {"max_views", sizes->max_views};
    gml_lake_config config = {.driver = "sim",
                              .policy = "stitch",
                              .capacity_bytes = capacity_bytes,
                              .settings = &setting,
                              .setting_count = sizes->max_views != 0};
    gml_lake *lake = NULL;
    if (!CHECK_OK(gml_lake_open(&config, &lake, NULL, 0))) {
        exit(1);
    }
    return lake;
}

mixture_result mixture_run(const mixture *sizes, uint64_t capacity_bytes) {
    run *self = calloc(1, sizeof *self);
    self->sizes = sizes;
    self->random = (check_random){sizes->seed + 7};
    for (size_t i = 0; i < 2; i++) {
        self->lakes[i] = open_lake(sizes, capacity_bytes);
    }
    CHECK_OK(gml_lake_watch_steps(self->lakes[1]));
    build(self);
    for (uint64_t i = 0; i < sizes->steps; i++) {
        gml_step_report report;
        self->step = i;
        route(self);
        if (sizes->asks_between) {
            use(self, 8 * sizes->tokens + 8 * KIB);
        }
        CHECK_OK(gml_lake_begin_step(self->lakes[1], 1));
        run_step(self, i == 0);
        CHECK_OK(gml_lake_end_step(self->lakes[1], &report));
        self->result.planned_steps += report.served != 0;
    }
    for (size_t i = 0; i < self->parameter_count; i++) {
        give(self, self->parameters[i]);
    }
    give_late(self);
    mixture_result result = self->result;
    for (size_t i = 0; i < 2; i++) {
        result.reserved_bytes[i] = lake_stats_of(self->lakes[i]).peak_reserved_bytes;
        result.calls[i] = lake_calls(self->lakes[i]);
        lake_finish(self->lakes[i]);
    }
    free(self);
    return result;
}
