/* The driver `host`: each operation is checked by the model, done with mmap, then recorded in the
 * model.
 */
#include "base/size.h"
#include "driver/backends.h"
#include "driver/modelled.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static const uint64_t DEFAULT_CAPACITY_BYTES = UINT64_C(1) << 30;
static const uint64_t DEFAULT_GRANULARITY_BYTES = UINT64_C(2) << 20;
static const uint64_t LARGE_BLOCK_BYTES = UINT64_C(2) << 20;

enum { HIDDEN = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE };

typedef struct host_driver {
    gml_modelled modelled; /* must be first */
    int memory; /* memfd: byte i is byte i of the physical memory; -1: there are no bytes */
    uint64_t page_bytes;
} host_driver;

static host_driver *host_of(gml_driver *self) {
    return (host_driver *)self;
}

static bool has_bytes(gml_driver *self) {
    return host_of(self)->memory >= 0;
}

static gml_model *model_of(gml_driver *self) {
    return &host_of(self)->modelled.model;
}

/* Addresses are integers in the driver's interface and pointers here. */
static void *pointer_to(gml_address address) {
    return (void *)(uintptr_t)address;
}

/* Turns errno after a failed system call into a status. */
static gml_status fail_system(gml_driver *self, const char *call, uint64_t size_bytes) {
    if (errno == ENOMEM) {
        return gml_driver_fail(self, GML_OUT_OF_MEMORY,
                               "%s of %s: the host has no memory or no mapping left (see "
                               "/proc/sys/vm/max_map_count)",
                               call, gml_size_of(size_bytes).text);
    }
    return gml_driver_fail(self, GML_DRIVER_FAILED, "%s of %s: %m", call,
                           gml_size_of(size_bytes).text);
}

/* Returns the bytes of released physical memory to the host. A failure only leaks memory: the place
 * is never reused. */
static void punch_hole(gml_driver *self, const gml_physical *physical) {
    (void)fallocate(host_of(self)->memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    (off_t)physical->offset_bytes, (off_t)physical->size_bytes);
}

/* Unmaps every address range that is still there. */
static void unmap_ranges(const gml_model *model) {
    const gml_tree_node *node = gml_tree_first(&model->ranges);
    for (; node; node = gml_tree_next(node)) {
        (void)munmap(pointer_to(node->address), (size_t)((const gml_range *)node)->size_bytes);
    }
}

static void close_memory(host_driver *host) {
    if (host->memory >= 0) {
        (void)close(host->memory);
    }
}

static void destroy(gml_driver *self) {
    host_driver *host = host_of(self);
    unmap_ranges(&host->modelled.model);
    gml_modelled_clear(&host->modelled);
    close_memory(host);
    free(host);
}

static gml_status create(gml_driver *self, uint64_t size_bytes, gml_handle *out) {
    gml_model *model = model_of(self);
    gml_handle handle;
    gml_status status = gml_model_create(model, size_bytes, &handle);
    if (status != GML_OK) {
        return status;
    }
    const gml_physical *physical = gml_model_physical(model, handle);
    uint64_t end_bytes = physical->offset_bytes + physical->size_bytes;
    if (has_bytes(self) && ftruncate(host_of(self)->memory, (off_t)end_bytes) != 0) {
        status = fail_system(self, "create", size_bytes);
        (void)gml_model_release(model, handle);
        return status;
    }
    *out = handle;
    return GML_OK;
}

/* Address space of that alignment, without access. Reserves more and frees the edges. */
static gml_status take_addresses(gml_driver *self, const char *call, uint64_t size_bytes,
                                 uint64_t alignment_bytes, gml_address *out) {
    if (size_bytes > UINT64_MAX - alignment_bytes) {
        errno = ENOMEM;
        return fail_system(self, call, size_bytes);
    }
    void *taken = mmap(NULL, (size_t)(size_bytes + alignment_bytes), PROT_NONE, HIDDEN, -1, 0);
    if (taken == MAP_FAILED) {
        return fail_system(self, call, size_bytes);
    }
    gml_address begin = (gml_address)(uintptr_t)taken;
    gml_address address = (begin + alignment_bytes - 1) & ~(alignment_bytes - 1);
    /* An edge that cannot be unmapped stays reserved and costs only addresses. */
    if (address > begin) {
        (void)munmap(taken, (size_t)(address - begin));
    }
    if (alignment_bytes > address - begin) {
        (void)munmap(pointer_to(address + size_bytes),
                     (size_t)(alignment_bytes - (address - begin)));
    }
    *out = address;
    return GML_OK;
}

