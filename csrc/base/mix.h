/* splitmix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014). */
#ifndef GML_BASE_MIX_H
#define GML_BASE_MIX_H

#include <stdint.h>

/* The two rounds of its finaliser: neighbouring numbers get unrelated upper halves. */
static inline uint64_t gml_mix(uint64_t value) {
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
}

/* The next number of the generator. */
static inline uint64_t gml_mix_next(uint64_t *state) {
    uint64_t mixed = gml_mix(*state += UINT64_C(0x9e3779b97f4a7c15));
    return mixed ^ (mixed >> 31);
}

#endif
