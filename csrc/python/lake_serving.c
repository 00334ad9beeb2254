/* The methods of Lake that say how it serves: other streams, graph pools. */
#include "core.h"
#include "gmlake_share.h"

PyObject *lake_record_stream(PyObject *object, PyObject *args, PyObject *keywords) {
    static char *names[] = {"block", "stream", NULL};
    lake_object *self = (lake_object *)object;
    PyObject *used = NULL;
    number_argument stream = {"stream", 0};
    block_object *block = NULL;
    gml_address address = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO&:record_stream", names, &used,
                                     convert_number, &stream) ||
        !lake_read_block(self, used, &block, &address)) {
        return NULL;
    }
    LAKE_CALL(self, gml_lake_record_stream(lake, address, stream.value));
    return lake_end(self, lake, status);
}

/* ---- graph pools ----------------------------------------------------------------------------- */

typedef gml_status (*pool_call)(gml_lake *lake, gml_pool_id id);

/* Calls for the pool of two numbers. A status has no reason of its own in the lake. */
static PyObject *call_pool(PyObject *object, PyObject *args, pool_call call,
                           const char *complaint) {
    lake_object *self = (lake_object *)object;
    number_argument first = {"first", 0};
    number_argument second = {"second", 0};
    if (!PyArg_ParseTuple(args, "O&O&", convert_number, &first, convert_number, &second)) {
        return NULL;
    }
    gml_pool_id id = {.first = first.value, .second = second.value};
    LAKE_CALL(self, call(lake, id));
    lake_leave(self);
    if (status != GML_OK) {
        return raise_status(self->state, status, status == GML_INVALID_ARGUMENT ? complaint : NULL);
    }
    Py_RETURN_NONE;
}

PyObject *lake_begin_pool(PyObject *object, PyObject *args) {
    return call_pool(object, args, gml_lake_begin_pool, NULL);
}

PyObject *lake_end_pool(PyObject *object, PyObject *args) {
    return call_pool(object, args, gml_lake_end_pool, "the pool is not begun");
}

PyObject *lake_release_pool(PyObject *object, PyObject *args) {
    return call_pool(object, args, gml_lake_release_pool, "the pool is not in use");
}

/* ---- transports ------------------------------------------------------------------------------ */

PyObject *lake_count_chunks(PyObject *object, PyObject *number) {
    lake_object *self = (lake_object *)object;
    uint64_t address;
    if (!read_number(number, "address", &address)) {
        return NULL;
    }
    size_t count = 0;
    LAKE_CALL(self, gml_lake_count_chunks(lake, address, &count));
    return lake_end_number(self, lake, status, count);
}

const char lake_count_chunks_doc[] =
    "count_chunks($self, address, /)\n--\n\n"
    "Return in how many chunks the live block at an address lies. Raises ValueError for\n"
    "another address, UnsupportedError where its memory is not made up of chunks.";
