/* The driver `cuda`: each table entry is one call of the CUDA driver, with its setup and cleanup.
 *
 * Calls other than those of virtual memory run in the device's primary context and in the relaxed
 * capture mode, and put the caller's context and mode back: neither PyTorch nor a capture on
 * another stream notices them. */
#include "driver/backends.h"
#include "driver/cuda_internal.h"
#include "driver/handed.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* ---- what every call needs: the context, a mode that captures survive, a reason -------------- */

static gml_status status_of(gml_cu_result result) {
    if (result == GML_CU_SUCCESS) {
        return GML_OK;
    }
    if (result == GML_CU_OUT_OF_MEMORY) {
        return GML_OUT_OF_MEMORY;
    }
    bool is_about_capture =
        result >= GML_CU_STREAM_CAPTURE_UNSUPPORTED && result <= GML_CU_STREAM_CAPTURE_WRONG_THREAD;
    return is_about_capture ? GML_MISUSE : GML_DRIVER_FAILED;
}

gml_status gml_cuda_check(gml_cuda_driver *cuda, const char *call, gml_cu_result result) {
    if (result == GML_CU_SUCCESS) {
        return GML_OK;
    }
    const char *name = NULL;
    const char *text = NULL;
    (void)cuda->api.cuGetErrorName(result, &name);
    (void)cuda->api.cuGetErrorString(result, &text);
    return gml_driver_fail(&cuda->base, status_of(result), "%s: %s (%d), %s", call,
                           name ? name : "unknown error", result, text ? text : "no description");
}

static gml_status enter(gml_cuda_driver *cuda, gml_cu_context context) {
    gml_status status = GML_CUDA_CALL(cuda, cuCtxPushCurrent, context);
    if (status != GML_OK) {
        return status;
    }
    cuda->caller_mode = GML_CU_CAPTURE_MODE_RELAXED;
    status = GML_CUDA_CALL(cuda, cuThreadExchangeStreamCaptureMode, &cuda->caller_mode);
    if (status != GML_OK) {
        gml_cu_context ignored;
        (void)cuda->api.cuCtxPopCurrent(&ignored);
    }
    return status;
}

gml_status gml_cuda_enter(gml_cuda_driver *cuda) {
    return enter(cuda, cuda->context);
}

/* The primary context of another device, retained until the driver is closed. */
static gml_status find_context(gml_cuda_driver *cuda, int device, gml_cu_context *out) {
    uint64_t key = (uint64_t)device + 1;
    gml_cu_device other;
    *out = gml_map_find(&cuda->elsewhere, key);
    if (*out) {
        return GML_OK;
    }
    if (gml_map_reserve(&cuda->elsewhere, 1) != GML_OK) {
        return gml_driver_fail(&cuda->base, GML_NO_HOST_MEMORY, "no room for another context");
    }
    gml_status status = GML_CUDA_CALL(cuda, cuDeviceGet, &other, device);
    if (status == GML_OK) {
        status = GML_CUDA_CALL(cuda, cuDevicePrimaryCtxRetain, out, other);
    }
    if (status == GML_OK) {
        (void)gml_map_insert(&cuda->elsewhere, key, *out);
    }
    return status;
}

gml_status gml_cuda_enter_elsewhere(gml_cuda_driver *cuda, int device) {
    gml_cu_context context;
    gml_status status = find_context(cuda, device, &context);
    return status == GML_OK ? enter(cuda, context) : status;
}

/* Lets go of the contexts of other devices. */
static void leave_elsewhere(gml_cuda_driver *cuda) {
    for (size_t i = 0; i < cuda->elsewhere.capacity; i++) {
        gml_cu_device other;
        uint64_t key = cuda->elsewhere.slots[i].key;
        if (key && cuda->api.cuDeviceGet(&other, (int)(key - 1)) == GML_CU_SUCCESS) {
            (void)cuda->api.cuDevicePrimaryCtxRelease(other);
        }
    }
    gml_map_clear(&cuda->elsewhere);
}

gml_status gml_cuda_leave(gml_cuda_driver *cuda, gml_status status) {
    gml_cu_context ignored;
    (void)cuda->api.cuThreadExchangeStreamCaptureMode(&cuda->caller_mode);
    (void)cuda->api.cuCtxPopCurrent(&ignored);
    return status;
}

