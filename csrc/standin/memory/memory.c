/* Plain and page-locked memory: who was given which addresses. Reservations are known to the
 * drivers alone. */
#include "base/tree.h"
#include "standin/standin.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef enum owner_kind {
    PLAIN,      /* cudaMalloc, cudaMallocAsync: a block of the device's driver */
    LOCKED,     /* cudaHostAlloc: memory of this process */
    REGISTERED, /* cudaHostRegister: memory of the program */
} owner_kind;

typedef struct owner {
    gml_tree_node node; /* ordered by address; its size is unused */
    uint64_t size_bytes;
    owner_kind kind;
    standin_device *device;
    standin_pool *pool; /* that counts it: cudaMallocAsync; else NULL */
    bool is_leaving;    /* cudaFreeAsync was called, and the stream has not got there */
    bool is_of_graph;   /* allocated in a capture: freed or not, it is there as long as the graph */
} owner;

static gml_tree owners; /* their ranges are disjoint */

static uint64_t whole_pages(uint64_t size_bytes) {
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    return (size_bytes + page_bytes - 1) & ~(page_bytes - 1);
}

/* The owner whose range holds the address, or NULL. */
static owner *owner_of(gml_address address) {
    gml_tree_node *node = gml_tree_at_least(&owners, 0, address);
    if (!node || node->address != address) {
        node = node ? gml_tree_previous(node) : gml_tree_last(&owners);
    }
    owner *found = (owner *)(void *)node;
    return found && address - found->node.address < found->size_bytes ? found : NULL;
}

/* The owner of the block that begins here, or NULL. */
static owner *owner_at(gml_address address) {
    owner *found = owner_of(address);
    return found && found->node.address == address ? found : NULL;
}

/* Whether the range touches one that is known already. */
static bool is_taken(gml_address address, uint64_t size_bytes) {
    const gml_tree_node *above = gml_tree_at_least(&owners, 0, address);
    return owner_of(address) || (above && above->address - address < size_bytes);
}

static void enter(owner_kind kind, standin_device *device, gml_address address,
                  uint64_t size_bytes) {
    owner *made = standin_new(sizeof *made);
    *made = (owner){.size_bytes = size_bytes, .kind = kind, .device = device};
    made->node.address = address;
    gml_tree_insert(&owners, &made->node);
}

static void forget(owner *gone) {
    gml_tree_remove(&owners, &gone->node);
    free(gone);
}

standin_place standin_place_of(gml_address address) {
    const owner *found = owner_of(address);
    if (found) {
        enum cudaMemoryType type = found->kind == PLAIN ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
        return (standin_place){type, found->device, found->node.address, found->size_bytes};
    }
    standin_device *device = standin_device_of(address);
    return (standin_place){.type = device ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered,
                           .device = device};
}

bool standin_is_pinned(const void *address, uint64_t size_bytes) {
    const owner *found = owner_of(standin_address(address));
    return found && found->kind != PLAIN &&
           size_bytes <= found->size_bytes - (standin_address(address) - found->node.address);
}

cudaError_t standin_cudaPointerGetAttributes(struct cudaPointerAttributes *out,
                                             const void *pointer) {
    standin_place place = standin_place_of(standin_address(pointer));
    bool is_known = place.type != cudaMemoryTypeUnregistered;
    *out = (struct cudaPointerAttributes){
        .type = place.type,
        .device = is_known ? place.device->ordinal : cudaInvalidDeviceId,
        .devicePointer = is_known ? (void *)(uintptr_t)pointer : NULL,
        .hostPointer = place.type == cudaMemoryTypeDevice ? NULL : (void *)(uintptr_t)pointer,
    };
    return cudaSuccess;
}

/* ---- memory of a device ---------------------------------------------------------------------- */

cudaError_t standin_malloc(standin_device *device, uint64_t size_bytes, gml_address *out) {
    *out = 0;
    if (size_bytes > 0) {
        TRY(standin_error_of(device, gml_driver_malloc(device->driver, size_bytes, out)));
        enter(PLAIN, device, *out, size_bytes);
    }
    return cudaSuccess;
}

