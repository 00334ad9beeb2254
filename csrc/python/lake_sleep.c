/* How lakes sleep and wake: several in one call. */
#include "core.h"
#include "gmlake_sleep.h"

#include <stdlib.h>
#include <string.h>

static const number_field report_fields[] = {
    NUMBER_FIELD(gml_sleep_report, released_bytes),
    NUMBER_FIELD(gml_sleep_report, kept_bytes),
    NUMBER_FIELD(gml_sleep_report, saved_bytes),
    NUMBER_FIELD(gml_sleep_report, time_ns),
    {NULL, 0},
};

static bool read_backup(const char *text, gml_backup *out) {
    if (text && strcmp(text, "cpu") != 0) {
        PyErr_Format(PyExc_ValueError, "backup is \"cpu\" or None, not \"%.40s\"", text);
        return false;
    }
    *out = text ? GML_BACKUP_HOST : GML_BACKUP_NONE;
    return true;
}

/* The core's argument for each lake, with its title and its Lake, both borrowed. */
typedef struct several {
    gml_sleeping *each;
    struct {
        PyObject *title, *lake;
    } *whose;
    size_t count; /* that were entered */
} several;

static void leave_all(const several *of) {
    for (size_t i = 0; i < of->count; i++) {
        lake_leave((lake_object *)of->whose[i].lake);
    }
    free(of->each);
    free(of->whose);
}

/* One of (title, lake, backup). */
static bool enter_one(const core_state *state, PyObject *order, several *of) {
    gml_sleeping *one = &of->each[of->count];
    PyObject **title = &of->whose[of->count].title, **lake = &of->whose[of->count].lake;
    const char *backup = NULL;
    if (!PyTuple_Check(order)) {
        PyErr_SetString(PyExc_TypeError, "each is (title, lake, backup)");
        return false;
    }
    if (!PyArg_ParseTuple(order, "UO!z", title, state->lake_type, lake, &backup) ||
        !read_backup(backup, &one->backup)) {
        return false;
    }
    one->title = PyUnicode_AsUTF8AndSize(*title, NULL);
    if (!one->title) {
        return false;
    }
    one->lake = lake_enter((lake_object *)*lake);
    of->count += one->lake != NULL;
    return one->lake != NULL;
}

static bool enter_all(const core_state *state, PyObject *orders, several *of) {
    size_t count = (size_t)PyTuple_Size(orders);
    of->each = calloc(count + 1, sizeof *of->each);
    of->whose = calloc(count + 1, sizeof *of->whose);
    if (!of->each || !of->whose) {
        PyErr_NoMemory();
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!enter_one(state, PyTuple_GetItem(orders, (Py_ssize_t)i), of)) {
            return false;
        }
    }
    return true;
}

/* Sets the exception of the lake that failed, after its title. */
static void raise_titled(const core_state *state, gml_status status, const several *of,
                         size_t failed) {
    char reason[REASON_BYTES] = "";
    gml_lake_reason(of->each[failed].lake, reason, sizeof reason);
    PyObject *text = PyUnicode_FromFormat("%U%s", of->whose[failed].title, reason);
    const char *utf8 = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    if (utf8) {
        raise_status(state, status, utf8);
    }
    Py_XDECREF(text);
}

typedef gml_status (*several_call)(const gml_sleeping *each, size_t count, gml_sleep_report *out,
                                   size_t *failed);

static PyObject *call_several(PyObject *module, PyObject *args, const char *format,
                              several_call call) {
    const core_state *state = PyModule_GetState(module);
    PyObject *orders = NULL, *result = NULL;
    several of = {0};
    if (!PyArg_ParseTuple(args, format, &PyTuple_Type, &orders)) {
        return NULL;
    }
    if (enter_all(state, orders, &of)) {
        gml_sleep_report report = {0};
        size_t failed = 0;
        gml_status status;
        Py_BEGIN_ALLOW_THREADS
        status = call(of.each, of.count, &report, &failed);
        Py_END_ALLOW_THREADS
        if (status == GML_OK) {
            result = fields_dict(&report, report_fields);
        } else {
            raise_titled(state, status, &of, failed);
        }
    }
    leave_all(&of);
    return result;
}

static PyObject *sleep_lakes(PyObject *module, PyObject *args) {
    return call_several(module, args, "O!:sleep_lakes", gml_lakes_sleep);
}

static PyObject *wake_lakes(PyObject *module, PyObject *args) {
    return call_several(module, args, "O!:wake_lakes", gml_lakes_wake);
}

PyMethodDef sleep_methods[] = {
    FUNCTION(
        sleep_lakes, METH_VARARGS, "(orders, /)",
        "Put all lakes of a tuple of (title, lake, backup) to sleep, or none, as\n"
        "gmlake.Lake.sleep() tells; return the sums. An exception begins with the title of the\n"
        "lake that failed."),
    FUNCTION(wake_lakes, METH_VARARGS, "(orders, /)",
             "Wake all of them, or none, which sleep on as they did; the backups are not read."),
    {NULL, NULL, 0, NULL},
};
