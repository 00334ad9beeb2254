/* The runtime API for stream-ordered memory: cudaMallocAsync, its pools, and the memory of graphs.
 */
#include "pool.h"

static gml_address
address_of(const void *pointer)
{
    return (gml_address)(uintptr_t)pointer;
}

static cudaMemPool_t
handle_of(standin_pool *pool)
{
    return (cudaMemPool_t)(void *)pool;
}

/* ---- which pool ------------------------------------------------------------------------------ */

/* Hands out one of a device's own pools, which `find` makes on first use. */
static cudaError_t
give_pool(cudaMemPool_t *out, int ordinal, standin_pool *(*find)(standin_device *device))
{
    standin_device *device = standin_device_at(ordinal);
    if (!out || !device) {
        return out ? cudaErrorInvalidDevice : cudaErrorInvalidValue;
    }
    standin_pool *pool = find(device);
    if (!pool) {
        return cudaErrorMemoryAllocation;
    }
    *out = handle_of(pool);
    return cudaSuccess;
}

cudaError_t
cudaDeviceGetDefaultMemPool(cudaMemPool_t *memPool, int device)
{
    CALLED();
    standin_enter();
    return standin_return(give_pool(memPool, device, standin_default_pool));
}

cudaError_t
cudaDeviceGetMemPool(cudaMemPool_t *memPool, int device)
{
    CALLED();
    standin_enter();
    return standin_return(give_pool(memPool, device, standin_current_pool));
}

cudaError_t
cudaDeviceSetMemPool(int device, cudaMemPool_t memPool)
{
    CALLED();
    standin_enter();
    standin_device *found = standin_device_at(device);
    standin_pool *pool = standin_pool_of(memPool);
    if (!found) {
        return standin_return(cudaErrorInvalidDevice);
    }
    if (!pool || pool->device != found) {
        return standin_return(cudaErrorInvalidValue);
    }
    standin_set_current_pool(found, pool);
    return standin_return(cudaSuccess);
}

static cudaError_t
create_pool(const struct cudaMemPoolProps *properties, cudaMemPool_t *out)
{
    if (!out || !properties || properties->allocType != cudaMemAllocationTypePinned) {
        return cudaErrorInvalidValue;
    }
    if (properties->location.type != cudaMemLocationTypeDevice) {
        return cudaErrorNotSupported;
    }
    standin_device *device = standin_device_at(properties->location.id);
    if (!device) {
        return cudaErrorInvalidDevice;
    }
    standin_pool *pool = standin_pool_new(device, properties->maxSize);
    if (!pool) {
        return cudaErrorMemoryAllocation;
    }
    *out = handle_of(pool);
    return cudaSuccess;
}

cudaError_t
cudaMemPoolCreate(cudaMemPool_t *memPool, const struct cudaMemPoolProps *poolProps)
{
    CALLED();
    standin_enter();
    return standin_return(create_pool(poolProps, memPool));
}

cudaError_t
cudaMemPoolDestroy(cudaMemPool_t memPool)
{
    CALLED();
    standin_enter();
    standin_pool *pool = standin_pool_of(memPool);
    return standin_return(pool ? standin_pool_destroy(pool) : cudaErrorInvalidValue);
}

/* ---- what a pool is like --------------------------------------------------------------------- */

/* The attribute as a switch, or NULL. */
static bool *
switch_of(standin_pool *pool, enum cudaMemPoolAttr attribute)
{
    switch (attribute) {
    case cudaMemPoolReuseFollowEventDependencies:
        return &pool->follows_events;
    case cudaMemPoolReuseAllowOpportunistic:
        return &pool->is_opportunistic;
    case cudaMemPoolReuseAllowInternalDependencies:
        return &pool->makes_dependencies;
    default:
        return NULL;
    }
}

