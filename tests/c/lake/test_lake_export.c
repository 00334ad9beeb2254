/* Memory that other processes map, and theirs: here one process does both. Runs on the fake library
 * (GMLAKE_TEST_CUDA=fake) and on a GPU (any other value). */
#include "driver/handed.h"
#include "gmlake_share.h"
#include "gmlake_sleep.h"
#include "lake/lake.h"
#include "support/check.h"
#include "support/policies.h"
#include "support/raw_cuda.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MOST_PIECES = 64, REASON_BYTES = 240 };

static const uint64_t MIB = UINT64_C(1) << 20;
static const uint64_t CAPACITY_BYTES = UINT64_C(1) << 29;

static raw_cuda raw;

typedef struct shared {
    gml_shared_piece pieces[MOST_PIECES];
    size_t count;
    uint64_t offset_bytes;
} shared;

static gml_lake *open_lake(const char *driver, const char *policy) {
    char reason[REASON_BYTES] = "";
    gml_lake *lake = NULL;
    gml_lake_config config = {.driver = driver, .policy = policy, .capacity_bytes = CAPACITY_BYTES};
    if (!CHECK_OK(gml_lake_open(&config, &lake, reason, sizeof reason))) {
        fprintf(stderr, "%s\n", reason);
        abort();
    }
    return lake;
}

static gml_address allocate(gml_lake *lake, uint64_t size_bytes) {
    gml_address address = 0;
    CHECK_OK(gml_lake_allocate(lake, size_bytes, 0, &address));
    return address;
}

static shared share(gml_lake *lake, gml_address address) {
    shared made = {.count = 0};
    CHECK_OK(
        gml_lake_export(lake, address, made.pieces, MOST_PIECES, &made.count, &made.offset_bytes));
    CHECK(made.count <= MOST_PIECES);
    return made;
}

/* The answer alone. */
static gml_status try_share(gml_lake *lake, gml_address address) {
    size_t count = 0;
    uint64_t offset_bytes = 0;
    return gml_lake_export(lake, address, NULL, 0, &count, &offset_bytes);
}

static uint64_t sum_bytes(const shared *given) {
    uint64_t sum = 0;
    for (size_t i = 0; i < given->count; i++) {
        sum += given->pieces[i].size_bytes;
    }
    return sum;
}

/* Bytes that are written on either side are there on the other, at both ends of the block. */
static void check_same_bytes(gml_lake *lake, gml_address address, uint64_t size_bytes) {
    shared given = share(lake, address);
    gml_address other = 0;
    CHECK(given.offset_bytes + size_bytes <= sum_bytes(&given));
    CHECK_OK(gml_lake_import(lake, given.pieces, given.count, &other));
    for (uint64_t at = 0; at < size_bytes; at += size_bytes - 8) {
        uint64_t written = address + at, seen = 0, back = ~written;
        CHECK(raw_cuda_write(&raw, address + at, &written, sizeof written));
        CHECK(raw_cuda_read(&raw, &seen, other + given.offset_bytes + at, sizeof seen));
        CHECK_EQ(seen, written);
        CHECK(raw_cuda_write(&raw, other + given.offset_bytes + at, &back, sizeof back));
        CHECK(raw_cuda_read(&raw, &seen, address + at, sizeof seen));
        CHECK_EQ(seen, back);
    }
    CHECK_OK(gml_lake_unimport(lake, other));
    CHECK_STATUS(gml_lake_unimport(lake, other), GML_UNKNOWN_ADDRESS);
}

TEST(a_block_of_any_size_is_seen_from_outside) {
    gml_lake *lake = open_lake("cuda", "stitch");
    const uint64_t sizes[] = {512, 70000, MIB, 3 * MIB, 20 * MIB, 37 * MIB + 512};
    gml_address blocks[sizeof sizes / sizeof *sizes];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        blocks[i] = allocate(lake, sizes[i]);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_same_bytes(lake, blocks[i], sizes[i]);
    }
    CHECK_OK(gml_lake_close(lake));
}

