/* Streams, events and functions of the host: what is pending when, and what orders it. */
#include "stream_fixture.h"

#include <pthread.h>

/* Asks until the event has happened; how often it had not. */
static int poll(cudaEvent_t event) {
    int asked = 0;
    while (asked < 100 && cudaEventQuery(event) == cudaErrorNotReady) {
        asked++;
    }
    return asked;
}

/* ---- streams and events ---------------------------------------------------------------------- */

STREAM_CASE(eager_work_is_done_at_once) {
    OK(put(fix, fix->first, 0, 7));
    OK(cudaEventRecord(fix->begun, fix->first));
    CHECK_EQ(gmlake_standin_pending(fix->first), 0);
    OK(cudaStreamQuery(fix->first));
    OK(cudaEventQuery(fix->begun));
    CHECK_EQ(look(fix, 0), 7);
}

STREAM_CASE(eager_work_takes_what_waited_for_it_along) {
    set_pace("manual");
    OK(cudaEventRecord(fix->begun, fix->first));
    OK(cudaStreamWaitEvent(fix->second, fix->begun, 0));
    set_pace("eager");
    OK(put(fix, fix->second, 0, 7));
    CHECK_EQ(gmlake_standin_pending(fix->second), 0);
    CHECK_EQ(look(fix, 0), 7);
}

STREAM_CASE(lag_keeps_the_newest_pending) {
    OK(gmlake_standin_set_pace("lag", 3));
    for (int i = 0; i < 5; i++) {
        OK(put(fix, fix->first, i, 1));
    }
    CHECK_EQ(gmlake_standin_pending(fix->first), 3);
    CHECK_EQ(look(fix, 1), 1);
    CHECK_EQ(look(fix, 2), 0);
    OK(cudaStreamSynchronize(fix->first));
    CHECK_EQ(gmlake_standin_pending(fix->first), 0);
    CHECK_EQ(look(fix, 4), 1);
}

STREAM_CASE(polling_ends_under_lag) {
    OK(gmlake_standin_set_pace("lag", 8));
    OK(put(fix, fix->first, 0, 1));
    OK(cudaEventRecord(fix->begun, fix->first));
    OK(cudaStreamWaitEvent(fix->second, fix->begun, 0));
    OK(cudaEventRecord(fix->ended, fix->second));
    CHECK_EQ(poll(fix->ended), 4); /* the work, the recording, the wait, the recording */
    OK(put(fix, fix->first, 1, 1));
    CHECK_EQ(cudaStreamQuery(fix->first), cudaErrorNotReady);
    OK(cudaStreamQuery(fix->first));
}

STREAM_CASE(manual_work_waits_for_the_test) {
    set_pace("manual");
    OK(put(fix, fix->first, 0, 1));
    OK(cudaEventRecord(fix->begun, fix->first));
    CHECK_EQ(poll(fix->begun), 100);
    CHECK_EQ(cudaStreamQuery(fix->first), cudaErrorNotReady);
    OK(gmlake_standin_advance(fix->first, 1));
    CHECK_EQ(cudaEventQuery(fix->begun), cudaErrorNotReady);
    OK(gmlake_standin_advance(fix->first, 1));
    OK(cudaEventQuery(fix->begun));
}

STREAM_CASE(a_chain_of_waits_crosses_streams_and_devices) {
    set_pace("manual");
    OK(cudaSetDevice(1));
    cudaStream_t far = new_stream();
    cudaEvent_t passed;
    OK(cudaEventCreateWithFlags(&passed, cudaEventDisableTiming));
    OK(put(fix, fix->first, 0, 1));
    OK(cudaEventRecord(fix->begun, fix->first));
    OK(cudaStreamWaitEvent(far, fix->begun, 0));
    OK(cudaEventRecord(passed, far));
    OK(cudaStreamWaitEvent(fix->second, passed, 0));
    OK(put(fix, fix->second, 0, 2));
    OK(put(fix, fix->first, 1, 3)); /* after the recording: nobody waits for it */
    OK(gmlake_standin_advance(fix->second, 9));
    OK(gmlake_standin_advance(far, 9));
    CHECK_EQ(gmlake_standin_pending(fix->second), 2);
    OK(cudaStreamSynchronize(fix->second));
    CHECK_EQ(gmlake_standin_pending(far), 0);
    CHECK_EQ(gmlake_standin_pending(fix->first), 1);
    CHECK_EQ(look(fix, 0), 2);
    CHECK_EQ(look(fix, 1), 0);
    OK(cudaEventDestroy(passed));
}

