/* The containers: tree, map and pool against plain arrays that do the same slowly; sizes as text.
 */
#include "base/map.h"
#include "base/pool.h"
#include "base/size.h"
#include "base/tree.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

enum { NODES = 512 };

static bool is_below(const gml_tree_node *a, const gml_tree_node *b) {
    return a->size_bytes != b->size_bytes ? a->size_bytes < b->size_bytes : a->address < b->address;
}

/* The least of `nodes` marked in `is_in` that is not below `key` (NULL: any) and above `above`
 * (NULL: any). */
static const gml_tree_node *least(const gml_tree_node *nodes, const bool *is_in,
                                  const gml_tree_node *key, const gml_tree_node *above) {
    const gml_tree_node *best = NULL;
    for (size_t i = 0; i < NODES; i++) {
        if (!is_in[i] || (key && is_below(&nodes[i], key)) ||
            (above && !is_below(above, &nodes[i]))) {
            continue;
        }
        if (!best || is_below(&nodes[i], best)) {
            best = &nodes[i];
        }
    }
    return best;
}

static void compare_order(const gml_tree *tree, const gml_tree_node *nodes, const bool *is_in) {
    const gml_tree_node *expected = least(nodes, is_in, NULL, NULL);
    const gml_tree_node *last = NULL;
    size_t count = 0;
    for (const gml_tree_node *at = gml_tree_first(tree); at; at = gml_tree_next(at)) {
        CHECK(at == expected);
        CHECK(gml_tree_previous(at) == last);
        last = at;
        expected = least(nodes, is_in, NULL, at);
        count++;
    }
    CHECK(expected == NULL);
    CHECK(gml_tree_last(tree) == last);
    CHECK_EQ(tree->count, count);
}

TEST(tree_agrees_with_a_sorted_array) {
    static gml_tree_node nodes[NODES];
    static bool is_in[NODES];
    gml_tree tree = {0};
    check_random random = {11};
    for (size_t step = 0; step < 20000; step++) {
        size_t at = (size_t)check_below(&random, NODES);
        if (is_in[at]) {
            gml_tree_remove(&tree, &nodes[at]);
        } else {
            /* Few sizes, so that the address decides often. */
            nodes[at].size_bytes = check_below(&random, 16) * 512;
            nodes[at].address = at * 512;
            gml_tree_insert(&tree, &nodes[at]);
        }
        is_in[at] = !is_in[at];
        gml_tree_node key = {.size_bytes = check_below(&random, 18) * 512,
                             .address = check_below(&random, NODES) * 512};
        CHECK(gml_tree_at_least(&tree, key.size_bytes, key.address) ==
              least(nodes, is_in, &key, NULL));
        if (step % 500 == 0) {
            CHECK(gml_tree_is_valid(&tree));
            compare_order(&tree, nodes, is_in);
        }
    }
}

TEST(tree_is_shallow_in_ascending_order) {
    enum { COUNT = 1 << 16 };
    gml_tree_node *nodes = calloc(COUNT, sizeof *nodes);
    gml_tree tree = {0};
    for (size_t i = 0; nodes && i < COUNT; i++) {
        nodes[i].size_bytes = 512;
        nodes[i].address = (i + 1) * 512;
        gml_tree_insert(&tree, &nodes[i]);
    }
    size_t deepest = 0;
    for (size_t i = 0; nodes && i < COUNT; i++) {
        size_t depth = 0;
        for (const gml_tree_node *at = &nodes[i]; at; at = at->parent) {
            depth++;
        }
        deepest = depth > deepest ? depth : deepest;
    }
    /* 2.99 log2(n) expected at most for the deepest of a random tree; 48 here, with some room. */
    CHECK(deepest > 15 && deepest < 64);
    CHECK(gml_tree_is_valid(&tree));
    free(nodes);
}

TEST(tree_validity_sees_damage) {
    gml_tree_node nodes[8] = {{0}};
    gml_tree tree = {0};
    for (size_t i = 0; i < 8; i++) {
        nodes[i].size_bytes = (i + 1) * 512;
        nodes[i].address = 4096;
        gml_tree_insert(&tree, &nodes[i]);
    }
    CHECK(gml_tree_is_valid(&tree));
    tree.count--;
    CHECK(!gml_tree_is_valid(&tree));
    tree.count++;
    nodes[3].size_bytes = 1 << 20;
    CHECK(!gml_tree_is_valid(&tree));
    nodes[3].size_bytes = 4 * 512;
    CHECK(gml_tree_is_valid(&tree));
}

TEST(tree_empty) {
    gml_tree tree = {0};
    CHECK(!gml_tree_first(&tree) && !gml_tree_last(&tree) && !gml_tree_at_least(&tree, 0, 0));
    CHECK(gml_tree_is_valid(&tree));
}

