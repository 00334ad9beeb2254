/* Slabs of objects behind gml_pool. */
#include "base/pool.h"

#include "base/rounding.h"

#include <stdlib.h>
#include <string.h>

enum { OBJECTS_PER_SLAB = 64, SLAB_HEADER_BYTES = 64 };

static void **link_of(void *object) {
    return object;
}

/* Objects keep the alignment of malloc, and room for the free list's link. */
static size_t stride_of(const gml_pool *pool) {
    size_t alignment = _Alignof(max_align_t);
    return gml_round_up(pool->object_bytes, alignment);
}

static bool add_slab(gml_pool *pool) {
    size_t stride = stride_of(pool);
    char *slab = malloc(SLAB_HEADER_BYTES + stride * OBJECTS_PER_SLAB);
    if (!slab) {
        return false;
    }
    *link_of(slab) = pool->slabs;
    pool->slabs = slab;
    for (size_t i = OBJECTS_PER_SLAB; i-- > 0;) {
        gml_pool_give(pool, slab + SLAB_HEADER_BYTES + i * stride);
    }
    return true;
}

bool gml_pool_reserve(gml_pool *pool, size_t count) {
    while (pool->free_count < count) {
        if (!add_slab(pool)) {
            return false;
        }
    }
    return true;
}

void *gml_pool_take(gml_pool *pool) {
    if (!gml_pool_reserve(pool, 1)) {
        return NULL;
    }
    void *object = pool->free_objects;
    pool->free_objects = *link_of(object);
    pool->free_count--;
    return memset(object, 0, pool->object_bytes);
}

void gml_pool_give(gml_pool *pool, void *object) {
    if (object) {
        *link_of(object) = pool->free_objects;
        pool->free_objects = object;
        pool->free_count++;
    }
}

void gml_pool_clear(gml_pool *pool) {
    while (pool->slabs) {
        void *slab = pool->slabs;
        pool->slabs = *link_of(slab);
        free(slab);
    }
    pool->free_objects = NULL;
    pool->free_count = 0;
}
