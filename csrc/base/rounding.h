/* Division and rounding upwards, differences of sizes and the lesser one. pre: `step` is not 0, and
 * value + step fits into 64 bits. */
#ifndef GML_BASE_ROUNDING_H
#define GML_BASE_ROUNDING_H

#include <stdint.h>

static inline uint64_t gml_divide_up(uint64_t value, uint64_t step) {
    return (value + step - 1) / step;
}

/* The least multiple of `step` that is not below `value`. */
static inline uint64_t gml_round_up(uint64_t value, uint64_t step) {
    return gml_divide_up(value, step) * step;
}

/* What is left of `whole`; 0 where `part` is larger. */
static inline uint64_t gml_difference(uint64_t whole, uint64_t part) {
    return whole > part ? whole - part : 0;
}

static inline uint64_t gml_least(uint64_t one, uint64_t other) {
    return one < other ? one : other;
}

#endif
