/* The runtime's calls about devices: which there are, which is current, who reaches whom. */
#include "standin.h"

cudaError_t
standin_cudaGetDeviceCount(int *out)
{
    *out = standin_settings_get()->devices;
    return *out > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t
standin_cudaGetDevice(int *out)
{
    *out = standin_current_ordinal();
    return cudaSuccess;
}

cudaError_t
standin_cudaDriverGetVersion(int *out)
{
    *out = CUDA_VERSION;
    return cudaSuccess;
}

/* Every device reaches every other. */
cudaError_t
standin_cudaDeviceCanAccessPeer(int *out, int ordinal, int peer)
{
    *out = ordinal != peer;
    return cudaSuccess;
}

cudaError_t
standin_cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    (void)flags;
    standin_device *device = standin_current_device();
    if (peer == device->ordinal) {
        return cudaErrorInvalidDevice;
    }
    bool was_enabled = device->peers & 1U << peer;
    device->peers |= 1U << peer;
    return was_enabled ? cudaErrorPeerAccessAlreadyEnabled : cudaSuccess;
}
