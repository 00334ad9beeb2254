/* Stream-ordered memory: when it goes back, what a pool says, and memory of a graph. */
#include "support.h"

static uint64_t used_bytes(enum cudaMemPoolAttr attribute) {
    cudaMemPool_t pool = NULL;
    cuuint64_t value = 0;
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    OK(cudaMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

CASE(a_block_goes_back_when_the_stream_gets_there) {
    cudaStream_t stream = new_stream();
    uint64_t free_before = free_bytes();
    void *block = NULL;
    OK(cudaMallocAsync(&block, 64 * MIB, stream));
    CHECK_EQ(used_bytes(cudaMemPoolAttrUsedMemCurrent), 64 * MIB);
    set_pace("manual");
    OK(cudaFreeAsync(block, stream));
    CHECK_EQ(used_bytes(cudaMemPoolAttrUsedMemCurrent), 0);
    CHECK_EQ(used_bytes(cudaMemPoolAttrUsedMemHigh), 64 * MIB);
    CHECK_EQ(free_bytes(), free_before - 64 * MIB);
    CHECK_EQ(cudaFreeAsync(block, stream), cudaErrorInvalidValue);
    OK(cudaStreamSynchronize(stream));
    CHECK_EQ(free_bytes(), free_before);
}

CASE(what_is_freed_in_order_serves_who_finds_no_memory) {
    cudaStream_t stream = new_stream();
    void *block = NULL;
    set_pace("manual");
    for (int i = 0; i < 4; i++) {
        OK(cudaMallocAsync(&block, 200 * MIB, stream));
        OK(cudaFreeAsync(block, stream));
    }
    OK(cudaStreamSynchronize(stream));
    CHECK_EQ(cudaMallocAsync(&block, 300 * MIB, stream), cudaErrorMemoryAllocation);
}

CASE(memory_of_a_graph_stays_as_long_as_the_graph) {
    cudaStream_t stream = new_stream();
    uint64_t free_before = free_bytes();
    void *inside = NULL, *kept = NULL;
    cudaGraph_t graph = NULL;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(cudaMallocAsync(&inside, 32 * MIB, stream));
    OK(cudaMallocAsync(&kept, 16 * MIB, stream));
    OK(cudaFreeAsync(inside, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    CHECK_EQ(free_bytes(), free_before - 48 * MIB);
    OK(cudaGraphDestroy(graph));
    CHECK_EQ(free_bytes(), free_before - 16 * MIB);
    OK(cudaFreeAsync(kept, stream));
    OK(cudaStreamSynchronize(stream));
    CHECK_EQ(free_bytes(), free_before);
}

int main(void) {
    return run_cases("eager", false);
}
