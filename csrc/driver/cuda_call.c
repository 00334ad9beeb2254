/* What every call of the driver `cuda` needs: the context, a mode that captures survive, a reason.
 */
#include "driver/cuda_internal.h"

static gml_status
status_of(gml_cu_result result)
{
    if (result == GML_CU_SUCCESS) {
        return GML_OK;
    }
    if (result == GML_CU_OUT_OF_MEMORY) {
        return GML_OUT_OF_MEMORY;
    }
    bool is_about_capture =
        result >= GML_CU_STREAM_CAPTURE_UNSUPPORTED && result <= GML_CU_STREAM_CAPTURE_WRONG_THREAD;
    return is_about_capture ? GML_MISUSE : GML_DRIVER_FAILED;
}

gml_status
gml_cuda_check(gml_cuda_driver *cuda, const char *call, gml_cu_result result)
{
    if (result == GML_CU_SUCCESS) {
        return GML_OK;
    }
    const char *name = NULL;
    const char *text = NULL;
    (void)cuda->api.cuGetErrorName(result, &name);
    (void)cuda->api.cuGetErrorString(result, &text);
    return gml_driver_fail(&cuda->base, status_of(result), "%s: %s (%d), %s", call,
                           name ? name : "unknown error", result, text ? text : "no description");
}

gml_status
gml_cuda_enter(gml_cuda_driver *cuda)
{
    gml_status status =
        gml_cuda_check(cuda, "cuCtxPushCurrent", cuda->api.cuCtxPushCurrent(cuda->context));
    if (status != GML_OK) {
        return status;
    }
    cuda->caller_mode = GML_CU_CAPTURE_MODE_RELAXED;
    status = gml_cuda_check(cuda, "cuThreadExchangeStreamCaptureMode",
                            cuda->api.cuThreadExchangeStreamCaptureMode(&cuda->caller_mode));
    if (status != GML_OK) {
        gml_cu_context ignored;
        (void)cuda->api.cuCtxPopCurrent(&ignored);
    }
    return status;
}

gml_status
gml_cuda_leave(gml_cuda_driver *cuda, gml_status status)
{
    gml_cu_context ignored;
    (void)cuda->api.cuThreadExchangeStreamCaptureMode(&cuda->caller_mode);
    (void)cuda->api.cuCtxPopCurrent(&ignored);
    return status;
}
