/* Reads plain data from pickles: dict, list, tuple, str, int, float, bool and None, as protocols 2
 * to 5 write them.
 *
 * Why not the standard unpickler, with a find_class that raises? It would call nothing, but it
 * reserves memory by unverified lengths, crashes on a deeply nested key, and makes a dict of each
 * event. Ten million events (517 MB) take 3.8 GB and 5.3 s of CPU time there, 0.6 GB beside the
 * file and 7.5 s here. pickled_events.c makes rows of them, equal call paths become one list even
 * if the file repeats them, and the memo keeps only objects that the file refers to again. Rows are
 * then understood in 1.5 s, dicts in 24 s.
 *
 * No length is trusted: memory grows with the bytes read, and the objects a single byte can build
 * are counted. Shared objects stay shared (a file can refer to one list a million times at two
 * bytes each): a caller that walks the result must bound its own work.
 */
#include "pickled_events.h"

#include <limits.h>
#include <string.h>

enum {
    INSTRUCTIONS_PER_CHECK = 1 << 16, /* for a key that interrupts */
    MOST_MARKS = 1 << 16,
    HIGHEST_PROTOCOL = 5,
    FIRST_ROOM = 64,
    MOST_STORES = 8, /* in one event */
};

static const long long KEY_LIMIT = 1LL << 31;

static const char CUT_OFF[] = "the file ends in the middle of the pickle: it was cut off";
static const char NO_VALUE[] = "not a valid pickle: a value is missing from the stack";
static const char NO_MARK[] = "not a valid pickle: a mark is missing";

/* Instructions that load or call code, or refer to objects outside the file. */
static const char CALLS[] = "ciobRPQ\x81\x82\x83\x84\x92\x93";

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
    PyObject *event_list;      /* the last that got events as rows */
    bool is_not_as_rows;       /* the pickle is to be read without them */
    unsigned char *recalled;   /* a bit for each number that an instruction takes out of the memo */
    uint64_t recallable_count; /* bits */
} reader;

/* ---- what the file says ---------------------------------------------------------------------- */

static bool has_bytes(const reader *in, uint64_t count) {
    return count <= (uint64_t)(in->end - in->at);
}

/* A little-endian number of at most 8 bytes; false, with the reason, where the file ends. */
static bool take_number(reader *in, size_t bytes, uint64_t *out) {
    if (!has_bytes(in, bytes)) {
        in->reason = CUT_OFF;
        return false;
    }
    uint64_t value = 0;
    for (size_t index = 0; index < bytes; index++) {
        value |= (uint64_t)in->at[index] << (8 * index);
    }
    in->at += bytes;
    *out = value;
    return true;
}

static outcome refuse(reader *in, const char *reason) {
    in->reason = reason;
    return REFUSED;
}

static void pile_drop(pile *from, size_t count) {
    while (from->count > count) {
        Py_DECREF(from->items[--from->count]);
    }
}

/* An array that has room for one more; NULL without memory. */
static void *grown(void *items, size_t count, size_t *room, size_t item_bytes) {
    if (count < *room) {
        return items;
    }
    size_t more = *room ? *room * 2 : FIRST_ROOM;
    void *larger = PyMem_Realloc(items, more * item_bytes);
    if (!larger) {
        PyErr_NoMemory();
        return NULL;
    }
    *room = more;
    return larger;
}

static outcome pile_add(pile *to, PyObject *item) {
    if (!item) {
        return FAILED;
    }
    PyObject **items = grown(to->items, to->count, &to->room, sizeof *items);
    if (!items) {
        Py_DECREF(item);
        return FAILED;
    }
    to->items = items;
    to->items[to->count++] = item;
    return GO_ON;
}

static bool spend(reader *in, uint64_t parts) {
    if (in->parts_left < parts) {
        in->reason = "refused: more lists, tuples and dicts than a file of this size holds";
        return false;
    }
    in->parts_left -= parts;
    return true;
}

/* ---- the stack ------------------------------------------------------------------------------- */

/* Below this a mark hides everything. */
static size_t floor_of(const reader *in) {
    return in->mark_count ? in->marks[in->mark_count - 1] : 0;
}

