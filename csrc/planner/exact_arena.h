/* Memory for a depth-first search: what is taken last is given back first. */
#ifndef GML_PLANNER_EXACT_ARENA_H
#define GML_PLANNER_EXACT_ARENA_H

#include <stddef.h>

typedef struct gml_arena_chunk gml_arena_chunk;

/* Begins as {NULL, NULL}. */
typedef struct gml_arena {
    gml_arena_chunk *first, *current;
} gml_arena;

typedef struct gml_arena_mark {
    gml_arena_chunk *chunk;
    size_t used;
} gml_arena_mark;

/* Aligned for any type; NULL when the host has no memory. */
void *gml_arena_take(gml_arena *arena, size_t bytes);

gml_arena_mark gml_arena_here(const gml_arena *arena);

/* Gives back all that was taken since the mark. */
void gml_arena_release(gml_arena *arena, gml_arena_mark mark);

void gml_arena_close(gml_arena *arena);

#endif
