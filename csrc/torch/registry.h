/* The lakes of this process, one per device, and one more for each region there; how they are
 * opened.
 *
 * A lake has a number: that of its device, or one from GML_TORCH_DEVICES on for that of a region.
 *
 * Locks: the registry's own guards everything; the lakes' pointers are read without it. It is taken
 * before the lock of any lake, and held while a lake is opened.
 */
#ifndef GML_TORCH_REGISTRY_H
#define GML_TORCH_REGISTRY_H

#include "gmlake_torch.h"

/* The lake of a device, opened if need be. On failure `reason` holds one line. */
gml_status gml_registry_open(int device, gml_lake **out, char *reason, size_t reason_bytes);

/* The same for the lake that serves this thread there: the device's, or that of the region that the
 * thread is in. */
gml_status gml_registry_open_serving(int device, gml_lake **out, char *reason, size_t reason_bytes);

/* Its number; -1 while it is not open. Hot: every request asks. */
int gml_registry_serving(int device);

/* Whether this thread is in a region that takes the memory of graphs. */
bool gml_registry_takes_graphs(void);

/* State shared by the lakes of a device, whether or not any is open. */
gml_device *gml_registry_device(int device);

/* Opens the memory of a lake, which is that device's, to every device that can reach it. */
void gml_registry_grant_all(gml_lake *lake, int device);

/* The most that the lakes of a device may hold together, as configured; 0: all that it has. */
uint64_t gml_registry_capacity(void);

/* The number of the first open lake after `number`, which is -1 at first; -1: none. Those of
 * devices come before those of regions. */
int gml_registry_next(int number);

/* The most that the device's lakes may hold together, as a fraction of the device's memory; 1 or
 * more: all. Remembered if none is open yet. A no-op for an invalid fraction or device. */
void gml_registry_limit(int device, double fraction);

#endif
