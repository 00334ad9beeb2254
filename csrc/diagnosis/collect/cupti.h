/* The parts of the binary interfaces of CUPTI and the CUDA driver that the collector needs.
 *
 * Declared here, so that building needs no CUDA toolkit. Numbers and layouts are those of
 * CUPTI 13.0 (cupti_callbacks.h, cupti_driver_cbid.h, generated_cuda_meta.h); they are stable
 * across releases, since tools are built against older ones.
 */
#ifndef GML_DIAGNOSE_COLLECT_CUPTI_H
#define GML_DIAGNOSE_COLLECT_CUPTI_H

#include <stddef.h>
#include <stdint.h>

enum { CUPTI_SUCCESS = 0, CUPTI_DOMAIN_DRIVER_API = 1, CUPTI_API_ENTER = 0, CUPTI_API_EXIT = 1 };

typedef struct cupti_callback_data {
    int site; /* CUPTI_API_ENTER or CUPTI_API_EXIT */
    const char *function;
    const void *parameters;
    void *result;       /* of an int; at the exit only */
    const char *symbol; /* of the kernel, where the function launches one */
    void *context;
    uint32_t context_uid;
    uint64_t *correlation_data;
    uint32_t correlation_id;
} cupti_callback_data;

typedef void (*cupti_callback)(void *user, int domain, uint32_t function,
                               const cupti_callback_data *data);

typedef int (*cupti_subscribe)(void **subscriber, cupti_callback callback, void *user);
typedef int (*cupti_enable_callback)(uint32_t enable, void *subscriber, int domain,
                                     uint32_t function);
typedef int (*cupti_unsubscribe)(void *subscriber);

/* int cuFuncGetParamInfo(function, index, *offset, *size), and of kernels alike; CUDA 12.4. */
typedef int (*cuda_param_info)(void *function, size_t index, size_t *offset, size_t *size);

/* ---- parameters of driver functions ---------------------------------------------------------- */

typedef struct cuda_alloc {
    uint64_t *address;
    size_t size_bytes;
    uint64_t stream_or_pool; /* cuMemAllocAsync: the stream; cuMemAllocFromPoolAsync: the pool */
    uint64_t stream;         /* cuMemAllocFromPoolAsync */
} cuda_alloc;

typedef struct cuda_alloc_pitch {
    uint64_t *address;
    size_t *pitch_bytes;
    size_t width_bytes, height;
    unsigned element_bytes;
} cuda_alloc_pitch;

typedef struct cuda_map {
    uint64_t address;
    size_t size_bytes;
} cuda_map;

typedef struct cuda_free {
    uint64_t address;
    uint64_t stream; /* cuMemFreeAsync */
} cuda_free;

typedef struct cuda_copy {
    uint64_t target, source; /* of the device or of the host */
    size_t size_bytes;
    uint64_t stream; /* the asynchronous ones */
} cuda_copy;

typedef struct cuda_copy_peer {
    uint64_t target;
    void *target_context;
    uint64_t source;
    void *source_context;
    size_t size_bytes;
    uint64_t stream;
} cuda_copy_peer;

typedef struct cuda_plane {
    size_t x_bytes, y;
    int memory; /* 1: host, 2: device, 3: array, 4: unified */
    uint64_t host, device, array;
    size_t pitch_bytes;
} cuda_plane;

enum { CUDA_MEMORY_DEVICE = 2, CUDA_MEMORY_UNIFIED = 4 };

typedef struct cuda_rectangle {
    cuda_plane source, target;
    size_t width_bytes, height;
} cuda_rectangle;

typedef struct cuda_copy_2d {
    const cuda_rectangle *what;
    uint64_t stream;
} cuda_copy_2d;

typedef struct cuda_set {
    uint64_t target;
    uint32_t value;
    size_t count;
    uint64_t stream;
} cuda_set;

typedef struct cuda_set_2d {
    uint64_t target;
    size_t pitch_bytes;
    uint32_t value;
    size_t width, height;
    uint64_t stream;
} cuda_set_2d;

typedef struct cuda_launch {
    void *function;
    uint32_t grid[3], block[3], shared_bytes;
    uint64_t stream;
    void **parameters;
    void **extra; /* not of a cooperative launch */
} cuda_launch;

typedef struct cuda_launch_config {
    uint32_t grid[3], block[3], shared_bytes;
    uint64_t stream;
} cuda_launch_config;

typedef struct cuda_launch_ex {
    const cuda_launch_config *config;
    void *function;
    void **parameters;
    void **extra;
} cuda_launch_ex;

typedef struct cuda_graph_launch {
    void *graph;
    uint64_t stream;
} cuda_graph_launch;

#endif