cudaError_t standin_cudaMalloc(void **out, size_t size_bytes) {
    gml_address address = 0;
    TRY(standin_guard_captures());
    TRY(standin_malloc(standin_current_device(), size_bytes, &address));
    *out = (void *)(uintptr_t)address;
    return cudaSuccess;
}

cudaError_t standin_cuMemAlloc(CUdeviceptr *out, size_t size_bytes) {
    void *made = NULL;
    TRY(size_bytes > 0 ? standin_cudaMalloc(&made, size_bytes) : cudaErrorInvalidValue);
    *out = standin_address(made);
    return cudaSuccess;
}

cudaError_t standin_cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    standin_memory_info(standin_current_device(), free_bytes, total_bytes);
    return cudaSuccess;
}

/* Says why nothing can be freed here. */
static cudaError_t refuse_free(gml_address address) {
    const owner *found = owner_of(address);
    const char *reason = !found ? "no block begins here; it was freed before, or never allocated"
                         : found->node.address != address ? "this lies inside a block"
                         : found->is_leaving              ? "it was given to cudaFreeAsync before"
                                                          : "it is page-locked memory of the host";
    standin_misuse("free: 0x%" PRIx64 ": %s", address, reason);
    return cudaErrorInvalidValue;
}

/* The block of a device that begins here and may be freed; NULL otherwise. */
static owner *device_block_at(gml_address address) {
    owner *found = owner_at(address);
    return found && found->kind == PLAIN && !found->is_leaving ? found : NULL;
}

static void count_out(const owner *block) {
    if (block->pool) {
        standin_pool_count(block->pool, -(int64_t)block->size_bytes);
    }
}

static cudaError_t give_back(owner *block) {
    standin_device *device = block->device;
    gml_status status = gml_driver_free(device->driver, block->node.address);
    if (status == GML_OK) {
        forget(block);
    }
    return standin_error_of(device, status);
}

/* Waits for the device first, whatever device is current. */
cudaError_t standin_cudaFree(void *pointer) {
    gml_address address = standin_address(pointer);
    (void)standin_current_device();
    if (address == 0) {
        return cudaSuccess;
    }
    TRY(standin_guard_captures());
    owner *block = device_block_at(address);
    if (!block) {
        return refuse_free(address);
    }
    standin_synchronize_device(block->device);
    /* Only this device was waited for. */
    standin_check_unused("cudaFree", address, block->size_bytes);
    count_out(block);
    if (block->is_of_graph) {
        block->is_leaving = true;
        return cudaSuccess;
    }
    return give_back(block);
}

/* ---- in the order of a stream ---------------------------------------------------------------- */

/* The graph and its launches are gone: the block goes where it was freed, and else stays as any
 * other does. */
static void drop_graph_block(standin_operation *self) {
    owner *block = owner_at(self->to);
    if (block && block->is_of_graph) {
        block->is_of_graph = false;
        if (block->is_leaving) {
            (void)give_back(block);
        }
    }
}

cudaError_t standin_malloc_in_order(standin_pool *pool, uint64_t size_bytes, standin_stream *stream,
                                    gml_address *out) {
    standin_device *device = stream->device;
    cudaError_t error = standin_malloc(device, size_bytes, out);
    if (error == cudaErrorMemoryAllocation && !stream->capture) {
        standin_synchronize_device(device); /* what was freed in order is there then */
        error = standin_malloc(device, size_bytes, out);
    }
    owner *block = error == cudaSuccess ? owner_at(*out) : NULL;
    if (!block) { /* refused, or nothing was asked for */
        return error;
    }
    block->pool = pool;
    standin_pool_count(pool, (int64_t)size_bytes);
    if (!stream->capture) {
        return cudaSuccess;
    }
    block->is_of_graph = true;
    standin_operation node = {.drop = drop_graph_block, .to = *out};
    return standin_submit(stream, &node);
}