TEST(map_agrees_with_an_array) {
    enum { KEYS = 4096 };
    static uint64_t values[KEYS]; /* 0: not in the map */
    gml_map map = {0};
    check_random random = {12};
    size_t count = 0;
    for (uint64_t step = 1; step <= 200000; step++) {
        size_t at = (size_t)check_below(&random, KEYS);
        uint64_t key = (at + 1) << 21; /* as addresses are: zero in the low bits */
        if (!values[at]) {
            values[at] = step;
            CHECK_OK(gml_map_insert(&map, key, &values[at]));
            count++;
        } else if (check_below(&random, 2)) {
            CHECK(gml_map_take(&map, key) == &values[at]);
            values[at] = 0;
            count--;
        }
        CHECK(gml_map_find(&map, key) == (values[at] ? &values[at] : NULL));
        CHECK_EQ(map.count, count);
    }
    for (size_t at = 0; at < KEYS; at++) {
        CHECK(gml_map_find(&map, (at + 1) << 21) == (values[at] ? &values[at] : NULL));
    }
    gml_map_clear(&map);
    CHECK(!gml_map_find(&map, 1 << 21));
}

TEST(map_reserve_makes_room) {
    gml_map map = {0};
    int value = 0;
    CHECK(!gml_map_find(&map, 7) && !gml_map_take(&map, 7));
    CHECK_OK(gml_map_reserve(&map, 1000));
    size_t capacity = map.capacity;
    for (uint64_t key = 1; key <= 1000; key++) {
        CHECK_OK(gml_map_insert(&map, key, &value));
    }
    CHECK_EQ(map.capacity, capacity);
    CHECK(map.count * 4 <= map.capacity * 3);
    CHECK(!gml_map_take(&map, 1001));
    CHECK(!gml_map_find(&map, 0));
    gml_map_clear(&map);
}

TEST(map_survives_any_key) {
    static const uint64_t keys[] = {1, UINT64_MAX, UINT64_C(1) << 63, 0x7f0000000000, 512};
    gml_map map = {0};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        CHECK_OK(gml_map_insert(&map, keys[i], (void *)(uintptr_t)&keys[i]));
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        CHECK(gml_map_find(&map, keys[i]) == &keys[i]);
    }
    gml_map_clear(&map);
}

TEST(pool_gives_zeroed_distinct_objects) {
    enum { COUNT = 1000, BYTES = 40 };
    static unsigned char *objects[COUNT];
    gml_pool pool = {.object_bytes = BYTES};
    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            objects[i] = gml_pool_take(&pool);
            CHECK(objects[i] && (uintptr_t)objects[i] % _Alignof(max_align_t) == 0);
            for (size_t b = 0; b < BYTES; b++) {
                CHECK_EQ(objects[i][b], 0);
            }
            memset(objects[i], (int)(i % 255) + 1, BYTES);
        }
        for (size_t i = 0; i < COUNT; i++) {
            CHECK(objects[i][0] == i % 255 + 1 && objects[i][BYTES - 1] == i % 255 + 1);
            gml_pool_give(&pool, objects[i]);
        }
    }
    gml_pool_give(&pool, NULL);
    gml_pool_clear(&pool);
    CHECK(!pool.slabs && !pool.free_objects);
}

TEST(pool_reuses_what_was_given_back) {
    gml_pool pool = {.object_bytes = 1};
    void *first = gml_pool_take(&pool);
    gml_pool_give(&pool, first);
    CHECK(gml_pool_take(&pool) == first);
    gml_pool_clear(&pool);
}

TEST(sizes_are_written_with_three_digits) {
    static const struct {
        uint64_t size_bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1.00 KiB"},
        {1536 << 10, "1.50 MiB"},
        {(UINT64_C(10) << 20) - 1, "10.0 MiB"},
        {UINT64_C(99) << 20, "99.0 MiB"},
        {(UINT64_C(100) << 20) - 1, "100 MiB"},
        {(UINT64_C(1) << 30) - 1, "1.00 GiB"},
        {UINT64_C(1) << 40, "1.00 TiB"},
        {UINT64_MAX, "16384 PiB"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(strcmp(gml_size_of(cases[i].size_bytes).text, cases[i].text) == 0);
    }
}

TEST(settings_are_written_exactly) {
    CHECK(strcmp(gml_exact_size_of(0).text, "0B") == 0);
    CHECK(strcmp(gml_exact_size_of(1000).text, "1000B") == 0);
    CHECK(strcmp(gml_exact_size_of(UINT64_C(3) << 20).text, "3MiB") == 0);
    CHECK(strcmp(gml_exact_size_of((UINT64_C(64) << 30) + 1).text, "68719476737B") == 0);
    CHECK(strcmp(gml_exact_size_of(UINT64_C(1) << 62).text, "4096PiB") == 0);
    CHECK(strcmp(gml_exact_size_of(UINT64_MAX).text, "18446744073709551615B") == 0);
}