static bool has_values(const reader *in, size_t count) {
    return in->stack.count >= floor_of(in) + count;
}

static PyObject *top_of(const reader *in) {
    bool has_top = in->stack.items && has_values(in, 1);
    return has_top ? in->stack.items[in->stack.count - 1] : NULL;
}

static outcome add_mark(reader *in) {
    if (in->mark_count >= MOST_MARKS) {
        return refuse(in, "refused: more open marks than any recording has");
    }
    size_t *marks = grown(in->marks, in->mark_count, &in->mark_room, sizeof *marks);
    if (!marks) {
        return FAILED;
    }
    in->marks = marks;
    in->marks[in->mark_count++] = in->stack.count;
    return GO_ON;
}

/* Pops the last mark; false, with the reason, if there is none. */
static bool take_mark(reader *in, size_t *first) {
    if (!in->mark_count) {
        in->reason = NO_MARK;
        return false;
    }
    *first = in->marks[--in->mark_count];
    return true;
}

/* ---- numbers and texts, each taken from the file and pushed ---------------------------------- */

enum { LONGEST_SHARED_TEXT = 256 };

static const char LONG_NUMBER[] = "a whole number has more than 64 bits";

static outcome push_unsigned(reader *in, size_t bytes) {
    uint64_t value = 0;
    if (!take_number(in, bytes, &value)) {
        return REFUSED;
    }
    return pile_add(&in->stack, PyLong_FromUnsignedLongLong(value));
}

/* A number in two's complement of at most 8 bytes. */
static outcome push_signed(reader *in, size_t bytes) {
    uint64_t value = 0;
    if (!take_number(in, bytes, &value)) {
        return REFUSED;
    }
    unsigned unused_bits = 64U - 8U * (unsigned)bytes;
    bool is_negative = bytes && (value >> (8 * bytes - 1));
    if (is_negative && unused_bits) {
        value |= UINT64_MAX << (64U - unused_bits);
    }
    int64_t number = 0;
    memcpy(&number, &value, sizeof number);
    return pile_add(&in->stack, PyLong_FromLongLong(number));
}

/* A ninth byte is there for the sign of what fills eight. */
static outcome push_long(reader *in) {
    uint64_t bytes = 0;
    if (!take_number(in, 1, &bytes)) {
        return REFUSED;
    }
    if (bytes <= sizeof bytes) {
        return push_signed(in, (size_t)bytes);
    }
    if (bytes > sizeof bytes + 1) {
        return refuse(in, LONG_NUMBER);
    }
    if (!has_bytes(in, bytes)) {
        return refuse(in, CUT_OFF);
    }
    if (in->at[sizeof bytes]) {
        return refuse(in, LONG_NUMBER);
    }
    outcome now = push_unsigned(in, sizeof bytes);
    in->at++;
    return now;
}

static outcome push_float(reader *in) {
    if (!has_bytes(in, sizeof(double))) {
        return refuse(in, CUT_OFF);
    }
    uint64_t bits = 0;
    for (size_t index = 0; index < sizeof bits; index++) {
        bits = bits << 8 | in->at[index];
    }
    in->at += sizeof bits;
    double value = 0;
    memcpy(&value, &bits, sizeof value);
    return pile_add(&in->stack, PyFloat_FromDouble(value));
}

static outcome push_text(reader *in, size_t length_bytes) {
    uint64_t length = 0;
    if (!take_number(in, length_bytes, &length) || !has_bytes(in, length)) {
        return refuse(in, CUT_OFF);
    }
    const char *bytes = (const char *)in->at;
    PyObject *text = PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)length, "surrogatepass");
    in->at += length;
    if (!text && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        return refuse(in, "not a valid pickle: a text is not UTF-8");
    }
    if (text && in->events && length <= LONGEST_SHARED_TEXT) {
        PyObject *same = event_tables_same_text(in->events, text);
        Py_XINCREF(same);
        Py_DECREF(text);
        text = same;
    }
    return pile_add(&in->stack, text);
}

