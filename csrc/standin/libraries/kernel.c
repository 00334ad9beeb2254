/* Kernels, as far as code compiled by nvcc sees them: registration, the call configuration, launch.
 *
 * A launch is checked and queued as an operation without effect. Its arguments cannot be read, for
 * nothing here knows their sizes, so a kernel touches no memory that the harness could check.
 */
#include "standin/standin.h"

#include <pthread.h>
#include <stdlib.h>

/* nvcc calls these functions, but no header that C can read declares them. */
/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum {
    MOST_RESIDENT_THREADS = 2048, /* of a multiprocessor */
    MOST_RESIDENT_BLOCKS = 32,
    MOST_NESTED_LAUNCHES = 32,
};

typedef struct configuration {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
} configuration;

/* A __device__ or __constant__ variable: each device has its own, made when it is asked for. */
typedef struct variable {
    uint64_t size_bytes;
    gml_address addresses[STANDIN_MOST_DEVICES];
} variable;

/* Modules register while libraries are loaded, which must not open the devices: hence a lock of
 * its own, always taken last. */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static gml_map functions; /* host address to name */
static gml_map variables; /* host address to variable */

static _Thread_local configuration configurations[MOST_NESTED_LAUNCHES];
static _Thread_local unsigned configuration_count;

/* ---- registration ---------------------------------------------------------------------------- */

STANDIN_API void **__cudaRegisterFatBinary(void *binary) {
    CALLED();
    void **module = standin_new(sizeof *module);
    *module = binary;
    return module;
}

STANDIN_API void __cudaUnregisterFatBinary(void **module) {
    CALLED();
    free(module);
}

/* Managed variables would be made here; there are none. */
STANDIN_API char __cudaInitModule(void **module) {
    CALLED();
    (void)module;
    return 1;
}

/* A library that is loaded again may have what it registers where it was. */
static void enter(gml_map *map, const void *address, void *value) {
    (void)pthread_mutex_lock(&registry_lock);
    (void)gml_map_take(map, (uint64_t)(uintptr_t)address);
    standin_insert(map, (uint64_t)(uintptr_t)address, value);
    (void)pthread_mutex_unlock(&registry_lock);
}

static void *find_registered(const gml_map *map, const void *address) {
    (void)pthread_mutex_lock(&registry_lock);
    void *found = gml_map_find(map, (uint64_t)(uintptr_t)address);
    (void)pthread_mutex_unlock(&registry_lock);
    return found;
}

STANDIN_API void __cudaRegisterFunction(void **module, const char *host_function,
                                        char *device_function, const char *name, int thread_limit,
                                        uint3 *thread, uint3 *block, dim3 *block_dim,
                                        dim3 *grid_dim, int *warp_size) {
    CALLED();
    (void)module, (void)device_function, (void)thread_limit, (void)thread, (void)block;
    (void)block_dim, (void)grid_dim, (void)warp_size;
    enter(&functions, host_function, (void *)(uintptr_t)name);
}

/* The variable of a library that was loaded before, at the same place, stays. */
STANDIN_API void __cudaRegisterVar(void **module, char *host_variable, char *device_address,
                                   const char *name, int is_extern, size_t size, int is_constant,
                                   int is_global) {
    CALLED();
    (void)module, (void)device_address, (void)name, (void)is_extern, (void)is_constant,
        (void)is_global;
    const variable *known = find_registered(&variables, host_variable);
    if (known == NULL || known->size_bytes != size) {
        variable *added = standin_new(sizeof *added);
        added->size_bytes = size;
        enter(&variables, host_variable, added);
    }
}

/* ---- variables of the device ----------------------------------------------------------------- */

gml_address standin_symbol_address(const void *symbol, uint64_t *size_bytes) {
    variable *found = find_registered(&variables, symbol);
    standin_device *device = standin_current_device();
    if (found == NULL) {
        return 0;
    }
    gml_address *address = &found->addresses[device->ordinal];
    if (*address == 0 && standin_malloc(device, found->size_bytes, address) != cudaSuccess) {
        return 0;
    }
    *size_bytes = found->size_bytes;
    return *address;
}

cudaError_t standin_cudaGetSymbolAddress(void **out, const void *symbol) {
    uint64_t size_bytes = 0;
    *out = (void *)(uintptr_t)standin_symbol_address(symbol, &size_bytes);
    return *out != NULL ? cudaSuccess : cudaErrorInvalidSymbol;
}

/* ---- launches -------------------------------------------------------------------------------- */

