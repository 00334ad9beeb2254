/* The 64-bit FNV-1a hash, of numbers as of bytes: for what is compared, not for what is trusted. */
#ifndef GML_BASE_FNV_H
#define GML_BASE_FNV_H

#include <stdint.h>

#define GML_FNV_BEGIN UINT64_C(0xcbf29ce484222325)

static inline uint64_t gml_fnv_add(uint64_t sum, uint64_t value) {
    return (sum ^ value) * UINT64_C(0x100000001b3);
}

#endif
