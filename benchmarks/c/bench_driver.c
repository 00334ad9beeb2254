/* ns per call of a driver, by call, chunk size and chunk count: the median of some rounds. Prints
 * one JSON object. `bench_driver cuda` is what csrc/driver/sim_cost.c takes its figures from.
 *
 *   chunk     one handle of that size: create, map, set_access, unmap, release, and a plain block
 *             of that size: malloc, free
 *   range     a range of that many 2 MiB handles: reserve, all maps, one set_access, one unmap, and
 *             set_access and unmap once per handle instead
 *   event     calls on streams and events, with nothing pending
 */
#include "bench.h"
#include "driver/driver.h"

#include <inttypes.h>

enum { ROUNDS = 25, MOST_CHUNKS = 512, EVENT_ROUNDS = 2001 };

static gml_driver *driver;
static gml_handle handles[MOST_CHUNKS];
static bool has_printed;

static void must(gml_status status, const char *what) {
    if (status != GML_OK) {
        fprintf(stderr, "bench_driver: %s: %s: %s\n", what, gml_status_text(status),
                driver ? driver->reason : "");
        exit(1); /* NOLINT(concurrency-mt-unsafe): there is one thread */
    }
}

static int by_value(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static void print(const char *kind, uint64_t size_bytes, const char *call, uint64_t *times_ns,
                  size_t count) {
    qsort(times_ns, count, sizeof *times_ns, by_value);
    printf("%s\n  {\"kind\": \"%s\", \"size\": %" PRIu64
           ", \"call\": \"%s\", \"median_ns\": %" PRIu64 ", \"p10_ns\": %" PRIu64
           ", \"p90_ns\": %" PRIu64 "}",
           has_printed ? "," : "", kind, size_bytes, call, times_ns[count / 2],
           times_ns[count / 10], times_ns[count - 1 - count / 10]);
    has_printed = true;
}

/* ---- one handle, one block ------------------------------------------------------------------- */

enum { CREATE, MAP, ACCESS, UNMAP, RELEASE, MALLOC, FREE, CHUNK_CALLS };

static const char *const chunk_calls[CHUNK_CALLS] = {"create",  "map",    "set_access", "unmap",
                                                     "release", "malloc", "free"};

static void time_chunk(uint64_t size_bytes) {
    static uint64_t times[CHUNK_CALLS][ROUNDS];
    gml_address base = 0;
    must(gml_driver_reserve(driver, size_bytes, 0, &base), "reserve");
    for (int round = 0; round < ROUNDS; round++) {
        gml_handle handle = 0;
        gml_address block = 0;
        uint64_t at[CHUNK_CALLS + 1] = {gml_clock_ns()};
        must(gml_driver_create(driver, size_bytes, &handle), "create");
        at[MAP] = gml_clock_ns();
        must(gml_driver_map(driver, base, size_bytes, handle), "map");
        at[ACCESS] = gml_clock_ns();
        must(gml_driver_set_access(driver, base, size_bytes), "set_access");
        at[UNMAP] = gml_clock_ns();
        must(gml_driver_unmap(driver, base, size_bytes), "unmap");
        at[RELEASE] = gml_clock_ns();
        must(gml_driver_release(driver, handle), "release");
        at[MALLOC] = gml_clock_ns();
        must(gml_driver_malloc(driver, size_bytes, &block), "malloc");
        at[FREE] = gml_clock_ns();
        must(gml_driver_free(driver, block), "free");
        at[CHUNK_CALLS] = gml_clock_ns();
        for (int call = 0; call < CHUNK_CALLS; call++) {
            times[call][round] = at[call + 1] - at[call];
        }
    }
    must(gml_driver_unreserve(driver, base, size_bytes), "unreserve");
    for (int call = 0; call < CHUNK_CALLS; call++) {
        print("chunk", size_bytes, chunk_calls[call], times[call], ROUNDS);
    }
}

/* ---- many handles in one range --------------------------------------------------------------- */

enum { RESERVE, MAPS, ONE_ACCESS, ONE_UNMAP, EACH_ACCESS, EACH_UNMAP, UNRESERVE, RANGE_CALLS };

static const char *const range_calls[RANGE_CALLS] = {
    "reserve",         "map_each",   "set_access_once", "unmap_once",
    "set_access_each", "unmap_each", "unreserve"};

static void map_all(gml_address base, uint64_t granule, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        must(gml_driver_map(driver, base + i * granule, granule, handles[i]), "map");
    }
}

/* Nanoseconds since `*since`, which becomes now. */
static uint64_t lap_ns(uint64_t *since) {
    uint64_t before = *since;
    *since = gml_clock_ns();
    return *since - before;
}

