/* The runtime's calls about devices: which there are, which is current, who reaches whom. */
#include "standin.h"

cudaError_t
cudaGetDeviceCount(int *out)
{
    CALLED();
    *out = standin_settings_get()->devices;
    return cudaSuccess;
}

cudaError_t
cudaGetDevice(int *out)
{
    CALLED();
    *out = standin_current_ordinal();
    return cudaSuccess;
}

cudaError_t
cudaSetDevice(int ordinal)
{
    CALLED();
    standin_enter();
    return standin_return(standin_set_current(ordinal));
}

cudaError_t
cudaInitDevice(int ordinal, unsigned flags, unsigned device_flags)
{
    CALLED();
    (void)flags;
    (void)device_flags;
    standin_enter();
    standin_device *device = standin_device_at(ordinal);
    if (device) {
        device->is_active = true;
    }
    return standin_return(device ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t
cudaSetDeviceFlags(unsigned flags)
{
    CALLED();
    (void)flags;
    return cudaSuccess;
}

cudaError_t
cudaGetDeviceFlags(unsigned *out)
{
    CALLED();
    *out = 0;
    return cudaSuccess;
}

/* Answers what a program would see that keeps no memory: nothing can be taken from it here. */
cudaError_t
cudaDeviceReset(void)
{
    CALLED();
    standin_enter();
    return standin_return(standin_synchronize_device(standin_current_device()));
}

size_t
standin_limit(int limit)
{
    return limit == cudaLimitStackSize        ? 1024
           : limit == cudaLimitMallocHeapSize ? (size_t)8 << 20
                                              : 0;
}

cudaError_t
cudaDeviceGetLimit(size_t *out, enum cudaLimit limit)
{
    CALLED();
    *out = standin_limit((int)limit);
    return cudaSuccess;
}

cudaError_t
cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
    CALLED();
    (void)limit;
    (void)value;
    return cudaSuccess;
}

/* ---- peers: every device reaches every other ---------------------------------------------------
 */

cudaError_t
cudaDeviceCanAccessPeer(int *out, int ordinal, int peer)
{
    CALLED();
    standin_enter();
    bool exist = standin_device_at(ordinal) && standin_device_at(peer);
    *out = exist && ordinal != peer;
    return standin_return(exist ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t
cudaDeviceGetP2PAttribute(int *out, enum cudaDeviceP2PAttr attribute, int ordinal, int peer)
{
    CALLED();
    standin_enter();
    bool exist = standin_device_at(ordinal) && standin_device_at(peer) && ordinal != peer;
    *out = attribute == cudaDevP2PAttrAccessSupported;
    return standin_return(exist ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t
cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    CALLED();
    standin_enter();
    standin_device *device = standin_current_device();
    cudaError_t error = cudaErrorInvalidDevice;
    if (flags != 0) {
        error = cudaErrorInvalidValue;
    } else if (standin_device_at(peer) && peer != device->ordinal) {
        error = device->peers & 1U << peer ? cudaErrorPeerAccessAlreadyEnabled : cudaSuccess;
        device->peers |= 1U << peer;
    }
    return standin_return(error);
}

cudaError_t
cudaDeviceDisablePeerAccess(int peer)
{
    CALLED();
    standin_enter();
    standin_device *device = standin_current_device();
    bool was_enabled = standin_device_at(peer) && device->peers & 1U << peer;
    if (was_enabled) {
        device->peers &= ~(1U << peer);
    }
    return standin_return(was_enabled ? cudaSuccess : cudaErrorPeerAccessNotEnabled);
}

/* ---- versions and errors -----------------------------------------------------------------------
 */

cudaError_t
cudaDriverGetVersion(int *out)
{
    CALLED();
    *out = CUDA_VERSION;
    return cudaSuccess;
}

cudaError_t
cudaRuntimeGetVersion(int *out)
{
    CALLED();
    *out = CUDART_VERSION;
    return cudaSuccess;
}

static const struct {
    cudaError_t error;
    const char *name, *string;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorOperatingSystem, "cudaErrorOperatingSystem",
     "OS call failed or operation not supported on this OS"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled",
     "peer access is already enabled"},
    {cudaErrorPeerAccessNotEnabled, "cudaErrorPeerAccessNotEnabled",
     "peer access has not been enabled"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not initiated in this stream"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "capture sequence being merged is not allowed"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorGraphExecUpdateFailure, "cudaErrorGraphExecUpdateFailure",
     "the graph update was not performed because it included changes which violated constraints "
     "specific to instantiated graph update"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorSymbolNotFound, "cudaErrorSymbolNotFound", "named symbol not found"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const char *
standin_error_name(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i].error == error) {
            return errors[i].name;
        }
    }
    return NULL;
}

const char *
standin_error_string(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i].error == error) {
            return errors[i].string;
        }
    }
    return NULL;
}

const char *
cudaGetErrorName(cudaError_t error)
{
    CALLED();
    const char *name = standin_error_name(error);
    return name ? name : "unrecognized error code";
}

const char *
cudaGetErrorString(cudaError_t error)
{
    CALLED();
    const char *string = standin_error_string(error);
    return string ? string : "unrecognized error code";
}
