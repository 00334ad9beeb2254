/* Which allocation each event of a recording speaks of: its addresses, from event to event. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_SLOTS = 1 << 12, ROWS_PER_CHECK = 1 << 16, PREFETCHED = 16 };

/* What an address is: nothing yet, freed, or live, which is its allocation: from FIRST_OWNER on
 * those of the rows, below 0 those from before. */
enum { UNKNOWN = 0, FREED = 1, FIRST_OWNER = 2 };

typedef struct slot {
    uint64_t address;
    int64_t owner;
} slot;

typedef struct matcher {
    slot *slots;
    size_t slot_count, used;
    uint64_t seed; /* so that no file can choose what collides */
    uint64_t *before;
    size_t before_count, before_room;
    int64_t allocations;
} matcher;

static size_t
home_of(const matcher *self, uint64_t address)
{
    uint64_t hash = (address ^ self->seed) * 0x9e3779b97f4a7c15U;
    hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93U;
    return (hash ^ hash >> 32) & (self->slot_count - 1);
}

static slot *
find_slot(const matcher *self, uint64_t address)
{
    size_t place = home_of(self, address);
    while (self->slots[place].owner != UNKNOWN && self->slots[place].address != address) {
        place = (place + 1) & (self->slot_count - 1);
    }
    return &self->slots[place];
}

/* Makes room for one more; false with an exception. */
static bool
grow(matcher *self)
{
    if (self->used * 2 < self->slot_count) {
        return true;
    }
    matcher larger = *self;
    larger.slot_count = self->slot_count ? self->slot_count * 2 : FIRST_SLOTS;
    larger.slots = PyMem_Calloc(larger.slot_count, sizeof *larger.slots);
    if (!larger.slots) {
        PyErr_NoMemory();
        return false;
    }
    larger.seed = self->seed ^ (uintptr_t)larger.slots;
    for (size_t place = 0; place < self->slot_count; place++) {
        if (self->slots[place].owner != UNKNOWN) {
            *find_slot(&larger, self->slots[place].address) = self->slots[place];
        }
    }
    PyMem_Free(self->slots);
    *self = larger;
    return true;
}

/* Notes an allocation from before the rows, first named by this one; false with an exception. */
static bool
add_before(matcher *self, slot *at, uint64_t row)
{
    if (self->before_count == self->before_room) {
        size_t room = self->before_room ? self->before_room * 2 : FIRST_SLOTS;
        uint64_t *before = PyMem_Realloc(self->before, room * sizeof *before);
        if (!before) {
            PyErr_NoMemory();
            return false;
        }
        self->before = before;
        self->before_room = room;
    }
    self->before[self->before_count++] = row;
    at->owner = -(int64_t)self->before_count;
    return true;
}

/* Sets the id of a row; *is_right is false where it contradicts those before it. False with an
 * exception. */
static bool
match_row(matcher *self, gml_request *event, uint64_t row, bool *is_right)
{
    if (event->kind != GML_REQUEST_ALLOC && event->kind != GML_REQUEST_FREE &&
        event->kind != GML_REQUEST_FREE_REQUESTED) {
        return true;
    }
    if (!grow(self)) {
        return false;
    }
    slot *at = find_slot(self, event->address);
    bool is_alloc = event->kind == GML_REQUEST_ALLOC, is_new = at->owner == UNKNOWN;
    *is_right = is_alloc ? is_new || at->owner == FREED : at->owner != FREED;
    if (!*is_right) {
        return true;
    }
    at->address = event->address;
    self->used += is_new;
    if (is_alloc) {
        at->owner = FIRST_OWNER + self->allocations++;
    } else if (is_new && !add_before(self, at, row)) {
        return false;
    }
    int64_t id = at->owner < 0 ? at->owner : at->owner - FIRST_OWNER;
    memcpy(&event->id, &id, sizeof id);
    if (event->kind == GML_REQUEST_FREE) {
        at->owner = FREED;
    }
    return true;
}

/* The row that contradicts those before it, -1 for none; -2 with an exception. */
static int64_t
match_all(matcher *self, gml_request *events, size_t count)
{
    for (size_t row = 0; row < count; row++) {
        if (row % ROWS_PER_CHECK == 0 && PyErr_CheckSignals()) {
            return -2;
        }
        if (self->slot_count && count - row > PREFETCHED) {
            __builtin_prefetch(&self->slots[home_of(self, events[row + PREFETCHED].address)]);
        }
        bool is_right = true;
        if (!match_row(self, &events[row], row, &is_right)) {
            return -2;
        }
        if (!is_right) {
            return (int64_t)row;
        }
    }
    return -1;
}

/* Whether an event names each address, as bytes of 0 and 1; NULL with an exception. */
static PyObject *
known_of(const matcher *self, const uint64_t *addresses, size_t count)
{
    PyObject *known = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)count);
    char *is_known = known ? PyBytes_AsString(known) : NULL;
    for (size_t index = 0; is_known && index < count; index++) {
        is_known[index] = self->slot_count && find_slot(self, addresses[index])->owner != UNKNOWN;
    }
    return known;
}

PyObject *
match_events(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *rows = NULL, *addresses = NULL;
    if (!PyArg_ParseTuple(args, "OO:match_events", &rows, &addresses)) {
        return NULL;
    }
    size_t address_count = 0;
    uint64_t *wanted = copy_records(addresses, sizeof *wanted, &address_count, "addresses");
    if (!wanted) {
        return NULL;
    }
    Py_buffer view = {0};
    PyObject *answer = NULL;
    matcher self = {.seed = (uintptr_t)wanted};
    if (PyObject_GetBuffer(rows, &view, PyBUF_WRITABLE) < 0) {
        goto done;
    }
    size_t bytes = (size_t)view.len;
    if (bytes % sizeof(gml_request) || (uintptr_t)view.buf % _Alignof(gml_request)) {
        PyErr_SetString(PyExc_ValueError, "rows must be whole, aligned records of 48 bytes");
        goto done;
    }
    int64_t failed = match_all(&self, view.buf, bytes / sizeof(gml_request));
    PyObject *known = failed == -2 ? NULL : known_of(&self, wanted, address_count);
    if (known) {
        answer = Py_BuildValue("(Ly#N)", (long long)failed, (const char *)self.before,
                               (Py_ssize_t)(self.before_count * sizeof *self.before), known);
    }
done:
    if (view.obj) {
        PyBuffer_Release(&view);
    }
    PyMem_Free(self.slots);
    PyMem_Free(self.before);
    free(wanted);
    return answer;
}
