/* Whether two accesses to one object certainly meet in a byte. */
#ifndef GML_DIAGNOSE_CONFLICT_H
#define GML_DIAGNOSE_CONFLICT_H

#include "gmlake_diagnose.h"

/* True only if both access a byte. False where they do not, or where it would take long to tell:
 * both in many runs with strides. pre: the trace has passed its checks, one object. */
bool gml_accesses_meet(const gml_object_trace *trace, const gml_access *a, const gml_access *b);

#endif
