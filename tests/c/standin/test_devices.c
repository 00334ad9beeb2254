/* Devices as they are asked for: by their capability, and with more memory than they say. The
 * settings are read once, so each set of them has a process of its own. */
#include "support.h"

/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
void __cudaRegisterFunction(void **module, const char *host_function, char *device_function,
                            const char *name, int thread_limit, uint3 *thread, uint3 *block,
                            dim3 *block_dim, dim3 *grid_dim, int *warp_size);
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

typedef struct setting {
    const char *name, *value;
} setting;

/* Runs `check` where the stand-in has these settings, up to one without a name; its exit status. */
static int status_with(const setting *settings, void (*check)(const void *), const void *argument) {
    int status = -1;
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int before = check_failures();
        for (; settings->name; settings++) {
            (void)setenv(settings->name, settings->value, 1); /* NOLINT(concurrency-mt-unsafe) */
        }
        check(argument);
        (void)fflush(NULL);
        _exit(check_failures() > before);
    }
    CHECK(child > 0);
    (void)waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- capability ------------------------------------------------------------------------------ */

/* From the table "Technical Specifications per Compute Capability" of NVIDIA's programming guide;
 * `version` is the newest architecture not above it that PyTorch for CUDA 13 is compiled for. */
typedef struct generation {
    const char *name;
    int major, minor, threads, blocks, shared_kib, optin_kib, has_clusters, version;
} generation;

static const generation generations[] = {
    {"7.5", 7, 5, 1024, 16, 64, 64, 0, 75},      {"8.0", 8, 0, 2048, 32, 164, 163, 0, 80},
    {"8.6", 8, 6, 1536, 16, 100, 99, 0, 86},     {"8.7", 8, 7, 1536, 16, 164, 163, 0, 86},
    {"8.9", 8, 9, 1536, 24, 100, 99, 0, 86},     {"9.0", 9, 0, 2048, 32, 228, 227, 1, 90},
    {"10.0", 10, 0, 2048, 32, 228, 227, 1, 100}, {"10.3", 10, 3, 2048, 32, 228, 227, 1, 100},
    {"12.0", 12, 0, 1536, 24, 100, 99, 1, 120},  {"12.1", 12, 1, 1536, 24, 100, 99, 1, 120},
};

static int attribute(enum cudaDeviceAttr which) {
    int value = -1;
    OK(cudaDeviceGetAttribute(&value, which, 0));
    return value;
}

static void check_generation(const void *argument) {
    static char kernel;
    const generation *of = argument;
    struct cudaDeviceProp properties;
    struct cudaFuncAttributes function;
    CHECK_EQ(attribute(cudaDevAttrComputeCapabilityMajor), of->major);
    CHECK_EQ(attribute(cudaDevAttrComputeCapabilityMinor), of->minor);
    CHECK_EQ(attribute(cudaDevAttrMaxThreadsPerMultiProcessor), of->threads);
    CHECK_EQ(attribute(cudaDevAttrMaxBlocksPerMultiprocessor), of->blocks);
    CHECK_EQ(attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor), of->shared_kib * 1024);
    CHECK_EQ(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin), of->optin_kib * 1024);
    CHECK_EQ(attribute(cudaDevAttrClusterLaunch), of->has_clusters);
    CHECK_EQ(attribute(cudaDevAttrMultiProcessorCount), 60);
    OK(cudaGetDeviceProperties(&properties, 0));
    CHECK_EQ(properties.major, of->major);
    CHECK_EQ(properties.minor, of->minor);
    CHECK_EQ(properties.multiProcessorCount, 60);
    CHECK_EQ(properties.maxThreadsPerMultiProcessor, of->threads);
    CHECK_EQ(properties.maxBlocksPerMultiProcessor, of->blocks);
    CHECK_EQ(properties.sharedMemPerMultiprocessor, (uint64_t)of->shared_kib * 1024);
    CHECK_EQ(properties.sharedMemPerBlockOptin, (uint64_t)of->optin_kib * 1024);
    __cudaRegisterFunction(NULL, &kernel, &kernel, "add", -1, NULL, NULL, NULL, NULL, NULL);
    OK(cudaFuncGetAttributes(&function, &kernel));
    CHECK_EQ(function.binaryVersion, of->version);
    CHECK_EQ(function.ptxVersion, of->version);
}

TEST(a_device_has_what_its_capability_says) {
    for (size_t i = 0; i < sizeof generations / sizeof generations[0]; i++) {
        const setting settings[] = {{"GMLAKE_STANDIN_CAPABILITY", generations[i].name},
                                    {"GMLAKE_STANDIN_MULTIPROCESSORS", "60"},
                                    {NULL, NULL}};
        if (!CHECK_EQ(status_with(settings, check_generation, &generations[i]), 0)) {
            fprintf(stderr, "of capability %s\n", generations[i].name);
        }
    }
}

