/* Whether the counter of the processor can be trusted. */
#include "base/clock.h"

#if defined(__x86_64__)

#include <cpuid.h>

enum { POWER_LEAF = 0x80000007, INVARIANT_TSC = 1 << 8 };

bool gml_has_counter(void) {
    unsigned a, b, c, d;
    return __get_cpuid(POWER_LEAF, &a, &b, &c, &d) && (d & INVARIANT_TSC);
}

#elif defined(__aarch64__)

bool gml_has_counter(void) {
    return true; /* by the architecture */
}

#else

bool gml_has_counter(void) {
    return false;
}

#endif
