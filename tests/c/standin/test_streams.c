/* Streams, events and functions of the host: what is pending when, and what orders it. */
#include "stream_fixture.h"

#include <pthread.h>

int main(void) {
    return run_cases("eager", true);
}
