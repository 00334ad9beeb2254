#include "planner/plan_bytes.h"

#include <stdlib.h>

/* ---- writing --------------------------------------------------------------------------------- */

static void
put_byte(gml_byte_writer *writer, uint8_t byte)
{
    if (writer->count == writer->room && !writer->has_failed) {
        size_t room = writer->room ? 2 * writer->room : 256;
        uint8_t *larger = realloc(writer->bytes, room);
        writer->has_failed = !larger;
        writer->bytes = larger ? larger : writer->bytes;
        writer->room = larger ? room : writer->room;
    }
    if (!writer->has_failed) {
        writer->bytes[writer->count++] = byte;
    }
}

void
gml_put_fixed(gml_byte_writer *writer, uint64_t value, unsigned byte_count)
{
    for (unsigned i = 0; i < byte_count; i++) {
        put_byte(writer, (uint8_t)(value >> (8 * i)));
    }
}

void
gml_put_varint(gml_byte_writer *writer, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) {
        put_byte(writer, (uint8_t)(value | 0x80));
    }
    put_byte(writer, (uint8_t)value);
}

void
gml_put_guessed(gml_byte_writer *writer, gml_guess_writer *guesses, uint64_t value, uint64_t guess)
{
    if (value == guess) {
        guesses->held++;
        return;
    }
    gml_put_varint(writer, guesses->held);
    gml_put_varint(writer, value);
    guesses->held = 0;
}

void
gml_end_guesses(gml_byte_writer *writer, const gml_guess_writer *guesses)
{
    if (guesses->held > 0) {
        gml_put_varint(writer, guesses->held);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

void
gml_fail_reading(gml_byte_reader *reader, const char *what)
{
    reader->failure = reader->failure ? reader->failure : what;
}

static uint8_t
get_byte(gml_byte_reader *reader)
{
    if (reader->at == reader->count) {
        gml_fail_reading(reader, "it ends too early");
    }
    return reader->failure ? 0 : reader->bytes[reader->at++];
}

uint64_t
gml_get_fixed(gml_byte_reader *reader, unsigned byte_count)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < byte_count; i++) {
        value |= (uint64_t)get_byte(reader) << (8 * i);
    }
    return reader->failure ? 0 : value;
}

/* Each number has one way to be written: none ends with a needless 0. */
uint64_t
gml_get_varint(gml_byte_reader *reader)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte = get_byte(reader);
        uint64_t bits = byte & 0x7f;
        if ((shift == 63 && bits > 1) || (shift > 0 && byte == 0)) {
            break;
        }
        value |= bits << shift;
        if (!(byte & 0x80)) {
            return reader->failure ? 0 : value;
        }
    }
    gml_fail_reading(reader, "a number is not written as numbers are");
    return 0;
}

uint64_t
gml_get_up_to(gml_byte_reader *reader, uint64_t most, const char *what)
{
    uint64_t value = gml_get_varint(reader);
    if (value > most) {
        gml_fail_reading(reader, what);
        return 0;
    }
    return value;
}

size_t
gml_get_count(gml_byte_reader *reader, size_t item_bytes)
{
    uint64_t count = gml_get_varint(reader);
    if (count > (reader->count - reader->at) / item_bytes) {
        gml_fail_reading(reader, "it announces more than it holds");
        return 0;
    }
    return (size_t)count;
}

uint64_t
gml_get_guessed(gml_byte_reader *reader, gml_guess_reader *guesses, uint64_t guess)
{
    if (!guesses->has_begun) {
        guesses->held = gml_get_varint(reader);
        guesses->has_begun = true;
    }
    if (guesses->held > 0) {
        guesses->held--;
        return guess;
    }
    guesses->has_begun = false;
    return gml_get_varint(reader);
}

void
gml_close_guesses(gml_byte_reader *reader, const gml_guess_reader *guesses)
{
    if (guesses->has_begun && guesses->held > 0) {
        gml_fail_reading(reader, "a column is longer than the step");
    }
}

uint64_t
gml_checksum(const uint8_t *bytes, size_t count)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < count; i++) {
        sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return sum;
}
