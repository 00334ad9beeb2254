/* What kernels really access, by patches of NVIDIA's Sanitizer API.
 *
 * Each launch marks in a table in device memory (table.h), which is read when the launch has ended:
 * launches follow one another. Objects of all devices are in it.
 */
#ifndef GML_DIAGNOSE_COLLECT_ACCESSES_H
#define GML_DIAGNOSE_COLLECT_ACCESSES_H

#include "diagnosis/collect/collector.h"
#include "diagnosis/collect/sanitizer.h"

typedef struct gml_access_options {
    uint64_t granule_bytes; /* of a counter, a power of two; 0: objects only, no bytes */
    uint64_t every;         /* each so-many-th launch of a kernel with the same objects */
} gml_access_options;

/* Subscribes. NULL, or the error. */
const char *gml_accesses_start(gml_collector *collector, const sanitizer_api *api,
                               gml_access_options options);

#endif
