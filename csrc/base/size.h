/* Sizes for people, in powers of 1024. */
#ifndef GML_BASE_SIZE_H
#define GML_BASE_SIZE_H

#include <stdint.h>

typedef struct gml_size_text {
    char text[24];
} gml_size_text;

/* An amount of memory with three digits: "1.50 GiB". */
gml_size_text gml_size_of(uint64_t size_bytes);

/* A setting, exactly and as it may be typed: "20MiB", "1000B". */
gml_size_text gml_exact_size_of(uint64_t size_bytes);

#endif
