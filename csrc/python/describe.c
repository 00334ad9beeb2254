/* Functions that describe a device, the policies and their settings. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

static PyObject *device_describe(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"driver", "device", NULL};
    const char *driver;
    int device = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "s|i:device_describe", names, &driver,
                                     &device)) {
        return NULL;
    }
    gml_device_info info = {0};
    REASON_CALL(gml_device_describe(driver, device, &info, reason, sizeof reason));
    if (status != GML_OK) {
        return raise_status(PyModule_GetState(module), status, reason);
    }
    PyObject *dict = PyDict_New();
    if (dict &&
        (put(dict, "name",
             PyUnicode_DecodeUTF8(info.name, (Py_ssize_t)strlen(info.name), "replace")) < 0 ||
         put_number(dict, "granularity_bytes", info.granularity_bytes) < 0 ||
         put_number(dict, "total_bytes", info.total_bytes) < 0 ||
         put_number(dict, "free_bytes", info.free_bytes) < 0 ||
         put(dict, "has_virtual_memory", PyBool_FromLong(info.has_virtual_memory)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

/* The words for its values from 0 on, as a list. */
static PyObject *knob_words(const gml_knob_info *knob) {
    PyObject *text = PyUnicode_FromString(knob->words ? knob->words : "");
    PyObject *words = text ? PyUnicode_Split(text, NULL, -1) : NULL;
    Py_XDECREF(text);
    return words;
}

/* The policies that read it: those that it names, and those that read all of one of these. */
static PyObject *knob_policies(const gml_knob_info *knob) {
    PyObject *names = PyUnicode_FromString(knob->policies);
    for (size_t i = 0; names && gml_policy_settings(i); i++) {
        const char *of = gml_policy_settings(i);
        if (of[0] && strstr(knob->policies, of)) {
            PyObject *more = PyUnicode_FromFormat("%U, %s", names, gml_policy_name(i));
            Py_DECREF(names);
            names = more;
        }
    }
    return names;
}

static PyObject *knob_dict(const gml_knob_info *knob) {
    PyObject *words = knob_words(knob), *policies = words ? knob_policies(knob) : NULL;
    if (!policies) {
        Py_XDECREF(words);
        return NULL;
    }
    return Py_BuildValue(
        "{s:s,s:s,s:N,s:K,s:K,s:K,s:N,s:N}", "name", knob->name, "help", knob->help, "policies",
        policies, "default", (unsigned long long)knob->default_value, "minimum",
        (unsigned long long)knob->minimum, "maximum", (unsigned long long)knob->maximum, "words",
        words, "is_size", PyBool_FromLong(knob->is_size));
}

static PyObject *check_knobs(PyObject *module, PyObject *args) {
    PyObject *settings;
    number_argument granularity = {"granularity_bytes", 0};
    if (!PyArg_ParseTuple(args, "O!O&:check_knobs", &PyTuple_Type, &settings,
                          NUMBER(granularity))) {
        return NULL;
    }
    size_t count = 0;
    gml_setting *read = read_settings(settings, &count);
    if (!read) {
        return NULL;
    }
    char reason[REASON_BYTES] = "";
    gml_status status = gml_knobs_check(read, count, granularity.value ? granularity.value : 1,
                                        reason, sizeof reason);
    free(read);
    return answer(PyModule_GetState(module), status, reason);
}

static PyObject *describe_knobs(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    PyObject *list = PyList_New(0);
    gml_knob_info knob;
    for (size_t i = 0; list && gml_knob_describe(i, &knob) == GML_OK; i++) {
        list = with_item(list, knob_dict(&knob));
    }
    return list;
}

/* The result of `text_of` for each policy. */
static PyObject *of_policies(const char *(*text_of)(size_t index)) {
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && text_of(i); i++) {
        list = with_item(list, PyUnicode_FromString(text_of(i)));
    }
    return as_tuple(list);
}

static PyObject *describe_policies(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    return of_policies(gml_policy_name);
}

static PyObject *describe_policy_help(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    return of_policies(gml_policy_help);
}

PyMethodDef describe_methods[] = {
    KEYWORD_FUNCTION(
        device_describe, "(driver, device=0)",
        "Return what a device can do as a dict: name, granularity_bytes, total_bytes,\n"
        "free_bytes, has_virtual_memory. Raises DriverError where it is not there."),
    METHOD(describe, knobs, METH_NOARGS, "()",
           "Return every setting of every policy as a list of dicts: name, help, policies,\n"
           "default, minimum, maximum, words: what the values from 0 on are called,\n"
           "[] for numbers, and is_size: whether it is a number of bytes."),
    FUNCTION(
        check_knobs, METH_VARARGS, "(settings, granularity_bytes, /)",
        "Raise ValueError unless a lake can be opened with these pairs of a name and a number\n"
        "on a device of that granularity."),
    METHOD(describe, policies, METH_NOARGS, "()", "Return the names of the policies as a tuple."),
    METHOD(describe, policy_help, METH_NOARGS, "()",
           "Return a line for each of policies(), as a tuple."),
    {NULL, NULL, 0, NULL},
};
