/* What the core relies on in plain memory, streams, contexts and captures: one test per sentence of
 * docs/driver.md, over every backend. */
#include "support/driver_contract.h"

#include <pthread.h>
#include <string.h>

/* ---- plain memory ---------------------------------------------------------------------------- */

TEST(malloc_gives_aligned_memory_and_free_takes_it_back) {
    gml_driver *driver = open_driver();
    uint64_t large = UINT64_C(4) << 20;
    uint64_t before = free_bytes_of(driver);
    gml_address first = 0;
    gml_address second = 0;
    CHECK_OK(gml_driver_malloc(driver, large, &first));
    CHECK_OK(gml_driver_malloc(driver, large, &second));
    CHECK(first != 0 && second != 0 && first % 512 == 0 && second % 512 == 0);
    CHECK(first + large <= second || second + large <= first);
    check_taken(driver, before, 2 * large);
    if (has_bytes()) {
        write_byte(driver, first + large - 1, 5);
        write_byte(driver, second, 6);
        CHECK_EQ(read_byte(driver, first + large - 1), 5);
    }
    CHECK_OK(gml_driver_free(driver, first));
    CHECK_OK(gml_driver_free(driver, second));
    check_taken(driver, before, 0);
    gml_driver_close(driver);
}

TEST(malloc_beyond_the_memory_is_out_of_memory) {
    gml_driver *driver = open_driver();
    uint64_t before = free_bytes_of(driver);
    gml_address address = 0;
    CHECK_STATUS(gml_driver_malloc(driver, driver->info.total_bytes + 512, &address),
                 GML_OUT_OF_MEMORY);
    CHECK_EQ(address, 0);
    check_taken(driver, before, 0);
    gml_driver_close(driver);
}

TEST(free_wants_the_address_of_a_block) {
    gml_driver *driver = open_driver();
    gml_address address = 0;
    CHECK_OK(gml_driver_malloc(driver, UINT64_C(4) << 20, &address));
    check_refused(driver, gml_driver_free(driver, address + (UINT64_C(64) << 30)));
    CHECK_OK(gml_driver_free(driver, address));
    gml_driver_close(driver);
}

/* ---- streams, events, contexts --------------------------------------------------------------- */

TEST(an_event_completes_after_the_work_before_it) {
    gml_driver *driver = open_driver();
    gml_stream stream = new_stream();
    gml_event event = 0;
    CHECK_OK(gml_driver_event_create(driver, &event));
    CHECK(event != 0);
    CHECK_OK(gml_driver_event_query(driver, event)); /* never recorded: complete */
    CHECK_OK(gml_driver_event_record(driver, event, stream));
    CHECK_OK(gml_driver_stream_wait(driver, 0, event));
    CHECK_OK(gml_driver_event_synchronize(driver, event));
    CHECK_OK(gml_driver_event_query(driver, event));
    CHECK_OK(gml_driver_stream_synchronize(driver, stream));
    CHECK_OK(gml_driver_device_synchronize(driver));
    CHECK_OK(gml_driver_event_destroy(driver, event));
    gml_driver_close(driver);
}

TEST(an_event_behind_all_streams_completes_after_their_work) {
    gml_driver *driver = open_driver();
    gml_stream first = new_stream(), second = new_stream();
    gml_event event = 0;
    CHECK_OK(gml_driver_event_create(driver, &event));
    for (int i = 0; i < 2; i++) { /* an event may be recorded again */
        CHECK_OK(gml_driver_event_record_all(driver, event));
        CHECK_OK(gml_driver_stream_wait(driver, first, event));
        CHECK_OK(gml_driver_stream_wait(driver, second, event));
        CHECK_OK(gml_driver_event_synchronize(driver, event));
        CHECK_OK(gml_driver_event_query(driver, event));
    }
    CHECK_OK(gml_driver_device_synchronize(driver));
    CHECK_OK(gml_driver_event_destroy(driver, event));
    gml_driver_close(driver);
}

TEST(an_event_may_be_destroyed_while_waited_for) {
    gml_driver *driver = open_driver();
    gml_stream from = new_stream();
    gml_stream to = new_stream();
    gml_event event = 0;
    gml_streams *streams = driver->streams;
    if (streams) {
        CHECK_OK(gml_streams_set_manual(streams, true));
    }
    CHECK_OK(gml_driver_event_create(driver, &event));
    CHECK_OK(gml_driver_event_record(driver, event, from));
    CHECK_OK(gml_driver_stream_wait(driver, to, event));
    CHECK_OK(gml_driver_event_destroy(driver, event));
    CHECK_OK(gml_driver_stream_synchronize(driver, to));
    gml_driver_close(driver);
}

/* Makes, uses and ends a mapping on a thread that never had a context. */
static void *map_without_context(void *argument) {
    scene *of = argument;
    gml_handle handle = 0;
    gml_address address = 0;
    CHECK_OK(gml_driver_create(of->driver, of->granule, &handle));
    CHECK_OK(gml_driver_reserve(of->driver, of->granule, 0, &address));
    CHECK_OK(gml_driver_map(of->driver, address, of->granule, handle));
    CHECK_OK(gml_driver_set_access(of->driver, address, of->granule));
    CHECK_OK(gml_driver_unmap(of->driver, address, of->granule));
    CHECK_OK(gml_driver_unreserve(of->driver, address, of->granule));
    CHECK_OK(gml_driver_release(of->driver, handle));
    if (contract_is_cuda()) {
        gml_cu_context context = NULL;
        CHECK_EQ(contract_cuda()->cuCtxGetCurrent(&context), GML_CU_SUCCESS);
        CHECK(context == NULL);
    }
    return NULL;
}

