/* Graphs: what a capture makes, what a launch does, and what it finds missing. */
#include "stream_fixture.h"

#include <string.h>
#include <unistd.h>

/* ---- what is captured ------------------------------------------------------------------------ */

static cudaGraphExec_t
instantiate(cudaGraph_t graph)
{
    cudaGraphExec_t executable = NULL;
    CHECK_SUCCESS(cudaGraphInstantiateWithFlags(&executable, graph, 0));
    return executable;
}

static void
launch_and_wait(cudaGraphExec_t executable, cudaStream_t stream)
{
    CHECK_SUCCESS(cudaGraphLaunch(executable, stream));
    CHECK_SUCCESS(cudaStreamSynchronize(stream));
}

/* Byte 0 becomes 1; then on both streams, 1 becomes 2 and 2 becomes 3; then 3 becomes 4. */
static cudaGraph_t
capture_diamond(const fixture *fix)
{
    cudaGraph_t graph = NULL;
    CHECK_SUCCESS(cudaStreamBeginCapture(fix->first, cudaStreamCaptureModeGlobal));
    CHECK_SUCCESS(put(fix, fix->first, 0, 1));
    CHECK_SUCCESS(cudaEventRecord(fix->begun, fix->first));
    CHECK_SUCCESS(cudaStreamWaitEvent(fix->second, fix->begun, 0));
    CHECK_SUCCESS(put(fix, fix->first, 1, 2));
    CHECK_SUCCESS(put(fix, fix->second, 2, 3));
    CHECK_SUCCESS(cudaEventRecord(fix->ended, fix->second));
    CHECK_SUCCESS(cudaStreamWaitEvent(fix->first, fix->ended, 0));
    CHECK_SUCCESS(cudaStreamWaitEvent(fix->first, fix->ended, 0)); /* adds nothing */
    CHECK_SUCCESS(put(fix, fix->first, 3, 4));
    CHECK_EQ(status_of(fix->second), cudaStreamCaptureStatusActive);
    CHECK_SUCCESS(cudaStreamEndCapture(fix->first, &graph));
    CHECK_EQ(status_of(fix->first), cudaStreamCaptureStatusNone);
    CHECK_EQ(status_of(fix->second), cudaStreamCaptureStatusNone);
    return graph;
}

TEST(a_capture_forks_and_joins)
{
    fixture fix = set_up();
    cudaGraph_t graph = capture_diamond(&fix);
    CHECK_EQ(look(&fix, 0), 0);
    cudaGraphNode_t nodes[9], around[9];
    size_t count = 9;
    CHECK_SUCCESS(cudaGraphGetNodes(graph, nodes, &count));
    CHECK_EQ(count, 4);
    CHECK(nodes[8] == NULL);
    size_t before = 9;
    CHECK_SUCCESS(cudaGraphNodeGetDependencies(nodes[3], around, NULL, &before));
    CHECK_EQ(before, 2);
    CHECK(around[0] == nodes[1] && around[1] == nodes[2]);
    CHECK_SUCCESS(cudaGraphNodeGetDependencies(nodes[1], NULL, NULL, &before));
    CHECK_EQ(before, 1);
    cudaGraphExec_t executable = instantiate(graph);
    CHECK_SUCCESS(cudaGraphDestroy(graph)); /* the executable one needs it no longer */
    launch_and_wait(executable, fix.second);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(look(&fix, i), i + 1);
    }
    CHECK_SUCCESS(cudaGraphExecDestroy(executable));
    CHECK_EQ(cudaGraphLaunch(executable, fix.first), cudaErrorInvalidValue);
    tear_down(&fix);
}

/* ---- launches -------------------------------------------------------------------------------- */

static atomic_int calls;

static void
count_call(void *amount)
{
    atomic_fetch_add(&calls, *(int *)amount);
}

TEST(launches_repeat_what_was_captured)
{
    fixture fix = set_up();
    static const unsigned char source[2] = {5, 6};
    int one = 1;
    cudaGraph_t graph;
    begin(&fix, cudaStreamCaptureModeGlobal);
    CHECK_SUCCESS(cudaMemcpyAsync(fix.buffer, source, 2, cudaMemcpyHostToDevice, fix.first));
    CHECK_SUCCESS(cudaLaunchHostFunc(fix.first, count_call, &one));
    CHECK_SUCCESS(cudaEventRecordWithFlags(fix.begun, fix.first, cudaEventRecordExternal));
    CHECK_SUCCESS(cudaStreamEndCapture(fix.first, &graph));
    cudaGraphExec_t executable = instantiate(graph);
    atomic_store(&calls, 0);
    launch_and_wait(executable, fix.first);
    CHECK_EQ(look(&fix, 1), 6);
    CHECK_SUCCESS(put(&fix, NULL, 1, 0));
    CHECK_EQ(gmlake_standin_set_pace("manual", 0), 0);
    CHECK_SUCCESS(cudaGraphLaunch(executable, fix.second));
    CHECK_EQ(cudaEventQuery(fix.begun), cudaErrorNotReady);
    CHECK_EQ(look(&fix, 1), 0);
    /* What is under way needs neither of them. */
    CHECK_SUCCESS(cudaGraphExecDestroy(executable));
    CHECK_SUCCESS(cudaGraphDestroy(graph));
    CHECK_SUCCESS(cudaEventSynchronize(fix.begun));
    CHECK_EQ(look(&fix, 1), 6);
    CHECK_EQ(atomic_load(&calls), 2);
    tear_down(&fix);
}

