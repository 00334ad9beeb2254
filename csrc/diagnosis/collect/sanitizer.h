/* The parts of the binary interface of NVIDIA's Sanitizer API that the collector needs.
 *
 * Declared here, so that building needs no CUDA toolkit. Numbers and layouts are those of the
 * Sanitizer API 2025.3, of CUDA 13.0 (sanitizer_callbacks.h, sanitizer_patching.h,
 * sanitizer_memory.h). Functions of the driver have CUPTI's numbers and parameters, and the data of
 * their callbacks are a cupti_callback_data as far as `symbol`.
 */
#ifndef GML_DIAGNOSE_COLLECT_SANITIZER_H
#define GML_DIAGNOSE_COLLECT_SANITIZER_H

#include <stddef.h>
#include <stdint.h>

enum {
    SANITIZER_SUCCESS = 0,

    SANITIZER_DOMAIN_DRIVER_API = 1,
    SANITIZER_DOMAIN_RESOURCE = 3,
    SANITIZER_DOMAIN_LAUNCH = 5,
    SANITIZER_DOMAIN_GRAPHS = 10,

    SANITIZER_CONTEXT_DESTROYED = 5,
    SANITIZER_MODULE_LOADED = 9,
    SANITIZER_LAUNCH_BEGIN = 1,
    SANITIZER_LAUNCH_END = 3,
    SANITIZER_NODE_LAUNCH_BEGIN = 4,
    SANITIZER_GRAPH_LAUNCH_END = 7,

    SANITIZER_GLOBAL_ACCESS = 3,
    SANITIZER_ASYNC_COPY = 14,
    SANITIZER_BULK_READ = 30,
    SANITIZER_BULK_WRITE = 35,
    SANITIZER_BULK_REDUCTION = 37,

    CUDA_NODE_KERNEL = 0
};

typedef struct sanitizer_module_data {
    void *context, *module;
} sanitizer_module_data;

typedef struct sanitizer_launch_data {
    void *context, *stream, *stream_handle, *module, *function;
    const char *name;
    uint32_t grid[3], block[3], cluster[3];
    uint64_t grid_id;
    void *launch;
    int device;
    void *api_context, *api_stream, *api_stream_handle;
} sanitizer_launch_data;

typedef struct sanitizer_node_data { /* as far as it is needed */
    void *graph;
    uint32_t launch_id;
    void *node;
    int type;
    sanitizer_launch_data launch; /* of CUDA_NODE_KERNEL */
} sanitizer_node_data;

typedef struct sanitizer_graph_data {
    void *context, *stream, *stream_handle, *graph;
    uint32_t is_upload;
} sanitizer_graph_data;

typedef void (*sanitizer_callback)(void *user, int domain, uint32_t id, const void *data);

/* Field, suffix of the name in the library, parameters. All return SANITIZER_SUCCESS or an error.
 */
#define SANITIZER_FUNCTIONS(X)                                                                     \
    X(subscribe, Subscribe, (void **subscriber, sanitizer_callback callback, void *user))          \
    X(enable_domain, EnableDomain, (uint32_t enable, void *subscriber, int domain))                \
    X(enable_callback, EnableCallback,                                                             \
      (uint32_t enable, void *subscriber, int domain, uint32_t id))                                \
    X(add_patches, AddPatches, (const void *image, void *context))                                 \
    X(patch_instructions, PatchInstructions, (int kind, void *module, const char *function))       \
    X(patch_module, PatchModule, (void *module))                                                   \
    X(set_launch_data, SetLaunchCallbackData,                                                      \
      (void *launch, void *function, void *stream, const void *data))                              \
    X(alloc, Alloc, (void *context, void **address, size_t size_bytes))                            \
    X(free, Free, (void *context, void *address))                                                  \
    X(copy_in, MemcpyHostToDeviceAsync, (void *to, void *from, size_t size_bytes, void *stream))   \
    X(copy_out, MemcpyDeviceToHost, (void *to, void *from, size_t size_bytes, void *stream))       \
    X(set, Memset, (void *to, int value, size_t size_bytes, void *stream))                         \
    X(synchronize, StreamSynchronize, (void *stream))

#define SANITIZER_FIELD(field, name, parameters) int(*field) parameters;
typedef struct sanitizer_api {
    SANITIZER_FUNCTIONS(SANITIZER_FIELD)
} sanitizer_api;
#undef SANITIZER_FIELD

#endif
