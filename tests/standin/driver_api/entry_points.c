/* cuGetProcAddress and its relatives: the driver's functions by name, found in this library. */
#include "standin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As of CUDA 11.3; the header maps its name to the one of CUDA 12. */
#undef cuGetProcAddress
STANDIN_API CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion,
                                      cuuint64_t flags);

enum { MOST_NAME_BYTES = 128 };

/* A name that was looked up in vain. */
typedef struct missing_name {
    struct missing_name *next;
    standin_call call;
    char name[MOST_NAME_BYTES];
} missing_name;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards missing */
static missing_name *missing;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *library; /* this one; the program itself where its objects are linked into that */

static void
find_library(void)
{
    Dl_info here;
    if (dladdr(&once, &here) != 0 && here.dli_fname) {
        library = dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    }
    if (!library) {
        library = dlopen(NULL, RTLD_LAZY);
    }
}

/* Names change with the signature: cuMemAlloc is exported as cuMemAlloc_v2. The stand-in has the
 * newest form of each, which is what the header maps the plain name to. A form that the header maps
 * no name to (cuCtxSynchronize_v2) must not be exported, or it would be found here. The one old
 * form is the look-up itself, which callers choose by the version that they know. */
static void *
find_symbol(const char *name, int version)
{
    static const char *const suffixes[] = {"_v3", "_v2", ""};
    char exported[MOST_NAME_BYTES + 4];
    (void)pthread_once(&once, find_library);
    if (strcmp(name, "cuGetProcAddress") == 0 && version < 12000) {
        return library ? dlsym(library, name) : NULL;
    }
    for (size_t i = 0; library && i < sizeof suffixes / sizeof suffixes[0]; i++) {
        (void)snprintf(exported, sizeof exported, "%s%s", name, suffixes[i]);
        void *found = dlsym(library, exported);
        if (found) {
            return found;
        }
    }
    return NULL;
}

/* What programs ask for and do without. */
static bool
is_optional(const char *name)
{
    static const char *const beginnings[] = {"cuMulticast",       "cuGreenCtx",
                                             "cuCtxFromGreenCtx", "cuDevSmResource",
                                             "cuDevResource",     "cuDeviceGetDevResource"};
    for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0]; i++) {
        if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* The entry of a name among the missing, made on first use; NULL when the host has no memory. */
static missing_name *
missing_of(const char *name, bool *is_new)
{
    for (missing_name *known = missing; known; known = known->next) {
        if (strcmp(known->name, name) == 0) {
            *is_new = false;
            return known;
        }
    }
    missing_name *made = calloc(1, sizeof *made);
    if (made) {
        (void)snprintf(made->name, sizeof made->name, "%s", name);
        made->call.name = made->name;
        made->next = missing;
        missing = made;
    }
    *is_new = made != NULL;
    return made;
}

/* Says once that a function is not there. It is counted among those without behaviour. */
static void
count_missing(const char *name)
{
    bool is_new = false;
    (void)pthread_mutex_lock(&lock);
    missing_name *found = missing_of(name, &is_new);
    if (found) {
        standin_count_unanswered(&found->call, true);
    }
    (void)pthread_mutex_unlock(&lock);
    if (is_new && !is_optional(name)) {
        fprintf(stderr, "gmlake stand-in: %s was looked up and is not there\n", name);
    }
}

/* NULL, counted, for a name that is not the driver's or not known. */
static void *
look_up(const char *name, int version)
{
    bool is_driver = strncmp(name, "cu", 2) == 0 && strncmp(name, "cuda", 4) != 0 &&
                     strlen(name) < MOST_NAME_BYTES;
    void *found = is_driver ? find_symbol(name, version) : NULL;
    if (!found) {
        count_missing(name);
    }
    return found;
}

static CUresult
get_address(const char *symbol, void **out, int version, CUdriverProcAddressQueryResult *status)
{
    if (!symbol || !out) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = look_up(symbol, version);
    if (status) {
        *status = *out ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult
cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                    CUdriverProcAddressQueryResult *symbolStatus)
{
    CALLED();
    (void)flags;
    return get_address(symbol, pfn, cudaVersion, symbolStatus);
}

CUresult
cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    CALLED();
    (void)flags;
    return get_address(symbol, pfn, cudaVersion, NULL);
}

/* Success also for a name that is not there, which is then NULL, as the runtime's page says. */
static cudaError_t
get_entry_point(const char *symbol, void **out, int version,
                enum cudaDriverEntryPointQueryResult *status)
{
    if (!symbol || !out) {
        standin_enter();
        return standin_return(cudaErrorInvalidValue);
    }
    *out = look_up(symbol, version);
    if (status) {
        *status = *out ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    }
    return cudaSuccess;
}

cudaError_t
cudaGetDriverEntryPoint(const char *symbol, void **funcPtr, unsigned long long flags,
                        enum cudaDriverEntryPointQueryResult *driverStatus)
{
    CALLED();
    (void)flags;
    return get_entry_point(symbol, funcPtr, CUDART_VERSION, driverStatus);
}

cudaError_t
cudaGetDriverEntryPointByVersion(const char *symbol, void **funcPtr, unsigned cudaVersion,
                                 unsigned long long flags,
                                 enum cudaDriverEntryPointQueryResult *driverStatus)
{
    CALLED();
    (void)flags;
    return get_entry_point(symbol, funcPtr, (int)cudaVersion, driverStatus);
}

/* NVIDIA's own libraries (NVRTC among them) ask for tables that no header describes, and go on
 * without. */
CUresult
cuGetExportTable(const void **table, const CUuuid *id)
{
    CALLED();
    (void)id;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
