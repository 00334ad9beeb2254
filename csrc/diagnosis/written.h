/* Whether an object's bytes are written before they are read. */
#ifndef GML_DIAGNOSE_WRITTEN_H
#define GML_DIAGNOSE_WRITTEN_H

#include "diagnosis/index.h"

/* True only if no API, in order of invocation, reads a byte of the object that none before it
 * wrote: earlier contents of its memory do not matter then. An API only known to touch a byte may
 * read it. Also false if the answer needs more than 4,096 separate runs or some 65,000 looks at
 * them. */
gml_status gml_object_is_written_first(const gml_trace_index *index, uint32_t object,
                                       bool *is_written_first);

#endif
