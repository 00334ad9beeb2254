#include "diagnosis/curve.h"

#include <stdlib.h>

void gml_curve_add(void *state, uint64_t start, uint64_t end, int64_t bytes) {
    gml_curve *curve = state;
    if (start < end) {
        curve->bytes[start] += bytes;
        curve->bytes[end] -= bytes;
    }
}

gml_status gml_curve_open(gml_curve *curve, const gml_fixes *fixes) {
    const gml_object_trace *trace = fixes->index->trace;
    *curve = (gml_curve){.count = trace->api_count + 1};
    curve->bytes = calloc(curve->count + 1, sizeof *curve->bytes);
    if (!curve->bytes) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t o = 0; o < trace->object_count; o++) {
        gml_fixes_tell_life(fixes, (uint32_t)o, gml_curve_add, curve);
        gml_fixes_tell_change(fixes, (uint32_t)o, 1, gml_curve_add, curve);
    }
    return GML_OK;
}

void gml_curve_close(gml_curve *curve) {
    free(curve->bytes);
    *curve = (gml_curve){0};
}

uint64_t gml_curve_sum(gml_curve *curve) {
    int64_t *bytes = curve->bytes;
    for (size_t i = 1; i < curve->count; i++) {
        bytes[i] += bytes[i - 1];
        curve->first = bytes[i] > bytes[curve->first] ? i : curve->first;
        curve->last = bytes[i] >= bytes[curve->last] ? i : curve->last;
    }
    return bytes[curve->first] > 0 ? (uint64_t)bytes[curve->first] : 0;
}
