/* Streams, events and functions of the host: what is pending when, and what orders it. */
#include "stream_fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

/* Asks until the event has happened; how often it had not. */
static int
poll(cudaEvent_t event)
{
    int asked = 0;
    while (asked < 100 && cudaEventQuery(event) == cudaErrorNotReady) {
        asked++;
    }
    return asked;
}

/* ---- streams and events ---------------------------------------------------------------------- */

TEST(eager_work_is_done_at_once)
{
    fixture fix = set_up();
    CHECK_SUCCESS(put(&fix, fix.first, 0, 7));
    CHECK_SUCCESS(cudaEventRecord(fix.begun, fix.first));
    CHECK_EQ(gmlake_standin_pending(fix.first), 0);
    CHECK_SUCCESS(cudaStreamQuery(fix.first));
    CHECK_SUCCESS(cudaEventQuery(fix.begun));
    CHECK_EQ(look(&fix, 0), 7);
    tear_down(&fix);
}

TEST(eager_work_takes_what_waited_for_it_along)
{
    fixture fix = set_up();
    CHECK_EQ(gmlake_standin_set_pace("manual", 0), 0);
    CHECK_SUCCESS(cudaEventRecord(fix.begun, fix.first));
    CHECK_SUCCESS(cudaStreamWaitEvent(fix.second, fix.begun, 0));
    CHECK_EQ(gmlake_standin_set_pace("eager", 0), 0);
    CHECK_SUCCESS(put(&fix, fix.second, 0, 7));
    CHECK_EQ(gmlake_standin_pending(fix.second), 0);
    CHECK_EQ(look(&fix, 0), 7);
    tear_down(&fix);
}

TEST(lag_keeps_the_newest_pending)
{
    fixture fix = set_up();
    CHECK_EQ(gmlake_standin_set_pace("lag", 3), 0);
    for (int i = 0; i < 5; i++) {
        CHECK_SUCCESS(put(&fix, fix.first, i, 1));
    }
    CHECK_EQ(gmlake_standin_pending(fix.first), 3);
    CHECK_EQ(look(&fix, 1), 1);
    CHECK_EQ(look(&fix, 2), 0);
    CHECK_SUCCESS(cudaStreamSynchronize(fix.first));
    CHECK_EQ(gmlake_standin_pending(fix.first), 0);
    CHECK_EQ(look(&fix, 4), 1);
    tear_down(&fix);
}

TEST(polling_ends_under_lag)
{
    fixture fix = set_up();
    CHECK_EQ(gmlake_standin_set_pace("lag", 8), 0);
    CHECK_SUCCESS(put(&fix, fix.first, 0, 1));
    CHECK_SUCCESS(cudaEventRecord(fix.begun, fix.first));
    CHECK_SUCCESS(cudaStreamWaitEvent(fix.second, fix.begun, 0));
    CHECK_SUCCESS(cudaEventRecord(fix.ended, fix.second));
    CHECK_EQ(poll(fix.ended), 4); /* the work, the recording, the wait, the recording */
    CHECK_SUCCESS(put(&fix, fix.first, 1, 1));
    CHECK_EQ(cudaStreamQuery(fix.first), cudaErrorNotReady);
    CHECK_SUCCESS(cudaStreamQuery(fix.first));
    tear_down(&fix);
}

TEST(manual_work_waits_for_the_test)
{
    fixture fix = set_up();
    CHECK_EQ(gmlake_standin_set_pace("manual", 0), 0);
    CHECK_SUCCESS(put(&fix, fix.first, 0, 1));
    CHECK_SUCCESS(cudaEventRecord(fix.begun, fix.first));
    CHECK_EQ(poll(fix.begun), 100);
    CHECK_EQ(cudaStreamQuery(fix.first), cudaErrorNotReady);
    CHECK_EQ(gmlake_standin_advance(fix.first, 1), 0);
    CHECK_EQ(cudaEventQuery(fix.begun), cudaErrorNotReady);
    CHECK_EQ(gmlake_standin_advance(fix.first, 1), 0);
    CHECK_SUCCESS(cudaEventQuery(fix.begun));
    tear_down(&fix);
}

