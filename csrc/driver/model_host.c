/* What the host gives a model: its addresses, and bytes behind them. Nothing where addresses are
 * counted, and no bytes where there is no file of them. */
#include "base/rounding.h"
#include "base/size.h"
#include "driver/model.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HIDDEN = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE };

/* Addresses are integers in the driver's interface and pointers here. */
static void *pointer_to(gml_address address) {
    return (void *)(uintptr_t)address;
}

/* Turns errno after a failed system call into a status. */
static gml_status fail_system(gml_model *model, const char *call, uint64_t size_bytes) {
    if (errno == ENOMEM) {
        return gml_driver_fail(&model->base, GML_OUT_OF_MEMORY,
                               "%s of %s: the host has no memory or no mapping left (see "
                               "/proc/sys/vm/max_map_count)",
                               call, gml_size_of(size_bytes).text);
    }
    return gml_driver_fail(&model->base, GML_DRIVER_FAILED, "%s of %s: %m", call,
                           gml_size_of(size_bytes).text);
}

gml_status gml_model_host_open(gml_model *model, bool has_bytes) {
    uint64_t granule_bytes = model->base.info.granularity_bytes;
    model->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    if (granule_bytes % model->page_bytes != 0) {
        return gml_driver_fail(&model->base, GML_INVALID_ARGUMENT,
                               "granularity %" PRIu64
                               " is not a multiple of the page size %" PRIu64,
                               granule_bytes, model->page_bytes);
    }
    model->memory = has_bytes ? memfd_create("gmlake", MFD_CLOEXEC) : -1;
    return has_bytes && model->memory < 0 ? fail_system(model, "open", model->capacity_bytes)
                                          : GML_OK;
}

void gml_model_host_close(gml_model *model) {
    const gml_range *left = model->page_bytes ? gml_ranges_first(&model->ranges) : NULL;
    for (; left; left = gml_ranges_next(left)) {
        (void)munmap(pointer_to(left->node.address), (size_t)left->size_bytes);
    }
    if (model->memory >= 0) {
        (void)close(model->memory);
    }
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* Reserves more and frees the edges. */
gml_status gml_model_host_take(gml_model *model, const char *call, uint64_t size_bytes,
                               uint64_t alignment_bytes, gml_address *out) {
    if (size_bytes > UINT64_MAX - alignment_bytes - model->page_bytes) {
        errno = ENOMEM;
        return fail_system(model, call, size_bytes);
    }
    uint64_t pages_bytes = gml_round_up(size_bytes, model->page_bytes);
    void *taken = mmap(NULL, (size_t)(pages_bytes + alignment_bytes), PROT_NONE, HIDDEN, -1, 0);
    if (taken == MAP_FAILED) {
        return fail_system(model, call, size_bytes);
    }
    gml_address begin = (gml_address)(uintptr_t)taken;
    gml_address address = gml_round_up(begin, alignment_bytes);
    /* An edge that cannot be unmapped stays reserved and costs only addresses. */
    if (address > begin) {
        (void)munmap(taken, (size_t)(address - begin));
    }
    if (alignment_bytes > address - begin) {
        (void)munmap(pointer_to(address + pages_bytes),
                     (size_t)(alignment_bytes - (address - begin)));
    }
    *out = address;
    return GML_OK;
}

gml_status gml_model_host_give(gml_model *model, const char *call, gml_address address,
                               uint64_t size_bytes) {
    return !model->page_bytes || munmap(pointer_to(address), (size_t)size_bytes) == 0
               ? GML_OK
               : fail_system(model, call, size_bytes);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

gml_status gml_model_host_grow(gml_model *model, uint64_t size_bytes) {
    uint64_t end_bytes = model->next_offset_bytes + size_bytes;
    return model->memory < 0 || ftruncate(model->memory, (off_t)end_bytes) == 0
               ? GML_OK
               : fail_system(model, "create", size_bytes);
}

/* A failure only leaks memory: the place is never reused. */
void gml_model_host_shrink(gml_model *model, const gml_model_chunk *physical) {
    if (model->memory >= 0) {
        (void)fallocate(model->memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        (off_t)physical->offset_bytes, (off_t)physical->chunk.size_bytes);
    }
}

gml_status gml_model_host_map(gml_model *model, gml_address address,
                              const gml_model_chunk *physical) {
    uint64_t size_bytes = physical->chunk.size_bytes;
    return model->memory < 0 ||
                   mmap(pointer_to(address), (size_t)size_bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
                        model->memory, (off_t)physical->offset_bytes) != MAP_FAILED
               ? GML_OK
               : fail_system(model, "map", size_bytes);
}

/* Puts addresses back into the state of a fresh reservation. Where the host has no mapping left to
 * replace one with, closing access has to do: the bytes behind are given up all the same. */
gml_status gml_model_host_unmap(gml_model *model, gml_address address, uint64_t size_bytes) {
    void *start = pointer_to(address);
    return model->memory < 0 ||
                   mmap(start, (size_t)size_bytes, PROT_NONE, HIDDEN | MAP_FIXED, -1, 0) !=
                       MAP_FAILED ||
                   mprotect(start, (size_t)size_bytes, PROT_NONE) == 0
               ? GML_OK
               : fail_system(model, "unmap", size_bytes);
}

/* After a failure some pages may be open; bytes() still refuses them, by the books. */
gml_status gml_model_host_allow(gml_model *model, const char *call, gml_address address,
                                uint64_t size_bytes) {
    return model->memory < 0 ||
                   mprotect(pointer_to(address), (size_t)size_bytes, PROT_READ | PROT_WRITE) == 0
               ? GML_OK
               : fail_system(model, call, size_bytes);
}
