/* Two streams, two events and some memory, as the tests of streams and of graphs want them. */
#ifndef GML_STANDIN_STREAM_FIXTURE_H
#define GML_STANDIN_STREAM_FIXTURE_H

#include "support.h"

typedef struct fixture {
    cudaStream_t first, second;
    cudaEvent_t begun, ended; /* with timing */
    unsigned char *buffer;    /* zeros, on device 0 */
} fixture;

/* A test with a fixture, `fix`. */

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

static inline void begin(const fixture *fix, enum cudaStreamCaptureMode mode) {
    OK(cudaStreamBeginCapture(fix->first, mode));
}

#endif
