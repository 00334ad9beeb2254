/* The type Lake: one open lake, kept open while a thread is inside a call on it. */
#include "core.h"
#include "gmlake_elastic.h"
#include "gmlake_share.h"
#include "gmlake_sleep.h"
#include "torch/publish.h"

#include <stdlib.h>
#include <string.h>

static lake_object *as_lake(PyObject *self) {
    return (lake_object *)self;
}

/* Whether a parent process created it. The parent's threads do not exist here, and one of them may
 * hold the guard or the lake's lock forever: only the fixed members may be touched. */
static bool is_inherited(const lake_object *self) {
    return self->forks != count_forks();
}

bool lake_lock(lake_object *self) {
    return !is_inherited(self) && pthread_mutex_lock(&self->guard) == 0;
}

void lake_unlock(lake_object *self) {
    pthread_mutex_unlock(&self->guard);
}

gml_lake *lake_enter(lake_object *self) {
    if (!lake_lock(self)) {
        PyErr_SetString(PyExc_RuntimeError, "the lake belongs to the process that this one was "
                                            "forked from; open one here");
        return NULL;
    }
    gml_lake *lake = self->lake;
    self->users += lake != NULL;
    lake_unlock(self);
    if (!lake) {
        PyErr_SetString(PyExc_ValueError, "the lake is closed");
    }
    return lake;
}

void lake_leave(lake_object *self) {
    pthread_mutex_lock(&self->guard);
    if (--self->users == 0) {
        pthread_cond_broadcast(&self->idle);
    }
    pthread_mutex_unlock(&self->guard);
}

/* ---- closing --------------------------------------------------------------------------------- */

/* Takes the lake out of the object once no other thread is inside a call. pre: no GIL is held.
 * NULL if it was closed already, or is not the object's to close; *exports tells how many buffers
 * forbid it. */
static gml_lake *take_lake(lake_object *self, uint64_t *exports) {
    gml_lake *lake = NULL;
    if (self->is_borrowed || !lake_lock(self)) {
        return NULL;
    }
    *exports = self->exports;
    if (self->exports == 0) {
        lake = self->lake;
        self->lake = NULL;
        while (self->users > 0) {
            pthread_cond_wait(&self->idle, &self->guard);
        }
        if (lake) {
            gml_map_clear(&self->blocks);
            self->blocks = (gml_map){0};
        }
    }
    lake_unlock(self);
    return lake;
}

static gml_status close_lake(gml_lake *lake) {
    gml_publish_no_more(lake);
    return gml_lake_close(lake);
}

static PyObject *lake_close(PyObject *object, PyObject *Py_UNUSED(unused)) {
    lake_object *self = as_lake(object);
    uint64_t exports = 0;
    gml_status status = GML_OK;
    Py_BEGIN_ALLOW_THREADS
    status = close_lake(take_lake(self, &exports));
    Py_END_ALLOW_THREADS
    if (exports > 0) {
        return PyErr_Format(PyExc_BufferError,
                            "the lake cannot be closed: %llu buffers of its blocks are in use",
                            (unsigned long long)exports);
    }
    if (status != GML_OK) {
        return raise_status(self->state, status,
                            "the driver did not take everything back when the lake was closed");
    }
    Py_RETURN_NONE;
}

