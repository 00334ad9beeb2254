/* The functions torch_*: the lakes below PyTorch, and the addresses of what PyTorch calls. */
#include "core.h"
#include "gmlake_torch.h"

#include <pthread.h>
#include <stdlib.h>

static PyObject *torch_configure(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"driver", "policy", "capacity", "settings", "handle_type", NULL};
    core_state *state = PyModule_GetState(module);
    gml_lake_config config = {.hooks = state->hooks};
    number_argument capacity = {"capacity", 0}, handle_type = {"handle_type", 0};
    PyObject *settings = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "ss|O&O!O&:torch_configure", names,
                                     &config.driver, &config.policy, NUMBER(capacity),
                                     &PyTuple_Type, &settings, NUMBER(handle_type))) {
        return NULL;
    }
    if (handle_type.value > UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "handle_type must be below 2**32");
        return NULL;
    }
    gml_setting *read = settings ? read_settings(settings, &config.setting_count) : NULL;
    if (settings && !read) {
        return NULL;
    }
    config.settings = read;
    config.capacity_bytes = capacity.value;
    config.handle_type = (unsigned)handle_type.value;
    REASON_CALL(gml_torch_configure(&config, reason, sizeof reason));
    free(read);
    return answer(state, status, reason);
}

static PyObject *torch_note_refusals(PyObject *module, PyObject *text) {
    (void)module;
    const char *utf8 = PyUnicode_AsUTF8AndSize(text, NULL);
    if (!utf8) {
        return NULL;
    }
    gml_torch_note_refusals(utf8);
    Py_RETURN_NONE;
}

/* ---- relief ---------------------------------------------------------------------------------- */

static pthread_mutex_t reliever_lock = PTHREAD_MUTEX_INITIALIZER;
static PyObject
    *reliever; /* what torch_set_relief() was told, NULL for None; guarded by the lock */

/* Puts another one in its place and returns what was there, which belongs to the caller. */
static PyObject *exchange_reliever(PyObject *chosen) {
    pthread_mutex_lock(&reliever_lock);
    PyObject *before = reliever;
    reliever = chosen;
    pthread_mutex_unlock(&reliever_lock);
    return before;
}

static PyObject *hold_reliever(void) {
    pthread_mutex_lock(&reliever_lock);
    PyObject *asked = reliever;
    Py_XINCREF(asked);
    pthread_mutex_unlock(&reliever_lock);
    return asked;
}

/* A failure counts as no relief. Ctrl-C is passed on to the main thread: the allocator has no way
 * to raise it. */
static bool hear_failure(PyObject *asked) {
    if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
        PyErr_Clear();
        PyErr_SetInterrupt();
    } else {
        PyErr_WriteUnraisable(asked);
    }
    return false;
}

static bool relieve(int device, uint64_t size_bytes) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *asked = hold_reliever();
    bool is_given = false;
    if (asked) {
        PyObject *answer =
            PyObject_CallFunction(asked, "iK", device, (unsigned long long)size_bytes);
        int truth = answer ? PyObject_IsTrue(answer) : -1;
        is_given = truth < 0 ? hear_failure(asked) : truth;
        Py_XDECREF(answer);
        Py_DECREF(asked);
    }
    PyGILState_Release(state);
    return is_given;
}

static PyObject *torch_set_relief(PyObject *module, PyObject *asked) {
    (void)module;
    PyObject *chosen = asked == Py_None ? NULL : asked;
    gml_torch_set_relief(NULL);
    Py_XINCREF(chosen);
    Py_XDECREF(exchange_reliever(chosen));
    gml_torch_set_relief(chosen ? relieve : NULL);
    Py_RETURN_NONE;
}

/* ---- lakes ----------------------------------------------------------------------------------- */

static PyObject *torch_fallback(PyObject *Py_UNUSED(module), PyObject *args) {
    int device;
    if (!PyArg_ParseTuple(args, "i:torch_fallback", &device)) {
        return NULL;
    }
    char reason[REASON_BYTES] = "";
    Py_BEGIN_ALLOW_THREADS
    gml_torch_fallback(device, reason, sizeof reason);
    Py_END_ALLOW_THREADS
    return PyUnicode_FromString(reason);
}

static PyObject *torch_lake(PyObject *module, PyObject *args) {
    core_state *state = PyModule_GetState(module);
    PyObject *kind = NULL;
    int device;
    if (!PyArg_ParseTuple(args, "Oi:torch_lake", &kind, &device)) {
        return NULL;
    }
    if (!is_lake_kind(state, kind)) {
        return NULL;
    }
    gml_lake *lake = gml_torch_lake(device);
    if (!lake) {
        Py_RETURN_NONE;
    }
    return lake_borrow(state, kind, lake);
}

