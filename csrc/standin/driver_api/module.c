/* Modules and kernels that a program loads by itself: NVRTC's output, cubins, PTX.
 *
 * What an image contains is not read. A kernel is an object, made for any name that is asked for,
 * and a launch of it an operation without effect. */
#include "standin/standin.h"

#include <stdlib.h>
#include <unistd.h>

/* What a CUfunction points to. */
typedef struct kernel {
    struct kernel *next; /* of its module */
    int attributes[CU_FUNC_ATTRIBUTE_MAX];
} kernel;

/* What a CUmodule points to. */
struct CUmod_st {
    kernel *kernels; /* asked for so far */
};

cudaError_t standin_cuModuleLoadData(CUmodule *out, const void *data) {
    (void)data;
    *out = standin_new(sizeof **out);
    return cudaSuccess;
}

cudaError_t standin_cuModuleLoad(CUmodule *out, const char *path) {
    return access(path, R_OK) == 0 ? standin_cuModuleLoadData(out, path) : cudaErrorFileNotFound;
}

cudaError_t standin_cuModuleUnload(CUmodule module) {
    while (module->kernels) {
        kernel *first = module->kernels;
        module->kernels = first->next;
        free(first);
    }
    free(module);
    return cudaSuccess;
}

cudaError_t standin_cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
    (void)name;
    kernel *made = standin_new(sizeof *made);
    const standin_settings *settings = standin_settings_get();
    made->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = STANDIN_MOST_THREADS;
    made->attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = STANDIN_REGISTERS;
    made->attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION] = settings->major * 10 + settings->minor;
    made->attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = settings->major * 10 + settings->minor;
    made->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = STANDIN_SHARED_BYTES;
    made->attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
    made->next = module->kernels;
    module->kernels = made;
    *out = (CUfunction)(void *)made;
    return cudaSuccess;
}

cudaError_t standin_cuFuncGetAttribute(int *out, CUfunction_attribute attribute,
                                       CUfunction function) {
    bool is_known = attribute < CU_FUNC_ATTRIBUTE_MAX; /* a program may be of a later CUDA */
    *out = is_known ? ((kernel *)(void *)function)->attributes[attribute] : 0;
    return is_known ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t standin_cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute,
                                       int value) {
    int most_shared = standin_attribute(standin_device_at(standin_current_ordinal()),
                                        cudaDevAttrMaxSharedMemoryPerBlockOptin);
    bool is_shared = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    if (attribute >= CU_FUNC_ATTRIBUTE_MAX || (is_shared && value > most_shared)) {
        return cudaErrorInvalidValue;
    }
    ((kernel *)(void *)function)->attributes[attribute] = value;
    return cudaSuccess;
}

cudaError_t standin_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function,
                                     void **arguments, void **extra) {
    (void)function, (void)arguments, (void)extra;
    dim3 grid = {config->gridDimX, config->gridDimY, config->gridDimZ};
    dim3 block = {config->blockDimX, config->blockDimY, config->blockDimZ};
    cudaError_t error = standin_launch(grid, block, config->hStream);
    return error == cudaErrorInvalidConfiguration ? cudaErrorInvalidValue : error;
}

cudaError_t standin_cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                   unsigned grid_z, unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared_bytes, CUstream stream,
                                   void **arguments, void **extra) {
    CUlaunchConfig wanted = {grid_x,  grid_y,       grid_z, block_x, block_y,
                             block_z, shared_bytes, stream, NULL,    0};
    return standin_cuLaunchKernelEx(&wanted, function, arguments, extra);
}
