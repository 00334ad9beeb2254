/* What a lake tells of memory that came and went: whose it is, over every policy. */
#include "gmlake_sleep.h"
#include "lake/lake.h"
#include "support/contract.h"

#include <stdlib.h>

#define MIB (UINT64_C(1) << 20)

enum { STREAM = 1 };

static const gml_pool_id POOL = {1, 7};

/* What the looks so far add up to, by owner, and how much was told again elsewhere. */
typedef struct sums {
    int64_t of_none, of_pool, of_other;
    uint64_t told_bytes;
} sums;

static void add(void *context, bool is_new, const gml_held *span) {
    sums *to = context;
    int64_t bytes = is_new ? (int64_t)span->size_bytes : -(int64_t)span->size_bytes;
    bool is_pool = span->pool.first == POOL.first && span->pool.second == POOL.second;
    bool is_none = span->pool.first == 0 && span->pool.second == 0;
    *(is_pool ? &to->of_pool : is_none ? &to->of_none : &to->of_other) += bytes;
    to->told_bytes += span->size_bytes;
}

static void forget(gml_looks *looks) {
    free(looks->held.list);
    free(looks->seen.list);
    free(looks);
}

/* As much is held as before, at the same addresses, and it is other memory. */
TEST(memory_made_anew_is_told_twice) {
    gml_lake *lake = lake_open(0);
    gml_looks *looks = NULL;
    sums seen = {0};
    lake_give(lake, lake_take(lake, 40 * MIB, STREAM));
    gml_lake_changes(lake, &looks, add, &seen);
    int64_t held_bytes = seen.of_none;
    CHECK_OK(gml_lake_trim(lake, NULL));
    gml_address again = lake_take(lake, 40 * MIB, STREAM);
    seen.told_bytes = 0;
    gml_lake_changes(lake, &looks, add, &seen);
    CHECK_EQ(seen.of_none, held_bytes);
    CHECK_EQ(seen.told_bytes, 2 * (uint64_t)held_bytes);
    gml_lake_changes(lake, &looks, add, &seen); /* nothing has happened since */
    CHECK_EQ(seen.told_bytes, 2 * (uint64_t)held_bytes);
    lake_give(lake, again);
    forget(looks);
    lake_finish(lake);
}

static int told_count;

static void count_telling(void) {
    told_count++;
}

/* A neighbour takes idle memory: nothing is asked of the lake, and who watches is told to look. */
TEST(what_is_given_is_told_at_once) {
    gml_lake *lake = lake_open(0);
    gml_looks *looks = NULL;
    sums seen = {0};
    uint64_t released_bytes = 0;
    bool is_pending = false;
    lake_give(lake, lake_take(lake, 40 * MIB, STREAM));
    gml_lake_changes(lake, &looks, add, &seen);
    int64_t held_bytes = seen.of_none;
    lake->driver->device->changed = count_telling;
    told_count = 0;
    CHECK_OK(gml_lake_give(lake, 8 * MIB, NULL, false, &released_bytes, &is_pending));
    lake->driver->device->changed = NULL;
    CHECK_EQ(told_count, 1);
    gml_lake_changes(lake, &looks, add, &seen);
    CHECK_EQ(seen.of_none, held_bytes - (int64_t)released_bytes);
    forget(looks);
    lake_finish(lake);
}

/* Memory behind the addresses goes and comes, also where sleeping fails halfway. */
TEST(what_sleeps_is_told) {
    gml_lake_config config = lake_config_of(0);
    config.can_sleep = true;
    gml_lake *lake = lake_open_by(&config);
    gml_looks *looks = NULL;
    gml_sleep_report report;
    sums seen = {0};
    gml_address address = lake_take(lake, 40 * MIB, STREAM);
    gml_lake_changes(lake, &looks, add, &seen);
    int64_t held_bytes = seen.of_none;
    if (gml_lake_sleep(lake, GML_BACKUP_NONE, &report) == GML_OK) {
        gml_lake_changes(lake, &looks, add, &seen);
        CHECK_EQ(seen.of_none, 0);
        CHECK_OK(gml_lake_wake(lake, &report));
        gml_lake_changes(lake, &looks, add, &seen);
        CHECK_EQ(seen.of_none, held_bytes);
        seen.told_bytes = 0;
        CHECK_OK(gml_lake_sleep(lake, GML_BACKUP_NONE, &report));
        CHECK_OK(gml_lake_wake(lake, &report));
        gml_lake_changes(lake, &looks, add, &seen);
        CHECK_EQ(seen.told_bytes, 2 * (uint64_t)held_bytes);
    }
    lake_give(lake, address);
    forget(looks);
    lake_finish(lake);
}

int main(void) {
    return contract_main();
}