static gml_status reserve(gml_driver *self, uint64_t size_bytes, uint64_t alignment_bytes,
                          gml_address *out) {
    gml_model *model = model_of(self);
    gml_address address = 0;
    gml_status status = gml_model_check_reserve(model, size_bytes, &alignment_bytes);
    if (status == GML_OK) {
        status = take_addresses(self, "reserve", size_bytes, alignment_bytes, &address);
    }
    if (status != GML_OK) {
        return status;
    }
    status = gml_model_reserve(model, address, size_bytes);
    if (status != GML_OK) {
        (void)munmap(pointer_to(address), (size_t)size_bytes);
        return status;
    }
    *out = address;
    return GML_OK;
}

static gml_status reserve_at(gml_driver *self, gml_address address, uint64_t size_bytes) {
    void *wanted = pointer_to(address);
    void *taken = mmap(wanted, (size_t)size_bytes, PROT_NONE, HIDDEN | MAP_FIXED_NOREPLACE, -1, 0);
    if (taken == MAP_FAILED && errno != EEXIST) {
        return fail_system(self, "reserve", size_bytes);
    }
    gml_status status = taken == wanted ? gml_model_reserve(model_of(self), address, size_bytes)
                                        : gml_driver_fail_taken(self, address, size_bytes);
    if (status != GML_OK && taken != MAP_FAILED) {
        (void)munmap(taken, (size_t)size_bytes); /* elsewhere: an old kernel takes it for a wish */
    }
    return status;
}

static gml_status unreserve(gml_driver *self, gml_address address, uint64_t size_bytes) {
    gml_status status = gml_model_check_unreserve(model_of(self), address, size_bytes);
    if (status != GML_OK) {
        return status;
    }
    if (munmap(pointer_to(address), (size_t)size_bytes) != 0) {
        return fail_system(self, "unreserve", size_bytes);
    }
    return gml_model_unreserve(model_of(self), address, size_bytes);
}

/* Puts addresses back into the state of a fresh reservation. Where the host has no mapping left to
 * replace one with, closing access has to do: the bytes behind are given up all the same. */
static bool hide(gml_address address, uint64_t size_bytes) {
    void *start = pointer_to(address);
    return mmap(start, (size_t)size_bytes, PROT_NONE, HIDDEN | MAP_FIXED, -1, 0) != MAP_FAILED ||
           mprotect(start, (size_t)size_bytes, PROT_NONE) == 0;
}

static gml_status map(gml_driver *self, gml_address address, uint64_t size_bytes,
                      gml_handle handle) {
    gml_model *model = model_of(self);
    gml_status status = gml_model_check_map(model, address, size_bytes, handle);
    if (status != GML_OK) {
        return status;
    }
    off_t offset = (off_t)gml_model_physical(model, handle)->offset_bytes;
    if (has_bytes(self) &&
        mmap(pointer_to(address), (size_t)size_bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
             host_of(self)->memory, offset) == MAP_FAILED) {
        return fail_system(self, "map", size_bytes);
    }
    return gml_model_map(model, address, size_bytes, handle);
}

static gml_status unmap(gml_driver *self, gml_address address, uint64_t size_bytes) {
    gml_status status = gml_model_check_whole(model_of(self), "unmap", address, size_bytes);
    if (status != GML_OK) {
        return status;
    }
    if (has_bytes(self) && !hide(address, size_bytes)) {
        return fail_system(self, "unmap", size_bytes);
    }
    return gml_model_unmap(model_of(self), address, size_bytes, NULL);
}

static gml_status set_access(gml_driver *self, gml_address address, uint64_t size_bytes) {
    gml_status status = gml_model_check_whole(model_of(self), "set_access", address, size_bytes);
    if (status != GML_OK) {
        return status;
    }
    /* After a failure some pages may be open; bytes() still refuses them, by the model. */
    if (has_bytes(self) &&
        mprotect(pointer_to(address), (size_t)size_bytes, PROT_READ | PROT_WRITE) != 0) {
        return fail_system(self, "set_access", size_bytes);
    }
    return gml_model_set_access(model_of(self), address, size_bytes, NULL);
}

static uint64_t whole_pages(const host_driver *host, uint64_t size_bytes) {
    return (size_bytes + host->page_bytes - 1) & ~(host->page_bytes - 1);
}

/* pre: the model has room for `size_bytes`, so that rounding up cannot overflow. */
static gml_status take_block(gml_driver *self, uint64_t size_bytes, gml_address *out) {
    uint64_t pages_bytes = whole_pages(host_of(self), size_bytes);
    uint64_t alignment_bytes =
        size_bytes >= LARGE_BLOCK_BYTES ? LARGE_BLOCK_BYTES : host_of(self)->page_bytes;
    gml_status status = take_addresses(self, "malloc", pages_bytes, alignment_bytes, out);
    if (status != GML_OK) {
        return status;
    }
    if (has_bytes(self) &&
        mprotect(pointer_to(*out), (size_t)pages_bytes, PROT_READ | PROT_WRITE) != 0) {
        status = fail_system(self, "malloc", size_bytes);
        (void)munmap(pointer_to(*out), (size_t)pages_bytes);
    }
    return status;
}

