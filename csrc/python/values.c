/* From Python's integers and buffers to ours, and back into dicts. */
#include "values.h"

#include <stdlib.h>
#include <string.h>

int convert_number(PyObject *object, void *argument) {
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

static void *copy_whole_records(const Py_buffer *view, size_t record_bytes, size_t *count,
                                const char *name) {
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

bool read_number(PyObject *object, const char *name, uint64_t *out) {
    number_argument number = {name, 0};
    if (!convert_number(object, &number)) {
        return false;
    }
    *out = number.value;
    return true;
}

void *copy_records(PyObject *object, size_t record_bytes, size_t *count, const char *name) {
    Py_buffer view;
    if (PyObject_GetBuffer(object, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    void *copy = copy_whole_records(&view, record_bytes, count, name);
    PyBuffer_Release(&view);
    return copy;
}

void *copy_optional_records(PyObject *object, size_t record_bytes, size_t *count,
                            const char *name) {
    const Py_buffer nothing = {.buf = ""};
    return object == Py_None ? copy_whole_records(&nothing, record_bytes, count, name)
                             : copy_records(object, record_bytes, count, name);
}

bool get_numbers(PyObject *object, size_t count, Py_buffer *view, const char *name) {
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

int put(PyObject *dict, const char *name, PyObject *value) {
    if (!value) {
        return -1;
    }
    int result = PyDict_SetItemString(dict, name, value);
    Py_DECREF(value);
    return result;
}

int put_number(PyObject *dict, const char *name, uint64_t value) {
    return put(dict, name, PyLong_FromUnsignedLongLong(value));
}

PyObject *fields_dict(const void *from, const number_field *fields) {
    PyObject *dict = PyDict_New();
    for (const number_field *field = fields; dict && field->name; field++) {
        const char *at = (const char *)from + field->offset;
        if (put_number(dict, field->name, *(const uint64_t *)(const void *)at) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

PyObject *with_item(PyObject *list, PyObject *item) {
    if (!item || PyList_Append(list, item) < 0) {
        Py_CLEAR(list);
    }
    Py_XDECREF(item);
    return list;
}

PyObject *as_tuple(PyObject *list) {
    PyObject *tuple = list ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return tuple;
}
