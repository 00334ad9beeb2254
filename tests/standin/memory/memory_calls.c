/* The runtime API for plain, managed and page-locked memory, and for what memory is. */
#include "standin.h"

#include <stdio.h>

static gml_address
address_of(const void *pointer)
{
    return (gml_address)(uintptr_t)pointer;
}

static void *
pointer_to(gml_address address)
{
    return (void *)(uintptr_t)address;
}

/* Memory of the current device. */
static cudaError_t
allocate(uint64_t size_bytes, void **out)
{
    gml_address address = 0;
    cudaError_t error = standin_guard_captures();
    if (error == cudaSuccess) {
        error = standin_malloc(standin_current_device(), size_bytes, &address);
    }
    if (error == cudaSuccess) {
        *out = pointer_to(address);
    }
    return error;
}

cudaError_t
cudaMalloc(void **devPtr, size_t size)
{
    CALLED();
    standin_enter();
    return standin_return(devPtr ? allocate(size, devPtr) : cudaErrorInvalidValue);
}

cudaError_t
cudaMallocManaged(void **devPtr, size_t size, unsigned int flags)
{
    CALLED();
    standin_enter();
    gml_address address = 0;
    bool is_known = flags == cudaMemAttachGlobal || flags == cudaMemAttachHost;
    if (!devPtr || size == 0 || !is_known) {
        return standin_return(cudaErrorInvalidValue);
    }
    cudaError_t error = standin_malloc_managed(standin_current_device(), size, flags, &address);
    if (error == cudaSuccess) {
        *devPtr = pointer_to(address);
    }
    return standin_return(error);
}

cudaError_t
cudaFree(void *devPtr)
{
    CALLED();
    standin_enter();
    (void)standin_current_device();
    return standin_return(standin_free(address_of(devPtr)));
}

cudaError_t
cudaMemGetInfo(size_t *free, size_t *total)
{
    CALLED();
    standin_enter();
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
    if (!free || !total) {
        return standin_return(cudaErrorInvalidValue);
    }
    standin_memory_info(standin_current_device(), &free_bytes, &total_bytes);
    *free = free_bytes;
    *total = total_bytes;
    return standin_return(cudaSuccess);
}

/* ---- page-locked memory ---------------------------------------------------------------------- */

cudaError_t
cudaHostAlloc(void **pHost, size_t size, unsigned int flags)
{
    CALLED();
    standin_enter();
    return standin_return(pHost ? standin_host_alloc(size, flags, pHost) : cudaErrorInvalidValue);
}

cudaError_t
cudaMallocHost(void **ptr, size_t size)
{
    CALLED();
    standin_enter();
    return standin_return(ptr ? standin_host_alloc(size, cudaHostAllocDefault, ptr)
                              : cudaErrorInvalidValue);
}

cudaError_t
cudaFreeHost(void *ptr)
{
    CALLED();
    standin_enter();
    return standin_return(standin_host_free(ptr));
}

cudaError_t
cudaHostRegister(void *ptr, size_t size, unsigned int flags)
{
    CALLED();
    standin_enter();
    return standin_return(standin_host_register(ptr, size, flags));
}

cudaError_t
cudaHostUnregister(void *ptr)
{
    CALLED();
    standin_enter();
    return standin_return(standin_host_unregister(ptr));
}

cudaError_t
cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr)
{
    CALLED();
    standin_enter();
    if (!attributes) {
        return standin_return(cudaErrorInvalidValue);
    }
    standin_place place = standin_place_of(address_of(ptr));
    bool is_device = place.type == cudaMemoryTypeDevice;
    bool is_known = place.type != cudaMemoryTypeUnregistered;
    *attributes = (struct cudaPointerAttributes){
        .type = place.type,
        .device = is_known ? place.device->ordinal : cudaInvalidDeviceId,
        .devicePointer = is_known ? pointer_to(address_of(ptr)) : NULL,
        .hostPointer = is_device ? NULL : pointer_to(address_of(ptr)),
    };
    return standin_return(cudaSuccess);
}

/* ---- other processes ------------------------------------------------------------------------- */

/* Device memory of the stand-in lies in this process alone. */
static cudaError_t
refuse_sharing(const char *name)
{
    static atomic_bool was_said;
    if (!atomic_exchange(&was_said, true)) {
        fprintf(stderr,
                "gmlake stand-in: %s answers cudaErrorNotSupported: memory and events cannot be "
                "shared between processes here; pass tensors on the CPU instead\n",
                name);
    }
    standin_enter();
    return standin_return(cudaErrorNotSupported);
}

cudaError_t
cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *devPtr)
{
    CALLED();
    (void)handle;
    (void)devPtr;
    return refuse_sharing(__func__);
}

cudaError_t
cudaIpcOpenMemHandle(void **devPtr, cudaIpcMemHandle_t handle, unsigned int flags)
{
    CALLED();
    (void)devPtr;
    (void)handle;
    (void)flags;
    return refuse_sharing(__func__);
}

cudaError_t
cudaIpcCloseMemHandle(void *devPtr)
{
    CALLED();
    (void)devPtr;
    return refuse_sharing(__func__);
}

cudaError_t
cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
    CALLED();
    (void)handle;
    (void)event;
    return refuse_sharing(__func__);
}

cudaError_t
cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
    CALLED();
    (void)event;
    (void)handle;
    return refuse_sharing(__func__);
}
