/* The devices, the lock, and each thread's current device and last error. */
#include "driver/model.h"
#include "standin/harness/control.h"
#include "standin/standin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* Guards everything but what is thread-local, atomic, or settings. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static standin_device devices[STANDIN_MOST_DEVICES];
static int device_count; /* 0 until the first call */

static _Thread_local int current;
static _Thread_local bool has_current;
static _Thread_local cudaError_t last_error;

static void __attribute__((noreturn)) give_up(const char *reason) {
    fprintf(stderr, "gmlake stand-in: %s\n", reason);
    _Exit(2);
}

void *standin_new(size_t size_bytes) {
    void *made = calloc(1, size_bytes);
    if (!made) {
        give_up("no host memory left");
    }
    return made;
}

void standin_demand(gml_status status) {
    if (status != GML_OK) {
        give_up("no host memory left");
    }
}

void standin_insert(gml_map *map, uint64_t key, void *value) {
    standin_demand(gml_map_insert(map, key, value));
}

static gml_map handles; /* to their kinds */

void standin_remember(const void *handle, standin_kind kind) {
    standin_insert(&handles, (uint64_t)(uintptr_t)handle, (void *)(uintptr_t)kind);
}

void standin_forget(const void *handle) {
    (void)gml_map_take(&handles, (uint64_t)(uintptr_t)handle);
}

cudaError_t standin_check_handle(const void *handle, standin_kind kind) {
    void *found = handle ? gml_map_find(&handles, (uint64_t)(uintptr_t)handle) : NULL;
    cudaError_t error =
        kind == STANDIN_EVENT ? cudaErrorInvalidResourceHandle : cudaErrorInvalidValue;
    return found == (void *)(uintptr_t)kind ? cudaSuccess : error;
}

static void open_device(standin_device *device, int ordinal) {
    const standin_settings *settings = standin_settings_get();
    char reason[GML_REASON_BYTES] = "";
    gml_model_kind kind = settings->is_backed ? GML_MODEL_HOST : GML_MODEL_HOLLOW;
    gml_status status = gml_model_driver_open(kind, settings->served_bytes, 0, &device->driver,
                                              reason, sizeof reason);
    if (status != GML_OK) {
        give_up(reason);
    }
    device->ordinal = ordinal;
    device->default_stream = standin_stream_new(device, 0);
}

/* What a node of an executable graph takes of its device: vLLM's 51 graphs of a Llama of 8B, which
 * have 18,156 nodes here, took 70 MiB of an H200. */
enum { NODE_BYTES = 4096 };

void standin_memory_info(const standin_device *device, size_t *free_bytes, size_t *total_bytes) {
    uint64_t left = 0, served = 0;
    (void)gml_driver_memory_info(device->driver, &left, &served);
    *total_bytes = standin_settings_get()->capacity_bytes;
    uint64_t held_bytes = served - left + device->others_bytes + device->graph_nodes * NODE_BYTES;
    *free_bytes = held_bytes < *total_bytes ? *total_bytes - held_bytes : 0;
}

/* A child of fork() goes on from a state that no other thread of its parent was changing. */
static void lock_for_fork(void) {
    (void)pthread_mutex_lock(&lock);
}

static void unlock_in_parent(void) {
    (void)pthread_mutex_unlock(&lock);
}

static void unlock_in_child(void) {
    (void)pthread_mutex_unlock(&lock);
    standin_forget_sharing();
    standin_forget_counts();
    standin_forget_host_functions();
}

static void __attribute__((constructor)) watch_forks(void) {
    (void)pthread_atfork(lock_for_fork, unlock_in_parent, unlock_in_child);
}

int gmlake_standin_read_settings(void) {
    (void)pthread_mutex_lock(&lock);
    bool is_unused = device_count == 0;
    if (is_unused) {
        standin_settings_read_again();
        standin_forget_counts();
    }
    (void)pthread_mutex_unlock(&lock);
    return is_unused ? 0 : -1;
}

void standin_enter(void) {
    (void)pthread_mutex_lock(&lock);
    if (device_count == 0) {
        device_count = standin_settings_get()->devices;
        device_count = device_count ? device_count : 1; /* for who asks nobody and goes on */
        for (int i = 0; i < device_count; i++) {
            open_device(&devices[i], i);
        }
    }
    standin_begin_sharing(devices, device_count);
}

void standin_begin(standin_call *call) {
    standin_count(call);
    standin_enter();
}

void standin_leave(void) {
    standin_end_sharing(devices, device_count);
    (void)pthread_mutex_unlock(&lock);
    standin_run_host_functions();
}

standin_device *standin_device_at(int ordinal) {
    return ordinal >= 0 && ordinal < device_count ? &devices[ordinal] : NULL;
}

cudaError_t standin_check_device(int ordinal) {
    return standin_device_at(ordinal) ? cudaSuccess : cudaErrorInvalidDevice;
}

standin_device *standin_current_device(void) {
    has_current = true;
    return &devices[current];
}

int standin_current_ordinal(void) {
    return current;
}

bool standin_has_current(void) {
    return has_current;
}

void standin_forget_current(void) {
    has_current = false;
    current = 0;
}

cudaError_t standin_cudaSetDevice(int ordinal) {
    current = ordinal;
    (void)standin_current_device();
    return cudaSuccess;
}

standin_device *standin_device_of(gml_address address) {
    for (int i = 0; i < device_count; i++) {
        const gml_model *model = (const gml_model *)(const void *)devices[i].driver;
        if (gml_ranges_at(&model->ranges, address)) {
            return &devices[i];
        }
    }
    return NULL;
}

cudaError_t standin_return(cudaError_t error) {
    if (has_current) {
        devices[current].is_active = true;
    }
    standin_leave();
    if (error != cudaSuccess) {
        last_error = error;
    }
    return error;
}

CUresult standin_return_driver(cudaError_t error) {
    standin_leave();
    return (CUresult)error;
}

cudaError_t standin_error_of(standin_device *device, gml_status status) {
    switch (status) {
    case GML_OK:
        return cudaSuccess;
    case GML_NOT_READY:
        return cudaErrorNotReady;
    case GML_OUT_OF_MEMORY:
    case GML_NO_HOST_MEMORY:
        return cudaErrorMemoryAllocation;
    case GML_MISUSE:
        standin_misuse("device %d: %s", device->ordinal, device->driver->reason);
        return cudaErrorInvalidValue;
    case GML_UNSUPPORTED:
        return cudaErrorNotSupported;
    default:
        return cudaErrorInvalidValue;
    }
}

cudaError_t cudaGetLastError(void) {
    CALLED();
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void) {
    CALLED();
    return last_error;
}

/* ---- which devices there are, and who reaches whom ------------------------------------------- */

cudaError_t standin_cudaGetDeviceCount(int *out) {
    *out = standin_settings_get()->devices;
    return *out > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t standin_cudaGetDevice(int *out) {
    *out = standin_current_ordinal();
    return cudaSuccess;
}

cudaError_t standin_cudaDriverGetVersion(int *out) {
    *out = CUDA_VERSION;
    return cudaSuccess;
}

/* Every device reaches every other. */
cudaError_t standin_cudaDeviceCanAccessPeer(int *out, int ordinal, int peer) {
    *out = ordinal != peer;
    return cudaSuccess;
}

cudaError_t standin_cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    (void)flags;
    standin_device *device = standin_current_device();
    if (peer == device->ordinal) {
        return cudaErrorInvalidDevice;
    }
    bool was_enabled = device->peers & 1U << peer;
    device->peers |= 1U << peer;
    return was_enabled ? cudaErrorPeerAccessAlreadyEnabled : cudaSuccess;
}
