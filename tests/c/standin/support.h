/* What the checks share: tests that need no list of their names, a process for each memory mode,
 * and the usual objects. */
#ifndef GML_STANDIN_CHECKS_SUPPORT_H
#define GML_STANDIN_CHECKS_SUPPORT_H

#include "standin/harness/control.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define GRANULE (2 * MIB)
#define CAPACITY_BYTES (256 * MIB) /* of each of two devices */

#define OK(call) CHECK_EQ(call, 0)

/* The call answers `error` and is reported as one broken rule. */
#define CHECK_MISUSE(call, error)                                                                  \
    do {                                                                                           \
        uint64_t misuses_before = gmlake_standin_misuses();                                        \
        CHECK_EQ(call, error);                                                                     \
        CHECK_EQ(gmlake_standin_misuses() - misuses_before, 1);                                    \
    } while (0)

typedef struct check_case {
    const char *name;
    void (*run)(void);
} check_case;

static check_case cases[64]; /* of this file, in their order */
static size_t case_count;

/* TEST() of support/check.h, and run_cases() runs it. */
#define CASE(name)                                                                                 \
    static void test_##name(void);                                                                 \
    static void __attribute__((constructor)) add_##name(void) {                                    \
        cases[case_count++] = (check_case){#name, test_##name};                                    \
    }                                                                                              \
    TEST(name)

static inline bool is_backed(void) {
    return standin_settings_get()->is_backed;
}

static inline void set_pace(const char *pace) {
    OK(gmlake_standin_set_pace(pace, 0));
}

static inline uint64_t free_bytes(void) {
    size_t free_now = 0, total = 0;
    OK(cudaMemGetInfo(&free_now, &total));
    CHECK_EQ(total, CAPACITY_BYTES);
    return free_now;
}

/* What the three functions below made; what of it is still there goes when the test has ended. */
static void *objects[64];
static size_t object_count;

static inline void *device_memory(uint64_t size_bytes) {
    OK(cudaMalloc(&objects[object_count], size_bytes));
    return objects[object_count++];
}

static inline void *pinned_memory(uint64_t size_bytes) {
    OK(cudaMallocHost(&objects[object_count], size_bytes));
    return objects[object_count++];
}

static inline cudaStream_t new_stream(void) {
    cudaStream_t stream = NULL;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    objects[object_count++] = stream;
    return stream;
}

static inline void tidy_up(void) {
    for (size_t i = 0; i < object_count; i++) {
        (void)cudaStreamDestroy(objects[i]);
    }
    while (object_count > 0) {
        struct cudaPointerAttributes found;
        void *memory = objects[--object_count];
        OK(cudaPointerGetAttributes(&found, memory));
        if (found.type != cudaMemoryTypeUnregistered) {
            OK(found.type == cudaMemoryTypeHost ? cudaFreeHost(memory) : cudaFree(memory));
        }
    }
    (void)cudaGetLastError();
}

static inline CUmemGenericAllocationHandle new_handle(int ordinal, uint64_t granules) {
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
    };
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemCreate(&handle, granules * GRANULE, &properties, 0));
    return handle;
}

static inline CUdeviceptr new_reservation(uint64_t granules) {
    CUdeviceptr address = 0;
    OK(cuMemAddressReserve(&address, granules * GRANULE, 0, 0, 0));
    return address;
}

static inline CUresult open_access(CUdeviceptr address, uint64_t granules, int ordinal) {
    CUmemAccessDesc access = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuMemSetAccess(address, granules * GRANULE, &access, 1);
}

/* Memory of device 0 for a granule, which goes with its mapping. */
static inline void map_granule(CUdeviceptr address) {
    CUmemGenericAllocationHandle handle = new_handle(0, 1);
    OK(cuMemMap(address, GRANULE, 0, handle, 0));
    OK(open_access(address, 1, 0));
    OK(cuMemRelease(handle));
}

static inline void enter_device(int ordinal) {
    CUcontext context = NULL;
    OK(cuDevicePrimaryCtxRetain(&context, ordinal));
    OK(cuCtxPushCurrent(context));
}

static inline void leave_device(int ordinal) {
    CUcontext context = NULL;
    OK(cuCtxPopCurrent(&context));
    OK(cuDevicePrimaryCtxRelease(ordinal));
}

/* Whether all bytes have this value. */
static inline bool holds_value(const void *memory, int value, uint64_t size_bytes) {
    const unsigned char *bytes = memory;
    for (uint64_t i = 0; i < size_bytes; i++) {
        if (bytes[i] != (unsigned char)value) {
            fprintf(stderr, "byte %" PRIu64 " is %u, expected %d\n", i, bytes[i], value);
            return false;
        }
    }
    return true;
}

static inline int run_in_mode(const char *pace, bool has_bytes) {
    /* NOLINTNEXTLINE(concurrency-mt-unsafe) */
    (void)setenv("GMLAKE_STANDIN_BACKED", has_bytes ? "1" : "0", 1);
    printf("%s: ", has_bytes ? "with bytes" : "address space only");
    (void)fflush(stdout);
    for (size_t i = 0; i < case_count; i++) {
        set_pace(pace);
        check_run(cases[i].name, cases[i].run);
        tidy_up();
    }
    return report();
}

/* Runs the tests on memory with bytes, and in another process without; the exit status of main. */
static inline int run_cases(const char *pace, bool needs_bytes) {
    /* Read by the stand-in at its first call; no other thread is running. */
    /* NOLINTBEGIN(concurrency-mt-unsafe) */
    (void)setenv("GMLAKE_STANDIN_CAPACITY", "256MiB", 1);
    (void)setenv("GMLAKE_STANDIN_DEVICES", "2", 1);
    (void)setenv("GMLAKE_STANDIN_PACE", pace, 1);
    (void)setenv("GMLAKE_STANDIN_ABORT", "0", 1);
    int status = needs_bytes ? 0 : 1;
    pid_t child = needs_bytes ? -1 : fork();
    if (child == 0) {
        exit(run_in_mode(pace, false));
    }
    /* NOLINTEND(concurrency-mt-unsafe) */
    if (child > 0) {
        (void)waitpid(child, &status, 0);
    }
    return run_in_mode(pace, true) != 0 || status != 0;
}

#endif
