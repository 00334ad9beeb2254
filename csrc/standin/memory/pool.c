/* Pools of stream-ordered memory: their segments and blocks, and when a block is free. */
#include "standin/memory/pool.h"

#include "base/rounding.h"

#include <inttypes.h>
#include <stdlib.h>

static standin_pool *pools_of[STANDIN_MOST_DEVICES], *graph_pools_of[STANDIN_MOST_DEVICES];
static standin_pool *pools;   /* all */
static uint64_t frees_called; /* by cudaFreeAsync */

/* ---- pools ----------------------------------------------------------------------------------- */

standin_pool *standin_pool_of(cudaMemPool_t handle) {
    standin_pool *pool = pools;
    while (pool && (void *)pool != (void *)handle) {
        pool = pool->next;
    }
    return pool;
}

cudaError_t standin_check_pool(cudaMemPool_t handle) {
    return standin_pool_of(handle) ? cudaSuccess : cudaErrorInvalidValue;
}

/* The pool at a place of the tables, made on first use. */
static standin_pool *pool_at(standin_pool **place, standin_device *device,
                             uint64_t release_threshold) {
    if (!*place) {
        standin_pool *made = standin_new(sizeof *made);
        *made =
            (standin_pool){.next = pools, .device = device, .release_threshold = release_threshold};
        for (int i = 0; i <= cudaMemPoolReuseAllowInternalDependencies; i++) {
            made->reuses[i] = 1;
        }
        pools = *place = made;
    }
    return *place;
}

standin_pool *standin_default_pool(standin_device *device) {
    return pool_at(&pools_of[device->ordinal], device, 0);
}

standin_pool *standin_graph_pool(standin_device *device) {
    return pool_at(&graph_pools_of[device->ordinal], device, UINT64_MAX);
}

void standin_pool_trim(standin_device *device, bool is_short) {
    for (standin_pool *pool = pools; pool; pool = pool->next) {
        if (pool->device == device) {
            standin_pool_shrink(pool, is_short ? 0 : pool->release_threshold);
        }
    }
}

/* ---- allocation ------------------------------------------------------------------------------ */

static standin_block *take_or_grow(standin_pool *pool, uint64_t size_bytes,
                                   const standin_stream *stream) {
    standin_block *taken = standin_pool_take(pool, size_bytes, stream);
    if (!taken && standin_pool_grow(pool, size_bytes) == GML_OK) {
        taken = standin_pool_take(pool, size_bytes, stream);
    }
    return taken;
}

/* Everything before giving up: idle memory of all pools of the device, then what is freed once the
 * device has done its work, where CUDA would make the stream wait for that. */
static standin_block *take_somehow(standin_pool *pool, uint64_t size_bytes,
                                   const standin_stream *stream) {
    standin_block *taken = take_or_grow(pool, size_bytes, stream);
    if (!taken) {
        standin_pool_trim(pool->device, true);
        taken = take_or_grow(pool, size_bytes, stream);
    }
    if (!taken && pool->reuses[cudaMemPoolReuseAllowInternalDependencies] && !stream->capture &&
        standin_first_leaving()) {
        standin_synchronize_device(pool->device);
        standin_pool_trim(pool->device, true);
        taken = take_or_grow(pool, size_bytes, stream);
    }
    return taken;
}

static void count_used(standin_block *taken) {
    standin_pool *pool = taken->pool;
    pool->used_bytes += taken->node.size_bytes;
    if (pool->used_bytes > pool->used_peak_bytes) {
        pool->used_peak_bytes = pool->used_bytes;
    }
}

/* ---- memory of graphs ------------------------------------------------------------------------ */

static standin_block *graph_block_at(gml_address address) {
    standin_block *found = standin_block_at(address);
    return found && found->is_of_graph ? found : NULL;
}

static void release_graph_block_if_done(standin_block *done) {
    if (done->is_orphan && (done->is_freed || !done->is_launched)) {
        done->pool->used_bytes -= done->node.size_bytes;
        done->is_of_graph = false;
        standin_block_release(done);
    }
}

static void run_graph_allocate(const standin_operation *self) {
    standin_block *found = graph_block_at(self->to);
    if (found) {
        found->is_launched = true;
        found->is_freed = false;
    }
}