/* ---- the memo: what a pickle stores by numbers, to name it again ----------------------------- */

/* Bytes behind the code of an instruction; for texts and long numbers, those of their length. */
static const unsigned char ARGUMENT_BYTES[1 << 8] = {
    ['h'] = 1, ['j'] = 4, ['q'] = 1,  ['r'] = 4,  ['K'] = 1,  ['M'] = 2,  ['J'] = 4,
    ['G'] = 8, ['X'] = 4, [0x80] = 1, [0x8a] = 1, [0x8c] = 1, [0x95] = 8,
};

/* Records which memo numbers are recalled: other objects need not be kept. Unknown codes are
 * skipped here, and refused when run. False with an exception. */
static bool find_recalled(reader *in) {
    /* Each number takes at least one byte of the file, and one part. */
    uint64_t bytes = (uint64_t)(in->end - in->at);
    in->recallable_count = in->parts_left < bytes ? in->parts_left : bytes;
    in->recalled = PyMem_Calloc(in->recallable_count / CHAR_BIT + 1, 1);
    if (!in->recalled) {
        PyErr_NoMemory();
        return false;
    }
    reader over = *in;
    for (uint64_t count = 1; over.at < over.end; count++) {
        unsigned char code = *over.at++;
        uint64_t number = 0;
        if (count % INSTRUCTIONS_PER_CHECK == 0 && PyErr_CheckSignals()) {
            return false;
        }
        if (!take_number(&over, ARGUMENT_BYTES[code], &number)) {
            break;
        }
        if ((code == 'h' || code == 'j') && number < in->recallable_count) {
            in->recalled[number / CHAR_BIT] |= (unsigned char)(1U << number % CHAR_BIT);
        }
        if (code == 0x8a || code == 0x8c || code == 'X') {
            if (!has_bytes(&over, number)) {
                break;
            }
            over.at += number;
        }
    }
    return true;
}

static bool is_recalled(const reader *in, uint64_t number) {
    return number < in->recallable_count &&
           in->recalled[number / CHAR_BIT] >> number % CHAR_BIT & 1;
}

/* Numbers without gaps: no pickler writes others, and they could demand any amount of memory. */
static outcome remember(reader *in, uint64_t number) {
    PyObject *value = top_of(in);
    if (!value) {
        return refuse(in, NO_VALUE);
    }
    if (number > in->memo.count) {
        return refuse(in, "refused: the pickle leaves gaps between the values that it stores");
    }
    if (!is_recalled(in, number)) {
        value = Py_None;
    }
    Py_INCREF(value);
    if (number < in->memo.count) {
        PyObject *old = in->memo.items[number];
        in->memo.items[number] = value;
        Py_DECREF(old);
        return GO_ON;
    }
    if (!spend(in, 1)) {
        Py_DECREF(value);
        return REFUSED;
    }
    return pile_add(&in->memo, value);
}

static outcome remember_as(reader *in, size_t bytes) {
    uint64_t number = 0;
    return take_number(in, bytes, &number) ? remember(in, number) : REFUSED;
}

static outcome recall(reader *in, size_t bytes) {
    uint64_t number = 0;
    if (!take_number(in, bytes, &number)) {
        return REFUSED;
    }
    if (number >= in->memo.count) {
        return refuse(in, "not a valid pickle: it names a value that it has not stored");
    }
    return pile_add(&in->stack, Py_NewRef(in->memo.items[number]));
}

/* ---- containers ------------------------------------------------------------------------------ */

static outcome push_container(reader *in, PyObject *container) {
    if (container && !spend(in, 1)) {
        Py_DECREF(container);
        return REFUSED;
    }
    return pile_add(&in->stack, container);
}

/* Makes a tuple of everything from `first` on. */
static outcome push_tuple(reader *in, size_t first) {
    size_t count = in->stack.count - first;
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);
    if (!tuple) {
        return FAILED;
    }
    for (size_t index = 0; index < count; index++) {
        PyTuple_SetItem(tuple, (Py_ssize_t)index, in->stack.items[first + index]);
    }
    in->stack.count = first; /* the tuple has taken the references */
    return push_container(in, tuple);
}

