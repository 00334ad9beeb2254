/* A lake's live reports: histories, the sites of their events, and published counters. */
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

PyObject *lake_note_mark(PyObject *object, PyObject *number) {
    return lake_call_number(object, number, "number", gml_lake_note_mark);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* A copy of a history, as bytes objects. */
typedef struct history_copy {
    PyObject *events, *sites; /* sites NULL: not asked for */
    uint64_t total;
} history_copy;

static void drop_copy(history_copy *copy) {
    Py_CLEAR(copy->events);
    Py_CLEAR(copy->sites);
}

/* Room for `count` events; false with an exception. */
static bool make_room(history_copy *copy, size_t count, bool has_sites) {
    copy->events = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(gml_request)));
    if (copy->events && has_sites) {
        copy->sites = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(uint64_t)));
    }
    return copy->events && (copy->sites || !has_sites);
}

/* Leaves the first `bytes`; false with an exception. */
static bool shrink(PyObject **of, size_t bytes) {
    PyObject *all = *of;
    *of = PyBytes_FromStringAndSize(PyBytes_AsString(all), (Py_ssize_t)bytes);
    Py_DECREF(all);
    return *of != NULL;
}

/* The events that are there at one moment: the youngest of them, where they have become more than
 * there was room made for. False with an exception. */
static bool take_copy(const core_state *state, gml_lake *lake, bool has_sites, history_copy *out) {
    size_t count = 0, copied = 0;
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_lake_history(lake, NULL, NULL, 0, &count, &out->total);
    Py_END_ALLOW_THREADS
    if (status != GML_OK) {
        (void)raise_from_lake(state, status, lake);
        return false;
    }
    if (!make_room(out, count, has_sites)) {
        return false;
    }
    gml_request *events = (gml_request *)(void *)PyBytes_AsString(out->events);
    uint64_t *sites = out->sites ? (uint64_t *)(void *)PyBytes_AsString(out->sites) : NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gml_lake_history(lake, events, sites, count, &copied, &out->total);
    Py_END_ALLOW_THREADS
    if (status != GML_OK) {
        (void)raise_from_lake(state, status, lake);
        return false;
    }
    return copied == count || (shrink(&out->events, copied * sizeof(gml_request)) &&
                               (!sites || shrink(&out->sites, copied * sizeof(uint64_t))));
}

static bool copy_history(PyObject *object, bool has_sites, history_copy *out) {
    lake_object *self = (lake_object *)object;
    gml_lake *lake = lake_enter(self);
    if (!lake) {
        return false;
    }
    bool is_done = take_copy(self->state, lake, has_sites, out);
    lake_leave(self);
    if (!is_done) {
        drop_copy(out);
    }
    return is_done;
}

PyObject *lake_history(PyObject *object, PyObject *Py_UNUSED(unused)) {
    history_copy copy = {0};
    if (!copy_history(object, false, &copy)) {
        return NULL;
    }
    return Py_BuildValue("(NK)", copy.events, (unsigned long long)copy.total);
}

PyObject *lake_history_sites(PyObject *object, PyObject *Py_UNUSED(unused)) {
    history_copy copy = {0};
    if (!copy_history(object, true, &copy)) {
        return NULL;
    }
    return Py_BuildValue("(NNK)", copy.events, copy.sites, (unsigned long long)copy.total);
}

/* ---- counters for others --------------------------------------------------------------------- */

/* Publishes at `path`, NULL to stop, without the GIL. *error: errno after a failure. */
static gml_status publish(lake_object *self, const char *path, int *error) {
    gml_lake *lake = lake_enter(self);
    if (!lake) {
        return GML_MISUSE;
    }
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_lake_publish(lake, path);
    *error = errno;
    Py_END_ALLOW_THREADS
    lake_leave(self);
    return status;
}

PyObject *lake_publish(PyObject *object, PyObject *path) {
    lake_object *self = (lake_object *)object;
    PyObject *encoded = NULL;
    if (path != Py_None && !PyUnicode_FSConverter(path, &encoded)) {
        return NULL;
    }
    int error = 0;
    gml_status status = publish(self, encoded ? PyBytes_AsString(encoded) : NULL, &error);
    Py_XDECREF(encoded);
    if (status == GML_OK) {
        Py_RETURN_NONE;
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (status != GML_INVALID_ARGUMENT) {
        return raise_status(self->state, status, NULL);
    }
    errno = error;
    return PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
}

/* ---- sites ----------------------------------------------------------------------------------- */

static PyObject *set_site(PyObject *Py_UNUSED(module), PyObject *number) {
    uint64_t site = 0;
    if (!read_number(number, "site", &site)) {
        return NULL;
    }
    gml_set_site(site);
    Py_RETURN_NONE;
}

static PyObject *get_site(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    return PyLong_FromUnsignedLongLong(gml_site());
}

PyDoc_STRVAR(set_site_doc,
             "set_site(site, /)\n--\n\n"
             "Note the events of the calling thread with this number from now on, in the history\n"
             "of every lake; 0, as at first: with none.");
PyDoc_STRVAR(get_site_doc, "site()\n--\n\nReturn the number of the calling thread's site.");

PyMethodDef site_methods[] = {
    {"set_site", set_site, METH_O, set_site_doc},
    {"site", get_site, METH_NOARGS, get_site_doc},
    {NULL, NULL, 0, NULL},
};
