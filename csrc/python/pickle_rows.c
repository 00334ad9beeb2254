/* Reads the events of a recording into rows of 48 bytes, where a dict for each takes ten times
 * that.
 *
 * An event is a dict of four numbers that nearly always differ, and of other values that few events
 * have for themselves: what was done, the call path, a category. The numbers go into a row; the
 * rest is kept once for all events that have the same.
 *
 * Only what is written as picklers write it is taken: keys by their number in the memo, a list by
 * the numbers of what is in it. Everything else becomes a dict as ever, with an empty row in its
 * place. Where a file refers to a dict that became a row, or could share a list of rows, all is
 * refused, and it has to be read without rows; so a file never means anything else here.
 */
#include "plain_pickle.h"

#include <string.h>

enum {
    MOST_PAIRS = 16,
    MOST_STORED = MOST_PAIRS + 1,
    MOST_LISTS = 256,
    NUMBERS = 4,
    FIRST_SLOTS = 1 << 10,
    FRAME_BYTES = 9,
    LONGEST_TEXT = 256,
    LIST_HEAD = 0, /* the first word of a list; of a text it is 1 more than its bytes */
};

/* The lowest bits of a word say what the others are: in the memo, and in what makes a share. */
enum { TAG_BITS = 3 };
enum tag { RECALLED, VALUE, INTEGER, NONE, FALSE_, TRUE_ };

static const char *const NUMBER_NAMES[NUMBERS] = {"addr", "size", "stream", "time_us"};
static const uint64_t NO_SHARED = UINT64_MAX; /* of an empty row */
/* Odd, as no address of an object is. */
enum { A_VALUE = 1, A_ROW = 3 };

static const char AGAIN[] = "refers to what was read into rows";

/* Sequences of words, each kept once, by numbers from 0. */
typedef struct interner {
    uint64_t *words;
    size_t word_count, word_room;
    size_t *ends; /* of each sequence in `words` */
    size_t count, room;
    uint32_t *slots; /* numbers + 1, by hash; 0: empty */
    size_t slot_count;
    uint64_t seed; /* so that no file can choose what collides */
} interner;

struct rows {
    PyObject *buffer;        /* bytearray of gml_request; `id` is the number of what is shared */
    size_t count, room;      /* rows */
    size_t placed;           /* rows that are in a list by now */
    interner values, shares; /* what is written of each, in words */
    PyObject *objects;       /* list: a tuple or text for each of `values` */
    PyObject *shared;        /* list: a dict for each of `shares` */
    struct {
        PyObject *list;
        size_t first;
    } tables[MOST_LISTS]; /* the rows of each reach to the first of the next */
    size_t table_count;
    struct {
        uint64_t number; /* in the memo */
        int column;
    } keys[MOST_PAIRS]; /* as the last event had them, by place */
};

/* An event as far as it was read; nothing of it is kept before all of it was. */
typedef struct scan {
    const unsigned char *at, *end;
    uint64_t next_memo;
    PyObject *stored[MOST_STORED]; /* odd pointers for the memo */
    size_t stored_count;
    uint64_t numbers[NUMBERS];
    unsigned seen; /* a bit for each number */
    uint64_t words[2 * MOST_PAIRS];
    size_t word_count;
} scan;

rows *
rows_open(void)
{
    rows *self = PyMem_Calloc(1, sizeof *self);
    if (!self) {
        PyErr_NoMemory();
        return NULL;
    }
    self->buffer = PyByteArray_FromStringAndSize(NULL, 0);
    self->objects = PyList_New(0);
    self->shared = PyList_New(0);
    self->values.seed = self->shares.seed = (uintptr_t)self ^ (uintptr_t)self->buffer;
    if (!self->buffer || !self->objects || !self->shared) {
        rows_close(self);
        return NULL;
    }
    return self;
}

static void
interner_clear(interner *self)
{
    PyMem_Free(self->words);
    PyMem_Free(self->ends);
    PyMem_Free(self->slots);
}

void
rows_close(rows *self)
{
    if (!self) {
        return;
    }
    for (size_t number = 0; number < self->table_count; number++) {
        Py_DECREF(self->tables[number].list);
    }
    Py_XDECREF(self->buffer);
    Py_XDECREF(self->objects);
    Py_XDECREF(self->shared);
    interner_clear(&self->values);
    interner_clear(&self->shares);
    PyMem_Free(self);
}