static void run_free(const standin_operation *self) {
    owner *block = owner_at(self->to);
    if (!block || !block->is_leaving) {
        return;
    }
    standin_check_unused(self->name, self->to, block->size_bytes);
    (void)give_back(block);
}

cudaError_t standin_free_in_order(gml_address address, standin_stream *stream) {
    owner *block = device_block_at(address);
    if (!block) {
        return refuse_free(address);
    }
    if (stream->capture && !block->is_of_graph) {
        standin_misuse("cudaFreeAsync: the block at 0x%" PRIx64 " was not allocated in the capture "
                       "that frees it",
                       address);
        return cudaErrorInvalidValue;
    }
    standin_operation operation = {.run = block->is_of_graph ? NULL : run_free, .to = address};
    count_out(block);
    block->is_leaving = true;
    return standin_submit(stream, &operation);
}

/* ---- page-locked memory ---------------------------------------------------------------------- */

cudaError_t standin_cudaHostAlloc(void **out, size_t size_bytes, unsigned flags) {
    static const unsigned known =
        cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    if ((flags & ~known) != 0) {
        return cudaErrorInvalidValue;
    }
    *out = NULL;
    TRY(standin_guard_captures());
    if (size_bytes == 0) {
        return cudaSuccess;
    }
    void *memory = MAP_FAILED;
    if (size_bytes <= UINT64_MAX / 2) {
        memory = mmap(NULL, (size_t)whole_pages(size_bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    if (memory == MAP_FAILED) {
        return cudaErrorMemoryAllocation;
    }
    enter(LOCKED, standin_current_device(), standin_address(memory), size_bytes);
    *out = memory;
    return cudaSuccess;
}

static cudaError_t synchronize_all(void) {
    TRY(standin_guard_captures());
    for (int i = 0; standin_device_at(i); i++) {
        standin_synchronize_device(standin_device_at(i));
    }
    return cudaSuccess;
}

cudaError_t standin_cudaFreeHost(void *address) {
    if (!address) {
        return cudaSuccess;
    }
    owner *found = owner_at(standin_address(address));
    if (!found || found->kind != LOCKED) {
        standin_misuse("cudaFreeHost: no memory of cudaHostAlloc begins at %p; it was freed "
                       "before, or never allocated",
                       address);
        return cudaErrorInvalidValue;
    }
    TRY(synchronize_all());
    (void)munmap(address, (size_t)whole_pages(found->size_bytes));
    forget(found);
    return cudaSuccess;
}

cudaError_t standin_cudaHostRegister(void *address, size_t size_bytes, unsigned flags) {
    static const unsigned known = cudaHostRegisterPortable | cudaHostRegisterMapped |
                                  cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;
    gml_address begin = standin_address(address);
    if (!address || size_bytes == 0 || size_bytes > UINT64_MAX - begin || (flags & ~known) != 0 ||
        standin_device_of(begin)) {
        return cudaErrorInvalidValue;
    }
    if (is_taken(begin, size_bytes)) {
        return cudaErrorHostMemoryAlreadyRegistered;
    }
    enter(REGISTERED, standin_current_device(), begin, size_bytes);
    return cudaSuccess;
}

cudaError_t standin_cudaHostUnregister(void *address) {
    owner *found = owner_at(standin_address(address));
    if (!found || found->kind != REGISTERED) {
        return cudaErrorHostMemoryNotRegistered;
    }
    TRY(synchronize_all());
    forget(found);
    return cudaSuccess;
}

/* Addresses are unified: a device sees this memory where the host does. */
cudaError_t standin_cudaHostGetDevicePointer(void **out, void *address, unsigned flags) {
    bool is_right = address && flags == 0 && standin_is_pinned(address, 1);
    *out = is_right ? address : NULL;
    return is_right ? cudaSuccess : cudaErrorInvalidValue;
}