TEST(virtual_memory_needs_no_context) {
    scene of = open_scene();
    pthread_t thread;
    if (CHECK_EQ(pthread_create(&thread, NULL, map_without_context, &of), 0)) {
        CHECK_EQ(pthread_join(thread, NULL), 0);
    }
    close_scene(&of);
}

static void count_run(void *context) {
    (*(int *)context)++;
}

/* A GPU cannot be held up without a kernel, so this one has no part on `cuda`. */
TEST(unmap_does_not_synchronise) {
    scene of = open_scene();
    gml_streams *streams = of.driver->streams;
    CHECK_EQ(streams != NULL, !contract_is_cuda());
    if (streams) {
        int runs = 0;
        gml_stream stream = new_stream();
        CHECK_OK(gml_streams_set_manual(streams, true));
        CHECK_OK(gml_streams_enqueue(streams, stream, count_run, &runs));
        map_at(&of, 0, of.handles[0]);
        open_access_at(&of, 0, 1);
        unmap_at(&of, 0, 1);
        CHECK_EQ(runs, 0);
        CHECK_OK(gml_driver_stream_synchronize(of.driver, stream));
        CHECK_EQ(runs, 1);
    }
    close_scene(&of);
}

static void set_capturing(gml_driver *driver, gml_stream stream, bool is_capturing) {
    gml_cu_stream handle = (gml_cu_stream)(uintptr_t)stream;
    void *graph = NULL;
    if (!contract_is_cuda()) {
        CHECK_OK(gml_streams_set_capturing(driver->streams, stream, is_capturing));
    } else if (is_capturing) {
        CHECK_EQ(contract_cuda()->cuStreamBeginCapture(handle, 0), GML_CU_SUCCESS);
    } else {
        CHECK_EQ(contract_cuda()->cuStreamEndCapture(handle, &graph), GML_CU_SUCCESS);
        CHECK(graph != NULL);
        CHECK_EQ(contract_cuda()->cuGraphDestroy(graph), GML_CU_SUCCESS);
    }
}

TEST(a_capturing_stream_is_told_and_left_alone) {
    gml_driver *driver = open_driver();
    gml_stream stream = new_stream();
    gml_event event = 0;
    bool is_capturing = true;
    CHECK_OK(gml_driver_event_create(driver, &event));
    CHECK_OK(gml_driver_event_record(driver, event, 0));
    CHECK_OK(gml_driver_stream_capturing(driver, stream, &is_capturing));
    CHECK(!is_capturing);
    set_capturing(driver, stream, true);
    CHECK_OK(gml_driver_stream_capturing(driver, stream, &is_capturing));
    CHECK(is_capturing);
    CHECK_STATUS(gml_driver_stream_synchronize(driver, stream), GML_MISUSE);
    CHECK_STATUS(gml_driver_event_record(driver, event, stream), GML_MISUSE);
    if (!contract_is_cuda()) { /* where it would break the capture */
        CHECK_STATUS(gml_driver_event_record_all(driver, event), GML_MISUSE);
    }
    CHECK_STATUS(gml_driver_stream_wait(driver, stream, event), GML_MISUSE);
    set_capturing(driver, stream, false); /* on `cuda` this fails if the capture was broken */
    CHECK_OK(gml_driver_stream_synchronize(driver, stream));
    CHECK_OK(gml_driver_event_destroy(driver, event));
    gml_driver_close(driver);
}

TEST(memory_calls_do_not_break_a_capture) {
    scene of = open_scene();
    gml_stream stream = new_stream();
    gml_event event = 0;
    gml_address block = 0;
    CHECK_OK(gml_driver_event_create(of.driver, &event));
    CHECK_OK(gml_driver_event_record(of.driver, event, 0));
    set_capturing(of.driver, stream, true);
    map_at(&of, 0, of.handles[0]);
    open_access_at(&of, 0, 1);
    unmap_at(&of, 0, 1);
    CHECK_OK(gml_driver_malloc(of.driver, UINT64_C(2) << 20, &block));
    CHECK_OK(gml_driver_event_synchronize(of.driver, event));
    CHECK_OK(gml_driver_event_query(of.driver, event));
    (void)free_bytes_of(of.driver);
    set_capturing(of.driver, stream, false);
    CHECK_OK(gml_driver_free(of.driver, block));
    CHECK_OK(gml_driver_event_destroy(of.driver, event));
    close_scene(&of);
}

/* ---- the table itself ------------------------------------------------------------------------ */

TEST(info_describes_the_device) {
    gml_driver *driver = open_driver();
    CHECK(driver->info.has_virtual_memory);
    CHECK(driver->info.name[0] != '\0');
    CHECK(driver->info.total_bytes >= driver->info.free_bytes);
    CHECK(driver->info.free_bytes > 0);
    gml_driver_close(driver);
}

int main(void) {
    return driver_contract_main();
}
