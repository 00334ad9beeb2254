#include "pickled_events.h"

#include <string.h>

enum {
    NUMBERS = 4,
    OTHER = NUMBERS,       /* the role of a key not in NUMBER_NAMES */
    MOST_TABLES = 1 << 10, /* as many devices as are read */
    MOST_SHARED = 1 << 20, /* also of texts, and of lists */
    FEW_SHARED = 1 << 16,  /* beyond it, rows save nothing unless two name each on average */
    MOST_WORDS = 512,
    FIRST_ROWS = 1 << 10,
    WORDS_OF_VALUE = 3,
    MARK_ITEMS = 2, /* of the list of a table: Ellipsis, which no pickle has, and its number */
    OF_TABLE = 2,   /* references to that list: the table's and its container's */
    KNOWN = 1 << 13,
    MOST_KNOWN_WORDS = 10 * WORDS_OF_VALUE,
};

static const char *const NUMBER_NAMES[NUMBERS] = {"addr", "size", "stream", "time_us"};

/* The first word of a value. */
enum { AS_OBJECT, AS_NUMBER, AS_EMPTY_LIST };

typedef struct table {
    PyObject *list;   /* stands for the table where it is named */
    PyObject *rows;   /* bytearray of gml_request, with room for more */
    PyObject *shared; /* list of values, indexed by the id of a row */
    PyObject *places; /* index in `shared`, by the words of the shared part of an event */
    size_t count, room;
} table;

/* What a shared part was found to be, so that the same words need no look-up. */
typedef struct known_part {
    const table *of;
    uint64_t place;
    size_t word_count;
    uint64_t words[MOST_KNOWN_WORDS];
} known_part;

struct event_tables {
    table tables[MOST_TABLES];
    size_t table_count, shared_count;
    PyObject *action;           /* the text */
    PyObject *texts;            /* each text once, of those that a pickle repeats */
    PyObject *lists;            /* the same of lists of dicts, by the addresses of these */
    PyObject *names[NUMBERS];   /* NUMBER_NAMES, which `texts` has, too: so all keys are these */
    uint64_t words[MOST_WORDS]; /* what the event at hand shares; equal words are equal parts */
    size_t word_count, empty_lists;
    gml_request row; /* of the event at hand, as far as it was said */
    unsigned said;   /* a bit for each of its numbers */
    known_part known[KNOWN];
};

event_tables *event_tables_open(void) {
    event_tables *self = PyMem_Calloc(1, sizeof *self);
    if (!self) {
        PyErr_NoMemory();
        return NULL;
    }
    self->action = PyUnicode_InternFromString("action");
    self->texts = PyDict_New();
    self->lists = PyDict_New();
    bool is_open = self->action && self->texts && self->lists;
    for (size_t role = 0; role < NUMBERS && is_open; role++) {
        self->names[role] = PyUnicode_FromString(NUMBER_NAMES[role]);
        is_open =
            self->names[role] && !PyDict_SetItem(self->texts, self->names[role], self->names[role]);
    }
    if (!is_open) {
        event_tables_close(self);
        return NULL;
    }
    return self;
}

void event_tables_close(event_tables *self) {
    if (!self) {
        return;
    }
    for (size_t number = 0; number < self->table_count; number++) {
        Py_XDECREF(self->tables[number].list);
        Py_XDECREF(self->tables[number].rows);
        Py_XDECREF(self->tables[number].shared);
        Py_XDECREF(self->tables[number].places);
    }
    for (size_t role = 0; role < NUMBERS; role++) {
        Py_XDECREF(self->names[role]);
    }
    Py_XDECREF(self->action);
    Py_XDECREF(self->texts);
    Py_XDECREF(self->lists);
    PyMem_Free(self);
}

/* ---- what an event says ---------------------------------------------------------------------- */

/* Which of the numbers a key names, or OTHER. */
static unsigned role_of(const event_tables *self, PyObject *key) {
    unsigned role = 0;
    while (role < NUMBERS && self->names[role] != key) {
        role++;
    }
    return role;
}

/* Adds the words that identify a value. Objects compared by address live as long as the shared
 * value, which refers to them. False if there are too many. */
