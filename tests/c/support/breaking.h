/* A driver whose calls fail by number, and whose copies are late: they happen when they are waited
 * for, as a device is free to do. Memory that goes before is a fault. To be quick, copies take one
 * byte in BREAKING_STRIDE_BYTES. */
#ifndef GML_TEST_BREAKING_H
#define GML_TEST_BREAKING_H

#include "lake/hooks.h"

enum { BREAKING_MOST = 3, BREAKING_STRIDE_BYTES = 1 << 16 };

/* For gml_lake_config.hooks. All calls go well at first. One lake at a time. */
extern const gml_lake_hooks breaking_hooks;

/* From now on calls are counted from 1, and those of these numbers fail, in rising order; 0: none.
 */
void breaking_begin(const uint64_t numbers[BREAKING_MOST]);

/* How many were made since, and how many of the numbers were among them. */
uint64_t breaking_made(void);
uint64_t breaking_struck(void);

/* Whether each call of that kind fails, besides. */
void breaking_refuse(gml_driver_call call, bool is_refused);

/* Memory that went before a copy of it was waited for. */
uint64_t breaking_faults(void);

#endif
