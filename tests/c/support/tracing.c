#include "support/tracing.h"

#include <stdlib.h>

/* Room for one more; the address. A test without memory ends here. */
static void *
grown(void *items, size_t count, size_t *room, size_t item_bytes)
{
    if (count < *room) {
        return items;
    }
    *room = *room ? 2 * *room : 16;
    void *moved = realloc(items, *room * item_bytes);
    if (!moved) {
        abort();
    }
    return moved;
}

uint32_t
trace_api(tracing *trace, gml_api_kind kind)
{
    trace->apis = grown(trace->apis, trace->api_count, &trace->api_room, sizeof *trace->apis);
    trace->apis[trace->api_count] = (gml_api){
        .stream = trace->stream,
        .first_access = trace->access_count,
        .object = GML_NO_OBJECT,
        .kind = (uint32_t)kind,
    };
    return (uint32_t)trace->api_count++;
}

uint32_t
trace_object(tracing *trace, uint64_t size, uint32_t element, uint32_t flags)
{
    trace->objects =
        grown(trace->objects, trace->object_count, &trace->object_room, sizeof *trace->objects);
    trace->objects[trace->object_count] =
        (gml_object){.size_bytes = size, .element_bytes = element, .flags = flags};
    return (uint32_t)trace->object_count++;
}

uint32_t
trace_alloc(tracing *trace, uint64_t size, uint32_t element)
{
    uint32_t object = trace_object(trace, size, element, 0);
    uint32_t api = trace_api(trace, GML_API_ALLOC);
    trace->apis[api].object = object;
    return object;
}

uint32_t
trace_free(tracing *trace, uint32_t object)
{
    uint32_t api = trace_api(trace, GML_API_FREE);
    trace->apis[api].object = object;
    return api;
}

void
trace_access(tracing *trace, uint32_t object, uint32_t flags)
{
    trace->accesses =
        grown(trace->accesses, trace->access_count, &trace->access_room, sizeof *trace->accesses);
    trace->accesses[trace->access_count++] =
        (gml_access){.first_range = trace->range_count, .object = object, .flags = flags};
    trace->apis[trace->api_count - 1].access_count++;
}

void
trace_range(tracing *trace, gml_access_range range)
{
    trace->ranges =
        grown(trace->ranges, trace->range_count, &trace->range_room, sizeof *trace->ranges);
    trace->ranges[trace->range_count++] = range;
    trace->accesses[trace->access_count - 1].range_count++;
}

void
trace_run(tracing *trace, uint64_t offset, uint64_t size)
{
    trace_weighted(trace, offset, size, 1);
}

void
trace_runs(tracing *trace, uint64_t offset, uint64_t size, uint64_t stride, uint64_t repeat)
{
    trace_range(trace, (gml_access_range){offset, size, stride, repeat, 1});
}

void
trace_weighted(tracing *trace, uint64_t offset, uint64_t size, uint64_t weight)
{
    trace_range(trace, (gml_access_range){offset, size, size, 1, weight});
}

gml_object_trace
trace_view(const tracing *trace)
{
    return (gml_object_trace){
        .apis = trace->apis,
        .api_count = trace->api_count,
        .objects = trace->objects,
        .object_count = trace->object_count,
        .accesses = trace->accesses,
        .access_count = trace->access_count,
        .ranges = trace->ranges,
        .range_count = trace->range_count,
    };
}

bool
trace_diagnose(tracing *trace, const gml_diagnose_options *options)
{
    char reason[200] = "";
    gml_object_trace view = trace_view(trace);
    gml_diagnosis_clear(&trace->diagnosis);
    gml_status status = gml_diagnose(&view, options, &trace->diagnosis, reason, sizeof reason);
    if (status != GML_OK) {
        fprintf(stderr, "gml_diagnose: %s: %s\n", gml_status_text(status), reason);
    }
    return CHECK_OK(status);
}

size_t
trace_count(tracing *trace, gml_pattern pattern)
{
    size_t count = 0;
    for (size_t i = 0; i < trace->diagnosis.finding_count; i++) {
        count += trace->diagnosis.findings[i].pattern == (uint32_t)pattern;
    }
    return count;
}

gml_finding
trace_only(tracing *trace, gml_pattern pattern)
{
    CHECK_EQ(trace_count(trace, pattern), 1);
    for (size_t i = 0; i < trace->diagnosis.finding_count; i++) {
        if (trace->diagnosis.findings[i].pattern == (uint32_t)pattern) {
            return trace->diagnosis.findings[i];
        }
    }
    return (gml_finding){0};
}

void
tracing_clear(tracing *trace)
{
    gml_diagnosis_clear(&trace->diagnosis);
    free(trace->apis);
    free(trace->objects);
    free(trace->accesses);
    free(trace->ranges);
    *trace = (tracing){0};
}
