/* What the reader of plain pickles shares with the one of rows: its stack, its memo and its limits.
 */
#ifndef GML_PYTHON_PLAIN_PICKLE_H
#define GML_PYTHON_PLAIN_PICKLE_H

#include "core.h"

enum { PARTS_OF_FULL_DICT = 4 };

typedef enum outcome { GO_ON, DONE, REFUSED, FAILED } outcome; /* FAILED: with an exception */

/* Owned references, the last on top. In the memo of a reader with rows an odd pointer is none, but
 * says what was read into rows: see rows_recall(). */
typedef struct pile {
    PyObject **items;
    size_t count, room;
} pile;

typedef struct rows rows;

typedef struct reader {
    const unsigned char *at, *end;
    pile stack, memo;
    size_t *marks; /* how high the stack was */
    size_t mark_count, mark_room;
    uint64_t parts_left;
    const char *reason; /* why it was refused; whole sentences for users */
    rows *rows;         /* NULL: every dict becomes a dict */
} reader;

/* An array that has room for one more; NULL, with an exception, without memory. */
void *grown(void *items, size_t count, size_t *room, size_t item_bytes);

/* Steals `item`, which may be NULL after a failure. */
outcome pile_add(pile *to, PyObject *item);

/* False, with the reason, where the file has had its parts. */
bool spend(reader *in, uint64_t parts);

static inline bool
is_reference(const PyObject *item)
{
    return ((uintptr_t)item & 1) == 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* NULL with an exception. */
rows *rows_open(void);
void rows_close(rows *self);

/* Reads the dict whose first byte was just read, if it is an event, and pushes what stands for it.
 * Otherwise *was_row is false, and nothing was read. */
outcome rows_take(reader *in, bool *was_row);

/* Appends everything from `first` on to the list below it, where that concerns rows. Otherwise
 * *had_rows is false, and nothing was done. */
outcome rows_append(reader *in, size_t first, bool *had_rows);

/* Whether a value may be put into the memo, or taken out of it: not what stands for a row, and no
 * list that has rows, as it could come to be in two places. */
bool rows_may_share(const reader *in, const PyObject *value);

/* What is behind an odd pointer of the memo: a new reference, or NULL with the reason. */
PyObject *rows_recall(reader *in, const PyObject *item);

/* (document, rows, shared, lists), or NULL: with an exception, or with the reason. */
PyObject *rows_answer(reader *in, PyObject *document);

#endif