/* The graph and its launches are gone. */
static void drop_graph_allocate(standin_operation *self) {
    standin_block *found = graph_block_at(self->to);
    if (found) {
        found->is_orphan = true;
        release_graph_block_if_done(found);
    }
}

static void free_graph_block(standin_block *freed) {
    freed->is_freed = true;
    release_graph_block_if_done(freed);
}

static void run_graph_free(const standin_operation *self) {
    standin_block *found = graph_block_at(self->to);
    if (found) {
        free_graph_block(found);
    }
}

static cudaError_t allocate_in_graph(uint64_t size_bytes, standin_stream *stream,
                                     gml_address *out) {
    standin_pool *pool = standin_graph_pool(stream->device);
    standin_block *taken = take_somehow(pool, size_bytes, stream);
    if (!taken) {
        return cudaErrorMemoryAllocation;
    }
    count_used(taken);
    taken->is_of_graph = true;
    taken->is_launched = taken->is_freed = taken->is_orphan = false;
    standin_operation node = {
        .run = run_graph_allocate,
        .drop = drop_graph_allocate,
        .to = taken->node.address,
    };
    gml_address address = taken->node.address;
    TRY(standin_submit(stream, &node));
    *out = address;
    return cudaSuccess;
}

cudaError_t standin_pool_allocate(standin_pool *pool, uint64_t size_bytes, standin_stream *stream,
                                  gml_address *out) {
    if (size_bytes > UINT64_MAX / 2) {
        return cudaErrorMemoryAllocation;
    }
    uint64_t block_bytes = gml_round_up(size_bytes, STANDIN_BLOCK_GRANULE_BYTES);
    if (stream->capture) {
        return allocate_in_graph(block_bytes, stream, out);
    }
    standin_block *taken = take_somehow(pool, block_bytes, stream);
    if (!taken) {
        return cudaErrorMemoryAllocation;
    }
    count_used(taken);
    *out = taken->node.address;
    return cudaSuccess;
}

/* ---- freeing --------------------------------------------------------------------------------- */

bool standin_pool_owns(gml_address address) {
    return standin_block_at(address) != NULL;
}

/* The stream has come to the call of cudaFreeAsync number `from`: what is left of its block is
 * free. */
static void run_free(const standin_operation *self) {
    standin_block *next = NULL;
    for (standin_block *freed = standin_first_leaving(); freed; freed = next) {
        next = standin_next_leaving(freed);
        if (freed->free_call == self->from) {
            standin_check_unused(self->name, freed->node.address, freed->node.size_bytes);
            standin_block_release(freed);
        }
    }
}

static cudaError_t free_in_order(standin_block *freed, standin_stream *stream) {
    standin_operation operation = {
        .run = freed->is_of_graph ? run_graph_free : run_free,
        .to = freed->node.address,
        .from = ++frees_called,
    };
    if (freed->is_of_graph) {
        return standin_submit(stream, &operation);
    }
    if (stream->capture) {
        standin_misuse("cudaFreeAsync: the block at 0x%" PRIx64 " was not allocated in the capture "
                       "that frees it",
                       freed->node.address);
        return cudaErrorInvalidValue;
    }
    /* The block may be gone when the call has been submitted. */
    standin_pool *pool = freed->pool;
    uint64_t size_bytes = freed->node.size_bytes;
    standin_block_leave(freed, stream->number, operation.from);
    pool->used_bytes -= size_bytes;
    return standin_submit(stream, &operation);
}

cudaError_t standin_pool_free(gml_address address, standin_stream *stream) {
    standin_block *freed = standin_block_at(address);
    if (!freed || freed->state == STANDIN_BLOCK_LEAVING) {
        standin_misuse("free: the block at 0x%" PRIx64 " was given to cudaFreeAsync before",
                       address);
        return cudaErrorInvalidValue;
    }
    if (stream) {
        return free_in_order(freed, stream);
    }
    standin_check_unused("cudaFree", address, freed->node.size_bytes);
    if (freed->is_of_graph) {
        free_graph_block(freed);
    } else {
        freed->pool->used_bytes -= freed->node.size_bytes;
        standin_block_release(freed);
    }
    return cudaSuccess;
}
