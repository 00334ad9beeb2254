/* Graphs: what a capture makes, what a launch does, and what it finds missing. */
#include "stream_fixture.h"

/* ---- what is captured ------------------------------------------------------------------------ */

static cudaGraphExec_t instantiate(cudaGraph_t graph) {
    cudaGraphExec_t executable = NULL;
    OK(cudaGraphInstantiateWithFlags(&executable, graph, 0));
    return executable;
}

static void launch_and_wait(cudaGraphExec_t executable, cudaStream_t stream) {
    OK(cudaGraphLaunch(executable, stream));
    OK(cudaStreamSynchronize(stream));
}

/* Byte 0 becomes 1; then on both streams, 1 becomes 2 and 2 becomes 3; then 3 becomes 4. */
static cudaGraph_t capture_diamond(const fixture *fix) {
    cudaGraph_t graph = NULL;
    OK(cudaStreamBeginCapture(fix->first, cudaStreamCaptureModeGlobal));
    OK(put(fix, fix->first, 0, 1));
    OK(cudaEventRecord(fix->begun, fix->first));
    OK(cudaStreamWaitEvent(fix->second, fix->begun, 0));
    OK(put(fix, fix->first, 1, 2));
    OK(put(fix, fix->second, 2, 3));
    OK(cudaEventRecord(fix->ended, fix->second));
    OK(cudaStreamWaitEvent(fix->first, fix->ended, 0));
    OK(cudaStreamWaitEvent(fix->first, fix->ended, 0)); /* adds nothing */
    OK(put(fix, fix->first, 3, 4));
    CHECK_EQ(status_of(fix->second), cudaStreamCaptureStatusActive);
    OK(cudaStreamEndCapture(fix->first, &graph));
    CHECK_EQ(status_of(fix->first), cudaStreamCaptureStatusNone);
    CHECK_EQ(status_of(fix->second), cudaStreamCaptureStatusNone);
    return graph;
}

STREAM_CASE(a_capture_forks_and_joins) {
    cudaGraph_t graph = capture_diamond(fix);
    CHECK_EQ(look(fix, 0), 0);
    cudaGraphNode_t nodes[9], around[9];
    size_t count = 9;
    OK(cudaGraphGetNodes(graph, nodes, &count));
    CHECK_EQ(count, 4);
    CHECK(nodes[8] == NULL);
    size_t before = 9;
    OK(cudaGraphNodeGetDependencies(nodes[3], around, NULL, &before));
    CHECK_EQ(before, 2);
    CHECK(around[0] == nodes[1] && around[1] == nodes[2]);
    OK(cudaGraphNodeGetDependencies(nodes[1], NULL, NULL, &before));
    CHECK_EQ(before, 1);
    cudaGraphExec_t executable = instantiate(graph);
    OK(cudaGraphDestroy(graph)); /* the executable one needs it no longer */
    launch_and_wait(executable, fix->second);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(look(fix, i), i + 1);
    }
    OK(cudaGraphExecDestroy(executable));
    CHECK_EQ(cudaGraphLaunch(executable, fix->first), cudaErrorInvalidValue);
}

/* ---- launches -------------------------------------------------------------------------------- */

static atomic_int calls;

static void count_call(void *amount) {
    atomic_fetch_add(&calls, *(int *)amount);
}

STREAM_CASE(launches_repeat_what_was_captured) {
    static const unsigned char source[2] = {5, 6};
    int one = 1;
    cudaGraph_t graph;
    begin(fix, cudaStreamCaptureModeGlobal);
    OK(cudaMemcpyAsync(fix->buffer, source, 2, cudaMemcpyHostToDevice, fix->first));
    OK(cudaLaunchHostFunc(fix->first, count_call, &one));
    OK(cudaEventRecordWithFlags(fix->begun, fix->first, cudaEventRecordExternal));
    OK(cudaStreamEndCapture(fix->first, &graph));
    cudaGraphExec_t executable = instantiate(graph);
    atomic_store(&calls, 0);
    launch_and_wait(executable, fix->first);
    CHECK_EQ(look(fix, 1), 6);
    OK(put(fix, NULL, 1, 0));
    set_pace("manual");
    OK(cudaGraphLaunch(executable, fix->second));
    CHECK_EQ(cudaEventQuery(fix->begun), cudaErrorNotReady);
    CHECK_EQ(look(fix, 1), 0);
    /* What is under way needs neither of them. */
    OK(cudaGraphExecDestroy(executable));
    OK(cudaGraphDestroy(graph));
    OK(cudaEventSynchronize(fix->begun));
    CHECK_EQ(look(fix, 1), 6);
    CHECK_EQ(atomic_load(&calls), 2);
}

STREAM_CASE(launches_of_one_graph_do_not_overtake_each_other) {
    cudaGraphExec_t executable = instantiate(capture_diamond(fix));
    set_pace("manual");
    OK(cudaGraphLaunch(executable, fix->first));
    OK(cudaGraphLaunch(executable, fix->second));
    OK(gmlake_standin_advance(fix->second, 9));
    CHECK_EQ(look(fix, 0), 0);
    OK(cudaStreamSynchronize(fix->second));
    CHECK_EQ(gmlake_standin_pending(fix->first), 0);
    OK(cudaGraphExecDestroy(executable));
}