/* PyTorch's algorithm over memory that can sleep: what it takes from the device is mapped. */
TEST(a_segment_of_what_can_sleep_is_one_chunk) {
    const gml_lake_config config = {
        .driver = "cuda", .policy = "caching", .capacity_bytes = CAPACITY_BYTES, .can_sleep = true};
    const uint64_t sizes[] = {512, 3 * MIB, 20 * MIB, 37 * MIB + 512};
    char reason[REASON_BYTES] = "";
    gml_lake *lake = NULL;
    CHECK_OK(gml_lake_open(&config, &lake, reason, sizeof reason));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        gml_address block = allocate(lake, sizes[i]);
        size_t count = 0;
        CHECK_OK(gml_lake_count_chunks(lake, block, &count));
        CHECK_EQ(count, 1);
        check_same_bytes(lake, block, sizes[i]);
    }
    size_t count = 0;
    CHECK_STATUS(gml_lake_count_chunks(lake, 4096, &count), GML_UNKNOWN_ADDRESS);
    CHECK_OK(gml_lake_close(lake));
}

TEST(so_is_a_view_of_chunks_that_lie_apart) {
    gml_lake *lake = open_lake("cuda", "stitch");
    enum { PIECES = 8 };
    gml_address blocks[PIECES];
    for (int i = 0; i < PIECES; i++) {
        blocks[i] = allocate(lake, 24 * MIB);
    }
    for (int i = 0; i < PIECES; i += 2) {
        CHECK_OK(gml_lake_free(lake, blocks[i]));
    }
    gml_stats before, after;
    CHECK_OK(gml_lake_stats(lake, &before));
    gml_address wide = allocate(lake, 70 * MIB);
    CHECK_OK(gml_lake_stats(lake, &after));
    CHECK_EQ(after.views, before.views + 1);
    CHECK_EQ(after.reserved_bytes, before.reserved_bytes);
    check_same_bytes(lake, wide, 70 * MIB);
    for (int i = 1; i < PIECES; i += 2) {
        check_same_bytes(lake, blocks[i], 24 * MIB);
    }
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_close(lake));
}

/* What another process may map stays where it is, as long as the block lives, and no longer: other
 * blocks in its chunk do not keep it. */
TEST(what_was_shared_sleeps_when_it_is_freed) {
    gml_sleep_report report = {0};
    char reason[REASON_BYTES] = "";
    const gml_lake_config config = {
        .driver = "cuda", .policy = "stitch", .capacity_bytes = CAPACITY_BYTES, .can_sleep = true};
    gml_lake *lake = NULL;
    CHECK_OK(gml_lake_open(&config, &lake, reason, sizeof reason));
    gml_address first = allocate(lake, MIB + 512), second = allocate(lake, MIB + 512);
    gml_address large = allocate(lake, 40 * MIB);
    size_t count = 0;
    CHECK_OK(gml_lake_count_chunks(lake, large, &count)); /* opens no file */
    CHECK_OK(gml_lake_sleep(lake, GML_BACKUP_HOST, &report));
    CHECK_OK(gml_lake_wake(lake, &report));
    (void)share(lake, first);
    (void)share(lake, large);
    CHECK_STATUS(gml_lake_sleep(lake, GML_BACKUP_HOST, &report), GML_UNSUPPORTED);
    gml_lake_reason(lake, reason, sizeof reason);
    CHECK(strstr(reason, "shared with another process cannot sleep: 2 blocks of 41.0 MiB in all") !=
          NULL);
    CHECK(!gml_lake_is_asleep(lake));
    CHECK_OK(gml_lake_free(lake, large));
    CHECK_STATUS(gml_lake_sleep(lake, GML_BACKUP_HOST, &report), GML_UNSUPPORTED);
    CHECK_OK(gml_lake_free(lake, first));
    CHECK_OK(gml_lake_sleep(lake, GML_BACKUP_HOST, &report));
    CHECK_OK(gml_lake_wake(lake, &report));
    /* A block at the same address is another one. */
    CHECK(allocate(lake, MIB + 512) == first);
    CHECK_OK(gml_lake_sleep(lake, GML_BACKUP_HOST, &report));
    CHECK_OK(gml_lake_wake(lake, &report));
    check_same_bytes(lake, second, MIB + 512);
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_close(lake));
}

