/* Two streams, two events and some memory, as the tests of streams and of graphs want them. */
#ifndef GML_STANDIN_STREAM_FIXTURE_H
#define GML_STANDIN_STREAM_FIXTURE_H

#include "support.h"

enum { BUFFER_BYTES = 4096 };

typedef struct fixture {
    cudaStream_t first, second;
    cudaEvent_t begun, ended; /* with timing */
    unsigned char *buffer;    /* zeros, on device 0 */
} fixture;

static inline fixture set_up(void) {
    fixture fix = {.first = NULL};
    OK(cudaSetDevice(0));
    fix.first = new_stream();
    fix.second = new_stream();
    fix.buffer = device_memory(BUFFER_BYTES);
    OK(cudaEventCreate(&fix.begun));
    OK(cudaEventCreate(&fix.ended));
    OK(cudaMemset(fix.buffer, 0, BUFFER_BYTES));
    return fix;
}

static inline void tear_down(const fixture *fix) {
    OK(cudaSetDevice(0));
    OK(cudaEventDestroy(fix->begun));
    OK(cudaEventDestroy(fix->ended));
}

/* A test with a fixture, `fix`. */
#define STREAM_CASE(name)                                                                          \
    static void name(fixture *fix);                                                                \
    CASE(name) {                                                                                   \
        fixture own = set_up();                                                                    \
        name(&own);                                                                                \
        tear_down(&own);                                                                           \
    }                                                                                              \
    static void name(fixture __attribute__((unused)) * fix)

/* One operation: byte number `at` of the buffer becomes `value`. */
static inline cudaError_t put(const fixture *fix, cudaStream_t stream, int at, int value) {
    return cudaMemsetAsync(fix->buffer + at, value, 1, stream);
}

/* What the byte is now. Waits for a stream of its own only. */
static inline int look(const fixture *fix, int at) {
    unsigned char value = 0;
    cudaStream_t stream = NULL;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMemcpyAsync(&value, fix->buffer + at, 1, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaStreamDestroy(stream));
    return value;
}

static inline enum cudaStreamCaptureStatus status_of(cudaStream_t stream) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    OK(cudaStreamIsCapturing(stream, &status));
    return status;
}

static inline void begin(const fixture *fix, enum cudaStreamCaptureMode mode) {
    OK(cudaStreamBeginCapture(fix->first, mode));
}

#endif
