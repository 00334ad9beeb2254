/* The memory, stream and event calls of the fake libcuda.so.1. */
#include "driver/streams.h"
#include "support/fake_libcuda.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_CAPTURES = 8, FILE_HANDLE = 1 };

/* Marks the number of a handle that came out of a file: it is another one for the same memory. */
static const gml_cu_handle IMPORTED = 1ULL << 60;

typedef struct capture {
    gml_cu_stream stream;
    int mode;
    bool is_active, is_broken;
} capture;

static capture captures[MOST_CAPTURES];

static char graph_object;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards next_stream */
static uintptr_t next_stream = 0x1000;

/* A call that a capture may not see: breaks captures unless the thread's mode is relaxed. */
static gml_cu_result guard(void) {
    if (!fake_has_context()) {
        return GML_CU_INVALID_CONTEXT;
    }
    gml_cu_result result = GML_CU_SUCCESS;
    for (int i = 0; i < MOST_CAPTURES; i++) {
        if (captures[i].is_active && captures[i].mode != MODE_RELAXED &&
            fake_capture_mode() != MODE_RELAXED) {
            captures[i].is_broken = true;
            result = GML_CU_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

/* The capture of a stream, or NULL. */
static capture *capture_of(gml_cu_stream stream) {
    for (int i = 0; i < MOST_CAPTURES; i++) {
        if (captures[i].is_active && captures[i].stream == stream) {
            return &captures[i];
        }
    }
    return NULL;
}

/* A call on a stream that breaks its capture, whatever the mode. */
static gml_cu_result guard_stream(gml_cu_stream stream) {
    capture *broken = capture_of(stream);
    if (!broken) {
        return guard();
    }
    broken->is_broken = true;
    return GML_CU_STREAM_CAPTURE_UNSUPPORTED;
}

/* ---- virtual memory -------------------------------------------------------------------------- */

static bool is_valid_allocation(const gml_cu_allocation *properties) {
    bool is_exportable = properties->handle_types == 0 || properties->handle_types == FILE_HANDLE;
    bool is_here = properties->location.type == GML_CU_LOCATION_DEVICE ||
                   properties->location.type == GML_CU_LOCATION_HOST_NODE;
    return properties->type == GML_CU_ALLOCATION_PINNED && is_exportable && is_here &&
           properties->location.id == 0 &&
           !(properties->flags.rdma_capable && fake_has_defect("no_rdma"));
}

gml_cu_result fake_cuMemGetAllocationGranularity(size_t *out, const gml_cu_allocation *properties,
                                                 int option) {
    if (!is_valid_allocation(properties) || option != GML_CU_GRANULARITY_MINIMUM) {
        return GML_CU_INVALID_VALUE;
    }
    *out = fake_device()->info.granularity_bytes;
    return GML_CU_SUCCESS;
}

gml_cu_result fake_cuMemCreate(gml_cu_handle *out, size_t size, const gml_cu_allocation *properties,
                               unsigned long long flags) {
    gml_handle handle;
    if (!is_valid_allocation(properties) || flags != 0) {
        return GML_CU_INVALID_VALUE;
    }
    if (fake_has_defect("no_memory")) {
        return GML_CU_OUT_OF_MEMORY;
    }
    bool is_on_host = properties->location.type == GML_CU_LOCATION_HOST_NODE;
    gml_cu_result result =
        fake_result_of(is_on_host ? gml_driver_create_on_host(fake_device(), size, &handle)
                                  : gml_driver_create(fake_device(), size, &handle));
    if (result == GML_CU_SUCCESS) {
        fake_note_rdma(properties->flags.rdma_capable);
        *out = handle;
    }
    return result;
}

gml_cu_result fake_cuMemExportToShareableHandle(void *out, gml_cu_handle handle, int type,
                                                unsigned long long flags) {
    if (type != FILE_HANDLE || flags != 0 || fake_has_defect("no_export")) {
        return GML_CU_NOT_SUPPORTED;
    }
    int file = memfd_create("fake", 0);
    if (file < 0 || write(file, &handle, sizeof handle) != (ssize_t)sizeof handle) {
        return GML_CU_OUT_OF_MEMORY;
    }
    *(int *)out = file;
    return GML_CU_SUCCESS;
}

gml_cu_result fake_cuMemImportFromShareableHandle(gml_cu_handle *out, void *shared, int type) {
    gml_cu_handle handle;
    if (type != FILE_HANDLE ||
        pread((int)(intptr_t)shared, &handle, sizeof handle, 0) != (ssize_t)sizeof handle) {
        return GML_CU_INVALID_VALUE;
    }
    *out = handle | IMPORTED;
    return GML_CU_SUCCESS;
}

gml_cu_result fake_cuMemRelease(gml_cu_handle handle) {
    if (handle & IMPORTED) {
        return GML_CU_SUCCESS;
    }
    return fake_result_of(gml_driver_release(fake_device(), handle));
}

gml_cu_result fake_cuMemAddressReserve(gml_cu_pointer *out, size_t size, size_t alignment,
                                       gml_cu_pointer hint, unsigned long long flags) {
    (void)hint;
    gml_address address = 0;
    if (flags != 0) {
        return GML_CU_INVALID_VALUE;
    }
    gml_cu_result result =
        fake_result_of(gml_driver_reserve(fake_device(), size, alignment, &address));
    if (result == GML_CU_SUCCESS) {
        *out = address;
    }
    return result;
}

gml_cu_result fake_cuMemAddressFree(gml_cu_pointer address, size_t size) {
    return fake_result_of(gml_driver_unreserve(fake_device(), address, size));
}

gml_cu_result fake_cuMemMap(gml_cu_pointer address, size_t size, size_t offset,
                            gml_cu_handle handle, unsigned long long flags) {
    if (offset != 0 || flags != 0) {
        return GML_CU_INVALID_VALUE;
    }
    return fake_result_of(gml_driver_map(fake_device(), address, size, handle & ~IMPORTED));
}

gml_cu_result fake_cuMemUnmap(gml_cu_pointer address, size_t size) {
    gml_cu_result result = fake_result_of(gml_driver_unmap(fake_device(), address, size));
    if (result == GML_CU_SUCCESS) {
        fake_forget_access(address, size);
    }
    return result;
}

/* ---- plain memory ---------------------------------------------------------------------------- */

gml_cu_result fake_cuMemAlloc(gml_cu_pointer *out, size_t size) {
    gml_address address;
    gml_cu_result result = guard();
    if (result == GML_CU_SUCCESS) {
        result = fake_result_of(gml_driver_malloc(fake_device(), size, &address));
    }
    if (result == GML_CU_SUCCESS) {
        *out = address;
    }
    return result;
}

gml_cu_result fake_cuMemFree(gml_cu_pointer address) {
    gml_cu_result result = guard();
    return result == GML_CU_SUCCESS ? fake_result_of(gml_driver_free(fake_device(), address))
                                    : result;
}

gml_cu_result fake_cuMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    uint64_t free_now = 0;
    uint64_t total = 0;
    if (!fake_has_context()) {
        return GML_CU_INVALID_CONTEXT;
    }
    gml_cu_result result = fake_result_of(gml_driver_memory_info(fake_device(), &free_now, &total));
    *free_bytes = free_now;
    *total_bytes = total;
    return result;
}

/* The host's view of device bytes, for a copy. */
static gml_cu_result find_bytes(gml_cu_pointer address, size_t size, void **out) {
    gml_cu_result result = guard();
    return result == GML_CU_SUCCESS
               ? fake_result_of(gml_driver_bytes(fake_device(), address, size, out))
               : result;
}

gml_cu_result fake_cuMemcpyHtoD(gml_cu_pointer to, const void *from, size_t size) {
    void *bytes = NULL;
    gml_cu_result result = find_bytes(to, size, &bytes);
    if (result == GML_CU_SUCCESS) {
        memcpy(bytes, from, size);
    }
    return result;
}

gml_cu_result fake_cuMemcpyDtoH(void *to, gml_cu_pointer from, size_t size) {
    void *bytes = NULL;
    gml_cu_result result = find_bytes(from, size, &bytes);
    if (result == GML_CU_SUCCESS) {
        memcpy(to, bytes, size);
    }
    return result;
}

static gml_stream copy_stream(gml_cu_stream stream) {
    return (gml_stream)(uintptr_t)stream;
}

gml_cu_result fake_cuMemHostRegister(void *memory, size_t size, unsigned flags) {
    (void)memory;
    (void)size;
    (void)flags;
    return guard();
}

gml_cu_result fake_cuMemHostUnregister(void *memory) {
    (void)memory;
    return guard();
}

gml_cu_result fake_cuMemcpyDtoHAsync(void *to, gml_cu_pointer from, size_t size,
                                     gml_cu_stream stream) {
    gml_cu_result result = guard();
    return result == GML_CU_SUCCESS ? fake_result_of(gml_driver_copy_out(fake_device(), to, from,
                                                                         size, copy_stream(stream)))
                                    : result;
}

gml_cu_result fake_cuMemcpyHtoDAsync(gml_cu_pointer to, const void *from, size_t size,
                                     gml_cu_stream stream) {
    gml_cu_result result = guard();
    return result == GML_CU_SUCCESS ? fake_result_of(gml_driver_copy_in(fake_device(), to, from,
                                                                        size, copy_stream(stream)))
                                    : result;
}

/* ---- streams and events ---------------------------------------------------------------------- */

static gml_event number_of_event(gml_cu_event event) {
    return (gml_event)(uintptr_t)event;
}

static gml_stream number_of_stream(gml_cu_stream stream) {
    return (gml_stream)(uintptr_t)stream;
}

gml_cu_result fake_cuStreamCreate(gml_cu_stream *out, unsigned flags) {
    (void)flags;
    if (!fake_has_context()) {
        return GML_CU_INVALID_CONTEXT;
    }
    (void)pthread_mutex_lock(&lock);
    *out = (gml_cu_stream)next_stream++;
    (void)pthread_mutex_unlock(&lock);
    return GML_CU_SUCCESS;
}

gml_cu_result fake_cuStreamBeginCapture(gml_cu_stream stream, int mode) {
    for (int i = 0; i < MOST_CAPTURES; i++) {
        if (!captures[i].is_active) {
            captures[i] = (capture){stream, mode, true, false};
            return fake_result_of(
                gml_streams_set_capturing(fake_device()->streams, number_of_stream(stream), true));
        }
    }
    return GML_CU_INVALID_VALUE;
}

gml_cu_result fake_cuStreamEndCapture(gml_cu_stream stream, void **graph) {
    capture *ended = capture_of(stream);
    if (!ended) {
        return GML_CU_INVALID_VALUE;
    }
    ended->is_active = false;
    *graph = ended->is_broken ? NULL : &graph_object;
    (void)gml_streams_set_capturing(fake_device()->streams, number_of_stream(stream), false);
    return ended->is_broken ? GML_CU_STREAM_CAPTURE_UNSUPPORTED + 1 : GML_CU_SUCCESS;
}

gml_cu_result fake_cuGraphDestroy(void *graph) {
    return graph == &graph_object ? GML_CU_SUCCESS : GML_CU_INVALID_VALUE;
}

gml_cu_result fake_cuStreamIsCapturing(gml_cu_stream stream, int *out) {
    if (!fake_has_context()) {
        return GML_CU_INVALID_CONTEXT;
    }
    *out = capture_of(stream) ? 1 : GML_CU_CAPTURE_NONE;
    return GML_CU_SUCCESS;
}

gml_cu_result fake_cuStreamWaitEvent(gml_cu_stream stream, gml_cu_event event, unsigned flags) {
    capture *broken = capture_of(stream);
    if (broken) {
        broken->is_broken = true; /* the event belongs to no capture */
        return GML_CU_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (!fake_has_context() || flags != 0) {
        return GML_CU_INVALID_VALUE;
    }
    return fake_result_of(
        gml_driver_stream_wait(fake_device(), number_of_stream(stream), number_of_event(event)));
}

gml_cu_result fake_cuStreamSynchronize(gml_cu_stream stream) {
    gml_cu_result result = guard_stream(stream);
    return result == GML_CU_SUCCESS ? fake_result_of(gml_driver_stream_synchronize(
                                          fake_device(), number_of_stream(stream)))
                                    : result;
}

gml_cu_result fake_cuCtxSynchronize(void) {
    gml_cu_result result = guard();
    return result == GML_CU_SUCCESS ? fake_result_of(gml_driver_device_synchronize(fake_device()))
                                    : result;
}

gml_cu_result fake_cuEventCreate(gml_cu_event *out, unsigned flags) {
    gml_event event;
    if (!fake_has_context() || flags != GML_CU_EVENT_DISABLE_TIMING) {
        return GML_CU_INVALID_CONTEXT;
    }
    gml_cu_result result = fake_result_of(gml_driver_event_create(fake_device(), &event));
    if (result == GML_CU_SUCCESS) {
        *out = (gml_cu_event)(uintptr_t)event;
    }
    return result;
}

gml_cu_result fake_cuEventDestroy(gml_cu_event event) {
    return fake_result_of(gml_driver_event_destroy(fake_device(), number_of_event(event)));
}

gml_cu_result fake_cuEventRecord(gml_cu_event event, gml_cu_stream stream) {
    if (!fake_has_context()) {
        return GML_CU_INVALID_CONTEXT;
    }
    return fake_result_of(
        gml_driver_event_record(fake_device(), number_of_event(event), number_of_stream(stream)));
}

gml_cu_result fake_cuCtxRecordEvent(gml_cu_context context, gml_cu_event event) {
    gml_cu_context current = NULL;
    (void)fake_cuCtxGetCurrent(&current);
    if (!fake_has_context() || context != current) {
        return GML_CU_INVALID_CONTEXT;
    }
    return fake_result_of(gml_driver_event_record_all(fake_device(), number_of_event(event)));
}

gml_cu_result fake_cuEventQuery(gml_cu_event event) {
    gml_cu_result result = guard();
    return result == GML_CU_SUCCESS
               ? fake_result_of(gml_driver_event_query(fake_device(), number_of_event(event)))
               : result;
}

gml_cu_result fake_cuEventSynchronize(gml_cu_event event) {
    gml_cu_result result = guard();
    return result == GML_CU_SUCCESS
               ? fake_result_of(gml_driver_event_synchronize(fake_device(), number_of_event(event)))
               : result;
}
