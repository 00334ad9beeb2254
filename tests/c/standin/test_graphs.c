/* Graphs: what a capture makes, what a launch does, and what it finds missing. */
#include "stream_fixture.h"

int main(void) {
    return run_cases("eager", true);
}
