/* The clock that durations are measured with, and a counter that costs less to read. */
#ifndef GML_BASE_CLOCK_H
#define GML_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* CLOCK_MONOTONIC; 0 if the clock cannot be read. */
static inline uint64_t gml_clock_ns(void) {
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) {
        return 0;
    }
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* The same of CLOCK_REALTIME. */
static inline uint64_t gml_wall_clock_ns(void) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) {
        return 0;
    }
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Whether the processor has a counter that runs at one speed in all states of its cores. */
bool gml_has_counter(void);

/* The counter, in an unspecified unit (calibrate with gml_clock_ns()); gml_clock_ns() without a
 * counter. Not ordered with surrounding code: a reading may be some ns early. has_counter: the
 * result of gml_has_counter(). */
static inline uint64_t gml_ticks(bool has_counter) {
    if (has_counter) {
#if defined(__x86_64__)
        return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
        uint64_t ticks;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
        return ticks;
#endif
    }
    return gml_clock_ns();
}

#endif
