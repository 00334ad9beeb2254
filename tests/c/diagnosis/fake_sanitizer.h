#ifndef GML_TEST_FAKE_SANITIZER_H
#define GML_TEST_FAKE_SANITIZER_H

#include <stddef.h>
#include <stdint.h>

/* One instruction of a kernel: lane i of a warp accesses address + i * step. */
typedef struct fake_access {
    const char *patch; /* gml_patch_access, ... */
    uint64_t address;
    uint32_t size_bytes, flags; /* of a bulk copy: blocks of 16 bytes */
    uint32_t lanes;
    int64_t step;
} fake_access;

typedef struct fake_launch {
    const char *name;
    void *context, *function;
    const fake_access *accesses;
    size_t count;
    void (*during)(void); /* what the program does meanwhile; may be NULL */
} fake_launch;

/* The callbacks of a kernel's launch, and what its patches do between them. */
typedef void (*fake_sanitizer_launch_function)(const fake_launch *launch);

/* Those of a graph with these kernels. */
typedef void (*fake_sanitizer_graph_function)(const fake_launch *launches, size_t count);

typedef void (*fake_sanitizer_context_function)(void *context, uint32_t id);

#endif
