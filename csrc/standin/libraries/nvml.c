/* The management library, libnvidia-ml.so.1, as far as PyTorch's allocator, torch.cuda and servers
 * of models ask it.
 *
 * Its header comes with none of PyTorch's packages, so what is needed of it is declared here. What
 * is not here (nvmlDeviceGetP2PStatus) nobody finds: PyTorch's library for remote calls
 * (TensorPipe) then does without CUDA IPC. */
#include "standin/standin.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef enum nvml_result {
    NVML_SUCCESS = 0,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7
} nvml_result;

/* The number of a device in the machine, from 1, whatever CUDA_VISIBLE_DEVICES hides. */
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

typedef struct nvml_memory {
    unsigned long long total_bytes, free_bytes, used_bytes;
} nvml_memory;

typedef struct nvml_place {
    char old_bus[16];
    unsigned domain, bus, device, kind, subsystem;
    char bus_id[32];
} nvml_place;

/* An exported function with that behaviour. */
#define NVML(name, ...)                                                                            \
    STANDIN_API nvml_result name(__VA_ARGS__);                                                     \
    nvml_result name(__VA_ARGS__)

NVML(nvmlInit, void) {
    CALLED();
    return NVML_SUCCESS;
}

NVML(nvmlInit_v2, void) {
    CALLED();
    return NVML_SUCCESS;
}

NVML(nvmlInitWithFlags, unsigned flags) {
    CALLED();
    (void)flags;
    return NVML_SUCCESS;
}

NVML(nvmlShutdown, void) {
    CALLED();
    return NVML_SUCCESS;
}

/* Words of the given room, which must hold all of them. */
static nvml_result __attribute__((format(printf, 3, 4))) write_words(char *out, unsigned out_bytes,
                                                                     const char *format, ...) {
    va_list values;
    va_start(values, format);
    int written = vsnprintf(out, out_bytes, format, values);
    va_end(values);
    return (unsigned)written < out_bytes ? NVML_SUCCESS : NVML_INSUFFICIENT_SIZE;
}

/* ---- the machine ----------------------------------------------------------------------------- */

NVML(nvmlSystemGetCudaDriverVersion_v2, int *out) {
    CALLED();
    *out = CUDA_VERSION;
    return NVML_SUCCESS;
}

/* That of the H200 whose answers attributes.c has. */
NVML(nvmlSystemGetDriverVersion, char *out, unsigned out_bytes) {
    CALLED();
    return write_words(out, out_bytes, "580.159.04");
}

/* Of the machine: CUDA_VISIBLE_DEVICES is for whoever asks. */
NVML(nvmlDeviceGetCount_v2, unsigned *out) {
    CALLED();
    *out = (unsigned)standin_settings_get()->present;
    return NVML_SUCCESS;
}

/* ---- devices --------------------------------------------------------------------------------- */

static unsigned number_of(nvml_device device) {
    return (unsigned)(uintptr_t)device - 1;
}

static nvml_result check_device(nvml_device device) {
    return number_of(device) < (unsigned)standin_settings_get()->present ? NVML_SUCCESS
                                                                         : NVML_INVALID_ARGUMENT;
}

/* NULL for one that CUDA_VISIBLE_DEVICES hides from this process. */
static standin_device *find_visible(nvml_device device) {
    const standin_settings *settings = standin_settings_get();
    for (int i = 0; i < settings->devices; i++) {
        if ((unsigned)settings->numbers[i] == number_of(device)) {
            return standin_device_at(i);
        }
    }
    return NULL;
}

static nvml_device device_at(unsigned number) {
    return (nvml_device)(uintptr_t)(number + 1);
}

NVML(nvmlDeviceGetHandleByIndex_v2, unsigned number, nvml_device *out) {
    CALLED();
    *out = device_at(number);
    return check_device(*out);
}

/* As cudaDeviceGetPCIBusId() names them. */
NVML(nvmlDeviceGetHandleByPciBusId_v2, const char *bus, nvml_device *out) {
    CALLED();
    unsigned number = 0;
    /* NOLINTNEXTLINE(cert-err34-c,bugprone-unchecked-string-to-number-conversion) */
    if (sscanf(bus, "%*x:%*x:%2x", &number) != 1) {
        return NVML_INVALID_ARGUMENT;
    }
    *out = device_at(number);
    return check_device(*out) == NVML_SUCCESS ? NVML_SUCCESS : NVML_NOT_FOUND;
}

