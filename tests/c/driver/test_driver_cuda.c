/* The driver `cuda` seen from its caller: contexts, capture modes, and what it says when something
 * is missing. Runs on the fake library (GMLAKE_TEST_CUDA=fake) and on a GPU (any other value). */
#include "driver/backends.h"
#include "driver/handed.h"
#include "hooks/fault.h"
#include "support/check.h"
#include "support/raw_cuda.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static raw_cuda raw;

enum { MODE_GLOBAL = 0, MODE_THREAD_LOCAL = 1 };

static gml_driver *open_cuda(void) {
    char reason[GML_REASON_BYTES] = "";
    gml_driver *driver = NULL;
    if (!CHECK_OK(gml_cuda_driver_open(0, &driver, reason, sizeof reason))) {
        fprintf(stderr, "%s\n", reason);
        abort();
    }
    return driver;
}

/* Makes every call once that needs a context. */
static void make_context_calls(gml_driver *driver) {
    gml_address block = 0;
    gml_event event = 0;
    bool is_capturing = true;
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
    CHECK_OK(gml_driver_malloc(driver, 1 << 20, &block));
    CHECK_OK(gml_driver_memory_info(driver, &free_bytes, &total_bytes));
    CHECK_OK(gml_driver_event_create(driver, &event));
    CHECK_OK(gml_driver_event_record(driver, event, 0));
    CHECK_OK(gml_driver_stream_wait(driver, 0, event));
    CHECK_OK(gml_driver_event_synchronize(driver, event));
    CHECK_OK(gml_driver_event_query(driver, event));
    CHECK_OK(gml_driver_stream_synchronize(driver, 0));
    CHECK_OK(gml_driver_stream_capturing(driver, 0, &is_capturing));
    CHECK(!is_capturing);
    CHECK_OK(gml_driver_device_synchronize(driver));
    CHECK_OK(gml_driver_event_destroy(driver, event));
    CHECK_OK(gml_driver_free(driver, block));
}

static void check_current(gml_cu_context expected) {
    gml_cu_context current = NULL;
    CHECK_EQ(raw.cuCtxGetCurrent(&current), GML_CU_SUCCESS);
    CHECK(current == expected);
}

/* On a thread of its own, which has no context yet. */
static void *call_without_context(void *driver) {
    check_current(NULL);
    make_context_calls(driver);
    check_current(NULL);
    return NULL;
}

/* More than one thread touches it first. */
TEST(memory_of_the_host_is_whole_and_goes_back) {
    const uint64_t size_bytes = (UINT64_C(200) << 20) + 123;
    gml_driver *driver = open_cuda();
    void *memory = NULL;
    if (CHECK_OK(gml_driver_host_malloc(driver, size_bytes, &memory))) {
        memset(memory, 7, size_bytes);
        CHECK_EQ(((const char *)memory)[size_bytes - 1], 7);
        CHECK_OK(gml_driver_host_free(driver, memory, size_bytes));
    }
    CHECK_STATUS(gml_driver_host_malloc(driver, UINT64_C(1) << 60, &memory), GML_NO_HOST_MEMORY);
    CHECK(strstr(driver->reason, "the host has no 1024 PiB left") != NULL);
    gml_driver_close(driver);
}

TEST(a_caller_without_context_stays_without) {
    gml_driver *driver = open_cuda();
    pthread_t thread;
    if (CHECK_EQ(pthread_create(&thread, NULL, call_without_context, driver), 0)) {
        CHECK_EQ(pthread_join(thread, NULL), 0);
    }
    gml_driver_close(driver);
}

