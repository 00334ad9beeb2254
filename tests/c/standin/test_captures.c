/* Captures: where they begin and end, what breaks one, and what one forbids to whom. */
#include "stream_fixture.h"

#include <pthread.h>

STREAM_CASE(a_fork_must_be_joined) {
    cudaGraph_t graph = (cudaGraph_t)(uintptr_t)fix;
    OK(cudaStreamBeginCapture(fix->first, cudaStreamCaptureModeRelaxed));
    OK(put(fix, fix->first, 0, 1));
    OK(cudaEventRecord(fix->begun, fix->first));
    OK(cudaStreamWaitEvent(fix->second, fix->begun, 0));
    OK(put(fix, fix->second, 0, 1));
    CHECK_EQ(cudaStreamEndCapture(fix->first, &graph), cudaErrorStreamCaptureUnjoined);
    CHECK(!graph);
    CHECK_EQ(status_of(fix->second), cudaStreamCaptureStatusNone);
    CHECK_EQ(cudaEventQuery(fix->begun), cudaErrorInvalidValue);
    OK(cudaEventRecord(fix->begun, fix->first));
    OK(cudaEventQuery(fix->begun));
}

/* The capture of the first stream was broken; ends it. */
static void check_broken(const fixture *fix) {
    cudaGraph_t graph = (cudaGraph_t)(uintptr_t)fix;
    CHECK_EQ(status_of(fix->first), cudaStreamCaptureStatusInvalidated);
    CHECK_EQ(put(fix, fix->first, 0, 1), cudaErrorStreamCaptureInvalidated);
    CHECK_EQ(cudaStreamEndCapture(fix->first, &graph), cudaErrorStreamCaptureInvalidated);
    CHECK(!graph);
    CHECK_EQ(status_of(fix->first), cudaStreamCaptureStatusNone);
    OK(put(fix, fix->first, 0, 0));
    OK(cudaStreamSynchronize(fix->first));
}