static void check_default(const void *argument) {
    (void)argument;
    CHECK_EQ(attribute(cudaDevAttrComputeCapabilityMajor), 9);
    CHECK_EQ(attribute(cudaDevAttrComputeCapabilityMinor), 0);
    CHECK_EQ(attribute(cudaDevAttrMultiProcessorCount), 132);
    CUmodule code = NULL;
    CUfunction any = NULL;
    CHECK(!cudaFree(NULL) && !cuModuleLoadData(&code, "") && !cuModuleGetFunction(&any, code, ""));
    CHECK_EQ(cuFuncSetAttribute(any, CU_FUNC_ATTRIBUTE_MAX, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_device_is_an_h100_unless_told_otherwise) {
    const setting none[] = {{NULL, NULL}};
    CHECK_EQ(status_with(none, check_default, NULL), 0);
}

static void check_map(const void *argument) {
    static CUtensorMap out;
    const cuuint64_t size = 64;
    const cuuint32_t box = 64, stride = 1;
    const CUresult *expected = argument;
    CHECK_EQ(cuTensorMapEncodeTiled(
                 &out, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, (void *)(uintptr_t)0x7000, &size, NULL,
                 &box, &stride, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                 CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
             *expected);
}

TEST(tensor_maps_begin_with_capability_9) {
    const setting before[] = {{"GMLAKE_STANDIN_CAPABILITY", "8.9"}, {NULL, NULL}};
    const setting since[] = {{"GMLAKE_STANDIN_CAPABILITY", "9.0"}, {NULL, NULL}};
    const CUresult refused = CUDA_ERROR_NOT_SUPPORTED, made = CUDA_SUCCESS;
    CHECK_EQ(status_with(before, check_map, &refused), 0);
    CHECK_EQ(status_with(since, check_map, &made), 0);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void check_info(uint64_t free_wanted) {
    size_t free_now = 1, total = 0;
    OK(cudaMemGetInfo(&free_now, &total));
    CHECK_EQ(free_now, free_wanted);
    CHECK_EQ(total, 256 * MIB);
}

static void check_served(const void *argument) {
    (void)argument;
    void *some = NULL, *much = NULL, *more = NULL;
    struct cudaDeviceProp properties;
    size_t total = 0;
    check_info(256 * MIB);
    OK(cudaGetDeviceProperties(&properties, 0));
    CHECK_EQ(properties.totalGlobalMem, 256 * MIB);
    OK(cuDeviceTotalMem(&total, 0));
    CHECK_EQ(total, 256 * MIB);
    OK(cudaMalloc(&some, 100 * MIB));
    check_info(156 * MIB);
    OK(cudaMalloc(&much, 156 * MIB));
    check_info(0);
    OK(cudaFree(much));
    OK(cudaMalloc(&much, 900 * MIB)); /* beyond the capacity: less than nothing is free */
    check_info(0);
    CHECK_EQ(cudaMalloc(&more, 24 * MIB + 512), cudaErrorMemoryAllocation);
    OK(cudaMalloc(&more, 24 * MIB)); /* all of what is served */
    check_info(0);
    OK(cudaFree(much));
    check_info(132 * MIB);
    OK(cudaFree(some));
    OK(cudaFree(more));
    check_info(256 * MIB);
}

TEST(more_is_served_than_a_device_says_it_has) {
    const setting hollow[] = {
        {"GMLAKE_STANDIN_CAPACITY", "256MiB"}, {"GMLAKE_STANDIN_SERVED", "1GiB"}, {NULL, NULL}};
    const setting backed[] = {{"GMLAKE_STANDIN_BACKED", "1"},
                              {"GMLAKE_STANDIN_CAPACITY", "256MiB"},
                              {"GMLAKE_STANDIN_SERVED", "1GiB"},
                              {NULL, NULL}};
    CHECK_EQ(status_with(hollow, check_served, NULL), 0);
    CHECK_EQ(status_with(backed, check_served, NULL), 0);
}

static void ask(const void *argument) {
    size_t free_now = 0, total = 0;
    (void)argument;
    (void)cudaMemGetInfo(&free_now, &total);
}

TEST(a_device_without_multiprocessors_is_refused) {
    const setting none[] = {{"GMLAKE_STANDIN_MULTIPROCESSORS", "0"}, {NULL, NULL}};
    CHECK_EQ(status_with(none, ask, NULL), 2);
}

/* ---- read again ------------------------------------------------------------------------------ */

static void read_with(const char *devices, int wanted) {
    (void)setenv("GMLAKE_STANDIN_DEVICES", devices, 1); /* NOLINT(concurrency-mt-unsafe) */
    CHECK_EQ(gmlake_standin_read_settings(), wanted);
}

static void check_again(const void *argument) {
    (void)argument;
    int count = 0;
    read_with("2", 0);
    read_with("3", 0);
    OK(cudaGetDeviceCount(&count));
    read_with("1", -1);
    CHECK_EQ(count, 3);
    OK(cudaGetDeviceCount(&count));
    CHECK_EQ(count, 3);
}

TEST(settings_are_read_again_until_a_device_is_in_use) {
    const setting none[] = {{NULL, NULL}};
    CHECK_EQ(status_with(none, check_again, NULL), 0);
}

int main(void) {
    return check_all();
}
