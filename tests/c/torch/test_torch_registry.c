/* The lakes below PyTorch, without PyTorch. Lakes live as long as their process does, so every test
 * runs in a process of its own, which begins without any. */
#include "driver/streams.h"
#include "gmlake_elastic.h"
#include "gmlake_interop.h"
#include "gmlake_share.h"
#include "gmlake_sleep.h"
#include "gmlake_torch.h"
#include "hooks/test_hooks.h"
#include "lake/lake.h"
#include "support/check.h"
#include "support/torch_calls.h"
#include "torch/refusal.h"
#include "torch/registry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

enum { REASON_BYTES = 320 };

static void *const SIDE = (void *)(uintptr_t)7; /* NOLINT(performance-no-int-to-ptr): a stream */

/* ---- helpers --------------------------------------------------------------------------------- */

static void configure(const char *driver, const char *policy, uint64_t capacity_bytes) {
    gml_lake_config config = {.driver = driver, .policy = policy, .capacity_bytes = capacity_bytes};
    char reason[REASON_BYTES] = "";
    if (!CHECK_OK(gml_torch_configure(&config, reason, sizeof reason))) {
        fprintf(stderr, "%s\n", reason);
    }
}

static void configure_host(void) {
    configure("host", "stitch", 64 * MIB);
}

static gml_stats stats_of(int device) {
    gml_stats stats = {0};
    gml_lake *lake = gml_torch_lake(device);
    if (CHECK(lake != NULL)) {
        CHECK_OK(gml_lake_check(lake));
        CHECK_OK(gml_lake_stats(lake, &stats));
    }
    return stats;
}

/* The lake of device 0, opened if need be. */
static gml_lake *opened(void) {
    gml_lake *lake = NULL;
    CHECK_OK(gml_registry_open(0, &lake, NULL, 0));
    return lake;
}

static void *allocate(uint64_t size_bytes, int device) {
    void *address = torch_allocate(size_bytes, device, NULL);
    CHECK(address != NULL);
    return address;
}

static void release(void *address) {
    CHECK(torch_free(address));
}

static void check_refused(const gml_lake_config *config, const char *hint) {
    char reason[REASON_BYTES] = "";
    CHECK_STATUS(gml_torch_configure(config, reason, sizeof reason), GML_INVALID_ARGUMENT);
    if (!CHECK(strstr(reason, hint) != NULL)) {
        fprintf(stderr, "  %s\n", reason);
    }
    CHECK(!strchr(reason, '\n'));
    CHECK_STATUS(gml_torch_configure(config, NULL, 0), GML_INVALID_ARGUMENT);
}

/* ---- configuring ----------------------------------------------------------------------------- */

TEST(bad_configurations_are_refused_at_once) {
    const gml_setting unknown = {"no_such_knob", 1};
    const gml_setting too_small = {"max_split_size", 1};
    char long_name[64];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    check_refused(&(gml_lake_config){.driver = "host", .policy = "none"}, "\"none\"");
    check_refused(&(gml_lake_config){.driver = "host"}, "no policy");
    check_refused(&(gml_lake_config){.policy = "stitch"}, "cuda, host, sim");
    check_refused(&(gml_lake_config){.driver = long_name, .policy = "stitch"}, "cuda, host, sim");
    check_refused(
        &(gml_lake_config){
            .driver = "host", .policy = "stitch", .settings = &unknown, .setting_count = 1},
        "no_such_knob");
    check_refused(
        &(gml_lake_config){
            .driver = "host", .policy = "stitch", .settings = &too_small, .setting_count = 1},
        "max_split_size");
}

TEST(a_configuration_is_copied_and_holds_once_a_lake_is_open) {
    char name[] = "chunk_size";
    gml_setting setting = {name, 4 * MIB};
    gml_lake_config config = {
        .driver = "host", .policy = "stitch", .settings = &setting, .setting_count = 1};
    CHECK_OK(gml_torch_configure(&config, NULL, 0));
    memset(name, 'x', sizeof name - 1);
    setting.value = 1;
    void *address = allocate(MIB + 1, 0);
    CHECK_EQ(stats_of(0).reserved_bytes, 4 * MIB);
    release(address);

    gml_setting same = {"chunk_size", 4 * MIB};
    config.settings = &same;
    CHECK_OK(gml_torch_configure(&config, NULL, 0));
    same.value = 2 * MIB;
    check_refused(&config, "in use already");
    config.setting_count = 0;
    check_refused(&config, "in use already");
    check_refused(&(gml_lake_config){.driver = "sim", .policy = "stitch"}, "the driver host");
}

