/* Traces of objects made by hand, one line a call, and what the diagnosis finds in them.
 *
 *     tracing t = {0};
 *     uint32_t x = trace_alloc(&t, 100, 1);
 *     trace_api(&t, GML_API_KERNEL);
 *     trace_access(&t, x, GML_ACCESS_READS);
 *     trace_run(&t, 0, 10);
 *     trace_free(&t, x);
 *     trace_diagnose(&t, NULL);
 *     CHECK_EQ(trace_count(&t, GML_PATTERN_OVERALLOCATION), 1);
 *     tracing_clear(&t);
 */
#ifndef GML_TEST_TRACING_H
#define GML_TEST_TRACING_H

#include "gmlake_diagnose.h"
#include "support/check.h"

typedef struct tracing {
    gml_api *apis;
    gml_object *objects;
    gml_access *accesses;
    gml_access_range *ranges;
    size_t api_count, api_room, object_count, object_room;
    size_t access_count, access_room, range_count, range_room;
    gml_stream stream; /* of the next API */
    gml_diagnosis diagnosis;
} tracing;

/* Each gives the number of what it adds. */
uint32_t trace_api(tracing *trace, gml_api_kind kind);
uint32_t trace_object(tracing *trace, uint64_t size, uint32_t element, uint32_t flags);
uint32_t trace_alloc(tracing *trace, uint64_t size, uint32_t element);
uint32_t trace_free(tracing *trace, uint32_t object);

/* Adds to the last API, and a range to the last access. */
void trace_access(tracing *trace, uint32_t object, uint32_t flags);
void trace_range(tracing *trace, gml_access_range range);
void trace_run(tracing *trace, uint64_t offset, uint64_t size);
void trace_runs(tracing *trace, uint64_t offset, uint64_t size, uint64_t stride, uint64_t repeat);
void trace_weighted(tracing *trace, uint64_t offset, uint64_t size, uint64_t weight);

gml_object_trace trace_view(const tracing *trace);

/* Diagnoses anew; false, and a failed check, where it was refused. `options` may be NULL. */
bool trace_diagnose(tracing *trace, const gml_diagnose_options *options);
size_t trace_count(tracing *trace, gml_pattern pattern);

/* The only finding of that pattern in the last diagnosis; a failed check if it is not the only
 * one. */
gml_finding trace_only(tracing *trace, gml_pattern pattern);

void tracing_clear(tracing *trace);

#endif
