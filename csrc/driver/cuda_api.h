/* The part of the CUDA driver API that gmlake calls: own declarations, so that no toolkit is needed
 * to build, and one list of entries, so that nothing is called that was not looked up.
 *
 * Names, values and layouts are those of CUDA 12 and 13 (CUDA Driver API, "Data types used by CUDA
 * driver"); tests/c/test_driver_cuda_layout.c compares them with cuda.h where that is installed.
 */
#ifndef GML_DRIVER_CUDA_API_H
#define GML_DRIVER_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

typedef int gml_cu_result;
typedef int gml_cu_device;
typedef unsigned long long gml_cu_pointer; /* CUdeviceptr */
typedef unsigned long long gml_cu_handle;  /* CUmemGenericAllocationHandle */
typedef struct gml_cu_context_object *gml_cu_context;
typedef struct gml_cu_stream_object *gml_cu_stream;
typedef struct gml_cu_event_object *gml_cu_event;

enum {
    GML_CU_SUCCESS = 0,
    GML_CU_INVALID_VALUE = 1,
    GML_CU_OUT_OF_MEMORY = 2,
    GML_CU_STUB_LIBRARY = 34,
    GML_CU_NO_DEVICE = 100,
    GML_CU_INVALID_DEVICE = 101,
    GML_CU_INVALID_CONTEXT = 201,
    GML_CU_INVALID_HANDLE = 400,
    GML_CU_NOT_READY = 600,
    GML_CU_NOT_SUPPORTED = 801,
    GML_CU_STREAM_CAPTURE_UNSUPPORTED = 900, /* first of the errors about captures */
    GML_CU_STREAM_CAPTURE_IMPLICIT = 906,
    GML_CU_STREAM_CAPTURE_WRONG_THREAD = 908, /* last of them */

    GML_CU_ATTRIBUTE_INTEGRATED = 18,
    GML_CU_ATTRIBUTE_VIRTUAL_MEMORY = 102,
    GML_CU_ATTRIBUTE_RDMA_WITH_VIRTUAL_MEMORY = 110,
    GML_CU_ATTRIBUTE_HOST_NODE = 134,
    GML_CU_ATTRIBUTE_HOST_WITH_VIRTUAL_MEMORY = 141,

    GML_CU_STREAM_PER_THREAD = 2, /* a handle that names another stream in every thread */

    GML_CU_ALLOCATION_PINNED = 1,
    GML_CU_HANDLE_NONE = 0,
    GML_CU_HANDLE_FILE = 1,
    GML_CU_HANDLE_FABRIC = 8,
    GML_CU_LOCATION_DEVICE = 1,
    GML_CU_LOCATION_HOST_NODE = 3,
    GML_CU_GRANULARITY_MINIMUM = 0,
    GML_CU_ACCESS_NONE = 0,
    GML_CU_ACCESS_READ_WRITE = 3,
    GML_CU_EVENT_DISABLE_TIMING = 2,
    GML_CU_CAPTURE_NONE = 0,
    GML_CU_CAPTURE_MODE_RELAXED = 2,
};

typedef struct gml_cu_location {
    int type;
    int id;
} gml_cu_location;

