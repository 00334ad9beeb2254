/* Looks the entries of raw_cuda.h up. */
#include "support/raw_cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NON_BLOCKING = 1 };

typedef gml_cu_result (*look_up)(const char *name, void **out, int version, uint64_t flags,
                                 int *found);

static bool find(look_up by, const char *name, int version, void *pointer, size_t pointer_bytes) {
    void *found = NULL;
    int ignored;
    if (by(name, &found, version, 0, &ignored) != GML_CU_SUCCESS || !found) {
        return false;
    }
    memcpy(pointer, &found, pointer_bytes);
    return true;
}

static bool load(raw_cuda *out) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        return false;
    }
    look_up by;
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    memcpy(&by, &symbol, sizeof by);
    (void)dlclose(library);
    bool is_complete = by != NULL;
#define RAW_CUDA_FIND(name, version, parameters)                                                   \
    is_complete = is_complete && find(by, #name, version, &out->name, sizeof out->name);
    RAW_CUDA_ENTRIES(RAW_CUDA_FIND)
#undef RAW_CUDA_FIND
    return is_complete && out->cuInit(0) == GML_CU_SUCCESS &&
           out->cuDevicePrimaryCtxRetain(&out->context, 0) == GML_CU_SUCCESS;
}

const char *raw_cuda_begin(raw_cuda *out) {
    const char *wanted = getenv("GMLAKE_TEST_CUDA"); /* NOLINT(concurrency-mt-unsafe) */
    if (wanted && !load(out)) {
        fprintf(stderr, "GMLAKE_TEST_CUDA is set, but libcuda.so.1 is missing or incomplete\n");
        exit(1); /* NOLINT(concurrency-mt-unsafe) */
    }
    return wanted;
}

static bool enter(const raw_cuda *cuda) {
    return cuda->cuCtxPushCurrent(cuda->context) == GML_CU_SUCCESS;
}

static void leave(const raw_cuda *cuda) {
    gml_cu_context ignored;
    (void)cuda->cuCtxPopCurrent(&ignored);
}

bool raw_cuda_write(const raw_cuda *cuda, gml_address to, const void *from, size_t size) {
    bool is_done = enter(cuda) && cuda->cuMemcpyHtoD(to, from, size) == GML_CU_SUCCESS;
    leave(cuda);
    return is_done;
}

bool raw_cuda_read(const raw_cuda *cuda, void *to, gml_address from, size_t size) {
    bool is_done = enter(cuda) && cuda->cuMemcpyDtoH(to, from, size) == GML_CU_SUCCESS;
    leave(cuda);
    return is_done;
}

gml_stream raw_cuda_stream(const raw_cuda *cuda) {
    gml_cu_stream stream = NULL;
    bool is_done = enter(cuda) && cuda->cuStreamCreate(&stream, NON_BLOCKING) == GML_CU_SUCCESS;
    leave(cuda);
    return is_done ? (gml_stream)(uintptr_t)stream : 0;
}
