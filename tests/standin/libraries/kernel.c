/* Kernels, as far as code compiled by nvcc sees them: registration, the call configuration, launch.
 *
 * A launch is checked and queued as an operation without effect. Its arguments cannot be read, for
 * nothing here knows their sizes, so a kernel touches no memory that the rig could check.
 */
#include "base/map.h"
#include "standin.h"

#include <pthread.h>
#include <stdlib.h>

/* nvcc calls these, but no header that C can read declares them. */
/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
STANDIN_API void **__cudaRegisterFatBinary(void *binary);
STANDIN_API void __cudaRegisterFatBinaryEnd(void **module);
STANDIN_API void __cudaUnregisterFatBinary(void **module);
STANDIN_API void __cudaRegisterFunction(void **module, const char *host_function,
                                        char *device_function, const char *name, int thread_limit,
                                        uint3 *thread, uint3 *block, dim3 *block_dim,
                                        dim3 *grid_dim, int *warp_size);
STANDIN_API void __cudaRegisterVar(void **module, char *host_variable, char *device_address,
                                   const char *name, int is_extern, size_t size, int is_constant,
                                   int is_global);
STANDIN_API char __cudaInitModule(void **module);
STANDIN_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                                 cudaStream_t stream);
STANDIN_API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes,
                                                   void *stream);
STANDIN_API cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *function);
STANDIN_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
                                           void **arguments, size_t shared_bytes,
                                           cudaStream_t stream);
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

enum {
    MOST_THREADS = 1024,          /* of a block */
    MOST_RESIDENT_THREADS = 2048, /* of a multiprocessor */
    MOST_RESIDENT_BLOCKS = 32,
    MOST_NESTED_LAUNCHES = 32,
    PORTABLE_CLUSTER = 8,
    REGISTERS = 32,
    SHARED_BYTES = 48 * 1024, /* of a block, without being asked for more */
};

typedef struct launch {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
} launch;

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

static _Thread_local launch configurations[MOST_NESTED_LAUNCHES];
static _Thread_local unsigned configuration_count;

/* ---- registration ---------------------------------------------------------------------------- */

void **
__cudaRegisterFatBinary(void *binary)
{
    CALLED();
    void **module = malloc(sizeof *module);
    if (module != NULL) {
        *module = binary;
    }
    return module;
}

void
__cudaRegisterFatBinaryEnd(void **module)
{
    CALLED();
    (void)module;
}

void
__cudaUnregisterFatBinary(void **module)
{
    CALLED();
    free(module);
}

/* Managed variables would be made here; there are none. */
char
__cudaInitModule(void **module)
{
    CALLED();
    (void)module;
    return 1;
}

static bool
insert(gml_map *map, const void *address, void *value)
{
    bool is_in = gml_map_insert(map, (uint64_t)(uintptr_t)address, value) == GML_OK;
    if (!is_in) {
        standin_misuse("no host memory to register the device code of a library");
    }
    return is_in;
}

static variable *
add_variable(const void *host_variable)
{
    variable *added = calloc(1, sizeof *added);
    if (added == NULL || !insert(&variables, host_variable, added)) {
        free(added);
        return NULL;
    }
    return added;
}

void
__cudaRegisterFunction(void **module, const char *host_function, char *device_function,
                       const char *name, int thread_limit, uint3 *thread, uint3 *block,
                       dim3 *block_dim, dim3 *grid_dim, int *warp_size)
{
    CALLED();
    (void)module, (void)device_function, (void)thread_limit, (void)thread, (void)block;
    (void)block_dim, (void)grid_dim, (void)warp_size;
    (void)pthread_mutex_lock(&registry_lock);
    /* A library that is loaded again may have its functions where they were. */
    (void)gml_map_take(&functions, (uint64_t)(uintptr_t)host_function);
    (void)insert(&functions, host_function, (void *)(uintptr_t)name);
    (void)pthread_mutex_unlock(&registry_lock);
}

void
__cudaRegisterVar(void **module, char *host_variable, char *device_address, const char *name,
                  int is_extern, size_t size, int is_constant, int is_global)
{
    CALLED();
    (void)module, (void)device_address, (void)name, (void)is_extern, (void)is_constant;
    (void)is_global;
    (void)pthread_mutex_lock(&registry_lock);
    variable *found = gml_map_find(&variables, (uint64_t)(uintptr_t)host_variable);
    if (found == NULL) {
        found = add_variable(host_variable);
    }
    if (found != NULL && found->size_bytes != size) {
        *found = (variable){.size_bytes = size};
    }
    (void)pthread_mutex_unlock(&registry_lock);
}

static void *
find_registered(const gml_map *map, const void *address)
{
    (void)pthread_mutex_lock(&registry_lock);
    void *found = gml_map_find(map, (uint64_t)(uintptr_t)address);
    (void)pthread_mutex_unlock(&registry_lock);
    return found;
}

/* ---- variables of the device ----------------------------------------------------------------- */

gml_address
standin_symbol_address(const void *symbol, uint64_t *size_bytes)
{
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

cudaError_t
cudaGetSymbolAddress(void **out, const void *symbol)
{
    CALLED();
    standin_enter();
    uint64_t size_bytes = 0;
    gml_address address = standin_symbol_address(symbol, &size_bytes);
    if (address == 0) {
        return standin_return(cudaErrorInvalidSymbol);
    }
    *out = (void *)(uintptr_t)address;
    return standin_return(cudaSuccess);
}

/* ---- launches -------------------------------------------------------------------------------- */

unsigned
__cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream)
{
    CALLED();
    if (configuration_count == MOST_NESTED_LAUNCHES) {
        return 1;
    }
    configurations[configuration_count++] = (launch){grid, block, shared_bytes, stream};
    return 0;
}

