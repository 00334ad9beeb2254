/* The interface of gmlake._core for the annexes' extensions: a capsule, `gmlake._core.access`. */
#ifndef GML_PYTHON_ACCESS_H
#define GML_PYTHON_ACCESS_H

#define PY_SSIZE_T_CLEAN
#include "gmlake.h"

#include <Python.h>

#define CORE_ACCESS_NAME "gmlake._core.access"

/* Valid while the module lives. `state` is its first argument wherever one is asked for. */
typedef struct core_access {
    const void *state;

    /* The library's own gml_lake_close(), for an annex to see that it calls the same library. */
    gml_status (*close)(gml_lake *lake);

    /* The open lake of a Lake, which stays open until it is left; NULL with a TypeError for another
     * object, a ValueError once it is closed, a RuntimeError in a forked process. */
    gml_lake *(*enter)(const void *state, PyObject *lake);
    void (*leave)(PyObject *lake);

    /* Sets the exception of a failure, with a reason, unless that is NULL or "", or with the one
     * that the lake kept. Always returns NULL. */
    PyObject *(*raise)(const void *state, gml_status status, const char *reason);
    PyObject *(*raise_from_lake)(const void *state, gml_status status, gml_lake *lake);
} core_access;

#endif
