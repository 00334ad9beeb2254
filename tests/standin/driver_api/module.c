/* Modules, libraries and kernels that a program loads by itself: NVRTC's output, cubins, PTX.
 *
 * What an image contains is not read. A kernel is an object with the name that was asked for, and a
 * launch of it an operation without effect. */
#include "base/map.h"
#include "standin.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_THREADS = 1024, /* of a block */
    REGISTERS = 32,
    DEFAULT_SHARED_BYTES = 48 * 1024, /* of a block, without being asked for more */
};

typedef struct kernel kernel;

/* What a CUmodule and a CUlibrary point to. */
typedef struct image {
    kernel *kernels; /* asked for so far */
} image;

/* What a CUfunction and a CUkernel point to. */
struct kernel {
    kernel *next; /* of its image */
    image *owner;
    int attributes[CU_FUNC_ATTRIBUTE_MAX];
    char name[]; /* ends with 0 */
};

static gml_map images;  /* from each image to itself: those that are loaded */
static gml_map kernels; /* the same */

static image *
find_image(const void *handle)
{
    return handle ? gml_map_find(&images, (uint64_t)(uintptr_t)handle) : NULL;
}

static kernel *
find_kernel(const void *handle)
{
    return handle ? gml_map_find(&kernels, (uint64_t)(uintptr_t)handle) : NULL;
}

/* ---- images ---------------------------------------------------------------------------------- */

static cudaError_t
load(void **out)
{
    image *made = calloc(1, sizeof *made);
    if (!made || gml_map_insert(&images, (uint64_t)(uintptr_t)made, made) != GML_OK) {
        free(made);
        return cudaErrorMemoryAllocation;
    }
    *out = made;
    return cudaSuccess;
}

/* A module belongs to a context, a library to none. */
static CUresult
load_module(CUmodule *out, const void *data)
{
    standin_enter();
    void *made = NULL;
    cudaError_t error = standin_check_context();
    if (error == cudaSuccess) {
        error = out && data ? load(&made) : cudaErrorInvalidValue;
    }
    if (error == cudaSuccess) {
        *out = (CUmodule)made;
    }
    return standin_return_driver(error);
}

static void
unload(image *gone)
{
    while (gone->kernels) {
        kernel *next = gone->kernels;
        gone->kernels = next->next;
        (void)gml_map_take(&kernels, (uint64_t)(uintptr_t)next);
        free(next);
    }
    (void)gml_map_take(&images, (uint64_t)(uintptr_t)gone);
    free(gone);
}