static void lake_dealloc(PyObject *object) {
    lake_object *self = as_lake(object);
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (self->state && !is_inherited(self)) {
        uint64_t exports = 0;
        Py_BEGIN_ALLOW_THREADS
        close_lake(take_lake(self, &exports));
        Py_END_ALLOW_THREADS
        gml_map_clear(&self->blocks);
        pthread_cond_destroy(&self->idle);
        pthread_mutex_destroy(&self->guard);
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static int lake_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    return 0;
}

static PyObject *lake_enter_context(PyObject *object, PyObject *Py_UNUSED(unused)) {
    gml_lake *lake = lake_enter(as_lake(object));
    if (!lake) {
        return NULL;
    }
    lake_leave(as_lake(object));
    return Py_NewRef(object);
}

static PyObject *lake_exit_context(PyObject *object, PyObject *Py_UNUSED(args)) {
    return lake_close(object, NULL);
}

static PyObject *lake_get_closed(PyObject *object, void *Py_UNUSED(closure)) {
    lake_object *self = as_lake(object);
    bool is_closed = true;
    if (lake_lock(self)) {
        is_closed = self->lake == NULL;
        lake_unlock(self);
    }
    return PyBool_FromLong(is_closed);
}

/* ---- allocating and freeing ------------------------------------------------------------------ */

static PyObject *lake_answer(lake_object *self, gml_lake *lake, gml_status status) {
    return status == GML_OK ? Py_NewRef(Py_None) : raise_from_lake(self->state, status, lake);
}

PyObject *lake_end(lake_object *self, gml_lake *lake, gml_status status) {
    PyObject *result = lake_answer(self, lake, status);
    lake_leave(self);
    return result;
}

static PyObject *lake_end_number(lake_object *self, gml_lake *lake, gml_status status,
                                 uint64_t number) {
    PyObject *result = status == GML_OK ? PyLong_FromUnsignedLongLong(number)
                                        : raise_from_lake(self->state, status, lake);
    lake_leave(self);
    return result;
}

static gml_status free_without_gil(gml_lake *lake, gml_address address) {
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_lake_free(lake, address);
    Py_END_ALLOW_THREADS
    return status;
}

static PyObject *lake_allocate(PyObject *object, PyObject *args, PyObject *keywords) {
    static char *names[] = {"size", "stream", NULL};
    lake_object *self = as_lake(object);
    number_argument size = {"size", 0};
    number_argument stream = {"stream", 0};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O&|O&:allocate", names, NUMBER(size),
                                     NUMBER(stream))) {
        return NULL;
    }
    gml_address address = 0;
    LAKE_CALL(self, gml_lake_allocate(lake, size.value, stream.value, &address));
    if (status != GML_OK) {
        return lake_end(self, lake, status);
    }
    PyObject *block = block_new(self, lake, address, size.value, stream.value);
    lake_leave(self);
    return block;
}

/* The address of a Block of this lake, or of a number; *block is NULL for the latter. False with an
 * exception. */
static bool read_block(const lake_object *self, PyObject *object, block_object **block,
                       gml_address *address) {
    if (!PyObject_TypeCheck(object, self->state->block_type)) {
        number_argument number = {"address", 0};
        *block = NULL;
        bool is_number = convert_number(object, &number) != 0;
        *address = number.value;
        return is_number;
    }
    *block = (block_object *)object;
    *address = (*block)->info.address;
    if ((*block)->owner != self) {
        PyErr_SetString(PyExc_ValueError, "the block belongs to another lake");
        return false;
    }
    return true;
}

/* Retires the Block object, if there is one; false with an exception where it forbids the free. */
static bool retire(lake_object *self, block_object *block, gml_address address) {
    pthread_mutex_lock(&self->guard);
    block_object *known = block ? block : gml_map_find(&self->blocks, address);
    retirement result = known ? block_retire_locked(known) : RETIRED;
    pthread_mutex_unlock(&self->guard);
    if (result == FREED_BEFORE) {
        PyErr_SetString(PyExc_ValueError, "the block was freed before");
    } else if (result == BUFFER_IN_USE) {
        PyErr_SetString(PyExc_BufferError,
                        "the block cannot be freed: a buffer of it is in use; release it first");
    }
    return result == RETIRED;
}

static PyObject *lake_free(PyObject *object, PyObject *victim) {
    lake_object *self = as_lake(object);
    block_object *block = NULL;
    gml_address address = 0;
    gml_lake *lake = lake_enter(self);
    if (!lake) {
        return NULL;
    }
    PyObject *result = NULL;
    if (read_block(self, victim, &block, &address) && retire(self, block, address)) {
        result = lake_answer(self, lake, free_without_gil(lake, address));
    }
    lake_leave(self);
    return result;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static PyObject *lake_trim(PyObject *object, PyObject *Py_UNUSED(unused)) {
    lake_object *self = as_lake(object);
    uint64_t released = 0;
    LAKE_CALL(self, gml_lake_trim(lake, &released));
    return lake_end_number(self, lake, status, released);
}

/* Methods that are one call without an argument or a result. */
#define PLAIN(name)                                                                                \
    static PyObject *lake_##name(PyObject *object, PyObject *Py_UNUSED(unused)) {                  \
        lake_object *self = as_lake(object);                                                       \
        LAKE_CALL(self, gml_lake_##name(lake));                                                    \
        return lake_end(self, lake, status);                                                       \
    }
PLAIN(check)
PLAIN(forget_saved)
PLAIN(mark)
PLAIN(reset_peaks)
#undef PLAIN

/* Methods that report. */
#define REPORT(name)                                                                               \
    static PyObject *lake_##name(PyObject *object, PyObject *Py_UNUSED(unused)) {                  \
        gml_lake *lake = lake_enter(as_lake(object));                                              \
        PyObject *result = lake ? report_##name(as_lake(object)->state, lake) : NULL;              \
        if (lake) {                                                                                \
            lake_leave(as_lake(object));                                                           \
        }                                                                                          \
        return result;                                                                             \
    }