TEST(a_callers_context_and_mode_are_put_back) {
    gml_driver *driver = open_cuda();
    gml_cu_context popped = NULL;
    int mode = MODE_THREAD_LOCAL;
    gml_address nothing = 0;
    CHECK_EQ(raw.cuCtxPushCurrent(raw.context), GML_CU_SUCCESS);
    CHECK_EQ(raw.cuThreadExchangeStreamCaptureMode(&mode), GML_CU_SUCCESS);
    make_context_calls(driver);
    CHECK(gml_driver_malloc(driver, driver->info.total_bytes * 2, &nothing) != GML_OK);
    check_current(raw.context);
    CHECK_EQ(raw.cuThreadExchangeStreamCaptureMode(&mode), GML_CU_SUCCESS);
    CHECK_EQ(mode, MODE_THREAD_LOCAL);
    CHECK_EQ(raw.cuCtxPopCurrent(&popped), GML_CU_SUCCESS);
    CHECK(popped == raw.context);
    check_current(NULL);
    gml_driver_close(driver);
}

/* A capture in global mode forbids such calls to every thread that does not relax its mode. */
TEST(a_global_capture_survives_calls_on_other_streams) {
    gml_driver *driver = open_cuda();
    gml_cu_stream stream = (gml_cu_stream)(uintptr_t)raw_cuda_stream(&raw);
    gml_stream other = raw_cuda_stream(&raw);
    gml_event event = 0;
    gml_address block = 0;
    void *graph = NULL;
    CHECK_OK(gml_driver_event_create(driver, &event));
    CHECK_EQ(raw.cuStreamBeginCapture(stream, MODE_GLOBAL), GML_CU_SUCCESS);
    CHECK_OK(gml_driver_malloc(driver, 1 << 20, &block));
    CHECK_OK(gml_driver_event_record(driver, event, other));
    CHECK_OK(gml_driver_event_synchronize(driver, event));
    CHECK_OK(gml_driver_event_query(driver, event));
    CHECK_OK(gml_driver_stream_synchronize(driver, other));
    CHECK_OK(gml_driver_free(driver, block));
    CHECK_EQ(raw.cuStreamEndCapture(stream, &graph), GML_CU_SUCCESS);
    CHECK(graph != NULL);
    CHECK_EQ(raw.cuGraphDestroy(graph), GML_CU_SUCCESS);
    CHECK_OK(gml_driver_event_destroy(driver, event));
    gml_driver_close(driver);
}

/* Gives the fake library a defect; "" takes it away. No other thread is running. */
static void set_defect(const char *defect) {
    CHECK_EQ(setenv("GMLAKE_FAKE_CUDA", defect, 1), 0); /* NOLINT(concurrency-mt-unsafe) */
}

/* ---- memory that other processes hand over --------------------------------------------------- */

static gml_handed incoming = {.lock = PTHREAD_MUTEX_INITIALIZER};
static gml_handed outgoing = {.lock = PTHREAD_MUTEX_INITIALIZER};
static const uint64_t LARGE = GML_HANDED_LEAST_BYTES;

static gml_driver *open_taking(void) {
    gml_driver *driver = open_cuda();
    driver->device->handed = &incoming;
    return driver;
}

/* Releases a chunk of that size while others take files; how many there are then. */
static size_t count_handed(gml_driver *driver, uint64_t size_bytes) {
    gml_handle handle = 0;
    CHECK_OK(gml_driver_create(driver, size_bytes, &handle));
    driver->outgoing = &outgoing;
    CHECK_OK(gml_driver_release(driver, handle));
    driver->outgoing = NULL;
    CHECK_EQ(driver->held_bytes, 0);
    return outgoing.count;
}

static int lowest_free_file(void) {
    int file = dup(STDERR_FILENO);
    (void)close(file);
    return file;
}

