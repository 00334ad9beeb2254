/* Tensors over memory that no tensor library made. */
#include "core.h"

#include <stdlib.h>

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
    if (!PyArg_ParseTuple(args, "OO&O&ii:dlpack_bytes", &owner, NUMBER(address), NUMBER(size),
                          &device_type, &device_id)) {
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
