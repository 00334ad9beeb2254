/* Counters in shared memory, under a sequence lock: the writer never waits for a reader.
 *
 * Reading the policy's own counters costs more than a request, so they are updated rarely. The
 * lake's own counters are as of the last request.
 */
#include "lake/lake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_PAUSE_NS = 1000 * 1000 * 1000 };

/* A clock cheaper than the rest of a write, if the system has one. */
#ifdef CLOCK_REALTIME_COARSE
#define CHEAP_CLOCK CLOCK_REALTIME_COARSE
#else
#define CHEAP_CLOCK CLOCK_REALTIME
#endif

struct gml_counter_page {
    gml_published *shared;
    uint32_t *is_ours; /* 1 in a page that a child of fork() finds empty; NULL: ask for the pid */
    char *path;
    dev_t file_device;
    ino_t file_number;
};

static uint64_t cheap_clock_ns(void) {
    struct timespec now;
    return clock_gettime(CHEAP_CLOCK, &now) == 0
               ? (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec
               : 0;
}

/* Whether this process created the page, rather than a parent. */
static bool is_maker(const gml_counter_page *page) {
    return page->is_ours ? *page->is_ours != 0 : page->shared->pid == (uint32_t)getpid();
}

/* ---- writing --------------------------------------------------------------------------------- */

/* ThreadSanitizer does not know fences, and GCC says so; the readers are in other processes, which
 * it does not see either. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif

static void order_stores(void) {
    atomic_thread_fence(memory_order_release);
}

/* The reader has the matching fence: if it sees a value written between these two, it sees an odd
 * number, or a different one afterwards. */
static void begin_write(gml_published *shared) {
    __atomic_store_n(&shared->sequence, shared->sequence + 1, __ATOMIC_RELAXED);
    order_stores();
}

static void end_write(gml_published *shared) {
    __atomic_store_n(&shared->sequence, shared->sequence + 1, __ATOMIC_RELEASE);
}

static uint64_t sum_of_calls(const gml_driver *driver) {
    uint64_t sum = 0;
    for (int call = 0; call < GML_CALL_COUNT; call++) {
        sum += driver->calls[call];
    }
    return sum;
}

static void write_counts(gml_published *shared, const gml_lake *lake, uint64_t now_ns) {
    const gml_stats *stats = &lake->stats;
    shared->time_ns = now_ns;
    shared->live_blocks = stats->live_blocks;
    shared->live_bytes = stats->live_bytes;
    shared->requested_bytes = stats->requested_bytes;
    shared->reserved_bytes = gml_lake_reserved(lake);
    shared->peak_live_bytes = stats->peak_live_bytes;
    shared->peak_reserved_bytes = stats->peak_reserved_bytes;
    shared->allocations = stats->allocations;
    shared->frees = stats->frees;
    shared->driver_calls = sum_of_calls(lake->driver);
    shared->driver_time_ns = gml_driver_time_ns(lake->driver);
    memcpy(shared->states, stats->states, sizeof shared->states);
}

static void write_look(gml_published *shared, const gml_stats *stats, uint64_t now_ns) {
    shared->views = stats->views;
    shared->view_bytes = stats->view_bytes;
    shared->cross_stream_waits = stats->cross_stream_waits;
    shared->borrowed_bytes = stats->borrowed_bytes;
    shared->largest_free_bytes = stats->largest_free_bytes;
    shared->looked_ns = now_ns;
    shared->looked_free_bytes =
        stats->reserved_bytes > stats->live_bytes ? stats->reserved_bytes - stats->live_bytes : 0;
}

void gml_lake_publish_counters(gml_lake *lake, bool is_look) {
    gml_counter_page *page = lake->counter_page;
    if (!is_maker(page)) {
        return;
    }
    gml_published *shared = page->shared;
    uint64_t now_ns = cheap_clock_ns();
    is_look |= now_ns - shared->looked_ns >= LOOK_PAUSE_NS;
    gml_stats stats;
    if (is_look) {
        stats = gml_lake_complete_stats(lake);
    }
    begin_write(shared);
    write_counts(shared, lake, now_ns);
    if (is_look) {
        write_look(shared, &stats, now_ns);
    }
    end_write(shared);
}

/* ---- making and ending ----------------------------------------------------------------------- */

/* A page with a 1 that children do not inherit; NULL where the system has no such thing. */
static uint32_t *make_own_page(void) {
#ifdef MADV_WIPEONFORK
    void *page =
        mmap(NULL, sizeof(uint32_t), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return NULL;
    }
    if (madvise(page, sizeof(uint32_t), MADV_WIPEONFORK) == 0) {
        *(uint32_t *)page = 1;
        return page;
    }
    (void)munmap(page, sizeof(uint32_t));
#endif
    return NULL;
}

/* errno after a failure: never 0. */
static int last_error(void) {
    return errno ? errno : EIO;
}

/* Gives the file its size, in memory that is there when it is written to, and maps it. 0, or an
 * errno. */
static int map_file(gml_counter_page *page, int file) {
    struct stat about;
    int error = posix_fallocate(file, 0, sizeof *page->shared);
    if (error) {
        return error;
    }
    if (fstat(file, &about) != 0) {
        return last_error();
    }
    void *shared = mmap(NULL, sizeof *page->shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED) {
        return last_error();
    }
    page->shared = shared;
    page->file_device = about.st_dev;
    page->file_number = about.st_ino;
    return 0;
}

static int make_file(gml_counter_page *page) {
    if (page->path[0] != '/') {
        return EINVAL;
    }
    int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int file = open(page->path, flags, S_IRUSR | S_IWUSR);
    if (file < 0) {
        return last_error();
    }
    int error = map_file(page, file);
    if (error) {
        (void)unlink(page->path);
    }
    (void)close(file);
    return error;
}

/* Unlinks the file, unless another one has come in its place. */
static void unlink_file(const gml_counter_page *page) {
    struct stat about;
    if (lstat(page->path, &about) == 0 && about.st_dev == page->file_device &&
        about.st_ino == page->file_number) {
        (void)unlink(page->path);
    }
}

void gml_counter_page_close(gml_counter_page *page) {
    if (!page) {
        return;
    }
    if (page->shared) {
        if (is_maker(page)) {
            unlink_file(page);
        }
        (void)munmap(page->shared, sizeof *page->shared);
    }
    if (page->is_ours) {
        (void)munmap(page->is_ours, sizeof *page->is_ours);
    }
    free(page->path);
    free(page);
}

/* 0, or an errno. */
static int open_page(const char *path, gml_counter_page **out) {
    gml_counter_page *page = calloc(1, sizeof *page);
    int error = page ? 0 : ENOMEM;
    if (!error) {
        page->path = strdup(path);
        error = page->path ? make_file(page) : ENOMEM;
    }
    if (error) {
        gml_counter_page_close(page);
        return error;
    }
    page->is_ours = make_own_page();
    *out = page;
    return 0;
}

/* The magic last: before it, a reader takes the file for none of ours. */
static void begin_page(const gml_lake *lake) {
    gml_published *shared = lake->counter_page->shared;
    shared->version = GML_PUBLISHED_VERSION;
    shared->size_bytes = sizeof *shared;
    shared->pid = (uint32_t)getpid();
    shared->device = lake->device;
    shared->start_ns = cheap_clock_ns();
}

static bool is_little_endian(void) {
    const uint32_t one = 1;
    return *(const unsigned char *)&one == 1;
}

gml_status gml_lake_publish(gml_lake *lake, const char *path) {
    gml_counter_page *page = NULL;
    int error = 0;
    if (path) {
        if (!is_little_endian()) {
            return GML_UNSUPPORTED;
        }
        error = open_page(path, &page);
    }
    if (error) {
        errno = error;
        return error == ENOMEM ? GML_NO_HOST_MEMORY : GML_INVALID_ARGUMENT;
    }
    pthread_mutex_lock(&lake->lock);
    gml_counter_page *before = lake->counter_page;
    lake->counter_page = page;
    if (page) {
        begin_page(lake);
        gml_lake_publish_counters(lake, true);
        order_stores();
        memcpy(page->shared->magic, GML_PUBLISHED_MAGIC, sizeof page->shared->magic);
    }
    pthread_mutex_unlock(&lake->lock);
    gml_counter_page_close(before);
    return GML_OK;
}