STREAM_CASE(asking_about_captured_work_breaks_the_capture) {
    begin(fix, cudaStreamCaptureModeRelaxed);
    CHECK_EQ(cudaStreamSynchronize(fix->first), cudaErrorStreamCaptureUnsupported);
    check_broken(fix);
    begin(fix, cudaStreamCaptureModeRelaxed);
    CHECK_EQ(cudaStreamQuery(fix->first), cudaErrorStreamCaptureUnsupported);
    check_broken(fix);
    begin(fix, cudaStreamCaptureModeRelaxed);
    CHECK_EQ(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
    check_broken(fix);
    begin(fix, cudaStreamCaptureModeRelaxed);
    OK(cudaEventRecord(fix->begun, fix->first));
    CHECK_EQ(cudaEventQuery(fix->begun), cudaErrorCapturedEvent);
    check_broken(fix);
    OK(cudaEventRecord(fix->ended, fix->second));
    begin(fix, cudaStreamCaptureModeRelaxed);
    CHECK_EQ(cudaStreamWaitEvent(fix->first, fix->ended, 0), cudaErrorStreamCaptureIsolation);
    check_broken(fix);
}

static cudaError_t allocate_and_free(void) {
    void *block;
    cudaError_t error = cudaMalloc(&block, BUFFER_BYTES);
    return error == cudaSuccess ? cudaFree(block) : error;
}

/* Takes the mode of the thread, and stores what allocating in that mode answers. */
static void *allocate_elsewhere(void *context) {
    int *told = context;
    enum cudaStreamCaptureMode mode = (enum cudaStreamCaptureMode) * told;
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    CHECK_EQ(mode, cudaStreamCaptureModeGlobal);
    *told = (int)allocate_and_free();
    return NULL;
}

static int allocate_on_another_thread(enum cudaStreamCaptureMode mode) {
    pthread_t thread;
    int told = (int)mode;
    CHECK_EQ(pthread_create(&thread, NULL, allocate_elsewhere, &told), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    return told;
}

STREAM_CASE(the_mode_says_who_may_allocate) {
    const enum cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeGlobal,
                                                cudaStreamCaptureModeThreadLocal,
                                                cudaStreamCaptureModeRelaxed};
    for (int of_capture = 0; of_capture < 3; of_capture++) {
        for (int of_thread = 0; of_thread < 3; of_thread++) {
            cudaGraph_t graph;
            begin(fix, modes[of_capture]);
            bool is_refused = of_capture == 0 && of_thread == 0;
            CHECK_EQ(allocate_on_another_thread(modes[of_thread]),
                     is_refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
            CHECK_EQ(cudaStreamEndCapture(fix->first, &graph),
                     is_refused ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
            (void)cudaGraphDestroy(graph);
        }
        begin(fix, modes[of_capture]);
        bool is_refused = of_capture != 2;
        CHECK_EQ(allocate_and_free(), is_refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
        CHECK_EQ(status_of(fix->first),
                 is_refused ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive);
        cudaGraph_t graph;
        (void)cudaStreamEndCapture(fix->first, &graph);
        (void)cudaGraphDestroy(graph);
    }
    enum cudaStreamCaptureMode relaxed = cudaStreamCaptureModeRelaxed;
    begin(fix, cudaStreamCaptureModeGlobal);
    OK(cudaThreadExchangeStreamCaptureMode(&relaxed));
    OK(allocate_and_free());
    OK(cudaThreadExchangeStreamCaptureMode(&relaxed));
    CHECK_EQ(allocate_and_free(), cudaErrorStreamCaptureUnsupported);
    check_broken(fix);
}

static void *end_elsewhere(void *stream) {
    cudaGraph_t graph;
    CHECK_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureWrongThread);
    return NULL;
}

STREAM_CASE(a_capture_ends_on_its_thread) {
    cudaGraph_t graph = NULL;
    pthread_t thread;
    begin(fix, cudaStreamCaptureModeThreadLocal);
    OK(put(fix, fix->first, 0, 1));
    CHECK_EQ(pthread_create(&thread, NULL, end_elsewhere, fix->first), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    OK(cudaStreamEndCapture(fix->first, &graph));
    OK(cudaGraphDestroy(graph));
}

STREAM_CASE(captures_begin_and_end_where_they_may) {
    cudaGraph_t graph;
    CHECK_EQ(cudaStreamBeginCapture(NULL, cudaStreamCaptureModeGlobal),
             cudaErrorStreamCaptureUnsupported);
    CHECK_EQ(cudaStreamEndCapture(fix->first, &graph), cudaErrorIllegalState);
    begin(fix, cudaStreamCaptureModeRelaxed);
    CHECK_EQ(cudaStreamBeginCapture(fix->first, cudaStreamCaptureModeRelaxed),
             cudaErrorIllegalState);
    OK(put(fix, fix->first, 0, 1));
    OK(cudaEventRecord(fix->begun, fix->first));
    OK(cudaStreamWaitEvent(fix->second, fix->begun, 0));
    CHECK_EQ(cudaStreamEndCapture(fix->second, &graph), cudaErrorStreamCaptureUnmatched);
    check_broken(fix);
    begin(fix, cudaStreamCaptureModeRelaxed);
    OK(cudaStreamBeginCapture(fix->second, cudaStreamCaptureModeRelaxed));
    OK(cudaEventRecord(fix->begun, fix->first));
    CHECK_EQ(cudaStreamWaitEvent(fix->second, fix->begun, 0), cudaErrorStreamCaptureMerge);
    CHECK_EQ(cudaStreamEndCapture(fix->second, &graph), cudaErrorStreamCaptureInvalidated);
    check_broken(fix);
}

STREAM_CASE(a_capture_can_be_looked_into) {
    enum cudaStreamCaptureStatus status;
    unsigned long long id = 0, next_id = 0;
    cudaGraph_t inside = NULL, graph = NULL;
    const cudaGraphNode_t *after;
    size_t count = 9;
    begin(fix, cudaStreamCaptureModeRelaxed);
    OK(put(fix, fix->first, 0, 1));
    OK(cudaStreamGetCaptureInfo(fix->first, &status, &id, &inside, &after, NULL, &count));
    CHECK_EQ(status, cudaStreamCaptureStatusActive);
    CHECK_EQ(count, 1);
    CHECK_EQ(cudaGraphDestroy(inside), cudaErrorInvalidValue);
    OK(cudaStreamEndCapture(fix->first, &graph));
    CHECK(graph == inside);
    OK(cudaGraphDestroy(graph));
    begin(fix, cudaStreamCaptureModeRelaxed);
    OK(cudaStreamGetCaptureInfo(fix->first, &status, &next_id, NULL, NULL, NULL, NULL));
    CHECK(next_id != id);
    OK(cudaStreamEndCapture(fix->first, &graph));
    OK(cudaGraphDestroy(graph));
}

int main(void) {
    return run_cases("eager", true);
}
