/* The collector as a program sees it: loaded by the driver, told of calls by CUPTI, read from its
 * file. Driver and CUPTI are fakes; each test is a process of its own, as the collector is. */
#include "diagnosis/collect/log.h"
#include "diagnosis/fake_cupti.h"
#include "gmlake_diagnose.h"
#include "support/check.h"
#include "support/fake_kernel.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ALLOC = 243,
    FREE = 245,
    COPY_TO_DEVICE = 276,
    COPY_ON_DEVICE_ASYNC = 281,
    COPY_2D = 287,
    SET_16_ASYNC = 218,
    SET_2D_32 = 254,
    LAUNCH = 307,
    GRAPH = 514,
    MAP = 551,
    UNMAP = 552,
    ALLOC_FROM_POOL = 611,
    LAUNCH_EX = 652,
    MOST_RECORDS = 512,
    MOST_SECONDS = 300 /* of a program that hangs */
};

static char folder[] = "/tmp/gmlake_collect_XXXXXX";
static fake_cupti_call_function make_call;
static void *collector;      /* its library */
static void (*at_end)(void); /* what the program does after all that came later has ended */

/* ---- the program that is watched ------------------------------------------------------------- */

static void allocate(uint64_t address, size_t size_bytes) {
    uint64_t result = address;
    make_call(ALLOC, "cuMemAlloc_v2", &(cuda_alloc){&result, size_bytes, 0, 0}, NULL, 0);
}

static void release(uint64_t address) {
    make_call(FREE, "cuMemFree_v2", &(cuda_free){address, 0}, NULL, 0);
}

static void launch(const char *symbol, fake_kernel *kernel, void **parameters, void **extra) {
    cuda_launch call = {.function = kernel, .stream = 7, .parameters = parameters, .extra = extra};
    make_call(LAUNCH, "cuLaunchKernel", &call, symbol, 0);
}

/* Loads the collector as the driver would. */
static bool begin(void) {
    void *cupti = dlopen(FAKE_CUPTI, RTLD_NOW | RTLD_LOCAL);
    make_call = cupti ? (fake_cupti_call_function)dlsym(cupti, "fake_cupti_call") : NULL;
    collector = dlopen(COLLECTOR, RTLD_NOW | RTLD_LOCAL);
    int (*initialize)(void) =
        collector ? (int (*)(void))dlsym(collector, "InitializeInjection") : NULL;
    return make_call && initialize && initialize() == 1;
}

/* ---- what it wrote --------------------------------------------------------------------------- */

static gml_log_record records[MOST_RECORDS];
static size_t record_count;
static char names[64][sizeof(gml_log_record) * 10];

/* How many records the text or the numbers of this one fill. */
static size_t tail_of(const gml_log_record *record) {
    uint64_t bytes = record->kind == GML_LOG_NAME    ? record->size_bytes
                     : record->kind == GML_LOG_PLACE ? record->size_bytes * sizeof(uint32_t)
                                                     : 0;
    return (size_t)((bytes + sizeof *record - 1) / sizeof *record);
}

/* Keeps what is no name and no place; the names by their number. */
static void read_log(pid_t process) {
    char path[256];
    gml_log_header header = {0};
    gml_log_record record;
    (void)snprintf(path, sizeof path, "%s/calls.%ld", folder, (long)process);
    FILE *file = fopen(path, "rb");
    record_count = 0;
    memset(names, 0, sizeof names);
    if (!file) {
        CHECK(file != NULL);
        return;
    }
    bool has_header = fread(&header, sizeof header, 1, file) == 1;
    CHECK(has_header);
    CHECK(strcmp(header.magic, GML_LOG_MAGIC) == 0);
    CHECK_EQ(header.order, GML_LOG_ORDER);
    CHECK_EQ(header.record_bytes, sizeof record);
    CHECK_EQ(header.process, process);
    while (has_header && record_count < MOST_RECORDS &&
           fread(&record, sizeof record, 1, file) == 1) {
        size_t tail = tail_of(&record) * sizeof record;
        char text[sizeof names[0]] = "";
        if (tail > sizeof text || fread(text, 1, tail, file) != tail) {
            CHECK(tail <= sizeof text);
            break;
        }
        if (record.kind == GML_LOG_NAME && record.name < 64) {
            memcpy(names[record.name], text, sizeof text);
        } else if (record.kind != GML_LOG_PLACE) {
            records[record_count++] = record;
        }
    }
    (void)fclose(file);
    (void)unlink(path);
}