/* ---- what is shared -------------------------------------------------------------------------- */

static uint64_t
mixed(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15U;
    return hash ^ hash >> 29;
}

static const uint64_t *
words_of(const interner *self, size_t number, size_t *count)
{
    size_t first = number ? self->ends[number - 1] : 0;
    *count = self->ends[number] - first;
    return self->words + first;
}

static size_t
slot_of(const interner *self, const uint64_t *words, size_t count)
{
    uint64_t hash = self->seed;
    for (size_t index = 0; index < count; index++) {
        hash = mixed(hash, words[index]);
    }
    size_t slot = hash & (self->slot_count - 1);
    for (; self->slots[slot]; slot = (slot + 1) & (self->slot_count - 1)) {
        size_t length = 0;
        const uint64_t *there = words_of(self, self->slots[slot] - 1, &length);
        if (length == count && (!count || memcmp(there, words, count * sizeof *words) == 0)) {
            break;
        }
    }
    return slot;
}

/* Makes room for one more; false with an exception. */
static bool
grow_slots(interner *self)
{
    if (self->slot_count && self->count * 2 < self->slot_count) {
        return true;
    }
    size_t more = self->slot_count ? self->slot_count * 2 : FIRST_SLOTS;
    uint32_t *slots = PyMem_Calloc(more, sizeof *slots);
    if (!slots || self->count >= UINT32_MAX / 2) {
        PyMem_Free(slots);
        PyErr_NoMemory();
        return false;
    }
    PyMem_Free(self->slots);
    self->slots = slots;
    self->slot_count = more;
    for (size_t number = 0; number < self->count; number++) {
        size_t count = 0;
        const uint64_t *words = words_of(self, number, &count);
        slots[slot_of(self, words, count)] = (uint32_t)number + 1;
    }
    return true;
}

static bool
add_word(interner *self, uint64_t word)
{
    uint64_t *words = grown(self->words, self->word_count, &self->word_room, sizeof *words);
    if (!words) {
        return false;
    }
    self->words = words;
    self->words[self->word_count++] = word;
    return true;
}

/* The number of what `words` say; false with an exception. A new one is *number == count - 1. */
static bool
intern(interner *self, const uint64_t *words, size_t count, size_t *number, bool *is_new)
{
    if (!grow_slots(self)) {
        return false;
    }
    size_t slot = slot_of(self, words, count);
    *is_new = !self->slots[slot];
    if (!*is_new) {
        *number = self->slots[slot] - 1;
        return true;
    }
    size_t *ends = grown(self->ends, self->count, &self->room, sizeof *ends);
    if (!ends) {
        return false;
    }
    self->ends = ends;
    size_t begin = self->count ? ends[self->count - 1] : 0;
    self->word_count = begin; /* what a failure left is written over */
    for (size_t index = 0; index < count; index++) {
        if (!add_word(self, words[index])) {
            return false;
        }
    }
    ends[self->count] = self->word_count;
    *number = self->count++;
    self->slots[slot] = (uint32_t)self->count;
    return true;
}

/* Forgets the youngest sequence, of which nothing could be made. */
static void
forget_last(interner *self, const uint64_t *words, size_t count)
{
    self->slots[slot_of(self, words, count)] = 0;
    self->count--;
}

bool
rows_may_share(const reader *in, const PyObject *value)
{
    if (value == Py_Ellipsis) {
        return false;
    }
    for (size_t number = 0; number < in->rows->table_count; number++) {
        if (in->rows->tables[number].list == value) {
            return false;
        }
    }
    return true;
}

/* What has a number in the memo, borrowed; NULL where an event may not have it. */
static PyObject *
memo_value(const reader *in, uint64_t number)
{
    PyObject *value = number < in->memo.count ? in->memo.items[number] : NULL;
    return value && is_reference(value) && rows_may_share(in, value) ? value : NULL;
}

PyObject *
rows_recall(reader *in, const PyObject *item)
{
    uintptr_t bits = (uintptr_t)item;
    if (bits == A_ROW) {
        in->reason = AGAIN;
        return NULL;
    }
    return Py_NewRef(PyList_GetItem(in->rows->objects, (Py_ssize_t)(bits >> TAG_BITS)));
}

