/* Shared by the files of the module gmlake.planner._planner. */
#ifndef GML_PLANNER_PYTHON_PLANNER_H
#define GML_PLANNER_PYTHON_PLANNER_H

#include "gmlake_plan.h"
#include "python/access.h"
#include "python/values.h"

/* The module's state; none of it is global. */
typedef struct planner_state {
    PyTypeObject *profile_type;
    PyTypeObject *plan_type;
    PyObject *plan_error; /* gmlake.planner.plan_errors.PlanError */
    PyObject *core;       /* the module gmlake._core, which `access` is of */
    const core_access *access;
} planner_state;

/* Sets the exception for what the planner and plan files answer: GML_CORRUPT and GML_UNSUPPORTED
 * are a PlanError. `reason` is its text unless it is NULL or empty. Always returns NULL. */
PyObject *raise_plan_status(const planner_state *state, gml_status status, const char *reason);

/* A Profile of what a lake watched; takes `profile` over, also on failure. */
PyObject *profile_wrap(const planner_state *state, gml_profile *profile);

/* The content of a Profile or a Plan, borrowed; NULL with a TypeError for anything else. */
const gml_profile *profile_of(const planner_state *state, PyObject *object);
gml_plan *plan_of(const planner_state *state, PyObject *object);

extern PyType_Spec profile_spec, plan_spec;

/* solve; and those about the steps of a lake. Ended by an empty one. */
extern PyMethodDef solve_methods[], step_methods[];

#endif
