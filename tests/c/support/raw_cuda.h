/* Entries of libcuda.so.1 that only tests call, to see the driver `cuda` from outside: the real
 * library or the fake one, whichever the process finds. */
#ifndef GML_TEST_RAW_CUDA_H
#define GML_TEST_RAW_CUDA_H

#include "driver/cuda_api.h"
#include "gmlake.h"

#define RAW_CUDA_ENTRIES(X)                                                                        \
    X(cuInit, 2000, (unsigned flags))                                                              \
    X(cuDevicePrimaryCtxRetain, 7000, (gml_cu_context * out, gml_cu_device device))                \
    X(cuDevicePrimaryCtxRelease, 11000, (gml_cu_device device))                                    \
    X(cuDevicePrimaryCtxGetState, 7000, (gml_cu_device device, unsigned *flags, int *is_active))   \
    X(cuCtxPushCurrent, 4000, (gml_cu_context context))                                            \
    X(cuCtxPopCurrent, 4000, (gml_cu_context * out))                                               \
    X(cuCtxGetCurrent, 4000, (gml_cu_context * out))                                               \
    X(cuThreadExchangeStreamCaptureMode, 10010, (int *mode))                                       \
    X(cuDeviceGetCount, 2000, (int *out))                                                          \
    X(cuDeviceCanAccessPeer, 4000, (int *out, gml_cu_device from, gml_cu_device to))               \
    X(cuMemGetAccess, 10020,                                                                       \
      (unsigned long long *out, const gml_cu_location *of, gml_cu_pointer address))                \
    X(cuMemcpyHtoD, 3020, (gml_cu_pointer to, const void *from, size_t size))                      \
    X(cuMemcpyDtoH, 3020, (void *to, gml_cu_pointer from, size_t size))                            \
    X(cuStreamCreate, 2000, (gml_cu_stream * out, unsigned flags))                                 \
    X(cuStreamBeginCapture, 10010, (gml_cu_stream stream, int mode))                               \
    X(cuStreamEndCapture, 10000, (gml_cu_stream stream, void **graph))                             \
    X(cuGraphDestroy, 10000, (void *graph))

typedef struct raw_cuda {
#define RAW_CUDA_FIELD(name, version, parameters) gml_cu_result(*name) parameters;
    RAW_CUDA_ENTRIES(RAW_CUDA_FIELD)
#undef RAW_CUDA_FIELD
    gml_cu_context context; /* the primary one of device 0, retained until the process ends */
} raw_cuda;

/* What GMLAKE_TEST_CUDA says: "fake" for the fake library, anything else for a GPU, NULL where the
 * driver `cuda` is not to be tested. Loads the entries, initialises the library and retains the
 * context; where that fails, ends the program with one line. Called before any thread exists. */
const char *raw_cuda_begin(raw_cuda *out);

/* Copies bytes to and from device 0 in its primary context; false if a call fails. */
bool raw_cuda_write(const raw_cuda *cuda, gml_address to, const void *from, size_t size);
bool raw_cuda_read(const raw_cuda *cuda, void *to, gml_address from, size_t size);

/* A stream that does not synchronise with the default stream; 0 if a call fails. */
gml_stream raw_cuda_stream(const raw_cuda *cuda);

#endif
