/* What only `host` has: real bytes behind aliases, memory that really goes back, and the limits of
 * the operating system. */
#include "driver/backends.h"
#include "driver/streams.h"
#include "support/check.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t MIB = UINT64_C(1) << 20;

static gml_driver *open_host(uint64_t capacity_bytes, uint64_t granularity_bytes) {
    char reason[GML_REASON_BYTES] = "";
    gml_driver *driver = NULL;
    CHECK_OK(gml_model_driver_open(GML_MODEL_HOST, capacity_bytes, granularity_bytes, &driver,
                                   reason, sizeof reason));
    return driver;
}

static unsigned char *bytes_of(gml_driver *driver, gml_address address, uint64_t size_bytes) {
    void *bytes = NULL;
    CHECK_OK(gml_driver_bytes(driver, address, size_bytes, &bytes));
    return bytes;
}

TEST(capacity_and_granularity_are_as_asked) {
    char reason[GML_REASON_BYTES] = "";
    gml_driver *driver = open_host(0, 0);
    CHECK_EQ(driver->info.total_bytes, 1024 * MIB);
    CHECK_EQ(driver->info.granularity_bytes, 2 * MIB);
    gml_driver_close(driver);
    driver = open_host(UINT64_C(1) << 40, 65536);
    CHECK_EQ(driver->info.total_bytes, UINT64_C(1) << 40);
    CHECK_EQ(driver->info.granularity_bytes, 65536);
    gml_driver_close(driver);
    CHECK_STATUS(gml_model_driver_open(GML_MODEL_HOST, 0, 512, &driver, reason, sizeof reason),
                 GML_INVALID_ARGUMENT);
    CHECK(strstr(reason, "page") != NULL);
}

/* Random chunks side by side in two views: every byte of one shows in the other. */
TEST(views_alias_chunk_by_chunk) {
    enum { CHUNKS = 16 };
    gml_driver *driver = open_host(0, 65536);
    uint64_t chunk = 65536;
    gml_handle handles[CHUNKS];
    gml_address base = 0;
    gml_address view = 0;
    CHECK_OK(gml_driver_reserve(driver, CHUNKS * chunk, 0, &base));
    CHECK_OK(gml_driver_reserve(driver, CHUNKS * chunk, 0, &view));
    for (uint64_t i = 0; i < CHUNKS; i++) {
        CHECK_OK(gml_driver_create(driver, chunk, &handles[i]));
        CHECK_OK(gml_driver_map(driver, base + i * chunk, chunk, handles[i]));
    }
    for (uint64_t i = 0; i < CHUNKS; i++) {
        CHECK_OK(gml_driver_map(driver, view + i * chunk, chunk, handles[i * 5 % CHUNKS]));
    }
    CHECK_OK(gml_driver_set_access(driver, base, CHUNKS * chunk));
    CHECK_OK(gml_driver_set_access(driver, view, CHUNKS * chunk));
    unsigned char *through_view = bytes_of(driver, view, CHUNKS * chunk);
    unsigned char *through_base = bytes_of(driver, base, CHUNKS * chunk);
    for (uint64_t i = 0; i < CHUNKS * chunk; i++) {
        through_view[i] = (unsigned char)(i * 7 + i / chunk);
    }
    bool is_same = true;
    for (uint64_t i = 0; i < CHUNKS * chunk; i++) {
        uint64_t at = (i / chunk * 5 % CHUNKS) * chunk + i % chunk;
        is_same = is_same && through_base[at] == (unsigned char)(i * 7 + i / chunk);
    }
    CHECK(is_same);
    gml_driver_close(driver);
}

static void touch(gml_address address) {
    *(volatile unsigned char *)(uintptr_t)address = 1;
}

/* Whether a process that writes to `address` dies of it. */
static bool kills(gml_address address) {
    pid_t child = fork();
    if (child == 0) {
        (void)signal(SIGSEGV, SIG_DFL);
        struct rlimit no_core = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &no_core);
        touch(address);
        _exit(0);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
           WTERMSIG(status) == SIGSEGV;
}

TEST(memory_without_access_cannot_be_touched) {
    gml_driver *driver = open_host(0, 0);
    gml_handle handle = 0;
    gml_address base = 0;
    CHECK_OK(gml_driver_reserve(driver, 4 * MIB, 0, &base));
    CHECK_OK(gml_driver_create(driver, 2 * MIB, &handle));
    CHECK(kills(base));
    CHECK_OK(gml_driver_map(driver, base, 2 * MIB, handle));
    CHECK(kills(base));
    CHECK_OK(gml_driver_set_access(driver, base, 2 * MIB));
    CHECK(!kills(base));
    CHECK(kills(base + 2 * MIB));
    CHECK_OK(gml_driver_unmap(driver, base, 2 * MIB));
    CHECK(kills(base));
    CHECK_OK(gml_driver_map(driver, base, 2 * MIB, handle));
    CHECK(kills(base));
    gml_driver_close(driver);
}

