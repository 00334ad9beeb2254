/* Why something was refused, in one line, for functions that have no driver to keep it. */
#ifndef GML_BASE_REASON_H
#define GML_BASE_REASON_H

#include "gmlake.h"

/* Writes a printf-style reason, at most reason_bytes of it and always terminated, and returns
 * `status`. `reason` may be NULL. */
__attribute__((format(printf, 4, 5))) gml_status gml_refuse(gml_status status, char *reason,
                                                            size_t reason_bytes, const char *format,
                                                            ...);

#endif
