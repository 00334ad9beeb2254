/* What a device says of itself. Where the settings say nothing, the values are those that an NVIDIA
 * H200 with driver 580.159 answers, so that code which branches on them takes the usual branch. */
#include "standin/standin.h"

#include <stdio.h>
#include <string.h>

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
    {cudaDevAttrMaxRegistersPerBlock, 65536},
    {cudaDevAttrClockRate, 1980000},
    {cudaDevAttrTextureAlignment, 512},
    {cudaDevAttrCanMapHostMemory, 1},
    {cudaDevAttrConcurrentKernels, 1},
    {cudaDevAttrEccEnabled, 1},
    {cudaDevAttrMemoryClockRate, 3201000},
    {cudaDevAttrGlobalMemoryBusWidth, 6016},
    {cudaDevAttrL2CacheSize, 62914560},
    {cudaDevAttrAsyncEngineCount, 3},
    {cudaDevAttrUnifiedAddressing, 1},
    {cudaDevAttrStreamPrioritiesSupported, 1},
    {cudaDevAttrMaxRegistersPerMultiprocessor, 65536},
    {cudaDevAttrManagedMemory, 1},
    {cudaDevAttrConcurrentManagedAccess, 1},
    {cudaDevAttrCooperativeLaunch, 1},
    {cudaDevAttrHostRegisterSupported, 1},
    {cudaDevAttrReservedSharedMemoryPerBlock, 1024},
    {cudaDevAttrMemoryPoolsSupported, 1},
    {cudaDevAttrMemoryPoolSupportedHandleTypes, 1},
};

/* By compute capability, from the table "Technical Specifications per Compute Capability" of
 * NVIDIA's programming guide; the last row that is not above that of the device. */
static const struct {
    int capability, threads, blocks, shared, shared_optin;
} generations[] = {
    {70, 2048, 32, 98304, 98304},    {75, 1024, 16, 65536, 65536},
    {80, 2048, 32, 167936, 166912},  {86, 1536, 16, 102400, 101376},
    {87, 1536, 16, 167936, 166912},  {89, 1536, 24, 102400, 101376},
    {90, 2048, 32, 233472, 232448},  {100, 2048, 32, 233472, 232448},
    {120, 1536, 24, 102400, 101376},
};

static int of_generation(int attribute) {
    const standin_settings *settings = standin_settings_get();
    int capability = 10 * settings->major + settings->minor;
    size_t row = sizeof generations / sizeof generations[0] - 1;
    while (row > 0 && generations[row].capability > capability) {
        row--;
    }
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        return generations[row].threads;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
        return generations[row].blocks;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        return generations[row].shared;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return generations[row].shared_optin;
    case cudaDevAttrClusterLaunch:
        return settings->major >= 9;
    default:
        return 0;
    }
}

int standin_attribute(const standin_device *device, int attribute) {
    const standin_settings *settings = standin_settings_get();
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
        return settings->multiprocessors;
    case cudaDevAttrComputeCapabilityMajor:
        return settings->major;
    case cudaDevAttrComputeCapabilityMinor:
        return settings->minor;
    case cudaDevAttrPciDeviceId:
        return settings->numbers[device->ordinal];
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        return settings->has_virtual_memory;
    default:
        break;
    }
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        if (attributes[i].attribute == attribute) {
            return attributes[i].value;
        }
    }
    return of_generation(attribute);
}

void standin_uuid(int number, char out[STANDIN_UUID_BYTES]) {
    memset(out, 0, STANDIN_UUID_BYTES);
    (void)snprintf(out, STANDIN_UUID_BYTES, "standin-%d", number);
}

cudaError_t standin_cudaGetDeviceProperties(struct cudaDeviceProp *out, int ordinal) {
    const standin_device *of = standin_device_at(ordinal);
#define GIVE(field, attribute)                                                                     \
    out->field = (__typeof__(out->field))standin_attribute(of, (int)(attribute))
    *out = (struct cudaDeviceProp){0};
    (void)snprintf(out->name, sizeof out->name, "%s", standin_settings_get()->name);
    standin_uuid(standin_settings_get()->numbers[ordinal], out->uuid.bytes);
    out->totalGlobalMem = standin_settings_get()->capacity_bytes;
    GIVE(pciDeviceID, cudaDevAttrPciDeviceId);
    GIVE(major, cudaDevAttrComputeCapabilityMajor);
    GIVE(minor, cudaDevAttrComputeCapabilityMinor);
    GIVE(multiProcessorCount, cudaDevAttrMultiProcessorCount);
    GIVE(sharedMemPerBlock, cudaDevAttrMaxSharedMemoryPerBlock);
    GIVE(sharedMemPerBlockOptin, cudaDevAttrMaxSharedMemoryPerBlockOptin);
    GIVE(sharedMemPerMultiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    GIVE(reservedSharedMemPerBlock, cudaDevAttrReservedSharedMemoryPerBlock);
    GIVE(regsPerBlock, cudaDevAttrMaxRegistersPerBlock);
    GIVE(regsPerMultiprocessor, cudaDevAttrMaxRegistersPerMultiprocessor);
    GIVE(warpSize, cudaDevAttrWarpSize);
    GIVE(maxThreadsPerBlock, cudaDevAttrMaxThreadsPerBlock);
    GIVE(maxThreadsPerMultiProcessor, cudaDevAttrMaxThreadsPerMultiProcessor);
    GIVE(maxBlocksPerMultiProcessor, cudaDevAttrMaxBlocksPerMultiprocessor);
    for (int i = 0; i < 3; i++) {
        GIVE(maxThreadsDim[i], cudaDevAttrMaxBlockDimX + i);
        GIVE(maxGridSize[i], cudaDevAttrMaxGridDimX + i);
    }
    GIVE(l2CacheSize, cudaDevAttrL2CacheSize);
    GIVE(memoryBusWidth, cudaDevAttrGlobalMemoryBusWidth);
    GIVE(ECCEnabled, cudaDevAttrEccEnabled);
    GIVE(asyncEngineCount, cudaDevAttrAsyncEngineCount);
    out->canMapHostMemory = out->concurrentKernels = out->unifiedAddressing = 1;
    out->managedMemory = out->cooperativeLaunch = out->memoryPoolsSupported = 1;
#undef GIVE
    return cudaSuccess;
}

cudaError_t standin_cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr attribute, int ordinal) {
    *out = standin_attribute(standin_device_at(ordinal), (int)attribute);
    return cudaSuccess;
}

/* Unlike for each device. */
cudaError_t standin_cudaDeviceGetPCIBusId(char *out, int out_bytes, int ordinal) {
    unsigned number = (unsigned)standin_settings_get()->numbers[ordinal];
    (void)snprintf(out, (size_t)out_bytes, "0000:00:%02X.0", number & 0xff);
    return cudaSuccess;
}
