/* The collector as a program sees it: loaded by the driver, told of calls by CUPTI or the
 * Sanitizer, read from its file. All three are fakes; each test is a process of its own, as the
 * collector is. */
#include "base/mix.h"
#include "diagnosis/collect/log.h"
#include "diagnosis/fake_cupti.h"
#include "diagnosis/fake_sanitizer.h"
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
static fake_sanitizer_launch_function play;
static fake_sanitizer_graph_function play_graph;
static fake_sanitizer_context_function tell_context;
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
    const char *name = getenv("GMLAKE_SANITIZER");
    bool is_patched = name && strcmp(name, FAKE_SANITIZER) == 0;
    void *teller = dlopen(is_patched ? FAKE_SANITIZER : FAKE_CUPTI, RTLD_NOW | RTLD_LOCAL);
    make_call = teller ? (fake_cupti_call_function)dlsym(teller, "fake_cupti_call") : NULL;
    if (is_patched && make_call) {
        play = (fake_sanitizer_launch_function)dlsym(teller, "fake_sanitizer_launch");
        play_graph = (fake_sanitizer_graph_function)dlsym(teller, "fake_sanitizer_graph");
        tell_context = (fake_sanitizer_context_function)dlsym(teller, "fake_sanitizer_context");
    }
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
    while (has_header && fread(&record, sizeof record, 1, file) == 1) {
        size_t tail = tail_of(&record) * sizeof record;
        char text[sizeof names[0]] = "";
        if (tail > sizeof text || fread(text, 1, tail, file) != tail) {
            CHECK(tail <= sizeof text);
            break;
        }
        if (record.kind == GML_LOG_NAME && record.name < 64) {
            memcpy(names[record.name], text, sizeof text);
        } else if (record.kind != GML_LOG_PLACE && record_count < MOST_RECORDS) {
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

/* ---- kernels that tell what they access ------------------------------------------------------ */

enum { READ = 1, WRITE = 2, CONTEXT_DESTROYED = 5 };

static int first_context;
static int second_context;
static int function_of_a_kernel;

static const char ACCESS[] = "gml_patch_access";

static void watch_patched(void (*program)(void), const char *options) {
    (void)setenv("GMLAKE_SANITIZER", FAKE_SANITIZER, 1);
    (void)setenv("GMLAKE_ACCESSES", options, 1);
    watch(program);
    (void)unsetenv("GMLAKE_SANITIZER");
}

static void run_during(const char *name, uint64_t parameter, const fake_access *accesses,
                       size_t count, void (*during)(void)) {
    fake_kernel kernel = {1, {sizeof parameter}, NULL};
    launch(name, &kernel, (void *[]){&parameter}, NULL);
    play(&(fake_launch){name, &first_context, &function_of_a_kernel, accesses, count, during});
}

static void run(const char *name, uint64_t parameter, const fake_access *accesses, size_t count) {
    run_during(name, parameter, accesses, count, NULL);
}

static void run_tiny(uint64_t address) {
    run("tiny", address, &(fake_access){ACCESS, address, 4, WRITE, 1, 0}, 1);
}

static void check_runs(size_t index, uint32_t flags, uint64_t address, uint64_t size_bytes,
                       uint64_t repeat, uint32_t weight) {
    check_access(index, flags, address, size_bytes);
    CHECK_EQ(records[index].repeat, repeat);
    CHECK_EQ(records[index].name, weight);
}

static bool is_told(const char *words) {
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        found = found || strstr(names[i], words) != NULL;
    }
    return found;
}

static void telling_program(void) {
    allocate(0x10000, 256);
    allocate(0x20000, 4096);
    fake_access accesses[] = {
        {ACCESS, 0x10000, 4, READ, 32, 4},         /* a row */
        {ACCESS, 0x20000, 4, READ | WRITE, 32, 0}, /* an atomic, all in one word */
        {ACCESS, 0x20100, 16, WRITE, 3, 64},       /* vectors, a stride apart */
        {ACCESS, 0x10040, 8, 8 | READ, 1, 0},      /* a prefetch */
        {ACCESS, 0x90000, 4, WRITE, 1, 0},         /* nobody's */
        {"gml_patch_async", 0x100f0, 16, 0, 1, 0},
        {"gml_patch_bulk_read", 0x20810, 3, 0, 4, 0},
        {"gml_patch_bulk_write", 0x20900, 2, 0, 4, 0},
        {"gml_patch_bulk_reduce", 0x20a00, 1, 0, 1, 0},
    };
    run("kernel", 0x10000, accesses, sizeof accesses / sizeof *accesses);
    run_tiny(0x20000);
}

TEST(kernels_tell_which_bytes_they_access_and_how_often) {
    watch_patched(telling_program, "4,1");
    CHECK_EQ(record_count, 14);
    CHECK_EQ(records[2].kind, GML_LOG_KERNEL);
    CHECK(strcmp(names[records[2].name], "kernel") == 0);
    CHECK_EQ(records[2].stream, 7);
    CHECK(records[2].place != 0);
    check_runs(3, GML_ACCESS_READS, 0x10000, 128, 1, 1);
    check_runs(4, GML_ACCESS_READS, 0x100f0, 16, 1, 1);
    check_runs(5, GML_ACCESS_READS, 0x20000, 4, 1, 63);
    check_runs(6, GML_ACCESS_READS, 0x20810, 48, 1, 1);
    check_runs(7, GML_ACCESS_READS, 0x20a00, 16, 1, 1);
    check_runs(8, GML_ACCESS_WRITES, 0x20000, 4, 1, 1);
    check_runs(9, GML_ACCESS_WRITES, 0x20100, 16, 3, 1);
    CHECK_EQ(records[9].stride_bytes, 64);
    check_runs(10, GML_ACCESS_WRITES, 0x20900, 32, 1, 1);
    check_runs(11, GML_ACCESS_WRITES, 0x20a00, 16, 1, 1);
    CHECK_EQ(records[12].kind, GML_LOG_KERNEL); /* and nothing is left of the kernel before */
    check_runs(13, GML_ACCESS_WRITES, 0x20000, 4, 1, 1);
}

static uint64_t second_word; /* of the parameter that may be a tensor map */

static void mapped_program(void) {
    allocate(0x10000, 256);
    allocate(0x20000, 256);
    uint64_t map[16] = {0x20000, second_word};
    uint64_t plain = 0x10000;
    fake_kernel kernel = {2, {sizeof map, sizeof plain}, NULL};
    fake_access access = {ACCESS, 0x10000, 4, READ, 1, 0};
    launch("tensor", &kernel, (void *[]){map, &plain}, NULL);
    play(&(fake_launch){"tensor", &first_context, &function_of_a_kernel, &access, 1, NULL});
}

TEST(what_a_tensor_map_points_to_counts_as_touched) {
    watch_patched(mapped_program, "4,1");
    CHECK_EQ(record_count, 5);
    check_runs(3, GML_ACCESS_READS, 0x10000, 4, 1, 1);
    check_runs(4, GML_ACCESS_TOUCHES, 0x20000, 256, 1, 1);
    second_word = 0x10000; /* a structure of pointers, as large as a map by chance */
    watch_patched(mapped_program, "4,1");
    CHECK_EQ(record_count, 4);
    check_runs(3, GML_ACCESS_READS, 0x10000, 4, 1, 1);
}

/* ---- every byte of random kernels ------------------------------------------------------------ */

enum { DRAWS = 300, OBJECT_BYTES = 2000, MOST_ACCESSES = 12 };

static uint32_t least_bytes; /* of an access: 4 and 1 reach what a granule is, and parts of it */

static uint64_t draw_below(uint64_t *state, uint64_t limit) {
    return (gml_mix_next(state) >> 11) % limit;
}

/* Ends within the object, like those of a correct kernel. */
static size_t draw_accesses(uint64_t *state, fake_access *accesses) {
    size_t count = 1 + draw_below(state, MOST_ACCESSES);
    for (size_t i = 0; i < count; i++) {
        uint32_t size_bytes = least_bytes << draw_below(state, 3);
        int64_t step = (int64_t)(draw_below(state, 4) * size_bytes);
        uint32_t lanes = 1 + (uint32_t)draw_below(state, 32);
        uint64_t last = OBJECT_BYTES - size_bytes - (lanes - 1) * (uint64_t)step;
        uint64_t offset = draw_below(state, last / size_bytes + 1) * size_bytes;
        accesses[i] = (fake_access){
            ACCESS, 0x10000 + offset, size_bytes, 1 + (uint32_t)draw_below(state, 3), lanes, step};
    }
    return count;
}

static uint64_t seed;

static void seeded_program(void) {
    uint64_t state = seed;
    fake_access accesses[MOST_ACCESSES];
    allocate(0x10000, OBJECT_BYTES);
    run("random", 0x10000, accesses, draw_accesses(&state, accesses));
}

/* What is true of one kernel, added up access by access. */
typedef struct truth {
    uint8_t kinds[OBJECT_BYTES];
    uint32_t counts[OBJECT_BYTES / 4];
} truth;

static truth truth_of(uint64_t state) {
    truth made = {0};
    fake_access accesses[MOST_ACCESSES];
    size_t count = draw_accesses(&state, accesses);
    for (size_t i = 0; i < count * 32; i++) {
        const fake_access *access = &accesses[i / 32];
        uint64_t at = access->address - 0x10000 + i % 32 * (uint64_t)access->step;
        for (uint64_t byte = at; i % 32 < access->lanes && byte < at + access->size_bytes; byte++) {
            made.kinds[byte] |= (uint8_t)access->flags;
            bool is_new = byte == at || byte % 4 == 0;
            made.counts[byte / 4] += is_new ? 1 + access->flags / 3 : 0; /* an atomic is two */
        }
    }
    return made;
}

static truth truth_recorded(void) {
    truth made = {0};
    for (size_t i = 0; i < record_count; i++) {
        const gml_log_record *record = &records[i];
        for (uint64_t run = 0; record->kind == GML_LOG_ACCESS && run < record->repeat; run++) {
            uint64_t at = record->address - 0x10000 + run * record->stride_bytes;
            for (uint64_t byte = at; byte < at + record->size_bytes; byte++) {
                bool is_new = byte == at || byte % 4 == 0;
                made.kinds[byte] |= (uint8_t)record->flags;
                made.counts[byte / 4] += is_new ? record->name : 0;
            }
        }
    }
    return made;
}

TEST(random_kernels_are_recorded_as_they_are) {
    for (seed = 1; seed <= DRAWS; seed++) {
        least_bytes = seed % 2 ? 4 : 1;
        watch_patched(seeded_program, "4,1");
        truth expected = truth_of(seed);
        truth recorded = truth_recorded();
        CHECK(memcmp(expected.kinds, recorded.kinds, sizeof expected.kinds) == 0);
        CHECK(least_bytes < 4 ||
              memcmp(expected.counts, recorded.counts, sizeof expected.counts) == 0);
    }
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static void sampled_program(void) {
    allocate(0x10000, 256);
    allocate(0x20000, 256);
    for (int i = 0; i < 4; i++) {
        run_tiny(0x10000);
        run_tiny(0x20000);
    }
    release(0x10000);
    allocate(0x10000, 128); /* another object: another kind of launch */
    run_tiny(0x10000);
}

TEST(each_third_launch_with_the_same_objects_is_looked_at) {
    static const uint64_t numbers[] = {1, 2, 0, 0, 0, 0, 3, 4, 5};
    static const uint64_t repeats[] = {0, 0, 1, 2, 1, 2, 0, 0, 0};
    watch_patched(sampled_program, "4,3");
    size_t launches = 0;
    for (size_t i = 0; i < record_count; i++) {
        if (records[i].kind == GML_LOG_KERNEL) {
            CHECK_EQ(records[i].size_bytes, numbers[launches]);
            CHECK_EQ(records[i].address, repeats[launches]);
            bool is_marked = i + 1 < record_count && records[i + 1].kind == GML_LOG_ACCESS;
            CHECK_EQ(is_marked, numbers[launches] > 0);
            launches++;
        }
    }
    CHECK_EQ(launches, sizeof numbers / sizeof *numbers);
}

static void vast_program(void) {
    allocate(0x10000, 256);
    run_tiny(0x10000);
    allocate(UINT64_C(1) << 40, UINT64_C(1) << 40);
    fake_access accesses[] = {{ACCESS, 0x10000, 4, WRITE, 1, 0},
                              {ACCESS, UINT64_C(1) << 40, 4, READ, 1, 0}};
    run("vast", 0x10000, accesses, 2);
}

TEST(an_object_too_large_for_marks_is_seen_as_a_whole) {
    watch_patched(vast_program, "4,1");
    CHECK_EQ(record_count, 7);
    check_runs(5, GML_ACCESS_WRITES, 0x10000, 4, 1, 1);
    check_runs(6, GML_ACCESS_READS, UINT64_C(1) << 40, UINT64_C(1) << 40, 1, 1);
    CHECK(is_told("note: the marks of all objects"));
}

static void large_program(void) {
    allocate(0x1000000, 8 << 20);
    run_tiny(0x1000000);
    fake_access accesses[] = {{ACCESS, 0x1000044, 4, READ, 8, 4},
                              {ACCESS, 0x1000044, 4, READ, 4, 0},
                              {ACCESS, 0x1000100, 4, READ, 17, 4},
                              {ACCESS, 0x1000160, 4, READ, 8, 4}};
    run("reads", 0x1000000, accesses, 4);
}

TEST(a_device_with_little_memory_keeps_most_of_it) {
    static const char *const memories[] = {"1000000", "6000000", "20000000"};
    for (size_t i = 0; i < 3; i++) {
        (void)setenv("FAKE_SANITIZER_MEMORY", memories[i], 1);
        watch_patched(large_program, "4,1");
        CHECK_EQ(is_told("a larger --granule makes room"), i < 2);
        if (i == 0) { /* which object is accessed */
            CHECK_EQ(record_count, 5);
            check_runs(2, GML_ACCESS_TOUCHES, 0x1000000, 8 << 20, 1, 1);
            continue;
        }
        CHECK_EQ(record_count, i == 1 ? 7 : 8); /* which bytes, and how often */
        check_runs(2, GML_ACCESS_WRITES, 0x1000000, 4, 1, 1);
        check_runs(4, GML_ACCESS_READS, 0x1000044, i == 1 ? 32 : 4, 1, i == 1 ? 1 : 5);
        check_runs(record_count - 2, GML_ACCESS_READS, 0x1000100, 68, 1, 1);
        check_runs(record_count - 1, GML_ACCESS_READS, 0x1000160, 32, 1, 1);
    }
    (void)unsetenv("FAKE_SANITIZER_MEMORY");
}

static void whole_program(void) {
    allocate(0x10000, 256);
    run_tiny(0x10000);
    run("reads", 0x10000, &(fake_access){ACCESS, 0x10040, 4, READ, 1, 0}, 1);
}

TEST(without_granules_objects_are_seen_as_a_whole) {
    watch_patched(whole_program, "0,1");
    CHECK_EQ(record_count, 5);
    check_runs(2, GML_ACCESS_TOUCHES, 0x10000, 256, 1, 1); /* which bytes get a value is unknown */
    check_runs(4, GML_ACCESS_READS, 0x10000, 256, 1, 1);
    CHECK(!is_told("note: "));
}

/* Neighbours have unlike sizes and distances. */
static void run_scattered(size_t count) {
    static fake_access accesses[300000];
    uint64_t address = 0x1000000;
    for (size_t i = 0; i < count; i++) {
        accesses[i] = (fake_access){ACCESS, address, 1 + (uint32_t)(i % 3), WRITE, 1, 0};
        address += 5 + i % 7;
    }
    run("scattered", 0x1000000, accesses, count);
}

static void scattered_program(void) {
    allocate(0x1000000, 4 << 20);
    run_scattered(300000);
}

static void often_scattered_program(void) {
    allocate(0x1000000, 4 << 20);
    for (int i = 0; i < 2; i++) {
        run_scattered(260000);
    }
}

TEST(more_runs_than_fit_are_joined_and_then_no_write_is_sure) {
    watch_patched(scattered_program, "1,1");
    CHECK_EQ(record_count, 3);
    check_runs(2, GML_ACCESS_TOUCHES, 0x1000000, 2399995, 1, 1);
    CHECK(is_told("note: the accesses of some launches are too many"));
    watch_patched(often_scattered_program, "1,1"); /* a launch gets a part of what is left */
    check_access(2, GML_ACCESS_WRITES, 0x1000000, 1);
    CHECK(is_told("note: the accesses of some launches are too many"));
}

/* ---- whatever the program or the library does ------------------------------------------------ */

static void plain_program(void) {
    allocate(0x10000, 256);
    run_tiny(0x10000);
    release(0x10000);
}

TEST(a_call_of_the_sanitizer_may_fail) {
    static const struct {
        const char *function, *words;
        uint32_t flags;
    } calls[] = {
        {"Subscribe", "error: the Sanitizer refused", 0},
        {"EnableDomain", "error: the Sanitizer does not tell", 0},
        {"AddPatches", "note: some kernels could not be patched", GML_ACCESS_TOUCHES},
        {"PatchInstructions", "note: some kernels could not be patched", GML_ACCESS_TOUCHES},
        {"PatchModule", "note: some kernels could not be patched", GML_ACCESS_TOUCHES},
        {"SetLaunchCallbackData", "", GML_ACCESS_TOUCHES},
        {"Alloc", "", GML_ACCESS_TOUCHES},
        {"MemcpyHostToDeviceAsync", "", GML_ACCESS_TOUCHES},
        {"MemcpyDeviceToHost", "note: what some launches access", GML_ACCESS_TOUCHES},
        {"Memset", "", GML_ACCESS_TOUCHES},
        {"StreamSynchronize", "note: what some launches access", GML_ACCESS_TOUCHES}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        (void)setenv("FAKE_SANITIZER_FAILS", calls[i].function, 1);
        watch_patched(plain_program, "4,1");
        CHECK(is_told(calls[i].words));
        if (calls[i].flags) {
            CHECK_EQ(record_count, 4);
            check_access(2, calls[i].flags, 0x10000, 256);
        }
    }
    (void)unsetenv("FAKE_SANITIZER_FAILS");
}

TEST(a_library_that_is_none_is_told) {
    (void)setenv("GMLAKE_SANITIZER", OTHER_LIBRARY, 1);
    watch(no_program);
    CHECK(is_told("error: the Sanitizer library lacks sanitizerSubscribe; it must be of CUDA 12"));
    (void)setenv("GMLAKE_SANITIZER", "/nowhere/libsanitizer-public.so", 1);
    watch(no_program);
    CHECK(is_told("error: the Sanitizer library cannot be loaded; install"));
    (void)unsetenv("GMLAKE_SANITIZER");
}

static void release_meanwhile(void) {
    release(0x20000);
}

static void replace_meanwhile(void) {
    release(0x20000);
    allocate(0x20000, 64);
}

static void racing_program(void) {
    allocate(0x10000, 256);
    allocate(0x20000, 256);
    fake_access accesses[] = {{ACCESS, 0x10000, 4, READ, 1, 0}, {ACCESS, 0x20000, 4, READ, 1, 0}};
    run_during("races", 0x10000, accesses, 2, release_meanwhile);
    allocate(0x20000, 256); /* whose marks are where those of the freed one were */
    run("later", 0x20000, &(fake_access){ACCESS, 0x20010, 4, READ, 1, 0}, 1);
    run_during("races", 0x10000, &accesses[1], 1, replace_meanwhile);
}

TEST(an_object_that_is_freed_meanwhile_is_left_out) {
    watch_patched(racing_program, "4,1");
    CHECK_EQ(record_count, 11);
    CHECK_EQ(records[2].kind, GML_LOG_FREE);
    check_runs(4, GML_ACCESS_READS, 0x10000, 4, 1, 1);
    check_runs(7, GML_ACCESS_READS, 0x20010, 4, 1, 1);
    CHECK_EQ(records[10].kind, GML_LOG_KERNEL); /* of what it accessed nothing is left */
}

static void graph_program(void) {
    allocate(0x10000, 256);
    run_tiny(0x10000);
    fake_access access = {ACCESS, 0x10010, 4, READ, 1, 0};
    fake_launch kernel = {"one", &first_context, &function_of_a_kernel, &access, 1, NULL};
    cuda_graph_launch graph = {NULL, 5};
    make_call(GRAPH, "cuGraphLaunch", &graph, "no name", 0);
    play_graph(&kernel, 1);
    run("reads", 0x10000, &(fake_access){ACCESS, 0x10020, 4, READ, 1, 0}, 1);
}

TEST(a_graph_is_one_launch_that_may_access_anything) {
    watch_patched(graph_program, "4,1");
    CHECK_EQ(record_count, 7);
    CHECK(strcmp(names[records[3].name], "cuGraphLaunch") == 0);
    CHECK_EQ(records[3].stream, 5);
    check_access(4, GML_ACCESS_TOUCHES, 0, 0);
    check_runs(6, GML_ACCESS_READS, 0x10020, 4, 1, 1); /* the graph's kernel has left no marks */
}

static void contexts_program(void) {
    allocate(0x10000, 256);
    run_tiny(0x10000);
    fake_access access = {ACCESS, 0x10010, 4, WRITE, 1, 0};
    play(&(fake_launch){"other", &second_context, &function_of_a_kernel, &access, 1, NULL});
    tell_context(&first_context, CONTEXT_DESTROYED);
    run_tiny(0x10020);
}

TEST(each_context_has_its_own_marks) {
    watch_patched(contexts_program, "4,1");
    CHECK_EQ(record_count, 7);
    check_runs(2, GML_ACCESS_WRITES, 0x10000, 4, 1, 1);
    check_runs(4, GML_ACCESS_WRITES, 0x10010, 4, 1, 1);
    check_runs(6, GML_ACCESS_WRITES, 0x10020, 4, 1, 1);
    CHECK(strcmp(names[records[3].name], "other") == 0); /* no call of the driver's told of it */
}

static void wait_a_little(void) {
    (void)usleep(20);
}

static void *run_many(void *argument) {
    uint64_t address = (uint64_t)(uintptr_t)argument;
    for (int i = 0; i < 100; i++) {
        run_during("tiny", address, &(fake_access){ACCESS, address, 4, WRITE, 1, 0}, 1,
                   wait_a_little);
    }
    return NULL;
}

static void threads_program(void) {
    pthread_t threads[2];
    allocate(0x10000, 256);
    allocate(0x20000, 256);
    for (size_t i = 0; i < 2; i++) {
        (void)pthread_create(&threads[i], NULL, run_many, (void *)((i + 1) * 0x10000));
    }
    for (size_t i = 0; i < 2; i++) {
        (void)pthread_join(threads[i], NULL);
    }
}

TEST(launches_of_threads_are_told_apart) {
    watch_patched(threads_program, "4,1");
    CHECK_EQ(record_count, 2 + 2 * 200);
    size_t of_first = 0;
    for (size_t i = 3; i < record_count; i += 2) {
        CHECK_EQ(records[i].size_bytes, 4);
        of_first += records[i].address == 0x10000;
    }
    CHECK_EQ(of_first, 100);
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
