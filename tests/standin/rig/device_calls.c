/* The runtime's calls about devices: which there are, which is current, who reaches whom. */
#include "standin.h"

static cudaError_t
give_number(int number, int *out)
{
    if (!out) {
        standin_enter();
        return standin_return(cudaErrorInvalidValue);
    }
    *out = number;
    return cudaSuccess;
}

cudaError_t
cudaGetDeviceCount(int *out)
{
    CALLED();
    int devices = standin_settings_get()->devices;
    cudaError_t error = give_number(devices, out);
    return error == cudaSuccess && devices == 0 ? cudaErrorNoDevice : error;
}

cudaError_t
cudaGetDevice(int *out)
{
    CALLED();
    return give_number(standin_current_ordinal(), out);
}

cudaError_t
cudaSetDevice(int ordinal)
{
    CALLED();
    standin_enter();
    return standin_return(standin_set_current(ordinal));
}

/* ---- peers: every device reaches every other ------------------------------------------------- */

cudaError_t
cudaDeviceCanAccessPeer(int *out, int ordinal, int peer)
{
    CALLED();
    standin_enter();
    if (!out) {
        return standin_return(cudaErrorInvalidValue);
    }
    bool exist = standin_device_at(ordinal) && standin_device_at(peer);
    *out = exist && ordinal != peer;
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

/* ---- versions -------------------------------------------------------------------------------- */

cudaError_t
cudaDriverGetVersion(int *out)
{
    CALLED();
    return give_number(CUDA_VERSION, out);
}

cudaError_t
cudaRuntimeGetVersion(int *out)
{
    CALLED();
    return give_number(CUDART_VERSION, out);
}
