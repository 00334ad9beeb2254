/* Numbers as bytes: what a plan file is made of. Both ends remember the first failure, so that a
 * caller may look once at the end.
 *
 *   varint   7 bits a byte, the lowest first, the top bit set in all but the last (LEB128)
 *   guessed  numbers that can mostly be guessed: how often the guess held, then one for which it
 * did not, and so on
 */
#ifndef GML_PLANNER_PLAN_BYTES_H
#define GML_PLANNER_PLAN_BYTES_H

#include "gmlake.h"

typedef struct gml_byte_writer {
    uint8_t *bytes; /* to be given to free() */
    size_t count, room;
    bool has_failed; /* the host has no memory */
} gml_byte_writer;

void gml_put_fixed(gml_byte_writer *writer, uint64_t value, unsigned byte_count);
void gml_put_varint(gml_byte_writer *writer, uint64_t value);

typedef struct gml_guess_writer {
    uint64_t held; /* guesses since the last that did not hold */
} gml_guess_writer;

void gml_put_guessed(gml_byte_writer *writer, gml_guess_writer *guesses, uint64_t value,
                     uint64_t guess);
void gml_end_guesses(gml_byte_writer *writer, const gml_guess_writer *guesses);

typedef struct gml_byte_reader {
    const uint8_t *bytes;
    size_t count, at;
    const char *failure; /* NULL: none */
} gml_byte_reader;

/* Each returns 0 once something has failed. */
uint64_t gml_get_fixed(gml_byte_reader *reader, unsigned byte_count);
uint64_t gml_get_varint(gml_byte_reader *reader);

/* A number up to `most`; `what` is the failure otherwise. */
uint64_t gml_get_up_to(gml_byte_reader *reader, uint64_t most, const char *what);

/* How many items follow, each at least `item_bytes` long: never more than there is room for. */
size_t gml_get_count(gml_byte_reader *reader, size_t item_bytes);

typedef struct gml_guess_reader {
    uint64_t held;
    bool has_begun;
} gml_guess_reader;

uint64_t gml_get_guessed(gml_byte_reader *reader, gml_guess_reader *guesses, uint64_t guess);

/* Guesses that nobody asked for are a failure. */
void gml_close_guesses(gml_byte_reader *reader, const gml_guess_reader *guesses);

/* Keeps the first. */
void gml_fail_reading(gml_byte_reader *reader, const char *what);

/* FNV-1a, 64 bits: any change of one byte changes it. */
uint64_t gml_checksum(const uint8_t *bytes, size_t count);

/* Differences in either direction as small numbers: 0, -1, 1, -2, ... */
static inline uint64_t
gml_difference(uint64_t value, uint64_t base)
{
    uint64_t difference = value - base;
    return (difference << 1) ^ (difference >> 63 ? UINT64_MAX : 0);
}

/* The value again. */
static inline uint64_t
gml_add_difference(uint64_t base, uint64_t difference)
{
    return base + ((difference >> 1) ^ (difference & 1 ? UINT64_MAX : 0));
}

#endif
