/* The methods of Lake about steps: watching, planning and serving them. */
#include "core.h"

static lake_object *
as_lake(PyObject *self)
{
    return (lake_object *)self;
}

/* None, or the exception of a call: what comes in the wrong order is a ValueError, if `misuse` says
 * which. */
static PyObject *
answer(lake_object *self, gml_lake *lake, gml_status status, const char *misuse)
{
    if (status == GML_MISUSE && misuse) {
        PyErr_SetString(PyExc_ValueError, misuse);
        return NULL;
    }
    return lake_answer(self, lake, status);
}

/* ---- calls with a number --------------------------------------------------------------------- */

PyObject *
lake_begin_step(PyObject *object, PyObject *kind)
{
    return lake_call_number(object, kind, "kind", gml_lake_begin_step,
                            "steps are not watched; call watch_steps() first");
}

PyObject *
lake_drop_plans(PyObject *object, PyObject *kind)
{
    return lake_call_number(object, kind, "kind", gml_lake_drop_plans,
                            "steps are not watched; call watch_steps() first");
}

/* ---- calls without an argument --------------------------------------------------------------- */

PyObject *
lake_watch_steps(PyObject *object, PyObject *Py_UNUSED(unused))
{
    return lake_call(object, gml_lake_watch_steps);
}

PyObject *
lake_mark(PyObject *object, PyObject *Py_UNUSED(unused))
{
    return lake_call(object, gml_lake_mark);
}

/* ---- reports --------------------------------------------------------------------------------- */

static PyObject *
step_dict(const gml_step_report *step)
{
    PyObject *dict = PyDict_New();
    if (dict &&
        (put_number(dict, "kind", step->kind) < 0 || put_number(dict, "serial", step->serial) < 0 ||
         put_number(dict, "requests", step->requests) < 0 ||
         put_number(dict, "served", step->served) < 0 || put_number(dict, "left", step->left) < 0 ||
         put_number(dict, "driver_calls", step->driver_calls) < 0 ||
         put_number(dict, "reserved_bytes", step->reserved_bytes) < 0 ||
         put_number(dict, "fingerprint", step->fingerprint) < 0 ||
         put(dict, "why", PyUnicode_FromString(step->why)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

PyObject *
lake_end_step(PyObject *object, PyObject *Py_UNUSED(unused))
{
    lake_object *self = as_lake(object);
    gml_lake *lake = lake_enter(self);
    if (!lake) {
        return NULL;
    }
    gml_step_report step = {0};
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_lake_end_step(lake, &step);
    Py_END_ALLOW_THREADS
    PyObject *result =
        status == GML_OK ? step_dict(&step) : answer(self, lake, status, "no step is open");
    lake_leave(self);
    return result;
}

PyObject *
lake_plan_stats(PyObject *object, PyObject *Py_UNUSED(unused))
{
    lake_object *self = as_lake(object);
    gml_lake *lake = lake_enter(self);
    if (!lake) {
        return NULL;
    }
    gml_plan_stats stats = {0};
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_lake_plan_stats(lake, &stats);
    Py_END_ALLOW_THREADS
    if (status != GML_OK) {
        (void)answer(self, lake, status, "steps are not watched");
        lake_leave(self);
        return NULL;
    }
    lake_leave(self);
    PyObject *dict = PyDict_New();
    if (dict &&
        (put_number(dict, "steps", stats.steps) < 0 ||
         put_number(dict, "planned_steps", stats.planned_steps) < 0 ||
         put_number(dict, "requests", stats.requests) < 0 ||
         put_number(dict, "served", stats.served) < 0 || put_number(dict, "left", stats.left) < 0 ||
         put_number(dict, "plans_made", stats.plans_made) < 0 ||
         put(dict, "why", PyUnicode_FromString(stats.why ? stats.why : "")) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

/* ---- profiles and plans ---------------------------------------------------------------------- */

PyObject *
lake_profile(PyObject *object, PyObject *value)
{
    lake_object *self = as_lake(object);
    number_argument kind = {"kind", 0};
    gml_lake *lake = convert_number(value, &kind) ? lake_enter(self) : NULL;
    if (!lake) {
        return NULL;
    }
    gml_profile *profile = NULL;
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_lake_profile(lake, kind.value, &profile);
    Py_END_ALLOW_THREADS
    PyObject *result = status == GML_OK
                           ? profile_wrap(self->state, profile)
                           : answer(self, lake, status, "no step of that kind has ended");
    lake_leave(self);
    return result;
}

PyObject *
lake_add_plan(PyObject *object, PyObject *args)
{
    lake_object *self = as_lake(object);
    number_argument kind = {"kind", 0};
    PyObject *argument = NULL;
    if (!PyArg_ParseTuple(args, "O&O:add_plan", convert_number, &kind, &argument)) {
        return NULL;
    }
    gml_plan *plan = plan_of(self->state, argument);
    gml_lake *lake = plan ? lake_enter(self) : NULL;
    if (!lake) {
        return NULL;
    }
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_lake_add_plan(lake, kind.value, plan);
    Py_END_ALLOW_THREADS
    PyObject *result =
        answer(self, lake, status, "steps are not watched; call watch_steps() first");
    lake_leave(self);
    return result;
}
