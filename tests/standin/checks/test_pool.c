/* Stream-ordered memory: when a block may be used again, what a pool holds, and misuse. */
#include "memory_support.h"

static uint64_t
attribute_of(cudaMemPool_t pool, enum cudaMemPoolAttr attribute)
{
    cuuint64_t value = 0;
    CHECK_CUDA(cudaMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static uint64_t
used(cudaMemPool_t pool)
{
    return attribute_of(pool, cudaMemPoolAttrUsedMemCurrent);
}

static uint64_t
reserved(cudaMemPool_t pool)
{
    return attribute_of(pool, cudaMemPoolAttrReservedMemCurrent);
}

static void
set_threshold(cudaMemPool_t pool, cuuint64_t threshold)
{
    CHECK_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
}

static cudaMemPool_t
default_pool(void)
{
    cudaMemPool_t pool = NULL;
    CHECK_CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
    return pool;
}

static char *
allocate(uint64_t size_bytes, cudaStream_t stream)
{
    char *memory = NULL;
    CHECK_CUDA(cudaMallocAsync((void **)&memory, size_bytes, stream));
    return memory;
}

TEST(pools_count_what_they_hold)
{
    cudaMemPool_t pool = default_pool();
    CHECK_EQ(used(pool), 0);
    CHECK_EQ(reserved(pool), 0);
    char *first = allocate(1000, NULL);
    char *second = allocate(3 * MIB, NULL);
    CHECK_EQ(used(pool), 1024 + 3 * MIB);
    CHECK(reserved(pool) >= used(pool));
    CHECK_EQ(free_bytes(), CAPACITY_BYTES - reserved(pool));
    CHECK_CUDA(cudaFreeAsync(first, NULL));
    CHECK_CUDA(cudaFree(second));
    CHECK_EQ(used(pool), 0);
    CHECK_EQ(attribute_of(pool, cudaMemPoolAttrUsedMemHigh), 1024 + 3 * MIB);
    CHECK_EQ(attribute_of(pool, cudaMemPoolAttrReservedMemHigh), reserved(pool));
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_EQ(reserved(pool), 0); /* the release threshold is 0 */
    CHECK_EQ(free_bytes(), CAPACITY_BYTES);
    cuuint64_t zero = 0;
    cuuint64_t one = 1;
    CHECK_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero));
    CHECK_EQ(attribute_of(pool, cudaMemPoolAttrUsedMemHigh), 0);
    CHECK_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &one),
             cudaErrorInvalidValue);
    CHECK_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &zero),
             cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

TEST(memory_is_kept_up_to_the_threshold)
{
    cudaMemPool_t pool = default_pool();
    cudaStream_t stream = new_stream();
    set_threshold(pool, 64 * MIB);
    char *blocks[3];
    for (int i = 0; i < 3; i++) {
        blocks[i] = allocate(32 * MIB, stream);
    }
    CHECK_EQ(reserved(pool), 96 * MIB);
    for (int i = 0; i < 3; i++) {
        CHECK_CUDA(cudaFreeAsync(blocks[i], stream));
    }
    CHECK_EQ(reserved(pool), 96 * MIB); /* nobody has waited yet */
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_EQ(reserved(pool), 64 * MIB);
    CHECK_CUDA(cudaMemPoolTrimTo(pool, 33 * MIB));
    CHECK_EQ(reserved(pool), 64 * MIB);
    CHECK_CUDA(cudaMemPoolTrimTo(pool, 32 * MIB));
    CHECK_EQ(reserved(pool), 32 * MIB);
    char *kept = allocate(512, stream);
    CHECK_CUDA(cudaMemPoolTrimTo(pool, 0));
    CHECK_EQ(reserved(pool), 32 * MIB);
    CHECK_CUDA(cudaFreeAsync(kept, stream));
    CHECK_CUDA(cudaMemPoolTrimTo(pool, 0));
    CHECK_EQ(reserved(pool), 0);
    set_threshold(pool, 0);
    CHECK_CUDA(cudaStreamDestroy(stream));
}