static outcome push_short_tuple(reader *in, size_t count) {
    return has_values(in, count) ? push_tuple(in, in->stack.count - count) : refuse(in, NO_VALUE);
}

static outcome push_marked_tuple(reader *in) {
    size_t first = 0;
    return take_mark(in, &first) ? push_tuple(in, first) : REFUSED;
}

/* Puts one list in the place of all that have the same dicts: call paths, in a recording. */
static outcome unite_list(reader *in) {
    PyObject **top = &in->stack.items[in->stack.count - 1], *list = *top;
    PyObject **last = in->memo.count ? &in->memo.items[in->memo.count - 1] : NULL;
    bool is_in_memo = last && *last == list;
    if (Py_REFCNT(list) != 1 + is_in_memo) {
        return GO_ON; /* it is known elsewhere */
    }
    PyObject *same = event_tables_same_list(in->events, list);
    if (!same || same == list) {
        return same ? GO_ON : FAILED;
    }
    if (is_in_memo) {
        *last = Py_NewRef(same);
        Py_DECREF(list);
    }
    *top = Py_NewRef(same);
    Py_DECREF(list);
    in->parts_left++;
    return GO_ON;
}

/* Appends everything from `first` on to the list below it. */
static outcome append_from(reader *in, size_t first) {
    if (first <= floor_of(in) || !PyList_CheckExact(in->stack.items[first - 1])) {
        return refuse(in, "not a valid pickle: items are added to something not a list");
    }
    PyObject *list = in->stack.items[first - 1], **items = in->stack.items + first;
    size_t count = in->stack.count - first;
    taken now =
        in->events ? event_tables_add(in->events, list, items, count, &in->parts_left) : LEFT;
    if (now == NOT_AS_ROWS || now == RAISED) {
        in->is_not_as_rows = now == NOT_AS_ROWS;
        return in->is_not_as_rows ? REFUSED : FAILED;
    }
    in->event_list = now == TAKEN ? list : in->event_list;
    for (size_t index = 0; index < count && now == LEFT; index++) {
        if (PyList_Append(list, items[index])) {
            return FAILED;
        }
    }
    pile_drop(&in->stack, first);
    return in->events && now == LEFT ? unite_list(in) : GO_ON;
}

/* Other keys could be built to collide, or nest so deep that hashing overflows the stack. */
static bool is_key(PyObject *key) {
    if (PyUnicode_CheckExact(key)) {
        return true;
    }
    if (!PyLong_CheckExact(key)) {
        return false;
    }
    long long value = PyLong_AsLongLong(key); /* none here has more than 64 bits */
    if (value == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return false;
    }
    return -KEY_LIMIT <= value && value < KEY_LIMIT;
}

/* Puts the pairs of key and value from `first` on into the dict below them. */
static outcome insert_from(reader *in, size_t first) {
    size_t count = in->stack.count - first;
    if (first <= floor_of(in) || count % 2 || !PyDict_CheckExact(in->stack.items[first - 1])) {
        return refuse(in, "not a valid pickle: keys are added to something not a dict");
    }
    PyObject *dict = in->stack.items[first - 1];
    if (count && !PyDict_Size(dict) && !spend(in, PARTS_OF_FULL_DICT - 1)) {
        return REFUSED;
    }
    PyObject **items = in->stack.items + first;
    for (size_t index = 0; index < count; index += 2) {
        if (!is_key(items[index])) {
            return refuse(in, "a dict has a key that is neither a text nor a small integer");
        }
        if (PyDict_SetItem(dict, items[index], items[index + 1])) {
            return FAILED;
        }
    }
    pile_drop(&in->stack, first);
    return GO_ON;
}

/* ---- events, straight from the bytes --------------------------------------------------------- */

/* Whether the item on top of the stack, if any, is the only one for the list of events below. */
static bool is_in_events(const reader *in, size_t items) {
    size_t first = floor_of(in);
    return in->event_list && first && in->stack.count == first + items &&
           in->stack.items[first - 1] == in->event_list;
}