TEST(what_is_mapped_outlives_what_was_shared) {
    gml_lake *lake = open_lake("cuda", "stitch");
    gml_address block = allocate(lake, 4 * MIB), other = 0;
    uint64_t written = 0x5ca1ab1e, seen = 0;
    CHECK(raw_cuda_write(&raw, block, &written, sizeof written));
    shared given = share(lake, block);
    CHECK_OK(gml_lake_import(lake, given.pieces, given.count, &other));
    CHECK_OK(gml_lake_free(lake, block));
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK(raw_cuda_read(&raw, &seen, other + given.offset_bytes, sizeof seen));
    CHECK_EQ(seen, written);
    CHECK_OK(gml_lake_close(lake)); /* and what nobody ended ends here */
}

TEST(a_file_that_is_none_changes_nothing) {
    gml_lake *lake = open_lake("cuda", "stitch");
    shared given = share(lake, allocate(lake, 4 * MIB));
    char reason[REASON_BYTES] = "";
    gml_address other = 0;
    gml_shared_piece pieces[] = {given.pieces[0], {.file = -1, .size_bytes = 2 * MIB}};
    CHECK_STATUS(gml_lake_import(lake, pieces, 2, &other), GML_DRIVER_FAILED);
    CHECK_EQ(other, 0);
    gml_lake_reason(lake, reason, sizeof reason);
    CHECK(strstr(reason, "cuMemImportFromShareableHandle") == reason);
    CHECK_OK(gml_lake_import(lake, given.pieces, given.count, &other));
    CHECK_OK(gml_lake_unimport(lake, other));
    CHECK_OK(gml_lake_close(lake));
}

/* Waiting for the device would break a capture; the mapping ends with the next one. */
TEST(a_mapping_that_cannot_end_in_a_capture_ends_later) {
    gml_lake *lake = open_lake("cuda", "stitch");
    shared given = share(lake, allocate(lake, 4 * MIB));
    gml_address late = 0, next = 0;
    CHECK_OK(gml_lake_import(lake, given.pieces, given.count, &late));
    CHECK_OK(gml_lake_begin_pool(lake, (gml_pool_id){0, 7}));
    CHECK_STATUS(gml_lake_unimport(lake, late), GML_UNSUPPORTED);
    CHECK_STATUS(gml_lake_unimport(lake, late), GML_UNKNOWN_ADDRESS);
    CHECK_OK(gml_lake_end_pool(lake, (gml_pool_id){0, 7}));
    CHECK_OK(gml_lake_release_pool(lake, (gml_pool_id){0, 7}));
    CHECK_OK(gml_lake_import(lake, given.pieces, given.count, &next));
    CHECK_OK(gml_lake_unimport(lake, next));
    uint64_t seen = 0;
    CHECK(!raw_cuda_read(&raw, &seen, late, sizeof seen));
    CHECK_OK(gml_lake_close(lake));
}

/* The first graph of a turn keeps the memory that it took, the second has its memory replaced. */
TEST(outputs_of_graphs_that_take_turns_are_shared) {
    gml_lake *lake = open_lake("cuda", "stitch");
    gml_address outputs[2], others[2];
    gml_stream stream = raw_cuda_stream(&raw);
    for (uint64_t i = 0; i < 2; i++) {
        gml_pool_id pool = {1, 7 + i};
        void *graph = NULL;
        gml_cu_stream handle = (gml_cu_stream)(uintptr_t)stream;
        CHECK_OK(gml_lake_begin_pool_in_turn(lake, pool, 1));
        CHECK_EQ(raw.cuStreamBeginCapture(handle, 0), GML_CU_SUCCESS);
        CHECK_OK(gml_lake_allocate_in(lake, pool, 6 * MIB, stream, &outputs[i]));
        CHECK_EQ(raw.cuStreamEndCapture(handle, &graph), GML_CU_SUCCESS);
        CHECK(graph != NULL);
        CHECK_EQ(raw.cuGraphDestroy(graph), GML_CU_SUCCESS);
        CHECK_OK(gml_lake_end_pool(lake, pool));
        CHECK(gml_last_graph() != 0);
    }
    for (uint64_t i = 0; i < 2; i++) {
        uint64_t wanted = 40 + i, seen = 0;
        CHECK(raw_cuda_write(&raw, outputs[i], &wanted, sizeof wanted));
        shared given = share(lake, outputs[i]);
        CHECK_OK(gml_lake_import(lake, given.pieces, given.count, &others[i]));
        CHECK(raw_cuda_read(&raw, &seen, others[i] + given.offset_bytes, sizeof seen));
        CHECK_EQ(seen, wanted);
    }
    for (uint64_t i = 0; i < 2; i++) {
        CHECK_OK(gml_lake_unimport(lake, others[i]));
        CHECK_OK(gml_lake_free(lake, outputs[i]));
        CHECK_OK(gml_lake_release_pool(lake, (gml_pool_id){1, 7 + i}));
    }
    CHECK_OK(gml_lake_close(lake));
}

