/* A text that is written piece by piece into the caller's memory. */
#ifndef GML_BASE_TEXT_H
#define GML_BASE_TEXT_H

#include <stddef.h>

typedef struct gml_text {
    char *out;
    size_t size_bytes, used;
} gml_text;

/* Adds a piece in printf's style: as much of it as there is room for, always terminated. pre:
 * size_bytes is not 0. */
__attribute__((format(printf, 2, 3))) void gml_say(gml_text *self, const char *format, ...);

#endif
