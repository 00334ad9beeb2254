/* The independent check of a diagnosis: a second implementation, for tests. */
#ifndef GML_DIAGNOSE_CHECK_H
#define GML_DIAGNOSE_CHECK_H

#include "gmlake_diagnose.h"

/* With these findings fixed, every API still finds each of its objects there and every byte that an
 * API reads was last written by the same API as before. GML_CORRUPT with a reason where not. It
 * shares no code with what finds or fixes. It looks at every run by itself: GML_UNSUPPORTED where
 * an access has more than 16 million of them, or all this would take too long. `findings` are
 * numbers into diagnosis->findings. pre: gml_diagnose() took the trace. */
gml_status gml_diagnosis_check(const gml_object_trace *trace, const gml_diagnosis *diagnosis,
                               const size_t *findings, size_t count, char *reason,
                               size_t reason_bytes);

#endif