TEST(a_chunk_that_the_driver_keeps_goes_nowhere) {
    gml_driver *driver = NULL;
    gml_handle handle = 0;
    CHECK_OK(gml_fault_driver_open(open_cuda(), 2, 0, 0, &driver)); /* create, release */
    CHECK_OK(gml_driver_create(driver, LARGE, &handle));
    int before = lowest_free_file();
    driver->outgoing = &outgoing;
    CHECK_STATUS(gml_driver_release(driver, handle), GML_DRIVER_FAILED);
    CHECK_EQ(outgoing.count, 0);
    CHECK_EQ(driver->held_bytes, LARGE);
    CHECK_EQ(lowest_free_file(), before);
    CHECK_OK(gml_driver_release(driver, handle));
    CHECK_EQ(gml_handed_drop(&outgoing), LARGE);
    driver->outgoing = NULL;
    gml_driver_close(driver);
}

TEST(what_was_handed_over_is_created_first) {
    gml_driver *giver = open_cuda(), *taker = open_taking();
    gml_handle handle = 0;
    int file = -1;
    CHECK_OK(gml_driver_create(giver, LARGE, &handle));
    CHECK_OK(gml_driver_export_file(giver, handle, false, &file));
    gml_handed_add(&incoming, (gml_shared_piece){file, LARGE});
    gml_handle other = 0, taken = 0;
    CHECK_OK(gml_driver_create(taker, 2 * LARGE, &other)); /* of another size */
    CHECK_EQ(gml_handed_bytes(&incoming), LARGE);
    CHECK_OK(gml_driver_create(taker, LARGE, &taken));
    CHECK_EQ(gml_handed_bytes(&incoming), 0);
    CHECK_EQ(taker->held_bytes, 3 * LARGE);
    int again = -1, kept = -1, same = -1; /* its file stays */
    CHECK_OK(gml_driver_export_file(taker, taken, true, &kept));
    CHECK_OK(gml_driver_export_file(taker, taken, true, &same));
    CHECK_OK(gml_driver_export_file(taker, taken, false, &again));
    CHECK(kept == file && same == file && again != file && again >= 0);
    (void)close(again);
    CHECK_OK(gml_driver_release(taker, taken));
    CHECK(fcntl(file, F_GETFD) < 0);
    CHECK_OK(gml_driver_release(taker, other));
    CHECK_OK(gml_driver_release(giver, handle));
    gml_driver_close(taker);
    gml_driver_close(giver);
}

/* A file that is none: what it holds could not be had otherwise. */
static int add_nothing(void) {
    int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    gml_handed_add(&incoming, (gml_shared_piece){file, LARGE});
    return file;
}

TEST(what_cannot_be_imported_is_created) {
    gml_driver *driver = open_taking();
    int file = add_nothing();
    gml_handle handle = 0;
    CHECK_OK(gml_driver_create(driver, LARGE, &handle));
    CHECK(fcntl(file, F_GETFD) < 0 && gml_handed_bytes(&incoming) == 0);
    CHECK_OK(gml_driver_release(driver, handle));
    gml_driver_close(driver);
}

TEST(a_device_that_is_full_gets_what_was_handed_over) {
    const uint64_t too_much = UINT64_C(1) << 46;
    gml_driver *driver = open_taking();
    gml_handle handle = 0;
    gml_address address = 0;
    (void)add_nothing();
    CHECK_STATUS(gml_driver_create(driver, too_much, &handle), GML_OUT_OF_MEMORY);
    CHECK_EQ(gml_handed_bytes(&incoming), 0);
    (void)add_nothing();
    CHECK_STATUS(gml_driver_malloc(driver, too_much, &address), GML_OUT_OF_MEMORY);
    CHECK_EQ(gml_handed_bytes(&incoming), 0);
    gml_driver_close(driver);
}

/* A margin counts it as free: it takes nothing of the device. */
TEST(a_margin_is_left_beside_what_was_handed_over) {
    gml_driver *driver = open_taking();
    uint64_t free_bytes = 0, total_bytes = 0;
    gml_handle handle = 0;
    CHECK_OK(gml_driver_memory_info(driver, &free_bytes, &total_bytes));
    driver->margin_bytes = free_bytes - LARGE / 2;
    CHECK_STATUS(gml_driver_create(driver, LARGE, &handle), GML_OUT_OF_MEMORY);
    (void)add_nothing();
    CHECK_OK(gml_driver_create(driver, LARGE, &handle));
    CHECK_OK(gml_driver_release(driver, handle));
    gml_driver_close(driver);
}

