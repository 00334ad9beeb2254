/* Plain and page-locked memory: giving, taking back, what an address is, and misuse. */
#include "support.h"

int main(void) {
    return run_cases("eager", false);
}
