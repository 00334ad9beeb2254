/* What the tests of gmlake.h share: each runs on every policy over `sim` and `host`. */
#ifndef GML_TEST_CONTRACT_H
#define GML_TEST_CONTRACT_H

#include "gmlake.h"
#include "hooks/test_hooks.h"
#include "support/check.h"

/* What the test that runs now is run on. */
extern const char *contract_policy;
extern const char *contract_driver;
/* Whether one allocation serves. Its end alone is given back, so a test that asks for more than
 * that of trimming is not run on it. */
extern bool contract_is_arena;

/* Runs a test on each pair of policy and driver. */
void contract_run(const char *name, void (*run)(void));

/* Runs every test of the program like that; the exit status of main. */
int contract_main(void);
/* On arenas too. */
int contract_main_with_arenas(void);

/* capacity_bytes 0: the driver's own. The order of streams is checked. */
gml_lake_config lake_config_of(uint64_t capacity_bytes);
gml_lake *lake_open(uint64_t capacity_bytes);
/* Without the driver that checks the order of streams, for tests that put one of their own in. */
gml_lake *lake_open_unchecked(uint64_t capacity_bytes);
/* For tests of what no contract has: a lake with settings of its own. */
gml_lake *lake_open_by(const gml_lake_config *config);
bool lake_is_host(void);
gml_stats lake_stats_of(gml_lake *lake);
uint64_t lake_calls(gml_lake *lake); /* of the driver, made so far */

/* Allocates and frees where that must succeed. */
gml_address lake_take(gml_lake *lake, uint64_t size_bytes, gml_stream stream);
void lake_give(gml_lake *lake, gml_address address);

/* Trims an empty lake, checks that nothing is left, closes it. */
void lake_finish(gml_lake *lake);

typedef struct live_block {
    gml_address address;
    uint64_t size_bytes, seed;
    gml_stream stream;
} live_block;

/* Writes, or checks, a pattern in the block; nothing on `sim`. */
void lake_fill(gml_lake *lake, const live_block *block);
void lake_check_filled(gml_lake *lake, const live_block *block);

/* From 1 byte to 12 MiB. */
uint64_t lake_draw_size(check_random *random);

/* Fills `blocks` by allocating and freeing at random; returns how many live. Every content is
 * checked when its block is freed. */
size_t lake_churn(gml_lake *lake, live_block *blocks, size_t most, size_t steps, uint64_t streams,
                  uint64_t seed);
/* Checks and frees them all. */
void lake_drain(gml_lake *lake, const live_block *blocks, size_t count);

#endif