static void destroy(gml_driver *self) {
    gml_cuda_driver *cuda = gml_cuda_of(self);
    if (cuda->context) {
        (void)cuda->api.cuDevicePrimaryCtxRelease(cuda->device);
    }
    leave_elsewhere(cuda);
    gml_cuda_peers_clear(&cuda->peers);
    gml_cuda_forget_files(cuda);
    free(cuda);
}

/* ---- virtual memory: no context needed, legal during a capture ------------------------------- */

static gml_status create_new(gml_cuda_driver *cuda, uint64_t size_bytes, gml_handle *out) {
    gml_cu_handle handle;
    gml_status status = gml_cuda_unified_check(cuda, size_bytes);
    if (status == GML_OK) {
        status = GML_CUDA_CALL(cuda, cuMemCreate, &handle, size_bytes, &cuda->allocation, 0);
    }
    if (status == GML_OK) {
        *out = handle;
    }
    return status;
}

gml_status gml_cuda_create(gml_driver *self, uint64_t size_bytes, gml_handle *out) {
    gml_cuda_driver *cuda = gml_cuda_of(self);
    if (gml_cuda_take_handed(cuda, size_bytes, out)) {
        return GML_OK;
    }
    gml_status status = create_new(cuda, size_bytes, out);
    if (status == GML_OUT_OF_MEMORY && gml_handed_drop(gml_handed_to(self->device))) {
        status = create_new(cuda, size_bytes, out);
    }
    return status;
}

static gml_status get_attribute(gml_cuda_driver *cuda, int attribute, int *out) {
    return GML_CUDA_CALL(cuda, cuDeviceGetAttribute, out, attribute, cuda->device);
}

/* Of the node that is nearest to the device. Devices that share the host's memory have no other. */
static gml_status take_host(gml_driver *self, uint64_t size_bytes, gml_handle *out) {
    gml_cuda_driver *cuda = gml_cuda_of(self);
    int is_possible = 0, node = -1;
    gml_status status =
        get_attribute(cuda, GML_CU_ATTRIBUTE_HOST_WITH_VIRTUAL_MEMORY, &is_possible);
    if (status == GML_OK) {
        status = get_attribute(cuda, GML_CU_ATTRIBUTE_HOST_NODE, &node);
    }
    if (status == GML_OK && (!is_possible || node < 0 || cuda->is_unified)) {
        status = gml_driver_fail(self, GML_UNSUPPORTED, "the device cannot map memory of the host");
    }
    if (status != GML_OK) {
        return status;
    }
    const gml_cu_allocation wanted = {.type = GML_CU_ALLOCATION_PINNED,
                                      .location = {GML_CU_LOCATION_HOST_NODE, node}};
    gml_cu_handle handle;
    status = GML_CUDA_CALL_INSIDE(self, cuMemCreate, &handle, size_bytes, &wanted, 0);
    if (status == GML_OK) {
        *out = handle;
    }
    return status;
}

gml_status gml_cuda_release(gml_driver *self, gml_handle handle) {
    gml_cuda_driver *cuda = gml_cuda_of(self);
    gml_status status = GML_CUDA_CALL(cuda, cuMemRelease, handle);
    if (status == GML_OK) {
        gml_cuda_forget_file(cuda, handle);
    }
    return status;
}

gml_status gml_cuda_reserve(gml_driver *self, uint64_t size_bytes, uint64_t alignment_bytes,
                            gml_address *out) {
    gml_cuda_driver *cuda = gml_cuda_of(self);
    gml_cu_pointer address;
    gml_status status =
        GML_CUDA_CALL(cuda, cuMemAddressReserve, &address, size_bytes, alignment_bytes, 0, 0);
    if (status == GML_OK) {
        *out = address;
    }
    return status;
}

gml_status gml_cuda_unreserve(gml_driver *self, gml_address address, uint64_t size_bytes) {
    gml_cuda_driver *cuda = gml_cuda_of(self);
    return GML_CUDA_CALL(cuda, cuMemAddressFree, address, size_bytes);
}

gml_status gml_cuda_map(gml_driver *self, gml_address address, uint64_t size_bytes,
                        gml_handle handle) {
    gml_cuda_driver *cuda = gml_cuda_of(self);
    return GML_CUDA_CALL(cuda, cuMemMap, address, size_bytes, 0, handle, 0);
}