STREAM_CASE(a_wait_refers_to_the_last_recording_before_it) {
    set_pace("manual");
    OK(cudaEventRecord(fix->begun, fix->first));
    OK(cudaStreamWaitEvent(fix->second, fix->begun, 0));
    OK(cudaEventRecord(fix->begun, fix->first));
    OK(gmlake_standin_advance(fix->first, 1));
    OK(gmlake_standin_advance(fix->second, 1));
    CHECK_EQ(gmlake_standin_pending(fix->second), 0);
    CHECK_EQ(cudaEventQuery(fix->begun), cudaErrorNotReady);
    OK(cudaStreamWaitEvent(fix->second, fix->begun, 0));
    OK(cudaEventDestroy(fix->begun)); /* what waits for it is not disturbed */
    OK(gmlake_standin_advance(fix->second, 1));
    CHECK_EQ(gmlake_standin_pending(fix->second), 1);
    OK(cudaEventCreate(&fix->begun));
    OK(cudaDeviceSynchronize());
    CHECK_EQ(gmlake_standin_pending(fix->second), 0);
}

STREAM_CASE(elapsed_time_counts_operations) {
    float milliseconds = -1;
    CHECK_EQ(cudaEventElapsedTime(&milliseconds, fix->begun, fix->ended),
             cudaErrorInvalidResourceHandle); /* never recorded */
    set_pace("manual");
    OK(cudaEventRecord(fix->begun, fix->first));
    OK(put(fix, fix->first, 0, 1));
    OK(put(fix, fix->first, 0, 2));
    OK(cudaEventRecord(fix->ended, fix->first));
    OK(gmlake_standin_advance(fix->first, 3));
    CHECK_EQ(cudaEventElapsedTime(&milliseconds, fix->begun, fix->ended), cudaErrorNotReady);
    OK(cudaEventSynchronize(fix->ended));
    OK(cudaEventElapsedTime(&milliseconds, fix->begun, fix->ended));
    CHECK(milliseconds > 0.0029F && milliseconds < 0.0031F);
    /* Recorded anew, and the former recording is done last: the time is that of the new one. */
    OK(cudaEventRecord(fix->ended, fix->first));
    OK(cudaEventRecord(fix->begun, fix->second));
    OK(cudaEventRecord(fix->ended, fix->second));
    OK(cudaStreamSynchronize(fix->second));
    OK(cudaStreamSynchronize(fix->first));
    OK(cudaEventElapsedTime(&milliseconds, fix->begun, fix->ended));
    CHECK(milliseconds > 0.0009F && milliseconds < 0.0011F);
}

STREAM_CASE(destroying_a_stream_lets_its_work_finish) {
    set_pace("manual");
    OK(put(fix, fix->first, 0, 1));
    OK(cudaEventRecord(fix->begun, fix->first));
    OK(cudaStreamWaitEvent(fix->second, fix->begun, 0));
    OK(put(fix, fix->second, 1, 1));
    OK(cudaStreamDestroy(fix->first));
    CHECK_EQ(look(fix, 0), 1);
    OK(cudaEventQuery(fix->begun));
    OK(cudaStreamSynchronize(fix->second));
    CHECK_EQ(look(fix, 1), 1);
    fix->first = new_stream();
}

STREAM_CASE(unknown_handles_are_refused) {
    static const char nothing[64];
    cudaEvent_t no_event = (cudaEvent_t)(uintptr_t)nothing;
    cudaStream_t gone = new_stream();
    OK(cudaStreamDestroy(gone));
    CHECK_EQ(cudaStreamDestroy(gone), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaMemsetAsync(fix->buffer, 0, 1, gone), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaStreamDestroy(cudaStreamLegacy), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaEventRecord(no_event, fix->first), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaGraphLaunch((cudaGraphExec_t)(uintptr_t)nothing, fix->first),
             cudaErrorInvalidValue);
    OK(cudaSetDevice(1));
    CHECK_EQ(cudaEventRecord(fix->begun, NULL), cudaErrorInvalidResourceHandle); /* of device 0 */
}

