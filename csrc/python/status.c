/* From statuses to exceptions, and from Python's integers and buffers to ours. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

static PyObject *
exception_of(const core_state *state, gml_status status)
{
    switch (status) {
    case GML_OUT_OF_MEMORY:
        return state->out_of_memory_error;
    case GML_NO_HOST_MEMORY:
        return PyExc_MemoryError;
    case GML_INVALID_ARGUMENT:
    case GML_UNKNOWN_ADDRESS:
        return PyExc_ValueError;
    case GML_UNSUPPORTED:
        return state->unsupported_error;
    case GML_DRIVER_FAILED:
    case GML_DRIVER_ABSENT:
    case GML_MISUSE:
        return state->driver_error;
    case GML_OK:
    case GML_NOT_READY:
    case GML_CORRUPT:
    case GML_STATUS_COUNT:
    default:
        return state->error;
    }
}

PyObject *
raise_status(const core_state *state, gml_status status, const char *reason)
{
    bool has_reason = reason && reason[0];
    PyErr_SetString(exception_of(state, status), has_reason ? reason : gml_status_text(status));
    return NULL;
}

PyObject *
raise_from_lake(const core_state *state, gml_status status, gml_lake *lake)
{
    char reason[REASON_BYTES] = "";
    gml_lake_reason(lake, reason, sizeof reason);
    return raise_status(state, status, reason);
}

PyObject *
raise_plan_status(const core_state *state, gml_status status, const char *reason)
{
    if (status != GML_CORRUPT && status != GML_UNSUPPORTED) {
        return raise_status(state, status, reason);
    }
    bool has_reason = reason && reason[0];
    PyErr_SetString(state->plan_error, has_reason ? reason : gml_status_text(status));
    return NULL;
}

int
convert_number(PyObject *object, void *argument)
{
    number_argument *number = argument;
    PyObject *index = PyNumber_Index(object);
    if (!index) {
        return 0;
    }
    unsigned long long value = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    if (value == (unsigned long long)-1 && PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "%s must be from 0 to 2**64 - 1", number->name);
        return 0;
    }
    number->value = value;
    return 1;
}

static void *
copy_whole_records(const Py_buffer *view, size_t record_bytes, size_t *count, const char *name)
{
    size_t length = (size_t)view->len;
    if (length % record_bytes != 0) {
        PyErr_Format(PyExc_ValueError, "%s must be whole records of %zu bytes, not %zu bytes", name,
                     record_bytes, length);
        return NULL;
    }
    void *copy = malloc(length ? length : 1);
    if (!copy) {
        PyErr_NoMemory();
        return NULL;
    }
    memcpy(copy, view->buf, length);
    *count = length / record_bytes;
    return copy;
}

bool
read_number(PyObject *object, const char *name, uint64_t *out)
{
    number_argument number = {name, 0};
    if (!convert_number(object, &number)) {
        return false;
    }
    *out = number.value;
    return true;
}

void *
copy_records(PyObject *object, size_t record_bytes, size_t *count, const char *name)
{
    Py_buffer view;
    if (PyObject_GetBuffer(object, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    void *copy = copy_whole_records(&view, record_bytes, count, name);
    PyBuffer_Release(&view);
    return copy;
}

void *
copy_optional_records(PyObject *object, size_t record_bytes, size_t *count, const char *name)
{
    const Py_buffer nothing = {.buf = ""};
    return object == Py_None ? copy_whole_records(&nothing, record_bytes, count, name)
                             : copy_records(object, record_bytes, count, name);
}

bool
get_numbers(PyObject *object, size_t count, Py_buffer *view, const char *name)
{
    if (PyObject_GetBuffer(object, view, PyBUF_WRITABLE) < 0) {
        return false;
    }
    if ((size_t)view->len == count * sizeof(uint64_t) &&
        (uintptr_t)view->buf % sizeof(uint64_t) == 0) {
        return true;
    }
    PyErr_Format(PyExc_ValueError, "%s must be one aligned uint64 for each of %zu records", name,
                 count);
    PyBuffer_Release(view);
    return false;
}

int
put(PyObject *dict, const char *name, PyObject *value)
{
    if (!value) {
        return -1;
    }
    int result = PyDict_SetItemString(dict, name, value);
    Py_DECREF(value);
    return result;
}

int
put_number(PyObject *dict, const char *name, uint64_t value)
{
    return put(dict, name, PyLong_FromUnsignedLongLong(value));
}