REPORT(spans)
REPORT(stats)
REPORT(torch_stats)
#undef REPORT

static PyObject *lake_record_stream(PyObject *object, PyObject *args, PyObject *keywords) {
    static char *names[] = {"block", "stream", NULL};
    lake_object *self = as_lake(object);
    PyObject *used = NULL;
    number_argument stream = {"stream", 0};
    block_object *block = NULL;
    gml_address address = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO&:record_stream", names, &used,
                                     NUMBER(stream)) ||
        !read_block(self, used, &block, &address)) {
        return NULL;
    }
    LAKE_CALL(self, gml_lake_record_stream(lake, address, stream.value));
    return lake_end(self, lake, status);
}

/* The beginning of a method whose only argument is an address. */
#define READ_ADDRESS(object, number)                                                               \
    lake_object *self = as_lake(object);                                                           \
    uint64_t address;                                                                              \
    if (!read_number(number, "address", &address)) {                                               \
        return NULL;                                                                               \
    }

static PyObject *lake_count_chunks(PyObject *object, PyObject *number) {
    READ_ADDRESS(object, number)
    size_t count = 0;
    LAKE_CALL(self, gml_lake_count_chunks(lake, address, &count));
    return lake_end_number(self, lake, status, count);
}

/* ---- other streams --------------------------------------------------------------------------- */

static const number_field pair_fields[] = {
    NUMBER_FIELD(gml_stream_pair, owner),
    NUMBER_FIELD(gml_stream_pair, borrower),
    NUMBER_FIELD(gml_stream_pair, borrowed_bytes),
    NUMBER_FIELD(gml_stream_pair, borrows),
    NUMBER_FIELD(gml_stream_pair, waits),
    NUMBER_FIELD(gml_stream_pair, refused_waits),
    NUMBER_FIELD(gml_stream_pair, deferred_free_bytes),
    {NULL, 0},
};

static PyObject *pair_list(const gml_stream_pair *pairs, size_t count) {
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < count; i++) {
        list = with_item(list, fields_dict(&pairs[i], pair_fields));
    }
    return list;
}

static PyObject *lake_stream_pairs(PyObject *object, PyObject *Py_UNUSED(unused)) {
    lake_object *self = as_lake(object);
    gml_stream_pair *pairs = NULL;
    size_t count = 0;
    LAKE_CALL(self, gml_lake_stream_pairs(lake, &pairs, &count));
    PyObject *result =
        status == GML_OK ? pair_list(pairs, count) : raise_from_lake(self->state, status, lake);
    lake_leave(self);
    free(pairs);
    return result;
}

/* ---- history, and counters for others -------------------------------------------------------- */

static PyObject *lake_keep_history(PyObject *object, PyObject *max_events) {
    lake_object *self = as_lake(object);
    uint64_t count = 0;
    if (!read_number(max_events, "max_events", &count)) {
        return NULL;
    }
    LAKE_CALL(self, gml_lake_keep_history(lake, (size_t)count));
    lake_leave(self);
    return status == GML_OK ? Py_NewRef(Py_None) : raise_status(self->state, status, NULL);
}

/* The events that are there at one moment: the youngest of them, where they have become more than
 * there was room made for. NULL with an exception. */
