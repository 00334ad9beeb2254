/* Lake.stream_pairs(): streams that lent each other memory. */
#include "core.h"

#include <stdlib.h>

/* Every pair, in an array that the caller frees. More may come up between two looks. */
static gml_status copy_pairs(gml_lake *lake, gml_stream_pair **out, size_t *count) {
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

static const number_field pair_fields[] = {
    NUMBER_FIELD(gml_stream_pair, owner),
    NUMBER_FIELD(gml_stream_pair, borrower),
    NUMBER_FIELD(gml_stream_pair, borrowed_bytes),
    NUMBER_FIELD(gml_stream_pair, borrows),
    NUMBER_FIELD(gml_stream_pair, waits),
    NUMBER_FIELD(gml_stream_pair, refused_waits),
    NUMBER_FIELD(gml_stream_pair, deferred_free_bytes),
    {NULL, 0},
};

static PyObject *pair_list(const gml_stream_pair *pairs, size_t count) {
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *dict = fields_dict(&pairs[i], pair_fields);
        if (!dict || PyList_SetItem(list, (Py_ssize_t)i, dict) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

PyObject *lake_stream_pairs(PyObject *object, PyObject *Py_UNUSED(unused)) {
    lake_object *self = (lake_object *)object;
    gml_stream_pair *pairs = NULL;
    size_t count = 0;
    LAKE_CALL(self, copy_pairs(lake, &pairs, &count));
    PyObject *result =
        status == GML_OK ? pair_list(pairs, count) : raise_from_lake(self->state, status, lake);
    lake_leave(self);
    free(pairs);
    return result;
}
