/* The type Plan: an immutable plan of a step, built from a Profile or read from bytes. */
#include "planner.h"

#include <stdlib.h>

typedef struct plan_object {
    PyObject_HEAD
    gml_plan *plan;
} plan_object;

static gml_plan *held(PyObject *self) {
    return ((plan_object *)self)->plan;
}

gml_plan *plan_of(const planner_state *state, PyObject *object) {
    if (!PyObject_TypeCheck(object, state->plan_type)) {
        PyErr_SetString(PyExc_TypeError, "a Plan is needed");
        return NULL;
    }
    return held(object);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* A Plan, or the exception of a failure. */
static PyObject *finish(PyTypeObject *type, const planner_state *state, gml_status status,
                        gml_plan *plan, const char *reason) {
    if (status != GML_OK) {
        return raise_plan_status(state, status, reason);
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    plan_object *self = (plan_object *)allocate(type, 0);
    if (!self) {
        gml_plan_free(plan);
        return NULL;
    }
    self->plan = plan;
    return (PyObject *)self;
}

static PyObject *plan_build(PyObject *object, PyObject *args, PyObject *keywords) {
    static char *names[] = {"profile", "budget_ms", NULL};
    PyTypeObject *type = (PyTypeObject *)object;
    const planner_state *state = PyType_GetModuleState(type);
    PyObject *source = NULL;
    number_argument budget = {"budget_ms", 0};
    if (!state || !PyArg_ParseTupleAndKeywords(args, keywords, "O|O&:build", names, &source,
                                               convert_number, &budget)) {
        return NULL;
    }
    const gml_profile *profile = profile_of(state, source);
    if (!profile) {
        return NULL;
    }
    gml_planner_options options = {.budget_ms = budget.value};
    gml_plan *plan = NULL;
    char reason[REASON_BYTES] = "";
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_plan_build(profile, &options, &plan, reason, sizeof reason);
    Py_END_ALLOW_THREADS
    return finish(type, state, status, plan, reason);
}

static PyObject *plan_decode(PyObject *object, PyObject *octets) {
    PyTypeObject *type = (PyTypeObject *)object;
    const planner_state *state = PyType_GetModuleState(type);
    size_t count = 0;
    uint8_t *copy = NULL;
    if (state) {
        copy = copy_records(octets, 1, &count, "a plan");
    }
    if (!copy) {
        return NULL;
    }
    gml_plan *plan = NULL;
    char reason[REASON_BYTES] = "";
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_plan_decode(copy, count, &plan, reason, sizeof reason);
    Py_END_ALLOW_THREADS
    free(copy);
    return finish(type, state, status, plan, reason);
}

static void plan_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    gml_plan_free(held(self));
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* ---- what it holds --------------------------------------------------------------------------- */

static PyObject *plan_encode(PyObject *self, PyObject *Py_UNUSED(unused)) {
    uint8_t *octets = NULL;
    size_t count = 0;
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_plan_encode(held(self), &octets, &count);
    Py_END_ALLOW_THREADS
    if (status != GML_OK) {
        const planner_state *state = PyType_GetModuleState(Py_TYPE(self));
        return state ? raise_plan_status(state, status, NULL) : NULL;
    }
    PyObject *result =
        PyBytes_FromStringAndSize((const char *)(const void *)octets, (Py_ssize_t)count);
    free(octets);
    return result;
}

static PyObject *plan_describe(PyObject *self, PyObject *Py_UNUSED(unused)) {
    gml_plan_info info = {0};
    gml_plan_describe(held(self), &info);
    PyObject *dict = PyDict_New();
    if (dict &&
        (put_number(dict, "requests", info.requests) < 0 ||
         put_number(dict, "placed", info.placed) < 0 || put_number(dict, "steps", info.steps) < 0 ||
         put_number(dict, "lanes", info.lanes) < 0 ||
         put_number(dict, "peak_bytes", info.peak_bytes) < 0 ||
         put_number(dict, "lower_bound_bytes", info.lower_bound_bytes) < 0 ||
         put(dict, "method", PyUnicode_FromString(info.method)) < 0 ||
         put_number(dict, "time_ns", info.time_ns) < 0 ||
         put_number(dict, "fingerprint", info.fingerprint) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *plan_requests(PyObject *self, PyObject *Py_UNUSED(unused)) {
    gml_plan_info info = {0};
    gml_plan_describe(held(self), &info);
    Py_ssize_t length = (Py_ssize_t)(info.requests * sizeof(gml_plan_request));
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, length);
    gml_plan_request *out = bytes ? (gml_plan_request *)(void *)PyBytes_AsString(bytes) : NULL;
    for (size_t i = 0; out && i < info.requests; i++) {
        gml_plan_request_at(held(self), i, &out[i]);
    }
    return bytes;
}

/* ---- the type -------------------------------------------------------------------------------- */

PyDoc_STRVAR(build_doc,
             "build($type, /, profile, budget_ms=0)\n--\n\n"
             "Make a plan for steps like the one of a Profile. Raises ValueError for a profile\n"
             "that contradicts itself, PlanError if the result does not pass the check.");
PyDoc_STRVAR(decode_doc, "decode($type, data, /)\n--\n\n"
                         "Read what encode() wrote; raises PlanError for anything else.");
PyDoc_STRVAR(encode_doc, "encode($self, /)\n--\n\n"
                         "Return the plan as bytes, the same on every machine.");
PyDoc_STRVAR(describe_doc,
             "describe($self, /)\n--\n\n"
             "Return what it plans as a dict: requests, placed, steps, lanes, peak_bytes,\n"
             "lower_bound_bytes, method, time_ns, fingerprint.");
PyDoc_STRVAR(requests_doc,
             "requests($self, /)\n--\n\n"
             "Return the planned requests as bytes, see gmlake.planner.plan_layout.PLAN_REQUEST.");

static PyMethodDef plan_methods[] = {
    {"build", (PyCFunction)(void (*)(void))plan_build, METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     build_doc},
    {"decode", plan_decode, METH_O | METH_CLASS, decode_doc},
    {"encode", plan_encode, METH_NOARGS, encode_doc},
    {"describe", plan_describe, METH_NOARGS, describe_doc},
    {"requests", plan_requests, METH_NOARGS, requests_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(plan_doc, "Where each request of a step goes. Made by build() or decode(); never "
                       "changes.");

static PyType_Slot plan_slots[] = {
    {Py_tp_doc, (void *)plan_doc},
    {Py_tp_dealloc, plan_dealloc},
    {Py_tp_methods, plan_methods},
    {0, NULL},
};

PyType_Spec plan_spec = {
    .name = "gmlake.planner._planner.Plan",
    .basicsize = sizeof(plan_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = plan_slots,
};