TEST(launches_of_one_graph_do_not_overtake_each_other)
{
    fixture fix = set_up();
    cudaGraphExec_t executable = instantiate(capture_diamond(&fix));
    CHECK_EQ(gmlake_standin_set_pace("manual", 0), 0);
    CHECK_SUCCESS(cudaGraphLaunch(executable, fix.first));
    CHECK_SUCCESS(cudaGraphLaunch(executable, fix.second));
    CHECK_EQ(gmlake_standin_advance(fix.second, 9), 0);
    CHECK_EQ(look(&fix, 0), 0);
    CHECK_SUCCESS(cudaStreamSynchronize(fix.second));
    CHECK_EQ(gmlake_standin_pending(fix.first), 0);
    CHECK_SUCCESS(cudaGraphExecDestroy(executable));
    tear_down(&fix);
}

TEST(a_launch_can_be_captured)
{
    fixture fix = set_up();
    cudaGraph_t inner = capture_diamond(&fix), outer = NULL;
    cudaGraphExec_t inner_executable = instantiate(inner);
    size_t count = 0;
    begin(&fix, cudaStreamCaptureModeGlobal);
    CHECK_SUCCESS(put(&fix, fix.first, 5, 9));
    CHECK_SUCCESS(cudaGraphLaunch(inner_executable, fix.first));
    CHECK_SUCCESS(cudaStreamEndCapture(fix.first, &outer));
    CHECK_SUCCESS(cudaGraphGetNodes(outer, NULL, &count));
    CHECK_EQ(count, 5);
    CHECK_SUCCESS(cudaGraphExecDestroy(inner_executable));
    CHECK_SUCCESS(cudaGraphDestroy(inner));
    CHECK_EQ(look(&fix, 3), 0);
    cudaGraphExec_t executable = instantiate(outer);
    launch_and_wait(executable, fix.first);
    CHECK_EQ(look(&fix, 3), 4);
    CHECK_EQ(look(&fix, 5), 9);
    CHECK_SUCCESS(cudaGraphExecDestroy(executable));
    CHECK_SUCCESS(cudaGraphDestroy(outer));
    tear_down(&fix);
}

static int runs, drops;

static void
count_run(const standin_operation *self)
{
    runs += self->value;
}

static void
count_drop(standin_operation *self)
{
    drops += self->value;
}

static cudaError_t
submit_counted(cudaStream_t stream, standin_range range)
{
    standin_operation counted = {
        .name = "counted", .ranges = {range}, .run = count_run, .drop = count_drop, .value = 1};
    standin_enter();
    cudaError_t error = standin_submit(standin_stream_of(stream), &counted);
    standin_leave();
    return error;
}

/* Whichever way it takes, what an operation staged is dropped once, when nobody can run it. */
TEST(what_is_staged_is_dropped_once)
{
    fixture fix = set_up();
    const standin_range none = {0, 0}, gone = {1, 1};
    cudaGraph_t inner, outer;
    runs = drops = 0;
    CHECK_SUCCESS(submit_counted(fix.first, none));
    CHECK_EQ(runs, 1);
    CHECK_EQ(drops, 1);
    CHECK_EQ(submit_counted(fix.first, gone), cudaErrorIllegalAddress);
    CHECK_EQ(runs, 1);
    CHECK_EQ(drops, 2);
    begin(&fix, cudaStreamCaptureModeGlobal);
    CHECK_SUCCESS(submit_counted(fix.first, none));
    CHECK_SUCCESS(cudaStreamEndCapture(fix.first, &inner));
    cudaGraphExec_t inner_executable = instantiate(inner);
    begin(&fix, cudaStreamCaptureModeGlobal);
    CHECK_SUCCESS(cudaGraphLaunch(inner_executable, fix.first));
    CHECK_SUCCESS(cudaStreamEndCapture(fix.first, &outer));
    cudaGraphExec_t executable = instantiate(outer);
    CHECK_SUCCESS(cudaGraphDestroy(inner));
    CHECK_SUCCESS(cudaGraphExecDestroy(inner_executable));
    CHECK_SUCCESS(cudaGraphDestroy(outer));
    CHECK_EQ(gmlake_standin_set_pace("manual", 0), 0);
    CHECK_SUCCESS(cudaGraphLaunch(executable, fix.first));
    CHECK_SUCCESS(cudaGraphExecDestroy(executable));
    CHECK_EQ(runs, 1);
    CHECK_EQ(drops, 2);
    CHECK_SUCCESS(cudaStreamSynchronize(fix.first));
    CHECK_EQ(runs, 2);
    CHECK_EQ(drops, 3);
    tear_down(&fix);
}

