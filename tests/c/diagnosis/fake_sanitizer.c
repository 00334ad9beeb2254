/* A libsanitizer-public.so for machines without one. Device memory is the host's; kernels are lists
 * of accesses, for which it calls the real patches. FAKE_SANITIZER_FAILS names a function that
 * fails, FAKE_SANITIZER_MEMORY the bytes of the device. */
#include "diagnosis/fake_sanitizer.h"

#include "diagnosis/collect/cupti.h"
#include "diagnosis/collect/sanitizer.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define PATCH static
#define MARK static
#define DEVICE static

static _Thread_local struct {
    uint32_t active, leader;
    uint64_t leader_address;
    bool is_same;
    uint32_t lane;
} warp;

static uint32_t add(uint32_t *at, uint32_t value) {
    return *at += value;
}

static uint64_t lower(unsigned long long *at, uint64_t value) {
    return *at = value < *at ? value : *at;
}

static uint64_t raise_to(unsigned long long *at, uint64_t value) {
    return *at = value > *at ? value : *at;
}

static uint32_t lane(void) {
    return warp.lane;
}

/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): names of CUDA */
#define atomicOr(at, bits) (*(at) |= (bits))
#define atomicAdd(at, value) add(at, value)
#define atomicMin(at, value) lower(at, value)
#define atomicMax(at, value) raise_to(at, value)
#define __activemask() warp.active
#define __ffs(mask) ((unsigned)__builtin_ffs((int)(mask)))
#define __popc(mask) ((unsigned)__builtin_popcount(mask))
#define __shfl_sync(mask, value, from)                                                             \
    ((void)(mask), (void)(from), (void)(value), warp.leader_address)
#define __all_sync(mask, holds) ((void)(mask), (void)(holds), warp.is_same)
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "diagnosis/collect/patch.cu"

/* Memory of a context, which ends with it. */
typedef struct fake_block {
    struct fake_block *next;
    void *context;
    size_t size_bytes;
    size_t unused; /* what follows is aligned */
} fake_block;

static struct {
    fake_block *blocks;
    sanitizer_callback callback;
    bool domains[16], calls[1024];
    void *patches[4];       /* the contexts that have them */
    void *context, *module; /* the current one, patched */
    size_t allocated;
} state;

static _Thread_local const void *handed_over; /* to the thread's launch */

static int result_of(const char *function) {
    const char *fails = getenv("FAKE_SANITIZER_FAILS");
    return fails && strcmp(fails, function) == 0 ? 7 : SANITIZER_SUCCESS;
}

EXPORT int sanitizerSubscribe(void **subscriber, sanitizer_callback callback, void *user) {
    (void)user;
    state.callback = callback;
    *subscriber = &state;
    return result_of("Subscribe");
}

EXPORT int sanitizerEnableDomain(uint32_t enable, void *subscriber, int domain) {
    state.domains[domain] = subscriber && enable;
    return result_of("EnableDomain");
}

EXPORT int sanitizerEnableCallback(uint32_t enable, void *subscriber, int domain, uint32_t id) {
    state.calls[id] = subscriber && domain == SANITIZER_DOMAIN_DRIVER_API && enable;
    return SANITIZER_SUCCESS;
}

static void **find_patches(const void *context) {
    size_t i = 0;
    while (i < 3 && state.patches[i] != context) {
        i++;
    }
    return &state.patches[i];
}

EXPORT int sanitizerAddPatches(const void *image, void *context) {
    *find_patches(NULL) = context;
    state.context = context;
    return memcmp(image, "\x50\xed\x55\xba", 4) == 0 ? result_of("AddPatches") : 1;
}

EXPORT int sanitizerPatchInstructions(int kind, void *module, const char *function) {
    return kind && module && function ? result_of("PatchInstructions") : 1;
}

EXPORT int sanitizerPatchModule(void *module) {
    bool is_patched = *find_patches(state.context) && result_of("PatchModule") == SANITIZER_SUCCESS;
    state.module = is_patched ? module : NULL;
    return is_patched ? SANITIZER_SUCCESS : 7;
}

EXPORT int sanitizerSetLaunchCallbackData(void *launch, void *function, void *stream,
                                          const void *data) {
    handed_over = launch && function && stream ? data : NULL;
    return result_of("SetLaunchCallbackData");
}

EXPORT int sanitizerAlloc(void *context, void **address, size_t size_bytes) {
    const char *most = getenv("FAKE_SANITIZER_MEMORY");
    bool fits = !most || state.allocated + size_bytes <= strtoull(most, NULL, 10);
    fake_block *block = context && fits ? malloc(sizeof *block + size_bytes) : NULL;
    if (!block || result_of("Alloc") != SANITIZER_SUCCESS) {
        free(block);
        return 7;
    }
    *block = (fake_block){.next = state.blocks, .context = context, .size_bytes = size_bytes};
    state.blocks = block;
    state.allocated += size_bytes;
    *address = memset(block + 1, 0xAA, size_bytes);
    return SANITIZER_SUCCESS;
}

/* Frees the block at that address, or all of a context. */
static void free_blocks(const void *address, const void *context) {
    for (fake_block **link = &state.blocks; *link;) {
        fake_block *block = *link;
        if (block + 1 != address && block->context != context) {
            link = &block->next;
            continue;
        }
        *link = block->next;
        state.allocated -= block->size_bytes;
        free(block);
    }
}