static gml_status host_malloc(gml_driver *self, uint64_t size_bytes, gml_address *out) {
    gml_model *model = model_of(self);
    gml_address address = 0;
    gml_status status = gml_model_check_malloc(model, size_bytes);
    if (status == GML_OK) {
        status = take_block(self, size_bytes, &address);
    }
    if (status != GML_OK) {
        return status;
    }
    status = gml_model_malloc(model, address, size_bytes);
    if (status != GML_OK) {
        (void)munmap(pointer_to(address), (size_t)whole_pages(host_of(self), size_bytes));
        return status;
    }
    *out = address;
    return GML_OK;
}

static gml_status host_free(gml_driver *self, gml_address address) {
    uint64_t size_bytes = 0;
    gml_status status = gml_model_check_free(model_of(self), address, &size_bytes);
    if (status != GML_OK) {
        return status;
    }
    if (munmap(pointer_to(address), (size_t)whole_pages(host_of(self), size_bytes)) != 0) {
        return fail_system(self, "free", size_bytes);
    }
    return gml_model_free(model_of(self), address);
}

static gml_status bytes(gml_driver *self, gml_address address, uint64_t size_bytes, void **out) {
    gml_status status = gml_model_check_touch(model_of(self), address, size_bytes);
    if (status != GML_OK) {
        return status;
    }
    if (!has_bytes(self)) {
        return gml_driver_fail(self, GML_UNSUPPORTED, "bytes: this device was opened without any");
    }
    *out = pointer_to(address);
    return GML_OK;
}

bool gml_host_place(gml_driver *driver, gml_handle handle, int *file, uint64_t *offset_bytes) {
    const gml_physical *physical = gml_model_physical(model_of(driver), handle);
    if (!physical || !has_bytes(driver)) {
        return false;
    }
    *file = host_of(driver)->memory;
    *offset_bytes = physical->offset_bytes;
    return true;
}

static const gml_driver_ops host_ops = {
    .name = "host",
    .destroy = destroy,
    .create = create,
    .release = gml_modelled_release,
    .reserve = reserve,
    .reserve_at = reserve_at,
    .unreserve = unreserve,
    .map = map,
    .unmap = unmap,
    .set_access = set_access,
    .malloc = host_malloc,
    .free = host_free,
    .memory_info = gml_modelled_memory_info,
    GML_MODELLED_STREAMS,
    .bytes = bytes,
};

/* Fills a zeroed host driver; on failure nothing is left to clear. */
static gml_status start(host_driver *host, uint64_t capacity_bytes, uint64_t granularity_bytes,
                        bool is_backed) {
    gml_driver *base = &host->modelled.base;
    base->ops = &host_ops;
    host->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    if (granularity_bytes % host->page_bytes != 0) {
        return gml_driver_fail(base, GML_INVALID_ARGUMENT,
                               "granularity %" PRIu64
                               " is not a multiple of the page size %" PRIu64,
                               granularity_bytes, host->page_bytes);
    }
    host->memory = is_backed ? memfd_create("gmlake", MFD_CLOEXEC) : -1;
    if (is_backed && host->memory < 0) {
        return fail_system(base, "open", capacity_bytes);
    }
    gml_status status = gml_modelled_init(&host->modelled, capacity_bytes, granularity_bytes);
    if (status != GML_OK) {
        close_memory(host);
        return status;
    }
    host->modelled.model.on_gone = is_backed ? punch_hole : NULL;
    return GML_OK;
}

static gml_status open_driver(uint64_t capacity_bytes, uint64_t granularity_bytes, bool is_backed,
                              gml_driver **out, char *reason, size_t reason_bytes) {
    host_driver *host = calloc(1, sizeof *host);
    if (!host) {
        (void)snprintf(reason, reason_bytes, "host: no host memory left");
        return GML_NO_HOST_MEMORY;
    }
    gml_status status =
        start(host, capacity_bytes ? capacity_bytes : DEFAULT_CAPACITY_BYTES,
              granularity_bytes ? granularity_bytes : DEFAULT_GRANULARITY_BYTES, is_backed);
    if (status != GML_OK) {
        (void)snprintf(reason, reason_bytes, "host: %s", host->modelled.base.reason);
        free(host);
        return status;
    }
    *out = &host->modelled.base;
    return GML_OK;
}

gml_status gml_host_driver_open(uint64_t capacity_bytes, uint64_t granularity_bytes,
                                gml_driver **out, char *reason, size_t reason_bytes) {
    return open_driver(capacity_bytes, granularity_bytes, true, out, reason, reason_bytes);
}

gml_status gml_hollow_driver_open(uint64_t capacity_bytes, uint64_t granularity_bytes,
                                  gml_driver **out, char *reason, size_t reason_bytes) {
    return open_driver(capacity_bytes, granularity_bytes, false, out, reason, reason_bytes);
}
