/* The module gmlake.planner._planner: its state, types and functions. */
#include "planner.h"

PyObject *raise_plan_status(const planner_state *state, gml_status status, const char *reason) {
    if (status != GML_CORRUPT && status != GML_UNSUPPORTED) {
        return state->access->raise(state->access->state, status, reason);
    }
    bool has_reason = reason && reason[0];
    PyErr_SetString(state->plan_error, has_reason ? reason : gml_status_text(status));
    return NULL;
}

static PyObject *add_type(PyObject *module, PyType_Spec *spec) {
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type && PyModule_AddType(module, (PyTypeObject *)type) < 0) {
        Py_CLEAR(type);
    }
    return type;
}

/* Finds the core's access. Another libgmlake in the process, preloaded, may have taken the place of
 * the one inside the core: lakes of one must not meet functions of the other. */
static int find_core(planner_state *state) {
    state->core = PyImport_ImportModule("gmlake._core");
    state->access = state->core ? PyCapsule_Import(CORE_ACCESS_NAME, 0) : NULL;
    if (!state->access) {
        return -1;
    }
    if (state->access->close != gml_lake_close) {
        PyErr_SetString(PyExc_ImportError,
                        "another libgmlake stands before gmlake's own in this process; remove it "
                        "from LD_PRELOAD");
        return -1;
    }
    return 0;
}

static int planner_exec(PyObject *module) {
    planner_state *state = PyModule_GetState(module);
    PyObject *errors = PyImport_ImportModule("gmlake.planner.plan_errors");
    state->plan_error = errors ? PyObject_GetAttrString(errors, "PlanError") : NULL;
    Py_XDECREF(errors);
    if (!state->plan_error || find_core(state) < 0) {
        return -1;
    }
    state->profile_type = (PyTypeObject *)add_type(module, &profile_spec);
    state->plan_type = state->profile_type ? (PyTypeObject *)add_type(module, &plan_spec) : NULL;
    return state->plan_type && PyModule_AddFunctions(module, solve_methods) == 0 &&
                   PyModule_AddFunctions(module, step_methods) == 0
               ? 0
               : -1;
}

static int planner_traverse(PyObject *module, visitproc visit, void *arg) {
    planner_state *state = PyModule_GetState(module);
    Py_VISIT(state->profile_type);
    Py_VISIT(state->plan_type);
    Py_VISIT(state->plan_error);
    Py_VISIT(state->core);
    return 0;
}

static int planner_clear(PyObject *module) {
    planner_state *state = PyModule_GetState(module);
    Py_CLEAR(state->profile_type);
    Py_CLEAR(state->plan_type);
    Py_CLEAR(state->plan_error);
    Py_CLEAR(state->core);
    return 0;
}

static void planner_free(void *module) {
    (void)planner_clear(module);
}

static PyModuleDef_Slot planner_slots[] = {
    {Py_mod_exec, planner_exec},
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef planner_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "gmlake.planner._planner",
    .m_doc = "The planner in C, and the steps of lakes. Use gmlake instead.",
    .m_size = sizeof(planner_state),
    .m_slots = planner_slots,
    .m_traverse = planner_traverse,
    .m_clear = planner_clear,
    .m_free = planner_free,
};

PyMODINIT_FUNC PyInit__planner(void);

PyMODINIT_FUNC PyInit__planner(void) {
    return PyModuleDef_Init(&planner_module);
}
