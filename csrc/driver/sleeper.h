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

/* Whether another process may map some of it, so that it must not sleep. */
bool gml_sleeper_is_exported(const gml_sleeper *sleeper);

/* Ends the mappings that end at `below` or before it, and with the last mapping of a piece of
 * memory gives that back; UINT64_MAX: all, and from then on it is asleep. What the device does not
 * take back stays, and is counted in *kept_bytes. Nothing may use that memory any more. With
 * `keeps_content` nothing is given back before all mappings have ended.
 *
 * A failure leaves some of it as it was: gml_sleeper_wake() undoes the rest. Calls count for
 * `counted`, which is this wrapper or one around it. The sums are added to. */
gml_status gml_sleeper_sleep(gml_sleeper *sleeper, gml_driver *counted, gml_address below,
                             bool keeps_content, uint64_t *released_bytes, uint64_t *kept_bytes);

/* Somebody who wants to know that everything below an address is mapped. */
typedef struct gml_sleeper_watch {
    gml_status (*mapped)(void *context, gml_address below); /* a failure ends the waking */
    void *context;
} gml_sleeper_watch;

/* Takes the memory again that is missing, and maps it where it was, from low addresses to high
 * ones. What it holds is anything. `watch` may be NULL. After a failure what was missing is missing
 * as before, it is asleep, and the device has been waited for. */
gml_status gml_sleeper_wake(gml_sleeper *sleeper, gml_driver *counted,
                            const gml_sleeper_watch *watch);

bool gml_sleeper_is_asleep(const gml_sleeper *sleeper);

#endif
