/* Virtual memory of the driver API, on two devices: what is counted, what is shown, and which rules
 * are kept. Work happens only when something waits for it. */
#include "support.h"

#include <unistd.h>

int main(void) {
    return run_cases("manual", true);
}
