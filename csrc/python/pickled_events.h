/* Events of a recording as rows of 48 bytes each, taken while a pickle is read.
 *
 * A recording has ten million events, each a dict of numbers and of values shared by very many
 * events: the action, the call path. As dicts they take half a kilobyte each; as rows, with shared
 * values kept once, a tenth. Nothing is lost: an item of any other form is kept as it is.
 */
#ifndef GML_PYTHON_PICKLED_EVENTS_H
#define GML_PYTHON_PICKLED_EVENTS_H

#include "core.h"

enum {
    PARTS_OF_FULL_DICT = 4, /* of what a file may have; a list takes one */
    MOST_SAME_ITEMS = 1 << 8,
};

typedef struct event_tables event_tables;

typedef enum taken {
    TAKEN,       /* the list has them as rows */
    LEFT,        /* not a list of events: nothing was done */
    NOT_AS_ROWS, /* they do not share enough, or oddly; read them as dicts */
    RAISED,      /* with an exception */
} taken;

/* NULL with an exception. */
event_tables *event_tables_open(void);
void event_tables_close(event_tables *self);

/* Adds items to a list, if that is a list of events: its first item is a dict with an action. The
 * list itself remains as a mark. Items that nothing else refers to may be changed. parts: those of
 * dicts and lists that are not kept are added. */
taken event_tables_add(event_tables *self, PyObject *list, PyObject *const *items, size_t count,
                       uint64_t *parts);

/* An event that is a dict of numbers and of objects that the memo has: it needs no dict if an event
 * before it shared all but the four numbers. begin(), say() for each key, end(). value: NULL for
 * the number; an empty list of its own, which nothing else refers to, is said as Py_Ellipsis.
 * False, or LEFT, where it has to be read as a dict; nothing was added then. */
void event_tables_begin(event_tables *self);
bool event_tables_say(event_tables *self, PyObject *key, PyObject *value, int64_t number);
taken event_tables_end(event_tables *self, PyObject *list);

/* The text to take for all that are equal: borrowed, maybe the text itself. NULL with an exception.
 */
PyObject *event_tables_same_text(event_tables *self, PyObject *text);

/* The list to take for one that was just filled, and for all with the same dicts: borrowed, maybe
 * the list itself. NULL with an exception. */
PyObject *event_tables_same_list(event_tables *self, PyObject *list);

/* The list that event_tables_same_list() made the one of these items: borrowed. NULL if there is
 * none, maybe with an exception. */
PyObject *event_tables_known_list(event_tables *self, PyObject *const *items, size_t count);

/* The result: (document, tables), see module.c; None where a list of events is anything but one
 * item of document["device_traces"], and named but once. NULL with an exception. Nothing else may
 * refer to the document or its parts by now. */
PyObject *event_tables_answer(event_tables *self, PyObject *document);

#endif