TEST(another_stream_waits_until_the_free_has_happened)
{
    set_pace("manual");
    cudaMemPool_t pool = default_pool();
    cudaStream_t first = new_stream();
    cudaStream_t second = new_stream();
    set_threshold(pool, UINT64_MAX);
    char *freed = allocate(32 * MIB, first);
    CHECK_CUDA(cudaMemsetAsync(freed, 1, 32 * MIB, first));
    CHECK_CUDA(cudaFreeAsync(freed, first));
    char *early = allocate(32 * MIB, second);
    CHECK(early != freed);
    CHECK_EQ(reserved(pool), 64 * MIB);
    CHECK_EQ(gmlake_standin_advance(first, 1), 0);
    char *still_early = allocate(32 * MIB, second);
    CHECK(still_early != freed);
    CHECK_EQ(gmlake_standin_advance(first, 1), 0);
    char *late = allocate(32 * MIB, second);
    CHECK(late == freed);
    CHECK_EQ(reserved(pool), 96 * MIB);
    CHECK_CUDA(cudaFreeAsync(early, second));
    CHECK_CUDA(cudaFreeAsync(still_early, second));
    CHECK_CUDA(cudaFreeAsync(late, second));
    set_threshold(pool, 0);
    CHECK_CUDA(cudaStreamSynchronize(second));
    CHECK_EQ(reserved(pool), 0);
    CHECK_CUDA(cudaStreamDestroy(first));
    CHECK_CUDA(cudaStreamDestroy(second));
    set_pace("eager");
}

TEST(each_free_happens_for_itself)
{
    set_pace("manual");
    cudaStream_t first = new_stream();
    cudaStream_t second = new_stream();
    char *one = allocate(32 * MIB, first);
    char *two = allocate(32 * MIB, first);
    CHECK_CUDA(cudaFreeAsync(one, first));
    CHECK_CUDA(cudaFreeAsync(two, first));
    CHECK_EQ(gmlake_standin_advance(first, 1), 0);
    char *reused = allocate(32 * MIB, second);
    char *fresh = allocate(32 * MIB, second);
    CHECK(reused == one);
    CHECK(fresh != two);
    CHECK_CUDA(cudaFreeAsync(reused, second));
    CHECK_CUDA(cudaFreeAsync(fresh, second));
    CHECK_CUDA(cudaStreamDestroy(first));
    CHECK_CUDA(cudaStreamDestroy(second));
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_EQ(reserved(default_pool()), 0);
    set_pace("eager");
}