/* A new reference to a value of an event; NULL where there is none, which may have no exception. */
static PyObject *
value_of(const reader *in, uint64_t tag, uint64_t word)
{
    switch (tag) {
    case RECALLED:
        return Py_XNewRef(memo_value(in, word));
    case VALUE:
        return Py_NewRef(PyList_GetItem(in->rows->objects, (Py_ssize_t)word));
    case INTEGER:
        return PyLong_FromUnsignedLongLong(word);
    case NONE:
        return Py_NewRef(Py_None);
    default:
        return Py_NewRef(tag == TRUE_ ? Py_True : Py_False);
    }
}

static PyObject *
new_shared(const reader *in, const scan *from)
{
    PyObject *dict = PyDict_New();
    for (size_t place = 0; dict && place < from->word_count; place += 2) {
        PyObject *key = memo_value(in, from->words[place] >> TAG_BITS);
        PyObject *value =
            value_of(in, from->words[place] & ((1U << TAG_BITS) - 1), from->words[place + 1]);
        if (!key || !value || PyDict_SetItem(dict, key, value)) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(value);
    }
    return dict;
}

/* ---- reading an event ------------------------------------------------------------------------ */

/* A little-endian number; the caller has seen that its bytes are there. */
static uint64_t
number_at(const unsigned char *at, size_t bytes)
{
    uint64_t value = 0;
    memcpy(&value, at, bytes);
    return value;
}

/* The next instruction, which is taken; 0 at the end. Frames mean nothing. */
static unsigned char
next_code(scan *from)
{
    while (from->end - from->at >= FRAME_BYTES && *from->at == 0x95) {
        uint64_t length = number_at(from->at + 1, sizeof length);
        from->at += FRAME_BYTES;
        if (length > (uint64_t)(from->end - from->at)) {
            return 0;
        }
    }
    return from->at < from->end ? *from->at++ : 0;
}

static bool
take(scan *from, size_t bytes, uint64_t *value)
{
    if ((size_t)(from->end - from->at) < bytes) {
        return false;
    }
    *value = number_at(from->at, bytes);
    from->at += bytes;
    return true;
}

/* A whole number from 0 to 2^64 - 1. */
static bool
take_whole(scan *from, unsigned char code, uint64_t *value)
{
    uint64_t bytes = 0;
    switch (code) {
    case 'K':
        return take(from, 1, value);
    case 'M':
        return take(from, 2, value);
    case 'J':
        return take(from, 4, value) && *value <= INT32_MAX;
    case 0x8a:
        if (!take(from, 1, &bytes)) {
            return false;
        }
        *value = 0;
        if (bytes <= sizeof *value) {
            return take(from, bytes, value) && (!bytes || !(*value >> (8 * bytes - 1)));
        }
        return bytes == sizeof *value + 1 && take(from, sizeof *value, value) &&
               take(from, 1, &bytes) && !bytes;
    default:
        return false;
    }
}

static bool
take_recall(scan *from, unsigned char code, uint64_t *number)
{
    return (code == 'h' && take(from, 1, number)) || (code == 'j' && take(from, 4, number));
}

/* Stores a value in the memo if that is what comes next; false where it has a wrong number. */
static bool
take_store(scan *from, PyObject *item)
{
    const unsigned char *before = from->at;
    unsigned char code = next_code(from);
    uint64_t number = from->next_memo;
    bool is_stored = code == 0x94 || (code == 'q' && take(from, 1, &number)) ||
                     (code == 'r' && take(from, 4, &number));
    if (!is_stored) {
        from->at = before;
        return true;
    }
    if (number != from->next_memo || from->stored_count >= MOST_STORED) {
        return false;
    }
    from->stored[from->stored_count++] = item;
    from->next_memo++;
    return true;
}

static size_t
tail_of(const interner *self)
{
    return self->count ? self->ends[self->count - 1] : 0;
}

/* Reads what is in a list, each by its number in the memo, into words behind those of `values`;
 * false where something else is in it. */
