/* Devices and contexts of the driver API.
 *
 * Each device has one context, its primary one, and a CUcontext points to its standin_device. The
 * top of a thread's stack of contexts is the current device that the runtime API knows too
 * (device.c); what lies below it is kept here. */
#include "standin/standin.h"

#include <stdio.h>

enum { MOST_PUSHED = 256 };

/* Below the top; the top is the current device. */
static _Thread_local int pushed[MOST_PUSHED];
static _Thread_local int pushed_count;

/* How often the program holds the primary context of a device. */
static int retained[STANDIN_MOST_DEVICES];

static CUcontext context_of(standin_device *device) {
    return (CUcontext)(void *)device;
}

standin_device *standin_context_of(CUcontext context) {
    for (int i = 0; i < standin_settings_get()->devices; i++) {
        standin_device *device = standin_device_at(i);
        if (context_of(device) == context) {
            return device;
        }
    }
    return NULL;
}

standin_device *standin_context_device(void) {
    return standin_has_current() ? standin_current_device() : NULL;
}

cudaError_t standin_check_context(void) {
    return standin_context_device() ? cudaSuccess : cudaErrorDeviceUninitialized;
}

cudaError_t standin_check_driver_stream(CUstream stream) {
    bool is_default =
        stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    TRY(is_default ? standin_check_context() : cudaSuccess);
    return standin_check_stream(stream);
}

/* ---- devices --------------------------------------------------------------------------------- */

cudaError_t standin_cuInit(unsigned flags) {
    (void)flags;
    return standin_settings_get()->devices > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t standin_cuDeviceGetCount(int *out) {
    *out = standin_settings_get()->devices;
    return cudaSuccess;
}

cudaError_t standin_cuDeviceGet(CUdevice *out, int ordinal) {
    *out = ordinal;
    return standin_check_device(ordinal);
}

cudaError_t standin_cuDeviceGetName(char *out, int out_bytes, CUdevice ordinal) {
    (void)ordinal;
    (void)snprintf(out, (size_t)out_bytes, "%s", standin_settings_get()->name);
    return cudaSuccess;
}

/* The same as in the properties of the runtime API. */
cudaError_t standin_cuDeviceGetUuid(CUuuid *out, CUdevice ordinal) {
    standin_uuid(standin_settings_get()->numbers[ordinal], out->bytes);
    return cudaSuccess;
}

cudaError_t standin_cuDeviceTotalMem(size_t *out, CUdevice ordinal) {
    (void)ordinal;
    *out = standin_settings_get()->capacity_bytes;
    return cudaSuccess;
}

/* ---- primary contexts ------------------------------------------------------------------------ */

cudaError_t standin_cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice ordinal) {
    retained[ordinal]++;
    *out = context_of(standin_device_at(ordinal));
    return cudaSuccess;
}

cudaError_t standin_cuDevicePrimaryCtxRelease(CUdevice ordinal) {
    if (retained[ordinal] == 0) {
        return cudaErrorDeviceUninitialized;
    }
    retained[ordinal]--;
    return cudaSuccess;
}

cudaError_t standin_cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned *flags, int *is_active) {
    *flags = CU_CTX_SCHED_AUTO;
    *is_active = standin_device_at(ordinal)->is_active || retained[ordinal] > 0;
    return cudaSuccess;
}

/* ---- the thread's stack of contexts ---------------------------------------------------------- */

cudaError_t standin_cuCtxGetCurrent(CUcontext *out) {
    standin_device *device = standin_context_device();
    *out = device ? context_of(device) : NULL;
    return cudaSuccess;
}

cudaError_t standin_cuCtxPushCurrent(CUcontext context) {
    const standin_device *device = standin_context_of(context);
    if (!device) {
        return cudaErrorDeviceUninitialized;
    }
    if (pushed_count == MOST_PUSHED) {
        standin_misuse("cuCtxPushCurrent: a thread has pushed %d contexts and popped none",
                       MOST_PUSHED);
        return cudaErrorInvalidValue;
    }
    if (standin_has_current()) {
        pushed[pushed_count++] = standin_current_ordinal();
    }
    return standin_cudaSetDevice(device->ordinal);
}

/* pre: the thread has a context. */
static void pop_current(void) {
    if (pushed_count > 0) {
        (void)standin_cudaSetDevice(pushed[--pushed_count]);
    } else {
        standin_forget_current();
    }
}

cudaError_t standin_cuCtxPopCurrent(CUcontext *out) {
    if (out) {
        *out = context_of(standin_context_device());
    }
    pop_current();
    return cudaSuccess;
}

/* Replaces the top of the stack; NULL takes it away. */
cudaError_t standin_cuCtxSetCurrent(CUcontext context) {
    const standin_device *device = standin_context_of(context);
    if (context && !device) {
        return cudaErrorDeviceUninitialized;
    }
    if (device) {
        return standin_cudaSetDevice(device->ordinal);
    }
    if (standin_has_current()) {
        pop_current();
    }
    return cudaSuccess;
}

cudaError_t standin_cuCtxGetDevice(CUdevice *out) {
    *out = standin_current_ordinal();
    return cudaSuccess;
}
