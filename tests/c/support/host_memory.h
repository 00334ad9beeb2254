/* The host's memory, counted, and refused one piece at a time. Defines the C library's functions,
 * so that a program includes it in one place. Only one thread is ever refused anything. */
#ifndef GML_TEST_HOST_MEMORY_H
#define GML_TEST_HOST_MEMORY_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static atomic_int_least64_t host_pieces; /* taken and not given back */
static uint64_t asked, refused_one;      /* how often while it is armed; which time it is refused */
static uint64_t refused_from;            /* from which time on it is refused; 0: never */
static uint64_t refusals;                /* so far */
static atomic_bool is_armed;
static volatile bool is_looking; /* the compiler takes it that dlsym() calls none of these */

/* These stand before those of the C library, also for a library that this program is linked to. */
void *malloc(size_t size_bytes);
void *calloc(size_t count, size_t size_bytes);
void *realloc(void *memory, size_t size_bytes);
void free(void *memory);

/* dlsym() may ask for memory itself and gets none; what it gives back is lost. */
static void *look_up(const char *name) {
    is_looking = true;
    void *found = dlsym(RTLD_NEXT, name);
    is_looking = false;
    return found;
}

static bool is_refused(void) {
    if (!atomic_load_explicit(&is_armed, memory_order_relaxed)) {
        return false;
    }
    asked++;
    bool is_turn = asked == refused_one || (refused_from && asked >= refused_from);
    refusals += is_turn;
    return is_turn;
}

static void *note(void *memory) {
    atomic_fetch_add_explicit(&host_pieces, memory != NULL, memory_order_relaxed);
    return memory;
}

/* Before there is a second thread. */
__attribute__((constructor)) static void look_all_up(void) {
    void *(*volatile take)(size_t) = malloc;
    void *(*volatile take_cleared)(size_t, size_t) = calloc;
    void *(*volatile move)(void *, size_t) = realloc;
    free(move(take(1), 2));
    free(take_cleared(1, 1));
}

void *malloc(size_t size_bytes) {
    static void *(*next)(size_t);
    if (is_looking || is_refused()) {
        return NULL;
    }
    if (!next) {
        *(void **)&next = look_up("malloc");
    }
    return note(next(size_bytes));
}

void *calloc(size_t count, size_t size_bytes) {
    static void *(*next)(size_t, size_t);
    if (is_looking || is_refused()) {
        return NULL;
    }
    if (!next) {
        *(void **)&next = look_up("calloc");
    }
    return note(next(count, size_bytes));
}

void *realloc(void *memory, size_t size_bytes) {
    static void *(*next)(void *, size_t);
    if (is_looking || is_refused()) {
        return NULL;
    }
    if (!next) {
        *(void **)&next = look_up("realloc");
    }
    void *moved = next(memory, size_bytes);
    return memory ? moved : note(moved);
}

void free(void *memory) {
    static void (*next)(void *);
    if (is_looking) {
        return;
    }
    if (!next) {
        *(void **)&next = look_up("free");
    }
    atomic_fetch_sub_explicit(&host_pieces, memory != NULL, memory_order_relaxed);
    next(memory);
}

#endif