TEST(a_device_that_refuses_to_export_says_so) {
    gml_lake *lake = open_lake("cuda", "stitch");
    gml_address block = allocate(lake, 4 * MIB);
    CHECK_EQ(setenv("GMLAKE_FAKE_CUDA", "no_export", 1), 0); /* NOLINT */
    CHECK_STATUS(try_share(lake, block), GML_DRIVER_FAILED);
    CHECK_EQ(setenv("GMLAKE_FAKE_CUDA", "", 1), 0); /* NOLINT */
    check_same_bytes(lake, block, 4 * MIB);
    CHECK_OK(gml_lake_close(lake));
}

/* A file for each chunk, and no more: what is missing is said. */
TEST(a_process_that_may_open_no_more_files_is_told) {
    gml_lake *lake = open_lake("cuda", "stitch");
    gml_address block = allocate(lake, 64 * MIB);
    struct rlimit before, few;
    char reason[REASON_BYTES] = "";
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){.rlim_cur = 12, .rlim_max = before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    gml_status status = try_share(lake, block);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    CHECK(status != GML_OK);
    gml_lake_reason(lake, reason, sizeof reason);
    CHECK(strstr(reason, "ulimit -n") != NULL);
    check_same_bytes(lake, block, 64 * MIB);
    CHECK_OK(gml_lake_close(lake));
}

/* For another process that shares the device. */
TEST(idle_chunks_are_given_as_files) {
    static gml_handed given = {.lock = PTHREAD_MUTEX_INITIALIZER};
    const gml_setting settings[] = {{"chunk_size", 64 * MIB}};
    gml_lake_config config = {.driver = "cuda",
                              .policy = "stitch",
                              .capacity_bytes = CAPACITY_BYTES,
                              .settings = settings,
                              .setting_count = 1};
    gml_lake *lake = NULL;
    uint64_t released_bytes = 0;
    bool is_pending = false;
    CHECK_OK(gml_lake_open(&config, &lake, NULL, 0));
    gml_address kept = allocate(lake, 64 * MIB), block = allocate(lake, 192 * MIB);
    CHECK_OK(gml_lake_free(lake, block));
    CHECK_OK(gml_lake_give(lake, 64 * MIB, NULL, false, &released_bytes, &is_pending));
    CHECK_EQ(released_bytes, 64 * MIB);
    CHECK_EQ(given.count, 0);
    CHECK_OK(gml_lake_give(lake, 100 * MIB, &given, false, &released_bytes, &is_pending));
    CHECK_EQ(released_bytes, 128 * MIB);
    CHECK_EQ(given.count, 2);
    CHECK_EQ(gml_handed_bytes(&given), released_bytes);
    CHECK_OK(gml_lake_free(lake, kept));
    CHECK_OK(gml_lake_trim(lake, &released_bytes)); /* goes to the device alone */
    CHECK_EQ(released_bytes, 64 * MIB);
    CHECK_EQ(given.count, 2);
    CHECK_EQ(gml_handed_drop(&given), 128 * MIB);
    CHECK_OK(gml_lake_close(lake));
}

int main(void) {
    const char *cuda = raw_cuda_begin(&raw);
    if (!cuda) {
        return report();
    }
    RUN(a_block_of_any_size_is_seen_from_outside);
    RUN(a_segment_of_what_can_sleep_is_one_chunk);
    RUN(so_is_a_view_of_chunks_that_lie_apart);
    RUN(what_was_shared_sleeps_when_it_is_freed);
    RUN(what_is_mapped_outlives_what_was_shared);
    RUN(a_file_that_is_none_changes_nothing);
    RUN(a_mapping_that_cannot_end_in_a_capture_ends_later);
    RUN(outputs_of_graphs_that_take_turns_are_shared);
    RUN(a_process_that_may_open_no_more_files_is_told);
    RUN(idle_chunks_are_given_as_files);
    if (strcmp(cuda, "fake") == 0) {
        RUN(a_device_that_refuses_to_export_says_so);
    }
    return report();
}
