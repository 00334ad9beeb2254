#include "planner/exact_arena.h"

#include <stdalign.h>
#include <stdlib.h>

enum { CHUNK_BYTES = 1 << 20 };

struct gml_arena_chunk {
    gml_arena_chunk *next;
    size_t used, capacity;
    alignas(max_align_t) unsigned char bytes[];
};

static gml_arena_chunk *
new_chunk(size_t bytes)
{
    size_t capacity = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    gml_arena_chunk *chunk = malloc(sizeof *chunk + capacity);
    if (chunk) {
        chunk->next = NULL;
        chunk->used = 0;
        chunk->capacity = capacity;
    }
    return chunk;
}

/* Chunks behind the current one are empty; one that is too small is passed over until the arena
 * comes back to it. */
static gml_arena_chunk *
chunk_for(gml_arena *arena, size_t bytes)
{
    gml_arena_chunk **link = arena->current ? &arena->current->next : &arena->first;
    gml_arena_chunk *chunk = *link;
    if (!chunk || chunk->capacity < bytes) {
        chunk = new_chunk(bytes);
        if (!chunk) {
            return NULL;
        }
        chunk->next = *link;
        *link = chunk;
    }
    arena->current = chunk;
    return chunk;
}

void *
gml_arena_take(gml_arena *arena, size_t bytes)
{
    size_t rounded = (bytes + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    gml_arena_chunk *chunk = arena->current;
    if (!chunk || chunk->capacity - chunk->used < rounded) {
        chunk = chunk_for(arena, rounded);
        if (!chunk) {
            return NULL;
        }
    }
    void *taken = chunk->bytes + chunk->used;
    chunk->used += rounded;
    return taken;
}

gml_arena_mark
gml_arena_here(const gml_arena *arena)
{
    return (gml_arena_mark){arena->current, arena->current ? arena->current->used : 0};
}

void
gml_arena_release(gml_arena *arena, gml_arena_mark mark)
{
    gml_arena_chunk *emptied = mark.chunk ? mark.chunk->next : arena->first;
    if (mark.chunk != arena->current) {
        for (; emptied != arena->current; emptied = emptied->next) {
            emptied->used = 0;
        }
        emptied->used = 0;
    }
    if (mark.chunk) {
        mark.chunk->used = mark.used;
    }
    arena->current = mark.chunk;
}

void
gml_arena_close(gml_arena *arena)
{
    gml_arena_chunk *chunk = arena->first;
    while (chunk) {
        gml_arena_chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    *arena = (gml_arena){NULL, NULL};
}
