/* Shared by the files of the module gmlake._core: its state, its objects, and its error channel.
 *
 * Lock order: the GIL is the outermost lock. It is released around every call that may take a
 * lake's own lock or wait for a device. `guard` of a lake object is held for a few instructions
 * only, never while the GIL is asked for.
 */
#ifndef GML_PYTHON_CORE_H
#define GML_PYTHON_CORE_H

#include "access.h"
#include "base/map.h"
#include "gmlake.h"
#include "values.h"

#include <pthread.h>

/* The module's state; none of it is global. */
typedef struct core_state {
    PyTypeObject *lake_type;
    PyTypeObject *block_type;
    PyTypeObject *replay_type;
    PyObject *error; /* the classes of gmlake.errors */
    PyObject *out_of_memory_error;
    PyObject *driver_error;
    PyObject *unsupported_error;
    const gml_lake_hooks *hooks; /* of lakes opened from now on; NULL except in developer builds */
    core_access access;          /* see access.h */
} core_state;

typedef struct lake_object {
    PyObject_HEAD
    core_state *state;     /* lives as long as the type does */
    pthread_mutex_t guard; /* guards all below, also without a GIL */
    pthread_cond_t idle;   /* users has become 0 */
    gml_lake *lake;        /* NULL from closing on: use what lake_enter() gave */
    gml_map blocks;        /* live, with a Block object: address -> block_object, borrowed */
    uint64_t users;        /* threads inside a call on `lake` */
    uint64_t exports;      /* buffers of blocks that are held by others */
    unsigned forks;        /* fixed: how often the process had been forked when this was made */
    bool is_borrowed;      /* fixed: the lake belongs to the process, and is never closed */
} lake_object;

typedef struct block_object {
    PyObject_HEAD
    lake_object *owner;
    gml_block_info info; /* as served */
    bool is_live;        /* guarded by owner->guard, as is exports */
    uint64_t exports;
} block_object;

/* ---- errors: the only place where a status becomes an exception ------------------------------ */

/* Sets the exception for a failure; `reason` is its text unless it is NULL or empty. Always returns
 * NULL. */
PyObject *raise_status(const core_state *state, gml_status status, const char *reason);

/* The same, with the reason that the lake kept. */
PyObject *raise_from_lake(const core_state *state, gml_status status, gml_lake *lake);

/* The frame of a call that says in `reason` why it failed: makes it without the GIL. `status` and
 * `reason` are there from then on. */
#define REASON_CALL(call)                                                                          \
    char reason[REASON_BYTES] = "";                                                                \
    gml_status status;                                                                             \
    Py_BEGIN_ALLOW_THREADS                                                                         \
    status = (call);                                                                               \
    Py_END_ALLOW_THREADS

/* None, or the exception of such a call. */
PyObject *answer(const core_state *state, gml_status status, const char *reason);

/* ---- lakes ----------------------------------------------------------------------------------- */

/* Counts the forks that this process is a child of. 0, or -1 with an exception. */
int watch_forks(void);

/* How many they are now. */
unsigned count_forks(void);

/* Takes the guard; false, and it is not taken, where the lake is inherited. */
bool lake_lock(lake_object *self);
void lake_unlock(lake_object *self);

/* The open lake, which stays open until lake_leave(); NULL with a ValueError once it is closed, and
 * with a RuntimeError where it is inherited. */
gml_lake *lake_enter(lake_object *self);
void lake_leave(lake_object *self);

/* Whether `kind` is lake_type or a subtype of it; false with an exception. */
bool is_lake_kind(const core_state *state, PyObject *kind);

/* An object of that kind around a lake that it does not close; NULL with an exception. */
PyObject *lake_borrow(core_state *state, PyObject *kind, gml_lake *lake);

/* The settings of a tuple of (name, value); the names belong to the tuple, the array to the caller,
 * who frees it. NULL with an exception on failure. */
gml_setting *read_settings(PyObject *pairs, size_t *count);

/* The frame of a method that makes one call on its lake: enters it, or returns from the method with
 * the exception, and makes the call without the GIL. `lake` and `status` are there from then on,
 * and the method ends with lake_end() or lake_leave(). */
#define LAKE_CALL(self, call)                                                                      \
    gml_lake *lake = lake_enter(self);                                                             \
    if (!lake) {                                                                                   \
        return NULL;                                                                               \
    }                                                                                              \
    gml_status status;                                                                             \
    Py_BEGIN_ALLOW_THREADS                                                                         \
    status = (call);                                                                               \
    Py_END_ALLOW_THREADS

/* The end of such a method: the lake is left. None, or the exception. */
PyObject *lake_end(lake_object *self, gml_lake *lake, gml_status status);

/* Lake(...), in lake_open.c. */
PyObject *lake_new(PyTypeObject *type, PyObject *args, PyObject *keywords);

/* lake_sleep.c: sleep_lakes and wake_lakes; ended by an empty one. */
extern PyMethodDef sleep_methods[];

PyObject *dlpack_bytes(PyObject *module, PyObject *args);

/* A number for each way to serve a request. */
PyObject *states_dict(const uint64_t states[GML_STATE_COUNT]);

/* Reports on a lake that is held open: new dicts and lists, or NULL. */
PyObject *report_stats(const core_state *state, gml_lake *lake);
PyObject *report_torch_stats(const core_state *state, gml_lake *lake);
PyObject *report_spans(const core_state *state, gml_lake *lake);

/* ---- blocks ---------------------------------------------------------------------------------- */

/* A Block for a block that `lake`, held open by the caller, just served. On failure that block is
 * freed again. */
PyObject *block_new(lake_object *owner, gml_lake *lake, gml_address address, uint64_t size_bytes,
                    gml_stream stream);

/* Ends the life of a Block object, so that its memory may be freed. pre: owner->guard is held. */
typedef enum retirement { RETIRED, FREED_BEFORE, BUFFER_IN_USE } retirement;
retirement block_retire_locked(block_object *self);

/* ---- the parts of the module ----------------------------------------------------------------- */

/* Adds the capsule of access.h; -1 with an exception. */
int add_access(PyObject *module, core_state *state);

extern PyType_Spec lake_spec, block_spec, replay_spec, inside_spec, turn_spec;

/* describe.c */
extern PyMethodDef describe_methods[];

/* read_plain_pickle(data, parts): the value; ValueError, in one line, for refused input. */
PyObject *read_plain_pickle(PyObject *module, PyObject *args);

/* read_pickled_events(data, parts): see module.c; ValueError for what the other refuses. */
PyObject *read_pickled_events(PyObject *module, PyObject *args);

/* The functions torch_*, which are about the lakes below PyTorch; ended by an empty one. */
extern PyMethodDef torch_methods[];

/* refusals.c */
extern PyMethodDef refusal_methods[];

/* publishing.c; the first is a method of Lake */
PyObject *lake_publish(PyObject *object, PyObject *name);
extern PyMethodDef publishing_methods[];

/* The functions interop_*: those lakes, for other libraries; ended by an empty one. */
extern PyMethodDef interop_methods[];

#ifdef GMLAKE_LAB /* a developer build */
/* Adds test_hooks(), and reads whether the environment asks for a check of the order: lab/python.
 */
int add_test_hooks(PyObject *module);
#endif

/* The state that belongs to a type of this module or to a subclass of one. */
core_state *state_of(PyTypeObject *type);

#endif
