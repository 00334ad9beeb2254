/* Plain, managed and page-locked memory of the driver API, as the runtime API has it too. */
#include "memory/pool.h"
#include "standin.h"

static gml_address
address_of(const void *pointer)
{
    return (gml_address)(uintptr_t)pointer;
}

/* ---- memory ------------------------------------------------------------------------------------
 */

CUresult
cuMemAlloc(CUdeviceptr *out, size_t size)
{
    CALLED();
    standin_enter();
    standin_device *device = standin_context_device();
    gml_address address = 0;
    cudaError_t error = cudaErrorDeviceUninitialized;
    if (device) {
        error = out && size > 0 ? standin_malloc(device, size, &address) : cudaErrorInvalidValue;
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
cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned flags)
{
    CALLED();
    standin_enter();
    standin_device *device = standin_context_device();
    gml_address address = 0;
    cudaError_t error = cudaErrorDeviceUninitialized;
    if (device) {
        bool is_valid =
            out && size > 0 && (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST);
        error = is_valid ? standin_malloc_managed(device, size, flags, &address)
                         : cudaErrorInvalidValue;
    }
    if (error == cudaSuccess) {
        *out = address;
    }
    return standin_return_driver(error);
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

/* ---- page-locked memory ------------------------------------------------------------------------
 */

static cudaError_t
allocate_host(void **out, size_t size, unsigned flags)
{
    cudaError_t error = standin_check_context();
    if (error != cudaSuccess) {
        return error;
    }
    return out && size > 0 ? standin_host_alloc(size, flags, out) : cudaErrorInvalidValue;
}

CUresult
cuMemHostAlloc(void **out, size_t size, unsigned flags)
{
    CALLED();
    standin_enter();
    return standin_return_driver(allocate_host(out, size, flags));
}

CUresult
cuMemAllocHost(void **out, size_t size)
{
    CALLED();
    standin_enter();
    return standin_return_driver(allocate_host(out, size, 0));
}

CUresult
cuMemFreeHost(void *address)
{
    CALLED();
    standin_enter();
    cudaError_t error = standin_check_context();
    return standin_return_driver(error == cudaSuccess ? standin_host_free(address) : error);
}

CUresult
cuMemHostRegister(void *address, size_t size, unsigned flags)
{
    CALLED();
    standin_enter();
    cudaError_t error = standin_check_context();
    return standin_return_driver(error == cudaSuccess ? standin_host_register(address, size, flags)
                                                      : error);
}

CUresult
cuMemHostUnregister(void *address)
{
    CALLED();
    standin_enter();
    cudaError_t error = standin_check_context();
    return standin_return_driver(error == cudaSuccess ? standin_host_unregister(address) : error);
}

CUresult
cuMemHostGetDevicePointer(CUdeviceptr *out, void *address, unsigned flags)
{
    CALLED();
    standin_enter();
    bool is_valid = out && flags == 0 && standin_is_pinned(address, 1);
    if (is_valid) {
        *out = address_of(address);
    }
    return standin_return_driver(is_valid ? cudaSuccess : cudaErrorInvalidValue);
}

CUresult
cuMemHostGetFlags(unsigned *out, void *address)
{
    CALLED();
    standin_enter();
    bool is_valid = out && standin_is_pinned(address, 1);
    if (is_valid) {
        *out = standin_place_of(address_of(address)).flags;
    }
    return standin_return_driver(is_valid ? cudaSuccess : cudaErrorInvalidValue);
}

/* ---- stream-ordered memory ---------------------------------------------------------------------
 */

static cudaError_t
allocate_in_order(gml_address *out, size_t size, CUstream handle)
{
    standin_stream *stream = standin_stream_of(handle);
    if (!stream) {
        return cudaErrorInvalidResourceHandle;
    }
    if (size == 0) {
        return cudaErrorInvalidValue;
    }
    standin_pool *pool = standin_current_pool(stream->device);
    return pool ? standin_pool_allocate(pool, size, stream, out) : cudaErrorMemoryAllocation;
}

CUresult
cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream stream)
{
    CALLED();
    standin_enter();
    gml_address address = 0;
    cudaError_t error = standin_check_context();
    if (error == cudaSuccess) {
        error = allocate_in_order(&address, size, stream);
    }
    if (error == cudaSuccess) {
        *out = address;
    }
    return standin_return_driver(error);
}

static cudaError_t
free_in_order(gml_address address, CUstream handle)
{
    standin_stream *stream = standin_stream_of(handle);
    if (!stream) {
        return cudaErrorInvalidResourceHandle;
    }
    if (address == 0) {
        return cudaSuccess;
    }
    return standin_pool_owns(address) ? standin_pool_free(address, stream)
                                      : standin_free_in_order(address, stream);
}

CUresult
cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    CALLED();
    standin_enter();
    cudaError_t error = standin_check_context();
    return standin_return_driver(error == cudaSuccess ? free_in_order(address, stream) : error);
}

/* One of a device's own pools, made on first use. */
static CUresult
give_pool(CUmemoryPool *out, CUdevice ordinal, standin_pool *(*find)(standin_device *device))
{
    standin_enter();
    standin_device *device = standin_device_at(ordinal);
    standin_pool *pool = device ? find(device) : NULL;
    if (!pool) {
        return standin_return_driver(device ? cudaErrorMemoryAllocation : cudaErrorInvalidDevice);
    }
    *out = (CUmemoryPool)(void *)pool;
    return standin_return_driver(cudaSuccess);
}

CUresult
cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice ordinal)
{
    CALLED();
    return give_pool(out, ordinal, standin_default_pool);
}

CUresult
cuDeviceGetMemPool(CUmemoryPool *out, CUdevice ordinal)
{
    CALLED();
    return give_pool(out, ordinal, standin_current_pool);
}

CUresult
cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
    CALLED();
    standin_enter();
    standin_pool *pool = standin_pool_of(handle);
    if (pool) {
        standin_pool_shrink(pool, keep);
    }
    return standin_return_driver(pool ? cudaSuccess : cudaErrorInvalidValue);
}
