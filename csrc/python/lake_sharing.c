/* The methods of Lake about streams that lend each other memory. */
#include "core.h"

#include <stdlib.h>

typedef gml_status (*stream_call)(gml_lake *lake, gml_stream stream);

static PyObject *
call_with_stream(PyObject *object, PyObject *value, stream_call call)
{
    lake_object *self = (lake_object *)object;
    number_argument stream = {"stream", 0};
    gml_lake *lake = convert_number(value, &stream) ? lake_enter(self) : NULL;
    if (!lake) {
        return NULL;
    }
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = call(lake, stream.value);
    Py_END_ALLOW_THREADS
    PyObject *result = lake_answer(self, lake, status);
    lake_leave(self);
    return result;
}

PyObject *
lake_forget_stream(PyObject *object, PyObject *stream)
{
    return call_with_stream(object, stream, gml_lake_forget_stream);
}

PyObject *
lake_distrust_stream(PyObject *object, PyObject *stream)
{
    return call_with_stream(object, stream, gml_lake_distrust_stream);
}

PyObject *
lake_order_streams(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"later", "earlier", NULL};
    lake_object *self = (lake_object *)object;
    number_argument later = {"later", 0};
    number_argument earlier = {"earlier", 0};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O&O&:order_streams", names, convert_number,
                                     &later, convert_number, &earlier)) {
        return NULL;
    }
    gml_lake *lake = lake_enter(self);
    if (!lake) {
        return NULL;
    }
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_lake_order_streams(lake, later.value, earlier.value);
    Py_END_ALLOW_THREADS
    PyObject *result = lake_answer(self, lake, status);
    lake_leave(self);
    return result;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* Every pair, in an array that the caller frees. More may come up between two looks. */
static gml_status
copy_pairs(gml_lake *lake, gml_stream_pair **out, size_t *count)
{
    gml_stream_pair *pairs = NULL;
    size_t capacity = 0, found = 0;
    gml_status status = gml_lake_stream_pairs(lake, NULL, 0, &found);
    while (status == GML_OK && found > capacity) {
        gml_stream_pair *grown = realloc(pairs, found * sizeof *pairs);
        if (!grown) {
            status = GML_NO_HOST_MEMORY;
            break;
        }
        pairs = grown;
        capacity = found;
        status = gml_lake_stream_pairs(lake, pairs, capacity, &found);
    }
    if (status != GML_OK) {
        free(pairs);
        return status;
    }
    *out = pairs;
    *count = found;
    return GML_OK;
}

static PyObject *
pair_dict(const gml_stream_pair *pair)
{
    PyObject *dict = PyDict_New();
    if (dict && (put_number(dict, "owner", pair->owner) < 0 ||
                 put_number(dict, "borrower", pair->borrower) < 0 ||
                 put_number(dict, "borrowed_bytes", pair->borrowed_bytes) < 0 ||
                 put_number(dict, "borrows", pair->borrows) < 0 ||
                 put_number(dict, "waits", pair->waits) < 0 ||
                 put_number(dict, "refused_waits", pair->refused_waits) < 0 ||
                 put_number(dict, "deferred_free_bytes", pair->deferred_free_bytes) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
pair_list(const gml_stream_pair *pairs, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *dict = pair_dict(&pairs[i]);
        if (!dict || PyList_SetItem(list, (Py_ssize_t)i, dict) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

PyObject *
lake_stream_pairs(PyObject *object, PyObject *Py_UNUSED(unused))
{
    lake_object *self = (lake_object *)object;
    gml_lake *lake = lake_enter(self);
    if (!lake) {
        return NULL;
    }
    gml_stream_pair *pairs = NULL;
    size_t count = 0;
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = copy_pairs(lake, &pairs, &count);
    Py_END_ALLOW_THREADS
    PyObject *result =
        status == GML_OK ? pair_list(pairs, count) : raise_from_lake(self->state, status, lake);
    lake_leave(self);
    free(pairs);
    return result;
}
