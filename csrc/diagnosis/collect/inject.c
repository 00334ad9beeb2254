/* Starts the collector inside a program: the CUDA driver loads the library that
 * CUDA_INJECTION64_PATH names and calls InitializeInjection().
 *
 * GMLAKE_CALLS names the file to write, GMLAKE_CUPTI the library to ask first. With
 * GMLAKE_SANITIZER, the Sanitizer's library, kernels are patched instead; GMLAKE_ACCESSES is then
 * the bytes of a granule, and each how-many-th launch is looked at. Where something is missing the
 * program runs as without the collector, and the file says why in its first name.
 */
#include "diagnosis/collect/accesses.h"
#include "diagnosis/collect/collector.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static gml_collector collector = {.lock = GML_COLLECTOR_LOCK, .log = {.file = -1}};
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- the end --------------------------------------------------------------------------------- */

/* The program's own destructors may run after this, and free what lives. */
static void finish(void) {
    pthread_mutex_lock(&collector.lock);
    if (!collector.is_busy) { /* else a signal's handler ends the program, amid a record */
        gml_log_direct(&collector.log);
    }
    pthread_mutex_unlock(&collector.lock);
}

/* A child inherits its parent's file and its pending data, and must write neither. */
static void forget_in_child(void) {
    gml_log_drop(&collector.log);
    collector.lock = (pthread_mutex_t)GML_COLLECTOR_LOCK;
}

static void hold(void) {
    pthread_mutex_lock(&collector.lock);
}

static void release(void) {
    pthread_mutex_unlock(&collector.lock);
}

/* ---- the beginning --------------------------------------------------------------------------- */

static void *open_cupti(void) {
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the program's own, as the driver reads its */
    const char *names[] = {getenv("GMLAKE_CUPTI"), "libcupti.so.13", "libcupti.so.12",
                           "libcupti.so"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        /* NOLINTNEXTLINE(clang-analyzer-optin.taint.GenericTaint): who runs the program names it */
        void *library = names[i] && names[i][0] ? dlopen(names[i], RTLD_NOW | RTLD_LOCAL) : NULL;
        if (library) {
            return library;
        }
    }
    return NULL;
}

static void find_parameter_functions(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver) {
        collector.function_info = (cuda_param_info)dlsym(driver, "cuFuncGetParamInfo");
        collector.kernel_info = (cuda_param_info)dlsym(driver, "cuKernelGetParamInfo");
    }
}

static const char *patch_kernels(const char *sanitizer) {
    const char *text = getenv("GMLAKE_ACCESSES"); /* NOLINT(concurrency-mt-unsafe): as above */
    char *rest = NULL;
    gml_access_options options = {.granule_bytes = strtoull(text ? text : "4", &rest, 10)};
    options.every = text && *rest == ',' ? strtoull(rest + 1, NULL, 10) : 1;
    /* NOLINTNEXTLINE(clang-analyzer-optin.taint.GenericTaint): as above */
    void *library = dlopen(sanitizer, RTLD_NOW | RTLD_LOCAL);
    sanitizer_api api;
    if (!library) {
        return "error: the Sanitizer library cannot be loaded; install nvidia-cuda-sanitizer-api "
               "or name it in GMLAKE_SANITIZER";
    }
#define FIND(field, name, parameters)                                                              \
    api.field = (int(*) parameters)dlsym(library, "sanitizer" #name);                              \
    if (!api.field) {                                                                              \
        return "error: the Sanitizer library lacks sanitizer" #name "; it must be of CUDA 12 or "  \
               "later: install nvidia-cuda-sanitizer-api";                                         \
    }
    SANITIZER_FUNCTIONS(FIND)
#undef FIND
    return gml_accesses_start(&collector, &api, options);
}

/* NULL, or the error. */
static const char *listen(void) {
    const char *sanitizer =
        getenv("GMLAKE_SANITIZER"); /* NOLINT(concurrency-mt-unsafe): as above */
    if (sanitizer && sanitizer[0]) {
        find_parameter_functions();
        return patch_kernels(sanitizer);
    }
    void *cupti = open_cupti();
    if (!cupti) {
        return "error: no CUPTI library; install nvidia-cuda-cupti or name it in GMLAKE_CUPTI";
    }
    cupti_subscribe subscribe = (cupti_subscribe)dlsym(cupti, "cuptiSubscribe");
    cupti_enable_callback enable = (cupti_enable_callback)dlsym(cupti, "cuptiEnableCallback");
    if (!subscribe || !enable) {
        return "error: the CUPTI library has no cuptiSubscribe or cuptiEnableCallback";
    }
    void *subscriber = NULL;
    if (subscribe(&subscriber, gml_collect_call, &collector) != CUPTI_SUCCESS) {
        return "error: CUPTI refused to subscribe: another profiler may be at work";
    }
    find_parameter_functions();
    /* An older CUPTI does not know the newest functions, and no program there can call them. */
    for (size_t i = 0; gml_collected_function(i); i++) {
        (void)enable(1, subscriber, CUPTI_DOMAIN_DRIVER_API, gml_collected_function(i));
    }
    return NULL;
}

static void start(void) {
    char path[4096];
    const char *base = getenv("GMLAKE_CALLS"); /* NOLINT(concurrency-mt-unsafe): as above */
    if (!base || !base[0] ||
        snprintf(path, sizeof path, "%s.%ld", base, (long)getpid()) >= (int)sizeof path ||
        !gml_log_open(&collector.log, path)) {
        return;
    }
    void *frame;
    (void)backtrace(&frame, 1); /* the first call loads a library */
    pthread_atfork(hold, release, forget_in_child);
    atexit(finish);
    const char *problem = listen();
    if (problem) {
        pthread_mutex_lock(&collector.lock);
        (void)gml_log_name(&collector.log, problem);
        gml_log_flush(&collector.log);
        pthread_mutex_unlock(&collector.lock);
    }
}

__attribute__((visibility("default"))) int InitializeInjection(void);

int InitializeInjection(void) {
    pthread_once(&once, start);
    return 1;
}