static bool add_words(event_tables *self, PyObject *key, PyObject *value) {
    if (self->word_count + WORDS_OF_VALUE > MOST_WORDS) {
        return false;
    }
    uint64_t *to = self->words + self->word_count;
    self->word_count += WORDS_OF_VALUE;
    to[0] = (uintptr_t)key;
    to[1] = AS_OBJECT;
    to[2] = (uintptr_t)value;
    if (PyLong_CheckExact(value)) {
        int overflow = 0;
        long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (!overflow) {
            to[1] = AS_NUMBER;
            to[2] = (uint64_t)number;
        }
    } else if (Py_REFCNT(value) == 1 && PyList_CheckExact(value) && !PyList_Size(value)) {
        to[1] = AS_EMPTY_LIST; /* nothing else in the file can refer to it or fill it */
        to[2] = 0;
        self->empty_lists++;
    }
    return true;
}

/* Whether an event is a dict with all four numbers that nothing else refers to. Sets the numbers of
 * the row, and the words of the rest. */
static bool take_apart(event_tables *self, PyObject *event, gml_request *row) {
    if (!PyDict_CheckExact(event) || Py_REFCNT(event) != 1) {
        return false;
    }
    uint64_t numbers[NUMBERS] = {0};
    unsigned found = 0;
    Py_ssize_t at = 0;
    PyObject *key = NULL, *value = NULL;
    self->word_count = self->empty_lists = 0;
    while (PyDict_Next(event, &at, &key, &value)) {
        unsigned role = role_of(self, key);
        if (role == OTHER) {
            if (!add_words(self, key, value)) {
                return false;
            }
            continue;
        }
        numbers[role] = PyLong_CheckExact(value) ? PyLong_AsUnsignedLongLong(value) : UINT64_MAX;
        if (numbers[role] == UINT64_MAX) {
            PyErr_Clear(); /* of a number below 0 */
            return false;
        }
        found++;
    }
    *row = (gml_request){
        .address = numbers[0],
        .size_bytes = numbers[1],
        .stream = numbers[2],
        .time_ns = numbers[3],
    };
    return found == NUMBERS;
}

PyObject *event_tables_same_text(event_tables *self, PyObject *text) {
    PyObject *known = PyDict_GetItemWithError(self->texts, text);
    if (known || PyErr_Occurred() || PyDict_Size(self->texts) >= MOST_SHARED) {
        return known || PyErr_Occurred() ? known : text;
    }
    return PyDict_SetItem(self->texts, text, text) ? NULL : text;
}

PyObject *event_tables_same_list(event_tables *self, PyObject *list) {
    Py_ssize_t size = PyList_Size(list);
    if (!size || size > MOST_SAME_ITEMS || PyDict_Size(self->lists) >= MOST_SHARED) {
        return list;
    }
    uintptr_t items[MOST_SAME_ITEMS];
    for (Py_ssize_t index = 0; index < size; index++) {
        PyObject *item = PyList_GetItem(list, index);
        if (!PyDict_CheckExact(item)) {
            return list;
        }
        items[index] = (uintptr_t)item;
    }
    PyObject *key =
        PyBytes_FromStringAndSize((const char *)items, size * (Py_ssize_t)sizeof *items);
    PyObject *known = key ? PyDict_GetItemWithError(self->lists, key) : NULL;
    if (!known && !PyErr_Occurred() && !PyDict_SetItem(self->lists, key, list)) {
        known = list;
    }
    Py_XDECREF(key);
    return known;
}