/* The attribute as a number of bytes, or NULL. */
static uint64_t *
amount_of(standin_pool *pool, enum cudaMemPoolAttr attribute)
{
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

static cudaError_t
get_attribute(standin_pool *pool, enum cudaMemPoolAttr attribute, void *value)
{
    const bool *is_on = switch_of(pool, attribute);
    const uint64_t *amount = amount_of(pool, attribute);
    if (is_on) {
        *(int *)value = *is_on;
    } else if (amount) {
        *(cuuint64_t *)value = *amount;
    }
    return is_on || amount ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t
cudaMemPoolGetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value)
{
    CALLED();
    standin_enter();
    standin_pool *pool = standin_pool_of(memPool);
    bool is_valid = pool && value;
    return standin_return(is_valid ? get_attribute(pool, attr, value) : cudaErrorInvalidValue);
}

/* A high-water mark can only start again, from what is there now. */
static cudaError_t
reset_peak(uint64_t *peak_bytes, uint64_t current_bytes, cuuint64_t value)
{
    if (value != 0) {
        return cudaErrorInvalidValue;
    }
    *peak_bytes = current_bytes;
    return cudaSuccess;
}

static cudaError_t
set_attribute(standin_pool *pool, enum cudaMemPoolAttr attribute, const void *value)
{
    bool *is_on = switch_of(pool, attribute);
    if (is_on) {
        *is_on = *(const int *)value != 0;
        return cudaSuccess;
    }
    switch (attribute) {
    case cudaMemPoolAttrReleaseThreshold:
        pool->release_threshold = *(const cuuint64_t *)value;
        return cudaSuccess;
    case cudaMemPoolAttrReservedMemHigh:
        return reset_peak(&pool->reserved_peak_bytes, pool->reserved_bytes,
                          *(const cuuint64_t *)value);
    case cudaMemPoolAttrUsedMemHigh:
        return reset_peak(&pool->used_peak_bytes, pool->used_bytes, *(const cuuint64_t *)value);
    default:
        return cudaErrorInvalidValue;
    }
}

cudaError_t
cudaMemPoolSetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value)
{
    CALLED();
    standin_enter();
    standin_pool *pool = standin_pool_of(memPool);
    bool is_valid = pool && value;
    return standin_return(is_valid ? set_attribute(pool, attr, value) : cudaErrorInvalidValue);
}

cudaError_t
cudaMemPoolTrimTo(cudaMemPool_t memPool, size_t minBytesToKeep)
{
    CALLED();
    standin_enter();
    standin_pool *pool = standin_pool_of(memPool);
    if (pool) {
        standin_pool_shrink(pool, minBytesToKeep);
    }
    return standin_return(pool ? cudaSuccess : cudaErrorInvalidValue);
}

/* A pool stays open to its own device. */
static bool
is_valid_access(const standin_pool *pool, const struct cudaMemAccessDesc *wanted)
{
    return wanted->location.type == cudaMemLocationTypeDevice &&
           standin_device_at(wanted->location.id) &&
           (wanted->location.id != pool->device->ordinal ||
            wanted->flags == cudaMemAccessFlagsProtReadWrite);
}

cudaError_t
cudaMemPoolSetAccess(cudaMemPool_t memPool, const struct cudaMemAccessDesc *descList, size_t count)
{
    CALLED();
    standin_enter();
    standin_pool *pool = standin_pool_of(memPool);
    if (!pool || (count > 0 && !descList)) {
        return standin_return(cudaErrorInvalidValue);
    }
    for (size_t i = 0; i < count; i++) {
        if (!is_valid_access(pool, &descList[i])) {
            return standin_return(cudaErrorInvalidValue);
        }
    }
    for (size_t i = 0; i < count; i++) {
        pool->access[descList[i].location.id] = descList[i].flags;
    }
    return standin_return(cudaSuccess);
}

