/* Counters for others to follow. */
#include "core.h"
#include "gmlake_torch.h"
#include "torch/letters.h"
#include "torch/publish.h"

#include <errno.h>

static const number_field counter_fields[] = {
    NUMBER_FIELD(gml_counters, device),
    NUMBER_FIELD(gml_counters, start_ns),
    NUMBER_FIELD(gml_counters, driver_calls),
    NUMBER_FIELD(gml_counters, largest_free_bytes),
#define FIELD(name) NUMBER_FIELD(gml_counters, name),
    GML_COUNTERS_OF_STATS(FIELD)
#undef FIELD
        {NULL, 0},
};

/* None, or an OSError. */
static PyObject *published(int error) {
    if (error) {
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

PyObject *lake_publish(PyObject *object, PyObject *name) {
    lake_object *self = (lake_object *)object;
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    gml_lake *lake = text ? lake_enter(self) : NULL;
    if (!lake) {
        return NULL;
    }
    int error;
    Py_BEGIN_ALLOW_THREADS
    error = gml_publish(text, self->is_borrowed ? NULL : lake);
    Py_END_ALLOW_THREADS
    lake_leave(self);
    return published(error);
}

static PyObject *torch_publish(PyObject *Py_UNUSED(module), PyObject *args) {
    const char *name;
    int error;
    if (!PyArg_ParseTuple(args, "s:torch_publish", &name)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    error = gml_publish(name, NULL);
    Py_END_ALLOW_THREADS
    return published(error);
}

static PyObject *published_name(PyObject *Py_UNUSED(module), PyObject *args) {
    const char *name;
    char text[GML_LETTER_NAME_BYTES];
    if (!PyArg_ParseTuple(args, "s:published_name", &name)) {
        return NULL;
    }
    gml_published_name(name, text, sizeof text);
    return PyUnicode_FromString(text);
}

static PyObject *counters_dict(const gml_counters *counters) {
    PyObject *dict = fields_dict(counters, counter_fields);
    if (dict && put(dict, "states", states_dict(counters->states)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *read_counters(PyObject *module, PyObject *args) {
    const char *name;
    int process;
    gml_counters counters[GML_TORCH_DEVICES];
    size_t count = 0;
    char reason[REASON_BYTES] = "";
    gml_status status;
    if (!PyArg_ParseTuple(args, "si:read_counters", &name, &process)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = gml_read_counters(name, process, counters, GML_TORCH_DEVICES, &count, reason,
                               sizeof reason);
    Py_END_ALLOW_THREADS
    if (status != GML_OK) {
        return raise_status(PyModule_GetState(module), status, reason);
    }
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < count; i++) {
        list = with_item(list, counters_dict(&counters[i]));
    }
    return list;
}

PyMethodDef publishing_methods[] = {
    FUNCTION(torch_publish, METH_VARARGS, "(name, /)",
             "Have the process tell others of this user the counters of the lakes below PyTorch.\n"
             "name: of those that may be found together.\n\n"
             "Raises OSError where no socket can be made."),
    FUNCTION(published_name, METH_VARARGS, "(name, /)",
             "Return what the names of the abstract sockets of those that publish begin with,\n"
             "before the number of the process."),
    FUNCTION(read_counters, METH_VARARGS, "(name, process, /)",
             "Return the counters of a process, a dict for each device.\n\n"
             "Raises ValueError if it publishes nothing, Error if it does not answer."),
    {NULL, NULL, 0, NULL},
};
