/* Stream-ordered memory: when a block may be used again, what a pool holds, and misuse. */
#include "support.h"

static uint64_t attribute_of(cudaMemPool_t pool, enum cudaMemPoolAttr attribute) {
    cuuint64_t value = 0;
    OK(cudaMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static uint64_t used(cudaMemPool_t pool) {
    return attribute_of(pool, cudaMemPoolAttrUsedMemCurrent);
}

static uint64_t reserved(cudaMemPool_t pool) {
    return attribute_of(pool, cudaMemPoolAttrReservedMemCurrent);
}

static void set_threshold(cudaMemPool_t pool, cuuint64_t threshold) {
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
}

static cudaMemPool_t default_pool(void) {
    cudaMemPool_t pool = NULL;
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    return pool;
}

static char *allocate(uint64_t size_bytes, cudaStream_t stream) {
    char *memory = NULL;
    OK(cudaMallocAsync((void **)&memory, size_bytes, stream));
    return memory;
}

CASE(pools_count_what_they_hold) {
    cudaMemPool_t pool = default_pool();
    CHECK_EQ(used(pool), 0);
    CHECK_EQ(reserved(pool), 0);
    char *first = allocate(1000, NULL);
    char *second = allocate(3 * MIB, NULL);
    CHECK_EQ(used(pool), 1024 + 3 * MIB);
    CHECK(reserved(pool) >= used(pool));
    CHECK_EQ(free_bytes(), CAPACITY_BYTES - reserved(pool));
    OK(cudaFreeAsync(first, NULL));
    OK(cudaFree(second));
    CHECK_EQ(used(pool), 0);
    CHECK_EQ(attribute_of(pool, cudaMemPoolAttrUsedMemHigh), 1024 + 3 * MIB);
    CHECK_EQ(attribute_of(pool, cudaMemPoolAttrReservedMemHigh), reserved(pool));
    OK(cudaDeviceSynchronize());
    CHECK_EQ(reserved(pool), 0); /* the release threshold is 0 */
    CHECK_EQ(free_bytes(), CAPACITY_BYTES);
    cuuint64_t zero = 0, one = 1;
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero));
    CHECK_EQ(attribute_of(pool, cudaMemPoolAttrUsedMemHigh), 0);
    CHECK_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &one),
             cudaErrorInvalidValue);
}

CASE(memory_is_kept_up_to_the_threshold) {
    cudaMemPool_t pool = default_pool();
    cudaStream_t stream = new_stream();
    set_threshold(pool, 64 * MIB);
    char *blocks[3];
    for (int i = 0; i < 3; i++) {
        blocks[i] = allocate(32 * MIB, stream);
    }
    CHECK_EQ(reserved(pool), 96 * MIB);
    for (int i = 0; i < 3; i++) {
        OK(cudaFreeAsync(blocks[i], stream));
    }
    CHECK_EQ(reserved(pool), 96 * MIB); /* nobody has waited yet */
    OK(cudaStreamSynchronize(stream));
    CHECK_EQ(reserved(pool), 64 * MIB);
    OK(cudaMemPoolTrimTo(pool, 33 * MIB));
    CHECK_EQ(reserved(pool), 64 * MIB);
    OK(cudaMemPoolTrimTo(pool, 32 * MIB));
    CHECK_EQ(reserved(pool), 32 * MIB);
    char *kept = allocate(512, stream);
    OK(cudaMemPoolTrimTo(pool, 0));
    CHECK_EQ(reserved(pool), 32 * MIB);
    OK(cudaFreeAsync(kept, stream));
    OK(cudaMemPoolTrimTo(pool, 0));
    CHECK_EQ(reserved(pool), 0);
    set_threshold(pool, 0);
}