/* ---- memory ---------------------------------------------------------------------------------- */

TEST(a_free_reaches_the_lake_that_served_whatever_the_device) {
    configure_host();
    void *first = allocate(MIB, 0);
    void *second = allocate(MIB, 2);
    gml_interop_free(NULL, first, 2);
    gml_interop_free(NULL, second, -1);
    CHECK_EQ(stats_of(0).live_blocks, 0);
    CHECK_EQ(stats_of(2).live_blocks, 0);
}

TEST(frees_of_what_nobody_served_are_harmless) {
    int foreign = 0;
    CHECK(!torch_free(&foreign));
    gml_interop_free(NULL, &foreign, 0);
    gml_interop_free(NULL, NULL, 0);
    configure_host();
    void *address = allocate(MIB, 0);
    CHECK(!torch_free(&foreign));
    CHECK(!torch_free((char *)address + 512));
    gml_interop_free(NULL, &foreign, GML_TORCH_DEVICES);
    CHECK_EQ(stats_of(0).live_blocks, 1);
    release(address);
    CHECK(!torch_free(address));
    CHECK_EQ(stats_of(0).frees, 1);
}

TEST(devices_out_of_range_have_no_memory) {
    configure_host();
    const int devices[] = {-1, GML_TORCH_DEVICES, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        char reason[REASON_BYTES] = "";
        gml_lake *lake = NULL;
        CHECK(torch_allocate(1, devices[i], NULL) == NULL); /* nothing to throw with here */
        CHECK(gml_torch_lake(devices[i]) == NULL);
        CHECK_STATUS(gml_registry_open(devices[i], &lake, reason, sizeof reason),
                     GML_INVALID_ARGUMENT);
        CHECK(strstr(reason, "outside 0 to 127") != NULL);
        gml_registry_limit(devices[i], 0.5);
        char text[8] = "x";
        gml_torch_fallback(devices[i], text, sizeof text);
        CHECK_EQ(text[0], '\0');
    }
    CHECK(torch_allocate(1, GML_TORCH_DEVICES - 1, NULL) != NULL);
}

/* ---- streams and pools ----------------------------------------------------------------------- */

static gml_streams *streams_of(int device) {
    return gml_torch_lake(device)->driver->streams;
}

static void nothing(void *context) {
    (void)context;
}

/* ---- opening may fail ------------------------------------------------------------------------ */

TEST(memory_that_cannot_be_shared_is_not_handed_out) {
    gml_lake_config config = {.driver = "host", .policy = "stitch", .handle_type = 1};
    CHECK_OK(gml_torch_configure(&config, NULL, 0));
    char reason[REASON_BYTES] = "";
    gml_lake *lake = NULL;
    CHECK(torch_allocate(1, 0, NULL) == NULL);
    CHECK_STATUS(gml_registry_open(0, &lake, reason, sizeof reason), GML_UNSUPPORTED);
    CHECK(reason[0] != '\0');
}

TEST(a_device_without_virtual_memory_is_served_as_caching) {
    const char *library = getenv("GMLAKE_TEST_CUDA"); /* NOLINT(concurrency-mt-unsafe) */
    if (!library || strcmp(library, "fake") != 0) {
        return;
    }
    char why[REASON_BYTES] = "x";
    configure("cuda", "stitch", 0);
    gml_torch_fallback(0, why, sizeof why);
    CHECK_EQ(why[0], '\0');
    CHECK_EQ(setenv("GMLAKE_FAKE_CUDA", "no_virtual_memory", 1), 0); /* NOLINT */
    void *address = allocate(MIB, 0);
    CHECK(strcmp(gml_torch_lake(0)->policy->ops->name, "caching") == 0);
    gml_torch_fallback(0, why, sizeof why);
    CHECK(strstr(why, "virtual memory") != NULL);
    CHECK_EQ(stats_of(0).reserved_bytes, 2 * MIB);
    release(address);
}