TEST(the_same_stream_uses_memory_again_at_once)
{
    set_pace("manual");
    cudaMemPool_t pool = default_pool();
    cudaStream_t stream = new_stream();
    uint64_t misuses = gmlake_standin_misuses();
    char *freed = allocate(32 * MIB, stream);
    CHECK_CUDA(cudaMemsetAsync(freed, 1, 32 * MIB, stream));
    CHECK_CUDA(cudaFreeAsync(freed, stream));
    char *again = allocate(8 * MIB, stream);
    char *rest = allocate(24 * MIB, stream);
    CHECK(again == freed);
    CHECK(rest == freed + 8 * MIB);
    CHECK_EQ(reserved(pool), 32 * MIB);
    CHECK_CUDA(cudaMemsetAsync(again, 2, 8 * MIB, stream));
    CHECK_CUDA(cudaFreeAsync(rest, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    /* The first free has happened, and took nothing from who had the memory by then. */
    CHECK_EQ(used(pool), 8 * MIB);
    CHECK_EQ(reserved(pool), 32 * MIB);
    CHECK_CUDA(cudaFreeAsync(again, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_EQ(reserved(pool), 0);
    CHECK_EQ(gmlake_standin_misuses(), misuses);
    CHECK_CUDA(cudaStreamDestroy(stream));
    set_pace("eager");
}

TEST(a_pooled_block_freed_in_flight_is_found)
{
    set_pace("manual");
    cudaStream_t user = new_stream();
    cudaStream_t other = new_stream();
    char *memory = allocate(MIB, user);
    CHECK_CUDA(cudaMemsetAsync(memory, 1, MIB, user));
    CHECK_CUDA(cudaFreeAsync(memory, other));
    CHECK_MISUSE(gmlake_standin_advance(other, 1), 0);
    memory = allocate(MIB, user);
    CHECK_CUDA(cudaMemsetAsync(memory, 1, MIB, user));
    CHECK_MISUSE(cudaFree(memory), cudaSuccess);
    CHECK_CUDA(cudaStreamDestroy(user));
    CHECK_CUDA(cudaStreamDestroy(other));
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_EQ(reserved(default_pool()), 0);
    set_pace("eager");
}

TEST(wrong_frees_are_found)
{
    set_pace("manual");
    cudaStream_t stream = new_stream();
    char *memory = allocate(MIB, stream);
    CHECK_MISUSE(cudaFreeAsync(memory + 512, stream), cudaErrorInvalidValue);
    CHECK_CUDA(cudaFreeAsync(memory, stream));
    CHECK_MISUSE(cudaFreeAsync(memory, stream), cudaErrorInvalidValue);
    CHECK_MISUSE(cudaFree(memory), cudaErrorInvalidValue);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_MISUSE(cudaFreeAsync(memory, stream), cudaErrorInvalidValue);
    CHECK_CUDA(cudaFreeAsync(NULL, stream));
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_EQ(cudaFreeAsync(memory, stream), cudaErrorInvalidResourceHandle);
    (void)cudaGetLastError();
    set_pace("eager");
}

TEST(pools_end_at_the_capacity)
{
    void *memory = NULL;
    void *plain = device_memory(200 * MIB);
    CHECK_EQ(cudaMallocAsync(&memory, 57 * MIB, NULL), cudaErrorMemoryAllocation);
    CHECK_EQ(cudaMallocAsync(&memory, SIZE_MAX, NULL), cudaErrorMemoryAllocation);
    CHECK_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
    char *all = allocate(56 * MIB, NULL);
    CHECK_EQ(free_bytes(), 0);
    CHECK_CUDA(cudaFreeAsync(all, NULL));
    CHECK_CUDA(cudaFree(plain));
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_EQ(free_bytes(), CAPACITY_BYTES);
}

TEST(memory_that_is_short_is_waited_for)
{
    set_pace("manual");
    cudaMemPool_t pool = default_pool();
    cudaStream_t first = new_stream();
    cudaStream_t second = new_stream();
    int is_on = 0;
    void *memory = NULL;
    char *freed = allocate(200 * MIB, first);
    CHECK_CUDA(cudaFreeAsync(freed, first));
    CHECK_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &is_on));
    CHECK_EQ(cudaMallocAsync(&memory, 100 * MIB, second), cudaErrorMemoryAllocation);
    is_on = 1;
    CHECK_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &is_on));
    CHECK_CUDA(cudaMallocAsync(&memory, 100 * MIB, second));
    CHECK_EQ(gmlake_standin_pending(first), 0);
    CHECK_CUDA(cudaFreeAsync(memory, second));
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_EQ(free_bytes(), CAPACITY_BYTES);
    CHECK_CUDA(cudaStreamDestroy(first));
    CHECK_CUDA(cudaStreamDestroy(second));
    (void)cudaGetLastError();
    set_pace("eager");
}

static cudaMemPool_t
new_pool(uint64_t most_bytes)
{
    cudaMemPool_t pool = NULL;
    struct cudaMemPoolProps properties = {
        .allocType = cudaMemAllocationTypePinned,
        .location = {.type = cudaMemLocationTypeDevice, .id = 0},
        .maxSize = most_bytes,
    };
    CHECK_CUDA(cudaMemPoolCreate(&pool, &properties));
    return pool;
}

