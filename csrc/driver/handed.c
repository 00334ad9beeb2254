/* A bit for each kept file, and an array of pieces, the last one first. */
#include "driver/handed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- kept files ------------------------------------------------------------------------------ */

/* A bit is set after its file was opened, and cleared before it is closed, so that a child never
 * closes one of the program's. */
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

/* ---- what was handed over -------------------------------------------------------------------- */

static void set_bytes(gml_handed *handed, uint64_t bytes) {
    __atomic_store_n(&handed->bytes, bytes, __ATOMIC_RELAXED);
}

static gml_shared_piece remove_at(gml_handed *handed, size_t index) {
    gml_shared_piece removed = handed->pieces[index];
    handed->count--;
    handed->pieces[index] = handed->pieces[handed->count];
    set_bytes(handed, handed->bytes - removed.size_bytes);
    return removed;
}

/* Closes the file where there is no room. */
static void put(gml_handed *handed, gml_shared_piece piece) {
    pthread_mutex_lock(&handed->lock);
    bool has_room = handed->count < GML_HANDED_MOST;
    if (has_room) {
        handed->pieces[handed->count] = piece;
        handed->count++;
        set_bytes(handed, handed->bytes + piece.size_bytes);
    }
    pthread_mutex_unlock(&handed->lock);
    if (!has_room) {
        gml_kept_files_close(piece.file);
    }
}

void gml_handed_add(gml_handed *handed, gml_shared_piece piece) {
    gml_kept_files_add(piece.file);
    put(handed, piece);
}

int gml_handed_take(gml_handed *handed, uint64_t size_bytes) {
    int file = -1;
    pthread_mutex_lock(&handed->lock);
    for (size_t i = handed->count; i-- && file < 0;) {
        if (handed->pieces[i].size_bytes == size_bytes) {
            file = remove_at(handed, i).file;
        }
    }
    pthread_mutex_unlock(&handed->lock);
    return file;
}

uint64_t gml_handed_move(gml_handed *from, gml_handed *to, uint64_t wanted_bytes) {
    uint64_t moved_bytes = 0;
    gml_shared_piece piece = {-1, 0};
    do {
        pthread_mutex_lock(&from->lock);
        bool is_any = from->count && moved_bytes < wanted_bytes;
        piece = is_any ? remove_at(from, from->count - 1) : (gml_shared_piece){-1, 0};
        pthread_mutex_unlock(&from->lock);
        if (is_any) {
            put(to, piece);
            moved_bytes += piece.size_bytes;
        }
    } while (piece.file >= 0);
    return moved_bytes;
}

uint64_t gml_handed_drop(gml_handed *handed) {
    if (!handed) {
        return 0;
    }
    pthread_mutex_lock(&handed->lock);
    uint64_t dropped_bytes = handed->bytes;
    while (handed->count) {
        gml_kept_files_close(remove_at(handed, handed->count - 1).file);
    }
    pthread_mutex_unlock(&handed->lock);
    return dropped_bytes;
}

void gml_handed_forget(gml_handed *handed) {
    (void)pthread_mutex_init(&handed->lock, NULL);
    handed->count = 0;
    set_bytes(handed, 0);
}
