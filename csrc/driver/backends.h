/* The backends, opened one by one; gml_driver_open() knows them by name. */
#ifndef GML_DRIVER_BACKENDS_H
#define GML_DRIVER_BACKENDS_H

#include "driver/driver.h"

/* ---- `cuda`: one NVIDIA device through libcuda.so.1, found at run time ----------------------- */

/* Opens the device with that ordinal and retains its primary context. GML_DRIVER_ABSENT without a
 * usable library or device. */
gml_status gml_cuda_driver_open(int device, gml_driver **out, char *reason, size_t reason_bytes);

/* ---- the model of a device, without one: `sim` and `host` ------------------------------------ */

typedef enum gml_model_kind {
    /* Accounting without memory: any capacity, strict rules, modelled costs. Addresses of
     * reservations and blocks ascend from 2^47; blocks of 2 MiB or more are aligned to 2 MiB,
     * others to 512 bytes. expect_malloc queues addresses: a malloc takes the oldest one of its
     * size that is free address space, else an address of its own choice. */
    GML_MODEL_SIM,
    /* Real bytes, in this process. Physical memory lies in one memfd, so that a handle mapped at
     * several addresses shows the same bytes at each. A reservation and a mapping without access
     * are PROT_NONE: touching them kills the process, as it kills a context on a device. */
    GML_MODEL_HOST,
    /* `host` without bytes: addresses are real, unique in the process and never accessible, so that
     * any capacity costs no memory. */
    GML_MODEL_HOLLOW
} gml_model_kind;

/* capacity_bytes 0: 80 GiB for `sim`, 1 GiB for the others; granularity_bytes 0: 2 MiB, else a
 * power of two of 512 or more, with addresses of the host a multiple of its page size. Without
 * bytes, bytes() applies the rules too: GML_MISUSE for a range that a kernel could not touch, else
 * GML_UNSUPPORTED. */
gml_status gml_model_driver_open(gml_model_kind kind, uint64_t capacity_bytes,
                                 uint64_t granularity_bytes, gml_driver **out, char *reason,
                                 size_t reason_bytes);

/* Where the bytes of a held handle of a model lie: in the file *file, which stays the driver's,
 * from *offset_bytes on. False for one without bytes, and for another handle. */
bool gml_model_place(gml_driver *driver, gml_handle handle, int *file, uint64_t *offset_bytes);

#endif
