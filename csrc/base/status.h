/* Work that continues after a failure reports the first one. */
#ifndef GML_BASE_STATUS_H
#define GML_BASE_STATUS_H

#include "gmlake.h"

static inline gml_status gml_first_failure(gml_status first, gml_status status) {
    return first != GML_OK ? first : status;
}

#endif
