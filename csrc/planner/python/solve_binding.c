/* Placing lifetimes. */
#include "planner.h"

#include <stdlib.h>

/* ---- arguments ------------------------------------------------------------------------------- */

/* A problem whose arrays are its own. */
typedef struct own_problem {
    gml_lifetime *lifetimes;
    gml_ordering *orderings;
    gml_problem problem;
} own_problem;

static void drop_problem(own_problem *own) {
    free(own->lifetimes);
    free(own->orderings);
}

/* False with an exception. The caller drops `own` either way. */
static bool read_problem(PyObject *lifetimes, PyObject *orderings, own_problem *own) {
    gml_problem *problem = &own->problem;
    own->lifetimes = copy_records(lifetimes, sizeof *own->lifetimes, &problem->count, "lifetimes");
    own->orderings = own->lifetimes ? copy_optional_records(orderings, sizeof *own->orderings,
                                                            &problem->ordering_count, "orderings")
                                    : NULL;
    problem->lifetimes = own->lifetimes;
    problem->orderings = own->orderings;
    return own->orderings != NULL;
}

/* ---- solving --------------------------------------------------------------------------------- */

static PyObject *solution_dict(const gml_solution *solution) {
    PyObject *dict = PyDict_New();
    if (dict && (put_number(dict, "peak_bytes", solution->peak_bytes) < 0 ||
                 put_number(dict, "lower_bound_bytes", solution->lower_bound_bytes) < 0 ||
                 put(dict, "method", PyUnicode_FromString(solution->method)) < 0 ||
                 put_number(dict, "time_ns", solution->time_ns) < 0 ||
                 put(dict, "is_proven", PyBool_FromLong(solution->is_proven)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *solve_problem(const planner_state *state, const gml_problem *problem,
                               const gml_planner_options *options, void *offsets) {
    gml_solution solution = {0};
    char reason[REASON_BYTES] = "";
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_planner_solve(problem, options, offsets, &solution, reason, sizeof reason);
    Py_END_ALLOW_THREADS
    return status == GML_OK ? solution_dict(&solution) : raise_plan_status(state, status, reason);
}

static PyObject *planner_solve(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"lifetimes", "offsets",  "alignment", "orderings",
                            "budget_ms", "capacity", NULL};
    number_argument alignment = {"alignment", 512};
    number_argument budget = {"budget_ms", 0};
    number_argument capacity = {"capacity", 0};
    PyObject *lifetimes = NULL, *offsets = NULL, *orderings = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|$O&OO&O&:solve", names, &lifetimes,
                                     &offsets, convert_number, &alignment, &orderings,
                                     convert_number, &budget, convert_number, &capacity)) {
        return NULL;
    }
    gml_planner_options options = {.budget_ms = budget.value, .capacity_bytes = capacity.value};
    own_problem own = {.problem.alignment_bytes = alignment.value};
    Py_buffer view = {0};
    PyObject *result = NULL;
    if (read_problem(lifetimes, orderings, &own) &&
        get_numbers(offsets, own.problem.count, &view, "offsets")) {
        result = solve_problem(PyModule_GetState(module), &own.problem, &options, view.buf);
        PyBuffer_Release(&view);
    }
    drop_problem(&own);
    return result;
}

PyDoc_STRVAR(
    solve_doc,
    "solve(lifetimes, offsets, *, alignment=512, orderings=None, budget_ms=0,\n"
    "      capacity=0)\n--\n\n"
    "Place 48-byte lifetimes so that the highest address is lowest; return how as a dict:\n"
    "peak_bytes, lower_bound_bytes, method, time_ns, is_proven.\n\n"
    "`offsets`, a writable buffer of one uint64 per lifetime, receives the addresses.\n"
    "Raises ValueError for input outside its range, PlanError if the result does not pass the\n"
    "independent check.");
PyMethodDef solve_methods[] = {
    {"solve", (PyCFunction)(void (*)(void))planner_solve, METH_VARARGS | METH_KEYWORDS, solve_doc},
    {NULL, NULL, 0, NULL},
};