TEST(a_program_has_pools_of_its_own)
{
    cudaMemPool_t own = new_pool(40 * MIB);
    cudaMemPool_t current = NULL;
    void *memory = NULL;
    CHECK_CUDA(cudaDeviceSetMemPool(0, own));
    CHECK_CUDA(cudaDeviceGetMemPool(&current, 0));
    CHECK(current == own);
    char *block = allocate(MIB, NULL);
    CHECK_EQ(used(own), MIB);
    CHECK_EQ(used(default_pool()), 0);
    CHECK_EQ(cudaMallocAsync(&memory, 40 * MIB, NULL), cudaErrorMemoryAllocation);
    CHECK_CUDA(cudaMallocFromPoolAsync(&memory, MIB, default_pool(), NULL));
    CHECK_EQ(used(default_pool()), MIB);
    CHECK_CUDA(cudaMemPoolDestroy(own));
    CHECK_EQ(cudaMemPoolDestroy(own), cudaErrorInvalidValue);
    CHECK_CUDA(cudaDeviceGetMemPool(&current, 0));
    CHECK(current == default_pool());
    /* What is left of it goes with its last block. */
    CHECK_CUDA(cudaFreeAsync(memory, NULL));
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(free_bytes() < CAPACITY_BYTES);
    CHECK_CUDA(cudaFreeAsync(block, NULL));
    CHECK_EQ(free_bytes(), CAPACITY_BYTES);
    CHECK_EQ(cudaMemPoolDestroy(default_pool()), cudaErrorInvalidValue);
    CHECK_EQ(cudaDeviceSetMemPool(1, default_pool()), cudaErrorInvalidValue);
    CHECK_EQ(cudaDeviceGetMemPool(&current, 2), cudaErrorInvalidDevice);
    CHECK_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

TEST(pools_do_not_mix)
{
    set_pace("manual");
    cudaMemPool_t own = new_pool(0);
    cudaStream_t stream = new_stream();
    void *memory = NULL;
    CHECK_CUDA(cudaMallocFromPoolAsync(&memory, MIB, own, stream));
    CHECK_CUDA(cudaFreeAsync(memory, stream));
    char *other = allocate(MIB, stream);
    CHECK(other != memory);
    CHECK_CUDA(cudaFreeAsync(other, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    /* What one holds idle goes back when another runs out. */
    set_threshold(own, UINT64_MAX);
    CHECK_CUDA(cudaMallocFromPoolAsync(&memory, 200 * MIB, own, stream));
    CHECK_CUDA(cudaFreeAsync(memory, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK(reserved(own) >= 200 * MIB);
    other = allocate(100 * MIB, stream);
    CHECK_EQ(reserved(own), 0);
    CHECK_CUDA(cudaFreeAsync(other, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaMemPoolDestroy(own));
    CHECK_CUDA(cudaStreamDestroy(stream));
    set_pace("eager");
}

TEST(pools_are_opened_to_other_devices)
{
    cudaMemPool_t pool = default_pool();
    struct cudaMemAccessDesc wanted = {
        .location = {.type = cudaMemLocationTypeDevice, .id = 1},
        .flags = cudaMemAccessFlagsProtReadWrite,
    };
    enum cudaMemAccessFlags flags = cudaMemAccessFlagsProtRead;
    CHECK_CUDA(cudaMemPoolGetAccess(&flags, pool, &wanted.location));
    CHECK_EQ(flags, cudaMemAccessFlagsProtNone);
    CHECK_CUDA(cudaMemPoolSetAccess(pool, &wanted, 1));
    CHECK_CUDA(cudaMemPoolGetAccess(&flags, pool, &wanted.location));
    CHECK_EQ(flags, cudaMemAccessFlagsProtReadWrite);
    wanted.location.id = 0;
    wanted.flags = cudaMemAccessFlagsProtNone;
    CHECK_EQ(cudaMemPoolSetAccess(pool, &wanted, 1), cudaErrorInvalidValue);
    CHECK_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

static uint64_t
graph_memory(enum cudaGraphMemAttributeType attribute)
{
    cuuint64_t value = 0;
    CHECK_CUDA(cudaDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

/* A graph that allocates, fills and, if asked to, frees; `block` receives the address. */
static cudaGraphExec_t
graph_with_memory(cudaStream_t stream, bool frees, char **block)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    *block = allocate(MIB, stream);
    CHECK_CUDA(cudaMemsetAsync(*block, 1, MIB, stream));
    if (frees) {
        CHECK_CUDA(cudaFreeAsync(*block, stream));
    }
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    CHECK_CUDA(cudaGraphDestroy(graph));
    return executable;
}

TEST(memory_of_a_graph_stays_with_it)
{
    cudaStream_t stream = new_stream();
    char *block = NULL;
    cudaGraphExec_t executable = graph_with_memory(stream, true, &block);
    CHECK_EQ(graph_memory(cudaGraphMemAttrUsedMemCurrent), MIB);
    CHECK_EQ(used(default_pool()), 0);
    for (int i = 0; i < 2; i++) {
        CHECK_CUDA(cudaGraphLaunch(executable, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        CHECK_EQ(graph_memory(cudaGraphMemAttrUsedMemCurrent), MIB);
    }
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_EQ(graph_memory(cudaGraphMemAttrUsedMemCurrent), 0);
    CHECK(graph_memory(cudaGraphMemAttrReservedMemCurrent) > 0);
    CHECK_CUDA(cudaDeviceGraphMemTrim(0));
    CHECK_EQ(graph_memory(cudaGraphMemAttrReservedMemCurrent), 0);
    CHECK_EQ(free_bytes(), CAPACITY_BYTES);
    CHECK_CUDA(cudaStreamDestroy(stream));
}

TEST(memory_that_a_graph_does_not_free_is_the_programs)
{
    cudaStream_t stream = new_stream();
    char *block = NULL;
    cudaGraphExec_t executable = graph_with_memory(stream, false, &block);
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaMemsetAsync(block, 2, MIB, stream));
    CHECK_EQ(graph_memory(cudaGraphMemAttrUsedMemCurrent), MIB);
    CHECK_CUDA(cudaFreeAsync(block, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_EQ(graph_memory(cudaGraphMemAttrUsedMemCurrent), 0);
    /* A launch after the program has freed it allocates it again. */
    executable = graph_with_memory(stream, false, &block);
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaFreeAsync(block, stream));
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_EQ(graph_memory(cudaGraphMemAttrUsedMemCurrent), MIB);
    CHECK_CUDA(cudaFree(block));
    CHECK_EQ(graph_memory(cudaGraphMemAttrUsedMemCurrent), 0);
    /* One that was never launched has allocated nothing. */
    executable = graph_with_memory(stream, false, &block);
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_EQ(graph_memory(cudaGraphMemAttrUsedMemCurrent), 0);
    CHECK_CUDA(cudaDeviceGraphMemTrim(0));
    CHECK_CUDA(cudaStreamDestroy(stream));
}

TEST(a_capture_cannot_free_what_it_did_not_allocate)
{
    cudaGraph_t graph = NULL;
    cudaStream_t stream = new_stream();
    void *plain = device_memory(MIB);
    char *pooled = allocate(MIB, stream);
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK_MISUSE(cudaFreeAsync(pooled, stream), cudaErrorInvalidValue);
    CHECK_MISUSE(cudaFreeAsync(plain, stream), cudaErrorInvalidValue);
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_CUDA(cudaFreeAsync(pooled, stream));
    CHECK_CUDA(cudaFree(plain));
    CHECK_CUDA(cudaStreamDestroy(stream));
    (void)cudaGetLastError();
}

/* Random traffic on three streams, whose work happens at random: blocks in use are disjoint, and in
 * the end everything comes back. */
enum { LIVE = 40, STREAMS = 3 };

typedef struct traffic {
    cudaStream_t streams[STREAMS];
    char *blocks[LIVE];
    uint64_t sizes[LIVE];
} traffic;

static void
check_disjoint(const traffic *all, size_t added)
{
    for (size_t i = 0; i < LIVE; i++) {
        if (i != added && all->blocks[i]) {
            CHECK(all->blocks[i] + all->sizes[i] <= all->blocks[added] ||
                  all->blocks[added] + all->sizes[added] <= all->blocks[i]);
        }
    }
}

static void
step(traffic *all, check_random *random)
{
    size_t i = check_below(random, LIVE);
    cudaStream_t stream = all->streams[check_below(random, STREAMS)];
    if (check_below(random, 4) == 0) {
        CHECK_EQ(gmlake_standin_advance(stream, 1 + check_below(random, 3)), 0);
    } else if (all->blocks[i]) {
        CHECK_CUDA(cudaFreeAsync(all->blocks[i], stream));
        all->blocks[i] = NULL;
    } else {
        all->sizes[i] = 1 + check_below(random, 4 * MIB);
        all->blocks[i] = allocate(all->sizes[i], stream);
        check_disjoint(all, i);
    }
}

TEST(random_traffic_adds_up)
{
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
        CHECK_CUDA(cudaFreeAsync(all.blocks[i], all.streams[0]));
    }
    CHECK_EQ(used(default_pool()), 0);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_EQ(reserved(default_pool()), 0);
    CHECK_EQ(free_bytes(), CAPACITY_BYTES);
    for (int i = 0; i < STREAMS; i++) {
        CHECK_CUDA(cudaStreamDestroy(all.streams[i]));
    }
    set_pace("eager");
}

static void
run_all(void)
{
    RUN(pools_count_what_they_hold);
    RUN(memory_is_kept_up_to_the_threshold);
    RUN(another_stream_waits_until_the_free_has_happened);
    RUN(each_free_happens_for_itself);
    RUN(the_same_stream_uses_memory_again_at_once);
    RUN(a_pooled_block_freed_in_flight_is_found);
    RUN(wrong_frees_are_found);
    RUN(pools_end_at_the_capacity);
    RUN(memory_that_is_short_is_waited_for);
    RUN(a_program_has_pools_of_its_own);
    RUN(pools_do_not_mix);
    RUN(pools_are_opened_to_other_devices);
    RUN(memory_of_a_graph_stays_with_it);
    RUN(memory_that_a_graph_does_not_free_is_the_programs);
    RUN(a_capture_cannot_free_what_it_did_not_allocate);
    RUN(random_traffic_adds_up);
}

int
main(void)
{
    return run_in_both_modes(run_all);
}
