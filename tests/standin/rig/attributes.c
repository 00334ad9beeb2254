/* What a device says of itself. Where the settings say nothing, the values are those that an NVIDIA
 * H200 with driver 580.159 answers, so that code which branches on them takes the usual branch. */
#include "standin.h"

#include <stdio.h>

static const struct {
    int attribute, value;
} attributes[] = {
    {cudaDevAttrMaxThreadsPerBlock, 1024},
    {cudaDevAttrMaxBlockDimX, 1024},
    {cudaDevAttrMaxBlockDimY, 1024},
    {cudaDevAttrMaxBlockDimZ, 64},
    {cudaDevAttrMaxGridDimX, 2147483647},
    {cudaDevAttrMaxGridDimY, 65535},
    {cudaDevAttrMaxGridDimZ, 65535},
    {cudaDevAttrMaxSharedMemoryPerBlock, 49152},
    {cudaDevAttrTotalConstantMemory, 65536},
    {cudaDevAttrWarpSize, 32},
    {cudaDevAttrMaxPitch, 2147483647},
    {cudaDevAttrMaxRegistersPerBlock, 65536},
    {cudaDevAttrClockRate, 1980000},
    {cudaDevAttrTextureAlignment, 512},
    {cudaDevAttrGpuOverlap, 1},
    {cudaDevAttrCanMapHostMemory, 1},
    {cudaDevAttrSurfaceAlignment, 512},
    {cudaDevAttrConcurrentKernels, 1},
    {cudaDevAttrEccEnabled, 1},
    {cudaDevAttrMemoryClockRate, 3201000},
    {cudaDevAttrGlobalMemoryBusWidth, 6016},
    {cudaDevAttrL2CacheSize, 62914560},
    {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
    {cudaDevAttrAsyncEngineCount, 3},
    {cudaDevAttrUnifiedAddressing, 1},
    {cudaDevAttrTexturePitchAlignment, 32},
    {cudaDevAttrStreamPrioritiesSupported, 1},
    {cudaDevAttrGlobalL1CacheSupported, 1},
    {cudaDevAttrLocalL1CacheSupported, 1},
    {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 233472},
    {cudaDevAttrMaxRegistersPerMultiprocessor, 65536},
    {cudaDevAttrManagedMemory, 1},
    {cudaDevAttrSingleToDoublePrecisionPerfRatio, 2},
    {cudaDevAttrConcurrentManagedAccess, 1},
    {cudaDevAttrComputePreemptionSupported, 1},
    {cudaDevAttrCanUseHostPointerForRegisteredMem, 1},
    {cudaDevAttrCooperativeLaunch, 1},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin, 232448},
    {cudaDevAttrHostRegisterSupported, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {cudaDevAttrMaxBlocksPerMultiprocessor, 32},
    {cudaDevAttrMaxPersistingL2CacheSize, 39321600},
    {cudaDevAttrMaxAccessPolicyWindowSize, 134217728},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1},
    {cudaDevAttrReservedSharedMemoryPerBlock, 1024},
    {cudaDevAttrMemoryPoolsSupported, 1},
    {cudaDevAttrMemoryPoolSupportedHandleTypes, 1},
    {cudaDevAttrClusterLaunch, 1},
    {cudaDevAttrNumaId, -1},
};

int
standin_attribute(const standin_device *device, int attribute)
{
    const standin_settings *settings = standin_settings_get();
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
        return settings->multiprocessors;
    case cudaDevAttrComputeCapabilityMajor:
        return settings->major;
    case cudaDevAttrComputeCapabilityMinor:
        return settings->minor;
    case cudaDevAttrPciDeviceId:
        return device->ordinal;
    default:
        break;
    }
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        if (attributes[i].attribute == attribute) {
            return attributes[i].value;
        }
    }
    return 0;
}

void
standin_bus_id(const standin_device *device, char *out, size_t out_bytes)
{
    (void)snprintf(out, out_bytes, "0000:00:%02X.0", (unsigned)device->ordinal);
}

