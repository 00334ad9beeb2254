/* What the checks of memory, copies and pools have in common: both memory modes in one program, and
 * counting broken rules. */
#ifndef GML_STANDIN_MEMORY_SUPPORT_H
#define GML_STANDIN_MEMORY_SUPPORT_H

#include "rig/control.h"
#include "support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define CAPACITY_BYTES (256 * MIB)

#define CHECK_CUDA(call) CHECK_EQ(call, cudaSuccess)

/* The call answers `error` and is reported as one broken rule. */
#define CHECK_MISUSE(call, error)                                                                  \
    do {                                                                                           \
        uint64_t misuses_before = gmlake_standin_misuses();                                        \
        CHECK_EQ(call, error);                                                                     \
        CHECK_EQ(gmlake_standin_misuses() - misuses_before, 1);                                    \
    } while (0)

static inline bool
is_backed(void)
{
    return standin_settings_get()->is_backed;
}

static inline void
set_pace(const char *pace)
{
    CHECK_EQ(gmlake_standin_set_pace(pace, 0), 0);
}

static inline uint64_t
free_bytes(void)
{
    size_t free_now = 0;
    size_t total = 0;
    CHECK_CUDA(cudaMemGetInfo(&free_now, &total));
    CHECK_EQ(total, CAPACITY_BYTES);
    return free_now;
}

static inline void *
device_memory(uint64_t size_bytes)
{
    void *memory = NULL;
    CHECK_CUDA(cudaMalloc(&memory, size_bytes));
    return memory;
}

static inline void *
pinned_memory(uint64_t size_bytes)
{
    void *memory = NULL;
    CHECK_CUDA(cudaMallocHost(&memory, size_bytes));
    return memory;
}

static inline cudaStream_t
new_stream(void)
{
    cudaStream_t stream = NULL;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

/* Whether all bytes have this value. */
static inline bool
holds_value(const void *memory, int value, uint64_t size_bytes)
{
    const unsigned char *bytes = memory;
    for (uint64_t i = 0; i < size_bytes; i++) {
        if (bytes[i] != (unsigned char)value) {
            fprintf(stderr, "byte %" PRIu64 " is %u, expected %d\n", i, bytes[i], value);
            return false;
        }
    }
    return true;
}

static inline int
run_in_mode(const char *backed, void (*run_all)(void))
{
    (void)setenv("GMLAKE_STANDIN_BACKED", backed, 1); /* NOLINT(concurrency-mt-unsafe) */
    printf("%s: ", strcmp(backed, "1") == 0 ? "with bytes" : "address space only");
    (void)fflush(stdout);
    run_all();
    return report();
}

/* Runs the tests in a process for each memory mode; the exit status of main. */
static inline int
run_in_both_modes(void (*run_all)(void))
{
    /* Read by the stand-in at its first call; no other thread is running. */
    /* NOLINTBEGIN(concurrency-mt-unsafe) */
    (void)setenv("GMLAKE_STANDIN_CAPACITY", "256MiB", 1);
    (void)setenv("GMLAKE_STANDIN_DEVICES", "2", 1);
    (void)setenv("GMLAKE_STANDIN_PACE", "eager", 1);
    (void)setenv("GMLAKE_STANDIN_ABORT", "0", 1);
    /* NOLINTEND(concurrency-mt-unsafe) */
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        exit(run_in_mode("0", run_all)); /* NOLINT(concurrency-mt-unsafe) */
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("the process without bytes");
    }
    int failed = run_in_mode("1", run_all);
    return failed != 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

#endif