/* Opens the fake library with a defect and checks the answer. */
static void check_defect(const char *defect, gml_status expected, const char *hint) {
    char reason[GML_REASON_BYTES] = "";
    gml_driver *driver = NULL;
    set_defect(defect);
    CHECK_STATUS(gml_cuda_driver_open(0, &driver, reason, sizeof reason), expected);
    set_defect("");
    CHECK(strstr(reason, hint) != NULL);
    CHECK(!strchr(reason, '\n'));
    CHECK(driver == NULL);
}

/* Lets the device use a new chunk, and gives it back. */
static gml_status open_a_chunk(gml_driver *driver) {
    uint64_t size = driver->info.granularity_bytes;
    gml_handle handle = 0;
    gml_address address = 0;
    CHECK_OK(gml_driver_create(driver, size, &handle));
    CHECK_OK(gml_driver_reserve(driver, size, 0, &address));
    CHECK_OK(gml_driver_map(driver, address, size, handle));
    gml_status status = gml_driver_set_access(driver, address, size);
    CHECK_OK(gml_driver_unmap(driver, address, size));
    CHECK_OK(gml_driver_unreserve(driver, address, size));
    CHECK_OK(gml_driver_release(driver, handle));
    return status;
}

TEST(what_cannot_be_exported_is_released_alone) {
    gml_driver *driver = open_cuda();
    set_defect("no_export");
    CHECK_EQ(count_handed(driver, LARGE), 0);
    CHECK_EQ(driver->reason[0], '\0');
    set_defect("");
    gml_driver_close(driver);
}

TEST(defects_are_told_in_one_line) {
    check_defect("no_device", GML_DRIVER_ABSENT, "CUDA_ERROR_NO_DEVICE");
    check_defect("stub", GML_DRIVER_ABSENT, "nvidia-smi");
    check_defect("missing:cuMemSetAccess", GML_DRIVER_ABSENT, "cuMemSetAccess of CUDA 10.2");
    check_defect("missing:cuInit", GML_DRIVER_ABSENT, "newer NVIDIA driver");
}

TEST(a_driver_from_before_cuda_12_5_has_no_event_behind_all_streams) {
    gml_event event = 0;
    set_defect("missing:cuCtxRecordEvent");
    gml_driver *driver = open_cuda();
    CHECK_OK(gml_driver_event_create(driver, &event));
    CHECK_STATUS(gml_driver_event_record_all(driver, event), GML_UNSUPPORTED);
    CHECK(strstr(driver->reason, "12.5") != NULL);
    CHECK_OK(gml_driver_event_destroy(driver, event));
    set_defect("");
    gml_driver_close(driver);
}

/* Memory that network cards can reach is refused at once, or where the device is to use it. */
TEST(refused_rdma_memory_is_done_without) {
    static const char *const defects[] = {"no_rdma", "no_rdma_access"};
    for (size_t i = 0; i < sizeof defects / sizeof *defects; i++) {
        set_defect(defects[i]);
        gml_driver *driver = open_cuda();
        CHECK_OK(open_a_chunk(driver));
        set_defect("");
        gml_driver_close(driver);
    }
}

TEST(a_driver_that_is_not_ready_is_asked_again) {
    gml_driver *driver = open_cuda();
    set_defect("not_ready");
    CHECK_OK(open_a_chunk(driver));
    set_defect("never_ready");
    CHECK_STATUS(open_a_chunk(driver), GML_OUT_OF_MEMORY);
    CHECK(strstr(driver->reason, "not ready after 8 tries") != NULL);
    set_defect("");
    CHECK_OK(open_a_chunk(driver));
    gml_driver_close(driver);
}

