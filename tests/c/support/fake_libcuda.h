/* Shared by the files of the fake libcuda.so.1, and by nobody else. */
#ifndef GML_TEST_FAKE_LIBCUDA_H
#define GML_TEST_FAKE_LIBCUDA_H

#include "driver/cuda_api.h"
#include "driver/driver.h"

/* Entries beyond those of gmlake, for raw_cuda.h. */
#define FAKE_EXTRA_ENTRIES(X)                                                                      \
    X(cuDevicePrimaryCtxGetState, 7000, (gml_cu_device of, unsigned *flags, int *is_active))       \
    X(cuCtxGetCurrent, 4000, (gml_cu_context * out))                                               \
    X(cuMemGetAccess, 10020,                                                                       \
      (unsigned long long *out, const gml_cu_location *of, gml_cu_pointer address))                \
    X(cuMemcpyHtoD, 3020, (gml_cu_pointer to, const void *from, size_t size))                      \
    X(cuMemcpyDtoH, 3020, (void *to, gml_cu_pointer from, size_t size))                            \
    X(cuStreamCreate, 2000, (gml_cu_stream * out, unsigned flags))                                 \
    X(cuStreamBeginCapture, 10010, (gml_cu_stream stream, int mode))                               \
    X(cuStreamEndCapture, 10000, (gml_cu_stream stream, void **graph))                             \
    X(cuGraphDestroy, 10000, (void *graph))

#define FAKE_DECLARE(name, version, parameters) gml_cu_result fake_##name parameters;
GML_CUDA_ENTRIES(FAKE_DECLARE)
GML_CUDA_OPTIONAL(FAKE_DECLARE)
FAKE_EXTRA_ENTRIES(FAKE_DECLARE)
#undef FAKE_DECLARE

/* Device 0 has memory. The others are there to be peers: the last cannot reach device 0. */
enum { FAKE_DEVICES = 4, FAKE_UNREACHING_DEVICE = 3 };

/* Nobody may touch the range any more. */
void fake_forget_access(gml_cu_pointer address, size_t size);

/* Notes of the chunk just created whether network cards are to reach it. */
void fake_note_rdma(bool is_capable);

enum { MODE_GLOBAL, MODE_THREAD_LOCAL, MODE_RELAXED };

/* The driver `host` behind device 0; NULL before cuInit. */
gml_driver *fake_device(void);

gml_cu_result fake_result_of(gml_status status);

/* Whether GMLAKE_FAKE_CUDA chose that defect. */
bool fake_has_defect(const char *name);

/* Whether the context of device 0 is current on this thread, and the thread's capture mode. */
bool fake_has_context(void);
int fake_capture_mode(void);

#endif
