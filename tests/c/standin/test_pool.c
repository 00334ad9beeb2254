/* Stream-ordered memory: when a block may be used again, what a pool holds, and misuse. */
#include "support.h"

int main(void) {
    return run_cases("eager", false);
}
