/* Texts by which processes open each other's memory. Files go from one to the other by the kernel:
 * whoever may trace a process may have its descriptors. */
#include "torch/ipc.h"

#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Older headers lack these numbers, which are the same on all machines. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

/* What an expandable segment of PyTorch begins with: the version and kind of the text, then this.
 * From 2.13 on the kind of the descriptors follows. */
typedef struct torch_header {
    int32_t process;
    uint64_t segment_bytes, count;
} torch_header;

enum { TORCH_EXPANDABLE = 'e', TORCH_FILES = 1, FIRST_WITH_KIND = 13 };

/* Of odd length, as every own text is then: PyTorch takes 64 bytes for a handle of cudaMalloc(). */
static const char magic[9] = "gmlake:1";

typedef struct own_header {
    int32_t process;
    uint32_t count;
} own_header;

static gml_status
fail(gml_status status, char *reason, size_t reason_bytes, const char *text)
{
    (void)snprintf(reason, reason_bytes, "%s", text);
    return status;
}

/* ---- sharing --------------------------------------------------------------------------------- */

static bool
are_alike(const gml_shared_piece *pieces, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (pieces[i].size_bytes != pieces[0].size_bytes) {
            return false;
        }
    }
    return true;
}

static void
write_torch(const gml_shared_piece *pieces, size_t count, int minor, gml_ipc_write write, void *to)
{
    const char begin[2] = {minor < FIRST_WITH_KIND ? 2 : 3, TORCH_EXPANDABLE};
    torch_header header;
    memset(&header, 0, sizeof header); /* a text is also a key: no byte of it may be by chance */
    header.process = (int32_t)getpid();
    header.segment_bytes = pieces[0].size_bytes;
    header.count = count;
    write(to, begin, sizeof begin);
    write(to, (const char *)&header, sizeof header);
    if (minor >= FIRST_WITH_KIND) {
        const uint64_t kind = TORCH_FILES;
        write(to, (const char *)&kind, sizeof kind);
    }
    for (size_t i = 0; i < count; i++) {
        write(to, (const char *)&pieces[i].file, sizeof pieces[i].file);
    }
}

static void
write_own(const gml_shared_piece *pieces, size_t count, gml_ipc_write write, void *to)
{
    const own_header header = {.process = (int32_t)getpid(), .count = (uint32_t)count};
    write(to, magic, sizeof magic);
    write(to, (const char *)&header, sizeof header);
    for (size_t i = 0; i < count; i++) {
        gml_shared_piece piece;
        memset(&piece, 0, sizeof piece);
        piece.file = pieces[i].file;
        piece.size_bytes = pieces[i].size_bytes;
        write(to, (const char *)&piece, sizeof piece);
    }
}

gml_status
gml_ipc_share(gml_lake *lake, gml_address address, int minor, gml_ipc_write write, void *to,
              uint64_t *offset_bytes, char *reason, size_t reason_bytes)
{
    gml_shared_piece *pieces = NULL;
    size_t count = 0;
    gml_status status = gml_lake_export(lake, address, NULL, 0, &count, offset_bytes);
    if (status == GML_OK) {
        pieces = malloc(count * sizeof *pieces);
        if (!pieces) {
            return fail(GML_NO_HOST_MEMORY, reason, reason_bytes, "out of host memory");
        }
        status = gml_lake_export(lake, address, pieces, count, &count, offset_bytes);
    }
    if (status != GML_OK) {
        gml_lake_reason(lake, reason, reason_bytes);
    } else if (are_alike(pieces, count)) {
        write_torch(pieces, count, minor, write, to);
    } else {
        write_own(pieces, count, write, to);
    }
    free(pieces);
    return status;
}

/* ---- opening --------------------------------------------------------------------------------- */

bool
gml_ipc_is_ours(const char *text, size_t size)
{
    return size >= sizeof magic && memcmp(text, magic, sizeof magic) == 0;
}

static gml_status
fail_to_fetch(int32_t process, char *reason, size_t reason_bytes)
{
    const char *advice = "what it shared may be gone";
    if (errno == EPERM) {
        advice = "the kernel forbids to look into it; see /proc/sys/kernel/yama/ptrace_scope, or "
                 "run the container with SYS_PTRACE";
    } else if (errno == ENOSYS) {
        advice = "the kernel is older than 5.6";
    } else if (errno == ESRCH) {
        advice = "it has ended";
    }
    (void)snprintf(reason, reason_bytes,
                   "memory of process %d cannot be opened: %s (%m); what is made outside of "
                   "gmlake.enabled() is shared in another way",
                   (int)process, advice);
    return GML_DRIVER_FAILED;
}

static void
close_files(gml_shared_piece *pieces, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        (void)close(pieces[i].file);
    }
}

/* Replaces the files of another process by own ones; on failure none is open. */
static gml_status
fetch_files(int32_t process, gml_shared_piece *pieces, size_t count, char *reason,
            size_t reason_bytes)
{
    int owner = (int)syscall(SYS_pidfd_open, process, 0);
    if (owner < 0) {
        return fail_to_fetch(process, reason, reason_bytes);
    }
    gml_status status = GML_OK;
    for (size_t i = 0; i < count && status == GML_OK; i++) {
        int file = (int)syscall(SYS_pidfd_getfd, owner, pieces[i].file, 0);
        if (file < 0) {
            status = fail_to_fetch(process, reason, reason_bytes);
            close_files(pieces, i);
        } else {
            pieces[i].file = file;
        }
    }
    (void)close(owner);
    return status;
}

gml_status
gml_ipc_open(gml_lake *lake, const char *text, size_t size, gml_address *out, char *reason,
             size_t reason_bytes)
{
    own_header header;
    const size_t begin = sizeof magic + sizeof header;
    bool is_whole = gml_ipc_is_ours(text, size) && size >= begin;
    if (is_whole) {
        memcpy(&header, text + sizeof magic, sizeof header);
        is_whole = header.count > 0 && (size - begin) / sizeof(gml_shared_piece) == header.count &&
                   (size - begin) % sizeof(gml_shared_piece) == 0;
    }
    if (!is_whole) {
        return fail(GML_INVALID_ARGUMENT, reason, reason_bytes,
                    "this is no text by which a tensor is shared");
    }
    gml_shared_piece *pieces = malloc(size - begin);
    if (!pieces) {
        return fail(GML_NO_HOST_MEMORY, reason, reason_bytes, "out of host memory");
    }
    memcpy(pieces, text + begin, size - begin);
    gml_status status = fetch_files(header.process, pieces, header.count, reason, reason_bytes);
    if (status == GML_OK) {
        status = gml_lake_import(lake, pieces, header.count, out);
        if (status != GML_OK) {
            gml_lake_reason(lake, reason, reason_bytes);
        }
        close_files(pieces, header.count);
    }
    free(pieces);
    return status;
}
