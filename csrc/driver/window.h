/* The driver `window`: all addresses that it reserves lie in one range, which begins where the user
 * says.
 *
 * The same reservations, made and ended in the same order, lie at the same addresses in every
 * process. The range is taken once and divided here, so that nothing else in the process comes
 * between. Plain memory (malloc) and the memory of other processes lie elsewhere.
 *
 * Several windows of one process lie side by side, GML_WINDOW_BYTES apart, in the order of opening.
 */
#ifndef GML_DRIVER_WINDOW_H
#define GML_DRIVER_WINDOW_H

#include "driver/driver.h"

#define GML_WINDOW_BYTES (UINT64_C(1) << 42)

/* Wraps *driver, which is the window's then. gml_driver.window_bytes tells policies.
 * GML_INVALID_ARGUMENT where `base` is not a multiple of the device's granularity or something lies
 * there already; GML_UNSUPPORTED for a device without virtual memory management. On failure *driver
 * is as it was, with a reason. */
gml_status gml_window_driver_open(gml_address base, gml_driver **driver);

#endif
