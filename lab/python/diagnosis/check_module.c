/* The module gmlake.diagnosis._check, in developer builds: the independent check for Python tests.
 */
#include "diagnosis/check.h"
#include "python/values.h"

#include <stdlib.h>

typedef enum part { APIS, OBJECTS, ACCESSES, RANGES, FINDINGS, LIVES, TIMES, CHOSEN, PARTS } part;

static const struct {
    const char *name;
    size_t record_bytes;
} parts[PARTS] = {
    [APIS] = {"apis", sizeof(gml_api)},
    [OBJECTS] = {"objects", sizeof(gml_object)},
    [ACCESSES] = {"accesses", sizeof(gml_access)},
    [RANGES] = {"ranges", sizeof(gml_access_range)},
    [FINDINGS] = {"findings", sizeof(gml_finding)},
    [LIVES] = {"lives", sizeof(gml_object_life)},
    [TIMES] = {"times", sizeof(uint64_t)},
    [CHOSEN] = {"chosen", sizeof(size_t)},
};

/* Private copies of a trace, its diagnosis, and the numbers of findings. */
typedef struct check_data {
    gml_object_trace trace;
    gml_diagnosis diagnosis;
    void *copies[PARTS];
    size_t counts[PARTS];
} check_data;

static void drop(check_data *data) {
    for (size_t i = 0; i < PARTS; i++) {
        free(data->copies[i]);
    }
}

/* False with an exception. The caller drops `data` either way. */
static bool read_data(PyObject *args, check_data *data) {
    if (PyTuple_Size(args) != PARTS) {
        PyErr_SetString(PyExc_TypeError, "check() takes eight buffers");
        return false;
    }
    for (int i = 0; i < PARTS; i++) {
        data->copies[i] = copy_records(PyTuple_GetItem(args, i), parts[i].record_bytes,
                                       &data->counts[i], parts[i].name);
        if (!data->copies[i]) {
            return false;
        }
    }
    if (data->counts[LIVES] != data->counts[OBJECTS] || data->counts[TIMES] != data->counts[APIS]) {
        PyErr_SetString(PyExc_ValueError, "the diagnosis is not of this trace");
        return false;
    }
    data->trace = (gml_object_trace){.apis = data->copies[APIS],
                                     .api_count = data->counts[APIS],
                                     .objects = data->copies[OBJECTS],
                                     .object_count = data->counts[OBJECTS],
                                     .accesses = data->copies[ACCESSES],
                                     .access_count = data->counts[ACCESSES],
                                     .ranges = data->copies[RANGES],
                                     .range_count = data->counts[RANGES]};
    data->diagnosis = (gml_diagnosis){.findings = data->copies[FINDINGS],
                                      .finding_count = data->counts[FINDINGS],
                                      .lives = data->copies[LIVES],
                                      .times = data->copies[TIMES]};
    return true;
}

static PyObject *check(PyObject *Py_UNUSED(module), PyObject *args) {
    check_data data = {0};
    char reason[REASON_BYTES] = "";
    gml_status status = GML_OK;
    bool is_read = read_data(args, &data);
    if (is_read) {
        status = gml_diagnosis_check(&data.trace, &data.diagnosis, data.copies[CHOSEN],
                                     data.counts[CHOSEN], reason, sizeof reason);
    }
    drop(&data);
    if (!is_read) {
        return NULL;
    }
    if (status != GML_OK) {
        PyErr_SetString(PyExc_AssertionError, reason[0] ? reason : gml_status_text(status));
        return NULL;
    }
    return Py_NewRef(Py_None);
}

PyDoc_STRVAR(check_doc,
             "check(apis, objects, accesses, ranges, findings, lives, times, chosen, /)\n--\n\n"
             "Raise AssertionError with the first thing that is wrong where, with the chosen\n"
             "findings fixed, an API would not read what it read.");

static PyMethodDef methods[] = {
    {"check", check, METH_VARARGS, check_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "gmlake.diagnosis._check",
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__check(void);

PyMODINIT_FUNC PyInit__check(void) {
    return PyModuleDef_Init(&module);
}
