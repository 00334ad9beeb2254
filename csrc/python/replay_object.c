/* The type Replay: recorded requests run through a lake, a slice at a time. */
#include "core.h"
#include "gmlake_replay.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct replay_object {
    PyObject_HEAD
    lake_object *owner;
    gml_replay *replay;       /* NULL once closed */
    bool is_busy;             /* guarded by owner->guard: a thread is inside a call */
    gml_replay_result totals; /* over all slices */
} replay_object;

static replay_object *as_replay(PyObject *self) {
    return (replay_object *)self;
}

/* ---- life ------------------------------------------------------------------------------------ */

static PyObject *replay_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"lake", "id_count", NULL};
    core_state *state = state_of(type);
    PyObject *owner = NULL;
    number_argument id_count = {"id_count", 0};
    if (!state || !PyArg_ParseTupleAndKeywords(args, keywords, "O!O&:Replay", names,
                                               state->lake_type, &owner, NUMBER(id_count))) {
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    replay_object *self = (replay_object *)allocate(type, 0);
    if (!self) {
        return NULL;
    }
    self->owner = (lake_object *)Py_NewRef(owner);
    gml_lake *lake = lake_enter(self->owner);
    if (lake) {
        gml_status status = gml_replay_open(lake, id_count.value, &self->replay);
        if (status != GML_OK) {
            (void)raise_status(state, status, NULL);
        }
        lake_leave(self->owner);
    }
    if (!self->replay) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void replay_dealloc(PyObject *object) {
    replay_object *self = as_replay(object);
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    gml_replay_close(self->replay);
    Py_CLEAR(self->owner);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static int replay_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(as_replay(object)->owner);
    Py_VISIT(Py_TYPE(object));
    return 0;
}

/* Begins a call: the open lake, with this replay closed to other threads; NULL with an exception.
 */
static gml_lake *begin(replay_object *self) {
    gml_lake *lake = lake_enter(self->owner);
    if (!lake) {
        return NULL;
    }
    pthread_mutex_lock(&self->owner->guard);
    bool was_busy = self->is_busy;
    self->is_busy = true;
    pthread_mutex_unlock(&self->owner->guard);
    if (was_busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread is inside a call on this replay");
        lake_leave(self->owner);
        return NULL;
    }
    return lake;
}

static void end(replay_object *self) {
    pthread_mutex_lock(&self->owner->guard);
    self->is_busy = false;
    pthread_mutex_unlock(&self->owner->guard);
    lake_leave(self->owner);
}

/* ---- running --------------------------------------------------------------------------------- */

static const number_field total_fields[] = {
#define FIELD(name) NUMBER_FIELD(gml_replay_result, name)
    FIELD(events),
    FIELD(allocations),
    FIELD(refused),
    FIELD(peak_live_bytes),
    FIELD(peak_reserved_bytes),
    FIELD(seconds_ns),
#undef FIELD
    {NULL, 0},
};

static PyObject *totals_dict(const gml_replay_result *totals) {
    PyObject *dict = fields_dict(totals, total_fields);
    if (dict && totals->refused && put_number(dict, "first_refused", totals->first_refused) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static void add_to_totals(gml_replay_result *totals, const gml_replay_result *slice) {
    totals->events += slice->events;
    totals->allocations += slice->allocations;
    totals->first_refused = totals->refused ? totals->first_refused : slice->first_refused;
    totals->refused += slice->refused;
    totals->peak_live_bytes = slice->peak_live_bytes;
    totals->peak_reserved_bytes = slice->peak_reserved_bytes;
    totals->seconds_ns += slice->seconds_ns;
}

/* Names the request that could not be replayed, counted from the first slice on. */
static void raise_at_request(replay_object *self, gml_status status, gml_lake *lake,
                             uint64_t request) {
    char reason[REASON_BYTES] = "";
    gml_lake_reason(lake, reason, sizeof reason);
    char text[REASON_BYTES + 40];
    snprintf(text, sizeof text, "event %llu: %s", (unsigned long long)request,
             reason[0] ? reason : gml_status_text(status));
    (void)raise_status(self->owner->state, status, text);
}

static PyObject *run_slice(replay_object *self, gml_lake *lake, const gml_request *requests,
                           size_t count, gml_address *addresses) {
    gml_replay_result slice = {0};
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_replay_run(self->replay, requests, count, addresses, &slice);
    Py_END_ALLOW_THREADS
    add_to_totals(&self->totals, &slice);
    if (status != GML_OK) {
        raise_at_request(self, status, lake, self->totals.events);
        return NULL;
    }
    return totals_dict(&self->totals);
}

static PyObject *replay_run(PyObject *object, PyObject *args, PyObject *keywords) {
    static char *names[] = {"requests", "addresses", NULL};
    replay_object *self = as_replay(object);
    PyObject *records = NULL;
    PyObject *addresses = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O:run", names, &records, &addresses)) {
        return NULL;
    }
    size_t count = 0;
    gml_request *requests = copy_records(records, sizeof *requests, &count, "requests");
    if (!requests) {
        return NULL;
    }
    Py_buffer view = {0};
    PyObject *result = NULL;
    if (addresses == Py_None || get_numbers(addresses, count, &view, "addresses")) {
        gml_lake *lake = begin(self);
        if (lake) {
            result = run_slice(self, lake, requests, count, view.buf);
            end(self);
        }
        if (view.obj) {
            PyBuffer_Release(&view);
        }
    }
    free(requests);
    return result;
}

static PyObject *replay_follow_segments(PyObject *object, PyObject *Py_UNUSED(unused)) {
    replay_object *self = as_replay(object);
    gml_lake *lake = begin(self);
    if (!lake) {
        return NULL;
    }
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_replay_follow_segments(self->replay);
    Py_END_ALLOW_THREADS
    PyObject *result =
        status == GML_OK ? Py_NewRef(Py_None) : raise_from_lake(self->owner->state, status, lake);
    end(self);
    return result;
}

/* ---- the type -------------------------------------------------------------------------------- */

static PyMethodDef replay_methods[] = {
    KEYWORD_METHOD(
        replay, run, "($self, /, requests, addresses=None)",
        "Replay a bytes-like object of whole 48-byte requests; return totals over all calls.\n\n"
        "`addresses`, a writable buffer of one uint64 per request, receives the addresses.\n"
        "The dict has events, allocations, refused, peak_live_bytes, peak_reserved_bytes and\n"
        "seconds_ns (inside the loop). Raises Error for a request that makes no sense."),
    METHOD(replay, follow_segments, METH_NOARGS, "($self, /)",
           "Let each SEGMENT_ALLOC from now on choose where sim's next malloc lies."),
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(replay_doc, "Replay(lake, id_count)\n--\n\n"
                         "Runs recorded requests through a lake; ids must be below id_count.");

static PyType_Slot replay_slots[] = {
    {Py_tp_doc, (void *)replay_doc}, {Py_tp_new, replay_new},
    {Py_tp_dealloc, replay_dealloc}, {Py_tp_traverse, replay_traverse},
    {Py_tp_methods, replay_methods}, {0, NULL},
};

PyType_Spec replay_spec = {
    .name = "gmlake._core.Replay",
    .basicsize = sizeof(replay_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = replay_slots,
};