/* Whether the dict that ends here is whole: what follows is the next item, or the list's end. */
static bool is_at_item(const reader *in) {
    return in->at < in->end && (*in->at == '}' || *in->at == 'e');
}

/* Gives the one event on top of the stack to the list, so that the next may do without a dict. */
static outcome add_event(reader *in) {
    if (!is_in_events(in, 1) || !is_at_item(in)) {
        return GO_ON;
    }
    size_t first = in->marks[--in->mark_count];
    outcome now = append_from(in, first);
    in->mark_count++; /* more items follow */
    return now;
}

/* The object that an instruction takes out of the memo; NULL, with nothing taken, for others. */
static PyObject *take_recalled(reader *in) {
    unsigned char code = in->at < in->end ? *in->at : 0;
    uint64_t number = 0;
    if (code != 'h' && code != 'j') {
        return NULL;
    }
    const unsigned char *at = in->at++;
    if (!take_number(in, ARGUMENT_BYTES[code], &number) || number >= in->memo.count) {
        in->at = at;
        return NULL;
    }
    return in->memo.items[number];
}

/* What is to be added to the memo once the event is taken: a borrowed object, or None. */
typedef struct stores {
    PyObject *items[MOST_STORES];
    size_t count;
} stores;

/* Passes over one instruction without an argument, if that follows. */
static bool take_code(reader *in, unsigned char code) {
    bool follows = in->at < in->end && *in->at == code;
    in->at += follows;
    return follows;
}

/* Passes over what stores a container in the memo, if that follows. False if it stores under
 * another number, or if something recalls it and there is no such object. */
static bool take_storing(reader *in, stores *to, PyObject *object) {
    unsigned char code = in->at < in->end ? *in->at : 0;
    uint64_t number = in->memo.count + to->count, said = number;
    if (code != 0x94 && code != 'q' && code != 'r') {
        return true;
    }
    in->at++;
    if (code != 0x94 && !take_number(in, ARGUMENT_BYTES[code], &said)) {
        return false;
    }
    bool is_wanted = is_recalled(in, number);
    if (said != number || to->count >= MOST_STORES || (is_wanted && !object)) {
        return false;
    }
    to->items[to->count++] = is_wanted ? object : Py_None;
    return true;
}

/* Reads a list of objects of the memo behind its first byte: a call path that was there before, or
 * nothing, which is Py_Ellipsis. NULL if it is any other. */
static PyObject *take_list(reader *in, stores *to) {
    const unsigned char *storing = in->at;
    stores ignored = *to;
    PyObject *items[MOST_SAME_ITEMS];
    size_t count = 0;
    if (!take_storing(in, &ignored, Py_None)) {
        return NULL;
    }
    bool is_marked = take_code(in, '(');
    PyObject *item = take_recalled(in);
    while (item && count < MOST_SAME_ITEMS) {
        items[count++] = item;
        item = take_recalled(in);
    }
    if (count && (item || !take_code(in, is_marked ? 'e' : 'a') || (!is_marked && count > 1))) {
        return NULL;
    }
    PyObject *known = count ? event_tables_known_list(in->events, items, count) : Py_Ellipsis;
    const unsigned char *behind = in->at;
    in->at = storing;
    bool is_stored = known && take_storing(in, to, count ? known : NULL);
    in->at = count ? behind : in->at;
    return is_stored ? known : NULL;
}

/* A value: a number, or an object, see event_tables_say(). False if it is anything else. */
static bool take_value(reader *in, PyObject **value, int64_t *number, stores *to) {
    unsigned char code = in->at < in->end ? *in->at : 0;
    uint64_t bytes = 0, bits = 0;
    *value = NULL;
    switch (code) {
    case 'h':
    case 'j':
        *value = take_recalled(in);
        return *value && !PyLong_Check(*value);
    case 'N':
        in->at++;
        *value = Py_None;
        return true;
    case ']':
        in->at++;
        *value = take_list(in, to);
        return *value;
    case 'K':
    case 'M':
    case 'J':
        in->at++;
        bytes = ARGUMENT_BYTES[code];
        break;
    case 0x8a:
        in->at++;
        if (!take_number(in, 1, &bytes) || bytes > sizeof bits) {
            return false;
        }
        break;
    default:
        return false;
    }
    if (!take_number(in, bytes, &bits)) {
        return false;
    }
    bool is_signed = (code == 'J' || code == 0x8a) && bytes && bytes < sizeof bits;
    uint64_t sign = is_signed ? UINT64_C(1) << (8 * bytes - 1) : 0;
    bits = (bits ^ sign) - sign;
    memcpy(number, &bits, sizeof *number);
    return true;
}

