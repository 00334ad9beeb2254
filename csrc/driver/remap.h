/* Virtual memory that can sleep: physical memory is released, addresses stay reserved.
 *
 * The wrapper hands out its own handles, and records the memory behind each and where it is mapped.
 * So all memory can be unmapped and released, and created and mapped again, transparently to its
 * users. malloc returns mapped memory too, which sleeps like the rest; free waits for the device.
 *
 * The memory behind a handle and the state of each mapping are recorded after each successful
 * driver call, and nowhere else. Sleeping and waking are loops over those records that make the
 * missing calls, so after a failure the same loop resumes.
 *
 * While asleep, memory can be unmapped and released, without a call if nothing is behind it. Taking
 * more fails with GML_UNSUPPORTED. Copies that a failure left running are waited for before their
 * memory is released.
 */
#ifndef GML_DRIVER_REMAP_H
#define GML_DRIVER_REMAP_H

#include "driver/driver.h"

typedef struct gml_remapper gml_remapper;

/* Puts the wrapper around *driver, which must have virtual memory and be no arena; else
 * GML_UNSUPPORTED. The wrapper closes the inner driver. */
gml_status gml_remapper_open(gml_driver **driver, gml_remapper **out);

/* Unmaps the mappings that end at or below `below`, and releases each piece of memory with its last
 * mapping; UINT64_MAX: all, once no copy is running. Memory that the driver refuses to release
 * stays, and is counted in *kept_bytes. Nothing may use it any more. With `releases_last` nothing
 * is released before all mappings have ended.
 *
 * It is asleep from the first such call on, also after a failure, which leaves the rest unchanged:
 * gml_remapper_wake() undoes it. Calls count for `counted`, which is this wrapper or one around it.
 * The sums are added to. */
gml_status gml_remapper_sleep(gml_remapper *remapper, gml_driver *counted, gml_address below,
                              bool releases_last, uint64_t *released_bytes, uint64_t *kept_bytes);

/* Told that everything below an address is there again, to copy into it; last with UINT64_MAX, to
 * wait for those copies. A failure ends the waking. */
typedef struct gml_remapper_watch {
    gml_status (*mapped)(void *context, gml_address below);
    void *context;
} gml_remapper_watch;

/* Allocates missing memory, and restores missing mappings and access, from low addresses to high
 * ones. Released memory is uninitialized until `watch` has copied. After a failure it is asleep,
 * and the memory taken is released as far as the driver allows; a later call resumes. */
gml_status gml_remapper_wake(gml_remapper *remapper, gml_driver *counted,
                             const gml_remapper_watch *watch);

/* Whether a mapped range still has its content from before the sleep: none of it was released. */
bool gml_remapper_holds(const gml_remapper *remapper, gml_address address, uint64_t size_bytes);

/* The end of the mapping that an address lies in, mapped now or after the wake; 0: in none. */
gml_address gml_remapper_mapping_end(const gml_remapper *remapper, gml_address address);

/* Whether a sleep has begun, and no wake has ended since. */
bool gml_remapper_is_asleep(const gml_remapper *remapper);

#endif
