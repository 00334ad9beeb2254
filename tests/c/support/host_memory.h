/* The host's memory, counted, and refused one piece at a time. Defines the C library's functions,
 * so that a program includes it in one place. */
#ifndef GML_TEST_HOST_MEMORY_H
#define GML_TEST_HOST_MEMORY_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static int64_t pieces;              /* taken and not given back */
static uint64_t asked, refused_one; /* how often since it was armed; which time it is refused */
static uint64_t refused_from;       /* from which time on it is refused; 0: never */
static bool is_armed;
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
    asked += is_armed;
    return is_armed && (asked == refused_one || (refused_from && asked >= refused_from));
}

static void *note(void *memory) {
    pieces += memory != NULL;
    return memory;
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
    pieces -= memory != NULL;
    next(memory);
}

#endif
