/* Throwing by the Itanium C++ ABI, https://itanium-cxx-abi.github.io/cxx-abi/abi-eh.html, which
 * every compiler that PyTorch is built with on Linux follows. */
#include "torch/exception.h"

#include "gmlake_torch.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* c10::SourceLocation */
typedef struct source_location {
    const char *function;
    const char *file;
    uint32_t line;
} source_location;

/* std::string of libstdc++ since GCC 5: short texts lie inside. */
typedef struct cxx_string {
    char *data;
    size_t size;
    union {
        char local[16];
        size_t capacity;
    } space;
} cxx_string;

typedef void (*destroy_function)(void *object);

/* What a throw needs; functions are as C sees them. */
typedef struct cxx_runtime {
    void *(*allocate_exception)(size_t size_bytes);
    void (*throw_exception)(void *object, void *type, destroy_function destroy);
    void *(*new_bytes)(size_t size_bytes);
    void (*delete_bytes)(void *bytes);
    void (*construct)(void *object, source_location where, cxx_string *text);
    void (*check_failed)(const char *function, const char *file, uint32_t line, const char *text);
    void *out_of_memory_type;    /* std::type_info */
    void **out_of_memory_vtable; /* two words, then the functions */
} cxx_runtime;

enum {
    EXCEPTION_BYTES = 1024, /* far more than a c10::Error has in any version, about 130 */
    VTABLE_HEAD = 2,        /* words before the first function, which is the destructor */
};

static const char *const libraries[] = {"libc10.so", "libc10_cuda.so", "libstdc++.so.6"};

enum { LIBRARIES = sizeof libraries / sizeof libraries[0] };

static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
    {"__cxa_allocate_exception", offsetof(cxx_runtime, allocate_exception)},
    {"__cxa_throw", offsetof(cxx_runtime, throw_exception)},
    {"_Znwm", offsetof(cxx_runtime, new_bytes)},
    {"_ZdlPv", offsetof(cxx_runtime, delete_bytes)},
    {"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
     offsetof(cxx_runtime, construct)},
    {"_ZTIN3c1016OutOfMemoryErrorE", offsetof(cxx_runtime, out_of_memory_type)},
    {"_ZTVN3c1016OutOfMemoryErrorE", offsetof(cxx_runtime, out_of_memory_vtable)},
    {"_ZN3c106detail14torchCheckFailEPKcS2_jS2_", offsetof(cxx_runtime, check_failed)},
};

enum { SYMBOLS = sizeof symbols / sizeof symbols[0] };

/* Filled under the lock by whoever looks first and finds everything; read only from then on. */
static pthread_mutex_t lookup_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool is_complete;
static cxx_runtime found;

/* ---- looking up ------------------------------------------------------------------------------ */

/* In what is visible to every library, then in those where PyTorch has it. */
static void *
find_symbol(void *const *handles, const char *name)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);
    for (int i = 0; !symbol && i < LIBRARIES; i++) {
        symbol = handles[i] ? dlsym(handles[i], name) : NULL;
    }
    return symbol;
}

/* Fills what there is; returns the first name that is missing, or NULL. */
static const char *
look_up(cxx_runtime *out)
{
    void *handles[LIBRARIES];
    for (int i = 0; i < LIBRARIES; i++) {
        handles[i] = dlopen(libraries[i], RTLD_NOLOAD | RTLD_NOW);
    }
    const char *missing = NULL;
    for (int i = 0; i < SYMBOLS; i++) {
        void *symbol = find_symbol(handles, symbols[i].name);
        memcpy((char *)out + symbols[i].offset, &symbol, sizeof symbol);
        missing = symbol || missing ? missing : symbols[i].name;
    }
    for (int i = 0; i < LIBRARIES; i++) {
        if (handles[i]) {
            (void)dlclose(handles[i]);
        }
    }
    return missing;
}

/* Everything, or what there is; returns the first name that is missing, or NULL. */
static const char *
resolve(cxx_runtime *out)
{
    const char *missing = NULL;
    if (!atomic_load_explicit(&is_complete, memory_order_acquire)) {
        pthread_mutex_lock(&lookup_lock);
        cxx_runtime seen = {0};
        missing = look_up(&seen);
        if (!missing) {
            found = seen;
            atomic_store_explicit(&is_complete, true, memory_order_release);
        }
        pthread_mutex_unlock(&lookup_lock);
        *out = seen;
        return missing;
    }
    *out = found;
    return NULL;
}

gml_status
gml_torch_find_exceptions(char *reason, size_t reason_bytes)
{
    cxx_runtime runtime;
    const char *missing = resolve(&runtime);
    if (!missing) {
        return GML_OK;
    }
    if (reason && reason_bytes > 0) {
        (void)snprintf(reason, reason_bytes,
                       "PyTorch's libraries have no %s: import torch first, or use another "
                       "version of PyTorch",
                       missing);
    }
    return GML_UNSUPPORTED;
}

/* ---- throwing -------------------------------------------------------------------------------- */

static const source_location here = {"gml_torch_alloc", "gmlake", 0};

static bool
can_construct(const cxx_runtime *runtime)
{
    return runtime->allocate_exception && runtime->throw_exception && runtime->new_bytes &&
           runtime->delete_bytes && runtime->construct && runtime->out_of_memory_type &&
           runtime->out_of_memory_vtable;
}

/* A string as C++ would make it, so that its bytes may be moved from or freed by C++. */
static cxx_string
make_string(const cxx_runtime *runtime, const char *text)
{
    cxx_string string = {.size = strlen(text)};
    string.data = runtime->new_bytes(string.size + 1);
    string.space.capacity = string.size;
    memcpy(string.data, text, string.size + 1);
    return string;
}

void
gml_throw_out_of_memory(const char *text)
{
    cxx_runtime runtime;
    (void)resolve(&runtime);
    if (can_construct(&runtime)) {
        void **object = runtime.allocate_exception(EXCEPTION_BYTES);
        cxx_string string = make_string(&runtime, text);
        runtime.construct(object, here, &string);
        if (string.data != string.space.local) {
            runtime.delete_bytes(string.data);
        }
        /* The type adds nothing to c10::Error but its name. */
        void **functions = runtime.out_of_memory_vtable + VTABLE_HEAD;
        object[0] = (void *)functions;
        destroy_function destroy;
        memcpy(&destroy, &functions[0], sizeof destroy);
        runtime.throw_exception(object, runtime.out_of_memory_type, destroy);
    }
    if (runtime.check_failed) {
        runtime.check_failed(here.function, here.file, here.line, text);
    }
}

void
gml_throw_error(const char *text)
{
    cxx_runtime runtime;
    (void)resolve(&runtime);
    if (runtime.check_failed) {
        runtime.check_failed(here.function, here.file, here.line, text);
    }
}
