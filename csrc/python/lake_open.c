/* Opening a lake: the arguments of Lake(...), and the process that it belongs to. */
#include "core.h"

#include <stdlib.h>

/* ---- forks: a child recognises inherited objects --------------------------------------------- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int failure;
static unsigned forks; /* written in a child that has one thread */

static void count_fork(void) {
    forks++;
}

static void begin(void) {
    failure = pthread_atfork(NULL, NULL, count_fork);
}

int watch_forks(void) {
    (void)pthread_once(&once, begin);
    if (failure) {
        PyErr_SetString(PyExc_MemoryError, "the process cannot watch its forks");
        return -1;
    }
    return 0;
}

unsigned count_forks(void) {
    return forks;
}

/* ---- lakes ----------------------------------------------------------------------------------- */

static int read_setting(PyObject *pair, gml_setting *out) {
    number_argument value = {"the value of a setting", 0};
    if (!PyTuple_Check(pair)) {
        PyErr_SetString(PyExc_TypeError, "settings must be pairs of a name and a number");
        return -1;
    }
    if (!PyArg_ParseTuple(pair, "sO&;settings must be pairs of a name and a number", &out->name,
                          NUMBER(value))) {
        return -1;
    }
    out->value = value.value;
    return 0;
}

gml_setting *read_settings(PyObject *pairs, size_t *count) {
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
static lake_object *lake_make(PyTypeObject *type, core_state *state) {
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

bool is_lake_kind(const core_state *state, PyObject *kind) {
    if (PyType_Check(kind) && PyType_IsSubtype((PyTypeObject *)kind, state->lake_type)) {
        return true;
    }
    PyErr_SetString(PyExc_TypeError, "kind must be Lake or a subclass of it");
    return false;
}

PyObject *lake_borrow(core_state *state, PyObject *kind, gml_lake *lake) {
    lake_object *self = lake_make((PyTypeObject *)kind, state);
    if (self) {
        self->is_borrowed = true;
        self->lake = lake;
    }
    return (PyObject *)self;
}

static PyObject *open_lake(PyTypeObject *type, core_state *state, const gml_lake_config *config) {
    lake_object *self = lake_make(type, state);
    if (!self) {
        return NULL;
    }
    gml_lake *lake = NULL;
    REASON_CALL(gml_lake_open(config, &lake, reason, sizeof reason));
    if (status != GML_OK) {
        Py_DECREF(self);
        return raise_status(state, status, reason);
    }
    self->lake = lake;
    return (PyObject *)self;
}

PyObject *lake_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"driver",   "policy",    "capacity", "device",
                            "settings", "can_sleep", NULL};
    gml_lake_config config = {.driver = "sim", .policy = "stitch"};
    number_argument capacity = {"capacity", 0};
    PyObject *settings = NULL;
    int can_sleep = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|ssO&iO!p:Lake", names, &config.driver,
                                     &config.policy, NUMBER(capacity), &config.device,
                                     &PyTuple_Type, &settings, &can_sleep)) {
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
    config.can_sleep = can_sleep != 0;
    config.hooks = state->hooks;
    PyObject *self = open_lake(type, state, &config);
    free(read);
    return self;
}