CASE(another_stream_waits_until_the_free_has_happened) {
    set_pace("manual");
    cudaMemPool_t pool = default_pool();
    cudaStream_t first = new_stream();
    cudaStream_t second = new_stream();
    set_threshold(pool, UINT64_MAX);
    char *freed = allocate(32 * MIB, first);
    OK(cudaMemsetAsync(freed, 1, 32 * MIB, first));
    OK(cudaFreeAsync(freed, first));
    char *early = allocate(32 * MIB, second);
    CHECK(early != freed);
    CHECK_EQ(reserved(pool), 64 * MIB);
    OK(gmlake_standin_advance(first, 1));
    char *still_early = allocate(32 * MIB, second);
    CHECK(still_early != freed);
    OK(gmlake_standin_advance(first, 1));
    char *late = allocate(32 * MIB, second);
    CHECK(late == freed);
    CHECK_EQ(reserved(pool), 96 * MIB);
    OK(cudaFreeAsync(early, second));
    OK(cudaFreeAsync(still_early, second));
    OK(cudaFreeAsync(late, second));
    set_threshold(pool, 0);
    OK(cudaStreamSynchronize(second));
    CHECK_EQ(reserved(pool), 0);
}

CASE(the_same_stream_uses_memory_again_at_once) {
    set_pace("manual");
    cudaMemPool_t pool = default_pool();
    cudaStream_t stream = new_stream();
    uint64_t misuses = gmlake_standin_misuses();
    char *freed = allocate(32 * MIB, stream);
    OK(cudaMemsetAsync(freed, 1, 32 * MIB, stream));
    OK(cudaFreeAsync(freed, stream));
    char *again = allocate(8 * MIB, stream);
    char *rest = allocate(24 * MIB, stream);
    CHECK(again == freed);
    CHECK(rest == freed + 8 * MIB);
    CHECK_EQ(reserved(pool), 32 * MIB);
    OK(cudaMemsetAsync(again, 2, 8 * MIB, stream));
    OK(cudaFreeAsync(rest, stream));
    OK(cudaStreamSynchronize(stream));
    /* The first free has happened, and took nothing from who had the memory by then. */
    CHECK_EQ(used(pool), 8 * MIB);
    CHECK_EQ(reserved(pool), 32 * MIB);
    OK(cudaFreeAsync(again, stream));
    OK(cudaStreamSynchronize(stream));
    CHECK_EQ(reserved(pool), 0);
    CHECK_EQ(gmlake_standin_misuses(), misuses);
}

CASE(a_pooled_block_freed_in_flight_is_found) {
    set_pace("manual");
    cudaStream_t user = new_stream();
    cudaStream_t other = new_stream();
    char *memory = allocate(MIB, user);
    OK(cudaMemsetAsync(memory, 1, MIB, user));
    OK(cudaFreeAsync(memory, other));
    CHECK_MISUSE(gmlake_standin_advance(other, 1), 0);
    memory = allocate(MIB, user);
    OK(cudaMemsetAsync(memory, 1, MIB, user));
    CHECK_MISUSE(cudaFree(memory), cudaSuccess);
    OK(cudaStreamDestroy(user));
    OK(cudaStreamDestroy(other));
    OK(cudaDeviceSynchronize());
    CHECK_EQ(reserved(default_pool()), 0);
}

CASE(wrong_frees_are_found) {
    set_pace("manual");
    cudaStream_t stream = new_stream();
    char *memory = allocate(MIB, stream);
    CHECK_MISUSE(cudaFreeAsync(memory + 512, stream), cudaErrorInvalidValue);
    OK(cudaFreeAsync(memory, stream));
    CHECK_MISUSE(cudaFreeAsync(memory, stream), cudaErrorInvalidValue);
    CHECK_MISUSE(cudaFree(memory), cudaErrorInvalidValue);
    OK(cudaStreamSynchronize(stream));
    CHECK_MISUSE(cudaFreeAsync(memory, stream), cudaErrorInvalidValue);
    OK(cudaFreeAsync(NULL, stream));
    OK(cudaStreamDestroy(stream));
    CHECK_EQ(cudaFreeAsync(memory, stream), cudaErrorInvalidResourceHandle);
}

