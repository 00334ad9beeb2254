/* A lake's history. */
#include "core.h"

#include <errno.h>

PyObject *lake_keep_history(PyObject *object, PyObject *max_events) {
    lake_object *self = (lake_object *)object;
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

PyObject *lake_history(PyObject *object, PyObject *Py_UNUSED(unused)) {
    lake_object *self = (lake_object *)object;
    gml_lake *lake = lake_enter(self);
    if (!lake) {
        return NULL;
    }
    uint64_t total = 0;
    PyObject *events = copy_history(self, lake, &total);
    lake_leave(self);
    return events ? Py_BuildValue("(NK)", events, (unsigned long long)total) : NULL;
}