static gml_status no_host_memory(gml_cuda_driver *cuda, const char *call) {
    return gml_driver_fail(&cuda->base, GML_NO_HOST_MEMORY, "%s: no host memory left", call);
}

gml_status gml_cuda_unmap(gml_driver *self, gml_address address, uint64_t size_bytes) {
    gml_cuda_driver *cuda = gml_cuda_of(self);
    if (!gml_cuda_peers_prepare(&cuda->peers)) {
        return no_host_memory(cuda, "unmap");
    }
    gml_status status = GML_CUDA_CALL(cuda, cuMemUnmap, address, size_bytes);
    if (status == GML_OK) {
        gml_cuda_peers_closed(&cuda->peers, address, size_bytes);
    }
    return status;
}

/* The drivers of WSL2 and Windows answer "not ready" under load: the device has to come to rest
 * before the call is made again. What stays so is lack of memory, as far as they tell. */
enum { MOST_TRIES = 8 };

static void let_device_rest(gml_cuda_driver *cuda, int tried) {
    if (!gml_driver_is_frozen(&cuda->base)) {
        (void)gml_cuda_device_synchronize(&cuda->base);
    }
    const struct timespec pause = {.tv_nsec = 1000000L << tried};
    (void)nanosleep(&pause, NULL);
}

static gml_status open_access(gml_cuda_driver *cuda, gml_address address, uint64_t size_bytes) {
    const gml_cuda_peers *peers = &cuda->peers;
    gml_cu_result result = GML_CU_NOT_READY;
    for (int tried = 0; result == GML_CU_NOT_READY && tried < MOST_TRIES; tried++) {
        if (tried) {
            let_device_rest(cuda, tried);
        }
        result = cuda->api.cuMemSetAccess(address, size_bytes, peers->access, peers->count);
    }
    return result == GML_CU_NOT_READY
               ? gml_driver_fail(&cuda->base, GML_OUT_OF_MEMORY,
                                 "cuMemSetAccess: the driver is not ready after %d tries: the "
                                 "device is busy, or has no memory left",
                                 MOST_TRIES)
               : gml_cuda_check(cuda, "cuMemSetAccess", result);
}

gml_status gml_cuda_set_access(gml_driver *self, gml_address address, uint64_t size_bytes) {
    gml_cuda_driver *cuda = gml_cuda_of(self);
    gml_cuda_peers *peers = &cuda->peers;
    if (!gml_cuda_peers_prepare(peers)) {
        return no_host_memory(cuda, "set_access");
    }
    gml_status status = open_access(cuda, address, size_bytes);
    if (status == GML_OK) {
        gml_cuda_peers_opened(peers, address, size_bytes);
    }
    return status;
}

/* ---- plain memory ---------------------------------------------------------------------------- */

static gml_status allocate(gml_driver *self, uint64_t size_bytes, gml_cu_pointer *out) {
    gml_status status = gml_cuda_unified_check(gml_cuda_of(self), size_bytes);
    return status == GML_OK ? GML_CUDA_CALL_INSIDE(self, cuMemAlloc, out, size_bytes) : status;
}

gml_status gml_cuda_malloc(gml_driver *self, uint64_t size_bytes, gml_address *out) {
    gml_cu_pointer address;
    gml_status status = allocate(self, size_bytes, &address);
    if (status == GML_OUT_OF_MEMORY && gml_handed_drop(gml_handed_to(self->device))) {
        status = allocate(self, size_bytes, &address);
    }
    if (status == GML_OK) {
        *out = address;
    }
    return status;
}

gml_status gml_cuda_free(gml_driver *self, gml_address address) {
    return GML_CUDA_CALL_INSIDE(self, cuMemFree, address);
}

gml_status gml_cuda_memory_info(gml_driver *self, uint64_t *free_bytes, uint64_t *total_bytes) {
    size_t free_size;
    size_t total_size;
    gml_status status = GML_CUDA_CALL_INSIDE(self, cuMemGetInfo, &free_size, &total_size);
    if (status == GML_OK) {
        const gml_cuda_driver *cuda = gml_cuda_of(self);
        *free_bytes = cuda->is_unified ? gml_cuda_unified_free(cuda) : free_size;
        *total_bytes = total_size;
    }
    return status;
}

/* ---- other devices --------------------------------------------------------------------------- */

