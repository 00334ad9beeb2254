/* What was called how often, and what was wrong.
 *
 * Where a report is wanted the counts live in a mapped file, so that nothing is lost however a
 * process ends: by a signal, by _exit(), or by becoming another program.
 */
#include "standin/harness/control.h"
#include "standin/standin.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MOST_CALLS = 2047 }; /* more than a program calls; what comes after them is "others" */

/* One line of a report, as launcher.py reads it. */
typedef struct entry {
    char name[56];
    atomic_ullong count;
} entry;

typedef struct report {
    char format[56];
    atomic_ullong misuses;
    entry entries[MOST_CALLS];
} report;

static const char FORMAT[] = "gmlake stand-in report 1";

static report unreported;
static report *counts = &unreported; /* fixed once `once` was run, but for forks */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_uint used;
static atomic_ullong forgotten[MOST_CALLS]; /* by the last reset; control.c shows the rest */

/* A new file of the report folder, of the size of a report; negative: none. */
static int open_report(const char *folder) {
    char path[4096];
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    (void)snprintf(path, sizeof path, "%s/%ld-%lld%09ld.calls", folder, (long)getpid(),
                   (long long)now.tv_sec, now.tv_nsec);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file >= 0 && ftruncate(file, sizeof(report)) != 0) {
        (void)close(file);
        file = -1;
    }
    if (file < 0) {
        fprintf(stderr, "gmlake stand-in: cannot write %s: %m\n", path);
    }
    return file;
}

/* A report in a file, at `place` or anywhere if that is NULL; NULL where there is none. */
static report *map_report(report *place) {
    const char *folder = standin_settings_get()->report_folder;
    int file = folder ? open_report(folder) : -1;
    if (file < 0) {
        return NULL;
    }
    int flags = place ? MAP_SHARED | MAP_FIXED : MAP_SHARED;
    void *mapped = mmap(place, sizeof(report), PROT_READ | PROT_WRITE, flags, file, 0);
    (void)close(file);
    return mapped == MAP_FAILED ? NULL : mapped;
}

static void begin_report(void) {
    report *mapped = map_report(NULL);
    if (mapped) {
        memcpy(mapped->format, FORMAT, sizeof FORMAT);
        counts = mapped;
    }
}

/* The entry of a call, made on its first. Two threads may each make one; the second stays empty. */
static entry *entry_of(standin_call *call) {
    unsigned place = atomic_load_explicit(&call->place, memory_order_acquire);
    (void)pthread_once(&once, begin_report);
    if (place == 0) {
        unsigned expected = 0;
        place = atomic_fetch_add(&used, 1) + 1;
        place = place < MOST_CALLS ? place : MOST_CALLS;
        if (!atomic_compare_exchange_strong(&call->place, &expected, place)) {
            place = expected;
        } else {
            (void)snprintf(counts->entries[place - 1].name, sizeof counts->entries[0].name, "%s",
                           place < MOST_CALLS ? call->name : "others");
        }
    }
    return &counts->entries[place - 1];
}

static _Thread_local const char *current_call = "nothing";

const char *standin_current_call(void) {
    return current_call;
}

void standin_count(standin_call *call) {
    current_call = call->name;
    atomic_fetch_add_explicit(&entry_of(call)->count, 1, memory_order_relaxed);
}

void standin_count_unanswered(standin_call *call, bool is_known) {
    if (atomic_fetch_add(&entry_of(call)->count, 1) == 0 && !is_known) {
        fprintf(stderr, "gmlake stand-in: %s has no behaviour here\n", call->name);
    }
}

void standin_misuse(const char *format, ...) {
    char line[400];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    (void)pthread_once(&once, begin_report);
    atomic_fetch_add(&counts->misuses, 1);
    fprintf(stderr, "gmlake stand-in: misuse: %s\n", line);
    if (standin_settings_get()->aborts_on_misuse) {
        abort();
    }
}

/* A forked child has a report of its own, in place of the one that it shares with its parent. Where
 * nothing was counted yet, the first call begins one. */
void standin_forget_counts(void) {
    static report kept; /* too large for the stack; a child has one thread */
    if (atomic_load(&used) == 0) {
        return;
    }
    memcpy(&kept, counts, sizeof kept);
    report *mapped = map_report(counts == &unreported ? NULL : counts);
    counts = mapped ? mapped : &unreported;
    memcpy(counts, &kept, sizeof kept);
    memcpy(counts->format, FORMAT, sizeof FORMAT);
    atomic_store(&counts->misuses, 0);
    for (size_t i = 0; i < MOST_CALLS; i++) {
        atomic_store(&counts->entries[i].count, 0);
        atomic_store(&forgotten[i], 0);
    }
}

uint64_t gmlake_standin_misuses(void) {
    return atomic_load(&counts->misuses);
}

uint64_t gmlake_standin_calls(uint64_t index, const char **name) {
    if (index >= MOST_CALLS || index >= atomic_load(&used)) {
        *name = NULL;
        return 0;
    }
    *name = counts->entries[index].name;
    return atomic_load(&counts->entries[index].count) - atomic_load(&forgotten[index]);
}

void gmlake_standin_reset_calls(void) {
    for (size_t i = 0; i < MOST_CALLS; i++) {
        atomic_store(&forgotten[i], atomic_load(&counts->entries[i].count));
    }
}
