/* cuSOLVER: the handle, and the report of success that its solvers leave on the device.
 *
 * The solvers are written by generate_stubs.py. They compute nothing, but callers read `info` back
 * and would take whatever lies there for an error.
 */
#include "libraries.h"

#pragma GCC visibility push(default)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <cusolverDn.h>
#pragma GCC diagnostic pop
#pragma GCC visibility pop

#include <stdlib.h>

struct cusolverDnContext {
    cudaStream_t stream;
};

cusolverStatus_t
cusolverDnCreate(cusolverDnHandle_t *out)
{
    CALLED();
    *out = calloc(1, sizeof **out);
    return *out == NULL ? CUSOLVER_STATUS_ALLOC_FAILED : CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t
cusolverDnDestroy(cusolverDnHandle_t handle)
{
    CALLED();
    free(handle);
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t
cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream)
{
    CALLED();
    if (handle == NULL) {
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    }
    handle->stream = stream;
    return CUSOLVER_STATUS_SUCCESS;
}

cudaError_t
standin_report_success(const char *name, cudaStream_t stream, int *info, int64_t count)
{
    if (info == NULL || count <= 0) {
        return cudaSuccess;
    }
    standin_enter();
    cudaError_t error = standin_fill(name, (gml_address)(uintptr_t)info, 0,
                                     (uint64_t)count * sizeof *info, stream, false);
    standin_leave();
    return error;
}

void
standin_cusolver_success(const char *name, struct cusolverDnContext *handle, int *info,
                         int64_t count)
{
    if (handle != NULL) {
        (void)standin_report_success(name, handle->stream, info, count);
    }
}