static gml_status get_device(gml_cuda_driver *cuda, int ordinal, gml_cu_device *out) {
    int count = 0;
    gml_status status = GML_CUDA_CALL(cuda, cuDeviceGetCount, &count);
    if (status != GML_OK) {
        return status;
    }
    if (ordinal < 0 || ordinal >= count) {
        return gml_driver_fail(&cuda->base, GML_DRIVER_ABSENT,
                               "device %d asked for, %d found; devices count from 0 and "
                               "CUDA_VISIBLE_DEVICES can hide them",
                               ordinal, count);
    }
    return GML_CUDA_CALL(cuda, cuDeviceGet, out, ordinal);
}

/* Revokes a peer's access to the ranges before `end`. Fails only if the driver is broken; the peer
 * then keeps access it does not need. */
static void close_to(gml_cuda_driver *cuda, gml_cu_device peer, const gml_range *end) {
    gml_cu_access none = {{GML_CU_LOCATION_DEVICE, peer}, GML_CU_ACCESS_NONE};
    const gml_range *range = gml_ranges_first(&cuda->peers.open);
    for (; range != end; range = gml_ranges_next(range)) {
        (void)cuda->api.cuMemSetAccess(range->node.address, range->size_bytes, &none, 1);
    }
}

static gml_status open_to(gml_cuda_driver *cuda, gml_cu_device peer) {
    gml_cu_access access = {{GML_CU_LOCATION_DEVICE, peer}, GML_CU_ACCESS_READ_WRITE};
    const gml_range *range = gml_ranges_first(&cuda->peers.open);
    for (; range; range = gml_ranges_next(range)) {
        gml_status status =
            GML_CUDA_CALL(cuda, cuMemSetAccess, range->node.address, range->size_bytes, &access, 1);
        if (status != GML_OK) {
            close_to(cuda, peer, range);
            return status;
        }
    }
    return GML_OK;
}

static gml_status grant(gml_driver *self, int peer) {
    gml_cuda_driver *cuda = gml_cuda_of(self);
    gml_cu_device device = 0;
    int can_reach = 0;
    gml_status status = get_device(cuda, peer, &device);
    if (status != GML_OK || gml_cuda_peers_has(&cuda->peers, device)) {
        return status;
    }
    status = GML_CUDA_CALL(cuda, cuDeviceCanAccessPeer, &can_reach, device, cuda->device);
    bool is_possible = can_reach && cuda->peers.count < GML_CUDA_MOST_DEVICES;
    if (status == GML_OK && is_possible) {
        status = open_to(cuda, device);
        if (status == GML_OK) {
            gml_cuda_peers_add(&cuda->peers, device);
        }
    }
    return status;
}

static const gml_driver_ops cuda_ops = {
    .name = "cuda",
    .destroy = destroy,
#define ENTRY(upper, lower, parameters, arguments, cost_bytes) .lower = gml_cuda_##lower,
    GML_DRIVER_TABLE(ENTRY, ENTRY)
#undef ENTRY
        .record_elsewhere = gml_cuda_record_elsewhere,
    .grant = grant,
    .take_host = take_host,
    .share = gml_cuda_share,
    .export_file = gml_cuda_export_file,
    .open_files = gml_cuda_open_files,
    .close_files = gml_cuda_close_files,
};

/* ---- opening --------------------------------------------------------------------------------- */

/* Initialises the library and finds the device. */
static gml_status find_device(gml_cuda_driver *cuda, int ordinal) {
    gml_cu_result result = cuda->api.cuInit(0);
    if (result != GML_CU_SUCCESS) {
        (void)gml_cuda_check(cuda, "cuInit", result);
        return gml_driver_fail(&cuda->base, GML_DRIVER_ABSENT,
                               "%.150s; see what nvidia-smi says, or choose 'sim' or 'host'",
                               cuda->base.reason);
    }
    return get_device(cuda, ordinal, &cuda->device);
}

static gml_status has_attribute(gml_cuda_driver *cuda, int attribute, bool *out) {
    int value = 0;
    gml_status status = get_attribute(cuda, attribute, &value);
    *out = value != 0;
    return status;
}

/* The granularity of a device without virtual memory management: that of cuMemAlloc. */
enum { MALLOC_ALIGNMENT = 512 };

