/* Copies and fills: what moves and when, what the caller may change, and touching what is not
 * there. Without bytes, device memory reads as zeros, but for what was just copied to it. */
#include "support.h"

enum { SIZE = 3000 };

/* What device memory reads as after `value` was written to it. */
static int seen(int value) {
    return is_backed() ? value : 0;
}

CASE(bytes_go_through_the_device) {
    unsigned char host[SIZE];
    char *first = device_memory(MIB);
    char *second = device_memory(MIB);
    memset(host, 5, SIZE);
    OK(cudaMemcpy(first + 100, host, SIZE, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(second + 7, first + 100, SIZE, cudaMemcpyDeviceToDevice));
    memset(host, 77, SIZE);
    OK(cudaMemcpy(host, second + 7, SIZE, cudaMemcpyDefault));
    CHECK(holds_value(host, seen(5), SIZE));
    OK(cudaMemcpy(host, second + 7 + SIZE, SIZE, cudaMemcpyDeviceToHost));
    CHECK(holds_value(host, 0, SIZE));
    OK(cudaMemset(first, 0x1ff, MIB));
    OK(cudaMemcpy(host, first + MIB - SIZE, SIZE, cudaMemcpyDeviceToHost));
    CHECK(holds_value(host, seen(0xff), SIZE));
}

CASE(bytes_go_from_host_to_host_at_once) {
    set_pace("manual");
    unsigned char pageable[SIZE];
    unsigned char *pinned = pinned_memory(SIZE);
    cudaStream_t stream = new_stream();
    memset(pageable, 3, SIZE);
    OK(cudaMemcpyAsync(pinned, pageable, SIZE, cudaMemcpyHostToHost, stream));
    CHECK(holds_value(pinned, 3, SIZE));
}

CASE(work_happens_in_stream_order) {
    set_pace("manual");
    cudaStream_t stream = new_stream();
    unsigned char *pinned = pinned_memory(SIZE);
    void *memory = device_memory(SIZE);
    memset(pinned, 77, SIZE);
    OK(cudaMemsetAsync(memory, 1, SIZE, stream));
    OK(cudaMemcpyAsync(pinned, memory, SIZE, cudaMemcpyDeviceToHost, stream));
    OK(cudaMemsetAsync(memory, 2, SIZE, stream));
    CHECK_EQ(gmlake_standin_pending(stream), 3);
    CHECK(holds_value(pinned, 77, SIZE));
    OK(gmlake_standin_advance(stream, 1));
    CHECK(holds_value(pinned, 77, SIZE));
    OK(gmlake_standin_advance(stream, 1));
    CHECK(holds_value(pinned, seen(1), SIZE));
    OK(cudaMemcpyAsync(pinned, memory, SIZE, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    CHECK(holds_value(pinned, seen(2), SIZE));
}

CASE(pageable_sources_are_kept_and_pinned_ones_are_not) {
    set_pace("manual");
    cudaStream_t stream = new_stream();
    unsigned char pageable[SIZE];
    unsigned char back[SIZE];
    unsigned char *pinned = pinned_memory(SIZE);
    char *memory = device_memory(sizeof pageable + sizeof back);
    memset(pageable, 1, SIZE);
    memset(pinned, 1, SIZE);
    OK(cudaMemcpyAsync(memory, pageable, SIZE, cudaMemcpyHostToDevice, stream));
    OK(cudaMemcpyAsync(memory + SIZE, pinned, SIZE, cudaMemcpyHostToDevice, stream));
    CHECK_EQ(gmlake_standin_pending(stream), 2);
    memset(pageable, 2, SIZE);
    memset(pinned, 2, SIZE);
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy(back, memory, SIZE, cudaMemcpyDeviceToHost));
    CHECK(holds_value(back, 1, SIZE));
    OK(cudaMemcpy(back, memory + SIZE, SIZE, cudaMemcpyDeviceToHost));
    CHECK(holds_value(back, 2, SIZE));
}

CASE(copies_to_pageable_memory_are_done_on_return) {
    set_pace("manual");
    cudaStream_t stream = new_stream();
    unsigned char pageable[SIZE];
    void *memory = device_memory(SIZE);
    memset(pageable, 77, SIZE);
    OK(cudaMemsetAsync(memory, 4, SIZE, stream));
    OK(cudaMemcpyAsync(pageable, memory, SIZE, cudaMemcpyDeviceToHost, stream));
    CHECK(holds_value(pageable, seen(4), SIZE));
    CHECK_EQ(gmlake_standin_pending(stream), 0);
}

CASE(rows_move_with_their_pitch) {
    enum { WIDTH = 10, ROWS = 4, HOST_PITCH = 16, PITCH = 64 };
    unsigned char host[HOST_PITCH * ROWS];
    unsigned char flat[PITCH * ROWS];
    char *memory = device_memory(sizeof flat);
    memset(host, 6, sizeof host);
    OK(cudaMemset(memory, 1, sizeof flat));
    OK(cudaMemcpy2DAsync(memory, PITCH, host, HOST_PITCH, WIDTH, ROWS, cudaMemcpyHostToDevice,
                         NULL));
    OK(cudaMemcpy(flat, memory, sizeof flat, cudaMemcpyDeviceToHost));
    for (size_t row = 0; row < ROWS; row++) {
        CHECK(holds_value(flat + row * PITCH, seen(6), WIDTH));
        CHECK(holds_value(flat + row * PITCH + WIDTH, seen(1), PITCH - WIDTH));
    }
    memset(host, 77, sizeof host);
    OK(cudaMemcpy2DAsync(host, HOST_PITCH, memory, PITCH, WIDTH, ROWS, cudaMemcpyDeviceToHost,
                         NULL));
    for (size_t row = 0; row < ROWS; row++) {
        CHECK(holds_value(host + row * HOST_PITCH, seen(6), WIDTH));
        CHECK(holds_value(host + row * HOST_PITCH + WIDTH, 77, HOST_PITCH - WIDTH));
    }
    CHECK_EQ(cudaMemcpy2DAsync(memory, WIDTH - 1, host, HOST_PITCH, WIDTH, ROWS, cudaMemcpyDefault,
                               NULL),
             cudaErrorInvalidPitchValue);
}

CASE(devices_copy_to_each_other) {
    unsigned char host[SIZE];
    void *first = device_memory(SIZE);
    OK(cudaSetDevice(1));
    void *second = device_memory(SIZE);
    OK(cudaSetDevice(0));
    OK(cudaMemset(first, 9, SIZE));
    OK(cudaMemcpyPeerAsync(second, 1, first, 0, SIZE, NULL));
    OK(cudaMemset(first, 0, SIZE));
    OK(cudaMemcpyPeerAsync(first, 0, second, 1, SIZE, NULL));
    OK(cudaMemcpy(host, first, SIZE, cudaMemcpyDeviceToHost));
    CHECK(holds_value(host, seen(9), SIZE));
    CHECK_MISUSE(cudaMemcpyPeerAsync(second, 0, first, 0, SIZE, NULL), cudaErrorInvalidValue);
}

CASE(kinds_must_fit_the_addresses) {
    char host[64] = {0};
    char *memory = device_memory(64);
    char *pinned = pinned_memory(64);
    CHECK_MISUSE(cudaMemcpy(host, memory, 64, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    OK(cudaMemcpy(host, memory, 64, cudaMemcpyHostToHost));
    CHECK_MISUSE(cudaMemcpy(memory, host, 64, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
    CHECK_EQ(cudaMemcpy(memory, NULL, 64, cudaMemcpyDefault), cudaErrorInvalidValue);
    CHECK_EQ(cudaGetLastError(), cudaErrorInvalidValue);
    /* Page-locked memory belongs to both. */
    OK(cudaMemcpy(memory, pinned, 64, cudaMemcpyDeviceToDevice));
    OK(cudaMemcpy(pinned, memory, 64, cudaMemcpyDeviceToHost));
    OK(cudaMemcpy(NULL, NULL, 0, cudaMemcpyHostToDevice));
    OK(cudaMemsetAsync(NULL, 0, 0, NULL));
}

CASE(touching_what_is_not_there_is_found) {
    char host[2048] = {0};
    char *pinned = pinned_memory(1024);
    char *memory = device_memory(1024);
    CHECK_MISUSE(cudaMemcpy(memory, host, 1025, cudaMemcpyHostToDevice), cudaErrorIllegalAddress);
    CHECK_MISUSE(cudaMemcpy(host, memory + 1, 1024, cudaMemcpyDeviceToHost),
                 cudaErrorIllegalAddress);
    CHECK_MISUSE(cudaMemset(memory + 1000, 0, 25), cudaErrorIllegalAddress);
    CHECK_MISUSE(cudaMemcpy(pinned + 1, memory, 1024, cudaMemcpyDeviceToHost),
                 cudaErrorInvalidValue);
    CHECK_MISUSE(cudaMemset(host, 0, 8), cudaErrorInvalidValue);
    OK(cudaFree(memory));
    CHECK_MISUSE(cudaMemcpy(memory, host, 8, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    CHECK_MISUSE(cudaMemcpy(host, memory, 8, cudaMemcpyDefault), cudaErrorInvalidValue);
    CHECK_MISUSE(cudaMemset(memory, 0, 8), cudaErrorInvalidValue);
}

CASE(touching_unmapped_memory_is_found) {
    char host[64] = {0};
    CUdeviceptr address = new_reservation(2);
    char *memory = (char *)(uintptr_t)address;
    CHECK_MISUSE(cudaMemcpy(memory, host, 64, cudaMemcpyHostToDevice), cudaErrorIllegalAddress);
    map_granule(address);
    OK(cudaMemset(memory, 3, 64));
    OK(cudaMemcpy(host, memory, 64, cudaMemcpyDeviceToHost));
    CHECK(holds_value(host, seen(3), 64));
    CHECK_MISUSE(cudaMemset(memory + GRANULE - 32, 0, 64), cudaErrorIllegalAddress);
    OK(cuMemUnmap(address, GRANULE));
    OK(cuMemAddressFree(address, 2 * GRANULE));
}

CASE(graphs_copy_when_they_run) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    static unsigned char source[SIZE];
    unsigned char *pinned = pinned_memory(SIZE);
    void *memory = device_memory(SIZE);
    cudaStream_t stream = new_stream();
    memset(source, 1, SIZE);
    memset(pinned, 77, SIZE);
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(cudaMemcpyAsync(memory, source, SIZE, cudaMemcpyHostToDevice, stream));
    OK(cudaMemcpyAsync(pinned, memory, SIZE, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&executable, graph, 0));
    OK(cudaGraphDestroy(graph));
    CHECK(holds_value(pinned, 77, SIZE));
    for (int value = 2; value < 4; value++) {
        memset(source, value, SIZE);
        OK(cudaGraphLaunch(executable, stream));
        OK(cudaStreamSynchronize(stream));
        CHECK(holds_value(pinned, value, SIZE));
    }
    OK(cudaGraphExecDestroy(executable));
}

/* As the start-up code of a library with device code does. */
/* NOLINTNEXTLINE(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
void __cudaRegisterVar(void **module, char *host_variable, char *device_address, const char *name,
                       int is_extern, size_t size, int is_constant, int is_global);

CASE(variables_of_kernels_can_be_copied) {
    static char shadow[64], unknown[64];
    unsigned char value[16];
    char *place = NULL;
    __cudaRegisterVar(NULL, shadow, shadow, "shadow", 0, sizeof shadow, 1, 0);
    memset(value, 5, sizeof value);
    OK(cudaGetSymbolAddress((void **)&place, shadow));
    OK(cudaMemcpyToSymbol(shadow, value, 16, 48, cudaMemcpyHostToDevice));
    memset(value, 77, sizeof value);
    OK(cudaMemcpy(value, place + 40, 16, cudaMemcpyDeviceToHost));
    CHECK(holds_value(value, 0, 8));
    CHECK(holds_value(value + 8, seen(5), 8));
    CHECK_EQ(cudaMemcpyToSymbol(shadow, value, 16, 49, cudaMemcpyHostToDevice),
             cudaErrorInvalidValue);
    CHECK_EQ(cudaGetSymbolAddress((void **)&place, unknown), cudaErrorInvalidSymbol);
}

int main(void) {
    return run_cases("eager", false);
}
