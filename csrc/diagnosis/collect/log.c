#include "diagnosis/collect/log.h"

#include "base/mix.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST_TEXT = 4096,
    MOST_FRAMES = 32,
    MOST_PENDING_MS = 50,
    LEAST_FILE = 128 /* the low numbers are the program's: some close or expect particular ones */
};

/* ---- the file -------------------------------------------------------------------------------- */

static bool write_all(int file, const void *data, size_t size_bytes) {
    const char *from = data;
    while (size_bytes > 0) {
        ssize_t written = write(file, from, size_bytes);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return false;
        }
        from += written;
        size_bytes -= (size_t)written;
    }
    return true;
}

/* A file that reaches the program's limit is the collector's loss, not the end of the program. */
static bool write_within_limit(int file, const void *data, size_t size_bytes) {
    sigset_t limit;
    sigset_t before;
    (void)sigemptyset(&limit);
    (void)sigaddset(&limit, SIGXFSZ);
    (void)pthread_sigmask(SIG_BLOCK, &limit, &before);
    errno = 0;
    bool is_written = write_all(file, data, size_bytes);
    if (!is_written && errno == EFBIG && sigismember(&before, SIGXFSZ) == 0) {
        (void)sigtimedwait(&limit, NULL, &(struct timespec){0, 0});
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_written;
}

static bool is_ours(const gml_log *log) {
    struct stat now;
    return log->file >= 0 && fstat(log->file, &now) == 0 && now.st_dev == log->device &&
           now.st_ino == log->inode;
}

static int create(const char *path) {
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int high = file < 0 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, LEAST_FILE);
    if (high < 0) {
        return file;
    }
    close(file);
    return high;
}

bool gml_log_open(gml_log *log, const char *path) {
    struct stat made;
    memset(log, 0, sizeof *log);
    log->file = create(path);
    if (log->file < 0) {
        return false;
    }
    gml_log_header header = {.magic = GML_LOG_MAGIC,
                             .order = GML_LOG_ORDER,
                             .record_bytes = sizeof(gml_log_record),
                             .process = (uint64_t)getpid()};
    if (fstat(log->file, &made) == 0 && write_within_limit(log->file, &header, sizeof header)) {
        log->device = made.st_dev;
        log->inode = made.st_ino;
        return true;
    }
    close(log->file);
    log->file = -1;
    return false;
}

void gml_log_drop(gml_log *log) {
    if (is_ours(log)) {
        close(log->file);
    }
    log->file = -1;
    log->count = 0;
}

void gml_log_flush(gml_log *log) {
    size_t size_bytes = log->count * sizeof *log->pending;
    if (log->count > 0 &&
        (!is_ours(log) || !write_within_limit(log->file, log->pending, size_bytes))) {
        gml_log_drop(log);
    }
    log->count = 0;
}

void gml_log_direct(gml_log *log) {
    gml_log_flush(log);
    log->is_direct = true;
}

void gml_log_end_call(gml_log *log) {
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    uint64_t milliseconds = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    if (milliseconds - log->flushed_ms >= MOST_PENDING_MS) {
        log->flushed_ms = milliseconds;
        gml_log_flush(log);
    }
}

void gml_log_add(gml_log *log, const gml_log_record *record) {
    log->pending[log->count++] = *record;
    if (log->is_direct || log->count == sizeof log->pending / sizeof *log->pending) {
        gml_log_flush(log);
    }
}

/* Adds bytes as records, the last one filled up with zeros. */
static void add_bytes(gml_log *log, const void *data, size_t size_bytes) {
    const char *from = data;
    while (size_bytes > 0) {
        gml_log_record record = {0};
        size_t part = size_bytes < sizeof record ? size_bytes : sizeof record;
        memcpy(&record, from, part);
        gml_log_add(log, &record);
        from += part;
        size_bytes -= part;
    }
}

/* ---- names and places ------------------------------------------------------------------------ */

/* Not 0, which the map keeps for itself. 64 bits: two texts of a program will not meet. */
static uint64_t hash(const void *data, size_t size_bytes) {
    const unsigned char *bytes = data;
    uint64_t value = size_bytes;
    for (size_t i = 0; i < size_bytes; i++) {
        value = gml_mix(value ^ bytes[i]) + i;
    }
    return value ? value : 1;
}

/* The number kept for a hash; `*is_new` where it was given just now; 0 without host memory. */
static uint32_t number_of(gml_map *map, uint64_t key, uint32_t *count, bool *is_new) {
    void *known = gml_map_find(map, key);
    *is_new = known == NULL;
    if (known) {
        return (uint32_t)(uintptr_t)known;
    }
    uint32_t number = *count + 1;
    if (gml_map_insert(map, key, (void *)(uintptr_t)number) != GML_OK) {
        *is_new = false;
        return 0;
    }
    *count = number;
    return number;
}

uint32_t gml_log_name(gml_log *log, const char *text) {
    if (!text) {
        return 0;
    }
    size_t length = strnlen(text, MOST_TEXT);
    bool is_new;
    uint32_t number = number_of(&log->names, hash(text, length), &log->name_count, &is_new);
    if (is_new) {
        gml_log_add(log,
                    &(gml_log_record){.kind = GML_LOG_NAME, .name = number, .size_bytes = length});
        add_bytes(log, text, length);
    }
    return number;
}

void gml_log_describe(gml_log_frame *frame, const void *address) {
    Dl_info info = {0};
    if (!dladdr(address, &info) || !info.dli_fname) {
        (void)snprintf(frame->text, sizeof frame->text, "?  %p", address);
        return;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    size_t offset = (size_t)((uintptr_t)address - (uintptr_t)info.dli_fbase);
    char library[96];
    (void)snprintf(library, sizeof library, "%s", slash ? slash + 1 : info.dli_fname);
    (void)snprintf(frame->text, sizeof frame->text, "%.384s  %s+0x%zx",
                   info.dli_sname ? info.dli_sname : "?", library, offset);
}

static uint64_t key_of(void *const *addresses, size_t count) {
    return hash(addresses, count * sizeof *addresses);
}

uint32_t gml_log_find_place(const gml_log *log, void *const *addresses, size_t count) {
    return (uint32_t)(uintptr_t)gml_map_find(&log->places, key_of(addresses, count));
}

uint32_t gml_log_place(gml_log *log, void *const *addresses, const gml_log_frame *frames,
                       size_t count) {
    uint32_t names[MOST_FRAMES];
    bool is_new;
    uint64_t key = key_of(addresses, count);
    uint32_t number = number_of(&log->places, key, &log->place_count, &is_new);
    if (!is_new) {
        return number;
    }
    count = count < MOST_FRAMES ? count : MOST_FRAMES;
    for (size_t i = 0; i < count; i++) {
        names[i] = gml_log_name(log, frames[i].text);
    }
    gml_log_add(log,
                &(gml_log_record){.kind = GML_LOG_PLACE, .place = number, .size_bytes = count});
    add_bytes(log, names, count * sizeof *names);
    return number;
}
