/* Two streams, two events and some memory, as the tests of streams and of graphs want them. */
#ifndef GML_TESTS_STANDIN_STREAM_FIXTURE_H
#define GML_TESTS_STANDIN_STREAM_FIXTURE_H

#include "rig/control.h"
#include "support/check.h"

#include <stdlib.h>

#define CHECK_SUCCESS(call) CHECK_EQ(call, cudaSuccess)

enum { BUFFER_BYTES = 4096 };

typedef struct fixture {
    cudaStream_t first, second;
    cudaEvent_t begun, ended; /* with timing */
    unsigned char *buffer;    /* zeros, on device 0 */
} fixture;

static inline cudaStream_t
new_stream(void)
{
    cudaStream_t stream = NULL;
    CHECK_SUCCESS(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static inline fixture
set_up(void)
{
    fixture fix = {.first = NULL};
    CHECK_EQ(gmlake_standin_set_pace("eager", 0), 0);
    CHECK_SUCCESS(cudaSetDevice(0));
    fix.first = new_stream();
    fix.second = new_stream();
    CHECK_SUCCESS(cudaEventCreate(&fix.begun));
    CHECK_SUCCESS(cudaEventCreate(&fix.ended));
    CHECK_SUCCESS(cudaMalloc((void **)&fix.buffer, BUFFER_BYTES));
    CHECK_SUCCESS(cudaMemset(fix.buffer, 0, BUFFER_BYTES));
    return fix;
}

static inline void
tear_down(fixture *fix)
{
    CHECK_SUCCESS(cudaSetDevice(0));
    CHECK_SUCCESS(cudaEventDestroy(fix->begun));
    CHECK_SUCCESS(cudaEventDestroy(fix->ended));
    CHECK_SUCCESS(cudaStreamDestroy(fix->first));
    CHECK_SUCCESS(cudaStreamDestroy(fix->second));
    CHECK_SUCCESS(cudaFree(fix->buffer));
}

/* One operation: byte number `at` of the buffer becomes `value`. */
static inline cudaError_t
put(const fixture *fix, cudaStream_t stream, int at, int value)
{
    return cudaMemsetAsync(fix->buffer + at, value, 1, stream);
}

/* What the byte is now. Waits for a stream of its own only. */
static inline int
look(const fixture *fix, int at)
{
    unsigned char value = 0;
    cudaStream_t stream = new_stream();
    CHECK_SUCCESS(cudaMemcpyAsync(&value, fix->buffer + at, 1, cudaMemcpyDeviceToHost, stream));
    CHECK_SUCCESS(cudaStreamSynchronize(stream));
    CHECK_SUCCESS(cudaStreamDestroy(stream));
    return value;
}

static inline enum cudaStreamCaptureStatus
status_of(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CHECK_SUCCESS(cudaStreamIsCapturing(stream, &status));
    return status;
}

static inline void
begin(const fixture *fix, enum cudaStreamCaptureMode mode)
{
    CHECK_SUCCESS(cudaStreamBeginCapture(fix->first, mode));
}

/* Before the first call: two small devices whose memory has bytes. */
static inline void
use_two_devices(void)
{
    /* NOLINTBEGIN(concurrency-mt-unsafe): no other thread is running */
    (void)setenv("GMLAKE_STANDIN_DEVICES", "2", 1);
    (void)setenv("GMLAKE_STANDIN_CAPACITY", "64MiB", 1);
    (void)setenv("GMLAKE_STANDIN_BACKED", "1", 1);
    /* NOLINTEND(concurrency-mt-unsafe) */
}

#endif