/* A thread that a child of fork() has not is about to begin a capture. */
static void *hold_device(void *context) {
    gml_device *device = gml_registry_device(0);
    gml_device_freeze(device, 1);
    gml_device_halt(device);
    (void)pthread_barrier_wait(context);
    (void)pthread_barrier_wait(context);
    gml_device_go_on(device);
    gml_device_freeze(device, -1);
    return NULL;
}

TEST(a_child_of_fork_has_lakes_of_its_own) {
    configure_host();
    void *inherited = allocate(3 * MIB, 0);
    gml_device *device = gml_registry_device(0);
    pthread_barrier_t holds;
    pthread_t holder;
    CHECK_EQ(pthread_barrier_init(&holds, NULL, 2), 0);
    CHECK_EQ(pthread_create(&holder, NULL, hold_device, &holds), 0);
    (void)pthread_barrier_wait(&holds);
    pid_t child = fork();
    if (child == 0) {
        bool is_empty = gml_torch_lake(0) == NULL && !gml_device_is_frozen(device);
        if (pthread_mutex_trylock(&device->lock) != 0) {
            _exit(1);
        }
        pthread_mutex_unlock(&device->lock);
        is_empty &= !torch_free(inherited);
        void *own = torch_allocate(3 * MIB, 0, NULL);
        is_empty = is_empty && device->sharers->next == NULL;
        _exit(is_empty && own ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    (void)pthread_barrier_wait(&holds);
    CHECK_EQ(pthread_join(holder, NULL), 0);
    CHECK_EQ(pthread_barrier_destroy(&holds), 0);
    CHECK_EQ(status, 0);
    CHECK_EQ(stats_of(0).live_blocks, 1);
    release(inherited);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static const char *refusal(uint64_t size_bytes, gml_status status, uint64_t beside_bytes) {
    static char text[GML_REFUSAL_BYTES];
    gml_refusal_look(gml_torch_lake(0), NULL, size_bytes, 0, beside_bytes);
    gml_refusal_write(gml_torch_lake(0), 0, size_bytes, status, text, sizeof text);
    gml_refusal_end();
    CHECK(strlen(text) < sizeof text - 1 && !strchr(text, '\n'));
    return text;
}

static void check_says(const char *text, const char *part) {
    if (!CHECK(strstr(text, part) != NULL)) {
        fprintf(stderr, "  not \"%s\" in: %s\n", part, text);
    }
}

TEST(a_refusal_says_what_there_is_and_what_was_tried) {
    configure_host();
    void *kept = allocate(20 * MIB, 0);
    void *lent = allocate(3 * MIB, 0);
    release(allocate(8 * MIB, 0));
    torch_record_stream(lent, SIDE);
    CHECK_OK(gml_streams_set_manual(streams_of(0), true));
    CHECK_OK(gml_streams_enqueue(streams_of(0), (gml_stream)(uintptr_t)SIDE, nothing, NULL));
    release(lent);
    gml_registry_limit(0, 0.75);
    const char *text = refusal(2048 * MIB, GML_OUT_OF_MEMORY, 0);
    CHECK_EQ(strncmp(text, "CUDA out of memory. Tried to allocate 2.00 GiB. ", 48), 0);
    check_says(text, "GPU 0 has a total capacity of 64.0 MiB of which 32.0 MiB is free.");
    check_says(text, "This process may hold 48.0 MiB of it");
    check_says(text, "gmlake (policy stitch) holds 32.0 MiB: 20.0 MiB in use by 1 tensor,");
    check_says(text, "3.00 MiB freed but still used by other streams");
    check_says(text, "and 9.00 MiB free, which serve at most ");
    check_says(text, "memory_summary()");
    CHECK_OK(gml_streams_set_manual(streams_of(0), false));
    release(kept);
}

TEST(a_refusal_counts_no_chunk_of_an_elastic_tensor_as_a_tensor) {
    configure_host();
    void *kept = allocate(20 * MIB, 0);
    gml_address address;
    uint64_t memory_bytes;
    CHECK_OK(gml_lake_open_elastic(gml_torch_lake(0), 16 * MIB, 0, &address));
    check_says(refusal(2048 * MIB, GML_OUT_OF_MEMORY, 0), "in use by 1 tensor, and");
    CHECK_OK(gml_lake_resize_elastic(gml_torch_lake(0), address, 10 * MIB, 0, &memory_bytes));
    check_says(refusal(2048 * MIB, GML_OUT_OF_MEMORY, 0),
               "20.0 MiB in use by 1 tensor, 10.0 MiB by elastic tensors, and");
    release(kept);
    check_says(refusal(2048 * MIB, GML_OUT_OF_MEMORY, 0),
               "0 B in use by 0 tensors, 10.0 MiB by elastic tensors, and");
    CHECK_OK(gml_lake_close_elastic(gml_torch_lake(0), address));
    check_says(refusal(2048 * MIB, GML_OUT_OF_MEMORY, 0), "0 B in use by 0 tensors, and");
}

TEST(a_refusal_says_what_idle_memory_could_serve) {
    configure_host();
    void *kept = allocate(20 * MIB, 0);
    void *small = allocate(1024, 0);
    const char *text = refusal(2048 * MIB, GML_OUT_OF_MEMORY, 0);
    check_says(text, "and 2.00 MiB free, which serve at most 1.00 MiB.");
    release(allocate(8 * MIB, 0));
    text = refusal(2048 * MIB, GML_OUT_OF_MEMORY, 0);
    check_says(text, "and 10.0 MiB free, which serve at most 8.00 MiB.");
    release(small);
    release(kept);
}

TEST(a_refusal_says_who_else_has_memory) {
    configure_host();
    void *kept = allocate(20 * MIB, 0); /* of 64 MiB */
    const char *text = refusal(2048 * MIB, GML_OUT_OF_MEMORY, 0);
    CHECK(!strstr(text, "PyTorch's own allocator") && !strstr(text, "other processes"));
    check_says(refusal(2048 * MIB, GML_OUT_OF_MEMORY, 5 * MIB),
               "PyTorch's own allocator holds 5.00 MiB.");
    release(kept);
}

TEST(what_pytorch_holds_is_not_told_as_others) {
    configure_host();
    void *kept = allocate(20 * MIB, 0);
    gml_driver *driver = gml_torch_lake(0)->driver;
    gml_handle handle = 0;
    CHECK_OK(gml_driver_create(driver, 8 * MIB, &handle)); /* no policy knows of it */
    check_says(refusal(1024, GML_OUT_OF_MEMORY, 5 * MIB), "The other 3.00 MiB are taken");
    check_says(refusal(1024, GML_OUT_OF_MEMORY, 0), "The other 8.00 MiB are taken");
    check_says(refusal(1024, GML_OUT_OF_MEMORY, 0), "Tried to allocate 1024 bytes.");
    check_says(refusal(1025, GML_OUT_OF_MEMORY, 0), "Tried to allocate 1.00 KiB.");
    check_says(refusal(UINT64_C(1) << 60, GML_OUT_OF_MEMORY, 0), "more than 1EB memory.");
    CHECK_OK(gml_driver_release(driver, handle));
    release(kept);
}

TEST(the_lakes_of_a_device_share_its_limit_and_its_captures) {
    configure_host();
    const int entry = 0;
    void *kept = allocate(20 * MIB, 0);
    gml_registry_limit(0, 0.5);
    CHECK_OK(gml_torch_enter_region((gml_region){.number = 4}, false, &entry));
    CHECK(torch_allocate(20 * MIB, 0, NULL) == NULL); /* its device's lake holds 20 of 32 */
    void *within = allocate(8 * MIB, 0);
    gml_lake *region = gml_torch_lake(GML_TORCH_DEVICES);
    CHECK(gml_torch_leave_region(&entry));
    check_says(refusal(20 * MIB, GML_OUT_OF_MEMORY, 0), "Regions hold 8.00 MiB.");
    CHECK_OK(gml_lake_begin_pool(gml_torch_lake(0), (gml_pool_id){1, 0}));
    gml_sleep_report report;
    CHECK_STATUS(gml_lake_sleep(region, GML_BACKUP_NONE, &report), GML_UNSUPPORTED);
    CHECK_OK(gml_lake_end_pool(gml_torch_lake(0), (gml_pool_id){1, 0}));
    CHECK_OK(gml_lake_sleep(region, GML_BACKUP_NONE, &report));
    CHECK_EQ(gml_torch_lake(0)->driver->device->held_bytes, 20 * MIB); /* not what sleeps */
    void *instead = allocate(12 * MIB, 0);
    CHECK_STATUS(gml_lake_wake(region, &report), GML_OUT_OF_MEMORY);
    release(instead);
    torch_trim();
    CHECK_OK(gml_lake_wake(region, &report));
    release(within);
    release(kept);
    torch_trim();
    CHECK_EQ(gml_torch_lake(0)->driver->device->held_bytes, 0);
}

TEST(idle_memory_of_a_pool_serves_nothing_else) {
    configure_host();
    const gml_pool_id id = {0, 7};
    gml_address idle, live;
    gml_lake *lake = opened();
    CHECK_OK(gml_lake_hold_pool(lake, id));
    CHECK_OK(gml_lake_allocate_in(lake, id, 20 * MIB, 0, &idle));
    CHECK_OK(gml_lake_allocate_in(lake, id, 4 * MIB, 0, &live));
    CHECK_OK(gml_lake_free(lake, idle));
    check_says(refusal(50 * MIB, GML_OUT_OF_MEMORY, 0),
               "20.0 MiB are free in MemPool (0, 7), which serve nothing else. 10.0 MiB less would "
               "have been served.");
    gml_refusal_look(lake, &id, 70 * MIB, 0, 0);
    CHECK_EQ(gml_last_refusal()->idle_bytes, 20 * MIB);
    CHECK_EQ(gml_last_refusal()->pools_bytes, 0);
    CHECK_EQ(gml_last_refusal()->serves_bytes, 60 * MIB);
    gml_refusal_end();
    CHECK_OK(gml_lake_free(lake, live));
    CHECK_OK(gml_lake_release_pool(lake, id));
}

TEST(a_limit_is_named_and_what_ran_was_tried) {
    configure_host();
    void *kept = allocate(20 * MIB, 0);
    gml_registry_limit(0, 0.5);
    CHECK(torch_allocate(20 * MIB, 0, NULL) == NULL);
    CHECK_EQ(gml_last_refusal()->room_bytes, 12 * MIB);
    CHECK_EQ(gml_last_refusal()->tried, 1u << GML_TRIED_IDLE | 1u << GML_TRIED_DRIVER);
    check_says(refusal(20 * MIB, GML_OUT_OF_MEMORY, 0),
               "32.0 MiB is all that may be held, by a capacity or the memory fraction, while the "
               "device has 44.0 MiB free. 8.00 MiB less would have been served.");
    release(kept);
}

TEST(a_refusal_during_a_capture_says_so) {
    configure_host();
    CHECK_OK(gml_lake_begin_pool(opened(), (gml_pool_id){1, 0}));
    check_says(refusal(1000, GML_OUT_OF_MEMORY, 0), "Tried to allocate 1000 bytes.");
    check_says(refusal(1000, GML_OUT_OF_MEMORY, 0), "While a graph is captured");
    CHECK_OK(gml_lake_end_pool(opened(), (gml_pool_id){1, 0}));
}

TEST(other_failures_give_the_drivers_reason) {
    configure_host();
    gml_address address = 0;
    release(allocate(1, 0));
    CHECK_STATUS(gml_lake_allocate(gml_torch_lake(0), UINT64_C(1) << 60, 0, &address),
                 GML_INVALID_ARGUMENT);
    const char *text = refusal(UINT64_C(1) << 60, GML_INVALID_ARGUMENT, 0);
    CHECK(strncmp(text, "gmlake could not allocate", 25) == 0);
    check_says(text, "1024 PiB asked for; the largest request is 256 TiB");
}

int main(void) {
    for (const check_test *test = check_tests(); test; test = test->next) {
        check_run_alone(test->name, test->run);
    }
    return report();
}
