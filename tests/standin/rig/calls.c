/* What was called how often, and what was wrong: kept for the report of the process. */
#include "control.h"
#include "standin.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static _Atomic(standin_call *) called; /* newest first; calls are never removed */
static atomic_ullong misuses;

void
standin_count(standin_call *call)
{
    if (atomic_fetch_add_explicit(&call->count, 1, memory_order_relaxed) != 0) {
        return;
    }
    standin_call *next = atomic_load(&called);
    /* A call whose count was reset is on the list already. */
    for (const standin_call *other = next; other; other = other->next) {
        if (other == call) {
            return;
        }
    }
    do {
        call->next = next;
    } while (!atomic_compare_exchange_weak(&called, &next, call));
}

void
standin_count_unanswered(standin_call *call, bool is_known)
{
    bool is_first = atomic_load_explicit(&call->count, memory_order_relaxed) == 0;
    standin_count(call);
    if (is_first && !is_known) {
        fprintf(stderr, "gmlake stand-in: %s has no behaviour here\n", call->name);
    }
}

void
standin_misuse(const char *format, ...)
{
    char line[400];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    atomic_fetch_add(&misuses, 1);
    fprintf(stderr, "gmlake stand-in: misuse: %s\n", line);
    if (standin_settings_get()->aborts_on_misuse) {
        abort();
    }
}

uint64_t
gmlake_standin_misuses(void)
{
    return atomic_load(&misuses);
}

uint64_t
gmlake_standin_calls(uint64_t index, const char **name)
{
    const standin_call *call = atomic_load(&called);
    while (call && index > 0) {
        call = call->next;
        index--;
    }
    *name = call ? call->name : NULL;
    return call ? atomic_load(&call->count) : 0;
}

void
gmlake_standin_reset_calls(void)
{
    for (standin_call *call = atomic_load(&called); call; call = call->next) {
        atomic_store(&call->count, 0);
    }
}

void
standin_forget_counts(void)
{
    gmlake_standin_reset_calls();
    atomic_store(&misuses, 0);
}

/* A process that forked writes one report for itself and one for each child. */
static void __attribute__((destructor))
write_report(void)
{
    char path[4096];
    const char *folder = standin_settings_get()->report_folder;
    if (!folder || !atomic_load(&called)) {
        return;
    }
    (void)snprintf(path, sizeof path, "%s/%ld.calls", folder, (long)getpid());
    FILE *file = fopen(path, "w");
    if (!file) {
        fprintf(stderr, "gmlake stand-in: cannot write %s: %m\n", path);
        return;
    }
    fprintf(file, "misuses %llu\n", (unsigned long long)gmlake_standin_misuses());
    for (const standin_call *call = atomic_load(&called); call; call = call->next) {
        fprintf(file, "%s %llu\n", call->name, (unsigned long long)atomic_load(&call->count));
    }
    (void)fclose(file);
}
