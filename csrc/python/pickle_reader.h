/* What the parts of the reader of plain pickles share; plain_pickle.c says what it is. */
#ifndef GML_PYTHON_PICKLE_READER_H
#define GML_PYTHON_PICKLE_READER_H

#include "pickled_events.h"

enum { INSTRUCTIONS_PER_CHECK = 1 << 16 }; /* for a key that interrupts */

#define PICKLE_CUT_OFF "the file ends in the middle of the pickle: it was cut off"
#define PICKLE_NO_VALUE "not a valid pickle: a value is missing from the stack"

typedef enum outcome { GO_ON, DONE, REFUSED, FAILED } outcome; /* FAILED: with an exception */

/* Owned references, the last on top. */
typedef struct pile {
    PyObject **items;
    size_t count, room;
} pile;

typedef struct reader {
    const unsigned char *at, *end;
    pile stack, memo;
    size_t *marks; /* how high the stack was */
    size_t mark_count, mark_room;
    uint64_t parts_left;
    const char *reason;        /* why it was refused; whole sentences for users */
    event_tables *events;      /* NULL where events are dicts as everything else */
    bool is_not_as_rows;       /* the pickle is to be read without them */
    unsigned char *recalled;   /* a bit for each number that an instruction takes out of the memo */
    uint64_t recallable_count; /* bits */
} reader;

/* ---- what the file says ---------------------------------------------------------------------- */

static inline bool
has_bytes(const reader *in, uint64_t count)
{
    return count <= (uint64_t)(in->end - in->at);
}

/* A little-endian number of at most 8 bytes; false, with the reason, where the file ends. */
static inline bool
take_number(reader *in, size_t bytes, uint64_t *out)
{
    if (!has_bytes(in, bytes)) {
        in->reason = PICKLE_CUT_OFF;
        return false;
    }
    uint64_t value = 0;
    if (has_bytes(in, sizeof value) && bytes) { /* all of them at once, which compilers know */
        for (size_t index = 0; index < sizeof value; index++) {
            value |= (uint64_t)in->at[index] << (8 * index);
        }
        value &= UINT64_MAX >> (8 * (sizeof value - bytes));
    } else {
        for (size_t index = 0; index < bytes; index++) {
            value |= (uint64_t)in->at[index] << (8 * index);
        }
    }
    in->at += bytes;
    *out = value;
    return true;
}

/* False, with the reason, where the file has had its parts. */
bool spend(reader *in, uint64_t parts);

/* Always REFUSED. */
outcome refuse(reader *in, const char *reason);

/* Steals `item`, which may be NULL after a failure. */
outcome pile_add(pile *to, PyObject *item);

/* Borrowed; NULL where nothing is above the last mark. */
PyObject *top_of(const reader *in);

/* ---- values, each taken from the file and pushed: pickle_values.c ---------------------------- */

/* A number of so many bytes, at most 8. */
outcome push_unsigned(reader *in, size_t bytes);
outcome push_signed(reader *in, size_t bytes);

/* A number behind its length, a float, a text behind its length of so many bytes. */
outcome push_long(reader *in);
outcome push_float(reader *in);
outcome push_text(reader *in, size_t length_bytes);

/* ---- the memo: pickle_memo.c ----------------------------------------------------------------- */

/* Notes which numbers are taken out of the memo: what nobody asks for need not be kept. False with
 * an exception. */
bool find_recalled(reader *in);

/* Stores what is on top. */
outcome remember(reader *in, uint64_t number);

/* The same, and its opposite, by a number of so many bytes in the file. */
outcome remember_as(reader *in, size_t bytes);
outcome recall(reader *in, size_t bytes);

#endif
