/* Placing lifetimes, and the independent check of placements. */
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

/* The objects that a problem is made of. */
typedef struct problem_arguments {
    PyObject *lifetimes, *orderings;
    number_argument period, alignment;
} problem_arguments;

/* False with an exception. The caller drops `own` either way. */
static bool read_problem(const problem_arguments *from, own_problem *own) {
    gml_problem *problem = &own->problem;
    own->lifetimes =
        copy_records(from->lifetimes, sizeof *own->lifetimes, &problem->count, "lifetimes");
    own->orderings = own->lifetimes ? copy_optional_records(from->orderings, sizeof *own->orderings,
                                                            &problem->ordering_count, "orderings")
                                    : NULL;
    problem->lifetimes = own->lifetimes;
    problem->orderings = own->orderings;
    problem->period = from->period.value;
    problem->alignment_bytes = from->alignment.value;
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
    static char *names[] = {"lifetimes", "offsets",   "period",   "alignment",
                            "orderings", "budget_ms", "capacity", NULL};
    problem_arguments from = {
        .orderings = Py_None, .period = {"period", 0}, .alignment = {"alignment", 512}};
    number_argument budget = {"budget_ms", 0};
    number_argument capacity = {"capacity", 0};
    PyObject *offsets = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|$O&O&OO&O&:solve", names, &from.lifetimes,
                                     &offsets, convert_number, &from.period, convert_number,
                                     &from.alignment, &from.orderings, convert_number, &budget,
                                     convert_number, &capacity)) {
        return NULL;
    }
    gml_planner_options options = {.budget_ms = budget.value, .capacity_bytes = capacity.value};
    own_problem own = {0};
    Py_buffer view = {0};
    PyObject *result = NULL;
    if (read_problem(&from, &own) && get_numbers(offsets, own.problem.count, &view, "offsets")) {
        result = solve_problem(PyModule_GetState(module), &own.problem, &options, view.buf);
        PyBuffer_Release(&view);
    }
    drop_problem(&own);
    return result;
}

/* ---- checking -------------------------------------------------------------------------------- */

static PyObject *check_problem(const planner_state *state, const gml_problem *problem,
                               const uint64_t *offsets, uint64_t peak_bytes) {
    char reason[REASON_BYTES] = "";
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_planner_check(problem, offsets, peak_bytes, reason, sizeof reason);
    Py_END_ALLOW_THREADS
    return status == GML_OK ? Py_NewRef(Py_None) : raise_plan_status(state, status, reason);
}

static PyObject *planner_check(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"lifetimes", "offsets",   "peak_bytes", "period",
                            "alignment", "orderings", NULL};
    problem_arguments from = {
        .orderings = Py_None, .period = {"period", 0}, .alignment = {"alignment", 512}};
    PyObject *offsets = NULL;
    number_argument peak = {"peak_bytes", 0};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOO&|$O&O&O:check_placement", names,
                                     &from.lifetimes, &offsets, convert_number, &peak,
                                     convert_number, &from.period, convert_number, &from.alignment,
                                     &from.orderings)) {
        return NULL;
    }
    own_problem own = {0};
    size_t count = 0;
    uint64_t *placed = NULL;
    PyObject *result = NULL;
    if (read_problem(&from, &own)) {
        placed = copy_records(offsets, sizeof *placed, &count, "offsets");
    }
    if (placed && count == own.problem.count) {
        result = check_problem(PyModule_GetState(module), &own.problem, placed, peak.value);
    } else if (placed) {
        PyErr_Format(PyExc_ValueError, "there are %zu offsets for %zu lifetimes", count,
                     own.problem.count);
    }
    free(placed);
    drop_problem(&own);
    return result;
}

PyDoc_STRVAR(
    solve_doc,
    "solve(lifetimes, offsets, *, period=0, alignment=512, orderings=None,\n"
    "      budget_ms=0, capacity=0)\n--\n\n"
    "Place 48-byte lifetimes so that the highest address is lowest; return how as a dict:\n"
    "peak_bytes, lower_bound_bytes, method, time_ns, is_proven.\n\n"
    "`offsets`, a writable buffer of one uint64 per lifetime, receives the addresses.\n"
    "Raises ValueError for input outside its range.");
PyDoc_STRVAR(
    check_doc,
    "check_placement(lifetimes, offsets, peak_bytes, *, period=0, alignment=512,\n"
    "                orderings=None)\n--\n\n"
    "Check a placement by a sweep that shares no code with solve(). Raises PlanError with\n"
    "the first thing that is wrong.");
PyMethodDef solve_methods[] = {
    {"solve", (PyCFunction)(void (*)(void))planner_solve, METH_VARARGS | METH_KEYWORDS, solve_doc},
    {"check_placement", (PyCFunction)(void (*)(void))planner_check, METH_VARARGS | METH_KEYWORDS,
     check_doc},
    {NULL, NULL, 0, NULL},
};