static PyObject *copy_history(lake_object *self, gml_lake *lake, uint64_t *total) {
    size_t count = 0, copied = 0;
    (void)gml_lake_history(lake, NULL, 0, &count, total);
    PyObject *events = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(gml_request)));
    if (!events) {
        return NULL;
    }
    gml_request *out = (gml_request *)(void *)PyBytes_AsString(events);
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_lake_history(lake, out, count, &copied, total);
    Py_END_ALLOW_THREADS
    PyObject *found = NULL;
    if (status != GML_OK) {
        found = raise_from_lake(self->state, status, lake);
    } else {
        found = PyBytes_FromStringAndSize((char *)out, (Py_ssize_t)(copied * sizeof *out));
    }
    Py_DECREF(events);
    return found;
}

static PyObject *lake_history(PyObject *object, PyObject *Py_UNUSED(unused)) {
    lake_object *self = as_lake(object);
    gml_lake *lake = lake_enter(self);
    if (!lake) {
        return NULL;
    }
    uint64_t total = 0;
    PyObject *events = copy_history(self, lake, &total);
    lake_leave(self);
    return events ? Py_BuildValue("(NK)", events, (unsigned long long)total) : NULL;
}

/* ---- sleep ----------------------------------------------------------------------------------- */

static PyObject *lake_saved(PyObject *object, PyObject *args) {
    lake_object *self = as_lake(object);
    number_argument address = {"address", 0}, size = {"size", 0};
    if (!PyArg_ParseTuple(args, "O&O&:saved", NUMBER(address), NUMBER(size))) {
        return NULL;
    }
    const void *found = NULL;
    LAKE_CALL(self, gml_lake_saved(lake, address.value, size.value, &found));
    lake_leave(self);
    if (status != GML_OK) {
        Py_RETURN_NONE;
    }
    return PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)found);
}

static PyObject *lake_get_asleep(PyObject *object, void *Py_UNUSED(closure)) {
    lake_object *self = as_lake(object);
    gml_lake *lake = lake_enter(self);
    if (!lake) {
        return NULL;
    }
    bool is_asleep;
    Py_BEGIN_ALLOW_THREADS
    is_asleep = gml_lake_is_asleep(lake);
    Py_END_ALLOW_THREADS
    lake_leave(self);
    return PyBool_FromLong(is_asleep);
}

/* ---- elastic buffers ------------------------------------------------------------------------- */

static PyObject *lake_open_elastic(PyObject *object, PyObject *args) {
    lake_object *self = as_lake(object);
    number_argument size = {"size", 0}, stream = {"stream", 0};
    if (!PyArg_ParseTuple(args, "O&O&:open_elastic", NUMBER(size), NUMBER(stream))) {
        return NULL;
    }
    gml_address address = 0;
    LAKE_CALL(self, gml_lake_open_elastic(lake, size.value, stream.value, &address));
    return lake_end_number(self, lake, status, address);
}

static PyObject *lake_resize_elastic(PyObject *object, PyObject *args) {
    lake_object *self = as_lake(object);
    number_argument address = {"address", 0}, size = {"size", 0}, ahead = {"ahead", 0};
    int is_final = 1;
    if (!PyArg_ParseTuple(args, "O&O&O&|p:resize_elastic", NUMBER(address), NUMBER(size),
                          NUMBER(ahead), &is_final)) {
        return NULL;
    }
    uint64_t memory = 0;
    LAKE_CALL(self, (is_final ? gml_lake_resize_elastic : gml_lake_try_elastic)(
                        lake, address.value, size.value, ahead.value, &memory));
    return lake_end_number(self, lake, status, memory);
}

static PyObject *lake_close_elastic(PyObject *object, PyObject *number) {
    READ_ADDRESS(object, number)
    LAKE_CALL(self, gml_lake_close_elastic(lake, address));
    return lake_end(self, lake, status);
}

static const number_field elastic_fields[] = {
    NUMBER_FIELD(gml_elastic_info, address),
    NUMBER_FIELD(gml_elastic_info, size_bytes),
    NUMBER_FIELD(gml_elastic_info, memory_bytes),
    NUMBER_FIELD(gml_elastic_info, chunk_bytes),
    {NULL, 0},
};

