/* Devices whose memory is the host's (DGX Spark, Jetson).
 *
 * Their driver goes on to take pages when the host has none left, and the machine hangs instead of
 * the request being refused; and it reports less free memory than there is, since it does not count
 * what the kernel would give back. Both are answered by what the kernel calls available.
 */
#include "base/size.h"
#include "driver/cuda_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The part of the memory that stays with the host's programs and the kernel. */
enum { HOST_PART = 32 };

/* The bytes that /proc/meminfo calls available; all there are if it does not say. */
static uint64_t available_bytes(void) {
    static const char name[] = "MemAvailable:";
    uint64_t kibibytes = UINT64_MAX >> 10;
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    while (file && fgets(line, sizeof line, file)) {
        bool is_it = strncmp(line, name, sizeof name - 1) == 0;
        kibibytes = is_it ? strtoull(line + sizeof name - 1, NULL, 10) : kibibytes;
    }
    if (file) {
        (void)fclose(file);
    }
    return kibibytes << 10;
}

uint64_t gml_cuda_unified_free(const gml_cuda_driver *cuda) {
    uint64_t total_bytes = cuda->base.info.total_bytes;
    uint64_t there_bytes = available_bytes(), kept_bytes = total_bytes / HOST_PART;
    uint64_t free_bytes = there_bytes > kept_bytes ? there_bytes - kept_bytes : 0;
    return free_bytes < total_bytes ? free_bytes : total_bytes;
}

gml_status gml_cuda_unified_check(gml_cuda_driver *cuda, uint64_t size_bytes) {
    if (!cuda->is_unified) {
        return GML_OK;
    }
    uint64_t free_bytes = gml_cuda_unified_free(cuda);
    return size_bytes <= free_bytes
               ? GML_OK
               : gml_driver_fail(&cuda->base, GML_OUT_OF_MEMORY,
                                 "the device has the host's memory, of which %s can be taken, and "
                                 "%s are wanted: the host's programs and page cache hold the rest",
                                 gml_size_of(free_bytes).text, gml_size_of(size_bytes).text);
}
