/* A bit for each file. It is set after the file was opened, and cleared before it is closed, so
 * that a child never closes one of the program's. */
#include "driver/kept_files.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <unistd.h>

enum { WORDS = 1024, WORD_BITS = 64, MOST_FILES = WORDS * WORD_BITS };

static _Atomic uint64_t words[WORDS]; /* files above are inherited */
static _Atomic uint64_t count;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void close_in_child(void) {
    for (int i = 0; i < WORDS; i++) {
        uint64_t left = atomic_exchange(&words[i], 0);
        for (; left; left &= left - 1) {
            (void)close(i * WORD_BITS + __builtin_ctzll(left));
        }
    }
    atomic_store(&count, 0);
}

static void watch_forks(void) {
    (void)pthread_atfork(NULL, NULL, close_in_child); /* without host memory: they are inherited */
}

size_t gml_kept_files_room(void) {
    struct rlimit files;
    uint64_t kept = atomic_load(&count);
    bool has_room = getrlimit(RLIMIT_NOFILE, &files) == 0 && kept < files.rlim_cur / 2;
    return has_room ? (size_t)(files.rlim_cur / 2 - kept) : 0;
}

void gml_kept_files_add(int file) {
    (void)pthread_once(&once, watch_forks);
    atomic_fetch_add(&count, 1);
    if (file < MOST_FILES) {
        atomic_fetch_or(&words[file / WORD_BITS], UINT64_C(1) << file % WORD_BITS);
    }
}

void gml_kept_files_close(int file) {
    if (file < MOST_FILES) {
        atomic_fetch_and(&words[file / WORD_BITS], ~(UINT64_C(1) << file % WORD_BITS));
    }
    atomic_fetch_sub(&count, 1);
    (void)close(file);
}
