/* Equal-sized host objects, taken and returned in a few instructions. */
#ifndef GML_BASE_POOL_H
#define GML_BASE_POOL_H

#include <stdbool.h>
#include <stddef.h>

typedef struct gml_pool {
    size_t object_bytes; /* set once, before the first gml_pool_take */
    size_t free_count;
    void *free_objects; /* linked through their first word */
    void *slabs;        /* everything allocated, linked through its first word */
} gml_pool;

/* Makes sure that the next `count` objects can be taken; false when the host has no memory. */
bool gml_pool_reserve(gml_pool *pool, size_t count);

/* A zeroed object, or NULL when the host has no memory. */
void *gml_pool_take(gml_pool *pool);

/* NULL is allowed. */
void gml_pool_give(gml_pool *pool, void *object);

/* Frees every object, taken or not. */
void gml_pool_clear(gml_pool *pool);

#endif
