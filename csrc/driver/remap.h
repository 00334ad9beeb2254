/* Virtual memory that can sleep: its physical part goes back to the device, its addresses stay.
 *
 * The wrapper hands out handles of its own, and knows for each which memory is behind it and where
 * that is mapped. So all of it can be unmapped and released, and made and mapped anew, below
 * whoever uses it. What malloc gives is mapped memory too, and sleeps like the rest; free waits for
 * the device.
 *
 * What is behind a handle and how far each mapping is are noted after each call that the driver
 * took, and nowhere else. Sleeping and waking are loops over those notes that make the calls which
 * are missing, so after a failure the same loop goes on from where things are.
 *
 * Asleep, memory can be unmapped and released, which makes no call where there is nothing behind
 * it. Taking more is refused with GML_UNSUPPORTED. Copies that a failure left under way are waited
 * for before anything of theirs goes.
 */
#ifndef GML_DRIVER_REMAP_H
#define GML_DRIVER_REMAP_H

#include "driver/driver.h"

typedef struct gml_remapper gml_remapper;

/* Puts the wrapper around *driver, which must have virtual memory that is no arena; without it
 * GML_UNSUPPORTED. The wrapper closes the inner driver. */
gml_status gml_remapper_open(gml_driver **driver, gml_remapper **out);

/* Ends the mappings that end at `below` or before it, and with the last mapping of a piece of
 * memory gives that back; UINT64_MAX: all, once no copy is under way. What the device does not take
 * back stays, and is counted in *kept_bytes. Nothing may use that memory any more. With
 * `keeps_content` nothing is given back before all mappings have ended.
 *
 * It is asleep from the first such call on, also after a failure, which leaves the rest as it was:
 * gml_remapper_wake() undoes it. Calls count for `counted`, which is this wrapper or one around it.
 * The sums are added to. */
gml_status gml_remapper_sleep(gml_remapper *remapper, gml_driver *counted, gml_address below,
                              bool keeps_content, uint64_t *released_bytes, uint64_t *kept_bytes);

/* Told that everything below an address is there again, to copy into it; last with UINT64_MAX, to
 * wait for those copies. A failure ends the waking. */
typedef struct gml_remapper_watch {
    gml_status (*mapped)(void *context, gml_address below);
    void *context;
} gml_remapper_watch;

/* Takes the memory again that is missing, and maps and opens what is not, from low addresses to
 * high ones. What was given back holds anything until `watch` has copied. After a failure it is
 * asleep, and what was taken is given back as far as the driver lets it; a later call goes on from
 * there. */
gml_status gml_remapper_wake(gml_remapper *remapper, gml_driver *counted,
                             const gml_remapper_watch *watch);

/* Whether the memory of a mapped range still is what it was before the sleep: none of it was given
 * back. */
bool gml_remapper_holds(const gml_remapper *remapper, gml_address address, uint64_t size_bytes);

/* Whether a sleep has begun, and no wake has ended since. */
bool gml_remapper_is_asleep(const gml_remapper *remapper);

#endif
