/* The driver `cuda`: each table entry is one call of the CUDA driver, and what it needs around it.
 *
 * Calls other than those of virtual memory run in the device's primary context and in the relaxed
 * capture mode, and put the caller's context and mode back: neither PyTorch nor a capture on
 * another stream notices them. */
#include "driver/cuda.h"

#include "driver/cuda_library.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct cuda_driver {
    gml_driver base; /* must be first */
    gml_cuda_api api;
    gml_cu_device device;
    gml_cu_context context; /* the primary one, retained; NULL before */
    gml_cu_allocation allocation;
    int caller_mode; /* capture mode to put back, between enter() and leave() */
} cuda_driver;

static cuda_driver *
cuda_of(gml_driver *self)
{
    return (cuda_driver *)self;
}

/* Streams and events are integers above this file and pointers below it. */
static gml_cu_stream
stream_of(gml_stream stream)
{
    return (gml_cu_stream)(uintptr_t)stream;
}

static gml_cu_event
event_of(gml_event event)
{
    return (gml_cu_event)(uintptr_t)event;
}

static gml_status
status_of(gml_cu_result result)
{
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

/* Turns the answer of a call into a status, with a reason if it failed. */
static gml_status
check(cuda_driver *cuda, const char *call, gml_cu_result result)
{
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

/* Begins a call that needs the context. */
static gml_status
enter(cuda_driver *cuda)
{
    gml_status status = check(cuda, "cuCtxPushCurrent", cuda->api.cuCtxPushCurrent(cuda->context));
    if (status != GML_OK) {
        return status;
    }
    cuda->caller_mode = GML_CU_CAPTURE_MODE_RELAXED;
    status = check(cuda, "cuThreadExchangeStreamCaptureMode",
                   cuda->api.cuThreadExchangeStreamCaptureMode(&cuda->caller_mode));
    if (status != GML_OK) {
        gml_cu_context ignored;
        (void)cuda->api.cuCtxPopCurrent(&ignored);
    }
    return status;
}

/* Ends it and passes its status on. Undoing what enter() did fails only where the driver is shut
 * down, and then the call's own answer says so. */
static gml_status
leave(cuda_driver *cuda, gml_status status)
{
    gml_cu_context ignored;
    (void)cuda->api.cuThreadExchangeStreamCaptureMode(&cuda->caller_mode);
    (void)cuda->api.cuCtxPopCurrent(&ignored);
    return status;
}

static void
destroy(gml_driver *self)
{
    cuda_driver *cuda = cuda_of(self);
    if (cuda->context) {
        (void)cuda->api.cuDevicePrimaryCtxRelease(cuda->device);
    }
    free(cuda);
}

/* ---- virtual memory: no context needed, legal during a capture ---------------------------------
 */

static gml_status
create(gml_driver *self, uint64_t size_bytes, gml_handle *out)
{
    cuda_driver *cuda = cuda_of(self);
    gml_cu_handle handle;
    gml_status status = check(cuda, "cuMemCreate",
                              cuda->api.cuMemCreate(&handle, size_bytes, &cuda->allocation, 0));
    if (status == GML_OK) {
        *out = handle;
    }
    return status;
}

static gml_status
release(gml_driver *self, gml_handle handle)
{
    cuda_driver *cuda = cuda_of(self);
    return check(cuda, "cuMemRelease", cuda->api.cuMemRelease(handle));
}

static gml_status
reserve(gml_driver *self, uint64_t size_bytes, uint64_t alignment_bytes, gml_address *out)
{
    cuda_driver *cuda = cuda_of(self);
    gml_cu_pointer address;
    gml_status status =
        check(cuda, "cuMemAddressReserve",
              cuda->api.cuMemAddressReserve(&address, size_bytes, alignment_bytes, 0, 0));
    if (status == GML_OK) {
        *out = address;
    }
    return status;
}

static gml_status
unreserve(gml_driver *self, gml_address address, uint64_t size_bytes)
{
    cuda_driver *cuda = cuda_of(self);
    return check(cuda, "cuMemAddressFree", cuda->api.cuMemAddressFree(address, size_bytes));
}

static gml_status
map(gml_driver *self, gml_address address, uint64_t size_bytes, gml_handle handle)
{
    cuda_driver *cuda = cuda_of(self);
    return check(cuda, "cuMemMap", cuda->api.cuMemMap(address, size_bytes, 0, handle, 0));
}

static gml_status
unmap(gml_driver *self, gml_address address, uint64_t size_bytes)
{
    cuda_driver *cuda = cuda_of(self);
    return check(cuda, "cuMemUnmap", cuda->api.cuMemUnmap(address, size_bytes));
}

static gml_status
set_access(gml_driver *self, gml_address address, uint64_t size_bytes)
{
    cuda_driver *cuda = cuda_of(self);
    gml_cu_access access = {cuda->allocation.location, GML_CU_ACCESS_READ_WRITE};
    return check(cuda, "cuMemSetAccess", cuda->api.cuMemSetAccess(address, size_bytes, &access, 1));
}

/* ---- plain memory ------------------------------------------------------------------------------
 */

static gml_status
cuda_malloc(gml_driver *self, uint64_t size_bytes, gml_address *out)
{
    cuda_driver *cuda = cuda_of(self);
    gml_cu_pointer address;
    gml_status status = enter(cuda);
    if (status == GML_OK) {
        status = check(cuda, "cuMemAlloc", cuda->api.cuMemAlloc(&address, size_bytes));
        (void)leave(cuda, status);
    }
    if (status == GML_OK) {
        *out = address;
    }
    return status;
}

static gml_status
cuda_free(gml_driver *self, gml_address address)
{
    cuda_driver *cuda = cuda_of(self);
    gml_status status = enter(cuda);
    if (status != GML_OK) {
        return status;
    }
    return leave(cuda, check(cuda, "cuMemFree", cuda->api.cuMemFree(address)));
}

static gml_status
memory_info(gml_driver *self, uint64_t *free_bytes, uint64_t *total_bytes)
{
    cuda_driver *cuda = cuda_of(self);
    size_t free_size;
    size_t total_size;
    gml_status status = enter(cuda);
    if (status == GML_OK) {
        status = check(cuda, "cuMemGetInfo", cuda->api.cuMemGetInfo(&free_size, &total_size));
        (void)leave(cuda, status);
    }
    if (status == GML_OK) {
        *free_bytes = free_size;
        *total_bytes = total_size;
    }
    return status;
}

/* ---- streams and events ------------------------------------------------------------------------
 */

/* Whether `stream` captures, or is the default stream while one that it would wait for captures:
 * in both cases no call may be made on it. pre: inside enter() */
static gml_status
is_capturing(cuda_driver *cuda, gml_stream stream, bool *out)
{
    int capture = GML_CU_CAPTURE_NONE;
    gml_cu_result result = cuda->api.cuStreamIsCapturing(stream_of(stream), &capture);
    if (result != GML_CU_SUCCESS && result != GML_CU_STREAM_CAPTURE_IMPLICIT) {
        return check(cuda, "cuStreamIsCapturing", result);
    }
    *out = result == GML_CU_STREAM_CAPTURE_IMPLICIT || capture != GML_CU_CAPTURE_NONE;
    return GML_OK;
}

/* enter() for a call that a capture on `stream` would not survive. */
static gml_status
enter_uncaptured(cuda_driver *cuda, const char *call, gml_stream stream)
{
    gml_status status = enter(cuda);
    if (status != GML_OK) {
        return status;
    }
    bool is_captured = false;
    status = is_capturing(cuda, stream, &is_captured);
    if (status == GML_OK && is_captured) {
        status = gml_driver_fail(&cuda->base, GML_MISUSE,
                                 "%s: forbidden while stream %" PRIu64 " captures a graph", call,
                                 stream);
    }
    return status == GML_OK ? GML_OK : leave(cuda, status);
}

static gml_status
event_create(gml_driver *self, gml_event *out)
{
    cuda_driver *cuda = cuda_of(self);
    gml_cu_event event;
    gml_status status = enter(cuda);
    if (status == GML_OK) {
        status = check(cuda, "cuEventCreate",
                       cuda->api.cuEventCreate(&event, GML_CU_EVENT_DISABLE_TIMING));
        (void)leave(cuda, status);
    }
    if (status == GML_OK) {
        *out = (gml_event)(uintptr_t)event;
    }
    return status;
}

static gml_status
event_destroy(gml_driver *self, gml_event event)
{
    cuda_driver *cuda = cuda_of(self);
    gml_status status = enter(cuda);
    if (status != GML_OK) {
        return status;
    }
    return leave(cuda, check(cuda, "cuEventDestroy", cuda->api.cuEventDestroy(event_of(event))));
}

static gml_status
event_record(gml_driver *self, gml_event event, gml_stream stream)
{
    cuda_driver *cuda = cuda_of(self);
    gml_status status = enter_uncaptured(cuda, "cuEventRecord", stream);
    if (status != GML_OK) {
        return status;
    }
    return leave(cuda, check(cuda, "cuEventRecord",
                             cuda->api.cuEventRecord(event_of(event), stream_of(stream))));
}

static gml_status
event_query(gml_driver *self, gml_event event)
{
    cuda_driver *cuda = cuda_of(self);
    gml_status status = enter(cuda);
    if (status != GML_OK) {
        return status;
    }
    gml_cu_result result = cuda->api.cuEventQuery(event_of(event));
    return leave(cuda,
                 result == GML_CU_NOT_READY ? GML_NOT_READY : check(cuda, "cuEventQuery", result));
}

static gml_status
event_synchronize(gml_driver *self, gml_event event)
{
    cuda_driver *cuda = cuda_of(self);
    gml_status status = enter(cuda);
    if (status != GML_OK) {
        return status;
    }
    return leave(cuda,
                 check(cuda, "cuEventSynchronize", cuda->api.cuEventSynchronize(event_of(event))));
}

static gml_status
stream_wait(gml_driver *self, gml_stream stream, gml_event event)
{
    cuda_driver *cuda = cuda_of(self);
    gml_status status = enter_uncaptured(cuda, "cuStreamWaitEvent", stream);
    if (status != GML_OK) {
        return status;
    }
    return leave(cuda, check(cuda, "cuStreamWaitEvent",
                             cuda->api.cuStreamWaitEvent(stream_of(stream), event_of(event), 0)));
}

static gml_status
stream_synchronize(gml_driver *self, gml_stream stream)
{
    cuda_driver *cuda = cuda_of(self);
    gml_status status = enter_uncaptured(cuda, "cuStreamSynchronize", stream);
    if (status != GML_OK) {
        return status;
    }
    return leave(
        cuda, check(cuda, "cuStreamSynchronize", cuda->api.cuStreamSynchronize(stream_of(stream))));
}

static gml_status
stream_capturing(gml_driver *self, gml_stream stream, bool *out)
{
    cuda_driver *cuda = cuda_of(self);
    gml_status status = enter(cuda);
    if (status != GML_OK) {
        return status;
    }
    return leave(cuda, is_capturing(cuda, stream, out));
}

static gml_status
device_synchronize(gml_driver *self)
{
    cuda_driver *cuda = cuda_of(self);
    gml_status status = enter_uncaptured(cuda, "cuCtxSynchronize", 0);
    if (status != GML_OK) {
        return status;
    }
    return leave(cuda, check(cuda, "cuCtxSynchronize", cuda->api.cuCtxSynchronize()));
}

static const gml_driver_ops cuda_ops = {
    .name = "cuda",
    .destroy = destroy,
    .create = create,
    .release = release,
    .reserve = reserve,
    .unreserve = unreserve,
    .map = map,
    .unmap = unmap,
    .set_access = set_access,
    .malloc = cuda_malloc,
    .free = cuda_free,
    .memory_info = memory_info,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .event_synchronize = event_synchronize,
    .stream_wait = stream_wait,
    .stream_synchronize = stream_synchronize,
    .stream_capturing = stream_capturing,
    .device_synchronize = device_synchronize,
};

/* ---- opening -----------------------------------------------------------------------------------
 */

/* Initialises the library and finds the device. */
static gml_status
find_device(cuda_driver *cuda, int ordinal)
{
    gml_cu_result result = cuda->api.cuInit(0);
    if (result != GML_CU_SUCCESS) {
        (void)check(cuda, "cuInit", result);
        char why[GML_REASON_BYTES];
        (void)snprintf(why, sizeof why, "%.150s", cuda->base.reason);
        return gml_driver_fail(&cuda->base, GML_DRIVER_ABSENT,
                               "%s; see what nvidia-smi says, or choose 'sim' or 'host'", why);
    }
    int count = 0;
    gml_status status = check(cuda, "cuDeviceGetCount", cuda->api.cuDeviceGetCount(&count));
    if (status != GML_OK) {
        return status;
    }
    if (ordinal < 0 || ordinal >= count) {
        return gml_driver_fail(&cuda->base, GML_DRIVER_ABSENT,
                               "device %d asked for, %d found; devices count from 0 and "
                               "CUDA_VISIBLE_DEVICES can hide them",
                               ordinal, count);
    }
    return check(cuda, "cuDeviceGet", cuda->api.cuDeviceGet(&cuda->device, ordinal));
}

static gml_status
get_attribute(cuda_driver *cuda, int attribute, bool *out)
{
    int value = 0;
    gml_status status = check(cuda, "cuDeviceGetAttribute",
                              cuda->api.cuDeviceGetAttribute(&value, attribute, cuda->device));
    *out = value != 0;
    return status;
}

/* Fills name, size and granularity, and the properties of future allocations. */
static gml_status
describe(cuda_driver *cuda)
{
    gml_device_info *info = &cuda->base.info;
    size_t total_bytes = 0;
    size_t granularity_bytes = 0;
    gml_status status =
        check(cuda, "cuDeviceGetName",
              cuda->api.cuDeviceGetName(info->name, (int)sizeof info->name, cuda->device));
    if (status == GML_OK) {
        status =
            check(cuda, "cuDeviceTotalMem", cuda->api.cuDeviceTotalMem(&total_bytes, cuda->device));
    }
    if (status == GML_OK) {
        status = get_attribute(cuda, GML_CU_ATTRIBUTE_VIRTUAL_MEMORY, &info->has_virtual_memory);
    }
    if (status == GML_OK && !info->has_virtual_memory) {
        status = gml_driver_fail(&cuda->base, GML_UNSUPPORTED,
                                 "%s cannot map physical memory at chosen addresses (virtual "
                                 "memory management); use another device, or PyTorch's own "
                                 "allocator",
                                 info->name);
    }
    cuda->allocation.type = GML_CU_ALLOCATION_PINNED;
    cuda->allocation.location = (gml_cu_location){GML_CU_LOCATION_DEVICE, cuda->device};
    if (status == GML_OK) {
        status = check(cuda, "cuMemGetAllocationGranularity",
                       cuda->api.cuMemGetAllocationGranularity(
                           &granularity_bytes, &cuda->allocation, GML_CU_GRANULARITY_MINIMUM));
    }
    info->total_bytes = total_bytes;
    info->granularity_bytes = granularity_bytes;
    return status;
}

/* Asks for memory that network cards can reach, where the device has it and gives it: a virtual
 * machine may announce the ability and still refuse the allocation. */
static gml_status
choose_rdma(cuda_driver *cuda)
{
    bool has_rdma = false;
    gml_status status = get_attribute(cuda, GML_CU_ATTRIBUTE_RDMA_WITH_VIRTUAL_MEMORY, &has_rdma);
    if (status != GML_OK || !has_rdma) {
        return status;
    }
    gml_handle handle;
    cuda->allocation.flags.rdma_capable = 1;
    if (create(&cuda->base, cuda->base.info.granularity_bytes, &handle) == GML_OK) {
        return release(&cuda->base, handle);
    }
    cuda->allocation.flags.rdma_capable = 0;
    return GML_OK;
}

static gml_status
start(cuda_driver *cuda, int ordinal)
{
    gml_status status = find_device(cuda, ordinal);
    if (status == GML_OK) {
        status = describe(cuda);
    }
    if (status == GML_OK) {
        status = check(cuda, "cuDevicePrimaryCtxRetain",
                       cuda->api.cuDevicePrimaryCtxRetain(&cuda->context, cuda->device));
    }
    if (status == GML_OK) {
        status = choose_rdma(cuda);
    }
    uint64_t total_bytes;
    if (status == GML_OK) {
        status = memory_info(&cuda->base, &cuda->base.info.free_bytes, &total_bytes);
    }
    return status;
}

gml_status
gml_cuda_driver_open(int device, gml_driver **out, char *reason, size_t reason_bytes)
{
    cuda_driver *cuda = calloc(1, sizeof *cuda);
    if (!cuda) {
        (void)snprintf(reason, reason_bytes, "cuda: no host memory left");
        return GML_NO_HOST_MEMORY;
    }
    cuda->base.ops = &cuda_ops;
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
