/* A libcuda.so.1 for machines without a GPU: the entries that the driver `cuda` calls, answered by
 * the driver `host`. It checks what a real library would: a current context where one is needed,
 * flags and properties, and that no call breaks a capture.
 *
 * The variable GMLAKE_FAKE_CUDA chooses a defect: "no_device", "stub", "no_virtual_memory",
 * "no_rdma" (announced, but refused), "missing:NAME" (that entry does not exist), "one_device",
 * "narrow_peers" (no peer may touch more than one granule at a time), "no_memory" (cuMemCreate),
 * "no_export" (cuMemExportToShareableHandle), "no_rdma_access" (announced and created, but the
 * device may not use it), "not_ready" (cuMemSetAccess, three times of four), "never_ready",
 * "unified" (its memory is the host's), "no_host_chunks" (none of the host's memory can be mapped).
 */
#include "support/fake_libcuda.h"

#include "driver/backends.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Device 0; the lock guards all but what is thread-local. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static gml_driver *device;
static int retained;

enum { STACK_DEPTH = 16 };

static char context_object;
static _Thread_local gml_cu_context context_stack[STACK_DEPTH];
static _Thread_local int context_depth;
static _Thread_local int capture_mode;

/* "" if none was chosen. A test sets it while no other thread runs. */
static const char *chosen_defect(void) {
    const char *defect = getenv("GMLAKE_FAKE_CUDA"); /* NOLINT(concurrency-mt-unsafe) */
    return defect ? defect : "";
}

bool fake_has_defect(const char *name) {
    return strcmp(chosen_defect(), name) == 0;
}

gml_cu_result fake_result_of(gml_status status) {
    switch (status) {
    case GML_OK:
        return GML_CU_SUCCESS;
    case GML_OUT_OF_MEMORY:
        return GML_CU_OUT_OF_MEMORY;
    case GML_NOT_READY:
        return GML_CU_NOT_READY;
    default:
        return GML_CU_INVALID_VALUE;
    }
}

static gml_cu_context the_context(void) {
    return (gml_cu_context)(void *)&context_object;
}

bool fake_has_context(void) {
    return context_depth > 0 && context_stack[context_depth - 1] == the_context();
}

int fake_capture_mode(void) {
    return capture_mode;
}

gml_driver *fake_device(void) {
    return device;
}

/* ---- the library and the device -------------------------------------------------------------- */

gml_cu_result fake_cuInit(unsigned flags) {
    char reason[GML_REASON_BYTES];
    if (flags != 0) {
        return GML_CU_INVALID_VALUE;
    }
    if (fake_has_defect("no_device")) {
        return GML_CU_NO_DEVICE;
    }
    if (fake_has_defect("stub")) {
        return GML_CU_STUB_LIBRARY;
    }
    (void)pthread_mutex_lock(&lock);
    gml_status status =
        device ? GML_OK
               : gml_model_driver_open(GML_MODEL_HOST, 0, 0, &device, reason, sizeof reason);
    (void)pthread_mutex_unlock(&lock);
    return fake_result_of(status);
}

gml_cu_result fake_cuGetErrorName(gml_cu_result error, const char **out) {
    *out = error == GML_CU_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
           : error == GML_CU_NO_DEVICE   ? "CUDA_ERROR_NO_DEVICE"
                                         : "CUDA_ERROR_OF_THE_FAKE";
    return GML_CU_SUCCESS;
}

gml_cu_result fake_cuGetErrorString(gml_cu_result error, const char **out) {
    *out = error == GML_CU_OUT_OF_MEMORY ? "out of memory" : "refused by the fake library";
    return GML_CU_SUCCESS;
}

gml_cu_result fake_cuDeviceGetCount(int *out) {
    *out = fake_has_defect("one_device") ? 1 : FAKE_DEVICES;
    return GML_CU_SUCCESS;
}

gml_cu_result fake_cuDeviceGet(gml_cu_device *out, int ordinal) {
    *out = ordinal;
    return ordinal >= 0 && ordinal < FAKE_DEVICES ? GML_CU_SUCCESS : GML_CU_INVALID_DEVICE;
}

gml_cu_result fake_cuDeviceCanAccessPeer(int *out, gml_cu_device from, gml_cu_device to) {
    *out = from != to && from != FAKE_UNREACHING_DEVICE;
    return to == 0 && from >= 0 && from < FAKE_DEVICES ? GML_CU_SUCCESS : GML_CU_INVALID_DEVICE;
}

