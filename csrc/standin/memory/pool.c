/* Stream-ordered memory: cudaMallocAsync gives plain blocks, and cudaFreeAsync takes them back when
 * the stream gets there. A pool keeps nothing, so what it has reserved is what is in use. */
#include "standin/standin.h"

/* What cudaMemPool_t points to: the pool that a device begins with, and the only one. By
 * cudaMemPoolAttr; the reuse switches and the release threshold are the program's own notes. */
struct standin_pool {
    uint64_t values[cudaMemPoolAttrUsedMemHigh + 1];
};

static standin_pool pools[STANDIN_MOST_DEVICES];

static standin_pool *pool_of(const standin_device *device) {
    standin_pool *pool = &pools[device->ordinal];
    if (pool->values[0] == 0) { /* no attribute has this number: it is used for the first time */
        for (int i = 0; i <= cudaMemPoolReuseAllowInternalDependencies; i++) {
            pool->values[i] = 1;
        }
    }
    return pool;
}

cudaError_t standin_check_pool(cudaMemPool_t handle) {
    for (int i = 0; standin_device_at(i); i++) {
        if ((void *)handle == (void *)&pools[i]) {
            return cudaSuccess;
        }
    }
    return cudaErrorInvalidValue;
}

cudaError_t standin_cudaDeviceGetDefaultMemPool(cudaMemPool_t *out, int ordinal) {
    *out = (cudaMemPool_t)(void *)pool_of(standin_device_at(ordinal));
    return cudaSuccess;
}

/* ---- what a pool is like --------------------------------------------------------------------- */

void standin_pool_count(standin_pool *pool, int64_t bytes) {
    uint64_t *values = pool->values;
    values[cudaMemPoolAttrUsedMemCurrent] += (uint64_t)bytes;
    values[cudaMemPoolAttrReservedMemCurrent] = values[cudaMemPoolAttrUsedMemCurrent];
    for (int high = cudaMemPoolAttrReservedMemHigh; high <= cudaMemPoolAttrUsedMemHigh; high += 2) {
        values[high] = values[high] > values[high - 1] ? values[high] : values[high - 1];
    }
}

cudaError_t standin_cudaMemPoolGetAttribute(cudaMemPool_t handle, enum cudaMemPoolAttr attribute,
                                            void *value) {
    const standin_pool *pool = (standin_pool *)(void *)handle;
    if (attribute < cudaMemPoolReuseFollowEventDependencies ||
        attribute > cudaMemPoolAttrUsedMemHigh) {
        return cudaErrorInvalidValue;
    }
    if (attribute <= cudaMemPoolReuseAllowInternalDependencies) {
        *(int *)value = (int)pool->values[attribute];
    } else {
        *(cuuint64_t *)value = pool->values[attribute];
    }
    return cudaSuccess;
}

cudaError_t standin_cudaMemPoolSetAttribute(cudaMemPool_t handle, enum cudaMemPoolAttr attribute,
                                            void *value) {
    standin_pool *pool = (standin_pool *)(void *)handle;
    switch (attribute) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies:
        pool->values[attribute] = *(const int *)value != 0;
        return cudaSuccess;
    case cudaMemPoolAttrReleaseThreshold:
        pool->values[attribute] = *(const cuuint64_t *)value;
        return cudaSuccess;
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh: /* it can only start again, from what is there now */
        if (*(const cuuint64_t *)value != 0) {
            return cudaErrorInvalidValue;
        }
        pool->values[attribute] = pool->values[attribute - 1];
        return cudaSuccess;
    default:
        return cudaErrorInvalidValue;
    }
}

cudaError_t standin_cudaMemPoolTrimTo(cudaMemPool_t handle, size_t keep_bytes) {
    (void)handle;
    (void)keep_bytes;
    return cudaSuccess;
}

/* Memory of pools is open to every device here. */
cudaError_t standin_cudaMemPoolSetAccess(cudaMemPool_t handle,
                                         const struct cudaMemAccessDesc *wanted, size_t count) {
    (void)handle;
    (void)wanted;
    (void)count;
    return cudaSuccess;
}

/* ---- allocation ------------------------------------------------------------------------------ */

cudaError_t standin_cudaMallocAsync(void **out, size_t size_bytes, cudaStream_t handle) {
    standin_stream *stream = standin_stream_of(handle);
    gml_address address = 0;
    TRY(standin_malloc_in_order(pool_of(stream->device), size_bytes, stream, &address));
    *out = (void *)(uintptr_t)address;
    return cudaSuccess;
}

cudaError_t standin_cudaFreeAsync(void *pointer, cudaStream_t handle) {
    gml_address address = standin_address(pointer);
    return address == 0 ? cudaSuccess : standin_free_in_order(address, standin_stream_of(handle));
}
