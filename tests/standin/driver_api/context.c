/* Devices and contexts of the driver API.
 *
 * Each device has one context, its primary one, and a CUcontext points to its standin_device. The
 * top of a thread's stack of contexts is the current device that the runtime API knows too
 * (device.c); what lies below it is kept here. */
#include "standin.h"

#include <stdio.h>
#include <string.h>

enum {
    MOST_PUSHED = 256,
    CONTEXT_VERSION = 3020, /* of contexts since CUDA 3.2 */
    BUS_ID_BYTES = 13,      /* "0000:00:00.0" and the end */
};

/* Below the top; the top is the current device. */
static _Thread_local int pushed[MOST_PUSHED];
static _Thread_local int pushed_count;

/* How often the program holds the primary context of a device. */
static int retained[STANDIN_MOST_DEVICES];
/* Whether it was in use before it was held for the first time, as by the runtime API. */
static bool was_active[STANDIN_MOST_DEVICES];

static CUcontext
context_of(standin_device *device)
{
    return (CUcontext)(void *)device;
}

/* NULL for a pointer that is no context. */
static standin_device *
device_of_context(CUcontext context)
{
    for (int i = 0; i < standin_settings_get()->devices; i++) {
        standin_device *device = standin_device_at(i);
        if (context_of(device) == context) {
            return device;
        }
    }
    return NULL;
}

standin_device *
standin_context_device(void)
{
    return standin_has_current() ? standin_current_device() : NULL;
}

cudaError_t
standin_check_context(void)
{
    return standin_context_device() ? cudaSuccess : cudaErrorDeviceUninitialized;
}

/* ---- the library and its errors ----------------------------------------------------------------
 */

CUresult
cuInit(unsigned flags)
{
    CALLED();
    return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult
cuDriverGetVersion(int *out)
{
    CALLED();
    *out = CUDA_VERSION;
    return CUDA_SUCCESS;
}

/* The errors that the stand-in gives. */
typedef struct error_text {
    CUresult error;
    const char *name, *text;
} error_text;

static const error_text errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_FILE_NOT_FOUND, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
     "peer access is already enabled"},
    {CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
     "peer access has not been enabled"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_STREAM_CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not ended in the same stream as it began"},
    {CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
     "capturing stream has unjoined work"},
    {CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {CUDA_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
};

/* NULL for an error that the stand-in never gives. */
static const error_text *
find_error(CUresult error)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i].error == error) {
            return &errors[i];
        }
    }
    return NULL;
}

