/* Finds libcuda.so.1 and every entry of GML_CUDA_ENTRIES in it. */
#ifndef GML_DRIVER_CUDA_LIBRARY_H
#define GML_DRIVER_CUDA_LIBRARY_H

#include "driver/cuda_api.h"
#include "gmlake.h"

/* GML_DRIVER_ABSENT, with one line in `reason`, if the library or an entry is missing. The library
 * stays loaded until the process ends: the driver has threads of its own in it. */
gml_status gml_cuda_library_load(gml_cuda_api *out, char *reason, size_t reason_bytes);

#endif