static bool
take_items(reader *in, scan *from)
{
    interner *values = &in->rows->values;
    for (;;) {
        const unsigned char *before = from->at;
        unsigned char code = next_code(from);
        uint64_t number = 0;
        if (code == '(') {
            for (code = next_code(from); take_recall(from, code, &number); code = next_code(from)) {
                if (!add_word(values, number)) {
                    return false;
                }
            }
            if (code != 'e') {
                return false;
            }
        } else if (take_recall(from, code, &number) && next_code(from) == 'a') {
            if (!add_word(values, number)) {
                return false;
            }
        } else {
            from->at = before; /* the next key, or the end */
            return true;
        }
    }
}

/* Reads a text into words; false where there is none that is short. */
static bool
take_bytes(reader *in, scan *from, size_t length_bytes)
{
    interner *values = &in->rows->values;
    uint64_t length = 0;
    if (!take(from, length_bytes, &length) || length > LONGEST_TEXT ||
        length > (uint64_t)(from->end - from->at) || !add_word(values, LIST_HEAD + 1 + length)) {
        return false;
    }
    for (uint64_t place = 0; place < length; place += sizeof(uint64_t)) {
        uint64_t left = length - place;
        size_t bytes = left < sizeof left ? (size_t)left : sizeof left;
        if (!add_word(values, number_at(from->at + place, bytes))) {
            return false;
        }
    }
    from->at += length;
    return true;
}

/* What words of a new value say; NULL, maybe with an exception, where an event may not have it. */
static PyObject *
new_object(reader *in, const uint64_t *words, size_t count)
{
    if (!spend(in, 1)) {
        return NULL;
    }
    if (words[0] != LIST_HEAD) {
        const char *bytes = (const char *)(words + 1);
        size_t length = (size_t)(words[0] - LIST_HEAD - 1);
        PyObject *text = PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)length, "surrogatepass");
        if (!text && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
            PyErr_Clear();
        }
        return text;
    }
    PyObject *tuple = PyTuple_New((Py_ssize_t)count - 1);
    for (size_t index = 1; tuple && index < count; index++) {
        PyObject *item = memo_value(in, words[index]);
        if (item) {
            PyTuple_SetItem(tuple, (Py_ssize_t)index - 1, Py_NewRef(item));
        } else {
            Py_CLEAR(tuple);
        }
    }
    return tuple;
}

/* Makes the object of a new value; false, maybe with an exception, where there can be none. */
static bool
add_object(reader *in, const uint64_t *words, size_t count)
{
    PyObject *object = new_object(in, words, count);
    bool is_done = object && PyList_Append(in->rows->objects, object) == 0;
    Py_XDECREF(object);
    return is_done;
}

/* Reads a list or text behind its first byte, and stores it in the memo if the file does. */
static bool
take_object(reader *in, scan *from, unsigned char code, uint64_t *number)
{
    interner *values = &in->rows->values;
    size_t begin = tail_of(values), place = from->stored_count, known = 0;
    PyObject *later = (PyObject *)A_ROW;
    values->word_count = begin;
    bool is_read = false;
    if (code == ']') { /* stored before its items are added */
        is_read = add_word(values, LIST_HEAD) && take_store(from, later) && take_items(in, from);
    } else {
        is_read = take_bytes(in, from, code == 'X' ? 4 : 1) && take_store(from, later);
    }
    size_t count = values->word_count - begin;
    bool is_new = false;
    if (!is_read || !intern(values, values->words + begin, count, &known, &is_new)) {
        return false;
    }
    if (is_new && !add_object(in, values->words + begin, count)) {
        forget_last(values, values->words + begin, count);
        return false;
    }
    *number = known;
    if (from->stored_count > place) {
        from->stored[place] = (PyObject *)(known << TAG_BITS | A_VALUE);
    }
    return true;
}

/* Which number a key names, NUMBERS for any other text, -1 for what is none. */
static int
column_of(const reader *in, uint64_t number)
{
    PyObject *key = memo_value(in, number);
    if (!key || !PyUnicode_CheckExact(key)) {
        return -1;
    }
    int column = 0;
    while (column < NUMBERS && PyUnicode_CompareWithASCIIString(key, NUMBER_NAMES[column]) != 0) {
        column++;
    }
    return column;
}

