/* Memory of the driver `cuda` that other processes map, and theirs that is mapped here. */
#include "base/status.h"
#include "driver/cuda_internal.h"
#include "driver/handed.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* ---- which kind of handle -------------------------------------------------------------------- */

/* An H200 also creates memory of handle types that do not exist, so only known types are
 * requested. */
static bool is_handle_type(unsigned handle_type) {
    return handle_type == GML_CU_HANDLE_NONE || handle_type == GML_CU_HANDLE_FILE ||
           handle_type == GML_CU_HANDLE_FABRIC;
}

/* Maps it for the device to use. */
static gml_status try_mapping(gml_driver *self, gml_handle handle, uint64_t size_bytes) {
    gml_address address;
    gml_status status = self->ops->reserve(self, size_bytes, 0, &address);
    if (status != GML_OK) {
        return status;
    }
    status = self->ops->map(self, address, size_bytes, handle);
    if (status == GML_OK) {
        status = self->ops->set_access(self, address, size_bytes);
        status = gml_first_failure(status, self->ops->unmap(self, address, size_bytes));
    }
    return gml_first_failure(status, self->ops->unreserve(self, address, size_bytes));
}

gml_status gml_cuda_try_allocation(gml_cuda_driver *cuda) {
    gml_driver *self = &cuda->base;
    uint64_t size_bytes = self->info.granularity_bytes;
    gml_handle handle;
    gml_status status = self->ops->create(self, size_bytes, &handle);
    if (status == GML_OK) {
        status = try_mapping(self, handle, size_bytes);
        status = gml_first_failure(status, self->ops->release(self, handle));
    }
    return status;
}

gml_status gml_cuda_share(gml_driver *self, unsigned handle_type) {
    gml_cuda_driver *cuda = gml_cuda_of(self);
    if (!is_handle_type(handle_type)) {
        return gml_driver_fail(&cuda->base, GML_UNSUPPORTED,
                               "handle type %u is unknown; there are 1 (file descriptor) and 8 "
                               "(fabric)",
                               handle_type);
    }
    int before = cuda->allocation.handle_types;
    cuda->takes_handed = false;
    cuda->allocation.handle_types = (int)handle_type;
    gml_status status = gml_cuda_try_allocation(cuda);
    if (status == GML_OK) {
        return GML_OK;
    }
    cuda->allocation.handle_types = before;
    if (status == GML_OUT_OF_MEMORY) {
        return status;
    }
    return gml_driver_fail(&cuda->base, GML_UNSUPPORTED,
                           "no memory that can be exported as handle type %u (1: file descriptor, "
                           "8: fabric): %.120s",
                           handle_type, cuda->base.reason);
}

void gml_cuda_choose_sharing(gml_cuda_driver *cuda) {
    if (cuda->base.info.has_virtual_memory) {
        cuda->takes_handed = gml_cuda_share(&cuda->base, GML_CU_HANDLE_FILE) == GML_OK;
    }
}

/* ---- export ---------------------------------------------------------------------------------- */

static void *kept_file(int file) {
    return (void *)((uintptr_t)file + 1); /* NULL: none */
}

static int file_of(const void *kept) {
    return (int)((uintptr_t)kept - 1);
}

/* The driver does not say so. */
static bool no_file_left(void) {
    int tried = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    bool is_none = tried < 0 && errno == EMFILE;
    (void)(tried < 0 || close(tried));
    return is_none;
}

static gml_status fail_without_files(gml_cuda_driver *cuda, gml_status status) {
    return gml_driver_fail(&cuda->base, status,
                           "this process may open no more files, and each chunk that is shared "
                           "takes one; raise `ulimit -n`");
}

gml_status gml_cuda_export_file(gml_driver *self, gml_handle handle, bool is_kept, int *out) {
    gml_cuda_driver *cuda = gml_cuda_of(self);
    const void *kept = gml_map_find(&cuda->files, handle);
    if (kept) { /* of imported memory it may be the only one */
        *out = is_kept ? file_of(kept) : fcntl(file_of(kept), F_DUPFD_CLOEXEC, 0);
        return *out >= 0 ? GML_OK : fail_without_files(cuda, GML_DRIVER_FAILED);
    }
    if (cuda->allocation.handle_types != GML_CU_HANDLE_FILE) {
        return gml_driver_fail(&cuda->base, GML_UNSUPPORTED,
                               "the memory of this device is not exported as file descriptors");
    }
    if (gml_map_reserve(&cuda->files, 1) != GML_OK) {
        return gml_driver_fail(&cuda->base, GML_NO_HOST_MEMORY, "export: no host memory left");
    }
    int file = -1;
    gml_status status =
        GML_CUDA_CALL(cuda, cuMemExportToShareableHandle, &file, handle, GML_CU_HANDLE_FILE, 0);
    if (status != GML_OK) {
        return no_file_left() ? fail_without_files(cuda, status) : status;
    }
    (void)fcntl(file, F_SETFD, FD_CLOEXEC); /* programs that are started need not have it */
    if (is_kept) {
        gml_kept_files_add(file);
        (void)gml_map_insert(&cuda->files, handle, kept_file(file));
    }
    *out = file;
    return GML_OK;
}