static CUresult
unload_handle(const void *handle)
{
    standin_enter();
    image *found = find_image(handle);
    if (found) {
        unload(found);
    }
    return standin_return_driver(found ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

static CUresult
check_file(const char *path)
{
    if (!path) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return access(path, R_OK) == 0 ? CUDA_SUCCESS : CUDA_ERROR_FILE_NOT_FOUND;
}

CUresult
cuModuleLoad(CUmodule *out, const char *path)
{
    CALLED();
    CUresult result = check_file(path);
    return result == CUDA_SUCCESS ? load_module(out, path) : result;
}

CUresult
cuModuleLoadData(CUmodule *out, const void *data)
{
    CALLED();
    return load_module(out, data);
}

CUresult
cuModuleLoadDataEx(CUmodule *out, const void *data, unsigned count, CUjit_option *options,
                   void **values)
{
    CALLED();
    (void)count;
    (void)options;
    (void)values;
    return load_module(out, data);
}

CUresult
cuModuleUnload(CUmodule module)
{
    CALLED();
    return unload_handle(module);
}

/* ---- linking --------------------------------------------------------------------------------- */

/* The linker's state and what it makes: images are not read, so one will do for all. */
static char linked[64];

CUresult
cuLinkCreate(unsigned count, CUjit_option *options, void **values, CUlinkState *out)
{
    CALLED();
    (void)count;
    (void)options;
    (void)values;
    *out = (CUlinkState)(void *)linked;
    return CUDA_SUCCESS;
}

CUresult
cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
              unsigned count, CUjit_option *options, void **values)
{
    CALLED();
    (void)type, (void)size, (void)name, (void)count, (void)options, (void)values;
    return state && data ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult
cuLinkComplete(CUlinkState state, void **out, size_t *size)
{
    CALLED();
    if (!state || !out) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = linked;
    if (size) {
        *size = sizeof linked;
    }
    return CUDA_SUCCESS;
}

CUresult
cuLinkDestroy(CUlinkState state)
{
    CALLED();
    return state ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static kernel *
new_kernel(image *owner, const char *name)
{
    size_t name_bytes = strlen(name) + 1;
    kernel *made = calloc(1, sizeof *made + name_bytes);
    if (!made || gml_map_insert(&kernels, (uint64_t)(uintptr_t)made, made) != GML_OK) {
        free(made);
        return NULL;
    }
    const standin_settings *settings = standin_settings_get();
    memcpy(made->name, name, name_bytes);
    made->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = MOST_THREADS;
    made->attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = REGISTERS;
    made->attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION] = settings->major * 10 + settings->minor;
    made->attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = settings->major * 10 + settings->minor;
    made->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = DEFAULT_SHARED_BYTES;
    made->attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
    made->owner = owner;
    made->next = owner->kernels;
    owner->kernels = made;
    return made;
}

/* Every name is taken to be there. */
static cudaError_t
get_kernel(const void *handle, const char *name, void **out)
{
    image *owner = find_image(handle);
    if (!owner || !out || !name) {
        return owner ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle;
    }
    kernel *known = owner->kernels;
    while (known && strcmp(known->name, name) != 0) {
        known = known->next;
    }
    *out = known ? known : new_kernel(owner, name);
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

CUresult
cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    CALLED();
    standin_enter();
    void *found = NULL;
    cudaError_t error = get_kernel(module, name, &found);
    if (error == cudaSuccess) {
        *out = (CUfunction)found;
    }
    return standin_return_driver(error);
}

static CUresult
get_attribute(int *out, CUfunction_attribute attribute, const void *handle)
{
    standin_enter();
    const kernel *found = find_kernel(handle);
    if (!found || attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) {
        return standin_return_driver(found ? cudaErrorInvalidValue
                                           : cudaErrorInvalidResourceHandle);
    }
    *out = found->attributes[attribute];
    return standin_return_driver(cudaSuccess);
}

static CUresult
set_attribute(const void *handle, CUfunction_attribute attribute, int value)
{
    standin_enter();
    kernel *found = find_kernel(handle);
    if (!found || attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) {
        return standin_return_driver(found ? cudaErrorInvalidValue
                                           : cudaErrorInvalidResourceHandle);
    }
    int most_shared = standin_attribute(standin_device_at(standin_current_ordinal()),
                                        cudaDevAttrMaxSharedMemoryPerBlockOptin);
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value > most_shared) {
        return standin_return_driver(cudaErrorInvalidValue);
    }
    found->attributes[attribute] = value;
    return standin_return_driver(cudaSuccess);
}

CUresult
cuFuncGetAttribute(int *out, CUfunction_attribute attribute, CUfunction function)
{
    CALLED();
    return get_attribute(out, attribute, function);
}

CUresult
cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    CALLED();
    return set_attribute(function, attribute, value);
}

CUresult
cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
    CALLED();
    (void)config;
    standin_enter();
    return standin_return_driver(find_kernel(function) ? cudaSuccess
                                                       : cudaErrorInvalidResourceHandle);
}

/* ---- launches -------------------------------------------------------------------------------- */

static bool
is_possible(const CUlaunchConfig *wanted)
{
    uint64_t threads = (uint64_t)wanted->blockDimX * wanted->blockDimY * wanted->blockDimZ;
    return threads >= 1 && threads <= MOST_THREADS && wanted->gridDimX >= 1 &&
           wanted->gridDimY >= 1 && wanted->gridDimZ >= 1;
}

static CUresult
launch(const char *name, const void *function, const CUlaunchConfig *wanted)
{
    standin_enter();
    cudaError_t error = standin_check_context();
    if (error != cudaSuccess) {
        return standin_return_driver(error);
    }
    standin_stream *stream = standin_stream_of(wanted->hStream);
    if (!find_kernel(function) || !stream) {
        return standin_return_driver(cudaErrorInvalidResourceHandle);
    }
    if (!is_possible(wanted)) {
        return standin_return_driver(cudaErrorInvalidValue);
    }
    return standin_return_driver(standin_submit(stream, &(standin_operation){.name = name}));
}

CUresult
cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
               unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
               CUstream stream, void **arguments, void **extra)
{
    CALLED();
    (void)arguments;
    (void)extra;
    CUlaunchConfig wanted = {grid_x,  grid_y,       grid_z, block_x, block_y,
                             block_z, shared_bytes, stream, NULL,    0};
    return launch(__func__, function, &wanted);
}

CUresult
cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra)
{
    CALLED();
    (void)arguments;
    (void)extra;
    return launch(__func__, function, config);
}

CUresult
cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z,
                          unsigned shared_bytes, CUstream stream, void **arguments)
{
    CALLED();
    (void)arguments;
    CUlaunchConfig wanted = {grid_x,  grid_y,       grid_z, block_x, block_y,
                             block_z, shared_bytes, stream, NULL,    0};
    return launch(__func__, function, &wanted);
}

CUresult
cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, CUfunction function, int threads,
                                            size_t shared_bytes)
{
    CALLED();
    (void)shared_bytes;
    standin_enter();
    bool is_known = find_kernel(function) != NULL;
    if (is_known) {
        *out = standin_resident_blocks(threads);
    }
    return standin_return_driver(is_known ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
