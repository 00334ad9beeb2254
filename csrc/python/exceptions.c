/* From statuses to exceptions. */
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
