/* The functions torch_*: the lakes below PyTorch, and the addresses of what PyTorch calls. */
#include "core.h"
#include "gmlake_torch.h"

#include <pthread.h>
#include <stdlib.h>

static PyObject *torch_configure(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"driver", "policy", "capacity", "settings", "handle_type", NULL};
    core_state *state = PyModule_GetState(module);
    gml_lake_config config = {.hooks = state->hooks};
    number_argument capacity = {"capacity", 0};
    number_argument handle_type = {"handle_type", 0};
    PyObject *settings = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "ss|O&O!O&:torch_configure", names,
                                     &config.driver, &config.policy, convert_number, &capacity,
                                     &PyTuple_Type, &settings, convert_number, &handle_type)) {
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
    char reason[REASON_BYTES] = "";
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_torch_configure(&config, reason, sizeof reason);
    Py_END_ALLOW_THREADS
    free(read);
    if (status != GML_OK) {
        return raise_status(state, status, reason);
    }
    Py_RETURN_NONE;
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
        PyObject *number = gml_torch_lake(device) ? PyLong_FromLong(device) : NULL;
        bool has_failed = PyErr_Occurred() || (number && PyList_Append(list, number) < 0);
        Py_XDECREF(number);
        if (has_failed) {
            Py_CLEAR(list);
        }
    }
    PyObject *result = list ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return result;
}

static PyObject *torch_region(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    return PyLong_FromLong(gml_torch_region().number);
}

static PyObject *torch_turn(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    return PyLong_FromUnsignedLongLong(gml_torch_turn());
}

static PyObject *torch_last_graph(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    return PyLong_FromUnsignedLongLong(gml_last_graph());
}

static PyObject *torch_spoil_graph(PyObject *module, PyObject *args) {
    number_argument graph = {"graph", 0};
    number_argument stream = {"stream", 0};
    if (!PyArg_ParseTuple(args, "O&O&:torch_spoil_graph", convert_number, &graph, convert_number,
                          &stream)) {
        return NULL;
    }
    char reason[REASON_BYTES] = "";
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_torch_spoil_graph(graph.value, stream.value, reason, sizeof reason);
    Py_END_ALLOW_THREADS
    if (status != GML_OK) {
        return raise_status(PyModule_GetState(module), status, reason);
    }
    Py_RETURN_NONE;
}

static PyObject *torch_has_entered(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    return PyBool_FromLong(gml_torch_has_entered());
}

static PyObject *torch_region_lakes(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    PyObject *list = PyList_New(0);
    for (int number = GML_TORCH_DEVICES; list && gml_torch_lake(number); number++) {
        PyObject *pair = Py_BuildValue("(iii)", number, gml_torch_region_of(number).number,
                                       gml_torch_device_of(number));
        bool has_failed = !pair || PyList_Append(list, pair) < 0;
        Py_XDECREF(pair);
        if (has_failed) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *torch_set_margin(PyObject *Py_UNUSED(module), PyObject *size) {
    number_argument margin = {"size", 0};
    if (!convert_number(size, &margin)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    gml_torch_set_margin(margin.value);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* ---- the table ------------------------------------------------------------------------------- */

PyDoc_STRVAR(configure_doc,
             "torch_configure(driver, policy, capacity=0, settings=(), handle_type=0)\n--\n\n"
             "Say how the lakes below PyTorch are opened from now on.\n\n"
             "Sizes in bytes; handle_type is 0 or the CUmemAllocationHandleType that memory shall\n"
             "be exportable as. Raises ValueError for an unknown policy or setting, and once a\n"
             "lake is open, unless nothing would change.");
PyDoc_STRVAR(note_refusals_doc,
             "torch_note_refusals(text, /)\n--\n\n"
             "Let the text of a refusal name this as the place to look at; \"\" for none.");
PyDoc_STRVAR(set_relief_doc,
             "torch_set_relief(asked, /)\n--\n\n"
             "Let asked(device, size) be called before a request of that size is refused, in the\n"
             "thread that allocates; while it returns True, the request is served again. None:\n"
             "nothing is called. Exceptions count as False.");
PyDoc_STRVAR(fallback_doc,
             "torch_fallback(device, /)\n--\n\n"
             "Return why that device's lake serves as \"caching\" and not by the configured\n"
             "policy; \"\" where it is as configured or not open.");
PyDoc_STRVAR(lake_doc,
             "torch_lake(kind, device, /)\n--\n\n"
             "Return the lake of a device below PyTorch as an object of `kind`, which is Lake or\n"
             "a subclass; None while it is not open. Its close() does nothing.");
PyDoc_STRVAR(devices_doc, "torch_devices()\n--\n\n"
                          "Return the devices with an open lake as a tuple, in ascending order.");
PyDoc_STRVAR(region_doc, "torch_region()\n--\n\n"
                         "Return the number of the region that this thread is in, see Inside; 0: "
                         "none.");
PyDoc_STRVAR(turn_doc, "torch_turn()\n--\n\n"
                       "Return the number of the turn of this thread's graphs, see Turn; 0: none.");
PyDoc_STRVAR(last_graph_doc,
             "torch_last_graph()\n--\n\n"
             "Return the number of the graph that takes turns whose capture this thread ended\n"
             "last; 0: none, or that capture took no turn, failed, or asked for no memory.");
PyDoc_STRVAR(spoil_graph_doc,
             "torch_spoil_graph(graph, stream, /)\n--\n\n"
             "Overwrite the temporary memory of that graph with bytes of 0xFF, as work of the\n"
             "stream. Raises ValueError for a graph that is gone, UnsupportedError during a\n"
             "capture, DriverError.");
PyDoc_STRVAR(has_entered_doc, "torch_has_entered()\n--\n\n"
                              "Whether any thread is inside of an Inside.");
PyDoc_STRVAR(region_lakes_doc,
             "torch_region_lakes()\n--\n\n"
             "Return (number, region, device) of each open lake of a region; see torch_lake().");
PyDoc_STRVAR(set_margin_doc,
             "torch_set_margin(size, /)\n--\n\n"
             "Let the lakes of all regions, open now or later, take no more memory where the\n"
             "device would have less than `size` bytes left; 0: whatever is left.");
PyMethodDef torch_methods[] = {
    {"torch_configure", (PyCFunction)(void (*)(void))torch_configure, METH_VARARGS | METH_KEYWORDS,
     configure_doc},
    {"torch_note_refusals", torch_note_refusals, METH_O, note_refusals_doc},
    {"torch_set_relief", torch_set_relief, METH_O, set_relief_doc},
    {"torch_fallback", torch_fallback, METH_VARARGS, fallback_doc},
    {"torch_lake", torch_lake, METH_VARARGS, lake_doc},
    {"torch_devices", torch_devices, METH_NOARGS, devices_doc},
    {"torch_region", torch_region, METH_NOARGS, region_doc},
    {"torch_turn", torch_turn, METH_NOARGS, turn_doc},
    {"torch_last_graph", torch_last_graph, METH_NOARGS, last_graph_doc},
    {"torch_spoil_graph", torch_spoil_graph, METH_VARARGS, spoil_graph_doc},
    {"torch_has_entered", torch_has_entered, METH_NOARGS, has_entered_doc},
    {"torch_region_lakes", torch_region_lakes, METH_NOARGS, region_lakes_doc},
    {"torch_set_margin", torch_set_margin, METH_O, set_margin_doc},
    {NULL, NULL, 0, NULL},
};
