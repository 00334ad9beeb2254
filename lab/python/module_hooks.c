/* _core.test_hooks(), in developer builds: the hooks around the drivers of the lakes that the
 * module opens. */
#include "hooks/test_hooks.h"
#include "python/core.h"

#include <stdlib.h>
#include <string.h>

/* The bits of that name; 0 with an exception. */
static uint64_t read_call(PyObject *name) {
    if (!PyUnicode_Check(name)) {
        PyErr_SetString(PyExc_TypeError, "the names of driver calls must be text");
        return 0;
    }
    for (int i = 0; i < GML_CALL_COUNT; i++) {
        if (PyUnicode_CompareWithASCIIString(name, gml_driver_call_name((gml_driver_call)i)) == 0) {
            return UINT64_C(1) << i;
        }
    }
    PyErr_Format(PyExc_ValueError,
                 "no driver call is called %R; stats()[\"driver_calls\"] has their names", name);
    return 0;
}

/* The bits of a sequence of names of driver calls; false with an exception. */
static bool read_calls(PyObject *names, uint64_t *out) {
    PyObject *tuple = PySequence_Tuple(names);
    bool is_good = tuple != NULL;
    for (Py_ssize_t i = 0; is_good && i < PyTuple_Size(tuple); i++) {
        uint64_t call = read_call(PyTuple_GetItem(tuple, i));
        *out |= call;
        is_good = call != 0;
    }
    Py_XDECREF(tuple);
    return is_good;
}

static PyObject *names_of(uint64_t calls) {
    PyObject *names = PyList_New(0);
    for (int i = 0; names && i < GML_CALL_COUNT; i++) {
        if (!(calls & UINT64_C(1) << i)) {
            continue;
        }
        PyObject *name = PyUnicode_FromString(gml_driver_call_name((gml_driver_call)i));
        if (!name || PyList_Append(names, name) < 0) {
            Py_CLEAR(names);
        }
        Py_XDECREF(name);
    }
    return names;
}

static PyObject *describe(gml_test_options options) {
    PyObject *dict = PyDict_New();
    if (!dict) {
        return NULL;
    }
    if (put_number(dict, "fail_call", options.fail_call) < 0 ||
        put_number(dict, "fail_per_million", options.fail_per_million) < 0 ||
        put_number(dict, "fail_seed", options.fail_seed) < 0 ||
        put(dict, "skip_calls", names_of(options.skip_calls)) < 0 ||
        put(dict, "check_order", PyBool_FromLong(options.check_order)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *test_hooks(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"fail_call",  "fail_per_million", "fail_seed",
                            "skip_calls", "check_order",      NULL};
    number_argument fail_call = {"fail_call", 0};
    number_argument fail_per_million = {"fail_per_million", 0};
    number_argument fail_seed = {"fail_seed", 0};
    PyObject *skipped = NULL;
    int checks_order = 0;
    gml_test_options options = {0};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$O&O&O&Op:test_hooks", names, convert_number,
                                     &fail_call, convert_number, &fail_per_million, convert_number,
                                     &fail_seed, &skipped, &checks_order) ||
        (skipped && !read_calls(skipped, &options.skip_calls))) {
        return NULL;
    }
    options.fail_call = fail_call.value;
    options.fail_per_million = fail_per_million.value;
    options.fail_seed = fail_seed.value;
    options.check_order = checks_order != 0;
    core_state *state = PyModule_GetState(module);
    PyObject *before = describe(gml_test_options_of(state->hooks));
    if (before) {
        state->hooks = gml_test_hooks(options);
    }
    return before;
}

PyDoc_STRVAR(test_hooks_doc,
             "test_hooks(*, fail_call=0, fail_per_million=0, fail_seed=0, skip_calls=(),\n"
             "           check_order=False)\n--\n\n"
             "Choose what is put around the drivers of lakes that are opened from now on, by\n"
             "Lake() or after torch_configure(); return what was chosen before. fail_call,\n"
             "fail_per_million: the n-th driver call fails, or each with a probability, drawn\n"
             "from fail_seed. skip_calls: names of calls that record, wait or synchronise, as in\n"
             "stats()['driver_calls']; they are not made and answer as if they were.\n"
             "check_order: Error where memory goes from one stream to another, or is unmapped,\n"
             "while no call of the lake orders the two.");

static PyMethodDef methods[] = {
    {"test_hooks", (PyCFunction)(void (*)(void))test_hooks, METH_VARARGS | METH_KEYWORDS,
     test_hooks_doc},
    {NULL, NULL, 0, NULL},
};

int add_test_hooks(PyObject *module) {
    core_state *state = PyModule_GetState(module);
    const char *wanted = getenv("GMLAKE_TEST_CHECK_ORDER");
    if (wanted && strcmp(wanted, "1") == 0) {
        state->hooks = GML_HOOKS(.check_order = true);
    }
    return PyModule_AddFunctions(module, methods);
}