CASE(pools_end_at_the_capacity) {
    void *memory = NULL;
    void *plain = device_memory(200 * MIB);
    CHECK_EQ(cudaMallocAsync(&memory, 57 * MIB, NULL), cudaErrorMemoryAllocation);
    CHECK_EQ(cudaMallocAsync(&memory, SIZE_MAX, NULL), cudaErrorMemoryAllocation);
    CHECK_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
    char *all = allocate(56 * MIB, NULL);
    CHECK_EQ(free_bytes(), 0);
    OK(cudaFreeAsync(all, NULL));
    OK(cudaFree(plain));
    OK(cudaDeviceSynchronize());
    CHECK_EQ(free_bytes(), CAPACITY_BYTES);
}

CASE(memory_that_is_short_is_waited_for) {
    set_pace("manual");
    cudaMemPool_t pool = default_pool();
    cudaStream_t first = new_stream();
    cudaStream_t second = new_stream();
    int is_on = 0;
    void *memory = NULL;
    char *freed = allocate(200 * MIB, first);
    OK(cudaFreeAsync(freed, first));
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &is_on));
    CHECK_EQ(cudaMallocAsync(&memory, 100 * MIB, second), cudaErrorMemoryAllocation);
    is_on = 1;
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &is_on));
    OK(cudaMallocAsync(&memory, 100 * MIB, second));
    CHECK_EQ(gmlake_standin_pending(first), 0);
    OK(cudaFreeAsync(memory, second));
    OK(cudaDeviceSynchronize());
    CHECK_EQ(free_bytes(), CAPACITY_BYTES);
}

static uint64_t graph_memory(enum cudaGraphMemAttributeType attribute) {
    cuuint64_t value = 0;
    OK(cudaDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

/* A graph that allocates, fills and, if asked to, frees; `block` receives the address. */
static cudaGraphExec_t graph_with_memory(cudaStream_t stream, bool frees, char **block) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    *block = allocate(MIB, stream);
    OK(cudaMemsetAsync(*block, 1, MIB, stream));
    if (frees) {
        OK(cudaFreeAsync(*block, stream));
    }
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&executable, graph, 0));
    OK(cudaGraphDestroy(graph));
    return executable;
}

CASE(memory_of_a_graph_stays_with_it) {
    cudaStream_t stream = new_stream();
    char *block = NULL;
    cuuint64_t none = 0;
    OK(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &none));
    CHECK_EQ(graph_memory(cudaGraphMemAttrUsedMemHigh), 0);
    cudaGraphExec_t executable = graph_with_memory(stream, true, &block);
    CHECK_EQ(graph_memory(cudaGraphMemAttrUsedMemCurrent), MIB);
    CHECK_EQ(used(default_pool()), 0);
    for (int i = 0; i < 2; i++) {
        OK(cudaGraphLaunch(executable, stream));
        OK(cudaStreamSynchronize(stream));
        CHECK_EQ(graph_memory(cudaGraphMemAttrUsedMemCurrent), MIB);
    }
    OK(cudaGraphExecDestroy(executable));
    CHECK_EQ(graph_memory(cudaGraphMemAttrUsedMemCurrent), 0);
    CHECK(graph_memory(cudaGraphMemAttrReservedMemCurrent) > 0);
    OK(cudaDeviceGraphMemTrim(0));
    CHECK_EQ(graph_memory(cudaGraphMemAttrReservedMemCurrent), 0);
    CHECK_EQ(graph_memory(cudaGraphMemAttrUsedMemHigh), MIB);
    CHECK(graph_memory(cudaGraphMemAttrReservedMemHigh) >= MIB);
    OK(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrReservedMemHigh, &none));
    CHECK_EQ(graph_memory(cudaGraphMemAttrReservedMemHigh), 0);
    CHECK_EQ(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &none),
             cudaErrorInvalidValue);
    CHECK_EQ(free_bytes(), CAPACITY_BYTES);
}

