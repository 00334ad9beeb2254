#include "diagnosis/collect/collector.h"

#include <string.h>

enum {
    MOST_PARAMETERS = 4096,
    MOST_PARAMETER_BYTES = 32764, /* CUDA's own limit for all parameters of a kernel */
    TENSOR_MAP_BYTES = 128,
    EXTRA_POINTER = 1, /* CU_LAUNCH_PARAM_BUFFER_POINTER */
    EXTRA_SIZE = 2,    /* CU_LAUNCH_PARAM_BUFFER_SIZE */
    EXTRA_MOST = 16
};

typedef struct found_objects {
    gml_live_object *items;
    size_t count, capacity;
    bool is_whole; /* nothing was left out */
} found_objects;

static void add_found(found_objects *found, const gml_live_object *object, bool is_in_a_map) {
    for (size_t i = 0; i < found->count; i++) {
        if (found->items[i].address == object->address) {
            found->items[i].is_in_a_map |= is_in_a_map;
            return;
        }
    }
    if (found->count == found->capacity) {
        found->is_whole = false;
        return;
    }
    found->items[found->count] = *object;
    found->items[found->count++].is_in_a_map = is_in_a_map;
}

static void scan_words(const gml_live *live, const void *data, size_t size_bytes,
                       found_objects *found) {
    const gml_live_object *last = NULL;
    size_t addresses = 0;
    for (size_t at = 0; at + sizeof(uint64_t) <= size_bytes; at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, (const char *)data + at, sizeof word);
        const gml_live_object *object = gml_live_find(live, word);
        if (object) {
            add_found(found, object, false);
            last = object;
            addresses++;
        }
    }
    if (size_bytes == TENSOR_MAP_BYTES && addresses == 1) { /* a map is of one tensor */
        add_found(found, last, true);
    }
}

/* The single buffer with all parameters in cuLaunchKernel's `extra`. False without one that CUDA
 * would accept. */
static bool scan_extra(const gml_live *live, void *const *extra, found_objects *found) {
    const void *buffer = NULL;
    size_t size_bytes = 0;
    for (size_t i = 0; i < EXTRA_MOST && extra[i]; i += 2) {
        if ((uintptr_t)extra[i] == EXTRA_POINTER) {
            buffer = extra[i + 1];
        } else if ((uintptr_t)extra[i] == EXTRA_SIZE && extra[i + 1]) {
            memcpy(&size_bytes, extra[i + 1], sizeof size_bytes);
        }
    }
    if (!buffer || size_bytes > MOST_PARAMETER_BYTES) {
        return false;
    }
    scan_words(live, buffer, size_bytes, found);
    return true;
}

/* A handle that cuLaunchKernel takes is a function's or a kernel's; only the driver knows. */
static cuda_param_info info_of(const gml_collector *collector, void *function) {
    const cuda_param_info ways[] = {collector->function_info, collector->kernel_info};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        size_t offset;
        size_t size_bytes;
        if (ways[i] && ways[i](function, 0, &offset, &size_bytes) == 0) {
            return ways[i];
        }
    }
    return NULL;
}

/* False where the driver does not tell what the parameters are. */
static bool scan_each(const gml_collector *collector, void *function, void *const *parameters,
                      found_objects *found) {
    cuda_param_info info = info_of(collector, function);
    size_t offset;
    size_t size_bytes;
    for (size_t i = 0; info && i < MOST_PARAMETERS && info(function, i, &offset, &size_bytes) == 0;
         i++) {
        if (size_bytes > MOST_PARAMETER_BYTES) {
            return false;
        }
        scan_words(&collector->live, parameters[i], size_bytes, found);
    }
    return info != NULL;
}

size_t gml_scan_parameters(const gml_collector *collector, void *function, void *const *parameters,
                           void *const *extra, gml_live_object *out, size_t capacity) {
    found_objects found = {.items = out, .capacity = capacity, .is_whole = true};
    if (parameters) {
        found.is_whole = scan_each(collector, function, parameters, &found) && found.is_whole;
    } else if (extra) {
        found.is_whole = scan_extra(&collector->live, extra, &found) && found.is_whole;
    }
    return found.is_whole ? found.count : GML_SCAN_UNKNOWN;
}
