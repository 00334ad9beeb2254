/* Counts forks, so that a child recognises inherited objects. */
#include "core.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int failure;
static unsigned forks; /* written in a child that has one thread */

static void count_fork(void) {
    forks++;
}

static void begin(void) {
    failure = pthread_atfork(NULL, NULL, count_fork);
}

int watch_forks(void) {
    (void)pthread_once(&once, begin);
    if (failure) {
        PyErr_SetString(PyExc_MemoryError, "the process cannot watch its forks");
        return -1;
    }
    return 0;
}

unsigned count_forks(void) {
    return forks;
}
