/* The capsule `access`. */
#include "core.h"

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