static void time_range_once(uint64_t count, uint64_t took_ns[RANGE_CALLS]) {
    uint64_t granule = driver->info.granularity_bytes;
    gml_address base = 0;
    uint64_t since = gml_clock_ns();
    must(gml_driver_reserve(driver, count * granule, 0, &base), "reserve");
    took_ns[RESERVE] = lap_ns(&since);
    map_all(base, granule, count);
    took_ns[MAPS] = lap_ns(&since);
    must(gml_driver_set_access(driver, base, count * granule), "set_access");
    took_ns[ONE_ACCESS] = lap_ns(&since);
    must(gml_driver_unmap(driver, base, count * granule), "unmap");
    took_ns[ONE_UNMAP] = lap_ns(&since);
    map_all(base, granule, count);
    since = gml_clock_ns();
    for (uint64_t i = 0; i < count; i++) {
        must(gml_driver_set_access(driver, base + i * granule, granule), "set_access");
    }
    took_ns[EACH_ACCESS] = lap_ns(&since);
    for (uint64_t i = 0; i < count; i++) {
        must(gml_driver_unmap(driver, base + i * granule, granule), "unmap");
    }
    took_ns[EACH_UNMAP] = lap_ns(&since);
    must(gml_driver_unreserve(driver, base, count * granule), "unreserve");
    took_ns[UNRESERVE] = lap_ns(&since);
}

static void time_range(uint64_t count) {
    static uint64_t times[RANGE_CALLS][ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t took_ns[RANGE_CALLS];
        time_range_once(count, took_ns);
        for (int call = 0; call < RANGE_CALLS; call++) {
            times[call][round] = took_ns[call];
        }
    }
    for (int call = 0; call < RANGE_CALLS; call++) {
        print("range", count, range_calls[call], times[call], ROUNDS);
    }
}

/* ---- streams and events ---------------------------------------------------------------------- */

enum { EVENT_CREATE, RECORD, QUERY, WAIT, SYNCHRONIZE, INFO, EVENT_DESTROY, EVENT_CALLS };

static const char *const event_calls[EVENT_CALLS] = {
    "event_create",      "event_record", "event_query",  "stream_wait",
    "event_synchronize", "memory_info",  "event_destroy"};

static void time_events(void) {
    static uint64_t times[EVENT_CALLS][EVENT_ROUNDS];
    for (int round = 0; round < EVENT_ROUNDS; round++) {
        gml_event event = 0;
        uint64_t free_bytes = 0;
        uint64_t total_bytes = 0;
        uint64_t at[EVENT_CALLS + 1] = {gml_clock_ns()};
        must(gml_driver_event_create(driver, &event), "event_create");
        at[RECORD] = gml_clock_ns();
        must(gml_driver_event_record(driver, event, 0), "event_record");
        at[QUERY] = gml_clock_ns();
        gml_status queried = gml_driver_event_query(driver, event);
        must(queried == GML_NOT_READY ? GML_OK : queried, "event_query");
        at[WAIT] = gml_clock_ns();
        must(gml_driver_stream_wait(driver, 0, event), "stream_wait");
        at[SYNCHRONIZE] = gml_clock_ns();
        must(gml_driver_event_synchronize(driver, event), "event_synchronize");
        at[INFO] = gml_clock_ns();
        must(gml_driver_memory_info(driver, &free_bytes, &total_bytes), "memory_info");
        at[EVENT_DESTROY] = gml_clock_ns();
        must(gml_driver_event_destroy(driver, event), "event_destroy");
        at[EVENT_CALLS] = gml_clock_ns();
        for (int call = 0; call < EVENT_CALLS; call++) {
            times[call][round] = at[call + 1] - at[call];
        }
    }
    for (int call = 0; call < EVENT_CALLS; call++) {
        print("event", 0, event_calls[call], times[call], EVENT_ROUNDS);
    }
}

int main(int argument_count, char **arguments) {
    static const uint64_t sizes_mib[] = {2, 20, 128, 512, 1024, 2048};
    static const uint64_t counts[] = {1, 8, 64, MOST_CHUNKS};
    char reason[GML_REASON_BYTES] = "";
    const char *name = argument_count > 1 ? arguments[1] : "cuda";
    gml_status status =
        gml_driver_open(name, 0, 8 * (UINT64_C(1) << 30), &driver, reason, sizeof reason);
    if (status != GML_OK) {
        fprintf(stderr, "bench_driver: %s\n", reason);
        return 1;
    }
    printf("{\"driver\": \"%s\", \"device\": \"%s\", \"granularity\": %" PRIu64 ", \"calls\": [",
           name, driver->info.name, driver->info.granularity_bytes);
    for (size_t i = 0; i < sizeof sizes_mib / sizeof sizes_mib[0]; i++) {
        time_chunk(sizes_mib[i] * MIB);
    }
    for (int i = 0; i < MOST_CHUNKS; i++) {
        must(gml_driver_create(driver, driver->info.granularity_bytes, &handles[i]), "create");
    }
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        time_range(counts[i]);
    }
    for (int i = 0; i < MOST_CHUNKS; i++) {
        must(gml_driver_release(driver, handles[i]), "release");
    }
    time_events();
    printf("\n]}\n");
    gml_driver_close(driver);
    return 0;
}