static void
fill_limits(struct cudaDeviceProp *out, const standin_device *of)
{
    out->sharedMemPerBlock = (size_t)standin_attribute(of, cudaDevAttrMaxSharedMemoryPerBlock);
    out->sharedMemPerBlockOptin =
        (size_t)standin_attribute(of, cudaDevAttrMaxSharedMemoryPerBlockOptin);
    out->sharedMemPerMultiprocessor =
        (size_t)standin_attribute(of, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    out->reservedSharedMemPerBlock =
        (size_t)standin_attribute(of, cudaDevAttrReservedSharedMemoryPerBlock);
    out->regsPerBlock = standin_attribute(of, cudaDevAttrMaxRegistersPerBlock);
    out->regsPerMultiprocessor = standin_attribute(of, cudaDevAttrMaxRegistersPerMultiprocessor);
    out->warpSize = standin_attribute(of, cudaDevAttrWarpSize);
    out->maxThreadsPerBlock = standin_attribute(of, cudaDevAttrMaxThreadsPerBlock);
    out->maxThreadsPerMultiProcessor =
        standin_attribute(of, cudaDevAttrMaxThreadsPerMultiProcessor);
    out->maxBlocksPerMultiProcessor = standin_attribute(of, cudaDevAttrMaxBlocksPerMultiprocessor);
    for (int i = 0; i < 3; i++) {
        out->maxThreadsDim[i] = standin_attribute(of, cudaDevAttrMaxBlockDimX + i);
        out->maxGridSize[i] = standin_attribute(of, cudaDevAttrMaxGridDimX + i);
    }
    out->totalConstMem = (size_t)standin_attribute(of, cudaDevAttrTotalConstantMemory);
    out->l2CacheSize = standin_attribute(of, cudaDevAttrL2CacheSize);
    out->memoryBusWidth = standin_attribute(of, cudaDevAttrGlobalMemoryBusWidth);
    out->textureAlignment = (size_t)standin_attribute(of, cudaDevAttrTextureAlignment);
    out->texturePitchAlignment = (size_t)standin_attribute(of, cudaDevAttrTexturePitchAlignment);
}

static void
fill_abilities(struct cudaDeviceProp *out, const standin_device *of)
{
    out->canMapHostMemory = 1;
    out->concurrentKernels = 1;
    out->ECCEnabled = standin_attribute(of, cudaDevAttrEccEnabled);
    out->asyncEngineCount = standin_attribute(of, cudaDevAttrAsyncEngineCount);
    out->unifiedAddressing = 1;
    out->streamPrioritiesSupported = 1;
    out->managedMemory = 1;
    out->concurrentManagedAccess = 1;
    out->cooperativeLaunch = 1;
    out->hostRegisterSupported = 1;
    out->memoryPoolsSupported = 1;
    out->clusterLaunch = 1;
}

static void
fill_properties(struct cudaDeviceProp *out, const standin_device *of)
{
    *out = (struct cudaDeviceProp){0};
    (void)snprintf(out->name, sizeof out->name, "%s", standin_settings_get()->name);
    (void)snprintf(out->uuid.bytes, sizeof out->uuid.bytes, "standin-%d", of->ordinal);
    out->totalGlobalMem = of->driver->info.total_bytes;
    out->major = standin_attribute(of, cudaDevAttrComputeCapabilityMajor);
    out->minor = standin_attribute(of, cudaDevAttrComputeCapabilityMinor);
    out->multiProcessorCount = standin_attribute(of, cudaDevAttrMultiProcessorCount);
    out->pciDeviceID = of->ordinal;
    fill_limits(out, of);
    fill_abilities(out, of);
}

cudaError_t
cudaGetDeviceProperties(struct cudaDeviceProp *out, int ordinal)
{
    CALLED();
    standin_enter();
    const standin_device *of = standin_device_at(ordinal);
    if (!out) {
        return standin_return(cudaErrorInvalidValue);
    }
    if (of) {
        fill_properties(out, of);
    }
    return standin_return(of ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t
cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr attribute, int ordinal)
{
    CALLED();
    standin_enter();
    const standin_device *of = standin_device_at(ordinal);
    if (!out) {
        return standin_return(cudaErrorInvalidValue);
    }
    if (of) {
        *out = standin_attribute(of, (int)attribute);
    }
    return standin_return(of ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t
cudaDeviceGetPCIBusId(char *out, int out_bytes, int ordinal)
{
    CALLED();
    standin_enter();
    const standin_device *of = standin_device_at(ordinal);
    if (of && out_bytes >= 13) {
        standin_bus_id(of, out, (size_t)out_bytes);
    }
    return standin_return(!of              ? cudaErrorInvalidDevice
                          : out_bytes < 13 ? cudaErrorInvalidValue
                                           : cudaSuccess);
}
