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
#define CAPACITY_BYTES (256 * MIB) /* of each of two devices */

#define OK(call) CHECK_EQ(call, 0)

typedef struct check_case {
    const char *name;
    void (*run)(void);
} check_case;

static check_case cases[64]; /* of this file, in their order */
static size_t case_count;

/* A test that run_cases() runs, once on memory with bytes and once without. */
#define CASE(name)                                                                                 \
    static void case_##name(void);                                                                 \
    __attribute__((constructor)) static void enter_##name(void) {                                  \
        cases[case_count++] = (check_case){#name, case_##name};                                    \
    }                                                                                              \
    static void case_##name(void)

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