CUresult
cuGetErrorName(CUresult error, const char **out)
{
    CALLED();
    const error_text *found = find_error(error);
    *out = found ? found->name : NULL;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult
cuGetErrorString(CUresult error, const char **out)
{
    CALLED();
    const error_text *found = find_error(error);
    *out = found ? found->text : NULL;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- devices -----------------------------------------------------------------------------------
 */

CUresult
cuDeviceGetCount(int *out)
{
    CALLED();
    *out = standin_settings_get()->devices;
    return CUDA_SUCCESS;
}

CUresult
cuDeviceGet(CUdevice *out, int ordinal)
{
    CALLED();
    standin_enter();
    bool exists = standin_device_at(ordinal) != NULL;
    if (exists) {
        *out = ordinal;
    }
    return standin_return_driver(exists ? cudaSuccess : cudaErrorInvalidDevice);
}

CUresult
cuDeviceGetName(char *out, int out_bytes, CUdevice ordinal)
{
    CALLED();
    standin_enter();
    if (!standin_device_at(ordinal) || out_bytes < 1) {
        return standin_return_driver(out_bytes < 1 ? cudaErrorInvalidValue
                                                   : cudaErrorInvalidDevice);
    }
    (void)snprintf(out, (size_t)out_bytes, "%s", standin_settings_get()->name);
    return standin_return_driver(cudaSuccess);
}

/* The same as in the properties of the runtime API. */
CUresult
cuDeviceGetUuid(CUuuid *out, CUdevice ordinal)
{
    CALLED();
    standin_enter();
    bool exists = standin_device_at(ordinal) != NULL;
    if (exists) {
        memset(out, 0, sizeof *out);
        (void)snprintf(out->bytes, sizeof out->bytes, "standin-%d", ordinal);
    }
    return standin_return_driver(exists ? cudaSuccess : cudaErrorInvalidDevice);
}

CUresult
cuDeviceTotalMem(size_t *out, CUdevice ordinal)
{
    CALLED();
    standin_enter();
    const standin_device *device = standin_device_at(ordinal);
    if (device) {
        *out = device->driver->info.total_bytes;
    }
    return standin_return_driver(device ? cudaSuccess : cudaErrorInvalidDevice);
}

CUresult
cuDeviceGetAttribute(int *out, CUdevice_attribute attribute, CUdevice ordinal)
{
    CALLED();
    standin_enter();
    const standin_device *device = standin_device_at(ordinal);
    if (device) {
        *out = standin_attribute(device, (int)attribute);
    }
    return standin_return_driver(device ? cudaSuccess : cudaErrorInvalidDevice);
}

CUresult
cuDeviceComputeCapability(int *major, int *minor, CUdevice ordinal)
{
    CALLED();
    standin_enter();
    const standin_device *device = standin_device_at(ordinal);
    if (device) {
        *major = standin_attribute(device, cudaDevAttrComputeCapabilityMajor);
        *minor = standin_attribute(device, cudaDevAttrComputeCapabilityMinor);
    }
    return standin_return_driver(device ? cudaSuccess : cudaErrorInvalidDevice);
}

CUresult
cuDeviceGetPCIBusId(char *out, int out_bytes, CUdevice ordinal)
{
    CALLED();
    standin_enter();
    const standin_device *device = standin_device_at(ordinal);
    if (!device || out_bytes < BUS_ID_BYTES) {
        return standin_return_driver(device ? cudaErrorInvalidValue : cudaErrorInvalidDevice);
    }
    standin_bus_id(device, out, (size_t)out_bytes);
    return standin_return_driver(cudaSuccess);
}

CUresult
cuDeviceGetByPCIBusId(CUdevice *out, const char *wanted)
{
    CALLED();
    standin_enter();
    for (int i = 0; standin_device_at(i); i++) {
        char bus_id[BUS_ID_BYTES];
        standin_bus_id(standin_device_at(i), bus_id, sizeof bus_id);
        if (strcasecmp(bus_id, wanted) == 0) {
            *out = i;
            return standin_return_driver(cudaSuccess);
        }
    }
    return standin_return_driver(cudaErrorInvalidDevice);
}

/* ---- peers: every device reaches every other ---------------------------------------------------
 */

CUresult
cuDeviceCanAccessPeer(int *out, CUdevice ordinal, CUdevice peer)
{
    CALLED();
    standin_enter();
    bool exist = standin_device_at(ordinal) && standin_device_at(peer);
    *out = exist && ordinal != peer;
    return standin_return_driver(exist ? cudaSuccess : cudaErrorInvalidDevice);
}

CUresult
cuDeviceGetP2PAttribute(int *out, CUdevice_P2PAttribute attribute, CUdevice ordinal, CUdevice peer)
{
    CALLED();
    standin_enter();
    bool exist = standin_device_at(ordinal) && standin_device_at(peer) && ordinal != peer;
    *out = exist && attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
    return standin_return_driver(exist ? cudaSuccess : cudaErrorInvalidDevice);
}

CUresult
cuCtxEnablePeerAccess(CUcontext context, unsigned flags)
{
    CALLED();
    standin_enter();
    standin_device *device = standin_context_device();
    const standin_device *peer = device_of_context(context);
    if (!device || !peer || device == peer) {
        return standin_return_driver(cudaErrorDeviceUninitialized);
    }
    if (flags != 0 || (device->peers & 1U << peer->ordinal) != 0) {
        return standin_return_driver(flags != 0 ? cudaErrorInvalidValue
                                                : cudaErrorPeerAccessAlreadyEnabled);
    }
    device->peers |= 1U << peer->ordinal;
    return standin_return_driver(cudaSuccess);
}

CUresult
cuCtxDisablePeerAccess(CUcontext context)
{
    CALLED();
    standin_enter();
    standin_device *device = standin_context_device();
    const standin_device *peer = device_of_context(context);
    if (!device || !peer) {
        return standin_return_driver(cudaErrorDeviceUninitialized);
    }
    if ((device->peers & 1U << peer->ordinal) == 0) {
        return standin_return_driver(cudaErrorPeerAccessNotEnabled);
    }
    device->peers &= ~(1U << peer->ordinal);
    return standin_return_driver(cudaSuccess);
}

/* ---- primary contexts --------------------------------------------------------------------------
 */

CUresult
cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice ordinal)
{
    CALLED();
    standin_enter();
    standin_device *device = standin_device_at(ordinal);
    if (!device) {
        return standin_return_driver(cudaErrorInvalidDevice);
    }
    if (retained[ordinal]++ == 0) {
        was_active[ordinal] = device->is_active;
    }
    device->is_active = true;
    *out = context_of(device);
    return standin_return_driver(cudaSuccess);
}

/* The context that nobody holds any more is as it was before: the runtime API, once it has used a
 * device, never lets go of it. */
CUresult
cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
    CALLED();
    standin_enter();
    standin_device *device = standin_device_at(ordinal);
    if (!device) {
        return standin_return_driver(cudaErrorInvalidDevice);
    }
    if (retained[ordinal] == 0) {
        return standin_return_driver(cudaErrorDeviceUninitialized);
    }
    if (--retained[ordinal] == 0) {
        device->is_active = was_active[ordinal];
    }
    return standin_return_driver(cudaSuccess);
}

CUresult
cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned *flags, int *is_active)
{
    CALLED();
    standin_enter();
    const standin_device *device = standin_device_at(ordinal);
    if (device) {
        *flags = CU_CTX_SCHED_AUTO;
        *is_active = device->is_active;
    }
    return standin_return_driver(device ? cudaSuccess : cudaErrorInvalidDevice);
}

