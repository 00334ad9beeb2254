/* CUDA's runtime as programs find it that open its library and look its functions up there.
 *
 * NVIDIA's libcudart is loaded as well, under the names that wheels give it, and a look-up in one
 * library never comes to a preloaded one. It does not work on the stand-in: it wants tables of the
 * driver that no header describes. So what such a look-up finds there is exchanged. */
#include "standin/standin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

typedef void *(*look_up)(void *handle, const char *name);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static look_up system_look_up;

static void find_system(void) {
    /* dlsym() cannot be looked up by itself. It has the version of the oldest C library. */
    static const char *const versions[] = {"GLIBC_2.2.5", "GLIBC_2.17"};
    void *found = NULL;
    for (size_t i = 0; !found && i < sizeof versions / sizeof versions[0]; i++) {
        found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    }
    memcpy((void *)&system_look_up, &found, sizeof found);
}

/* Whether an address lies in a libcudart, also one called libcudart.1a2b3c4d.so.13. */
static bool is_of_runtime(const void *address) {
    Dl_info place;
    if (dladdr(address, &place) == 0 || !place.dli_fname) {
        return false;
    }
    const char *slash = strrchr(place.dli_fname, '/');
    const char *name = slash ? slash + 1 : place.dli_fname;
    return strncmp(name, "libcudart", strlen("libcudart")) == 0;
}

/* The last call must stay a jump: RTLD_NEXT means what comes after the caller. */
STANDIN_API void *dlsym(void *restrict handle, const char *restrict name) {
    (void)pthread_once(&once, find_system);
    if (handle != RTLD_DEFAULT && handle != RTLD_NEXT && strncmp(name, "cuda", 4) == 0) {
        void *found = system_look_up(handle, name);
        void *ours = found && is_of_runtime(found) ? standin_entry(name) : NULL;
        return ours ? ours : found;
    }
    return system_look_up(handle, name);
}
