#include "diagnosis/findings.h"

#include <stdlib.h>

enum { FIRST_CAPACITY = 64 };

static gml_status grow(gml_findings *findings) {
    size_t capacity = findings->capacity ? 2 * findings->capacity : FIRST_CAPACITY;
    if (capacity > SIZE_MAX / sizeof *findings->items) {
        return GML_NO_HOST_MEMORY;
    }
    gml_finding *items = realloc(findings->items, capacity * sizeof *items);
    if (!items) {
        return GML_NO_HOST_MEMORY;
    }
    findings->items = items;
    findings->capacity = capacity;
    return GML_OK;
}

gml_status gml_findings_add(gml_findings *findings, const gml_finding *finding) {
    if (!gml_findings_want(findings, finding->pattern)) {
        return GML_OK;
    }
    if (findings->count == findings->capacity) {
        gml_status status = grow(findings);
        if (status != GML_OK) {
            return status;
        }
    }
    findings->items[findings->count++] = *finding;
    return GML_OK;
}
