/* Functions of the host that came to their turn in a stream, and run without the lock.
 *
 * They run in the order of their turns, one at a time, on whichever thread left the lock first; a
 * thread that has synchronised waits until those before have run. Work that follows such a function
 * in its stream may be done before the function has run: a function that fills the source of a
 * later copy of the same stream needs the eager pace.
 */
#include "standin/streams/queue.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct host_call {
    struct host_call *next;
    void (*function)(void *);
    void *argument;
} host_call;

/* Not the lock of standin_enter(): guards the list and `is_running`. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_run = PTHREAD_COND_INITIALIZER;
static host_call *first, *last;
static bool is_running; /* a thread is at it */

/* Written with the lock held. Atomic, for the many calls that find nothing to do. */
static atomic_ullong queued, ran;

static _Thread_local unsigned long long awaited; /* what `ran` must reach */
static _Thread_local bool is_inside;             /* this thread runs such a function */

void standin_queue_host_function(void (*function)(void *), void *argument) {
    host_call *added = standin_new(sizeof *added);
    *added = (host_call){.function = function, .argument = argument};
    (void)pthread_mutex_lock(&lock);
    if (last) {
        last->next = added;
    } else {
        first = added;
    }
    last = added;
    atomic_fetch_add(&queued, 1);
    (void)pthread_mutex_unlock(&lock);
}

void standin_await_host_functions(void) {
    awaited = atomic_load(&queued);
}

/* With the lock held, which is given back around each function. */
static void run_all(void) {
    is_running = true;
    is_inside = true;
    while (first) {
        host_call *next = first;
        first = next->next;
        if (!first) {
            last = NULL;
        }
        (void)pthread_mutex_unlock(&lock);
        next->function(next->argument);
        free(next);
        (void)pthread_mutex_lock(&lock);
        atomic_fetch_add(&ran, 1);
        (void)pthread_cond_broadcast(&has_run);
    }
    is_inside = false;
    is_running = false;
}

void standin_run_host_functions(void) {
    /* A function that calls CUDA, which it must not, is not to wait for itself. */
    if (is_inside || atomic_load(&queued) == atomic_load(&ran)) {
        return;
    }
    (void)pthread_mutex_lock(&lock);
    if (!is_running) {
        run_all();
    }
    while (atomic_load(&ran) < awaited) {
        (void)pthread_cond_wait(&has_run, &lock);
    }
    (void)pthread_mutex_unlock(&lock);
}

/* Whatever thread ran them, and held the lock, is not in this process; the list is given up, for it
 * may be half changed. */
void standin_forget_host_functions(void) {
    (void)pthread_mutex_init(&lock, NULL);
    (void)pthread_cond_init(&has_run, NULL);
    first = last = NULL;
    is_running = is_inside;
    awaited = 0;
    atomic_store(&ran, atomic_load(&queued) - is_inside); /* the one that forked goes on */
}
