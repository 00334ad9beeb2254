/* The fixture behind policy_fixture.h. */
#include "support/policy_fixture.h"

#include "driver/backends.h"
#include "hooks/fault.h"

#include <stdlib.h>
#include <string.h>

fixture fixture_of(const gml_policy_ops *ops) {
    fixture f = {.ops = ops};
    gml_knobs_init(&f.knobs);
    return f;
}

void fixture_start(fixture *f) {
    gml_driver *sim = NULL;
    char reason[GML_REASON_BYTES];
    CHECK_OK(gml_model_driver_open(GML_MODEL_SIM, f->device_bytes, 0, &sim, reason, sizeof reason));
    f->driver = sim;
    if (f->fail_call) {
        CHECK_OK(gml_fault_driver_open(sim, f->fail_call, 0, 0, &f->driver));
    }
    CHECK_OK(f->ops->create(f->driver, f->capacity_bytes, &f->knobs, &f->policy));
}

uint64_t held_by_driver(const fixture *f) {
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
    CHECK_OK(gml_driver_memory_info(f->driver, &free_bytes, &total_bytes));
    return total_bytes - free_bytes;
}

bool is_sound(const fixture *f) {
    bool sound = CHECK_OK(f->policy->ops->check(f->policy));
    if (!sound) {
        fprintf(stderr, "    %s\n", f->driver->reason);
    }
    return CHECK_EQ(f->policy->reserved_bytes, held_by_driver(f)) && sound;
}

void fixture_stop(fixture *f) {
    is_sound(f);
    gml_status status = f->policy->ops->destroy(f->policy);
    CHECK(status == GML_OK || f->fail_call);
    CHECK_EQ(held_by_driver(f), 0);
    gml_driver_close(f->driver);
}

gml_block *get(fixture *f, uint64_t size_bytes, gml_stream stream) {
    gml_block *block = NULL;
    CHECK_OK(f->policy->ops->allocate(f->policy, size_bytes, stream, &block));
    if (!block) {
        abort(); /* nothing after this would mean anything */
    }
    return block;
}

void give(fixture *f, gml_block *block) {
    f->policy->ops->free(f->policy, block);
}

gml_torch_stats stats_of(fixture *f) {
    gml_torch_stats stats;
    memset(&stats, 0, sizeof stats);
    f->policy->ops->torch_stats(f->policy, &stats);
    return stats;
}

uint64_t count_calls(const fixture *f) {
    uint64_t calls = 0;
    for (int call = 0; call < GML_CALL_COUNT; call++) {
        calls += call == GML_CALL_MEMORY_INFO ? 0 : f->driver->calls[call];
    }
    return calls;
}

static uint64_t random_size(check_random *random) {
    switch (check_below(random, 4)) {
    case 0:
        return 1 + check_below(random, 8 * KIB);
    case 1:
        return 1 + check_below(random, 2 * MIB);
    case 2:
        return MIB + check_below(random, 24 * MIB);
    default:
        return (1 + check_below(random, 40)) * 2 * MIB;
    }
}

/* No two live blocks overlap; blocks hold what was asked. Quadratic, for small counts. */
static void check_live(gml_block *const *live, size_t count) {
    for (size_t i = 0; i < count; i++) {
        CHECK(live[i]->block_bytes >= live[i]->requested_bytes);
        CHECK_EQ(live[i]->address % 512, 0);
        for (size_t j = 0; j < i; j++) {
            CHECK(live[i]->address + live[i]->block_bytes <= live[j]->address ||
                  live[j]->address + live[j]->block_bytes <= live[i]->address);
        }
    }
}

enum { MAX_LIVE = 100 };

uint64_t fixture_work(fixture *f, uint64_t seed, int steps, int check_every) {
    check_random random = {seed};
    gml_block *live[MAX_LIVE];
    size_t count = 0;
    uint64_t refused = 0;
    for (int step = 0; step < steps; step++) {
        uint64_t choice = check_below(&random, 100);
        if (choice < 55 && count < MAX_LIVE) {
            gml_block *block = NULL;
            gml_status status = f->policy->ops->allocate(f->policy, random_size(&random),
                                                         check_below(&random, 3), &block);
            CHECK(status == GML_OK || status == GML_OUT_OF_MEMORY);
            if (status == GML_OK) {
                live[count++] = block;
            }
            refused += status != GML_OK;
        } else if (choice < 99 && count) {
            size_t pick = (size_t)check_below(&random, count);
            give(f, live[pick]);
            live[pick] = live[--count];
        } else if (choice == 99 && !f->never_trims) {
            CHECK_OK(f->policy->ops->trim(f->policy, NULL));
        }
        if (step % check_every == 0) {
            is_sound(f);
            check_live(live, count);
        }
    }
    while (count) {
        give(f, live[--count]);
    }
    return refused;
}