/* Reads a whole event behind its first byte; false where it has to be read as any dict. */
static bool take_event(reader *in, stores *to) {
    if (!take_storing(in, to, NULL) || !take_code(in, '(')) {
        return false;
    }
    event_tables_begin(in->events);
    while (in->at < in->end && *in->at != 'u') {
        PyObject *key = take_recalled(in), *value = NULL;
        int64_t number = 0;
        if (!key || !PyUnicode_CheckExact(key) || !take_value(in, &value, &number, to) ||
            !event_tables_say(in->events, key, value, number)) {
            return false;
        }
    }
    in->at += in->at < in->end;
    return is_at_item(in);
}

/* A dict begins: an event that shares all but its numbers with one before becomes a row at once. */
static outcome push_dict(reader *in) {
    const unsigned char *at = in->at;
    stores stored = {.count = 0};
    if (in->events && is_in_events(in, 0) && take_event(in, &stored)) {
        taken now = event_tables_end(in->events, in->event_list);
        for (uint64_t count = 0; count < stored.count && now == TAKEN; count++) {
            now = pile_add(&in->memo, Py_NewRef(stored.items[count])) == GO_ON ? TAKEN : RAISED;
        }
        if (now != LEFT) {
            return now != TAKEN ? FAILED : spend(in, 1 + stored.count) ? GO_ON : REFUSED;
        }
    }
    if (PyErr_Occurred()) {
        return FAILED;
    }
    in->at = at;
    in->reason = NULL;
    return push_container(in, PyDict_New());
}

static outcome fill_dict(reader *in) {
    size_t first = 0;
    if (!take_mark(in, &first)) {
        return REFUSED;
    }
    outcome now = insert_from(in, first);
    return now == GO_ON && in->events ? add_event(in) : now;
}

static outcome fill_marked(reader *in, outcome (*fill)(reader *, size_t)) {
    size_t first = 0;
    return take_mark(in, &first) ? fill(in, first) : REFUSED;
}

static outcome fill_one(reader *in, size_t count, outcome (*fill)(reader *, size_t)) {
    return has_values(in, count) ? fill(in, in->stack.count - count) : refuse(in, NO_VALUE);
}

/* ---- instructions ---------------------------------------------------------------------------- */

static outcome check_protocol(reader *in) {
    uint64_t version = 0;
    if (!take_number(in, 1, &version)) {
        return REFUSED;
    }
    return version <= HIGHEST_PROTOCOL
               ? GO_ON
               : refuse(in, "the pickle's protocol is not known; write protocol 4");
}

static outcome check_frame(reader *in) {
    uint64_t length = 0;
    return take_number(in, 8, &length) && has_bytes(in, length) ? GO_ON : refuse(in, CUT_OFF);
}

static outcome run_container(reader *in, unsigned char code) {
    switch (code) {
    case '(':
        return add_mark(in);
    case ']':
        return push_container(in, PyList_New(0));
    case 'a':
        return fill_one(in, 1, append_from);
    case 'e':
        return fill_marked(in, append_from);
    case '}':
        return push_dict(in);
    case 's':
        return fill_one(in, 2, insert_from);
    case 'u':
        return fill_dict(in);
    case ')':
        return push_container(in, PyTuple_New(0));
    case 't':
        return push_marked_tuple(in);
    case 0x85:
    case 0x86:
    case 0x87:
        return push_short_tuple(in, code - 0x84U);
    case 0x80:
        return check_protocol(in);
    case 0x95:
        return check_frame(in);
    case '.':
        return !in->mark_count && has_values(in, 1)
                   ? DONE
                   : refuse(in, "not a valid pickle: it ends with an open mark or without a value");
    default:
        return refuse(in, memchr(CALLS, code, sizeof CALLS - 1)
                              ? "refused: the pickle wants to load or call code"
                              : "refused: the pickle builds something not plain data");
    }
}