/* Fills name, size and granularity, and the properties of future allocations. */
static gml_status describe(gml_cuda_driver *cuda) {
    gml_device_info *info = &cuda->base.info;
    size_t total_bytes = 0;
    size_t granularity_bytes = MALLOC_ALIGNMENT;
    gml_status status =
        GML_CUDA_CALL(cuda, cuDeviceGetName, info->name, (int)sizeof info->name, cuda->device);
    if (status == GML_OK) {
        status = GML_CUDA_CALL(cuda, cuDeviceTotalMem, &total_bytes, cuda->device);
    }
    if (status == GML_OK) {
        status = has_attribute(cuda, GML_CU_ATTRIBUTE_VIRTUAL_MEMORY, &info->has_virtual_memory);
    }
    if (status == GML_OK) {
        status = has_attribute(cuda, GML_CU_ATTRIBUTE_INTEGRATED, &cuda->is_unified);
    }
    cuda->allocation.type = GML_CU_ALLOCATION_PINNED;
    cuda->allocation.location = (gml_cu_location){GML_CU_LOCATION_DEVICE, cuda->device};
    if (status == GML_OK && info->has_virtual_memory) {
        status = GML_CUDA_CALL(cuda, cuMemGetAllocationGranularity, &granularity_bytes,
                               &cuda->allocation, GML_CU_GRANULARITY_MINIMUM);
    }
    info->total_bytes = total_bytes;
    info->granularity_bytes = granularity_bytes;
    return status;
}

/* Asks for memory that network cards can reach, where the device has it and gives it: a virtual
 * machine may announce the ability and still refuse the allocation, or access to it. */
static gml_status choose_rdma(gml_cuda_driver *cuda) {
    bool has_rdma = false;
    gml_status status = has_attribute(cuda, GML_CU_ATTRIBUTE_RDMA_WITH_VIRTUAL_MEMORY, &has_rdma);
    if (status != GML_OK || !has_rdma || !cuda->base.info.has_virtual_memory) {
        return status;
    }
    cuda->allocation.flags.rdma_capable = 1;
    if (gml_cuda_try_allocation(cuda) != GML_OK) {
        cuda->allocation.flags.rdma_capable = 0;
    }
    return GML_OK;
}

static gml_status watch_peers(gml_cuda_driver *cuda) {
    int count = 0;
    gml_status status = GML_CUDA_CALL(cuda, cuDeviceGetCount, &count);
    gml_cuda_peers_init(&cuda->peers, cuda->allocation.location, count > 1);
    return status;
}

static gml_status start(gml_cuda_driver *cuda, int ordinal) {
    gml_status status = find_device(cuda, ordinal);
    if (status == GML_OK) {
        status = describe(cuda);
    }
    if (status == GML_OK) {
        status = GML_CUDA_CALL(cuda, cuDevicePrimaryCtxRetain, &cuda->context, cuda->device);
    }
    if (status == GML_OK) {
        status = watch_peers(cuda);
    }
    if (status == GML_OK) {
        status = choose_rdma(cuda);
    }
    if (status == GML_OK) {
        gml_cuda_choose_sharing(cuda);
    }
    uint64_t total_bytes;
    if (status == GML_OK) {
        status = gml_cuda_memory_info(&cuda->base, &cuda->base.info.free_bytes, &total_bytes);
    }
    return status;
}

gml_status gml_cuda_driver_open(int device, gml_driver **out, char *reason, size_t reason_bytes) {
    gml_cuda_driver *cuda = calloc(1, sizeof *cuda);
    if (!cuda) {
        (void)snprintf(reason, reason_bytes, "cuda: no host memory left");
        return GML_NO_HOST_MEMORY;
    }
    cuda->base.ops = &cuda_ops;
    cuda->base.device = &cuda->base.own;
    cuda->base.gone = &cuda->base.own_gone;
    cuda->base.per_thread_stream = GML_CU_STREAM_PER_THREAD;
    gml_status status = gml_cuda_library_load(&cuda->api, reason, reason_bytes);
    if (status != GML_OK) {
        free(cuda);
        return status;
    }
    status = start(cuda, device);
    if (status != GML_OK) {
        (void)snprintf(reason, reason_bytes, "cuda: %s", cuda->base.reason);
        destroy(&cuda->base);
        return status;
    }
    *out = &cuda->base;
    return GML_OK;
}
