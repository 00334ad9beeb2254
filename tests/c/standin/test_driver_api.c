/* The driver API of the stand-in: look-ups, contexts, pointers, kernels and captures. Work
 * happens only when something waits for it. */
#include "support.h"

#include <pthread.h>

/* ---- kernels and captures -------------------------------------------------------------------- */

/* The map is refused with these words changed, and taken once they are as they were. */

int main(void) {
    return run_cases("manual", true);
}