STREAM_CASE(a_launch_can_be_captured) {
    cudaGraph_t inner = capture_diamond(fix), outer = NULL;
    cudaGraphExec_t inner_executable = instantiate(inner);
    size_t count = 0;
    begin(fix, cudaStreamCaptureModeGlobal);
    OK(put(fix, fix->first, 5, 9));
    OK(cudaGraphLaunch(inner_executable, fix->first));
    OK(cudaStreamEndCapture(fix->first, &outer));
    OK(cudaGraphGetNodes(outer, NULL, &count));
    CHECK_EQ(count, 5);
    OK(cudaGraphExecDestroy(inner_executable));
    OK(cudaGraphDestroy(inner));
    CHECK_EQ(look(fix, 3), 0);
    cudaGraphExec_t executable = instantiate(outer);
    launch_and_wait(executable, fix->first);
    CHECK_EQ(look(fix, 3), 4);
    CHECK_EQ(look(fix, 5), 9);
    OK(cudaGraphExecDestroy(executable));
    OK(cudaGraphDestroy(outer));
}

static int runs, drops;

static void count_run(const standin_operation *self) {
    runs += self->value;
}

static void count_drop(standin_operation *self) {
    drops += self->value;
}

static cudaError_t submit_counted(cudaStream_t stream, standin_range range) {
    standin_operation counted = {
        .name = "counted", .ranges = {range}, .run = count_run, .drop = count_drop, .value = 1};
    standin_enter();
    cudaError_t error = standin_submit(standin_stream_of(stream), &counted);
    standin_leave();
    return error;
}

/* Whichever way it takes, what an operation staged is dropped once, when nobody can run it. */
STREAM_CASE(what_is_staged_is_dropped_once) {
    const standin_range none = {0, 0}, gone = {1, 1};
    cudaGraph_t inner, outer;
    runs = drops = 0;
    OK(submit_counted(fix->first, none));
    CHECK_EQ(runs, 1);
    CHECK_EQ(drops, 1);
    CHECK_EQ(submit_counted(fix->first, gone), cudaErrorIllegalAddress);
    CHECK_EQ(runs, 1);
    CHECK_EQ(drops, 2);
    begin(fix, cudaStreamCaptureModeGlobal);
    OK(submit_counted(fix->first, none));
    OK(cudaStreamEndCapture(fix->first, &inner));
    cudaGraphExec_t inner_executable = instantiate(inner);
    begin(fix, cudaStreamCaptureModeGlobal);
    OK(cudaGraphLaunch(inner_executable, fix->first));
    OK(cudaStreamEndCapture(fix->first, &outer));
    cudaGraphExec_t executable = instantiate(outer);
    OK(cudaGraphDestroy(inner));
    OK(cudaGraphExecDestroy(inner_executable));
    OK(cudaGraphDestroy(outer));
    set_pace("manual");
    OK(cudaGraphLaunch(executable, fix->first));
    OK(cudaGraphExecDestroy(executable));
    CHECK_EQ(runs, 1);
    CHECK_EQ(drops, 2);
    OK(cudaStreamSynchronize(fix->first));
    CHECK_EQ(runs, 2);
    CHECK_EQ(drops, 3);
}

/* ---- memory that is gone --------------------------------------------------------------------- */

STREAM_CASE(a_launch_misses_memory_that_was_unmapped) {
    CUdeviceptr address;
    cudaGraph_t graph;
    OK(cuMemAddressReserve(&address, GRANULE, 0, 0, 0));
    map_granule(address);
    void *mapped = (void *)(uintptr_t)address;
    begin(fix, cudaStreamCaptureModeGlobal);
    OK(cudaMemsetAsync(mapped, 1, GRANULE, fix->first));
    OK(cudaStreamEndCapture(fix->first, &graph));
    cudaGraphExec_t executable = instantiate(graph);
    uint64_t misuses = gmlake_standin_misuses();
    launch_and_wait(executable, fix->first);
    CHECK_EQ(gmlake_standin_misuses(), misuses);
    OK(cuMemUnmap(address, GRANULE));
    CHECK_EQ(cudaGraphLaunch(executable, fix->first), cudaErrorIllegalAddress);
    CHECK_EQ(gmlake_standin_misuses(), misuses + 1);
    map_granule(address); /* other memory, at the address that the graph knows */
    launch_and_wait(executable, fix->first);
    CHECK_EQ(gmlake_standin_misuses(), misuses + 1);
    OK(cuMemUnmap(address, GRANULE));
    OK(cuMemAddressFree(address, GRANULE));
    OK(cudaGraphExecDestroy(executable));
    OK(cudaGraphDestroy(graph));
}

int main(void) {
    return run_cases("eager", true);
}
