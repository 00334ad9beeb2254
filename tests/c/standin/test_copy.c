/* Copies and fills: what moves and when, what the caller may change, and touching what is not
 * there. Without bytes, device memory reads as zeros, but for what was just copied to it. */
#include "support.h"

int main(void) {
    return run_cases("eager", false);
}
