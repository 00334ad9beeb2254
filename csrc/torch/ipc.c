/* Texts by which processes open each other's memory. */
#include "torch/ipc.h"

#include "base/status.h"
#include "driver/driver.h"
#include "torch/courier.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The head of the text of a PyTorch expandable segment: version and kind, then this. From 2.13 on
 * the kind of the descriptors follows. */
typedef struct torch_header {
    int32_t process;
    uint64_t segment_bytes, count;
} torch_header;

enum { TORCH_EXPANDABLE = 'e', TORCH_FILES = 1, FIRST_WITH_KIND = 13 };

static const char magic[8] = "gmlake:2";

/* The end of every text, and all of some. PyTorch ignores anything after its own part. */
typedef struct ending {
    char magic[sizeof magic];
    gml_ticket ticket;
    int64_t process;
} ending;

static gml_status fail(gml_status status, char *reason, size_t reason_bytes, const char *text) {
    (void)snprintf(reason, reason_bytes, "%s", text);
    return status;
}

/* ---- sharing --------------------------------------------------------------------------------- */

/* Whether this process can safely keep that many more files open. New ones have the lowest free
 * number. */
static bool has_files_for(size_t count) {
    struct rlimit most;
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (next < 0 || getrlimit(RLIMIT_NOFILE, &most) != 0) {
        return count == 1;
    }
    (void)close(next);
    return count == 1 || (uint64_t)next + count <= most.rlim_cur / 2;
}

static void write_torch(const gml_shared_piece *pieces, size_t count, int minor,
                        gml_ipc_write write, void *to) {
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

/* PyTorch's part, for which the files stay open as long as their chunks live: a process without
 * gmlake gets them by the kernel, if that lets it. */
static gml_status share_files(gml_lake *lake, gml_address address, size_t count, int minor,
                              gml_ipc_write write, void *to) {
    uint64_t offset_bytes = 0;
    gml_shared_piece *pieces = malloc(count * sizeof *pieces);
    if (!pieces) {
        return GML_OK; /* the other part is enough for gmlake */
    }
    size_t found = 0;
    gml_status status = gml_lake_export(lake, address, pieces, count, &found, &offset_bytes);
    if (status == GML_OK && found == count) {
        write_torch(pieces, count, minor, write, to);
    }
    free(pieces);
    return status;
}

gml_status gml_ipc_share(gml_lake *lake, gml_address address, int minor, gml_ipc_write write,
                         void *to, uint64_t *offset_bytes, char *reason, size_t reason_bytes) {
    ending end;
    gml_lent about = {0};
    memset(&end, 0, sizeof end); /* a text is also a key: no byte of it may be by chance */
    memcpy(end.magic, magic, sizeof magic);
    int error = gml_courier_name(end.ticket.name);
    if (error) {
        (void)snprintf(reason, reason_bytes, "no socket can be made for it: error %d", -error);
        return GML_DRIVER_FAILED;
    }
    gml_status status = gml_lake_lend(lake, address, NULL, 0, &about);
    if (status == GML_OK && about.are_alike && has_files_for(about.count)) {
        status = share_files(lake, address, about.count, minor, write, to);
    }
    if (status != GML_OK) {
        gml_lake_reason(lake, reason, reason_bytes);
        return status;
    }
    end.ticket.address = address;
    end.ticket.mark = about.mark;
    end.process = getpid();
    write(to, (const char *)&end, sizeof end);
    *offset_bytes = about.offset_bytes;
    return GML_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool is_whole(const char *text, size_t size) {
    return size >= sizeof(ending) && memcmp(text + size - sizeof(ending), magic, sizeof magic) == 0;
}

bool gml_ipc_is_ours(const char *text, size_t size) {
    return is_whole(text, size) || (size >= sizeof magic && !memcmp(text, magic, sizeof magic));
}

gml_status gml_ipc_open(gml_lake *lake, const char *text, size_t size, gml_address *out,
                        char *reason, size_t reason_bytes) {
    ending end;
    size_t count = 0;
    char why[GML_REASON_BYTES];
    gml_shared_piece *pieces = NULL;
    if (!is_whole(text, size)) {
        return fail(GML_INVALID_ARGUMENT, reason, reason_bytes,
                    "this is no text by which a tensor is shared");
    }
    memcpy(&end, text + size - sizeof end, sizeof end);
    gml_status status = gml_courier_fetch(&end.ticket, &pieces, &count, why, sizeof why);
    if (status != GML_OK) {
        (void)snprintf(reason, reason_bytes,
                       "memory of process %lld cannot be opened: %s; what is made outside of "
                       "gmlake.enabled() is shared in another way",
                       (long long)end.process, why);
        return status;
    }
    status = gml_lake_import(lake, pieces, count, out);
    if (status != GML_OK) {
        gml_lake_reason(lake, reason, reason_bytes);
    }
    for (size_t i = 0; i < count; i++) {
        (void)close(pieces[i].file);
    }
    free(pieces);
    return status;
}
