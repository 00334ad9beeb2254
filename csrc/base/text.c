#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>

void gml_say(gml_text *self, const char *format, ...) {
    size_t left = self->size_bytes - self->used;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(self->out + self->used, left, format, arguments);
    va_end(arguments);
    if (length > 0) {
        self->used += (size_t)length < left ? (size_t)length : left - 1;
    }
}
