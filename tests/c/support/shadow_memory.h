/* What a shadow remembers about physical memory: who used each 512 bytes last. */
#ifndef GML_TEST_SHADOW_MEMORY_H
#define GML_TEST_SHADOW_MEMORY_H

#include "support/shadow.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is known to have happened: the ticks of each stream, by index. */
typedef struct shadow_clock {
    uint32_t at[SHADOW_STREAMS];
} shadow_clock;

/* The last use of 512 bytes of physical memory. */
typedef struct shadow_line {
    uint32_t clock; /* of the stream; 0: never used */
    uint8_t stream; /* index */
    bool is_live;   /* part of a live block */
} shadow_line;

typedef struct shadow_memory {
    uint64_t size_bytes;
    uint64_t mappings;
    bool is_held;
    shadow_line whole;  /* of every line, while is_uniform */
    shadow_line *lines; /* made when first needed */
    bool is_uniform;
} shadow_memory;

typedef enum shadow_kind { SHADOW_BEGIN, SHADOW_AGAIN, SHADOW_END } shadow_kind;

typedef struct shadow_access {
    shadow_kind kind;
    size_t stream;             /* index */
    const shadow_clock *knows; /* its own tick included */
    const char *fault;         /* NULL while all is well */
} shadow_access;

/* NULL when the host has no memory. */
shadow_memory *shadow_memory_new(uint64_t size_bytes);
void shadow_memory_free(shadow_memory *memory);

/* Marks an access to a part of the memory; sets access->fault after a breach. */
void shadow_memory_access(shadow_memory *memory, uint64_t offset_bytes, uint64_t size_bytes,
                          shadow_access *access);

#endif
