/* Functions about the steps of a lake: watching, planning and serving them. */
#include "planner.h"

/* One call on a lake: its arguments and results. */
typedef struct step_call {
    gml_status (*function)(gml_lake *lake, struct step_call *call);
    uint64_t kind;
    gml_plan *plan;
    gml_profile *profile;
    gml_step_report report;
    gml_step_stats stats;
} step_call;

static const planner_state *state_of(PyObject *module) {
    return PyModule_GetState(module);
}

/* Makes the call without the GIL; false with an exception. A call in the wrong order raises
 * ValueError, with the text `misuse`. */
static bool make_call(PyObject *module, PyObject *object, step_call *call, const char *misuse) {
    const core_access *access = state_of(module)->access;
    gml_lake *lake = access->enter(access->state, object);
    if (!lake) {
        return false;
    }
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = call->function(lake, call);
    Py_END_ALLOW_THREADS
    if (status == GML_MISUSE) {
        PyErr_SetString(PyExc_ValueError, misuse);
    } else if (status != GML_OK) {
        (void)access->raise_from_lake(access->state, status, lake);
    }
    access->leave(object);
    return status == GML_OK;
}

static const char not_watched[] = "steps are not watched; call watch_steps() first";

static PyObject *answer(bool is_made) {
    return is_made ? Py_NewRef(Py_None) : NULL;
}

/* The arguments (lake, kind); false with an exception. */
static bool read_kind(PyObject *args, PyObject **lake, uint64_t *kind) {
    number_argument number = {"kind", 0};
    if (!PyArg_ParseTuple(args, "OO&", lake, convert_number, &number)) {
        return false;
    }
    *kind = number.value;
    return true;
}

/* ---- the calls ------------------------------------------------------------------------------- */

static gml_status watch(gml_lake *lake, step_call *call) {
    (void)call;
    return gml_lake_watch_steps(lake);
}

static gml_status begin(gml_lake *lake, step_call *call) {
    return gml_lake_begin_step(lake, call->kind);
}

static gml_status end(gml_lake *lake, step_call *call) {
    return gml_lake_end_step(lake, &call->report);
}

static gml_status profile(gml_lake *lake, step_call *call) {
    return gml_lake_profile(lake, call->kind, &call->profile);
}

static gml_status add(gml_lake *lake, step_call *call) {
    return gml_lake_add_plan(lake, call->kind, call->plan);
}

static gml_status drop(gml_lake *lake, step_call *call) {
    return gml_lake_drop_plans(lake, call->kind);
}

static gml_status count(gml_lake *lake, step_call *call) {
    return gml_lake_step_stats(lake, &call->stats);
}

/* ---- the functions --------------------------------------------------------------------------- */

static PyObject *watch_steps(PyObject *module, PyObject *lake) {
    return answer(make_call(module, lake, &(step_call){.function = watch}, ""));
}

static PyObject *begin_step(PyObject *module, PyObject *args) {
    PyObject *lake;
    step_call call = {.function = begin};
    return answer(read_kind(args, &lake, &call.kind) &&
                  make_call(module, lake, &call, not_watched));
}

static PyObject *end_step(PyObject *module, PyObject *lake) {
    step_call call = {.function = end};
    if (!make_call(module, lake, &call, "no step is open")) {
        return NULL;
    }
    const gml_step_report *step = &call.report;
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:s}", "kind", step->kind, "serial",
                         step->serial, "requests", step->requests, "served", step->served, "left",
                         step->left, "driver_calls", step->driver_calls, "reserved_bytes",
                         step->reserved_bytes, "fingerprint", step->fingerprint, "why", step->why);
}

static PyObject *get_profile(PyObject *module, PyObject *args) {
    PyObject *lake;
    step_call call = {.function = profile};
    if (!read_kind(args, &lake, &call.kind) ||
        !make_call(module, lake, &call, "no step of that kind has ended")) {
        return NULL;
    }
    return profile_wrap(state_of(module), call.profile);
}

static PyObject *add_plan(PyObject *module, PyObject *args) {
    PyObject *lake, *plan;
    number_argument kind = {"kind", 0};
    if (!PyArg_ParseTuple(args, "OO&O:add_plan", &lake, convert_number, &kind, &plan)) {
        return NULL;
    }
    step_call call = {.function = add, .kind = kind.value, .plan = plan_of(state_of(module), plan)};
    return answer(call.plan && make_call(module, lake, &call, not_watched));
}

static PyObject *drop_plans(PyObject *module, PyObject *args) {
    PyObject *lake;
    step_call call = {.function = drop};
    return answer(read_kind(args, &lake, &call.kind) &&
                  make_call(module, lake, &call, not_watched));
}

static PyObject *plan_stats(PyObject *module, PyObject *lake) {
    step_call call = {.function = count};
    if (!make_call(module, lake, &call, "steps are not watched")) {
        return NULL;
    }
    const gml_step_stats *stats = &call.stats;
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:s}", "steps", stats->steps, "planned_steps",
                         stats->planned_steps, "requests", stats->requests, "served", stats->served,
                         "left", stats->left, "plans_made", stats->plans_made, "why",
                         stats->why ? stats->why : "");
}

PyDoc_STRVAR(watch_steps_doc,
             "watch_steps(lake, /)\n--\n\n"
             "Watch the steps of a Lake from now on, so that they can be planned.\n\n"
             "Raises UnsupportedError for a policy that serves no plans.");
PyDoc_STRVAR(begin_step_doc,
             "begin_step(lake, kind, /)\n--\n\n"
             "A step begins; `kind` is the caller's number for steps that are alike. A step that\n"
             "is open ends first. Raises ValueError unless steps are watched.");
PyDoc_STRVAR(end_step_doc,
             "end_step(lake, /)\n--\n\n"
             "The open step ends; return how it was served as a dict. Raises ValueError where\n"
             "none is open.");
PyDoc_STRVAR(profile_doc,
             "profile(lake, kind, /)\n--\n\n"
             "Return what was watched of the last step of that kind that has ended.\n\n"
             "Raises ValueError if there is none.");
PyDoc_STRVAR(add_plan_doc, "add_plan(lake, kind, plan, /)\n--\n\n"
                           "Serve steps of that kind with a Plan, from the next step on.");
PyDoc_STRVAR(drop_plans_doc, "drop_plans(lake, kind, /)\n--\n\n"
                             "Forget every plan of that kind. Live blocks stay.");
PyDoc_STRVAR(plan_stats_doc, "plan_stats(lake, /)\n--\n\n"
                             "Return sums over all steps since watching began, as a dict.");
PyMethodDef step_methods[] = {
    {"watch_steps", watch_steps, METH_O, watch_steps_doc},
    {"begin_step", begin_step, METH_VARARGS, begin_step_doc},
    {"end_step", end_step, METH_O, end_step_doc},
    {"profile", get_profile, METH_VARARGS, profile_doc},
    {"add_plan", add_plan, METH_VARARGS, add_plan_doc},
    {"drop_plans", drop_plans, METH_VARARGS, drop_plans_doc},
    {"plan_stats", plan_stats, METH_O, plan_stats_doc},
    {NULL, NULL, 0, NULL},
};
