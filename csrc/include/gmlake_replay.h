/* Replaying the events of a trace, or of a history, on a lake. */
#ifndef GMLAKE_REPLAY_H
#define GMLAKE_REPLAY_H

#include "gmlake.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gml_replay_result {
    uint64_t events;          /* replayed so far */
    uint64_t allocations;     /* attempted, size 0 included */
    uint64_t refused;         /* answered GML_OUT_OF_MEMORY */
    uint64_t first_refused;   /* the id of the first of these; UINT64_MAX: none was */
    uint64_t peak_live_bytes; /* each live block rounded up to 512 */
    uint64_t peak_reserved_bytes;
    uint64_t seconds_ns; /* wall time inside the loop */
} gml_replay_result;

typedef struct gml_replay gml_replay;

/* A replay holds the addresses of the trace's allocations between calls. Ids must be below
 * `id_count`. */
GML_API gml_status gml_replay_open(gml_lake *lake, uint64_t id_count, gml_replay **out);

/* Replays `count` requests, which may be a part of a trace. An allocation that is refused is
 * counted and its free ignored. One that names a private pool is served by a pool of the lake that
 * is used as those of graphs are, until a TRIM names it. `addresses`, if not NULL, receives the
 * address served for each request (0 where none). Errors: GML_CORRUPT for an id out of range, an id
 * allocated while live, a free of an id that is not live, or an unknown kind, with `result->events`
 * as the index of the request within this call; any status of the lake but GML_OUT_OF_MEMORY. */
GML_API gml_status gml_replay_run(gml_replay *replay, const gml_request *requests, size_t count,
                                  gml_address *addresses, gml_replay_result *result);

/* From now on each SEGMENT_ALLOC request tells the `sim` driver where the next malloc of that size
 * will lie, so that addresses can be compared with the recorded ones. GML_UNSUPPORTED elsewhere. */
GML_API gml_status gml_replay_follow_segments(gml_replay *replay);

/* Ends the replay; the lake and its live blocks remain. NULL is allowed. */
GML_API void gml_replay_close(gml_replay *replay);

#ifdef __cplusplus
}
#endif

#endif