static void *submit_until_told(void *told) {
    fixture fix = set_up();
    while (!atomic_load((atomic_bool *)told)) {
        OK(put(&fix, fix.first, 0, 1));
        OK(cudaEventRecord(fix.begun, fix.first));
        OK(cudaStreamSynchronize(fix.first));
    }
    tear_down(&fix);
    return NULL;
}

/* A child finds every lock free, and counts what it does itself alone. */
static int run_child(void) {
    void *memory = NULL;
    uint64_t count = 0;
    const char *name = "";
    (void)alarm(200);
    for (uint64_t i = 0; name; i++) {
        count += gmlake_standin_calls(i, &name);
    }
    bool is_well = count == 0 && cudaMalloc(&memory, 64) == cudaSuccess &&
                   cudaFree(memory) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess;
    return is_well ? 0 : 1;
}

CASE(a_forked_child_goes_on) {
    atomic_bool is_told = false;
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, submit_until_told, &is_told), 0);
    for (int i = 0; i < 50; i++) {
        int status = -1;
        pid_t child = fork();
        if (child == 0) {
            _exit(run_child());
        }
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
    }
    atomic_store(&is_told, true);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

/* ---- functions of the host ------------------------------------------------------------------- */

static atomic_int calls;
static cudaStream_t called_with;

static void count_call(void *amount) {
    /* Would never return if the lock were held. */
    int device;
    (void)cudaGetDevice(&device);
    (void)cudaStreamQuery(NULL);
    atomic_fetch_add(&calls, *(int *)amount);
}

static atomic_bool has_begun;

static void count_slowly(void *amount) {
    atomic_store(&has_begun, true);
    (void)usleep(50000);
    count_call(amount);
}

static void remember_stream(cudaStream_t stream, cudaError_t status, void *amount) {
    called_with = stream;
    atomic_fetch_add(&calls, status == cudaSuccess ? *(int *)amount : 0);
}

STREAM_CASE(host_functions_run_in_their_turn) {
    int one = 1, ten = 10;
    atomic_store(&calls, 0);
    OK(cudaLaunchHostFunc(fix->first, count_call, &one));
    CHECK_EQ(atomic_load(&calls), 1);
    set_pace("manual");
    OK(cudaLaunchHostFunc(fix->first, count_call, &one));
    OK(cudaStreamAddCallback(fix->first, remember_stream, &ten, 0));
    CHECK_EQ(atomic_load(&calls), 1);
    OK(gmlake_standin_advance(fix->first, 1));
    CHECK_EQ(atomic_load(&calls), 2);
    OK(cudaLaunchHostFunc(fix->first, count_call, &one));
    OK(cudaStreamSynchronize(fix->first));
    CHECK_EQ(atomic_load(&calls), 13);
    CHECK(called_with == fix->first);
    CHECK_EQ(cudaLaunchHostFunc(fix->first, NULL, NULL), cudaErrorInvalidValue);
}

static void *launch_slow_function(void *stream) {
    static int one = 1;
    return cudaLaunchHostFunc(stream, count_slowly, &one) == cudaSuccess ? NULL : stream;
}

STREAM_CASE(synchronising_waits_for_functions_of_other_threads) {
    atomic_store(&calls, 0);
    pthread_t thread;
    void *failed;
    CHECK_EQ(pthread_create(&thread, NULL, launch_slow_function, fix->first), 0);
    while (!atomic_load(&has_begun)) {
        (void)usleep(1000);
    }
    OK(cudaStreamSynchronize(fix->first));
    int seen = atomic_load(&calls);
    CHECK_EQ(pthread_join(thread, &failed), 0);
    CHECK(!failed);
    CHECK_EQ(seen, 1);
}

int main(void) {
    return run_cases("eager", true);
}
