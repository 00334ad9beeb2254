/* Virtual memory that can sleep: its physical part goes back to the device, its addresses stay.
 *
 * The wrapper hands out handles of its own, and knows for each which memory is behind it and where
 * that is mapped. So all of it can be unmapped and released, and made and mapped anew, below
 * whoever uses it. What malloc gives is mapped memory too, and sleeps like the rest.
 *
 * Asleep, memory can be unmapped and released, which makes no call where there is nothing behind
 * it. Taking more is refused with GML_UNSUPPORTED.
 */
#ifndef GML_DRIVER_SLEEPER_H
#define GML_DRIVER_SLEEPER_H

#include "driver/driver.h"

typedef struct gml_sleeper gml_sleeper;

/* Puts the wrapper around *driver, which must have virtual memory that is no arena; without it
 * GML_UNSUPPORTED. The wrapper closes the inner driver. */
gml_status gml_sleeper_open(gml_driver **driver, gml_sleeper **out);

/* Gives all physical memory back. Nothing may use it any more: the caller has waited for the
 * device. Where a mapping cannot be ended, or another process maps the memory, everything is as
 * before. What the device does not take back stays, and is counted in *kept_bytes. Calls count for
 * `counted`, which is this wrapper or one around it. pre: awake */
gml_status gml_sleeper_sleep(gml_sleeper *sleeper, gml_driver *counted, uint64_t *released_bytes,
                             uint64_t *kept_bytes);

/* Takes memory again and maps it where it was; what it holds is anything. On failure it is asleep
 * as before. pre: asleep */
gml_status gml_sleeper_wake(gml_sleeper *sleeper, gml_driver *counted);

bool gml_sleeper_is_asleep(const gml_sleeper *sleeper);

#endif