enum { WORDS_OF_UUID = sizeof "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" };

static nvml_result write_uuid(nvml_device device, char *out, unsigned out_bytes) {
    char bytes[STANDIN_UUID_BYTES];
    char digits[2 * STANDIN_UUID_BYTES + 1];
    standin_uuid((int)number_of(device), bytes);
    for (size_t i = 0; i < STANDIN_UUID_BYTES; i++) {
        (void)snprintf(digits + 2 * i, 3, "%02x", (unsigned char)bytes[i]);
    }
    return write_words(out, out_bytes, "GPU-%.8s-%.4s-%.4s-%.4s-%.12s", digits, digits + 8,
                       digits + 12, digits + 16, digits + 20);
}

NVML(nvmlDeviceGetHandleByUUID, const char *uuid, nvml_device *out) {
    CALLED();
    char found[WORDS_OF_UUID];
    for (int i = 0; i < standin_settings_get()->present; i++) {
        *out = device_at((unsigned)i);
        (void)write_uuid(*out, found, sizeof found);
        if (strcmp(found, uuid) == 0) {
            return NVML_SUCCESS;
        }
    }
    return NVML_NOT_FOUND;
}

NVML(nvmlDeviceGetIndex, nvml_device device, unsigned *out) {
    CALLED();
    *out = number_of(device);
    return check_device(device);
}

NVML(nvmlDeviceGetName, nvml_device device, char *out, unsigned out_bytes) {
    CALLED();
    nvml_result result = check_device(device);
    return result == NVML_SUCCESS ? write_words(out, out_bytes, "%s", standin_settings_get()->name)
                                  : result;
}

/* As CUDA has it in the properties of a device. */
NVML(nvmlDeviceGetUUID, nvml_device device, char *out, unsigned out_bytes) {
    CALLED();
    nvml_result result = check_device(device);
    return result == NVML_SUCCESS ? write_uuid(device, out, out_bytes) : result;
}

NVML(nvmlDeviceGetPciInfo_v3, nvml_device device, nvml_place *out) {
    CALLED();
    unsigned number = number_of(device) & 0xff;
    *out = (nvml_place){.device = number};
    (void)snprintf(out->old_bus, sizeof out->old_bus, "0000:00:%02X.0", number);
    (void)snprintf(out->bus_id, sizeof out->bus_id, "00000000:00:%02X.0", number);
    return check_device(device);
}

NVML(nvmlDeviceGetCudaComputeCapability, nvml_device device, int *major, int *minor) {
    CALLED();
    *major = standin_settings_get()->major;
    *minor = standin_settings_get()->minor;
    return check_device(device);
}

/* Of a device that this process does not see nothing is used. */
NVML(nvmlDeviceGetMemoryInfo, nvml_device device, nvml_memory *out) {
    CALLED();
    size_t total = standin_settings_get()->capacity_bytes;
    size_t left = total;
    standin_enter();
    const standin_device *visible = find_visible(device);
    if (visible) {
        standin_memory_info(visible, &left, &total);
    }
    standin_leave();
    *out = (nvml_memory){total, left, total - left};
    return check_device(device);
}

/* No other process uses these devices. */
NVML(nvmlDeviceGetComputeRunningProcesses, nvml_device device, unsigned *count, nvml_process *out) {
    CALLED();
    unsigned room = *count;
    uint64_t left = 0, served = 0; /* what is held may be more than the device says that it has */
    standin_enter();
    const standin_device *of = find_visible(device);
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
NVML(nvmlDeviceGetGpuFabricInfoV, nvml_device device, nvml_fabric *out) {
    CALLED();
    (void)device;
    out->status = NVML_SUCCESS;
    out->state = 0; /* NVML_GPU_FABRIC_STATE_NOT_SUPPORTED */
    return NVML_SUCCESS;
}

/* nor NVLink. */
NVML(nvmlDeviceGetNvLinkRemoteDeviceType, nvml_device device, unsigned link, int *out) {
    CALLED();
    (void)device, (void)link, (void)out;
    return NVML_NOT_SUPPORTED;
}

NVML(nvmlDeviceGetNvLinkRemotePciInfo_v2, nvml_device device, unsigned link, void *out) {
    CALLED();
    (void)device, (void)link, (void)out;
    return NVML_NOT_SUPPORTED;
}