CASE(memory_that_a_graph_does_not_free_is_the_programs) {
    cudaStream_t stream = new_stream();
    char *block = NULL;
    cudaGraphExec_t executable = graph_with_memory(stream, false, &block);
    OK(cudaGraphLaunch(executable, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaGraphExecDestroy(executable));
    OK(cudaMemsetAsync(block, 2, MIB, stream));
    CHECK_EQ(graph_memory(cudaGraphMemAttrUsedMemCurrent), MIB);
    OK(cudaFreeAsync(block, stream));
    OK(cudaStreamSynchronize(stream));
    CHECK_EQ(graph_memory(cudaGraphMemAttrUsedMemCurrent), 0);
    /* A launch after the program has freed it allocates it again. */
    executable = graph_with_memory(stream, false, &block);
    OK(cudaGraphLaunch(executable, stream));
    OK(cudaFreeAsync(block, stream));
    OK(cudaGraphLaunch(executable, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaGraphExecDestroy(executable));
    CHECK_EQ(graph_memory(cudaGraphMemAttrUsedMemCurrent), MIB);
    OK(cudaFree(block));
    CHECK_EQ(graph_memory(cudaGraphMemAttrUsedMemCurrent), 0);
    /* One that was never launched has allocated nothing. */
    executable = graph_with_memory(stream, false, &block);
    OK(cudaGraphExecDestroy(executable));
    CHECK_EQ(graph_memory(cudaGraphMemAttrUsedMemCurrent), 0);
    OK(cudaDeviceGraphMemTrim(0));
}

CASE(a_capture_cannot_free_what_it_did_not_allocate) {
    cudaGraph_t graph = NULL;
    cudaStream_t stream = new_stream();
    void *plain = device_memory(MIB);
    char *pooled = allocate(MIB, stream);
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK_MISUSE(cudaFreeAsync(pooled, stream), cudaErrorInvalidValue);
    CHECK_MISUSE(cudaFreeAsync(plain, stream), cudaErrorInvalidValue);
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphDestroy(graph));
    OK(cudaFreeAsync(pooled, stream));
}

/* Random traffic on three streams, whose work happens at random: blocks in use are disjoint, and in
 * the end everything comes back. */
enum { LIVE = 40, STREAMS = 3 };

typedef struct traffic {
    cudaStream_t streams[STREAMS];
    char *blocks[LIVE];
    uint64_t sizes[LIVE];
} traffic;

static void check_disjoint(const traffic *all, size_t added) {
    for (size_t i = 0; i < LIVE; i++) {
        if (i != added && all->blocks[i]) {
            CHECK(all->blocks[i] + all->sizes[i] <= all->blocks[added] ||
                  all->blocks[added] + all->sizes[added] <= all->blocks[i]);
        }
    }
}

static void step(traffic *all, check_random *random) {
    size_t i = check_below(random, LIVE);
    cudaStream_t stream = all->streams[check_below(random, STREAMS)];
    if (check_below(random, 4) == 0) {
        CHECK_EQ(gmlake_standin_advance(stream, 1 + check_below(random, 3)), 0);
    } else if (all->blocks[i]) {
        OK(cudaFreeAsync(all->blocks[i], stream));
        all->blocks[i] = NULL;
    } else {
        all->sizes[i] = 1 + check_below(random, 4 * MIB);
        all->blocks[i] = allocate(all->sizes[i], stream);
        check_disjoint(all, i);
    }
}

CASE(random_traffic_adds_up) {
    traffic all = {0};
    check_random random = {.state = 2};
    uint64_t used_bytes = 0;
    set_pace("manual");
    for (int i = 0; i < STREAMS; i++) {
        all.streams[i] = new_stream();
    }
    for (int round = 0; round < 5000; round++) {
        step(&all, &random);
    }
    for (size_t i = 0; i < LIVE; i++) {
        used_bytes += all.blocks[i] ? (all.sizes[i] + 511) / 512 * 512 : 0;
    }
    CHECK(used(default_pool()) >= used_bytes);
    for (size_t i = 0; i < LIVE; i++) {
        OK(cudaFreeAsync(all.blocks[i], all.streams[0]));
    }
    CHECK_EQ(used(default_pool()), 0);
    OK(cudaDeviceSynchronize());
    CHECK_EQ(reserved(default_pool()), 0);
    CHECK_EQ(free_bytes(), CAPACITY_BYTES);
    for (int i = 0; i < STREAMS; i++) {
        OK(cudaStreamDestroy(all.streams[i]));
    }
}

int main(void) {
    return run_cases("eager", false);
}