TEST(a_chain_of_waits_crosses_streams_and_devices)
{
    fixture fix = set_up();
    CHECK_EQ(gmlake_standin_set_pace("manual", 0), 0);
    CHECK_SUCCESS(cudaSetDevice(1));
    cudaStream_t far = new_stream();
    cudaEvent_t passed;
    CHECK_SUCCESS(cudaEventCreateWithFlags(&passed, cudaEventDisableTiming));
    CHECK_SUCCESS(put(&fix, fix.first, 0, 1));
    CHECK_SUCCESS(cudaEventRecord(fix.begun, fix.first));
    CHECK_SUCCESS(cudaStreamWaitEvent(far, fix.begun, 0));
    CHECK_SUCCESS(cudaEventRecord(passed, far));
    CHECK_SUCCESS(cudaStreamWaitEvent(fix.second, passed, 0));
    CHECK_SUCCESS(put(&fix, fix.second, 0, 2));
    CHECK_SUCCESS(put(&fix, fix.first, 1, 3)); /* after the recording: nobody waits for it */
    CHECK_EQ(gmlake_standin_advance(fix.second, 9), 0);
    CHECK_EQ(gmlake_standin_advance(far, 9), 0);
    CHECK_EQ(gmlake_standin_pending(fix.second), 2);
    CHECK_SUCCESS(cudaStreamSynchronize(fix.second));
    CHECK_EQ(gmlake_standin_pending(far), 0);
    CHECK_EQ(gmlake_standin_pending(fix.first), 1);
    CHECK_EQ(look(&fix, 0), 2);
    CHECK_EQ(look(&fix, 1), 0);
    CHECK_SUCCESS(cudaEventDestroy(passed));
    CHECK_SUCCESS(cudaStreamDestroy(far));
    tear_down(&fix);
}

TEST(a_wait_refers_to_the_last_recording_before_it)
{
    fixture fix = set_up();
    CHECK_EQ(gmlake_standin_set_pace("manual", 0), 0);
    CHECK_SUCCESS(cudaEventRecord(fix.begun, fix.first));
    CHECK_SUCCESS(cudaStreamWaitEvent(fix.second, fix.begun, 0));
    CHECK_SUCCESS(cudaEventRecord(fix.begun, fix.first));
    CHECK_EQ(gmlake_standin_advance(fix.first, 1), 0);
    CHECK_EQ(gmlake_standin_advance(fix.second, 1), 0);
    CHECK_EQ(gmlake_standin_pending(fix.second), 0);
    CHECK_EQ(cudaEventQuery(fix.begun), cudaErrorNotReady);
    CHECK_SUCCESS(cudaStreamWaitEvent(fix.second, fix.begun, 0));
    CHECK_SUCCESS(cudaEventDestroy(fix.begun)); /* what waits for it is not disturbed */
    CHECK_EQ(gmlake_standin_advance(fix.second, 1), 0);
    CHECK_EQ(gmlake_standin_pending(fix.second), 1);
    CHECK_SUCCESS(cudaEventCreate(&fix.begun));
    CHECK_SUCCESS(cudaDeviceSynchronize());
    CHECK_EQ(gmlake_standin_pending(fix.second), 0);
    tear_down(&fix);
}