static PyObject *torch_devices(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    PyObject *list = PyList_New(0);
    for (int device = 0; list && device < GML_TORCH_DEVICES; device++) {
        list = gml_torch_lake(device) ? with_item(list, PyLong_FromLong(device)) : list;
    }
    return as_tuple(list);
}

/* Functions that say one thing of this thread. */
#define ANSWER(name, value)                                                                        \
    static PyObject *name(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {              \
        return value;                                                                              \
    }
ANSWER(torch_region, PyLong_FromLong(gml_torch_region().number))
ANSWER(torch_turn, PyLong_FromUnsignedLongLong(gml_torch_turn()))
ANSWER(torch_last_graph, PyLong_FromUnsignedLongLong(gml_last_graph()))
ANSWER(torch_has_entered, PyBool_FromLong(gml_torch_has_entered()))
#undef ANSWER

static PyObject *torch_spoil_graph(PyObject *module, PyObject *args) {
    number_argument graph = {"graph", 0}, stream = {"stream", 0};
    if (!PyArg_ParseTuple(args, "O&O&:torch_spoil_graph", NUMBER(graph), NUMBER(stream))) {
        return NULL;
    }
    REASON_CALL(gml_torch_spoil_graph(graph.value, stream.value, reason, sizeof reason));
    return answer(PyModule_GetState(module), status, reason);
}

static PyObject *torch_region_lakes(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    PyObject *list = PyList_New(0);
    for (int number = GML_TORCH_DEVICES; list && gml_torch_lake(number); number++) {
        list = with_item(list, Py_BuildValue("(iii)", number, gml_torch_region_of(number).number,
                                             gml_torch_device_of(number)));
    }
    return list;
}

static PyObject *torch_set_margin(PyObject *Py_UNUSED(module), PyObject *size) {
    uint64_t margin_bytes;
    if (!read_number(size, "size", &margin_bytes)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    gml_torch_set_margin(margin_bytes);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* ---- processes that share a device ----------------------------------------------------------- */

static PyObject *torch_share(PyObject *module, PyObject *args) {
    int device, priority;
    const char *name;
    number_argument weight = {"weight", 0};
    if (!PyArg_ParseTuple(args, "isiO&:torch_share", &device, &name, &priority, NUMBER(weight))) {
        return NULL;
    }
    if (weight.value > UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "weight must be below 2**32");
        return NULL;
    }
    REASON_CALL(
        gml_torch_share(device, name, priority, (uint32_t)weight.value, reason, sizeof reason));
    return answer(PyModule_GetState(module), status, reason);
}

static PyObject *torch_unshare(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    Py_BEGIN_ALLOW_THREADS
    gml_torch_unshare();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* Has other processes asked for memory, as `ask` does; whether they gave any. */
static PyObject *ask_others(PyObject *args, const char *format,
                            bool (*ask)(int device, uint64_t size_bytes)) {
    int device;
    number_argument size = {"size", 0};
    bool is_given;
    if (!PyArg_ParseTuple(args, format, &device, NUMBER(size))) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    is_given = ask(device, size.value);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(is_given);
}

static bool ask_for_lake(int device, uint64_t size_bytes) {
    return gml_torch_ask_neighbours(device, size_bytes, true);
}

static PyObject *torch_ask_neighbours(PyObject *Py_UNUSED(module), PyObject *args) {
    return ask_others(args, "iO&:torch_ask_neighbours", ask_for_lake);
}

static PyObject *torch_make_room(PyObject *Py_UNUSED(module), PyObject *args) {
    return ask_others(args, "iO&:torch_make_room", gml_torch_make_room);
}

static PyObject *list_of(const gml_torch_neighbour *others, size_t count) {
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < count; i++) {
        const gml_torch_neighbour *one = &others[i];
        list = with_item(list, Py_BuildValue("(iiKKs)", one->process, (int)one->priority,
                                             (unsigned long long)one->held_bytes,
                                             (unsigned long long)one->idle_bytes,
                                             one->is_stopped  ? "stopped"
                                             : one->is_silent ? "no answer"
                                                              : ""));
    }
    return list;
}

static PyObject *torch_look_at(PyObject *Py_UNUSED(module), PyObject *args) {
    const char *name;
    gml_torch_neighbour others[GML_SHARE_PLACES];
    size_t count = 0;
    if (!PyArg_ParseTuple(args, "s:torch_look_at", &name)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    count = gml_torch_look_at(name, others);
    Py_END_ALLOW_THREADS
    return list_of(others, count);
}

static PyObject *torch_neighbours(PyObject *Py_UNUSED(module), PyObject *args) {
    int device;
    gml_torch_neighbour others[GML_SHARE_PLACES];
    size_t count = 0;
    if (!PyArg_ParseTuple(args, "i:torch_neighbours", &device)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    count = gml_torch_neighbours(device, others);
    Py_END_ALLOW_THREADS
    return list_of(others, count);
}

static PyObject *torch_sharing(PyObject *Py_UNUSED(module), PyObject *args) {
    int device;
    gml_torch_shared shared;
    if (!PyArg_ParseTuple(args, "i:torch_sharing", &device)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    gml_torch_sharing(device, &shared);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("{s:O,s:K,s:K,s:K,s:K,s:s}", "is_shared",
                         shared.is_shared ? Py_True : Py_False, "given_bytes",
                         (unsigned long long)shared.given_bytes, "taken_bytes",
                         (unsigned long long)shared.taken_bytes, "handed_bytes",
                         (unsigned long long)shared.handed_bytes, "longest_ns",
                         (unsigned long long)shared.longest_ns, "why", shared.why);
}

/* ---- the table ------------------------------------------------------------------------------- */

PyMethodDef torch_methods[] = {
    KEYWORD_FUNCTION(
        torch_configure, "(driver, policy, capacity=0, settings=(), handle_type=0)",
        "Say how the lakes below PyTorch are opened from now on.\n\n"
        "Sizes in bytes; handle_type is 0 or the CUmemAllocationHandleType that memory shall\n"
        "be exportable as. Raises ValueError for an unknown policy or setting, and once a\n"
        "lake is open, unless nothing would change."),
    FUNCTION(torch_note_refusals, METH_O, "(text, /)",
             "Let the text of a refusal name this as the place to look at; \"\" for none."),
    FUNCTION(torch_set_relief, METH_O, "(asked, /)",
             "Let asked(device, size) be called before a request of that size is refused, in the\n"
             "thread that allocates; while it returns True, the request is served again. None:\n"
             "nothing is called. Exceptions count as False."),
    FUNCTION(torch_fallback, METH_VARARGS, "(device, /)",
             "Return why that device's lake serves as \"caching\" and not by the configured\n"
             "policy; \"\" where it is as configured or not open."),
    FUNCTION(torch_lake, METH_VARARGS, "(kind, device, /)",
             "Return the lake of a device below PyTorch as an object of `kind`, which is Lake or\n"
             "a subclass; None while it is not open. Its close() does nothing."),
    FUNCTION(torch_devices, METH_NOARGS, "()",
             "Return the devices with an open lake as a tuple, in ascending order."),
    FUNCTION(torch_region, METH_NOARGS, "()",
             "Return the number of the region that this thread is in, see Inside; 0: none."),
    FUNCTION(torch_turn, METH_NOARGS, "()",
             "Return the number of the turn of this thread's graphs, see Turn; 0: none."),
    FUNCTION(torch_last_graph, METH_NOARGS, "()",
             "Return the number of the graph that takes turns whose capture this thread ended\n"
             "last; 0: none, or that capture took no turn, failed, or asked for no memory."),
    FUNCTION(torch_spoil_graph, METH_VARARGS, "(graph, stream, /)",
             "Overwrite the temporary memory of that graph with bytes of 0xFF, as work of the\n"
             "stream. Raises ValueError for a graph that is gone, UnsupportedError during a\n"
             "capture, DriverError."),
    FUNCTION(torch_has_entered, METH_NOARGS, "()", "Whether any thread is inside of an Inside."),
    FUNCTION(torch_region_lakes, METH_NOARGS, "()",
             "Return (number, region, device) of each open lake of a region; see torch_lake()."),
    FUNCTION(torch_set_margin, METH_O, "(size, /)",
             "Let the lakes of all regions, open now or later, take no more memory where the\n"
             "device would have less than `size` bytes left; 0: whatever is left."),
    FUNCTION(torch_share, METH_VARARGS, "(device, name, priority, weight, /)",
             "Share a device with the processes of this user that share it by the same name.\n\n"
             "Raises ValueError for bad terms and UnsupportedError where it cannot begin."),
    FUNCTION(torch_unshare, METH_NOARGS, "()", "Share no device any more."),
    FUNCTION(torch_ask_neighbours, METH_VARARGS, "(device, size, /)",
             "Ask the processes that share a device for what it lacks for `size` bytes of a\n"
             "lake, and return whether they gave any."),
    FUNCTION(torch_make_room, METH_VARARGS, "(device, size, /)",
             "Have the processes that share a device give `size` bytes, and return whether they\n"
             "gave any."),
    FUNCTION(torch_sharing, METH_VARARGS, "(device, /)",
             "Return how a device is shared, see gml_torch_shared."),
    FUNCTION(torch_neighbours, METH_VARARGS, "(device, /)",
             "Ask the processes that share a device what they have, see gml_torch_neighbour."),
    FUNCTION(torch_look_at, METH_VARARGS, "(name, /)",
             "Ask all processes that share a device by that name, see gml_torch_neighbour."),
    {NULL, NULL, 0, NULL},
};
