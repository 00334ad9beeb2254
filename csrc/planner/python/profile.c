/* The type Profile: what a plan is made from, watched by a lake or given as records. */
#include "planner.h"

#include <stdlib.h>

typedef struct profile_object {
    PyObject_HEAD
    gml_profile *profile; /* never changes */
} profile_object;

static const gml_profile *held(PyObject *self) {
    return ((profile_object *)self)->profile;
}

static PyObject *wrap(PyTypeObject *type, gml_profile *profile) {
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    profile_object *self = (profile_object *)allocate(type, 0);
    if (!self) {
        gml_profile_free(profile);
        return NULL;
    }
    self->profile = profile;
    return (PyObject *)self;
}

PyObject *profile_wrap(const planner_state *state, gml_profile *profile) {
    return wrap(state->profile_type, profile);
}

const gml_profile *profile_of(const planner_state *state, PyObject *object) {
    if (!PyObject_TypeCheck(object, state->profile_type)) {
        PyErr_SetString(PyExc_TypeError, "a Profile is needed");
        return NULL;
    }
    return held(object);
}

/* ---- from records ---------------------------------------------------------------------------- */

/* The objects that a step is made of. */
typedef struct step_arguments {
    PyObject *requests;
    number_argument event_count, serial;
} step_arguments;

/* False with an exception; the step owns the data read in either case. */
static bool read_step(const step_arguments *from, gml_step *out) {
    out->serial = from->serial.value;
    out->event_count = from->event_count.value;
    out->requests = copy_optional_records(from->requests, sizeof *out->requests,
                                          &out->request_count, "requests");
    return out->requests != NULL;
}

static PyObject *profile_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"requests", "event_count",     "previous", "previous_event_count",
                            "serial",   "previous_serial", NULL};
    step_arguments last = {.event_count = {"event_count", 0}, .serial = {"serial", 1}};
    step_arguments previous = {.requests = Py_None,
                               .event_count = {"previous_event_count", 0},
                               .serial = {"previous_serial", 0}};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO&|OO&O&O&:Profile", names, &last.requests,
                                     convert_number, &last.event_count, &previous.requests,
                                     convert_number, &previous.event_count, convert_number,
                                     &last.serial, convert_number, &previous.serial)) {
        return NULL;
    }
    if (last.requests == Py_None) {
        PyErr_SetString(PyExc_TypeError, "a Profile needs the requests of a step");
        return NULL;
    }
    gml_profile *profile = calloc(1, sizeof *profile);
    if (!profile) {
        return PyErr_NoMemory();
    }
    if (!read_step(&last, &profile->last) || !read_step(&previous, &profile->previous)) {
        gml_profile_free(profile);
        return NULL;
    }
    return wrap(type, profile);
}

static void profile_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    gml_profile_free(((profile_object *)self)->profile);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* ---- the type -------------------------------------------------------------------------------- */

PyDoc_STRVAR(profile_doc,
             "Profile(requests, event_count, previous=None, previous_event_count=0, serial=1,\n"
             "        previous_serial=0)\n--\n\n"
             "The requests of one step, and of one before it whose frees tell when what is still\n"
             "live at the end will be freed. Made by profile(), or from records.");

static PyType_Slot profile_slots[] = {
    {Py_tp_doc, (void *)profile_doc},
    {Py_tp_new, profile_new},
    {Py_tp_dealloc, profile_dealloc},
    {0, NULL},
};

PyType_Spec profile_spec = {
    .name = "gmlake.planner._planner.Profile",
    .basicsize = sizeof(profile_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = profile_slots,
};
