/* The type Lake: one open lake, kept open while a thread is inside a call on it. */
#include "core.h"
#include "gmlake_share.h"
#include "torch/publish.h"

#include <string.h>

static lake_object *as_lake(PyObject *self) {
    return (lake_object *)self;
}

bool lake_is_inherited(const lake_object *self) {
    return self->forks != count_forks();
}

bool lake_lock(lake_object *self) {
    return !lake_is_inherited(self) && pthread_mutex_lock(&self->guard) == 0;
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
    if (self->state && !lake_is_inherited(self)) {
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

PyObject *lake_answer(lake_object *self, gml_lake *lake, gml_status status) {
    return status == GML_OK ? Py_NewRef(Py_None) : raise_from_lake(self->state, status, lake);
}

PyObject *lake_end(lake_object *self, gml_lake *lake, gml_status status) {
    PyObject *result = lake_answer(self, lake, status);
    lake_leave(self);
    return result;
}

PyObject *lake_end_number(lake_object *self, gml_lake *lake, gml_status status, uint64_t number) {
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
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O&|O&:allocate", names, convert_number, &size,
                                     convert_number, &stream)) {
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

bool lake_read_block(const lake_object *self, PyObject *object, block_object **block,
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
    if (lake_read_block(self, victim, &block, &address) && retire(self, block, address)) {
        result = lake_answer(self, lake, free_without_gil(lake, address));
    }
    lake_leave(self);
    return result;
}

/* ---- the rest -------------------------------------------------------------------------------- */

static PyObject *lake_trim(PyObject *object, PyObject *Py_UNUSED(unused)) {
    lake_object *self = as_lake(object);
    uint64_t released = 0;
    LAKE_CALL(self, gml_lake_trim(lake, &released));
    return lake_end_number(self, lake, status, released);
}

PyObject *lake_call(PyObject *object, gml_status (*call)(gml_lake *)) {
    lake_object *self = as_lake(object);
    LAKE_CALL(self, call(lake));
    return lake_end(self, lake, status);
}

PyObject *lake_call_number(PyObject *object, PyObject *value, const char *name,
                           lake_number_call call) {
    lake_object *self = as_lake(object);
    uint64_t number = 0;
    if (!read_number(value, name, &number)) {
        return NULL;
    }
    LAKE_CALL(self, call(lake, number));
    return lake_end(self, lake, status);
}

static PyObject *lake_mark(PyObject *object, PyObject *Py_UNUSED(unused)) {
    return lake_call(object, gml_lake_mark);
}

static PyObject *lake_check(PyObject *object, PyObject *Py_UNUSED(unused)) {
    return lake_call(object, gml_lake_check);
}

static PyObject *lake_reset_peaks(PyObject *object, PyObject *Py_UNUSED(unused)) {
    return lake_call(object, gml_lake_reset_peaks);
}

static PyObject *report(lake_object *self, PyObject *(*call)(const core_state *, gml_lake *)) {
    gml_lake *lake = lake_enter(self);
    if (!lake) {
        return NULL;
    }
    PyObject *result = call(self->state, lake);
    lake_leave(self);
    return result;
}

static PyObject *lake_stats(PyObject *object, PyObject *Py_UNUSED(unused)) {
    return report(as_lake(object), report_stats);
}

static PyObject *lake_torch_stats(PyObject *object, PyObject *Py_UNUSED(unused)) {
    return report(as_lake(object), report_torch_stats);
}

static PyObject *lake_spans(PyObject *object, PyObject *Py_UNUSED(unused)) {
    return report(as_lake(object), report_spans);
}

PyDoc_STRVAR(
    allocate_doc,
    "allocate($self, /, size, stream=0)\n--\n\n"
    "Allocate `size` bytes for use on `stream` (its handle as an integer); return a Block.\n\n"
    "Size 0 gives an empty Block with address 0. Raises OutOfMemoryError\n"
    "after everything was tried, ValueError for a size above 2**48, DriverError.");
PyDoc_STRVAR(free_doc,
             "free($self, block, /)\n--\n\n"
             "Free a Block, or the block at an address; any thread may do so.\n\n"
             "Raises ValueError for a foreign block or one freed before, BufferError while a\n"
             "buffer of it is in use. Address 0 is allowed.");
PyDoc_STRVAR(trim_doc, "trim($self, /)\n--\n\n"
                       "Release idle memory to the driver; return the number of bytes.");
PyDoc_STRVAR(check_doc, "check($self, /)\n--\n\n"
                        "Check every invariant of the lake; raises Error if one is broken.");
PyDoc_STRVAR(reset_peaks_doc, "reset_peaks($self, /)\n--\n\n"
                              "Reset the peaks of stats() to the current values.");
PyDoc_STRVAR(stats_doc, "stats($self, /)\n--\n\n"
                        "Return counters as a dict; sizes in bytes, driver_time_ns in ns.");
PyDoc_STRVAR(torch_stats_doc,
             "torch_stats($self, /)\n--\n\n"
             "Return what torch.cuda.memory_stats() would, by the same names.\n\n"
             "Raises UnsupportedError for a policy that keeps no such statistics.");
PyDoc_STRVAR(
    spans_doc,
    "spans($self, /)\n--\n\n"
    "Return the memory held as a list of dicts, one per contiguous span.\n\n"
    "Each has address, size, used, stream, is_small, is_view; pool: the private pool, as two\n"
    "numbers, (0, 0) for none; kind: \"segment\", \"base\" or \"view\"; ranges: a list of\n"
    "(address, size, requested_size, is_used) that tile the span; pieces: where the bytes of\n"
    "a view lie in the base range, a list of (address, base_address, size) that tile it, else\n"
    "empty.");
PyDoc_STRVAR(close_doc,
             "close($self, /)\n--\n\n"
             "Return everything to the driver; live blocks become invalid. A second call does\n"
             "nothing. Waits for calls of other threads. Raises BufferError while a buffer of a\n"
             "block is in use. Does nothing on a lake below PyTorch, see torch_lake().");
PyDoc_STRVAR(
    record_stream_doc,
    "record_stream($self, /, block, stream)\n--\n\n"
    "Declare that work on another stream uses a live Block, or the block at an address.\n\n"
    "Once freed, its memory is not reused before the work queued on that stream at the\n"
    "free has run. Raises ValueError for a foreign block or one freed before.");
PyDoc_STRVAR(stream_pairs_doc,
             "stream_pairs($self, /)\n--\n\n"
             "Return what each pair of streams lent each other, as an unordered list of dicts;\n"
             "sizes in bytes.");
PyDoc_STRVAR(begin_pool_doc,
             "begin_pool($self, first, second, /)\n--\n\n"
             "Serve capturing streams from a private pool from now on, created if necessary; one\n"
             "more use of it. The two numbers are PyTorch's id of the pool.");
PyDoc_STRVAR(end_pool_doc, "end_pool($self, first, second, /)\n--\n\n"
                           "End begin_pool(). Raises ValueError for a pool that has not begun.");
PyDoc_STRVAR(release_pool_doc,
             "release_pool($self, first, second, /)\n--\n\n"
             "End one use of a pool; after the last one its idle memory is released.\n\n"
             "Raises ValueError for a pool without a use.");
PyDoc_STRVAR(keep_history_doc,
             "keep_history($self, max_events, /)\n--\n\n"
             "Keep the last `max_events` events and forget earlier ones; 0 stops.\n\n"
             "Allocates REQUEST_BYTES of host memory for each, at once.");
PyDoc_STRVAR(history_doc,
             "history($self, /)\n--\n\n"
             "Return the kept events, oldest first, as bytes of REQUEST_BYTES each, in the layout\n"
             "of a trace; and the number of events since keep_history().");
PyDoc_STRVAR(publish_doc, "publish($self, name, /)\n--\n\n"
                          "Have the process tell others of this user the lake's counters, see\n"
                          "torch_publish().");
PyDoc_STRVAR(saved_doc,
             "saved($self, address, size, /)\n--\n\n"
             "Return the host address of the backup of that part of a sleeping block, valid until\n"
             "it wakes; None if it has none.");
PyDoc_STRVAR(forget_saved_doc, "forget_saved($self, /)\n--\n\n"
                               "Free the host memory kept for the next sleep.");
PyDoc_STRVAR(mark_doc, "mark($self, /)\n--\n\n"
                       "A step boundary, for policies that know of steps; nothing on any other.");

static PyMethodDef lake_methods[] = {
    {"allocate", (PyCFunction)(void (*)(void))lake_allocate, METH_VARARGS | METH_KEYWORDS,
     allocate_doc},
    {"free", lake_free, METH_O, free_doc},
    {"trim", lake_trim, METH_NOARGS, trim_doc},
    {"check", lake_check, METH_NOARGS, check_doc},
    {"reset_peaks", lake_reset_peaks, METH_NOARGS, reset_peaks_doc},
    {"stats", lake_stats, METH_NOARGS, stats_doc},
    {"torch_stats", lake_torch_stats, METH_NOARGS, torch_stats_doc},
    {"spans", lake_spans, METH_NOARGS, spans_doc},
    {"stream_pairs", lake_stream_pairs, METH_NOARGS, stream_pairs_doc},
    {"record_stream", (PyCFunction)(void (*)(void))lake_record_stream, METH_VARARGS | METH_KEYWORDS,
     record_stream_doc},
    {"begin_pool", lake_begin_pool, METH_VARARGS, begin_pool_doc},
    {"end_pool", lake_end_pool, METH_VARARGS, end_pool_doc},
    {"release_pool", lake_release_pool, METH_VARARGS, release_pool_doc},
    {"keep_history", lake_keep_history, METH_O, keep_history_doc},
    {"history", lake_history, METH_NOARGS, history_doc},
    {"publish", lake_publish, METH_O, publish_doc},
    {"saved", lake_saved, METH_VARARGS, saved_doc},
    {"forget_saved", lake_forget_saved, METH_NOARGS, forget_saved_doc},
    {"count_chunks", lake_count_chunks, METH_O, lake_count_chunks_doc},
    {"open_elastic", lake_open_elastic, METH_VARARGS, lake_open_elastic_doc},
    {"resize_elastic", lake_resize_elastic, METH_VARARGS, lake_resize_elastic_doc},
    {"close_elastic", lake_close_elastic, METH_O, lake_close_elastic_doc},
    {"describe_elastic", lake_elastic, METH_O, lake_elastic_doc},
    {"elastic_bytes", lake_elastic_bytes, METH_O, lake_elastic_bytes_doc},
    {"mark", lake_mark, METH_NOARGS, mark_doc},
    {"close", lake_close, METH_NOARGS, close_doc},
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