PyObject *event_tables_known_list(event_tables *self, PyObject *const *items, size_t count) {
    PyObject *key =
        PyBytes_FromStringAndSize((const char *)items, (Py_ssize_t)(count * sizeof(PyObject *)));
    PyObject *known = key ? PyDict_GetItemWithError(self->lists, key) : NULL;
    Py_XDECREF(key);
    return known;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static taken add_shared(event_tables *self, const table *to, PyObject *item, uint64_t *place) {
    *place = (uint64_t)PyList_Size(to->shared);
    if (self->shared_count >= MOST_SHARED || *place >= FEW_SHARED + to->count / 2) {
        return NOT_AS_ROWS;
    }
    self->shared_count++;
    return PyList_Append(to->shared, item) ? RAISED : TAKEN;
}

/* Finds what an event shares with others, or makes it of the event by taking its numbers out. */
static taken share(event_tables *self, const table *to, PyObject *event, uint64_t *place) {
    PyObject *words = PyBytes_FromStringAndSize(
        (const char *)self->words, (Py_ssize_t)(self->word_count * sizeof *self->words));
    PyObject *known = words ? PyDict_GetItemWithError(to->places, words) : NULL;
    taken now = PyErr_Occurred() ? RAISED : TAKEN;
    if (known) {
        *place = PyLong_AsUnsignedLongLong(known);
    } else if (now == TAKEN) {
        for (size_t role = 0; role < NUMBERS && now == TAKEN; role++) {
            now = PyDict_DelItem(event, self->names[role]) ? RAISED : TAKEN;
        }
        now = now == TAKEN ? add_shared(self, to, event, place) : now;
        PyObject *number = now == TAKEN ? PyLong_FromUnsignedLongLong(*place) : NULL;
        if (now == TAKEN && (!number || PyDict_SetItem(to->places, words, number))) {
            now = RAISED;
        }
        Py_XDECREF(number);
    }
    Py_XDECREF(words);
    return now;
}

/* Makes room for one more row; false with an exception. */
static bool make_room(table *to) {
    if (to->count < to->room) {
        return true;
    }
    size_t room = to->count + to->count / 2 + FIRST_ROWS;
    if (PyByteArray_Resize(to->rows, (Py_ssize_t)(room * sizeof(gml_request)))) {
        return false;
    }
    to->room = room;
    return true;
}

/* Adds a row. `pool` is 1 if its id names the whole item, not only the shared part. */
static taken add_row(event_tables *self, table *to, PyObject *item, uint64_t *parts) {
    if (!make_room(to)) {
        return RAISED;
    }
    size_t kept = self->shared_count;
    gml_request row = {0};
    taken now = TAKEN;
    if (take_apart(self, item, &row)) {
        now = share(self, to, item, &row.id);
    } else {
        row = (gml_request){.pool = 1};
        now = add_shared(self, to, item, &row.id);
    }
    if (kept == self->shared_count) {
        *parts += PARTS_OF_FULL_DICT + self->empty_lists - 1; /* one for the row */
    }
    if (now == TAKEN) {
        memcpy(PyByteArray_AsString(to->rows) + to->count * sizeof row, &row, sizeof row);
        to->count++;
    }
    return now;
}

/* Whether a list stands for a table, and which. */
static bool stands_for_table(PyObject *list, size_t *number) {
    bool is_mark = PyList_Size(list) == MARK_ITEMS && PyList_GetItem(list, 0) == Py_Ellipsis;
    *number = is_mark ? PyLong_AsSize_t(PyList_GetItem(list, 1)) : 0;
    return is_mark;
}

/* 1 where a list that begins with this item gets a table; -1 with an exception. */
static int begins_table(const event_tables *self, PyObject *first) {
    if (!PyDict_CheckExact(first) || self->table_count >= MOST_TABLES) {
        return 0;
    }
    PyObject *action = PyDict_GetItemWithError(first, self->action);
    return action ? PyUnicode_CheckExact(action) : PyErr_Occurred() ? -1 : 0;
}

/* NULL with an exception. */
static table *new_table(event_tables *self, PyObject *list) {
    PyObject *number = PyLong_FromSize_t(self->table_count);
    table *made = &self->tables[self->table_count++];
    *made = (table){
        .list = Py_NewRef(list),
        .rows = PyByteArray_FromStringAndSize(NULL, 0),
        .shared = PyList_New(0),
        .places = PyDict_New(),
    };
    bool is_made = number && made->rows && made->shared && made->places &&
                   !PyList_Append(list, Py_Ellipsis) && !PyList_Append(list, number);
    Py_XDECREF(number);
    return is_made ? made : NULL;
}

taken event_tables_add(event_tables *self, PyObject *list, PyObject *const *items, size_t count,
                       uint64_t *parts) {
    size_t number = 0;
    table *to = NULL;
    if (stands_for_table(list, &number)) {
        to = &self->tables[number];
    } else {
        Py_ssize_t size = PyList_Size(list);
        if (size && size <= MOST_SAME_ITEMS) {
            return NOT_AS_ROWS; /* it may be the same as others, which do not get these items */
        }
        int begins = count && !size ? begins_table(self, items[0]) : 0;
        if (begins <= 0) {
            return begins ? RAISED : LEFT;
        }
        to = new_table(self, list);
    }
    if (!to) {
        return RAISED;
    }
    taken now = TAKEN;
    for (size_t index = 0; index < count && now == TAKEN; index++) {
        now = add_row(self, to, items[index], parts);
    }
    return now;
}

/* ---- events without a dict ------------------------------------------------------------------- */

void event_tables_begin(event_tables *self) {
    self->word_count = self->empty_lists = 0;
    self->said = 0;
    self->row = (gml_request){0};
}

bool event_tables_say(event_tables *self, PyObject *key, PyObject *value, int64_t number) {
    unsigned role = role_of(self, key);
    if (role != OTHER) {
        uint64_t *const to[NUMBERS] = {&self->row.address, &self->row.size_bytes, &self->row.stream,
                                       &self->row.time_ns};
        if (value || number < 0 || self->said & 1U << role) {
            return false;
        }
        self->said |= 1U << role;
        *to[role] = (uint64_t)number;
        return true;
    }
    if (self->word_count + WORDS_OF_VALUE > MOST_KNOWN_WORDS) {
        return false;
    }
    uint64_t *words = self->words + self->word_count;
    self->word_count += WORDS_OF_VALUE;
    words[0] = (uintptr_t)key;
    words[1] = !value ? AS_NUMBER : value == Py_Ellipsis ? AS_EMPTY_LIST : AS_OBJECT;
    words[2] = !value ? (uint64_t)number : value == Py_Ellipsis ? 0 : (uintptr_t)value;
    return true;
}

/* The place of the words in `shared`; LEFT if they are new. */
static taken find_known(event_tables *self, const table *to, uint64_t *place) {
    const uint64_t factor = 0x9e3779b97f4a7c15U;
    uint64_t hash = (uintptr_t)to;
    for (size_t index = 0; index < self->word_count; index++) {
        hash = (hash ^ self->words[index]) * factor;
        hash ^= hash >> 32;
    }
    known_part *known = &self->known[hash % KNOWN];
    size_t bytes = self->word_count * sizeof *self->words;
    if (known->of == to && known->word_count == self->word_count &&
        !memcmp(known->words, self->words, bytes)) {
        *place = known->place;
        return TAKEN;
    }
    PyObject *words = PyBytes_FromStringAndSize((const char *)self->words, (Py_ssize_t)bytes);
    PyObject *found = words ? PyDict_GetItemWithError(to->places, words) : NULL;
    Py_XDECREF(words);
    if (!found) {
        return PyErr_Occurred() ? RAISED : LEFT;
    }
    *place = PyLong_AsUnsignedLongLong(found);
    known->of = to;
    known->place = *place;
    known->word_count = self->word_count;
    memcpy(known->words, self->words, bytes);
    return TAKEN;
}

taken event_tables_end(event_tables *self, PyObject *list) {
    size_t number = 0;
    if (self->said != (1U << NUMBERS) - 1 || !stands_for_table(list, &number)) {
        return LEFT;
    }
    table *to = &self->tables[number];
    taken now = find_known(self, to, &self->row.id);
    if (now == TAKEN && !make_room(to)) {
        return RAISED;
    }
    if (now == TAKEN) {
        char *rows = PyByteArray_AsString(to->rows);
        memcpy(rows + to->count++ * sizeof self->row, &self->row, sizeof self->row);
    }
    return now;
}

/* ---- the answer ------------------------------------------------------------------------------ */

/* Appends (place, rows, shared) for each table of the traces. False with an exception. */
static bool add_answers(event_tables *self, PyObject *traces, PyObject *answers) {
    Py_ssize_t count = PyList_Size(traces);
    for (Py_ssize_t place = 0; place < count; place++) {
        PyObject *list = PyList_GetItem(traces, place);
        size_t number = 0;
        if (!PyList_CheckExact(list) || !stands_for_table(list, &number) ||
            Py_REFCNT(list) != OF_TABLE) {
            continue;
        }
        const table *one = &self->tables[number];
        if (PyByteArray_Resize(one->rows, (Py_ssize_t)(one->count * sizeof(gml_request)))) {
            return false;
        }
        PyObject *answer = Py_BuildValue("(nOO)", place, one->rows, one->shared);
        bool is_added = answer && !PyList_Append(answers, answer);
        Py_XDECREF(answer);
        if (!is_added) {
            return false;
        }
    }
    return true;
}

PyObject *event_tables_answer(event_tables *self, PyObject *document) {
    PyObject *traces = NULL, *answers = PyList_New(0), *answer = NULL;
    if (answers && PyDict_CheckExact(document) && Py_REFCNT(document) == 1) {
        traces = PyDict_GetItemString(document, "device_traces");
    }
    if (traces && PyList_CheckExact(traces) && Py_REFCNT(traces) == 1 &&
        !add_answers(self, traces, answers)) {
        Py_CLEAR(answers);
    }
    if (answers) {
        bool is_whole = (size_t)PyList_Size(answers) == self->table_count;
        answer = is_whole ? Py_BuildValue("(OO)", document, answers) : Py_NewRef(Py_None);
    }
    Py_XDECREF(answers);
    return answer;
}
