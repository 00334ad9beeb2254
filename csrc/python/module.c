/* The module gmlake._core: its state, types, functions and constants. */
#include "core.h"

#include <limits.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

static struct PyModuleDef core_module;

core_state *state_of(PyTypeObject *type) {
    for (; type; type = PyType_GetSlot(type, Py_tp_base)) {
        PyObject *module = PyType_GetModule(type);
        if (module && PyModule_GetDef(module) == &core_module) {
            return PyModule_GetState(module);
        }
        PyErr_Clear();
    }
    PyErr_SetString(PyExc_SystemError, "not a type of gmlake._core");
    return NULL;
}

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **out) {
    *out = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *out ? PyModule_AddType(module, *out) : -1;
}

static int add_types(PyObject *module, core_state *state) {
    if (add_type(module, &lake_spec, &state->lake_type) < 0 ||
        add_type(module, &block_spec, &state->block_type) < 0) {
        return -1;
    }
    PyTypeObject *inside = NULL, *turn = NULL;
    int added = add_type(module, &inside_spec, &inside);
    added = added < 0 ? added : add_type(module, &turn_spec, &turn);
    Py_XDECREF((PyObject *)inside);
    Py_XDECREF((PyObject *)turn);
    return added < 0 ? -1 : add_type(module, &replay_spec, &state->replay_type);
}

static int add_exceptions(core_state *state) {
    PyObject *errors = PyImport_ImportModule("gmlake.errors");
    if (!errors) {
        return -1;
    }
    state->error = PyObject_GetAttrString(errors, "Error");
    state->out_of_memory_error = PyObject_GetAttrString(errors, "OutOfMemoryError");
    state->driver_error = PyObject_GetAttrString(errors, "DriverError");
    state->unsupported_error = PyObject_GetAttrString(errors, "UnsupportedError");
    Py_DECREF(errors);
    bool has_all = state->error && state->out_of_memory_error && state->driver_error &&
                   state->unsupported_error;
    return has_all ? 0 : -1;
}

static int add_constants(PyObject *module) {
    if (PyModule_AddStringConstant(module, "__version__", gml_version()) < 0) {
        return -1;
    }
    return PyModule_AddIntConstant(module, "REQUEST_BYTES", (long)sizeof(gml_request));
}

static int core_exec(PyObject *module) {
    core_state *state = PyModule_GetState(module);
    if (watch_forks() < 0) {
        return -1;
    }
    if (add_exceptions(state) < 0 || add_types(module, state) < 0 ||
        add_access(module, state) < 0) {
        return -1;
    }
    PyMethodDef *const tables[] = {describe_methods, torch_methods,   refusal_methods,
                                   sleep_methods,    interop_methods, publishing_methods};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (PyModule_AddFunctions(module, tables[i]) < 0) {
            return -1;
        }
    }
#ifdef GMLAKE_LAB
    if (add_test_hooks(module) < 0) {
        return -1;
    }
#endif
    return add_constants(module);
}

static int core_traverse(PyObject *module, visitproc visit, void *arg) {
    core_state *state = PyModule_GetState(module);
    Py_VISIT(state->lake_type);
    Py_VISIT(state->block_type);
    Py_VISIT(state->replay_type);
    Py_VISIT(state->error);
    Py_VISIT(state->out_of_memory_error);
    Py_VISIT(state->driver_error);
    Py_VISIT(state->unsupported_error);
    return 0;
}

static int core_clear(PyObject *module) {
    core_state *state = PyModule_GetState(module);
    Py_CLEAR(state->lake_type);
    Py_CLEAR(state->block_type);
    Py_CLEAR(state->replay_type);
    Py_CLEAR(state->error);
    Py_CLEAR(state->out_of_memory_error);
    Py_CLEAR(state->driver_error);
    Py_CLEAR(state->unsupported_error);
    return 0;
}

static void core_free(void *module) {
    (void)core_clear(module);
}

static PyObject *keep_freed_memory(PyObject *module, PyObject *ignored) {
    (void)module;
    (void)ignored;
#ifdef __GLIBC__
    /* Two such calls at once could mix their settings; a command makes one, before its work. */
    (void)mallopt(M_MMAP_MAX, 0);             /* NOLINT(concurrency-mt-unsafe) */
    (void)mallopt(M_TRIM_THRESHOLD, INT_MAX); /* NOLINT(concurrency-mt-unsafe) */
#endif
    Py_RETURN_NONE;
}

static PyMethodDef core_methods[] = {
    FUNCTION(dlpack_bytes, METH_VARARGS, "(owner, address, size, device_type, device_id, /)",
             "Return a DLPack capsule of `size` bytes at an address, which keeps `owner` alive as\n"
             "long as a tensor of it lives. device_type: DLPack's number, 1 for the host, 2 for\n"
             "CUDA."),
    FUNCTION(read_plain_pickle, METH_VARARGS, "(data, parts, /)",
             "Return the value of a pickle of plain data with at most so many containers and\n"
             "stored values. Raises ValueError for everything else."),
    FUNCTION(read_pickled_events, METH_VARARGS, "(data, parts, /)",
             "Return (value, tables), with a table (place, rows, shared) for each list of events\n"
             "in value['device_traces']. rows: a bytearray of gml_request: id is an index into\n"
             "`shared`; an event has that dict's items and the row's address, size_bytes, stream\n"
             "and time_ns as 'addr', 'size', 'stream' and 'time_us'. Where `reserved` is 1, the\n"
             "event is what `id` names, and nothing else. Return None for what is better read by\n"
             "read_plain_pickle(). Raises ValueError for everything that refuses."),
    FUNCTION(
        keep_freed_memory, METH_NOARGS, "()",
        "Have the C library reuse what is freed, however large it is, instead of returning it\n"
        "to the system: for a process that makes one large array after another, as the\n"
        "system clears every page anew. Does nothing where the C library is not glibc."),
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot core_slots[] = {
    {Py_mod_exec, core_exec},
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef core_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "gmlake._core",
    .m_doc = "The C core of gmlake: lakes, blocks, replays. Use gmlake instead.",
    .m_size = sizeof(core_state),
    .m_methods = core_methods,
    .m_slots = core_slots,
    .m_traverse = core_traverse,
    .m_clear = core_clear,
    .m_free = core_free,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void) {
    return PyModuleDef_Init(&core_module);
}
