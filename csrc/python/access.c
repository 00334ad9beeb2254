/* From statuses to exceptions, and the capsule by which annexes raise them too. */
#include "core.h"

static PyObject *exception_of(const core_state *state, gml_status status) {
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

PyObject *raise_status(const core_state *state, gml_status status, const char *reason) {
    bool has_reason = reason && reason[0];
    PyErr_SetString(exception_of(state, status), has_reason ? reason : gml_status_text(status));
    return NULL;
}

PyObject *raise_from_lake(const core_state *state, gml_status status, gml_lake *lake) {
    char reason[REASON_BYTES] = "";
    gml_lake_reason(lake, reason, sizeof reason);
    return raise_status(state, status, reason);
}

PyObject *answer(const core_state *state, gml_status status, const char *reason) {
    return status == GML_OK ? Py_NewRef(Py_None) : raise_status(state, status, reason);
}

/* ---- the capsule ----------------------------------------------------------------------------- */

static gml_lake *enter(const void *state, PyObject *lake) {
    if (!PyObject_TypeCheck(lake, ((const core_state *)state)->lake_type)) {
        PyErr_SetString(PyExc_TypeError, "a Lake is needed");
        return NULL;
    }
    return lake_enter((lake_object *)lake);
}

static void leave(PyObject *lake) {
    lake_leave((lake_object *)lake);
}

static PyObject *raise_reason(const void *state, gml_status status, const char *reason) {
    return raise_status(state, status, reason);
}

static PyObject *raise_kept(const void *state, gml_status status, gml_lake *lake) {
    return raise_from_lake(state, status, lake);
}

int add_access(PyObject *module, core_state *state) {
    state->access = (core_access){state, gml_lake_close, enter, leave, raise_reason, raise_kept};
    PyObject *capsule = PyCapsule_New(&state->access, CORE_ACCESS_NAME, NULL);
    int added = capsule ? PyModule_AddObjectRef(module, "access", capsule) : -1;
    Py_XDECREF(capsule);
    return added;
}