CUresult
cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned flags)
{
    CALLED();
    (void)flags;
    standin_enter();
    bool exists = standin_device_at(ordinal) != NULL;
    return standin_return_driver(exists ? cudaSuccess : cudaErrorInvalidDevice);
}

/* Answers what a program would see that keeps no memory: nothing can be taken from it here. */
CUresult
cuDevicePrimaryCtxReset(CUdevice ordinal)
{
    CALLED();
    standin_enter();
    standin_device *device = standin_device_at(ordinal);
    return standin_return_driver(device ? standin_synchronize_device(device)
                                        : cudaErrorInvalidDevice);
}

/* ---- the thread's stack of contexts ------------------------------------------------------------
 */

CUresult
cuCtxGetCurrent(CUcontext *out)
{
    CALLED();
    standin_enter();
    standin_device *device = standin_context_device();
    *out = device ? context_of(device) : NULL;
    return standin_return_driver(cudaSuccess);
}

CUresult
cuCtxPushCurrent(CUcontext context)
{
    CALLED();
    standin_enter();
    const standin_device *device = device_of_context(context);
    if (!device) {
        return standin_return_driver(cudaErrorDeviceUninitialized);
    }
    if (pushed_count == MOST_PUSHED) {
        standin_misuse("cuCtxPushCurrent: a thread has pushed %d contexts and popped none",
                       MOST_PUSHED);
        return standin_return_driver(cudaErrorInvalidValue);
    }
    if (standin_has_current()) {
        pushed[pushed_count++] = standin_current_ordinal();
    }
    return standin_return_driver(standin_set_current(device->ordinal));
}

/* pre: the thread has a context. */
static void
pop_current(void)
{
    if (pushed_count > 0) {
        (void)standin_set_current(pushed[--pushed_count]);
    } else {
        standin_forget_current();
    }
}

CUresult
cuCtxPopCurrent(CUcontext *out)
{
    CALLED();
    standin_enter();
    standin_device *device = standin_context_device();
    if (!device) {
        return standin_return_driver(cudaErrorDeviceUninitialized);
    }
    if (out) {
        *out = context_of(device);
    }
    pop_current();
    return standin_return_driver(cudaSuccess);
}

/* Replaces the top of the stack; NULL takes it away. */
CUresult
cuCtxSetCurrent(CUcontext context)
{
    CALLED();
    standin_enter();
    const standin_device *device = device_of_context(context);
    if (context && !device) {
        return standin_return_driver(cudaErrorDeviceUninitialized);
    }
    if (device) {
        return standin_return_driver(standin_set_current(device->ordinal));
    }
    if (standin_has_current()) {
        pop_current();
    }
    return standin_return_driver(cudaSuccess);
}

CUresult
cuCtxGetDevice(CUdevice *out)
{
    CALLED();
    standin_enter();
    const standin_device *device = standin_context_device();
    if (device) {
        *out = device->ordinal;
    }
    return standin_return_driver(device ? cudaSuccess : cudaErrorDeviceUninitialized);
}

CUresult
cuCtxGetFlags(unsigned *out)
{
    CALLED();
    standin_enter();
    *out = CU_CTX_SCHED_AUTO;
    return standin_return_driver(standin_check_context());
}

CUresult
cuCtxGetApiVersion(CUcontext context, unsigned *out)
{
    CALLED();
    standin_enter();
    bool is_valid = context ? device_of_context(context) != NULL : standin_has_current();
    *out = CONTEXT_VERSION;
    return standin_return_driver(is_valid ? cudaSuccess : cudaErrorDeviceUninitialized);
}

CUresult
cuCtxGetId(CUcontext context, unsigned long long *out)
{
    CALLED();
    standin_enter();
    const standin_device *device = context ? device_of_context(context) : standin_context_device();
    if (device) {
        *out = (unsigned long long)device->ordinal + 1;
    }
    return standin_return_driver(device ? cudaSuccess : cudaErrorDeviceUninitialized);
}

CUresult
cuCtxSynchronize(void)
{
    CALLED();
    standin_enter();
    standin_device *device = standin_context_device();
    if (!device) {
        return standin_return_driver(cudaErrorDeviceUninitialized);
    }
    cudaError_t error = standin_guard_device(device);
    return standin_return_driver(error == cudaSuccess ? standin_synchronize_device(device) : error);
}

CUresult
cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    CALLED();
    standin_enter();
    if (least) {
        *least = STANDIN_LEAST_PRIORITY;
    }
    if (greatest) {
        *greatest = STANDIN_GREATEST_PRIORITY;
    }
    return standin_return_driver(standin_check_context());
}

CUresult
cuCtxGetLimit(size_t *out, CUlimit limit)
{
    CALLED();
    standin_enter();
    *out = standin_limit((int)limit);
    return standin_return_driver(standin_check_context());
}

CUresult
cuCtxSetLimit(CUlimit limit, size_t value)
{
    CALLED();
    (void)limit;
    (void)value;
    standin_enter();
    return standin_return_driver(standin_check_context());
}
