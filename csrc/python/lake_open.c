/* Opening a lake: the arguments of Lake(...). */
#include "aids/aids.h"
#include "core.h"

#include <stdlib.h>

static int
read_setting(PyObject *pair, gml_setting *out)
{
    number_argument value = {"the value of a setting", 0};
    if (!PyTuple_Check(pair)) {
        PyErr_SetString(PyExc_TypeError, "settings must be pairs of a name and a number");
        return -1;
    }
    if (!PyArg_ParseTuple(pair, "sO&;settings must be pairs of a name and a number", &out->name,
                          convert_number, &value)) {
        return -1;
    }
    out->value = value.value;
    return 0;
}

gml_setting *
read_settings(PyObject *pairs, size_t *count)
{
    Py_ssize_t length = PyTuple_Size(pairs);
    if (length < 0) {
        return NULL;
    }
    gml_setting *settings = calloc((size_t)length + 1, sizeof *settings);
    if (!settings) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < length; i++) {
        if (read_setting(PyTuple_GetItem(pairs, i), &settings[i]) < 0) {
            free(settings);
            return NULL;
        }
    }
    *count = (size_t)length;
    return settings;
}

/* An object of `type`, lake_type or a subtype of it, without a lake; NULL with an exception. */
static lake_object *
lake_make(PyTypeObject *type, core_state *state)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    lake_object *self = (lake_object *)allocate(type, 0);
    if (self) {
        self->state = state;
        self->forks = count_forks();
        pthread_mutex_init(&self->guard, NULL);
        pthread_cond_init(&self->idle, NULL);
    }
    return self;
}

bool
is_lake_kind(const core_state *state, PyObject *kind)
{
    if (PyType_Check(kind) && PyType_IsSubtype((PyTypeObject *)kind, state->lake_type)) {
        return true;
    }
    PyErr_SetString(PyExc_TypeError, "kind must be Lake or a subclass of it");
    return false;
}

PyObject *
lake_borrow(core_state *state, PyObject *kind, gml_lake *lake)
{
    lake_object *self = lake_make((PyTypeObject *)kind, state);
    if (self) {
        self->is_borrowed = true;
        self->lake = lake;
    }
    return (PyObject *)self;
}

static PyObject *
open_lake(PyTypeObject *type, core_state *state, const gml_lake_config *config)
{
    lake_object *self = lake_make(type, state);
    if (!self) {
        return NULL;
    }
    char reason[REASON_BYTES] = "";
    gml_lake *lake = NULL;
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_lake_open(config, &lake, reason, sizeof reason);
    Py_END_ALLOW_THREADS
    if (status != GML_OK) {
        Py_DECREF(self);
        return raise_status(state, status, reason);
    }
    self->lake = lake;
    return (PyObject *)self;
}

/* Adds the call of that name to the bits; false with an exception. */
static bool
read_call(PyObject *name, uint64_t *calls)
{
    if (!PyUnicode_Check(name)) {
        PyErr_SetString(PyExc_TypeError, "the names of driver calls must be text");
        return false;
    }
    for (int i = 0; i < GML_CALL_COUNT; i++) {
        if (PyUnicode_CompareWithASCIIString(name, gml_driver_call_name((gml_driver_call)i)) == 0) {
            *calls |= UINT64_C(1) << i;
            return true;
        }
    }
    PyErr_Format(PyExc_ValueError,
                 "no driver call is called %R; stats()[\"driver_calls\"] has their names", name);
    return false;
}

bool
read_calls(PyObject *names, uint64_t *out)
{
    PyObject *tuple = PySequence_Tuple(names);
    bool is_good = tuple != NULL;
    for (Py_ssize_t i = 0; is_good && i < PyTuple_Size(tuple); i++) {
        is_good = read_call(PyTuple_GetItem(tuple, i), out);
    }
    Py_XDECREF(tuple);
    return is_good;
}

PyObject *
lake_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"driver",      "policy",     "capacity",         "device",
                            "settings",    "fail_call",  "fail_per_million", "fail_seed",
                            "check_order", "skip_calls", "can_sleep",        NULL};
    gml_lake_config config = {.driver = "sim", .policy = "stitch", .aids = {gml_aids_wrap}};
    number_argument capacity = {"capacity", 0};
    number_argument fail_call = {"fail_call", 0};
    number_argument fail_per_million = {"fail_per_million", 0};
    number_argument fail_seed = {"fail_seed", 0};
    PyObject *settings = NULL;
    PyObject *skipped = NULL;
    int checks_order = 0, can_sleep = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|ssO&iO!O&O&O&pOp:Lake", names,
                                     &config.driver, &config.policy, convert_number, &capacity,
                                     &config.device, &PyTuple_Type, &settings, convert_number,
                                     &fail_call, convert_number, &fail_per_million, convert_number,
                                     &fail_seed, &checks_order, &skipped, &can_sleep) ||
        (skipped && !read_calls(skipped, &config.aids.skip_calls))) {
        return NULL;
    }
    core_state *state = state_of(type);
    gml_setting *read = NULL;
    if (state && settings) {
        read = read_settings(settings, &config.setting_count);
    }
    if (!state || (settings && !read)) {
        return NULL;
    }
    config.settings = read;
    config.capacity_bytes = capacity.value;
    config.aids.fail_call = fail_call.value;
    config.aids.fail_per_million = fail_per_million.value;
    config.aids.fail_seed = fail_seed.value;
    config.aids.check_order = checks_order != 0;
    config.can_sleep = can_sleep != 0;
    PyObject *self = open_lake(type, state, &config);
    free(read);
    return self;
}