static outcome run_instruction(reader *in, unsigned char code) {
    switch (code) {
    case 'h':
        return recall(in, 1);
    case 'j':
        return recall(in, 4);
    case 0x94:
        return remember(in, in->memo.count);
    case 'q':
        return remember_as(in, 1);
    case 'r':
        return remember_as(in, 4);
    case 'K':
        return push_unsigned(in, 1);
    case 'M':
        return push_unsigned(in, 2);
    case 'J':
        return push_signed(in, 4);
    case 0x8a:
        return push_long(in);
    case 'G':
        return push_float(in);
    case 0x8c:
        return push_text(in, 1);
    case 'X':
        return push_text(in, 4);
    case 'N':
        return pile_add(&in->stack, Py_NewRef(Py_None));
    case 0x88:
        return pile_add(&in->stack, Py_NewRef(Py_True));
    case 0x89:
        return pile_add(&in->stack, Py_NewRef(Py_False));
    default:
        return run_container(in, code);
    }
}

static outcome run_all(reader *in) {
    for (uint64_t count = 1; in->at < in->end; count++) {
        if (count % INSTRUCTIONS_PER_CHECK == 0 && PyErr_CheckSignals()) {
            return FAILED;
        }
        outcome now = run_instruction(in, *in->at++);
        if (now != GO_ON) {
            return now;
        }
    }
    return refuse(in, CUT_OFF);
}

static void reader_clear(reader *in) {
    pile_drop(&in->stack, 0);
    pile_drop(&in->memo, 0);
    PyMem_Free(in->stack.items);
    PyMem_Free(in->memo.items);
    PyMem_Free(in->marks);
    PyMem_Free(in->recalled);
}

/* Reads it all; NULL with an exception. Nothing refers to parts of the value but the value. */
static PyObject *read_value(reader *in) {
    const unsigned char *first = in->at;
    outcome now = find_recalled(in) ? run_all(in) : FAILED;
    PyObject *value = now == DONE ? Py_NewRef(top_of(in)) : NULL;
    if (now == REFUSED && in->is_not_as_rows) {
        value = Py_NewRef(Py_None);
    } else if (now == REFUSED) {
        /* Of a file that was cut off, the place that matters is its end. */
        const unsigned char *place = strcmp(in->reason, CUT_OFF) == 0 ? in->end : in->at;
        PyErr_Format(PyExc_ValueError, "%s (at byte %zd)", in->reason, (Py_ssize_t)(place - first));
    }
    reader_clear(in);
    return value;
}

static bool parse(PyObject *args, const char *format, reader *in) {
    const char *data = NULL;
    Py_ssize_t size = 0;
    unsigned long long parts = 0;
    if (!PyArg_ParseTuple(args, format, &data, &size, &parts)) {
        return false;
    }
    *in = (reader){.at = (const unsigned char *)data, .parts_left = parts};
    in->end = in->at + size;
    return true;
}

PyObject *read_plain_pickle(PyObject *module, PyObject *args) {
    (void)module;
    reader in = {0};
    return parse(args, "y#K:read_plain_pickle", &in) ? read_value(&in) : NULL;
}

PyObject *read_pickled_events(PyObject *module, PyObject *args) {
    (void)module;
    reader in = {0};
    if (!parse(args, "y#K:read_pickled_events", &in)) {
        return NULL;
    }
    in.events = event_tables_open();
    PyObject *document = in.events ? read_value(&in) : NULL;
    PyObject *answer = NULL;
    if (document) {
        answer = in.is_not_as_rows ? Py_NewRef(Py_None) : event_tables_answer(in.events, document);
    }
    Py_XDECREF(document);
    event_tables_close(in.events);
    return answer;
}
