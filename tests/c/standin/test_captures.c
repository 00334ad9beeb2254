/* Captures: where they begin and end, what breaks one, and what one forbids to whom. */
#include "stream_fixture.h"

#include <pthread.h>

int main(void) {
    return run_cases("eager", true);
}