cudaError_t
__cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream)
{
    CALLED();
    if (configuration_count == 0) {
        return cudaErrorMissingConfiguration;
    }
    const launch *top = &configurations[--configuration_count];
    *grid = top->grid;
    *block = top->block;
    *shared_bytes = top->shared_bytes;
    *(cudaStream_t *)stream = top->stream;
    return cudaSuccess;
}

static bool
is_possible(const launch *wanted)
{
    const dim3 *grid = &wanted->grid, *block = &wanted->block;
    uint64_t threads = (uint64_t)block->x * block->y * block->z;
    return threads >= 1 && threads <= MOST_THREADS && block->z <= 64 && grid->x >= 1 &&
           grid->x <= INT32_MAX && grid->y >= 1 && grid->y <= UINT16_MAX && grid->z >= 1 &&
           grid->z <= UINT16_MAX;
}

static cudaError_t
submit_nothing(const char *name, cudaStream_t handle, const standin_range *ranges, int count)
{
    standin_stream *stream = standin_stream_of(handle);
    if (stream == NULL) {
        return cudaErrorInvalidResourceHandle;
    }
    standin_operation operation = {.name = name};
    for (int i = 0; i < count && i < STANDIN_MOST_RANGES; i++) {
        operation.ranges[i] = ranges[i];
    }
    return standin_submit(stream, &operation);
}

static cudaError_t
launch_function(const char *name, const void *function, const launch *wanted)
{
    standin_enter();
    if (find_registered(&functions, function) == NULL) {
        return standin_return(cudaErrorInvalidDeviceFunction);
    }
    if (!is_possible(wanted)) {
        return standin_return(cudaErrorInvalidConfiguration);
    }
    standin_stream *stream = standin_stream_of(wanted->stream);
    if (stream == NULL || stream->device != standin_current_device()) {
        return standin_return(cudaErrorInvalidResourceHandle);
    }
    return standin_return(submit_nothing(name, wanted->stream, NULL, 0));
}

cudaError_t
standin_run_nothing(const char *name, cudaStream_t stream, const standin_range *ranges, int count)
{
    standin_enter();
    cudaError_t error = submit_nothing(name, stream, ranges, count);
    standin_leave();
    return error;
}

cudaError_t
cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                 cudaStream_t stream)
{
    CALLED();
    (void)arguments;
    launch wanted = {grid, block, shared_bytes, stream};
    return launch_function(__func__, function, &wanted);
}

cudaError_t
cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                            size_t shared_bytes, cudaStream_t stream)
{
    CALLED();
    (void)arguments;
    launch wanted = {grid, block, shared_bytes, stream};
    return launch_function(__func__, function, &wanted);
}

cudaError_t
cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **arguments)
{
    CALLED();
    (void)arguments;
    launch wanted = {config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream};
    return launch_function(__func__, function, &wanted);
}

/* A kernel handle is the host address of its function. */
static cudaError_t
get_kernel(cudaKernel_t *out, const void *function)
{
    standin_enter();
    if (find_registered(&functions, function) == NULL) {
        return standin_return(cudaErrorInvalidDeviceFunction);
    }
    *out = (cudaKernel_t)(uintptr_t)function;
    return standin_return(cudaSuccess);
}

cudaError_t
__cudaGetKernel(cudaKernel_t *out, const void *function)
{
    CALLED();
    return get_kernel(out, function);
}

cudaError_t
cudaGetKernel(cudaKernel_t *out, const void *function)
{
    CALLED();
    return get_kernel(out, function);
}

cudaError_t
__cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                   size_t shared_bytes, cudaStream_t stream)
{
    CALLED();
    (void)arguments;
    launch wanted = {grid, block, shared_bytes, stream};
    return launch_function(__func__, (const void *)kernel, &wanted);
}

/* ---- what a function says of itself ---------------------------------------------------------- */

/* cub chooses its kernels by ptxVersion, so it must be the device's. */
cudaError_t
cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *function)
{
    CALLED();
    standin_enter();
    if (find_registered(&functions, function) == NULL) {
        return standin_return(cudaErrorInvalidDeviceFunction);
    }
    const standin_settings *settings = standin_settings_get();
    int version = settings->major * 10 + settings->minor;
    *out = (struct cudaFuncAttributes){
        .maxThreadsPerBlock = MOST_THREADS,
        .numRegs = REGISTERS,
        .ptxVersion = version,
        .binaryVersion = version,
        .maxDynamicSharedSizeBytes = SHARED_BYTES,
        .preferredShmemCarveout = cudaSharedmemCarveoutDefault,
    };
    return standin_return(cudaSuccess);
}

cudaError_t
cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    CALLED();
    (void)attribute, (void)value;
    standin_enter();
    bool is_known = find_registered(&functions, function) != NULL;
    return standin_return(is_known ? cudaSuccess : cudaErrorInvalidDeviceFunction);
}

int
standin_resident_blocks(int threads)
{
    if (threads < 1 || threads > MOST_THREADS) {
        return 0;
    }
    int blocks = MOST_RESIDENT_THREADS / threads;
    return blocks < MOST_RESIDENT_BLOCKS ? blocks : MOST_RESIDENT_BLOCKS;
}

cudaError_t
cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *out, const void *function, int threads,
                                              size_t shared_bytes)
{
    CALLED();
    (void)function, (void)shared_bytes;
    standin_enter();
    *out = standin_resident_blocks(threads);
    return standin_return(cudaSuccess);
}

cudaError_t
cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, const void *function, int threads,
                                                       size_t shared_bytes, unsigned flags)
{
    CALLED();
    (void)function, (void)shared_bytes, (void)flags;
    standin_enter();
    *out = standin_resident_blocks(threads);
    return standin_return(cudaSuccess);
}