/* What its driver calls free is less than the host has, and it would never refuse. */
TEST(a_device_with_the_hosts_memory_leaves_the_host_some) {
    set_defect("unified");
    gml_driver *driver = open_cuda();
    uint64_t host_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t free_bytes = 0, total_bytes = 0;
    CHECK_OK(gml_driver_memory_info(driver, &free_bytes, &total_bytes));
    CHECK(free_bytes > total_bytes && free_bytes <= host_bytes - host_bytes / 32);
    gml_handle handle = 0;
    gml_address address = 0;
    CHECK_STATUS(gml_driver_create(driver, UINT64_C(1) << 42, &handle), GML_OUT_OF_MEMORY);
    CHECK(strstr(driver->reason, "the host's memory") != NULL);
    CHECK_STATUS(gml_driver_malloc(driver, 2 * host_bytes, &address), GML_OUT_OF_MEMORY);
    CHECK(strstr(driver->reason, "the host's memory") != NULL);
    CHECK_OK(open_a_chunk(driver));
    set_defect("");
    gml_driver_close(driver);
}

TEST(memory_of_the_host_is_mapped_for_the_device) {
    gml_driver *driver = open_cuda();
    uint64_t size = driver->info.granularity_bytes, held_bytes = driver->held_bytes;
    gml_handle handle = 0;
    gml_address address = 0;
    CHECK_OK(gml_driver_create_on_host(driver, size, &handle));
    CHECK(gml_driver_is_on_host(driver, handle));
    CHECK_EQ(gml_driver_size(driver, handle), size);
    CHECK_EQ(driver->held_bytes, held_bytes);
    CHECK_EQ(driver->host_bytes, size);
    CHECK_OK(gml_driver_reserve(driver, size, 0, &address));
    CHECK_OK(gml_driver_map(driver, address, size, handle));
    CHECK_OK(gml_driver_set_access(driver, address, size));
    CHECK_OK(gml_driver_unmap(driver, address, size));
    CHECK_OK(gml_driver_unreserve(driver, address, size));
    CHECK_OK(gml_driver_release(driver, handle));
    CHECK_EQ(driver->host_bytes, 0);
    gml_driver_close(driver);
}

TEST(a_device_that_cannot_map_the_host_says_so) {
    set_defect("no_host_chunks");
    gml_driver *driver = open_cuda();
    gml_handle handle = 0;
    CHECK_STATUS(gml_driver_create_on_host(driver, driver->info.granularity_bytes, &handle),
                 GML_UNSUPPORTED);
    CHECK_EQ(driver->host_bytes, 0);
    set_defect("");
    gml_driver_close(driver);
}

int main(void) {
    const char *cuda = raw_cuda_begin(&raw);
    if (!cuda) {
        return skip("GMLAKE_TEST_CUDA is not set");
    }
    RUN(memory_of_the_host_is_mapped_for_the_device);
    RUN(memory_of_the_host_is_whole_and_goes_back);
    RUN(a_caller_without_context_stays_without);
    RUN(a_callers_context_and_mode_are_put_back);
    RUN(a_global_capture_survives_calls_on_other_streams);
    RUN(a_chunk_that_the_driver_keeps_goes_nowhere);
    RUN(what_was_handed_over_is_created_first);
    RUN(what_cannot_be_imported_is_created);
    RUN(a_device_that_is_full_gets_what_was_handed_over);
    RUN(a_margin_is_left_beside_what_was_handed_over);
    if (strcmp(cuda, "fake") == 0) {
        RUN(what_cannot_be_exported_is_released_alone);
        RUN(defects_are_told_in_one_line);
        RUN(refused_rdma_memory_is_done_without);
        RUN(a_driver_that_is_not_ready_is_asked_again);
        RUN(a_device_with_the_hosts_memory_leaves_the_host_some);
        RUN(a_device_that_cannot_map_the_host_says_so);
    }
    return report();
}
