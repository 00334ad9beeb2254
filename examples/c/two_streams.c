/* A plain C program on gmlake: two streams of one device take turns with the same memory.
 *
 *     two_streams [cuda|host|sim]
 *
 * Without an argument it uses a GPU where there is one, else `host`, whose device memory is host
 * memory. Build it with the Makefile beside it. */
#include "gmlake.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { DEVICE = 0, REASON_BYTES = 320, NON_BLOCKING = 1 /* CU_STREAM_NON_BLOCKING */ };

static const uint64_t MIB = 1 << 20;

/* Two streams that exist as long as the lake. `host` and `sim` take any number for one; those of
 * CUDA are made by its driver, which is called by name, so that this program builds without a GPU.
 */
static int make_streams(const char *driver, gml_stream streams[2]) {
    int (*retain)(void **context, int device) = NULL;
    int (*set_current)(void *context) = NULL;
    int (*create_stream)(void **stream, unsigned flags) = NULL;
    void *handles[2] = {(void *)11, (void *)12};
    void *context = NULL;
    if (strcmp(driver, "cuda") == 0) {
        void *cuda = dlopen("libcuda.so.1", RTLD_NOW); /* gmlake has loaded it */
        *(void **)&retain = dlsym(cuda, "cuDevicePrimaryCtxRetain");
        *(void **)&set_current = dlsym(cuda, "cuCtxSetCurrent");
        *(void **)&create_stream = dlsym(cuda, "cuStreamCreate");
        if (retain(&context, DEVICE) || set_current(context) ||
            create_stream(&handles[0], NON_BLOCKING) || create_stream(&handles[1], NON_BLOCKING)) {
            return 1;
        }
    }
    streams[0] = (gml_stream)(uintptr_t)handles[0];
    streams[1] = (gml_stream)(uintptr_t)handles[1];
    return 0;
}

/* One line for a call that failed; everything that can fail answers a gml_status. */
static int fail(gml_lake *lake, const char *what, gml_status status) {
    char reason[REASON_BYTES] = "";
    gml_lake_reason(lake, reason, sizeof reason);
    (void)fprintf(stderr, "%s: %s (%s)\n", what, gml_status_text(status), reason);
    return 1;
}

/* Takes memory on `stream`, and gives it back while work of that stream may still use it. */
static int take_turn(gml_lake *lake, gml_stream stream, gml_address *address) {
    gml_status status = gml_lake_allocate(lake, 48 * MIB, stream, address);
    if (status != GML_OK) {
        return fail(lake, "allocate", status);
    }
    /* Here the program queues its kernels on `stream`. */
    status = gml_lake_free(lake, *address);
    return status == GML_OK ? 0 : fail(lake, "free", status);
}

static int run(gml_lake *lake, const gml_stream streams[2]) {
    gml_address addresses[2] = {0, 0};
    gml_stats stats;
    for (int turn = 0; turn < 4; turn++) {
        if (take_turn(lake, streams[turn % 2], &addresses[turn % 2])) {
            return 1;
        }
    }
    gml_status status = gml_lake_stats(lake, &stats);
    if (status != GML_OK) {
        return fail(lake, "stats", status);
    }
    printf("reserved %" PRIu64 " MiB, of which one stream lent another %" PRIu64
           " MiB in all, with %" PRIu64 " waits between them\n",
           stats.reserved_bytes / MIB, stats.borrowed_bytes / MIB, stats.cross_stream_waits);
    status = gml_lake_allocate(lake, 1024 * MIB, streams[0], &addresses[0]);
    printf("1 GiB of a lake of 64 MiB: %s\n", gml_status_text(status));
    status = gml_lake_check(lake); /* for tests and bug reports */
    return status == GML_OK ? 0 : fail(lake, "check", status);
}

int main(int count, char **arguments) {
    gml_device_info info;
    bool has_gpu = gml_device_describe("cuda", DEVICE, &info, NULL, 0) == GML_OK;
    const char *driver = count > 1 ? arguments[1] : has_gpu ? "cuda" : "host";
    gml_lake_config config = {.driver = driver, .policy = "stitch", .capacity_bytes = 64 * MIB};
    char reason[REASON_BYTES];
    gml_stream streams[2];
    gml_lake *lake = NULL;
    gml_status status = gml_lake_open(&config, &lake, reason, sizeof reason);
    if (status != GML_OK) {
        (void)fprintf(stderr, "no lake on %s: %s\n", driver, reason);
        return 1;
    }
    int code = make_streams(driver, streams) ? 1 : run(lake, streams);
    status = gml_lake_close(lake);
    return code || status != GML_OK;
}