static PyObject *lake_describe_elastic(PyObject *object, PyObject *number) {
    READ_ADDRESS(object, number)
    gml_elastic_info info = {0};
    LAKE_CALL(self, gml_lake_elastic(lake, address, &info));
    if (status != GML_OK) {
        return lake_end(self, lake, status);
    }
    lake_leave(self);
    return fields_dict(&info, elastic_fields);
}

static PyObject *lake_elastic_bytes(PyObject *object, PyObject *number) {
    READ_ADDRESS(object, number)
    void *bytes = NULL;
    LAKE_CALL(self, gml_lake_elastic_bytes(lake, address, &bytes));
    return lake_end_number(self, lake, status, (uint64_t)(uintptr_t)bytes);
}

/* ---- the type -------------------------------------------------------------------------------- */

static PyMethodDef lake_methods[] = {
    KEYWORD_METHOD(
        lake, allocate, "($self, /, size, stream=0)",
        "Allocate `size` bytes for use on `stream` (its handle as an integer); return a Block.\n\n"
        "Size 0 gives an empty Block with address 0. Raises OutOfMemoryError\n"
        "after everything was tried, ValueError for a size above 2**48, DriverError."),
    METHOD(lake, free, METH_O, "($self, block, /)",
           "Free a Block, or the block at an address; any thread may do so.\n\n"
           "Raises ValueError for a foreign block or one freed before, BufferError while a\n"
           "buffer of it is in use. Address 0 is allowed."),
    METHOD(lake, trim, METH_NOARGS, "($self, /)",
           "Release idle memory to the driver; return the number of bytes."),
    METHOD(lake, check, METH_NOARGS, "($self, /)",
           "Check every invariant of the lake; raises Error if one is broken."),
    METHOD(lake, reset_peaks, METH_NOARGS, "($self, /)",
           "Reset the peaks of stats() to the current values."),
    METHOD(lake, stats, METH_NOARGS, "($self, /)",
           "Return counters as a dict; sizes in bytes, driver_time_ns in ns."),
    METHOD(lake, torch_stats, METH_NOARGS, "($self, /)",
           "Return what torch.cuda.memory_stats() would, by the same names.\n\n"
           "Raises UnsupportedError for a policy that keeps no such statistics."),
    METHOD(
        lake, spans, METH_NOARGS, "($self, /)",
        "Return the memory held as a list of dicts, one per contiguous span.\n\n"
        "Each has address, size, used, stream, is_small, is_view; pool: the private pool, as two\n"
        "numbers, (0, 0) for none; kind: \"segment\", \"base\" or \"view\"; ranges: a list of\n"
        "(address, size, requested_size, is_used) that tile the span; pieces: where the bytes of\n"
        "a view lie in the base range, a list of (address, base_address, size) that tile it, else\n"
        "empty."),
    METHOD(lake, stream_pairs, METH_NOARGS, "($self, /)",
           "Return what each pair of streams lent each other, as an unordered list of dicts;\n"
           "sizes in bytes."),
    KEYWORD_METHOD(
        lake, record_stream, "($self, /, block, stream)",
        "Declare that work on another stream uses a live Block, or the block at an address.\n\n"
        "Once freed, its memory is not reused before the work queued on that stream at the\n"
        "free has run. Raises ValueError for a foreign block or one freed before."),
    METHOD(lake, keep_history, METH_O, "($self, max_events, /)",
           "Keep the last `max_events` events and forget earlier ones; 0 stops.\n\n"
           "Allocates REQUEST_BYTES of host memory for each, at once."),
    METHOD(lake, history, METH_NOARGS, "($self, /)",
           "Return the kept events, oldest first, as bytes of REQUEST_BYTES each, in the layout\n"
           "of a trace; and the number of events since keep_history()."),
    METHOD(lake, publish, METH_O, "($self, name, /)",
           "Have the process tell others of this user the lake's counters, see\n"
           "torch_publish()."),
    METHOD(lake, saved, METH_VARARGS, "($self, address, size, /)",
           "Return the host address of the backup of that part of a sleeping block, valid until\n"
           "it wakes; None if it has none."),
    METHOD(lake, forget_saved, METH_NOARGS, "($self, /)",
           "Free the host memory kept for the next sleep."),
    METHOD(lake, count_chunks, METH_O, "($self, address, /)",
           "Return in how many chunks the live block at an address lies. Raises ValueError for\n"
           "another address, UnsupportedError where its memory is not made up of chunks."),
    METHOD(lake, open_elastic, METH_VARARGS, "($self, size, stream, /)",
           "Reserve addresses for an elastic buffer of `size` bytes; return where it begins.\n\n"
           "Raises UnsupportedError for a policy that has no chunks to give, ValueError for a\n"
           "size that is none, OutOfMemoryError, DriverError."),
    METHOD(lake, resize_elastic, METH_VARARGS, "($self, address, size, ahead, is_final=True, /)",
           "Let an elastic buffer have memory for its first `size` bytes, and where it grows for\n"
           "`ahead` more if that needs nothing from others; return the bytes that it has.\n"
           "A lack of memory counts as a refusal only where is_final is true.\n\n"
           "Raises ValueError for another address or a size above the buffer's, OutOfMemoryError,\n"
           "UnsupportedError for growing while a graph is captured or the lake is asleep,\n"
           "DriverError; then it is as before."),
    METHOD(lake, close_elastic, METH_O, "($self, address, /)",
           "End an elastic buffer. Raises ValueError for another address."),
    METHOD(lake, describe_elastic, METH_O, "($self, address, /)",
           "Describe an elastic buffer as a dict: address, size_bytes, memory_bytes,\n"
           "chunk_bytes. Raises ValueError for another address."),
    METHOD(lake, elastic_bytes, METH_O, "($self, address, /)",
           "Return where the host finds the memory of an elastic buffer, on the driver `host`."),
    METHOD(lake, mark, METH_NOARGS, "($self, /)",
           "A step boundary, for policies that know of steps; nothing on any other."),
    METHOD(lake, close, METH_NOARGS, "($self, /)",
           "Return everything to the driver; live blocks become invalid. A second call does\n"
           "nothing. Waits for calls of other threads. Raises BufferError while a buffer of a\n"
           "block is in use. Does nothing on a lake below PyTorch, see torch_lake()."),
    {"__enter__", lake_enter_context, METH_NOARGS, NULL},
    {"__exit__", lake_exit_context, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyObject *lake_get_arena(PyObject *object, void *Py_UNUSED(closure)) {
    lake_object *self = as_lake(object);
    gml_address address = 0;
    uint64_t size_bytes = 0;
    LAKE_CALL(self, gml_lake_arena(lake, &address, &size_bytes));
    lake_leave(self);
    if (status != GML_OK) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(KK)", (unsigned long long)address, (unsigned long long)size_bytes);
}

static PyObject *lake_get_device_name(PyObject *object, void *Py_UNUSED(closure)) {
    lake_object *self = as_lake(object);
    gml_lake *lake = lake_enter(self);
    if (!lake) {
        return NULL;
    }
    gml_device_info info;
    gml_lake_device(lake, &info);
    lake_leave(self);
    return PyUnicode_DecodeUTF8(info.name, (Py_ssize_t)strlen(info.name), "replace");
}

static PyGetSetDef lake_getset[] = {
    {"arena", lake_get_arena, NULL,
     "The one allocation that serves this lake, (address, bytes), where the setting arena or a "
     "device without virtual memory management made one; else None.",
     NULL},
    {"closed", lake_get_closed, NULL, "Whether close() was called.", NULL},
    {"device_name", lake_get_device_name, NULL,
     "What the device is called; of driver 'sim', the device whose costs it models.", NULL},
    {"is_asleep", lake_get_asleep, NULL, "Whether sleep() was called, and not wake() since.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(lake_doc,
             "Lake(driver='sim', policy='stitch', capacity=0, device=0, settings=(),\n"
             "     can_sleep=False)\n--\n\n"
             "One device's memory under one policy. gmlake.Lake is the same with units and names.");

static PyType_Slot lake_slots[] = {
    {Py_tp_doc, (void *)lake_doc},
    {Py_tp_new, lake_new},
    {Py_tp_dealloc, lake_dealloc},
    {Py_tp_traverse, lake_traverse},
    {Py_tp_methods, lake_methods},
    {Py_tp_getset, lake_getset},
    {0, NULL},
};

PyType_Spec lake_spec = {
    .name = "gmlake._core.Lake",
    .basicsize = sizeof(lake_object),
    .flags =
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = lake_slots,
};