TEST(a_graph_prints_itself)
{
    fixture fix = set_up();
    char path[] = "/tmp/standin-graph-XXXXXX";
    char text[512] = "";
    int file = mkstemp(path);
    CHECK(file >= 0);
    cudaGraph_t graph = capture_diamond(&fix);
    CHECK_SUCCESS(cudaGraphDebugDotPrint(graph, path, 0));
    CHECK(read(file, text, sizeof text - 1) > 0);
    CHECK(strstr(text, "n0 [label=\"cudaMemset") != NULL);
    CHECK(strstr(text, "n2 -> n3;") != NULL);
    CHECK_EQ(cudaGraphDebugDotPrint(graph, "/nowhere/at/all", 0), cudaErrorOperatingSystem);
    CHECK_SUCCESS(cudaGraphDestroy(graph));
    (void)close(file);
    (void)unlink(path);
    tear_down(&fix);
}

/* ---- memory that is gone --------------------------------------------------------------------- */

enum { GRANULE_BYTES = 2 << 20 };

static void
map_granule(CUdeviceptr address)
{
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    };
    CUmemAccessDesc access = {
        .location = properties.location,
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    CUmemGenericAllocationHandle handle;
    CHECK_EQ(cuMemCreate(&handle, GRANULE_BYTES, &properties, 0), CUDA_SUCCESS);
    CHECK_EQ(cuMemMap(address, GRANULE_BYTES, 0, handle, 0), CUDA_SUCCESS);
    CHECK_EQ(cuMemSetAccess(address, GRANULE_BYTES, &access, 1), CUDA_SUCCESS);
    CHECK_EQ(cuMemRelease(handle), CUDA_SUCCESS);
}

TEST(a_launch_misses_memory_that_was_unmapped)
{
    fixture fix = set_up();
    CUdeviceptr address;
    cudaGraph_t graph;
    CHECK_EQ(cuMemAddressReserve(&address, GRANULE_BYTES, 0, 0, 0), CUDA_SUCCESS);
    map_granule(address);
    void *mapped = (void *)(uintptr_t)address;
    begin(&fix, cudaStreamCaptureModeGlobal);
    CHECK_SUCCESS(cudaMemsetAsync(mapped, 1, GRANULE_BYTES, fix.first));
    CHECK_SUCCESS(cudaStreamEndCapture(fix.first, &graph));
    cudaGraphExec_t executable = instantiate(graph);
    uint64_t misuses = gmlake_standin_misuses();
    launch_and_wait(executable, fix.first);
    CHECK_EQ(gmlake_standin_misuses(), misuses);
    CHECK_EQ(cuMemUnmap(address, GRANULE_BYTES), CUDA_SUCCESS);
    CHECK_EQ(cudaGraphLaunch(executable, fix.first), cudaErrorIllegalAddress);
    CHECK_EQ(gmlake_standin_misuses(), misuses + 1);
    map_granule(address); /* other memory, at the address that the graph knows */
    launch_and_wait(executable, fix.first);
    CHECK_EQ(gmlake_standin_misuses(), misuses + 1);
    CHECK_EQ(cuMemUnmap(address, GRANULE_BYTES), CUDA_SUCCESS);
    CHECK_EQ(cuMemAddressFree(address, GRANULE_BYTES), CUDA_SUCCESS);
    CHECK_SUCCESS(cudaGraphExecDestroy(executable));
    CHECK_SUCCESS(cudaGraphDestroy(graph));
    tear_down(&fix);
}

TEST(submitted_work_misses_memory_that_was_freed)
{
    fixture fix = set_up();
    void *block;
    uint64_t misuses = gmlake_standin_misuses();
    CHECK_SUCCESS(cudaMalloc(&block, BUFFER_BYTES));
    CHECK_SUCCESS(cudaFree(block));
    standin_enter();
    standin_operation work = {.name = "a kernel", .ranges = {{(gml_address)(uintptr_t)block, 8}}};
    CHECK_EQ(standin_submit(standin_stream_of(fix.first), &work), cudaErrorIllegalAddress);
    standin_leave();
    CHECK_EQ(gmlake_standin_misuses(), misuses + 1);
    tear_down(&fix);
}

int
main(void)
{
    use_two_devices();
    RUN(a_capture_forks_and_joins);
    RUN(launches_repeat_what_was_captured);
    RUN(launches_of_one_graph_do_not_overtake_each_other);
    RUN(a_launch_can_be_captured);
    RUN(what_is_staged_is_dropped_once);
    RUN(a_graph_prints_itself);
    RUN(a_launch_misses_memory_that_was_unmapped);
    RUN(submitted_work_misses_memory_that_was_freed);
    return report();
}