gml_cu_result fake_cuDeviceGetName(char *out, int out_bytes, gml_cu_device of) {
    static const char name[] = "Fake CUDA device";
    if (of != 0 || out_bytes < (int)sizeof name) {
        return GML_CU_INVALID_VALUE;
    }
    memcpy(out, name, sizeof name);
    return GML_CU_SUCCESS;
}

gml_cu_result fake_cuDeviceGetAttribute(int *out, int attribute, gml_cu_device of) {
    if (of != 0) {
        return GML_CU_INVALID_DEVICE;
    }
    *out = attribute == GML_CU_ATTRIBUTE_VIRTUAL_MEMORY ? !fake_has_defect("no_virtual_memory")
           : attribute == GML_CU_ATTRIBUTE_INTEGRATED
               ? fake_has_defect("unified")
               : attribute == GML_CU_ATTRIBUTE_RDMA_WITH_VIRTUAL_MEMORY ||
                     (attribute == GML_CU_ATTRIBUTE_HOST_WITH_VIRTUAL_MEMORY &&
                      !fake_has_defect("no_host_chunks"));
    return GML_CU_SUCCESS;
}

gml_cu_result fake_cuDeviceTotalMem(size_t *out, gml_cu_device of) {
    *out = device->info.total_bytes;
    if (fake_has_defect("unified")) {
        *out = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    }
    return of == 0 ? GML_CU_SUCCESS : GML_CU_INVALID_DEVICE;
}

gml_cu_result fake_cuDevicePrimaryCtxRetain(gml_cu_context *out, gml_cu_device of) {
    if (of != 0) {
        return GML_CU_INVALID_DEVICE;
    }
    (void)pthread_mutex_lock(&lock);
    retained++;
    (void)pthread_mutex_unlock(&lock);
    *out = the_context();
    return GML_CU_SUCCESS;
}

gml_cu_result fake_cuDevicePrimaryCtxRelease(gml_cu_device of) {
    (void)pthread_mutex_lock(&lock);
    bool was_retained = retained > 0;
    retained -= was_retained;
    (void)pthread_mutex_unlock(&lock);
    return of == 0 && was_retained ? GML_CU_SUCCESS : GML_CU_INVALID_CONTEXT;
}

gml_cu_result fake_cuDevicePrimaryCtxGetState(gml_cu_device of, unsigned *flags, int *is_active) {
    *flags = 0;
    *is_active = retained > 0;
    return of == 0 ? GML_CU_SUCCESS : GML_CU_INVALID_DEVICE;
}

gml_cu_result fake_cuCtxPushCurrent(gml_cu_context pushed) {
    if (retained == 0 || context_depth == STACK_DEPTH) {
        return GML_CU_INVALID_CONTEXT;
    }
    context_stack[context_depth++] = pushed;
    return GML_CU_SUCCESS;
}

gml_cu_result fake_cuCtxPopCurrent(gml_cu_context *out) {
    if (context_depth == 0) {
        return GML_CU_INVALID_CONTEXT;
    }
    *out = context_stack[--context_depth];
    return GML_CU_SUCCESS;
}

gml_cu_result fake_cuCtxGetCurrent(gml_cu_context *out) {
    *out = context_depth > 0 ? context_stack[context_depth - 1] : NULL;
    return GML_CU_SUCCESS;
}

gml_cu_result fake_cuThreadExchangeStreamCaptureMode(int *mode) {
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return GML_CU_SUCCESS;
}

/* ---- looking entries up ---------------------------------------------------------------------- */

typedef void (*any_function)(void);

static const struct {
    const char *name;
    any_function function;
} functions[] = {
#define FAKE_ENTRY(name, version, parameters) {#name, (any_function)fake_##name},
    GML_CUDA_ENTRIES(FAKE_ENTRY) GML_CUDA_OPTIONAL(FAKE_ENTRY) FAKE_EXTRA_ENTRIES(FAKE_ENTRY)
#undef FAKE_ENTRY
};

GML_API gml_cu_result cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags,
                                          int *found);

gml_cu_result cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags,
                                  int *found) {
    static const char missing[] = "missing:";
    const char *defect = chosen_defect();
    bool is_missing = strncmp(defect, missing, sizeof missing - 1) == 0 &&
                      strcmp(defect + sizeof missing - 1, name) == 0;
    *out = NULL;
    *found = 1;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0] && !is_missing; i++) {
        if (strcmp(functions[i].name, name) == 0 && version >= 2000 && flags == 0) {
            memcpy(out, &functions[i].function, sizeof *out);
            *found = 0;
            return GML_CU_SUCCESS;
        }
    }
    return GML_CU_INVALID_VALUE;
}
