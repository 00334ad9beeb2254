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

/* ---- the library ----------------------------------------------------------------------------- */

CUresult
cuInit(unsigned flags)
{
    CALLED();
    if (standin_settings_get()->devices == 0) {
        return CUDA_ERROR_NO_DEVICE;
    }
    return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult
cuDriverGetVersion(int *out)
{
    CALLED();
    *out = CUDA_VERSION;
    return CUDA_SUCCESS;
}

/* ---- devices --------------------------------------------------------------------------------- */

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

/* ---- primary contexts ------------------------------------------------------------------------ */

CUresult
cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice ordinal)
{
    CALLED();
    standin_enter();
    standin_device *device = standin_device_at(ordinal);
    if (!device) {
        return standin_return_driver(cudaErrorInvalidDevice);
    }
    if (!out) {
        return standin_return_driver(cudaErrorInvalidValue);
    }
    retained[ordinal]++;
    *out = context_of(device);
    return standin_return_driver(cudaSuccess);
}

CUresult
cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
    CALLED();
    standin_enter();
    if (!standin_device_at(ordinal)) {
        return standin_return_driver(cudaErrorInvalidDevice);
    }
    if (retained[ordinal] == 0) {
        return standin_return_driver(cudaErrorDeviceUninitialized);
    }
    retained[ordinal]--;
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
        *is_active = device->is_active || retained[ordinal] > 0;
    }
    return standin_return_driver(device ? cudaSuccess : cudaErrorInvalidDevice);
}

/* ---- the thread's stack of contexts ---------------------------------------------------------- */

CUresult
cuCtxGetCurrent(CUcontext *out)
{
    CALLED();
    standin_enter();
    standin_device *device = standin_context_device();
    if (out) {
        *out = device ? context_of(device) : NULL;
    }
    return standin_return_driver(out ? cudaSuccess : cudaErrorInvalidValue);
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
cuCtxGetLimit(size_t *out, CUlimit limit)
{
    CALLED();
    standin_enter();
    *out = limit == CU_LIMIT_STACK_SIZE         ? 1024
           : limit == CU_LIMIT_MALLOC_HEAP_SIZE ? (size_t)8 << 20
                                                : 0; /* without a meaning here */
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
