/* Plain memory of the driver API, and its copies and fills. */
#include "standin.h"

#include <string.h>

static void *
pointer_to(gml_address address)
{
    return (void *)(uintptr_t)address;
}

static gml_address
address_of(const void *pointer)
{
    return (gml_address)(uintptr_t)pointer;
}

/* ---- memory ---------------------------------------------------------------------------------- */

CUresult
cuMemAlloc(CUdeviceptr *out, size_t size)
{
    CALLED();
    standin_enter();
    standin_device *device = standin_context_device();
    gml_address address = 0;
    cudaError_t error = cudaErrorDeviceUninitialized;
    if (device) {
        error = out && size > 0 ? standin_guard_captures() : cudaErrorInvalidValue;
    }
    if (error == cudaSuccess) {
        error = standin_malloc(device, size, &address);
    }
    if (error == cudaSuccess) {
        *out = address;
    }
    return standin_return_driver(error);
}

CUresult
cuMemFree(CUdeviceptr address)
{
    CALLED();
    standin_enter();
    cudaError_t error = standin_check_context();
    return standin_return_driver(error == cudaSuccess ? standin_free(address) : error);
}

CUresult
cuMemGetInfo(size_t *free, size_t *total)
{
    CALLED();
    standin_enter();
    standin_device *device = standin_context_device();
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
    if (!device || !free || !total) {
        return standin_return_driver(device ? cudaErrorInvalidValue : cudaErrorDeviceUninitialized);
    }
    standin_memory_info(device, &free_bytes, &total_bytes);
    *free = free_bytes;
    *total = total_bytes;
    return standin_return_driver(cudaSuccess);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Copies as the named call does. Where the addresses lie says what kind of copy it is. */
static CUresult
copy(const char *name, gml_address to, gml_address from, size_t size, CUstream stream,
     bool is_blocking)
{
    standin_enter();
    cudaError_t error = standin_check_context();
    if (error == cudaSuccess) {
        error = standin_copy(name, pointer_to(to), pointer_to(from), size, stream, is_blocking);
    }
    return standin_return_driver(error);
}

CUresult
cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t size)
{
    CALLED();
    return copy(__func__, to, address_of(from), size, NULL, true);
}

CUresult
cuMemcpyDtoH(void *to, CUdeviceptr from, size_t size)
{
    CALLED();
    return copy(__func__, address_of(to), from, size, NULL, true);
}

/* ---- fills ----------------------------------------------------------------------------------- */

/* The bytes to be filled. False where there are none: a device without bytes, or memory that is
 * gone, which is reported. */
static bool
find_bytes(const standin_operation *fill, char **out)
{
    void *bytes = NULL;
    if (fill->value) { /* the host can touch it */
        *out = pointer_to(fill->to);
        return true;
    }
    standin_device *device = standin_device_of(fill->to);
    if (!device) {
        standin_misuse("%s: the memory at 0x%llx went away before the work was done", fill->name,
                       (unsigned long long)fill->to);
        return false;
    }
    gml_status status =
        gml_driver_bytes(device->driver, fill->to, fill->width_bytes * fill->height, &bytes);
    *out = bytes;
    return standin_error_of(device, status) == cudaSuccess;
}

/* Writes the pattern in `from`, of width_bytes, as often as `height` says. */
static void
run_fill(const standin_operation *self)
{
    char *bytes = NULL;
    if (find_bytes(self, &bytes)) {
        for (uint64_t i = 0; i < self->height; i++) {
            memcpy(bytes + i * self->width_bytes, &self->from, (size_t)self->width_bytes);
        }
    }
}

static cudaError_t
submit_fill(const standin_operation *fill, CUstream handle)
{
    cudaError_t error = standin_check_context();
    if (error != cudaSuccess) {
        return error;
    }
    standin_stream *stream = standin_stream_of(handle);
    if (!stream) {
        return cudaErrorInvalidResourceHandle;
    }
    return fill->height > 0 ? standin_submit(stream, fill) : cudaSuccess;
}

/* Fills with a pattern, whose size divides the address. */
static CUresult
fill_pattern(const char *name, CUdeviceptr to, uint64_t pattern, uint64_t pattern_bytes,
             size_t count, CUstream stream)
{
    standin_enter();
    enum cudaMemoryType type = standin_place_of(to).type;
    if (to % pattern_bytes != 0 || count > SIZE_MAX / pattern_bytes) {
        return standin_return_driver(cudaErrorInvalidValue);
    }
    standin_operation fill = {
        .name = name,
        .ranges = {{to, type == cudaMemoryTypeHost ? 0 : pattern_bytes * count}},
        .run = run_fill,
        .to = to,
        .from = pattern,
        .width_bytes = pattern_bytes,
        .height = count,
        .value = type == cudaMemoryTypeHost || type == cudaMemoryTypeManaged,
    };
    return standin_return_driver(submit_fill(&fill, stream));
}

CUresult
cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
    CALLED();
    return fill_pattern(__func__, to, value, sizeof value, count, stream);
}

CUresult
cuStreamWriteValue32(CUstream stream, CUdeviceptr to, cuuint32_t value, unsigned flags)
{
    CALLED();
    (void)flags; /* of ordering, which a queue has anyway */
    return fill_pattern(__func__, to, value, sizeof value, 1, stream);
}
