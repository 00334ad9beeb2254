/* The functions interop_*: the lakes below PyTorch, for other libraries of the process. */
#include "core.h"
#include "gmlake_interop.h"

static PyObject *open_lake(PyObject *module, PyObject *args, const char *format,
                           gml_status (*open)(int device, gml_lake **out, char *reason,
                                              size_t reason_bytes)) {
    core_state *state = PyModule_GetState(module);
    PyObject *kind = NULL;
    int device;
    if (!PyArg_ParseTuple(args, format, &kind, &device)) {
        return NULL;
    }
    if (!is_lake_kind(state, kind)) {
        return NULL;
    }
    gml_lake *lake = NULL;
    REASON_CALL(open(device, &lake, reason, sizeof reason));
    if (status != GML_OK) {
        return raise_status(state, status, reason);
    }
    return lake_borrow(state, kind, lake);
}

static PyObject *interop_lake(PyObject *module, PyObject *args) {
    return open_lake(module, args, "Oi:interop_lake", gml_interop_open);
}

static PyObject *interop_serving_lake(PyObject *module, PyObject *args) {
    return open_lake(module, args, "Oi:interop_serving_lake", gml_interop_open_serving);
}

static PyObject *interop_functions(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    PyObject *dict = PyDict_New();
    if (dict && (put_number(dict, "alloc", (uint64_t)(uintptr_t)gml_interop_alloc) < 0 ||
                 put_number(dict, "free", (uint64_t)(uintptr_t)gml_interop_free) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

/* The Lake that `object` is; NULL with an exception. */
static lake_object *as_lake(PyObject *module, PyObject *object) {
    const core_state *state = PyModule_GetState(module);
    if (!PyObject_TypeCheck(object, state->lake_type)) {
        PyErr_SetString(PyExc_TypeError, "lake must be a Lake");
        return NULL;
    }
    return (lake_object *)object;
}

/* True, or False where a graph is captured; NULL with an exception. */
static PyObject *end_wait(lake_object *self, gml_lake *lake, gml_status status) {
    if (status != GML_OK && status != GML_NOT_READY) {
        return lake_end(self, lake, status);
    }
    lake_leave(self);
    return PyBool_FromLong(status == GML_OK);
}

static PyObject *interop_wait_device(PyObject *module, PyObject *object) {
    lake_object *self = as_lake(module, object);
    if (!self) {
        return NULL;
    }
    LAKE_CALL(self, gml_interop_wait_device(lake));
    return end_wait(self, lake, status);
}

static PyObject *interop_wait_stream(PyObject *module, PyObject *args) {
    PyObject *object = NULL;
    number_argument stream = {"stream", 0};
    if (!PyArg_ParseTuple(args, "OO&:interop_wait_stream", &object, NUMBER(stream))) {
        return NULL;
    }
    lake_object *self = as_lake(module, object);
    if (!self) {
        return NULL;
    }
    LAKE_CALL(self, gml_interop_wait_stream(lake, stream.value));
    return end_wait(self, lake, status);
}

PyMethodDef interop_methods[] = {
    FUNCTION(interop_lake, METH_VARARGS, "(kind, device, /)",
             "Return the lake of a device below PyTorch, opened if need be, as an\n"
             "object of `kind`, which is Lake or a subclass. Its close() does nothing.\n"
             "Raises DriverError, UnsupportedError, OutOfMemoryError and ValueError."),
    FUNCTION(interop_serving_lake, METH_VARARGS, "(kind, device, /)",
             "The same for the lake that serves this thread, see Inside."),
    FUNCTION(interop_functions, METH_NOARGS, "()",
             "Return the addresses of gml_interop_alloc and gml_interop_free as \"alloc\" and "
             "\"free\"."),
    FUNCTION(interop_wait_device, METH_O, "(lake, /)",
             "Wait until all work of the lake's device has run and return True; False at once\n"
             "while a graph is captured. Raises DriverError."),
    FUNCTION(interop_wait_stream, METH_VARARGS, "(lake, stream, /)",
             "Wait until the work of a stream has run and return True; False at once while a\n"
             "graph is captured. Raises DriverError."),
    {NULL, NULL, 0, NULL},
};
