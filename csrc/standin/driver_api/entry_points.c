/* cuGetProcAddress and its relatives: the driver's functions by name, found in this library. */
#include "standin/standin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* As of CUDA 11.3; the header maps its name to the one of CUDA 12. */
#undef cuGetProcAddress
STANDIN_API CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion,
                                      cuuint64_t flags);

enum { MOST_NAME_BYTES = 128 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *library; /* this one; the program itself where its objects are linked into that */

static void find_library(void) {
    Dl_info here;
    if (dladdr(&once, &here) != 0 && here.dli_fname) {
        library = dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    }
    if (!library) {
        library = dlopen(NULL, RTLD_LAZY);
    }
}

void *standin_entry(const char *name) {
    (void)pthread_once(&once, find_library);
    return library ? dlsym(library, name) : NULL;
}

/* Names change with the signature: cuMemAlloc is exported as cuMemAlloc_v2. The stand-in has the
 * newest form of each, which is what the header maps the plain name to. A form that the header maps
 * no name to (cuCtxSynchronize_v2) must not be exported, or it would be found here. The one old
 * form is the look-up itself, which callers choose by the version that they know. */
static void *find_symbol(const char *name, int version) {
    static const char *const suffixes[] = {"_v3", "_v2", ""};
    char exported[MOST_NAME_BYTES + 4];
    if (strcmp(name, "cuGetProcAddress") == 0 && version < 12000) {
        return standin_entry(name);
    }
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        (void)snprintf(exported, sizeof exported, "%s%s", name, suffixes[i]);
        void *found = standin_entry(exported);
        if (found) {
            return found;
        }
    }
    return NULL;
}

/* NULL for a name that is not the driver's or not known. */
static void *look_up(const char *name, int version) {
    bool is_driver = strncmp(name, "cu", 2) == 0 && strncmp(name, "cuda", 4) != 0 &&
                     strlen(name) < MOST_NAME_BYTES;
    return is_driver ? find_symbol(name, version) : NULL;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    CALLED();
    (void)flags;
    *out = look_up(symbol, version);
    if (status) {
        *status = *out ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *symbol, void **out, int version, cuuint64_t flags) {
    return cuGetProcAddress_v2(symbol, out, version, flags, NULL);
}

/* Success also for a name that is not there, which is then NULL, as the runtime's page says. */
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **out, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status) {
    CALLED();
    (void)flags;
    *out = look_up(symbol, (int)version);
    if (status) {
        *status = *out ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    }
    return cudaSuccess;
}