/* What a value is, as a tag and a word; false for one that no event has. */
static bool
take_value(reader *in, scan *from, uint64_t *tag, uint64_t *word)
{
    unsigned char code = next_code(from);
    *word = 0;
    switch (code) {
    case ']':
    case 'X':
    case 0x8c:
        *tag = VALUE;
        return take_object(in, from, code, word);
    case 'N':
        *tag = NONE;
        return true;
    case 0x88:
    case 0x89:
        *tag = code == 0x88 ? TRUE_ : FALSE_;
        return true;
    case 'h':
    case 'j':
        *tag = RECALLED;
        break;
    default:
        *tag = INTEGER;
        return take_whole(from, code, word);
    }
    if (!take_recall(from, code, word) || *word >= in->memo.count) {
        return false;
    }
    PyObject *item = in->memo.items[*word];
    if (!is_reference(item)) {
        *tag = VALUE;
        *word = (uintptr_t)item >> TAG_BITS;
        return (uintptr_t)item != A_ROW;
    }
    return true;
}

/* Reads a key, whose first byte was just read, and its value. */
static bool
take_pair(reader *in, scan *from, size_t place, unsigned char code)
{
    uint64_t key = 0, tag = 0, word = 0;
    if (place >= MOST_PAIRS || !take_recall(from, code, &key)) {
        return false;
    }
    if (in->rows->keys[place].number != key + 1) {
        in->rows->keys[place].number = key + 1;
        in->rows->keys[place].column = column_of(in, key);
    }
    int column = in->rows->keys[place].column;
    if (column == NUMBERS) {
        if (!take_value(in, from, &tag, &word)) {
            return false;
        }
        from->words[from->word_count++] = key << TAG_BITS | tag;
        from->words[from->word_count++] = word;
        return true;
    }
    if (column < 0 || !take_whole(from, next_code(from), &from->numbers[column])) {
        return false;
    }
    from->seen |= 1U << column;
    return true;
}

