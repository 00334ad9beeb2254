#include "diagnosis/findings.h"

#include "base/room.h"

gml_status gml_findings_add(gml_findings *findings, const gml_finding *finding) {
    if (!gml_findings_want(findings, finding->pattern)) {
        return GML_OK;
    }
    if (!gml_make_room(&findings->items, &findings->capacity, findings->count + 1,
                       sizeof *findings->items)) {
        return GML_NO_HOST_MEMORY;
    }
    findings->items[findings->count++] = *finding;
    return GML_OK;
}
