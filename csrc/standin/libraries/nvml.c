/* The management library, libnvidia-ml.so.1, as far as PyTorch's allocator and torch.cuda ask it.
 *
 * Its header comes with none of PyTorch's packages, so what is needed of it is declared here. What
 * is not here PyTorch does not find: its library for remote calls (TensorPipe) then does without
 * CUDA IPC. */
#include "standin/standin.h"

#include <stdio.h>
#include <unistd.h>

typedef enum nvml_result {
    NVML_SUCCESS = 0,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7
} nvml_result;

/* A device's ordinal, from 1. */
typedef struct nvml_device *nvml_device;

typedef struct nvml_process {
    unsigned process;
    unsigned long long used_bytes;
} nvml_process;

/* The beginning of it, which is the same in every version. */
typedef struct nvml_fabric {
    unsigned version;
    unsigned char cluster[16];
    nvml_result status;
    unsigned clique;
    unsigned char state;
} nvml_fabric;

STANDIN_API nvml_result nvmlInit(void);
STANDIN_API nvml_result nvmlInit_v2(void);
STANDIN_API nvml_result nvmlSystemGetCudaDriverVersion_v2(int *out);
STANDIN_API nvml_result nvmlDeviceGetCount_v2(unsigned *out);
STANDIN_API nvml_result nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvml_device *out);
STANDIN_API nvml_result nvmlDeviceGetComputeRunningProcesses(nvml_device device, unsigned *count,
                                                             nvml_process *out);
STANDIN_API nvml_result nvmlDeviceGetGpuFabricInfoV(nvml_device device, nvml_fabric *out);
STANDIN_API nvml_result nvmlDeviceGetNvLinkRemoteDeviceType(nvml_device device, unsigned link,
                                                            int *out);
STANDIN_API nvml_result nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml_device device, unsigned link,
                                                            void *out);

nvml_result
nvmlInit(void)
{
    CALLED();
    return NVML_SUCCESS;
}

nvml_result
nvmlInit_v2(void)
{
    CALLED();
    return NVML_SUCCESS;
}

nvml_result
nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    CALLED();
    *out = CUDA_VERSION;
    return NVML_SUCCESS;
}

/* Of the machine: CUDA_VISIBLE_DEVICES is for whoever asks. */
nvml_result
nvmlDeviceGetCount_v2(unsigned *out)
{
    CALLED();
    *out = (unsigned)standin_settings_get()->present;
    return NVML_SUCCESS;
}

/* As cudaDeviceGetPCIBusId() names them. */
nvml_result
nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvml_device *out)
{
    CALLED();
    unsigned ordinal = 0;
    /* NOLINTNEXTLINE(cert-err34-c,bugprone-unchecked-string-to-number-conversion) */
    if (sscanf(bus, "%*x:%*x:%2x", &ordinal) != 1) {
        return NVML_INVALID_ARGUMENT;
    }
    *out = (nvml_device)(uintptr_t)(ordinal + 1);
    return ordinal < (unsigned)standin_settings_get()->present ? NVML_SUCCESS : NVML_NOT_FOUND;
}

/* No other process uses these devices. */
nvml_result
nvmlDeviceGetComputeRunningProcesses(nvml_device device, unsigned *count, nvml_process *out)
{
    CALLED();
    unsigned room = *count;
    uint64_t left = 0, served = 0; /* what is held may be more than the device says that it has */
    standin_enter();
    standin_device *of = standin_device_at((int)(uintptr_t)device - 1);
    *count = of && of->is_active;
    if (*count) {
        (void)gml_driver_memory_info(of->driver, &left, &served);
    }
    standin_leave();
    if (*count > room) {
        return NVML_INSUFFICIENT_SIZE;
    }
    if (*count) {
        *out = (nvml_process){(unsigned)getpid(), served - left};
    }
    return NVML_SUCCESS;
}

/* None has a fabric, */
nvml_result
nvmlDeviceGetGpuFabricInfoV(nvml_device device, nvml_fabric *out)
{
    CALLED();
    (void)device;
    out->status = NVML_SUCCESS;
    out->state = 0; /* NVML_GPU_FABRIC_STATE_NOT_SUPPORTED */
    return NVML_SUCCESS;
}

/* nor NVLink. */
nvml_result
nvmlDeviceGetNvLinkRemoteDeviceType(nvml_device device, unsigned link, int *out)
{
    CALLED();
    (void)device, (void)link, (void)out;
    return NVML_NOT_SUPPORTED;
}

nvml_result
nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml_device device, unsigned link, void *out)
{
    CALLED();
    (void)device, (void)link, (void)out;
    return NVML_NOT_SUPPORTED;
}
