/* Lakes under test: opening, random programs, and the end that every test shares. */
#include "support/contract.h"

#include "driver/streams.h"
#include "lake/lake.h"
#include "policy/policy.h"
#include "support/check.h"
#include "support/stamp.h"

#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

enum { STRIDE_BYTES = 4096 };

const char *contract_policy;
const char *contract_driver;
bool contract_is_arena;

gml_lake_config lake_config_of(uint64_t capacity_bytes) {
    static gml_setting place_settings[1];
    place_settings[0] = (gml_setting){"arena", capacity_bytes ? capacity_bytes : 512 * MIB};
    return (gml_lake_config){.driver = contract_driver,
                             .policy = contract_policy,
                             .capacity_bytes = capacity_bytes,
                             .settings = place_settings,
                             .setting_count = contract_is_arena,
                             .hooks = GML_HOOKS(.check_order = true)};
}

gml_lake *lake_open_by(const gml_lake_config *config) {
    gml_lake *lake = NULL;
    char reason[256] = "";
    if (gml_lake_open(config, &lake, reason, sizeof reason) != GML_OK) {
        fprintf(stderr, "%s over %s does not open: %s\n", config->policy, config->driver, reason);
        exit(1);
    }
    return lake;
}

gml_lake *lake_open(uint64_t capacity_bytes) {
    const gml_lake_config config = lake_config_of(capacity_bytes);
    return lake_open_by(&config);
}

gml_lake *lake_open_unchecked(uint64_t capacity_bytes) {
    gml_lake_config config = lake_config_of(capacity_bytes);
    config.hooks = NULL;
    return lake_open_by(&config);
}

bool lake_is_host(void) {
    return strcmp(contract_driver, "host") == 0;
}

gml_stats lake_stats_of(gml_lake *lake) {
    gml_stats stats = {0};
    CHECK_OK(gml_lake_stats(lake, &stats));
    return stats;
}

uint64_t lake_calls(gml_lake *lake) {
    gml_stats stats = lake_stats_of(lake);
    uint64_t calls = 0;
    for (int i = 0; i < GML_CALL_COUNT; i++) {
        calls += stats.driver_calls[i];
    }
    return calls;
}

gml_address lake_take(gml_lake *lake, uint64_t size_bytes, gml_stream stream) {
    gml_address address = 0;
    CHECK_OK(gml_lake_allocate(lake, size_bytes, stream, &address));
    CHECK(address != 0 && address % 512 == 0);
    return address;
}

void lake_give(gml_lake *lake, gml_address address) {
    CHECK_OK(gml_lake_free(lake, address));
}

void lake_finish(gml_lake *lake) {
    CHECK_OK(gml_lake_check(lake));
    CHECK_EQ(lake_stats_of(lake).live_blocks, 0);
    uint64_t reserved_bytes = lake_stats_of(lake).reserved_bytes;
    uint64_t released_bytes = 0;
    CHECK_OK(gml_lake_trim(lake, &released_bytes));
    CHECK_EQ(released_bytes, reserved_bytes);
    gml_stats stats = lake_stats_of(lake);
    CHECK_EQ(stats.reserved_bytes, 0);
    CHECK_EQ(stats.views, 0);
    CHECK_EQ(stats.driver_calls[GML_CALL_CREATE], stats.driver_calls[GML_CALL_RELEASE]);
    CHECK_EQ(stats.driver_calls[GML_CALL_MALLOC], stats.driver_calls[GML_CALL_FREE]);
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_close(lake));
}

void lake_fill(gml_lake *lake, const live_block *block) {
    void *bytes;
    if (lake_is_host() && CHECK_OK(gml_lake_bytes(lake, block->address, &bytes))) {
        stamp_write(bytes, block->size_bytes, block->seed, STRIDE_BYTES);
    }
}

void lake_check_filled(gml_lake *lake, const live_block *block) {
    void *bytes;
    if (lake_is_host() && CHECK_OK(gml_lake_bytes(lake, block->address, &bytes))) {
        CHECK(stamp_holds(bytes, block->size_bytes, block->seed, STRIDE_BYTES));
    }
}

uint64_t lake_draw_size(check_random *random) {
    switch (check_below(random, 4)) {
    case 0:
        return 1 + check_below(random, 4096);
    case 1:
        return 1 + check_below(random, MIB);
    case 2:
        return 1 + check_below(random, 4 * MIB);
    default:
        return (1 + check_below(random, 6)) * 2 * MIB;
    }
}

size_t lake_churn(gml_lake *lake, live_block *blocks, size_t most, size_t steps, uint64_t streams,
                  uint64_t seed) {
    check_random random = {seed};
    size_t count = 0;
    for (size_t step = 0; step < steps; step++) {
        if (count < most && check_below(&random, 5) > 1) {
            live_block *block = &blocks[count++];
            block->size_bytes = lake_draw_size(&random);
            block->stream = check_below(&random, streams);
            block->seed = check_next(&random);
            block->address = lake_take(lake, block->size_bytes, block->stream);
            lake_fill(lake, block);
        } else if (count) {
            live_block *block = &blocks[check_below(&random, count)];
            lake_check_filled(lake, block);
            lake_give(lake, block->address);
            *block = blocks[--count];
        }
    }
    return count;
}

void lake_drain(gml_lake *lake, const live_block *blocks, size_t count) {
    for (size_t i = 0; i < count; i++) {
        lake_check_filled(lake, &blocks[i]);
        lake_give(lake, blocks[i].address);
    }
}

static void run_on(const char *policy, const char *driver, const char *place, const char *name,
                   void (*run)(void)) {
    contract_policy = policy;
    contract_driver = driver;
    contract_is_arena = strcmp(place, ", arena") == 0;
    char whole[160];
    snprintf(whole, sizeof whole, "%s over %s%s: %s", policy, driver, place, name);
    check_run(whole, run);
}

void contract_run(const char *name, void (*run)(void)) {
    for (size_t p = 0; gml_policy_name(p); p++) {
        const char *policy = gml_policy_name(p);
        run_on(policy, "sim", "", name, run);
        run_on(policy, "host", "", name, run);
    }
}

/* On the policies that have the setting arena. */
static void run_in_arenas(void) {
    for (const check_test *test = check_tests(); test; test = test->next) {
        for (size_t p = 0; gml_policy_name(p); p++) {
            if (gml_policy_find(gml_policy_name(p))->can_serve_arena) {
                run_on(gml_policy_name(p), "host", ", arena", test->name, test->run);
            }
        }
    }
}

int contract_main_with_arenas(void) {
    run_in_arenas();
    return contract_main();
}

int contract_main(void) {
    for (const check_test *test = check_tests(); test; test = test->next) {
        contract_run(test->name, test->run);
    }
    return report();
}