TEST(blocks_are_separate_and_bounded) {
    gml_driver *driver = open_host(0, 0);
    gml_address blocks[32];
    void *bytes = NULL;
    for (uint64_t i = 0; i < 32; i++) {
        uint64_t size = i % 2 ? 2 * MIB : 1000 * (i + 1);
        CHECK_OK(gml_driver_malloc(driver, size, &blocks[i]));
        CHECK_EQ(blocks[i] % (i % 2 ? 2 * MIB : 512), 0);
        memset(bytes_of(driver, blocks[i], size), (int)i, size);
        CHECK_STATUS(gml_driver_bytes(driver, blocks[i], size + 1, &bytes), GML_MISUSE);
    }
    for (uint64_t i = 0; i < 32; i++) {
        CHECK_EQ(bytes_of(driver, blocks[i], 1)[0], i);
        CHECK_OK(gml_driver_free(driver, blocks[i]));
        CHECK_STATUS(gml_driver_bytes(driver, blocks[i], 1, &bytes), GML_MISUSE);
        CHECK_STATUS(gml_driver_free(driver, blocks[i]), GML_MISUSE);
    }
    gml_driver_close(driver);
}

#if !IS_SANITIZED
/* Maps chunks so that no two merge, until the kernel has no mapping left. A sanitizer needs
 * mappings of its own and would end the process, so this one is not run under it. */
TEST(the_limit_on_mappings_is_out_of_memory_and_harmless) {
    enum { MOST = 200000 };
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    gml_driver *driver = open_host(UINT64_C(1) << 40, page);
    gml_address base = 0;
    gml_handle handle = 0;
    uint64_t mapped = 0;
    gml_status status = GML_OK;
    CHECK_OK(gml_driver_reserve(driver, UINT64_C(2) * MOST * page, 0, &base));
    CHECK_OK(gml_driver_create(driver, page, &handle));
    while (mapped < MOST && status == GML_OK) {
        status = gml_driver_map(driver, base + 2 * mapped * page, page, handle);
        mapped += status == GML_OK;
    }
    if (mapped < MOST) { /* a host without such a limit has nothing to show */
        CHECK_STATUS(status, GML_OUT_OF_MEMORY);
        CHECK(strstr(driver->reason, "max_map_count") != NULL);
        CHECK_STATUS(gml_driver_set_access(driver, base + 2 * mapped * page, page), GML_MISUSE);
        CHECK_OK(gml_driver_unmap(driver, base, page));
    }
    for (uint64_t i = mapped < MOST; i < mapped; i++) {
        if (!CHECK_OK(gml_driver_unmap(driver, base + 2 * i * page, page))) {
            break;
        }
    }
    CHECK_OK(gml_driver_unreserve(driver, base, UINT64_C(2) * MOST * page));
    CHECK_OK(gml_driver_reserve(driver, page, 0, &base));
    CHECK_OK(gml_driver_map(driver, base, page, handle));
    CHECK_OK(gml_driver_unmap(driver, base, page));
    CHECK_OK(gml_driver_unreserve(driver, base, page));
    CHECK_OK(gml_driver_release(driver, handle));
    CHECK_EQ(driver->info.total_bytes, UINT64_C(1) << 40);
    gml_driver_close(driver);
}
#endif

/* Chunks in a row need no mapping each: 100,000 of them pass the limit of the test above. */
TEST(consecutive_chunks_merge) {
    enum { CHUNKS = 100000 };
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    gml_driver *driver = open_host(UINT64_C(1) << 40, page);
    gml_address base = 0;
    CHECK_OK(gml_driver_reserve(driver, CHUNKS * page, 0, &base));
    for (uint64_t i = 0; i < CHUNKS; i++) {
        gml_handle handle = 0;
        if (!CHECK_OK(gml_driver_create(driver, page, &handle)) ||
            !CHECK_OK(gml_driver_map(driver, base + i * page, page, handle)) ||
            !CHECK_OK(gml_driver_set_access(driver, base + i * page, page))) {
            break;
        }
    }
    gml_driver_close(driver);
}

TEST(misuse_is_refused) {
    gml_driver *driver = open_host(0, 0);
    gml_handle handle = 0;
    gml_address base = 0;
    gml_address address = 0;
    uint64_t huge = UINT64_MAX / (2 * MIB) * (2 * MIB);
    CHECK_OK(gml_driver_reserve(driver, 4 * MIB, 0, &base));
    CHECK_OK(gml_driver_create(driver, 2 * MIB, &handle));
    CHECK_STATUS(gml_driver_reserve(driver, huge, 0, &address), GML_OUT_OF_MEMORY);
    CHECK_STATUS(gml_driver_malloc(driver, UINT64_MAX, &address), GML_OUT_OF_MEMORY);
    CHECK_STATUS(gml_driver_malloc(driver, 0, &address), GML_MISUSE);
    CHECK_STATUS(gml_driver_free(driver, base), GML_MISUSE);
    CHECK_STATUS(gml_driver_free(driver, (gml_address)(uintptr_t)&handle), GML_MISUSE);
    CHECK_OK(gml_driver_release(driver, handle));
    CHECK_STATUS(gml_driver_release(driver, handle), GML_MISUSE);
    CHECK_STATUS(gml_driver_map(driver, base, 2 * MIB, handle), GML_MISUSE);
    CHECK_STATUS(gml_driver_expect_malloc(driver, 512, 512), GML_UNSUPPORTED);
    CHECK_STATUS(gml_driver_event_query(driver, 77), GML_MISUSE);
    gml_driver_close(driver);
}