/* Runs a program under the collector, in a process of its own, and reads what it wrote. */
static void watch(void (*program)(void)) {
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(MOST_SECONDS);
        if ((at_end && atexit(at_end)) || !begin()) {
            _exit(3);
        }
        program();
        exit(0);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
    read_log(child);
}

static void check_access(size_t index, uint32_t flags, uint64_t address, uint64_t size_bytes) {
    CHECK_EQ(records[index].kind, GML_LOG_ACCESS);
    CHECK_EQ(records[index].flags, flags);
    CHECK_EQ(records[index].address, address);
    CHECK_EQ(records[index].size_bytes, size_bytes);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void small_program(void) {
    char host[256] = "";
    allocate(0x10000, 256);
    allocate(0x20000, 512);
    cuda_copy in = {0x10000, (uint64_t)(uintptr_t)host, 256, 99};
    make_call(COPY_TO_DEVICE, "cuMemcpyHtoD_v2", &in, NULL, 0);
    uint64_t inside[2] = {1, 0x20000 + 8}; /* a structure that points into the middle */
    uint64_t first = 0x10000;
    int number = 5;
    fake_kernel kernel = {3, {sizeof first, sizeof number, sizeof inside}, NULL};
    launch("square", &kernel, (void *[]){&first, &number, inside}, NULL);
    launch("square", &kernel, (void *[]){&first, &number, inside}, NULL);
    cuda_copy across = {0x10080, 0x20000, 128, 11};
    make_call(COPY_ON_DEVICE_ASYNC, "cuMemcpyDtoDAsync_v2", &across, NULL, 0);
    release(0x10000);
    release(0x20000);
}

TEST(calls_are_taken_down_in_order) {
    watch(small_program);
    static const uint32_t kinds[] = {GML_LOG_ALLOC,  GML_LOG_ALLOC,  GML_LOG_COPY,   GML_LOG_ACCESS,
                                     GML_LOG_KERNEL, GML_LOG_ACCESS, GML_LOG_ACCESS, GML_LOG_KERNEL,
                                     GML_LOG_ACCESS, GML_LOG_ACCESS, GML_LOG_COPY,   GML_LOG_ACCESS,
                                     GML_LOG_ACCESS, GML_LOG_FREE,   GML_LOG_FREE};
    CHECK_EQ(record_count, sizeof kinds / sizeof *kinds);
    for (size_t i = 0; i < record_count; i++) {
        CHECK_EQ(records[i].kind, kinds[i]);
    }
    CHECK_EQ(records[0].address, 0x10000);
    CHECK_EQ(records[0].size_bytes, 256);
    CHECK_EQ(records[2].stream,
             0); /* what follows the parameters of a synchronous copy is no stream */
    check_access(3, GML_ACCESS_WRITES, 0x10000, 256);
    CHECK(strcmp(names[records[4].name], "square") == 0);
    CHECK_EQ(records[7].name, records[4].name);
    CHECK_EQ(records[4].stream, 7);
    check_access(5, GML_ACCESS_TOUCHES, 0x10000, 256);
    check_access(6, GML_ACCESS_TOUCHES, 0x20000, 512);
    CHECK_EQ(records[10].stream, 11);
    check_access(11, GML_ACCESS_READS, 0x20000, 128);
    check_access(12, GML_ACCESS_WRITES, 0x10080, 128);
    CHECK_EQ(records[13].address, 0x10000);
    CHECK(records[0].place != 0);
}

static void failing_program(void) {
    uint64_t result = 0x10000;
    make_call(ALLOC, "cuMemAlloc_v2", &(cuda_alloc){&result, 256, 0, 0}, NULL, 2);
    release(0x10000);
    release(0x30000);
}

TEST(what_failed_and_what_is_foreign_is_left_out) {
    watch(failing_program);
    CHECK_EQ(record_count, 0);
}

static void opaque_program(void) {
    allocate(0x10000, 256);
    launch("unknown", NULL, (void *[]){NULL}, NULL);
    cuda_graph_launch graph = {NULL, 5};
    make_call(GRAPH, "cuGraphLaunch", &graph, NULL, 0);
}

TEST(what_a_call_touches_may_be_unknown) {
    watch(opaque_program);
    CHECK_EQ(record_count, 5);
    CHECK_EQ(records[1].kind, GML_LOG_KERNEL);
    check_access(2, GML_ACCESS_TOUCHES, 0, 0);
    CHECK_EQ(records[3].stream, 5);
    check_access(4, GML_ACCESS_TOUCHES, 0, 0);
}

static void packed_program(void) {
    allocate(0x10000, 256);
    uint64_t buffer[3] = {0, 0x10010, 9};
    size_t size_bytes = sizeof buffer;
    void *extra[] = {(void *)1, buffer, (void *)2, &size_bytes, NULL};
    launch("packed", NULL, NULL, extra);
    fake_kernel kernel = {1, {sizeof(uint64_t)}, NULL};
    cuda_launch_config config = {.stream = 21};
    cuda_launch_ex ex = {&config, &kernel, (void *[]){&buffer[1]}, NULL};
    make_call(LAUNCH_EX, "cuLaunchKernelEx", &ex, NULL, 0);
}

TEST(parameters_may_come_in_one_buffer) {
    watch(packed_program);
    CHECK_EQ(record_count, 5);
    check_access(2, GML_ACCESS_TOUCHES, 0x10000, 256);
    CHECK_EQ(records[3].stream, 21);
    CHECK(strcmp(names[records[3].name], "cuLaunchKernelEx") == 0);
    check_access(4, GML_ACCESS_TOUCHES, 0x10000, 256);
}

static void planes_program(void) {
    allocate(0x10000, 4096);
    cuda_set_2d set = {.target = 0x10000, .pitch_bytes = 64, .width = 4, .height = 8};
    make_call(SET_2D_32, "cuMemsetD2D32_v2", &set, NULL, 0);
    cuda_set halves = {.target = 0x10010, .count = 8, .stream = 3};
    make_call(SET_16_ASYNC, "cuMemsetD16Async", &halves, NULL, 0);
    cuda_rectangle what = {.source = {.memory = CUDA_MEMORY_DEVICE,
                                      .device = 0x10000,
                                      .y = 2,
                                      .pitch_bytes = 64,
                                      .x_bytes = 16},
                           .target = {.memory = 1, .host = 1, .device = 0x10000},
                           .width_bytes = 8,
                           .height = 3};
    make_call(COPY_2D, "cuMemcpy2D_v2", &(cuda_copy_2d){&what, 77}, NULL, 0);
}

TEST(planes_are_runs) {
    watch(planes_program);
    CHECK_EQ(record_count, 7);
    check_access(2, GML_ACCESS_WRITES, 0x10000, 16);
    CHECK_EQ(records[2].stride_bytes, 64);
    CHECK_EQ(records[2].repeat, 8);
    CHECK_EQ(records[3].stream, 3);
    check_access(4, GML_ACCESS_WRITES, 0x10010, 16);
    CHECK_EQ(records[5].stream, 0);
    check_access(6, GML_ACCESS_READS, 0x10000 + 2 * 64 + 16, 8);
    CHECK_EQ(records[6].repeat, 3);
}

static void mapping_program(void) {
    make_call(MAP, "cuMemMap", &(cuda_map){0x200000, 0x200000}, NULL, 0);
    make_call(MAP, "cuMemMap", &(cuda_map){0x400000, 0x200000}, NULL, 0);
    make_call(UNMAP, "cuMemUnmap", &(cuda_map){0x200000, 0x400000}, NULL, 0);
    uint64_t address = 0x900000;
    cuda_alloc pooled = {&address, 64, 0xdead, 13};
    make_call(ALLOC_FROM_POOL, "cuMemAllocFromPoolAsync", &pooled, NULL, 0);
}

TEST(mappings_and_pools_are_objects) {
    watch(mapping_program);
    CHECK_EQ(record_count, 5);
    CHECK_EQ(records[1].address, 0x400000);
    CHECK_EQ(records[2].kind, GML_LOG_FREE);
    CHECK_EQ(records[3].address, 0x400000);
    CHECK_EQ(records[4].stream, 13);
}

static void forking_program(void) {
    allocate(0x10000, 256);
    if (fork() == 0) {
        allocate(0x20000, 256);
        exit(0);
    }
    (void)wait(NULL);
    release(0x10000);
}

TEST(a_child_writes_nothing) {
    watch(forking_program);
    CHECK_EQ(record_count, 2);
    CHECK_EQ(records[0].address, 0x10000);
    CHECK_EQ(records[1].kind, GML_LOG_FREE);
}

static void no_program(void) {
}

TEST(a_missing_function_is_told) {
    (void)setenv("GMLAKE_CUPTI", OTHER_LIBRARY, 1);
    watch(no_program);
    (void)setenv("GMLAKE_CUPTI", FAKE_CUPTI, 1);
    CHECK_EQ(record_count, 0);
    CHECK(strstr(names[1], "error: the CUPTI library has no cuptiSubscribe") != NULL);
}

/* ---- whatever the program does --------------------------------------------------------------- */

static void refused_program(void) {
    allocate(0x10000, 256);
    make_call(COPY_2D, "cuMemcpy2D_v2", &(cuda_copy_2d){NULL, 0}, NULL, 1);
    make_call(LAUNCH_EX, "cuLaunchKernelEx", &(cuda_launch_ex){NULL, NULL, NULL, NULL}, NULL, 1);
    size_t size_bytes = 40000;
    launch("without a buffer", NULL, NULL, (void *[]){NULL});
    launch("too large", NULL, NULL,
           (void *[]){(void *)1, &size_bytes, (void *)2, &size_bytes, NULL});
}

TEST(calls_that_the_driver_refuses_do_no_harm) {
    watch(refused_program);
    CHECK_EQ(record_count, 5);
    CHECK(strcmp(names[records[1].name], "without a buffer") == 0);
    check_access(2, GML_ACCESS_TOUCHES, 0, 0);
    check_access(4, GML_ACCESS_TOUCHES, 0, 0);
}

static void leave(void) {
    exit(0);
}

static void leaving_program(void) {
    allocate(0x10000, 256);
    fake_kernel kernel = {1, {8}, leave};
    uint64_t word = 0;
    launch("last", &kernel, (void *[]){&word}, NULL);
}

static void launch_nothing(void) {
    launch("inner", NULL, NULL, NULL);
}

static void nested_program(void) {
    fake_kernel kernel = {1, {8}, launch_nothing};
    uint64_t word = 0;
    launch("outer", &kernel, (void *[]){&word}, NULL);
}

TEST(a_call_from_within_a_call_does_not_wait_for_itself) {
    watch(leaving_program);
    watch(nested_program);
    CHECK_EQ(record_count, 1);
    CHECK(strcmp(names[records[0].name], "outer") == 0);
}

static void *fill_and_be_cancelled(void *argument) {
    (void)pthread_cancel(pthread_self());
    for (uint64_t i = 0; i < 2000; i++) {
        allocate(0x100000 + i * 256, 256);
    }
    return argument;
}

static void cancelling_program(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, fill_and_be_cancelled, NULL) == 0) {
        (void)pthread_join(thread, NULL);
        launch("after", NULL, NULL, NULL);
    }
}

TEST(a_cancelled_thread_leaves_nothing_locked) {
    watch(cancelling_program);
    CHECK_EQ(record_count, MOST_RECORDS);
}

static void limited_program(void) {
    (void)setrlimit(RLIMIT_FSIZE, &(struct rlimit){100, 100});
    for (uint64_t i = 0; i < 2000; i++) {
        allocate(0x100000 + i * 256, 256);
    }
}

TEST(a_limit_of_the_file_does_not_end_the_program) {
    watch(limited_program);
    CHECK_EQ(record_count, 0);
}

int main(void) {
    char base[256];
    if (!mkdtemp(folder)) {
        return 1;
    }
    (void)snprintf(base, sizeof base, "%s/calls", folder);
    (void)setenv("GMLAKE_CALLS", base, 1);
    (void)setenv("GMLAKE_CUPTI", FAKE_CUPTI, 1);
    int status = check_all();
    (void)rmdir(folder);
    return status;
}