/* Reads all of an event behind its first byte. */
static bool
take_event(reader *in, scan *from)
{
    if (!take_store(from, (PyObject *)A_ROW) || next_code(from) != '(') {
        return false;
    }
    unsigned char code = next_code(from);
    for (size_t place = 0; code != 'u'; place++) {
        if (!take_pair(in, from, place, code)) {
            return false;
        }
        code = next_code(from);
    }
    return from->seen == (1U << NUMBERS) - 1;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static gml_request *
row_at(const rows *self, size_t number)
{
    return (gml_request *)(void *)PyByteArray_AsString(self->buffer) + number;
}

/* Makes room for `more` rows; false with an exception. */
static bool
add_rows(rows *self, size_t more)
{
    size_t count = self->count + more, room = self->room;
    if (count > room) {
        room = count + room / 2;
        if (PyByteArray_Resize(self->buffer, (Py_ssize_t)(room * sizeof(gml_request)))) {
            return false;
        }
        self->room = room;
    }
    self->count = count;
    return true;
}

/* The number of what an event shares with others; false, maybe with an exception. */
static bool
share(reader *in, const scan *from, size_t *number)
{
    rows *self = in->rows;
    bool is_new = false;
    if (!intern(&self->shares, from->words, from->word_count, number, &is_new)) {
        return false;
    }
    if (!is_new) {
        return true;
    }
    PyObject *dict = spend(in, PARTS_OF_FULL_DICT) ? new_shared(in, from) : NULL;
    bool is_done = dict && PyList_Append(self->shared, dict) == 0;
    Py_XDECREF(dict);
    if (!is_done) {
        forget_last(&self->shares, from->words, from->word_count);
    }
    return is_done;
}

outcome
rows_take(reader *in, bool *was_row)
{
    rows *self = in->rows;
    scan from = {.at = in->at, .end = in->end, .next_memo = in->memo.count};
    size_t shared = 0;
    *was_row = take_event(in, &from) && share(in, &from, &shared);
    if (!*was_row) {
        return PyErr_Occurred() ? FAILED : in->reason ? REFUSED : GO_ON;
    }
    if (!add_rows(self, 1)) {
        return FAILED;
    }
    *row_at(self, self->count - 1) = (gml_request){
        .id = shared,
        .address = from.numbers[0],
        .size_bytes = from.numbers[1],
        .stream = from.numbers[2],
        .time_ns = from.numbers[3],
    };
    for (size_t place = 0; place < from.stored_count; place++) {
        if (pile_add(&in->memo, from.stored[place]) != GO_ON) {
            return FAILED;
        }
    }
    in->at = from.at;
    return pile_add(&in->stack, Py_NewRef(Py_Ellipsis));
}

/* Whether a list gets the rows from here on. A list that others know already gets none. */
static bool
open_table(rows *self, PyObject *list)
{
    enum { STACK_AND_MEMO = 2 };
    size_t number = self->table_count;
    if (number && self->tables[number - 1].list == list) {
        return true;
    }
    if (number >= MOST_LISTS || Py_REFCNT(list) > STACK_AND_MEMO) {
        return false;
    }
    self->tables[number].list = Py_NewRef(list);
    self->tables[number].first = self->placed;
    self->table_count++;
    return true;
}

/* Puts an empty row in the place of each of `count` items that is none, the last rows first. */
static bool
spread(rows *self, PyObject *const *items, size_t count, size_t others)
{
    size_t from = self->count;
    if (!add_rows(self, others)) {
        return false;
    }
    for (size_t to = self->count; others; count--) {
        bool is_row = items && items[count - 1] == Py_Ellipsis;
        to--;
        others -= !is_row;
        *row_at(self, to) = is_row ? *row_at(self, --from) : (gml_request){.id = NO_SHARED};
    }
    return true;
}

outcome
rows_append(reader *in, size_t first, bool *had_rows)
{
    rows *self = in->rows;
    PyObject *list = in->stack.items[first - 1], **items = in->stack.items + first;
    size_t count = in->stack.count - first, rows_here = 0;
    for (size_t index = 0; index < count; index++) {
        rows_here += items[index] == Py_Ellipsis;
    }
    bool is_last = self->table_count && self->tables[self->table_count - 1].list == list;
    *had_rows = rows_here || is_last;
    if (!*had_rows && rows_may_share(in, list)) {
        return GO_ON;
    }
    *had_rows = true;
    /* All rows that are in no list yet are these: others would lie between them. */
    if (self->placed + rows_here != self->count || !open_table(self, list)) {
        in->reason = AGAIN;
        return REFUSED;
    }
    size_t before = is_last ? 0 : (size_t)PyList_Size(list);
    if (!spread(self, items, count, count - rows_here)) {
        return FAILED;
    }
    if (before) { /* what came before the first row */
        size_t here = self->count - self->placed;
        if (!add_rows(self, before)) {
            return FAILED;
        }
        memmove(row_at(self, self->placed + before), row_at(self, self->placed),
                here * sizeof(gml_request));
        for (size_t index = 0; index < before; index++) {
            *row_at(self, self->placed + index) = (gml_request){.id = NO_SHARED};
        }
    }
    self->placed = self->count;
    for (size_t index = 0; index < count; index++) {
        if (items[index] != Py_Ellipsis && PyList_Append(list, items[index])) {
            return FAILED;
        }
    }
    while (in->stack.count > first) {
        Py_DECREF(in->stack.items[--in->stack.count]);
    }
    return GO_ON;
}

PyObject *
rows_answer(reader *in, PyObject *document)
{
    rows *self = in->rows;
    if (self->placed != self->count) {
        in->reason = AGAIN;
        return NULL;
    }
    PyObject *lists = PyList_New(0);
    for (size_t number = 0; lists && number < self->table_count; number++) {
        bool is_last = number + 1 == self->table_count;
        size_t behind = is_last ? self->count : self->tables[number + 1].first;
        PyObject *one = Py_BuildValue("(Onn)", self->tables[number].list,
                                      (Py_ssize_t)self->tables[number].first, (Py_ssize_t)behind);
        if (!one || PyList_Append(lists, one)) {
            Py_CLEAR(lists);
        }
        Py_XDECREF(one);
    }
    Py_ssize_t bytes = (Py_ssize_t)(self->count * sizeof(gml_request));
    PyObject *answer = NULL;
    if (lists && PyByteArray_Resize(self->buffer, bytes) == 0) {
        answer = Py_BuildValue("(OOOO)", document, self->buffer, self->shared, lists);
    }
    Py_XDECREF(lists);
    return answer;
}
