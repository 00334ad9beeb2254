/* The module gmlake.diagnosis._diagnosis: the findings of a trace of objects as records, and a
 * handle to ask further with. */
#include "gmlake_diagnose.h"
#include "values.h"

#include <stdlib.h>

static const char HANDLE[] = "gmlake.diagnosis";

/* The data of a handle: a trace with its own arrays, and its findings. */
typedef struct own_diagnosis {
    gml_api *apis;
    gml_object *objects;
    gml_access *accesses;
    gml_access_range *ranges;
    gml_object_trace trace;
    gml_diagnosis found;
} own_diagnosis;

static void drop_diagnosis(own_diagnosis *own) {
    gml_diagnosis_clear(&own->found);
    free(own->apis);
    free(own->objects);
    free(own->accesses);
    free(own->ranges);
    free(own);
}

static void drop_handle(PyObject *handle) {
    own_diagnosis *own = PyCapsule_GetPointer(handle, HANDLE);
    if (own) {
        drop_diagnosis(own);
    }
}

/* Sets the exception for a failure, with `reason` as its text unless that is NULL or empty. Always
 * returns NULL. */
static PyObject *raise_status(gml_status status, const char *reason) {
    const char *text = reason && reason[0] ? reason : gml_status_text(status);
    if (status == GML_NO_HOST_MEMORY || status == GML_INVALID_ARGUMENT) {
        PyErr_SetString(status == GML_NO_HOST_MEMORY ? PyExc_MemoryError : PyExc_ValueError, text);
        return NULL;
    }
    PyObject *errors = PyImport_ImportModule("gmlake.errors");
    PyObject *kind = errors ? PyObject_GetAttrString(errors, "Error") : NULL;
    if (kind) {
        PyErr_SetString(kind, text);
    }
    Py_XDECREF(kind);
    Py_XDECREF(errors);
    return NULL;
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* The objects that a trace is made of. */
typedef struct trace_arguments {
    PyObject *apis, *objects, *accesses, *ranges;
} trace_arguments;

/* False with an exception. The caller drops `own` either way. */
static bool read_trace(const trace_arguments *from, own_diagnosis *own) {
    gml_object_trace *trace = &own->trace;
    own->apis = copy_records(from->apis, sizeof *own->apis, &trace->api_count, "apis");
    own->objects = own->apis ? copy_records(from->objects, sizeof *own->objects,
                                            &trace->object_count, "objects")
                             : NULL;
    own->accesses = own->objects ? copy_records(from->accesses, sizeof *own->accesses,
                                                &trace->access_count, "accesses")
                                 : NULL;
    own->ranges = own->accesses ? copy_records(from->ranges, sizeof *own->ranges,
                                               &trace->range_count, "ranges")
                                : NULL;
    trace->apis = own->apis;
    trace->objects = own->objects;
    trace->accesses = own->accesses;
    trace->ranges = own->ranges;
    return own->ranges != NULL;
}

/* ---- results --------------------------------------------------------------------------------- */

static PyObject *records(const void *items, size_t count, size_t record_bytes) {
    return PyBytes_FromStringAndSize(count ? items : "", (Py_ssize_t)(count * record_bytes));
}

static PyObject *peaks_list(const gml_diagnosis *found) {
    PyObject *list = PyList_New((Py_ssize_t)found->peak_count);
    for (size_t i = 0; list && i < found->peak_count; i++) {
        PyObject *pair = Py_BuildValue("(KK)", (unsigned long long)found->peaks[i].api,
                                       (unsigned long long)found->peaks[i].bytes);
        if (!pair || PyList_SetItem(list, (Py_ssize_t)i, pair) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* Takes `own` over, also on failure. */
static PyObject *diagnosis_dict(own_diagnosis *own) {
    const gml_diagnosis *found = &own->found;
    PyObject *handle = PyCapsule_New(own, HANDLE, drop_handle);
    if (!handle) {
        drop_diagnosis(own);
        return NULL;
    }
    PyObject *dict = PyDict_New();
    if (dict && (put(dict, "handle", Py_NewRef(handle)) < 0 ||
                 put(dict, "findings",
                     records(found->findings, found->finding_count, sizeof *found->findings)) < 0 ||
                 put(dict, "lives",
                     records(found->lives, own->trace.object_count, sizeof *found->lives)) < 0 ||
                 put(dict, "times",
                     records(found->times, own->trace.api_count, sizeof *found->times)) < 0 ||
                 put(dict, "peaks", peaks_list(found)) < 0 ||
                 put_number(dict, "fixed_peak_bytes", found->fixed_peak_bytes) < 0 ||
                 put_number(dict, "time_ns", found->time_ns) < 0)) {
        Py_CLEAR(dict);
    }
    Py_DECREF(handle);
    return dict;
}

static PyObject *diagnose(PyObject *Py_UNUSED(module), PyObject *args, PyObject *keywords) {
    static char *names[] = {"apis", "objects", "accesses", "ranges", "patterns", NULL};
    trace_arguments from = {0};
    unsigned patterns = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOOO|$I:diagnose", names, &from.apis,
                                     &from.objects, &from.accesses, &from.ranges, &patterns)) {
        return NULL;
    }
    own_diagnosis *own = calloc(1, sizeof *own);
    if (!own) {
        return PyErr_NoMemory();
    }
    if (!read_trace(&from, own)) {
        drop_diagnosis(own);
        return NULL;
    }
    char reason[REASON_BYTES] = "";
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_diagnose(&own->trace, patterns, &own->found, reason, sizeof reason);
    Py_END_ALLOW_THREADS
    if (status != GML_OK) {
        drop_diagnosis(own);
        return raise_status(status, reason);
    }
    return diagnosis_dict(own);
}

/* ---- asking further -------------------------------------------------------------------------- */

/* Some findings of a diagnosis; the caller owns and frees `numbers`. */
typedef struct chosen_findings {
    own_diagnosis *own;
    size_t *numbers;
    size_t count;
} chosen_findings;

/* False with an exception. */
static bool read_chosen(PyObject *args, chosen_findings *out) {
    PyObject *handle = NULL;
    PyObject *numbers = NULL;
    if (!PyArg_ParseTuple(args, "OO", &handle, &numbers)) {
        return false;
    }
    out->own = PyCapsule_GetPointer(handle, HANDLE);
    out->numbers =
        out->own ? copy_records(numbers, sizeof *out->numbers, &out->count, "findings") : NULL;
    for (size_t i = 0; out->numbers && i < out->count; i++) {
        if (out->numbers[i] >= out->own->found.finding_count) {
            PyErr_Format(PyExc_ValueError, "there is no finding %zu", out->numbers[i]);
            free(out->numbers);
            out->numbers = NULL;
        }
    }
    return out->numbers != NULL;
}

static PyObject *peak_with(PyObject *Py_UNUSED(module), PyObject *args) {
    chosen_findings chosen = {0};
    if (!read_chosen(args, &chosen)) {
        return NULL;
    }
    const own_diagnosis *own = chosen.own;
    uint64_t peak_bytes = 0;
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_diagnosis_peak_with(&own->trace, &own->found, chosen.numbers, chosen.count,
                                     &peak_bytes);
    Py_END_ALLOW_THREADS
    free(chosen.numbers);
    return status == GML_OK ? PyLong_FromUnsignedLongLong(peak_bytes) : raise_status(status, NULL);
}

/* ---- names ----------------------------------------------------------------------------------- */

static PyObject *pattern_names(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    PyObject *tuple = PyTuple_New(GML_PATTERN_COUNT);
    for (int i = 0; tuple && i < GML_PATTERN_COUNT; i++) {
        PyObject *name = PyUnicode_FromString(gml_pattern_name((gml_pattern)i));
        if (!name || PyTuple_SetItem(tuple, i, name) < 0) {
            Py_CLEAR(tuple);
        }
    }
    return tuple;
}

PyDoc_STRVAR(
    diagnose_doc,
    "diagnose(apis, objects, accesses, ranges, *, patterns=0)\n--\n\n"
    "Find patterns of memory inefficiency; the arguments are buffers of whole records.\n\n"
    "Return a dict: findings, lives, times (bytes of records), peaks (a list of (api, bytes)),\n"
    "fixed_peak_bytes, time_ns, and a handle for peak_with().\n"
    "Raises ValueError for a trace that contradicts itself.");
PyDoc_STRVAR(peak_with_doc,
             "peak_with(handle, findings, /)\n--\n\n"
             "Return the highest peak in bytes with these findings fixed; uint64 numbers of "
             "them.");
PyDoc_STRVAR(names_doc, "patterns()\n--\n\n"
                        "Return the names of the patterns, as a tuple.");
static PyMethodDef methods[] = {
    {"diagnose", (PyCFunction)(void (*)(void))diagnose, METH_VARARGS | METH_KEYWORDS, diagnose_doc},
    {"peak_with", peak_with, METH_VARARGS, peak_with_doc},
    {"patterns", pattern_names, METH_NOARGS, names_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "gmlake.diagnosis._diagnosis",
    .m_doc = "The C core of gmlake's diagnosis. Use gmlake.find_inefficiencies() instead.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__diagnosis(void);

PyMODINIT_FUNC PyInit__diagnosis(void) {
    return PyModuleDef_Init(&module);
}
