/* A trace that has passed its checks, with what every pass over it needs to look up. */
#ifndef GML_DIAGNOSE_INDEX_H
#define GML_DIAGNOSE_INDEX_H

#include "gmlake_diagnose.h"

typedef struct gml_trace_index {
    const gml_object_trace *trace;
    /* The accesses to object o are number uses[i] in trace->accesses, for i from first_use[o] to
     * first_use[o + 1] - 1, in order of invocation. */
    uint32_t *uses;
    size_t *first_use;
    uint32_t *api_of;       /* of each access */
    gml_object_life *lives; /* moves to the diagnosis; `peaks` is filled in later */
    uint64_t *times;        /* of each API; moves to the diagnosis */
    uint64_t *before;       /* APIs with a lower time, for each time and one past the last */
    uint64_t time_count;    /* times are 0 to time_count - 1 */
    size_t stream_count;
    uint32_t *stream_of; /* of each API: the number of its stream, from 0 */
    uint32_t *clocks; /* [api * stream_count + s]: how many APIs of stream s are known to complete
                         before it starts. NULL with one stream, or if this would need more than 1
                         GiB: then only the order within streams is known */
    uint32_t *turn;   /* of each API: its number within its stream, from 0 */
} gml_trace_index;

/* Checks the whole trace. The caller clears `index` either way. */
gml_status gml_index_build(gml_trace_index *index, const gml_object_trace *trace, char *reason,
                           size_t reason_bytes);
void gml_index_clear(gml_trace_index *index);

/* How many APIs lie between two APIs in time, both excluded; 0 unless `from` is earlier. */
uint64_t gml_index_between(const gml_trace_index *index, uint64_t from, uint64_t to);

/* The difference of their times; 0 unless `from` is earlier. */
uint64_t gml_index_distance(const gml_trace_index *index, uint64_t from, uint64_t to);

/* Whether the access is one by a copy or a set that only writes: nothing is computed. */
bool gml_index_fills(const gml_trace_index *index, uint32_t access);

/* How many APIs of the stream are known to be over before the API starts. */
uint32_t gml_index_over(const gml_trace_index *index, uint64_t api, size_t stream);

/* Whether `from` is guaranteed to complete before `to` starts. */
bool gml_index_is_ordered(const gml_trace_index *index, uint64_t from, uint64_t to);

#endif
