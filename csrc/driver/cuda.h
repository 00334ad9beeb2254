/* The driver `cuda`: one NVIDIA device through libcuda.so.1, found at run time. */
#ifndef GML_DRIVER_CUDA_H
#define GML_DRIVER_CUDA_H

#include "driver/driver.h"

/* Opens the device with that ordinal and retains its primary context. GML_DRIVER_ABSENT without a
 * usable library or device. */
gml_status gml_cuda_driver_open(int device, gml_driver **out, char *reason, size_t reason_bytes);

#endif