typedef struct gml_cu_allocation {
    int type;
    int handle_types;
    gml_cu_location location;
    void *win32_metadata;
    struct {
        unsigned char compression;
        unsigned char rdma_capable;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
} gml_cu_allocation;

typedef struct gml_cu_access {
    gml_cu_location location;
    int flags;
} gml_cu_access;

/* X(name, version, parameters): the version is the CUDA release whose signature is meant. */
#define GML_CUDA_ENTRIES(X)                                                                        \
    X(cuInit, 2000, (unsigned flags))                                                              \
    X(cuGetErrorName, 6000, (gml_cu_result error, const char **out))                               \
    X(cuGetErrorString, 6000, (gml_cu_result error, const char **out))                             \
    X(cuDeviceGetCount, 2000, (int *out))                                                          \
    X(cuDeviceGet, 2000, (gml_cu_device * out, int ordinal))                                       \
    X(cuDeviceGetName, 2000, (char *out, int out_bytes, gml_cu_device device))                     \
    X(cuDeviceGetAttribute, 2000, (int *out, int attribute, gml_cu_device device))                 \
    X(cuDeviceCanAccessPeer, 4000, (int *out, gml_cu_device from, gml_cu_device to))               \
    X(cuDeviceTotalMem, 3020, (size_t *out, gml_cu_device device))                                 \
    X(cuDevicePrimaryCtxRetain, 7000, (gml_cu_context * out, gml_cu_device device))                \
    X(cuDevicePrimaryCtxRelease, 11000, (gml_cu_device device))                                    \
    X(cuCtxPushCurrent, 4000, (gml_cu_context context))                                            \
    X(cuCtxPopCurrent, 4000, (gml_cu_context * out))                                               \
    X(cuCtxSynchronize, 2000, (void))                                                              \
    X(cuThreadExchangeStreamCaptureMode, 10010, (int *mode))                                       \
    X(cuMemGetAllocationGranularity, 10020,                                                        \
      (size_t *out, const gml_cu_allocation *properties, int option))                              \
    X(cuMemCreate, 10020,                                                                          \
      (gml_cu_handle * out, size_t size, const gml_cu_allocation *properties,                      \
       unsigned long long flags))                                                                  \
    X(cuMemRelease, 10020, (gml_cu_handle handle))                                                 \
    X(cuMemExportToShareableHandle, 10020,                                                         \
      (void *out, gml_cu_handle handle, int type, unsigned long long flags))                       \
    X(cuMemImportFromShareableHandle, 10020, (gml_cu_handle * out, void *shared, int type))        \
    X(cuMemAddressReserve, 10020,                                                                  \
      (gml_cu_pointer * out, size_t size, size_t alignment, gml_cu_pointer hint,                   \
       unsigned long long flags))                                                                  \
    X(cuMemAddressFree, 10020, (gml_cu_pointer address, size_t size))                              \
    X(cuMemMap, 10020,                                                                             \
      (gml_cu_pointer address, size_t size, size_t offset, gml_cu_handle handle,                   \
       unsigned long long flags))                                                                  \
    X(cuMemUnmap, 10020, (gml_cu_pointer address, size_t size))                                    \
    X(cuMemSetAccess, 10020,                                                                       \
      (gml_cu_pointer address, size_t size, const gml_cu_access *access, size_t count))            \
    X(cuMemAlloc, 3020, (gml_cu_pointer * out, size_t size))                                       \
    X(cuMemFree, 3020, (gml_cu_pointer address))                                                   \
    X(cuMemGetInfo, 3020, (size_t *free_bytes, size_t *total_bytes))                               \
    X(cuMemHostRegister, 6050, (void *memory, size_t size, unsigned flags))                        \
    X(cuMemHostUnregister, 4000, (void *memory))                                                   \
    X(cuMemcpyDtoHAsync, 3020, (void *to, gml_cu_pointer from, size_t size, gml_cu_stream stream)) \
    X(cuMemcpyHtoDAsync, 3020,                                                                     \
      (gml_cu_pointer to, const void *from, size_t size, gml_cu_stream stream))                    \
    X(cuEventCreate, 2000, (gml_cu_event * out, unsigned flags))                                   \
    X(cuEventDestroy, 4000, (gml_cu_event event))                                                  \
    X(cuEventRecord, 2000, (gml_cu_event event, gml_cu_stream stream))                             \
    X(cuEventQuery, 2000, (gml_cu_event event))                                                    \
    X(cuEventSynchronize, 2000, (gml_cu_event event))                                              \
    X(cuStreamWaitEvent, 3020, (gml_cu_stream stream, gml_cu_event event, unsigned flags))         \
    X(cuStreamSynchronize, 2000, (gml_cu_stream stream))                                           \
    X(cuStreamIsCapturing, 10000, (gml_cu_stream stream, int *out))

/* The same for what an older driver lacks. */
#define GML_CUDA_OPTIONAL(X)                                                                       \
    X(cuCtxRecordEvent, 12050, (gml_cu_context context, gml_cu_event event))

/* A pointer to each entry, all of them set but the optional ones, which may be NULL. */
typedef struct gml_cuda_api {
#define GML_CUDA_FIELD(name, version, parameters) gml_cu_result(*name) parameters;
    GML_CUDA_ENTRIES(GML_CUDA_FIELD)
    GML_CUDA_OPTIONAL(GML_CUDA_FIELD)
#undef GML_CUDA_FIELD
} gml_cuda_api;

#endif