STANDIN_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                                 cudaStream_t stream) {
    CALLED();
    if (configuration_count == MOST_NESTED_LAUNCHES) {
        return 1;
    }
    configurations[configuration_count++] = (configuration){grid, block, shared_bytes, stream};
    return 0;
}

STANDIN_API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes,
                                                   void *stream) {
    CALLED();
    if (configuration_count == 0) {
        return cudaErrorMissingConfiguration;
    }
    const configuration *top = &configurations[--configuration_count];
    *grid = top->grid;
    *block = top->block;
    *shared_bytes = top->shared_bytes;
    *(cudaStream_t *)stream = top->stream;
    return cudaSuccess;
}

static cudaError_t submit_nothing(cudaStream_t handle, const standin_range *ranges, int count) {
    standin_operation operation = {.run = NULL};
    for (int i = 0; i < count && i < STANDIN_MOST_RANGES; i++) {
        operation.ranges[i] = ranges[i];
    }
    TRY(standin_check_stream(handle));
    return standin_submit(standin_stream_of(handle), &operation);
}

cudaError_t standin_run_nothing(cudaStream_t stream, const standin_range *ranges, int count) {
    standin_enter();
    cudaError_t error = submit_nothing(stream, ranges, count);
    standin_leave();
    return error;
}

cudaError_t standin_launch(dim3 grid, dim3 block, cudaStream_t stream) {
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    bool is_possible = threads >= 1 && threads <= STANDIN_MOST_THREADS && block.z <= 64 &&
                       grid.x >= 1 && grid.x <= INT32_MAX && grid.y >= 1 && grid.y <= UINT16_MAX &&
                       grid.z >= 1 && grid.z <= UINT16_MAX;
    return is_possible ? submit_nothing(stream, NULL, 0) : cudaErrorInvalidConfiguration;
}

cudaError_t standin_cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                                     size_t shared_bytes, cudaStream_t handle) {
    (void)arguments, (void)shared_bytes;
    if (find_registered(&functions, function) == NULL) {
        return cudaErrorInvalidDeviceFunction;
    }
    const standin_stream *stream = standin_stream_of(handle);
    bool is_here = stream && stream->device == standin_current_device();
    return is_here ? standin_launch(grid, block, handle) : cudaErrorInvalidResourceHandle;
}

/* A kernel handle is the host address of its function. */
STANDIN_API cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *function) {
    CALLED();
    *out = (cudaKernel_t)(uintptr_t)function;
    return cudaSuccess;
}

STANDIN_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
                                           void **arguments, size_t shared_bytes,
                                           cudaStream_t stream) {
    return cudaLaunchKernel((const void *)kernel, grid, block, arguments, shared_bytes, stream);
}

/* ---- what a function says of itself ---------------------------------------------------------- */

/* cub chooses its kernels by ptxVersion, so it must be the device's. */
/* The newest of the architectures that PyTorch for CUDA 13 is compiled for and the device can run:
 * libraries choose among their kernels by it. */
static int binary_version(void) {
    static const int compiled[] = {75, 80, 86, 90, 100, 120};
    const standin_settings *settings = standin_settings_get();
    int capability = settings->major * 10 + settings->minor;
    int version = compiled[0];
    for (size_t i = 0; i < sizeof compiled / sizeof compiled[0]; i++) {
        version = compiled[i] <= capability ? compiled[i] : version;
    }
    return version;
}

cudaError_t standin_cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *function) {
    int version = binary_version();
    *out = (struct cudaFuncAttributes){
        .maxThreadsPerBlock = STANDIN_MOST_THREADS,
        .numRegs = STANDIN_REGISTERS,
        .ptxVersion = version,
        .binaryVersion = version,
        .maxDynamicSharedSizeBytes = STANDIN_SHARED_BYTES,
        .preferredShmemCarveout = cudaSharedmemCarveoutDefault,
    };
    bool is_known = find_registered(&functions, function) != NULL;
    return is_known ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}

cudaError_t standin_cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *out, const void *function,
                                                                  int threads,
                                                                  size_t shared_bytes) {
    (void)function, (void)shared_bytes;
    bool is_possible = threads >= 1 && threads <= STANDIN_MOST_THREADS;
    int blocks = is_possible ? MOST_RESIDENT_THREADS / threads : 0;
    *out = blocks < MOST_RESIDENT_BLOCKS ? blocks : MOST_RESIDENT_BLOCKS;
    return cudaSuccess;
}
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
