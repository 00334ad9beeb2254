/* Last uses, kept once for the whole memory where its lines agree. */
#include "support/shadow_memory.h"

#include <stdlib.h>

enum { LINE_BYTES = 512 };

void shadow_memory_free(shadow_memory *memory) {
    free(memory->lines);
    free(memory);
}

shadow_memory *shadow_memory_new(uint64_t size_bytes) {
    shadow_memory *added = calloc(1, sizeof *added);
    added->size_bytes = size_bytes;
    added->is_held = true;
    added->is_uniform = true;
    return added;
}

static void use_line(shadow_line *line, shadow_access *access) {
    if (line->is_live != (access->kind != SHADOW_BEGIN)) {
        access->fault = line->is_live ? "memory belongs to two live blocks"
                                      : "memory of a live block was given to nobody";
    } else if (!access->fault && line->clock && line->stream != access->stream &&
               access->knows->at[line->stream] < line->clock) {
        access->fault = "memory moved between streams without an ordering edge";
    }
    line->clock = access->knows->at[access->stream];
    line->stream = (uint8_t)access->stream;
    line->is_live = access->kind != SHADOW_END;
}

void shadow_memory_access(shadow_memory *memory, uint64_t offset_bytes, uint64_t size_bytes,
                          shadow_access *access) {
    size_t count = (size_t)((memory->size_bytes + LINE_BYTES - 1) / LINE_BYTES);
    size_t first = (size_t)(offset_bytes / LINE_BYTES);
    size_t end = (size_t)((offset_bytes + size_bytes + LINE_BYTES - 1) / LINE_BYTES);
    if (end > count) {
        access->fault = "memory was used beyond its end";
        return;
    }
    bool is_all = first == 0 && end == count;
    if (!is_all && memory->is_uniform) {
        if (!memory->lines) {
            memory->lines = calloc(count, sizeof *memory->lines);
        }
        for (size_t i = 0; i < count; i++) {
            memory->lines[i] = memory->whole;
        }
        memory->is_uniform = false;
    }
    if (memory->is_uniform) {
        use_line(&memory->whole, access);
        return;
    }
    for (size_t i = first; i < end; i++) {
        use_line(&memory->lines[i], access);
    }
    if (is_all) {
        memory->whole = memory->lines[0];
        memory->is_uniform = true;
    }
}