cudaError_t
cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t memPool,
                     struct cudaMemLocation *location)
{
    CALLED();
    standin_enter();
    const standin_pool *pool = standin_pool_of(memPool);
    if (!pool || !flags || !location || location->type != cudaMemLocationTypeDevice ||
        !standin_device_at(location->id)) {
        return standin_return(cudaErrorInvalidValue);
    }
    *flags = pool->access[location->id];
    return standin_return(cudaSuccess);
}

/* ---- allocation ------------------------------------------------------------------------------ */

/* From `pool`, or without one from that which the device of the stream uses. */
static cudaError_t
allocate(void **out, size_t size_bytes, standin_pool *pool, cudaStream_t handle)
{
    standin_stream *stream = standin_stream_of(handle);
    if (!stream) {
        return cudaErrorInvalidResourceHandle;
    }
    gml_address address = 0;
    standin_pool *from = pool ? pool : standin_current_pool(stream->device);
    cudaError_t error = from ? cudaSuccess : cudaErrorMemoryAllocation;
    if (error == cudaSuccess && size_bytes > 0) {
        error = standin_pool_allocate(from, size_bytes, stream, &address);
    }
    if (error == cudaSuccess) {
        *out = (void *)(uintptr_t)address;
    }
    return error;
}

cudaError_t
cudaMallocAsync(void **devPtr, size_t size, cudaStream_t hStream)
{
    CALLED();
    standin_enter();
    return standin_return(devPtr ? allocate(devPtr, size, NULL, hStream) : cudaErrorInvalidValue);
}

cudaError_t
cudaMallocFromPoolAsync(void **ptr, size_t size, cudaMemPool_t memPool, cudaStream_t stream)
{
    CALLED();
    standin_enter();
    standin_pool *pool = standin_pool_of(memPool);
    bool is_valid = ptr && pool;
    return standin_return(is_valid ? allocate(ptr, size, pool, stream) : cudaErrorInvalidValue);
}

cudaError_t
cudaFreeAsync(void *devPtr, cudaStream_t hStream)
{
    CALLED();
    standin_enter();
    gml_address address = address_of(devPtr);
    standin_stream *stream = standin_stream_of(hStream);
    if (!stream) {
        return standin_return(cudaErrorInvalidResourceHandle);
    }
    if (address == 0) {
        return standin_return(cudaSuccess);
    }
    return standin_return(standin_pool_owns(address) ? standin_pool_free(address, stream)
                                                     : standin_free_in_order(address, stream));
}

/* ---- memory of graphs ------------------------------------------------------------------------ */

cudaError_t
cudaDeviceGetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attr, void *value)
{
    CALLED();
    standin_enter();
    static const enum cudaMemPoolAttr same[] = {
        [cudaGraphMemAttrUsedMemCurrent] = cudaMemPoolAttrUsedMemCurrent,
        [cudaGraphMemAttrUsedMemHigh] = cudaMemPoolAttrUsedMemHigh,
        [cudaGraphMemAttrReservedMemCurrent] = cudaMemPoolAttrReservedMemCurrent,
        [cudaGraphMemAttrReservedMemHigh] = cudaMemPoolAttrReservedMemHigh,
    };
    standin_device *found = standin_device_at(device);
    if (!found || !value || (int)attr < 0 || (size_t)attr >= sizeof same / sizeof same[0]) {
        return standin_return(found ? cudaErrorInvalidValue : cudaErrorInvalidDevice);
    }
    standin_pool *pool = standin_graph_pool(found);
    return standin_return(pool ? get_attribute(pool, same[attr], value)
                               : cudaErrorMemoryAllocation);
}

cudaError_t
cudaDeviceGraphMemTrim(int device)
{
    CALLED();
    standin_enter();
    standin_device *found = standin_device_at(device);
    standin_pool *pool = found ? standin_graph_pool(found) : NULL;
    if (pool) {
        standin_pool_shrink(pool, 0);
    }
    return standin_return(found ? cudaSuccess : cudaErrorInvalidDevice);
}