EXPORT int sanitizerFree(void *context, void *address) {
    free_blocks(address, NULL);
    return context ? SANITIZER_SUCCESS : 1;
}

EXPORT int sanitizerMemcpyHostToDeviceAsync(void *to, void *from, size_t size_bytes, void *stream) {
    memcpy(to, from, size_bytes);
    return stream ? result_of("MemcpyHostToDeviceAsync") : 1;
}

EXPORT int sanitizerMemcpyDeviceToHost(void *to, void *from, size_t size_bytes, void *stream) {
    memcpy(to, from, size_bytes);
    return stream ? result_of("MemcpyDeviceToHost") : 1;
}

EXPORT int sanitizerMemset(void *to, int value, size_t size_bytes, void *stream) {
    memset(to, value, size_bytes);
    return stream ? result_of("Memset") : 1;
}

EXPORT int sanitizerStreamSynchronize(void *stream) {
    return stream ? result_of("StreamSynchronize") : 1;
}

/* ---- the program's calls --------------------------------------------------------------------- */

static void tell(int domain, uint32_t id, const void *data) {
    if (state.callback && state.domains[domain]) {
        state.callback(NULL, domain, id, data);
    }
}

EXPORT void fake_cupti_call(uint32_t function, const char *name, const void *parameters,
                            const char *symbol, int result) {
    cupti_callback_data data = {
        .function = name, .parameters = parameters, .result = &result, .symbol = symbol};
    for (data.site = 0; state.calls[function] && data.site < 2; data.site++) {
        state.callback(NULL, SANITIZER_DOMAIN_DRIVER_API, function, &data);
    }
}

static void call_patch(const fake_access *access, uint64_t address) {
    void *data = (void *)(uintptr_t)handed_over;
    void *at = (void *)(uintptr_t)address;
    if (strcmp(access->patch, "gml_patch_access") == 0) {
        (void)gml_patch_access(data, 0, at, access->size_bytes, access->flags, NULL);
    } else if (strcmp(access->patch, "gml_patch_async") == 0) {
        (void)gml_patch_async(data, 0, at, 0, access->size_bytes);
    } else if (strcmp(access->patch, "gml_patch_bulk_read") == 0) {
        (void)gml_patch_bulk_read(data, 0, address, 0, 0, 0xF0000 | access->size_bytes, 1);
    } else if (strcmp(access->patch, "gml_patch_bulk_write") == 0) {
        (void)gml_patch_bulk_write(data, 0, address, 0, access->size_bytes);
    } else {
        (void)gml_patch_bulk_reduce(data, 0, address, 0, access->size_bytes);
    }
}

static void play(const fake_launch *launch) {
    for (size_t i = 0; state.module && i < launch->count; i++) {
        const fake_access *access = &launch->accesses[i];
        warp.active = UINT32_MAX >> (32 - access->lanes);
        warp.leader_address = access->address;
        warp.is_same = access->lanes == 1 || access->step == 0;
        for (warp.lane = 0; warp.lane < access->lanes; warp.lane++) {
            call_patch(access, access->address + (uint64_t)(warp.lane * access->step));
        }
    }
}

static void be_current(void *context) {
    if (context != state.context) {
        sanitizer_module_data loaded = {context, &state};
        state.context = context;
        tell(SANITIZER_DOMAIN_RESOURCE, SANITIZER_MODULE_LOADED, &loaded);
    }
}

static sanitizer_launch_data data_of(const fake_launch *launch) {
    return (sanitizer_launch_data){.context = launch->context,
                                   .stream_handle = &state,
                                   .module = &state,
                                   .function = launch->function,
                                   .name = launch->name,
                                   .launch = &state};
}

EXPORT void fake_sanitizer_launch(const fake_launch *launch) {
    sanitizer_launch_data data = data_of(launch);
    be_current(launch->context);
    handed_over = NULL;
    tell(SANITIZER_DOMAIN_LAUNCH, SANITIZER_LAUNCH_BEGIN, &data);
    play(launch);
    if (launch->during) {
        launch->during();
    }
    tell(SANITIZER_DOMAIN_LAUNCH, SANITIZER_LAUNCH_END, &data);
}

EXPORT void fake_sanitizer_graph(const fake_launch *launches, size_t count) {
    sanitizer_graph_data graph = {.context = launches->context, .stream_handle = &state};
    be_current(launches->context);
    for (size_t i = 0; i < count; i++) {
        sanitizer_node_data node = {.type = CUDA_NODE_KERNEL, .launch = data_of(&launches[i])};
        tell(SANITIZER_DOMAIN_GRAPHS, SANITIZER_NODE_LAUNCH_BEGIN, &node);
        play(&launches[i]);
    }
    tell(SANITIZER_DOMAIN_GRAPHS, SANITIZER_GRAPH_LAUNCH_END, &graph);
}

EXPORT void fake_sanitizer_context(void *context, uint32_t id) {
    sanitizer_module_data data = {.context = context};
    tell(SANITIZER_DOMAIN_RESOURCE, id, &data);
    free_blocks(NULL, context);
    *find_patches(context) = NULL;
    state.context = NULL;
}