void gml_cuda_forget_file(gml_cuda_driver *cuda, gml_handle handle) {
    const void *kept = cuda->files.count ? gml_map_take(&cuda->files, handle) : NULL;
    if (kept) {
        gml_kept_files_close(file_of(kept));
    }
}

void gml_cuda_forget_files(gml_cuda_driver *cuda) {
    for (size_t i = 0; i < cuda->files.capacity; i++) {
        const gml_map_slot *slot = &cuda->files.slots[i];
        if (slot->key) {
            gml_kept_files_close(file_of(slot->value));
        }
    }
    gml_map_clear(&cuda->files);
}

/* ---- import ---------------------------------------------------------------------------------- */

static gml_status import_file(gml_cuda_driver *cuda, int file, gml_cu_handle *out) {
    return GML_CUDA_CALL(cuda, cuMemImportFromShareableHandle, out, (void *)(intptr_t)file,
                         GML_CU_HANDLE_FILE);
}

/* A mapping keeps memory alive by itself, so the handle is released at once. */
static gml_status map_file(gml_cuda_driver *cuda, const gml_shared_piece *piece,
                           gml_address address) {
    gml_cu_handle handle = 0;
    gml_status status = import_file(cuda, piece->file, &handle);
    if (status == GML_OK) {
        status = GML_CUDA_CALL(cuda, cuMemMap, address, piece->size_bytes, 0, handle, 0);
        (void)cuda->api.cuMemRelease(handle);
    }
    return status;
}

gml_status gml_cuda_open_files(gml_driver *self, const gml_shared_piece *pieces, size_t count,
                               gml_address *out) {
    gml_cuda_driver *cuda = gml_cuda_of(self);
    const gml_driver_ops *ops = self->ops;
    uint64_t size_bytes = gml_shared_bytes(pieces, count), mapped_bytes = 0;
    gml_address address = 0;
    gml_status status = ops->reserve(self, size_bytes, 0, &address);
    if (status != GML_OK) {
        return status;
    }
    for (size_t i = 0; i < count && status == GML_OK; i++) {
        status = map_file(cuda, &pieces[i], address + mapped_bytes);
        mapped_bytes += status == GML_OK ? pieces[i].size_bytes : 0;
    }
    if (status == GML_OK) {
        status = ops->set_access(self, address, size_bytes);
    }
    if (status == GML_OK) {
        *out = address;
        return GML_OK;
    }
    gml_driver_begin_undo(self);
    if (mapped_bytes) {
        (void)ops->unmap(self, address, mapped_bytes);
    }
    (void)ops->unreserve(self, address, size_bytes);
    gml_driver_end_undo(self);
    return status;
}

gml_status gml_cuda_close_files(gml_driver *self, gml_address address, uint64_t size_bytes) {
    const gml_driver_ops *ops = self->ops;
    if (gml_driver_is_frozen(self)) {
        return gml_driver_fail(self, GML_UNSUPPORTED,
                               "memory of another process is kept while a graph is captured");
    }
    gml_status status = ops->device_synchronize(self);
    if (status == GML_OK) {
        status = ops->unmap(self, address, size_bytes);
    }
    if (status == GML_OK) {
        (void)ops->unreserve(self, address, size_bytes); /* costs addresses alone */
    }
    return status;
}

/* ---- what other processes handed over -------------------------------------------------------- */

bool gml_cuda_take_handed(gml_cuda_driver *cuda, uint64_t size_bytes, gml_handle *out) {
    gml_handed *handed = gml_handed_to(cuda->base.device);
    bool may_take = cuda->takes_handed && gml_handed_bytes(handed) &&
                    gml_map_reserve(&cuda->files, 1) == GML_OK;
    int file = may_take ? gml_handed_take(handed, size_bytes) : -1;
    if (file < 0) {
        return false;
    }
    gml_cu_handle handle = 0;
    gml_driver_begin_undo(&cuda->base); /* what cannot be imported is created */
    gml_status status = import_file(cuda, file, &handle);
    gml_driver_end_undo(&cuda->base);
    if (status != GML_OK) {
        gml_kept_files_close(file);
        return false;
    }
    (void)gml_map_insert(&cuda->files, handle,
                         kept_file(file)); /* it may be exported no other way */
    *out = handle;
    return true;
}
