/* Who may touch what, in the fake libcuda.so.1: a set of devices for each granule. */
#include "base/map.h"
#include "support/fake_libcuda.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static gml_map devices_by_granule; /* bits of devices, kept as pointers; guarded by `lock` */

static uint64_t granule_bytes(void) {
    return fake_device()->info.granularity_bytes;
}

static uintptr_t devices_at(gml_cu_pointer granule) {
    return (uintptr_t)gml_map_find(&devices_by_granule, granule);
}

/* False when the host has no memory. */
static bool set_devices(gml_cu_pointer granule, uintptr_t devices) {
    (void)gml_map_take(&devices_by_granule, granule);
    return devices == 0 || gml_map_insert(&devices_by_granule, granule, (void *)devices) == GML_OK;
}

void fake_forget_access(gml_cu_pointer address, size_t size) {
    (void)pthread_mutex_lock(&lock);
    for (size_t done = 0; done < size; done += granule_bytes()) {
        (void)set_devices(address + done, 0);
    }
    (void)pthread_mutex_unlock(&lock);
}

static bool is_valid(const gml_cu_access *access, size_t size) {
    int device = access->location.id;
    bool is_narrow = fake_has_defect("narrow_peers") && device != 0;
    return access->location.type == GML_CU_LOCATION_DEVICE && device >= 0 &&
           device < FAKE_DEVICES && device != FAKE_UNREACHING_DEVICE &&
           (access->flags == GML_CU_ACCESS_READ_WRITE || access->flags == GML_CU_ACCESS_NONE) &&
           !(is_narrow && size > granule_bytes());
}

static bool apply(gml_cu_pointer address, size_t size, const gml_cu_access *access) {
    uintptr_t bit = (uintptr_t)1 << access->location.id;
    bool is_done = true;
    for (size_t done = 0; done < size; done += granule_bytes()) {
        uintptr_t before = devices_at(address + done);
        uintptr_t after = access->flags == GML_CU_ACCESS_NONE ? before & ~bit : before | bit;
        is_done = set_devices(address + done, after) && is_done;
    }
    return is_done;
}

static bool is_rdma_capable; /* the chunk created last */

void fake_note_rdma(bool is_capable) {
    is_rdma_capable = is_capable;
}

/* Three calls of four by the defect "not_ready". */
static bool is_unready(void) {
    static int count;
    count = fake_has_defect("not_ready") ? count + 1 : 0;
    return count % 4 || fake_has_defect("never_ready");
}

gml_cu_result fake_cuMemSetAccess(gml_cu_pointer address, size_t size, const gml_cu_access *access,
                                  size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!is_valid(&access[i], size)) {
            return GML_CU_INVALID_VALUE;
        }
    }
    if (is_unready()) {
        return GML_CU_NOT_READY;
    }
    if (is_rdma_capable && fake_has_defect("no_rdma_access")) {
        return GML_CU_INVALID_VALUE;
    }
    gml_cu_result result =
        count == 0 ? GML_CU_INVALID_VALUE
                   : fake_result_of(gml_driver_set_access(fake_device(), address, size));
    (void)pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count && result == GML_CU_SUCCESS; i++) {
        result = apply(address, size, &access[i]) ? GML_CU_SUCCESS : GML_CU_OUT_OF_MEMORY;
    }
    (void)pthread_mutex_unlock(&lock);
    return result;
}

gml_cu_result fake_cuMemGetAccess(unsigned long long *out, const gml_cu_location *of,
                                  gml_cu_pointer address) {
    (void)pthread_mutex_lock(&lock);
    uintptr_t devices = devices_at(address / granule_bytes() * granule_bytes());
    (void)pthread_mutex_unlock(&lock);
    *out = devices >> of->id & 1U ? GML_CU_ACCESS_READ_WRITE : GML_CU_ACCESS_NONE;
    return GML_CU_SUCCESS;
}
