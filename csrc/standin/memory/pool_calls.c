/* The runtime API for stream-ordered memory: cudaMallocAsync, its pools, and the memory of graphs.
 */
#include "standin/memory/pool.h"

/* The pool that a device begins with, and the only one: PyTorch makes no others. */
cudaError_t standin_cudaDeviceGetDefaultMemPool(cudaMemPool_t *out, int ordinal) {
    *out = (cudaMemPool_t)(void *)standin_default_pool(standin_device_at(ordinal));
    return cudaSuccess;
}

/* ---- what a pool is like --------------------------------------------------------------------- */

/* The attribute as a number of bytes, or NULL. */
static uint64_t *amount_of(standin_pool *pool, enum cudaMemPoolAttr attribute) {
    switch (attribute) {
    case cudaMemPoolAttrReleaseThreshold:
        return &pool->release_threshold;
    case cudaMemPoolAttrReservedMemCurrent:
        return &pool->reserved_bytes;
    case cudaMemPoolAttrReservedMemHigh:
        return &pool->reserved_peak_bytes;
    case cudaMemPoolAttrUsedMemCurrent:
        return &pool->used_bytes;
    case cudaMemPoolAttrUsedMemHigh:
        return &pool->used_peak_bytes;
    default:
        return NULL;
    }
}

/* The attribute as a switch, or NULL. Its number is that of the first of them or more. */
static int *switch_of(standin_pool *pool, enum cudaMemPoolAttr attribute) {
    bool is_switch = attribute >= cudaMemPoolReuseFollowEventDependencies &&
                     attribute <= cudaMemPoolReuseAllowInternalDependencies;
    return is_switch ? &pool->reuses[attribute] : NULL;
}

cudaError_t standin_cudaMemPoolGetAttribute(cudaMemPool_t handle, enum cudaMemPoolAttr attribute,
                                            void *value) {
    standin_pool *pool = standin_pool_of(handle);
    const uint64_t *amount = amount_of(pool, attribute);
    const int *is_on = switch_of(pool, attribute);
    if (amount) {
        *(cuuint64_t *)value = *amount;
    } else if (is_on) {
        *(int *)value = *is_on;
    }
    return amount || is_on ? cudaSuccess : cudaErrorInvalidValue;
}

/* A high-water mark can only start again, from what is there now. */
static cudaError_t reset_peak(uint64_t *peak_bytes, uint64_t current_bytes, cuuint64_t value) {
    if (value != 0) {
        return cudaErrorInvalidValue;
    }
    *peak_bytes = current_bytes;
    return cudaSuccess;
}

cudaError_t standin_cudaMemPoolSetAttribute(cudaMemPool_t handle, enum cudaMemPoolAttr attribute,
                                            void *value) {
    standin_pool *pool = standin_pool_of(handle);
    int *is_on = switch_of(pool, attribute);
    if (is_on) {
        *is_on = *(const int *)value;
        return cudaSuccess;
    }
    const cuuint64_t *amount = value;
    switch (attribute) {
    case cudaMemPoolAttrReleaseThreshold:
        pool->release_threshold = *amount;
        return cudaSuccess;
    case cudaMemPoolAttrReservedMemHigh:
        return reset_peak(&pool->reserved_peak_bytes, pool->reserved_bytes, *amount);
    case cudaMemPoolAttrUsedMemHigh:
        return reset_peak(&pool->used_peak_bytes, pool->used_bytes, *amount);
    default:
        return cudaErrorInvalidValue;
    }
}

cudaError_t standin_cudaMemPoolTrimTo(cudaMemPool_t handle, size_t keep_bytes) {
    standin_pool_shrink(standin_pool_of(handle), keep_bytes);
    return cudaSuccess;
}

/* Memory of pools is open to every device here; a pool stays open to its own. */
cudaError_t standin_cudaMemPoolSetAccess(cudaMemPool_t handle,
                                         const struct cudaMemAccessDesc *wanted, size_t count) {
    const standin_pool *pool = standin_pool_of(handle);
    bool is_valid = true;
    for (size_t i = 0; is_valid && i < count; i++) {
        is_valid = wanted[i].location.type == cudaMemLocationTypeDevice &&
                   standin_device_at(wanted[i].location.id) &&
                   (wanted[i].location.id != pool->device->ordinal ||
                    wanted[i].flags == cudaMemAccessFlagsProtReadWrite);
    }
    return is_valid ? cudaSuccess : cudaErrorInvalidValue;
}

/* ---- allocation ------------------------------------------------------------------------------ */

cudaError_t standin_cudaMallocAsync(void **out, size_t size_bytes, cudaStream_t handle) {
    standin_stream *stream = standin_stream_of(handle);
    gml_address address = 0;
    if (size_bytes > 0) {
        standin_pool *pool = standin_default_pool(stream->device);
        TRY(standin_pool_allocate(pool, size_bytes, stream, &address));
    }
    *out = (void *)(uintptr_t)address;
    return cudaSuccess;
}

cudaError_t standin_cudaFreeAsync(void *pointer, cudaStream_t handle) {
    gml_address address = standin_address(pointer);
    standin_stream *stream = standin_stream_of(handle);
    if (address == 0) {
        return cudaSuccess;
    }
    return standin_pool_owns(address) ? standin_pool_free(address, stream)
                                      : standin_free_in_order(address, stream);
}

/* ---- memory of graphs ------------------------------------------------------------------------ */

cudaError_t standin_cudaDeviceGetGraphMemAttribute(int ordinal,
                                                   enum cudaGraphMemAttributeType attribute,
                                                   void *value) {
    const standin_pool *pool = standin_graph_pool(standin_device_at(ordinal));
    cuuint64_t *out = value;
    switch (attribute) {
    case cudaGraphMemAttrUsedMemCurrent:
        *out = pool->used_bytes;
        return cudaSuccess;
    case cudaGraphMemAttrUsedMemHigh:
        *out = pool->used_peak_bytes;
        return cudaSuccess;
    case cudaGraphMemAttrReservedMemCurrent:
        *out = pool->reserved_bytes;
        return cudaSuccess;
    case cudaGraphMemAttrReservedMemHigh:
        *out = pool->reserved_peak_bytes;
        return cudaSuccess;
    default:
        return cudaErrorInvalidValue;
    }
}

cudaError_t standin_cudaDeviceSetGraphMemAttribute(int ordinal,
                                                   enum cudaGraphMemAttributeType attribute,
                                                   void *value) {
    standin_pool *pool = standin_graph_pool(standin_device_at(ordinal));
    const cuuint64_t *amount = value;
    switch (attribute) {
    case cudaGraphMemAttrUsedMemHigh:
        return reset_peak(&pool->used_peak_bytes, pool->used_bytes, *amount);
    case cudaGraphMemAttrReservedMemHigh:
        return reset_peak(&pool->reserved_peak_bytes, pool->reserved_bytes, *amount);
    default:
        return cudaErrorInvalidValue;
    }
}

cudaError_t standin_cudaDeviceGraphMemTrim(int ordinal) {
    standin_pool_shrink(standin_graph_pool(standin_device_at(ordinal)), 0);
    return cudaSuccess;
}
