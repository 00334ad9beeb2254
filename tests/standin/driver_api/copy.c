/* Copies and fills of the driver API. */
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

/* ---- copies ------------------------------------------------------------------------------------
 */

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
cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size)
{
    CALLED();
    return copy(__func__, to, from, size, NULL, true);
}

CUresult
cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    CALLED();
    return copy(__func__, to, from, size, stream, false);
}

CUresult
cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t size)
{
    CALLED();
    return copy(__func__, to, address_of(from), size, NULL, true);
}

CUresult
cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    CALLED();
    return copy(__func__, to, address_of(from), size, stream, false);
}

CUresult
cuMemcpyDtoH(void *to, CUdeviceptr from, size_t size)
{
    CALLED();
    return copy(__func__, address_of(to), from, size, NULL, true);
}

CUresult
cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    CALLED();
    return copy(__func__, address_of(to), from, size, stream, false);
}

/* Within devices the host is not kept waiting. */
CUresult
cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t size)
{
    CALLED();
    return copy(__func__, to, from, size, NULL, false);
}

CUresult
cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    CALLED();
    return copy(__func__, to, from, size, stream, false);
}

CUresult
cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
             size_t size)
{
    CALLED();
    (void)to_context;
    (void)from_context;
    return copy(__func__, to, from, size, NULL, false);
}

CUresult
cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                  size_t size, CUstream stream)
{
    CALLED();
    (void)to_context;
    (void)from_context;
    return copy(__func__, to, from, size, stream, false);
}

/* Where a copy of rows begins: the host's address, or the device's. False for an array. */
static bool
find_corner(CUmemorytype type, const void *host, CUdeviceptr device, uint64_t offset_bytes,
            gml_address *out)
{
    *out = (type == CU_MEMORYTYPE_HOST ? address_of(host) : device) + offset_bytes;
    return type != CU_MEMORYTYPE_ARRAY;
}

static CUresult
copy_rows(const char *name, const CUDA_MEMCPY2D *of, CUstream stream, bool is_blocking)
{
    standin_enter();
    standin_rows rows = {
        .to_pitch_bytes = of->dstPitch ? of->dstPitch : of->WidthInBytes,
        .from_pitch_bytes = of->srcPitch ? of->srcPitch : of->WidthInBytes,
        .width_bytes = of->WidthInBytes,
        .height = of->Height,
    };
    uint64_t to_offset = of->dstY * rows.to_pitch_bytes + of->dstXInBytes;
    uint64_t from_offset = of->srcY * rows.from_pitch_bytes + of->srcXInBytes;
    cudaError_t error = standin_check_context();
    if (!find_corner(of->dstMemoryType, of->dstHost, of->dstDevice, to_offset, &rows.to) ||
        !find_corner(of->srcMemoryType, of->srcHost, of->srcDevice, from_offset, &rows.from)) {
        error = cudaErrorNotSupported;
    }
    if (error == cudaSuccess) {
        error = standin_copy_rows(name, &rows, stream, is_blocking);
    }
    return standin_return_driver(error);
}

CUresult
cuMemcpy2D(const CUDA_MEMCPY2D *of)
{
    CALLED();
    return copy_rows(__func__, of, NULL, true);
}

CUresult
cuMemcpy2DUnaligned(const CUDA_MEMCPY2D *of)
{
    CALLED();
    return copy_rows(__func__, of, NULL, true);
}

CUresult
cuMemcpy2DAsync(const CUDA_MEMCPY2D *of, CUstream stream)
{
    CALLED();
    return copy_rows(__func__, of, stream, false);
}

/* ---- fills -------------------------------------------------------------------------------------
 */

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

static CUresult
fill_bytes(const char *name, CUdeviceptr to, unsigned char value, size_t size, CUstream stream)
{
    standin_enter();
    cudaError_t error = standin_check_context();
    if (error == cudaSuccess) {
        error = standin_fill(name, to, value, size, stream, false);
    }
    return standin_return_driver(error);
}

CUresult
cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count)
{
    CALLED();
    return fill_bytes(__func__, to, value, count, NULL);
}

CUresult
cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
    CALLED();
    return fill_bytes(__func__, to, value, count, stream);
}

CUresult
cuMemsetD16(CUdeviceptr to, unsigned short value, size_t count)
{
    CALLED();
    return fill_pattern(__func__, to, value, sizeof value, count, NULL);
}

CUresult
cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream)
{
    CALLED();
    return fill_pattern(__func__, to, value, sizeof value, count, stream);
}

CUresult
cuMemsetD32(CUdeviceptr to, unsigned value, size_t count)
{
    CALLED();
    return fill_pattern(__func__, to, value, sizeof value, count, NULL);
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

CUresult
cuStreamWriteValue64(CUstream stream, CUdeviceptr to, cuuint64_t value, unsigned flags)
{
    CALLED();
    (void)flags;
    return fill_pattern(__func__, to, value, sizeof value, 1, stream);
}
