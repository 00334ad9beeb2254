/* The containers: tree, map and pool against plain arrays that do the same slowly; sizes as text.
 */
#include "base/map.h"
#include "base/pool.h"
#include "base/size.h"
#include "base/tree.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

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
