/* Texts by which processes open each other's memory. */
#include "torch/ipc.h"

#include "base/status.h"
#include "driver/driver.h"
#include "torch/answering.h"
#include "torch/letters.h"

#include <errno.h>
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

static const char magic[8] = "gmlake:3";

enum { FETCH_MS = 60000, MOST_PIECES = 1 << 20 };

/* The end of every text, and all of some. PyTorch ignores anything after its own part. */
typedef struct ending {
    char magic[sizeof magic];
    uint64_t group;         /* of who answers; see gml_answer_about_blocks() */
    uint64_t address, mark; /* of the block; see gml_lake_lend() */
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
    int error = gml_answer_about_blocks(&end.group);
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
    end.address = address;
    end.mark = about.mark;
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

/* Adds the files of a letter to the pieces, of which there is room for what follows, too. */
static bool add_pieces(const gml_letter *letter, const int *files, gml_shared_piece **pieces,
                       size_t *count) {
    size_t most = *count + letter->count + letter->bytes;
    gml_shared_piece *grown =
        letter->bytes <= MOST_PIECES ? realloc(*pieces, (most + 1) * sizeof *grown) : NULL;
    *pieces = grown ? grown : *pieces;
    for (uint32_t i = 0; i < letter->count; i++) {
        if (grown) {
            (*pieces)[*count] = (gml_shared_piece){files[i], letter->rest.sizes[i]};
            (*count)++;
        } else {
            (void)close(files[i]);
        }
    }
    errno = grown ? EMFILE : ENOMEM; /* why less may have come than was sent */
    return grown && letter->count && !letter->lost;
}

/* Asks who shared the block for its files: all of them, or none and `why` says it. */
static void fetch(const ending *end, gml_shared_piece **pieces, size_t *count, char *why,
                  size_t why_bytes) {
    char name[GML_LETTER_NAME_BYTES];
    pid_t process = 0;
    gml_letter letter = {.kind = GML_LETTER_FETCH, .address = end->address, .mark = end->mark};
    int files[GML_LETTER_MOST_FILES];
    gml_letter_name(name, end->group, 0);
    int socket = gml_letter_connect(name, &process);
    bool goes_on = socket >= 0 && gml_letter_send(socket, &letter, NULL);
    letter.bytes = 1;
    while (goes_on && letter.bytes) {
        goes_on = gml_letter_await(socket, &letter, files, FETCH_MS) &&
                  letter.kind != GML_LETTER_REFUSED && add_pieces(&letter, files, pieces, count);
    }
    int error = errno;
    gml_letter_close(socket);
    if (goes_on) {
        return;
    }
    while (*count) {
        (void)close((*pieces)[--*count].file);
    }
    letter.rest.text[sizeof letter.rest.text - 1] = '\0';
    (void)snprintf(why, why_bytes, "%s",
                   letter.kind == GML_LETTER_REFUSED ? letter.rest.text
                   : error == ECONNREFUSED ? "it has ended, or runs in another network namespace"
                   : error == EMFILE ? "this process may open no more files; raise `ulimit -n`"
                                     : strerror(error)); /* NOLINT(concurrency-mt-unsafe) */
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
    fetch(&end, &pieces, &count, why, sizeof why);
    if (!count) {
        free(pieces);
        (void)snprintf(reason, reason_bytes,
                       "memory of process %lld cannot be opened: %s; what is made outside of "
                       "gmlake.enabled() is shared in another way",
                       (long long)end.process, why);
        return GML_DRIVER_FAILED;
    }
    gml_status status = gml_lake_import(lake, pieces, count, out);
    if (status != GML_OK) {
        gml_lake_reason(lake, reason, reason_bytes);
    }
    for (size_t i = 0; i < count; i++) {
        (void)close(pieces[i].file);
    }
    free(pieces);
    return status;
}
