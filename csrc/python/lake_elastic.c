/* The methods of Lake about elastic buffers, and tensors over memory that no tensor library made.
 */
#include "core.h"
#include "gmlake_elastic.h"

#include <stdlib.h>

/* ---- buffers --------------------------------------------------------------------------------- */

PyObject *lake_open_elastic(PyObject *object, PyObject *args) {
    lake_object *self = (lake_object *)object;
    number_argument size = {"size", 0}, stream = {"stream", 0};
    if (!PyArg_ParseTuple(args, "O&O&:open_elastic", convert_number, &size, convert_number,
                          &stream)) {
        return NULL;
    }
    gml_address address = 0;
    LAKE_CALL(self, gml_lake_open_elastic(lake, size.value, stream.value, &address));
    return lake_end_number(self, lake, status, address);
}

PyObject *lake_resize_elastic(PyObject *object, PyObject *args) {
    lake_object *self = (lake_object *)object;
    number_argument address = {"address", 0}, size = {"size", 0}, ahead = {"ahead", 0};
    int is_final = 1;
    if (!PyArg_ParseTuple(args, "O&O&O&|p:resize_elastic", convert_number, &address, convert_number,
                          &size, convert_number, &ahead, &is_final)) {
        return NULL;
    }
    uint64_t memory = 0;
    LAKE_CALL(self, (is_final ? gml_lake_resize_elastic : gml_lake_try_elastic)(
                        lake, address.value, size.value, ahead.value, &memory));
    return lake_end_number(self, lake, status, memory);
}

PyObject *lake_close_elastic(PyObject *object, PyObject *address) {
    return lake_call_number(object, address, "address", gml_lake_close_elastic);
}

static const number_field elastic_fields[] = {
    NUMBER_FIELD(gml_elastic_info, address),
    NUMBER_FIELD(gml_elastic_info, size_bytes),
    NUMBER_FIELD(gml_elastic_info, memory_bytes),
    NUMBER_FIELD(gml_elastic_info, chunk_bytes),
    {NULL, 0},
};

PyObject *lake_elastic(PyObject *object, PyObject *number) {
    lake_object *self = (lake_object *)object;
    uint64_t address;
    if (!read_number(number, "address", &address)) {
        return NULL;
    }
    gml_elastic_info info = {0};
    LAKE_CALL(self, gml_lake_elastic(lake, address, &info));
    if (status != GML_OK) {
        return lake_end(self, lake, status);
    }
    lake_leave(self);
    return fields_dict(&info, elastic_fields);
}

PyObject *lake_elastic_bytes(PyObject *object, PyObject *number) {
    lake_object *self = (lake_object *)object;
    uint64_t address;
    if (!read_number(number, "address", &address)) {
        return NULL;
    }
    void *bytes = NULL;
    LAKE_CALL(self, gml_lake_elastic_bytes(lake, address, &bytes));
    return lake_end_number(self, lake, status, (uint64_t)(uintptr_t)bytes);
}

/* ---- docstrings ------------------------------------------------------------------------------ */

const char lake_open_elastic_doc[] =
    "open_elastic($self, size, stream, /)\n--\n\n"
    "Reserve addresses for an elastic buffer of `size` bytes; return where it begins.\n\n"
    "Raises UnsupportedError for a policy that has no chunks to give, ValueError for a\n"
    "size that is none, OutOfMemoryError, DriverError.";
const char lake_resize_elastic_doc[] =
    "resize_elastic($self, address, size, ahead, is_final=True, /)\n--\n\n"
    "Let an elastic buffer have memory for its first `size` bytes, and where it grows for\n"
    "`ahead` more if that needs nothing from others; return the bytes that it has.\n"
    "A lack of memory counts as a refusal only where is_final is true.\n\n"
    "Raises ValueError for another address or a size above the buffer's, OutOfMemoryError,\n"
    "UnsupportedError for growing while a graph is captured or the lake is asleep,\n"
    "DriverError; then it is as before.";
const char lake_close_elastic_doc[] =
    "close_elastic($self, address, /)\n--\n\n"
    "End an elastic buffer. Raises ValueError for another address.";
const char lake_elastic_doc[] =
    "describe_elastic($self, address, /)\n--\n\n"
    "Describe an elastic buffer as a dict: address, size_bytes, memory_bytes,\n"
    "chunk_bytes. Raises ValueError for another address.";
const char lake_elastic_bytes_doc[] =
    "elastic_bytes($self, address, /)\n--\n\n"
    "Return where the host finds the memory of an elastic buffer, on the driver `host`.";

/* ---- DLPack ---------------------------------------------------------------------------------- */

/* The layout that DLPack lays down (dmlc.github.io/dlpack), version 0: what every consumer reads.
 */
typedef struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t type_code, type_bits;
    uint16_t type_lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed_tensor {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed_tensor *self);
} dl_managed_tensor;

typedef struct bytes_tensor {
    dl_managed_tensor managed; /* must be first */
    int64_t length, stride;
} bytes_tensor;

enum { TYPE_UNSIGNED = 1, BITS_OF_A_BYTE = 8 };

/* Called on any thread when the last tensor over the memory is destroyed. */
static void delete_tensor(dl_managed_tensor *managed) {
    if (Py_IsInitialized()) {
        PyGILState_STATE gil = PyGILState_Ensure();
        Py_DECREF((PyObject *)managed->context);
        PyGILState_Release(gil);
    }
    free(managed);
}

/* Frees a capsule that was never made into a tensor. */
static void delete_capsule(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        delete_tensor(PyCapsule_GetPointer(capsule, "dltensor"));
    }
}

PyObject *dlpack_bytes(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *owner;
    number_argument address = {"address", 0}, size = {"size", 0};
    int device_type, device_id;
    if (!PyArg_ParseTuple(args, "OO&O&ii:dlpack_bytes", &owner, convert_number, &address,
                          convert_number, &size, &device_type, &device_id)) {
        return NULL;
    }
    bytes_tensor *made = calloc(1, sizeof *made);
    if (!made) {
        return PyErr_NoMemory();
    }
    made->length = (int64_t)size.value;
    made->stride = 1;
    made->managed = (dl_managed_tensor){
        .tensor = {.data = (void *)(uintptr_t)address.value,
                   .device_type = device_type,
                   .device_id = device_id,
                   .ndim = 1,
                   .type_code = TYPE_UNSIGNED,
                   .type_bits = BITS_OF_A_BYTE,
                   .type_lanes = 1,
                   .shape = &made->length,
                   .strides = &made->stride},
        .context = owner,
        .deleter = delete_tensor,
    };
    PyObject *capsule = PyCapsule_New(made, "dltensor", delete_capsule);
    if (!capsule) {
        free(made);
        return NULL;
    }
    Py_INCREF(owner);
    return capsule;
}
