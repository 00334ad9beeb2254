#include "base/reason.h"

#include <stdarg.h>
#include <stdio.h>

gml_status gml_refuse(gml_status status, char *reason, size_t reason_bytes, const char *format,
                      ...) {
    if (reason && reason_bytes > 0) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(reason, reason_bytes, format, arguments);
        va_end(arguments);
    }
    return status;
}
