/* dlopen and cuGetProcAddress. */
#include "driver/cuda_internal.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char LIBRARY[] = "libcuda.so.1";

typedef struct entry {
    const char *name;
    size_t offset; /* of its pointer in gml_cuda_api */
    int version;
    bool is_optional;
} entry;

static const entry entries[] = {
#define GML_CUDA_NEEDED(name, version, parameters)                                                 \
    {#name, offsetof(gml_cuda_api, name), version, false},
#define GML_CUDA_WISHED(name, version, parameters)                                                 \
    {#name, offsetof(gml_cuda_api, name), version, true},
    GML_CUDA_ENTRIES(GML_CUDA_NEEDED) GML_CUDA_OPTIONAL(GML_CUDA_WISHED)
#undef GML_CUDA_NEEDED
#undef GML_CUDA_WISHED
};

enum { ENTRIES = sizeof entries / sizeof entries[0] };

/* cuGetProcAddress as of CUDA 11.3, and as of CUDA 12 under the name cuGetProcAddress_v2. */
typedef gml_cu_result (*look_up_11)(const char *name, void **out, int version, uint64_t flags);
typedef gml_cu_result (*look_up_12)(const char *name, void **out, int version, uint64_t flags,
                                    int *found);

/* One of the two is set. */
typedef struct lookup {
    look_up_11 before_12;
    look_up_12 since_12;
} lookup;

/* POSIX lets dlsym return a function; ISO C has no such cast, so the bits are copied. */
static void find_symbol(void *library, const char *name, void *pointer, size_t pointer_bytes) {
    void *found = dlsym(library, name);
    memcpy(pointer, &found, pointer_bytes);
}

/* NULL if this driver has no such entry in that version. */
static void *find_entry(const lookup *by, const entry *wanted) {
    void *found = NULL;
    int ignored;
    gml_cu_result result = by->since_12
                               ? by->since_12(wanted->name, &found, wanted->version, 0, &ignored)
                               : by->before_12(wanted->name, &found, wanted->version, 0);
    return result == GML_CU_SUCCESS ? found : NULL;
}

static gml_status find_entries(const lookup *by, gml_cuda_api *out, char *reason,
                               size_t reason_bytes) {
    for (size_t i = 0; i < ENTRIES; i++) {
        void *found = find_entry(by, &entries[i]);
        if (!found && !entries[i].is_optional) {
            (void)snprintf(reason, reason_bytes,
                           "cuda: %s has no %s of CUDA %d.%d; install a newer NVIDIA driver",
                           LIBRARY, entries[i].name, entries[i].version / 1000,
                           entries[i].version % 1000 / 10);
            return GML_DRIVER_ABSENT;
        }
        memcpy((char *)out + entries[i].offset, &found, sizeof found);
    }
    return GML_OK;
}

gml_status gml_cuda_library_load(gml_cuda_api *out, char *reason, size_t reason_bytes) {
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        const char *why = dlerror(); /* NOLINT(concurrency-mt-unsafe): its text is per thread */
        (void)snprintf(reason, reason_bytes,
                       "cuda: no NVIDIA driver found (%s); install one, or choose the driver "
                       "'sim' or 'host'",
                       why ? why : LIBRARY);
        return GML_DRIVER_ABSENT;
    }
    lookup by;
    find_symbol(library, "cuGetProcAddress_v2", &by.since_12, sizeof by.since_12);
    find_symbol(library, "cuGetProcAddress", &by.before_12, sizeof by.before_12);
    gml_status status = GML_DRIVER_ABSENT;
    if (by.since_12 || by.before_12) {
        status = find_entries(&by, out, reason, reason_bytes);
    } else {
        (void)snprintf(reason, reason_bytes,
                       "cuda: %s has no cuGetProcAddress; install an NVIDIA driver for CUDA 11.3 "
                       "or newer",
                       LIBRARY);
    }
    (void)dlclose(library);
    return status;
}