TEST(elapsed_time_counts_operations)
{
    fixture fix = set_up();
    float milliseconds = -1;
    CHECK_EQ(cudaEventElapsedTime(&milliseconds, fix.begun, fix.ended),
             cudaErrorInvalidResourceHandle); /* never recorded */
    CHECK_EQ(gmlake_standin_set_pace("manual", 0), 0);
    CHECK_SUCCESS(cudaEventRecord(fix.begun, fix.first));
    CHECK_SUCCESS(put(&fix, fix.first, 0, 1));
    CHECK_SUCCESS(put(&fix, fix.first, 0, 2));
    CHECK_SUCCESS(cudaEventRecord(fix.ended, fix.first));
    CHECK_EQ(gmlake_standin_advance(fix.first, 3), 0);
    CHECK_EQ(cudaEventElapsedTime(&milliseconds, fix.begun, fix.ended), cudaErrorNotReady);
    CHECK_SUCCESS(cudaEventSynchronize(fix.ended));
    CHECK_SUCCESS(cudaEventElapsedTime(&milliseconds, fix.begun, fix.ended));
    CHECK(milliseconds > 0.0029F && milliseconds < 0.0031F);
    CHECK_SUCCESS(cudaEventElapsedTime(&milliseconds, fix.ended, fix.begun));
    CHECK(milliseconds < -0.0029F && milliseconds > -0.0031F);
    /* Recorded anew, and the former recording is done last: the time is that of the new one. */
    CHECK_SUCCESS(cudaEventRecord(fix.ended, fix.first));
    CHECK_SUCCESS(cudaEventRecord(fix.begun, fix.second));
    CHECK_SUCCESS(cudaEventRecord(fix.ended, fix.second));
    CHECK_SUCCESS(cudaStreamSynchronize(fix.second));
    CHECK_SUCCESS(cudaStreamSynchronize(fix.first));
    CHECK_SUCCESS(cudaEventElapsedTime(&milliseconds, fix.begun, fix.ended));
    CHECK(milliseconds > 0.0009F && milliseconds < 0.0011F);
    cudaEvent_t untimed;
    CHECK_SUCCESS(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    CHECK_SUCCESS(cudaEventRecord(untimed, fix.first));
    CHECK_SUCCESS(cudaEventSynchronize(untimed));
    CHECK_EQ(cudaEventElapsedTime(&milliseconds, fix.begun, untimed),
             cudaErrorInvalidResourceHandle);
    CHECK_SUCCESS(cudaEventDestroy(untimed));
    tear_down(&fix);
}

TEST(destroying_a_stream_lets_its_work_finish)
{
    fixture fix = set_up();
    CHECK_EQ(gmlake_standin_set_pace("manual", 0), 0);
    CHECK_SUCCESS(put(&fix, fix.first, 0, 1));
    CHECK_SUCCESS(cudaEventRecord(fix.begun, fix.first));
    CHECK_SUCCESS(cudaStreamWaitEvent(fix.second, fix.begun, 0));
    CHECK_SUCCESS(put(&fix, fix.second, 1, 1));
    CHECK_SUCCESS(cudaStreamDestroy(fix.first));
    CHECK_EQ(look(&fix, 0), 1);
    CHECK_SUCCESS(cudaEventQuery(fix.begun));
    CHECK_SUCCESS(cudaStreamSynchronize(fix.second));
    CHECK_EQ(look(&fix, 1), 1);
    fix.first = new_stream();
    tear_down(&fix);
}

TEST(unknown_handles_are_refused)
{
    fixture fix = set_up();
    static const char nothing[64];
    cudaStream_t no_stream = (cudaStream_t)(uintptr_t)nothing;
    cudaEvent_t no_event = (cudaEvent_t)(uintptr_t)nothing;
    cudaStream_t gone = new_stream();
    CHECK_SUCCESS(cudaStreamDestroy(gone));
    CHECK_EQ(cudaStreamDestroy(gone), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaStreamQuery(gone), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaStreamSynchronize(no_stream), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaStreamDestroy(cudaStreamLegacy), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaEventRecord(no_event, fix.first), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaEventRecord(NULL, fix.first), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaStreamWaitEvent(fix.first, no_event, 0), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaEventQuery(no_event), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaGraphLaunch((cudaGraphExec_t)(uintptr_t)nothing, fix.first),
             cudaErrorInvalidValue);
    CHECK_EQ(cudaGraphDestroy((cudaGraph_t)(uintptr_t)nothing), cudaErrorInvalidValue);
    CHECK_SUCCESS(cudaSetDevice(1));
    CHECK_EQ(cudaEventRecord(fix.begun, NULL), cudaErrorInvalidResourceHandle); /* of device 0 */
    tear_down(&fix);
}

TEST(streams_say_what_they_are)
{
    fixture fix = set_up();
    cudaStream_t urgent;
    int least, greatest, priority;
    CHECK_SUCCESS(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CHECK(greatest < least);
    CHECK_SUCCESS(cudaSetDevice(1));
    CHECK_SUCCESS(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, greatest - 9));
    CHECK_SUCCESS(cudaStreamGetPriority(urgent, &priority));
    CHECK_EQ(priority, greatest);
    CHECK_SUCCESS(cudaSetDevice(0));
    CHECK_SUCCESS(cudaStreamDestroy(urgent));
    tear_down(&fix);
}

static void *
submit_until_told(void *told)
{
    fixture fix = set_up();
    while (!atomic_load((atomic_bool *)told)) {
        CHECK_SUCCESS(put(&fix, fix.first, 0, 1));
        CHECK_SUCCESS(cudaEventRecord(fix.begun, fix.first));
        CHECK_SUCCESS(cudaStreamSynchronize(fix.first));
    }
    tear_down(&fix);
    return NULL;
}

/* A child finds every lock free, and counts what it does itself alone. */
static int
run_child(void)
{
    void *memory = NULL;
    uint64_t count = 0;
    const char *name = "";
    (void)alarm(20);
    for (uint64_t i = 0; name; i++) {
        count += gmlake_standin_calls(i, &name);
    }
    bool is_well = count == 0 && cudaMalloc(&memory, 64) == cudaSuccess &&
                   cudaFree(memory) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess;
    return is_well ? 0 : 1;
}

TEST(a_forked_child_goes_on)
{
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

static void
count_call(void *amount)
{
    /* Would never return if the lock were held. */
    int device;
    (void)cudaGetDevice(&device);
    (void)cudaStreamQuery(NULL);
    atomic_fetch_add(&calls, *(int *)amount);
}

static atomic_bool has_begun;

static void
count_slowly(void *amount)
{
    atomic_store(&has_begun, true);
    (void)usleep(50000);
    count_call(amount);
}

static void
remember_stream(cudaStream_t stream, cudaError_t status, void *amount)
{
    called_with = stream;
    atomic_fetch_add(&calls, status == cudaSuccess ? *(int *)amount : 0);
}

TEST(host_functions_run_in_their_turn)
{
    fixture fix = set_up();
    int one = 1, ten = 10;
    atomic_store(&calls, 0);
    CHECK_SUCCESS(cudaLaunchHostFunc(fix.first, count_call, &one));
    CHECK_EQ(atomic_load(&calls), 1);
    CHECK_EQ(gmlake_standin_set_pace("manual", 0), 0);
    CHECK_SUCCESS(cudaLaunchHostFunc(fix.first, count_call, &one));
    CHECK_SUCCESS(cudaStreamAddCallback(fix.first, remember_stream, &ten, 0));
    CHECK_EQ(atomic_load(&calls), 1);
    CHECK_EQ(gmlake_standin_advance(fix.first, 1), 0);
    CHECK_EQ(atomic_load(&calls), 2);
    CHECK_SUCCESS(cudaLaunchHostFunc(fix.first, count_call, &one));
    CHECK_SUCCESS(cudaStreamSynchronize(fix.first));
    CHECK_EQ(atomic_load(&calls), 13);
    CHECK(called_with == fix.first);
    CHECK_EQ(cudaLaunchHostFunc(fix.first, NULL, NULL), cudaErrorInvalidValue);
    tear_down(&fix);
}

static void *
launch_slow_function(void *stream)
{
    static int one = 1;
    return cudaLaunchHostFunc(stream, count_slowly, &one) == cudaSuccess ? NULL : stream;
}

TEST(synchronising_waits_for_functions_of_other_threads)
{
    fixture fix = set_up();
    atomic_store(&calls, 0);
    pthread_t thread;
    void *failed;
    CHECK_EQ(pthread_create(&thread, NULL, launch_slow_function, fix.first), 0);
    while (!atomic_load(&has_begun)) {
        (void)usleep(1000);
    }
    CHECK_SUCCESS(cudaStreamSynchronize(fix.first));
    int seen = atomic_load(&calls);
    CHECK_EQ(pthread_join(thread, &failed), 0);
    CHECK(!failed);
    CHECK_EQ(seen, 1);
    tear_down(&fix);
}

int
main(void)
{
    use_two_devices();
    RUN(eager_work_is_done_at_once);
    RUN(eager_work_takes_what_waited_for_it_along);
    RUN(lag_keeps_the_newest_pending);
    RUN(polling_ends_under_lag);
    RUN(manual_work_waits_for_the_test);
    RUN(a_chain_of_waits_crosses_streams_and_devices);
    RUN(a_wait_refers_to_the_last_recording_before_it);
    RUN(elapsed_time_counts_operations);
    RUN(destroying_a_stream_lets_its_work_finish);
    RUN(unknown_handles_are_refused);
    RUN(streams_say_what_they_are);
    RUN(a_forked_child_goes_on);
    RUN(host_functions_run_in_their_turn);
    RUN(synchronising_waits_for_functions_of_other_threads);
    return report();
}
