/* A step as it is watched: its requests, when each was freed, and the marks. */
#ifndef GML_PLAN_RECORD_H
#define GML_PLAN_RECORD_H

#include "gmlake_plan.h"
#include "policy/policy.h"

/* A block in a lane that an earlier step made and that was freed in this one. */
typedef struct gml_inherited {
    gml_taken taken;
    uint64_t maker; /* number of that step's record */
    uint64_t time;  /* of the free, in events of this step */
    bool is_alien;  /* made by a step of another kind, or foreseen by no plan */
} gml_inherited;

typedef struct gml_record {
    gml_step step;
    size_t request_room, mark_room;
    struct gml_kind *kind;
    uint64_t number;      /* of the step, over all kinds, from 1 */
    uint64_t fingerprint; /* of the requests that are not dynamic */
    gml_stream *lanes;    /* by number: streams in the order of their first request */
    uint32_t lane_count;
    size_t lane_room;
    gml_inherited *inherited; /* in the order of their frees */
    size_t inherited_count, inherited_room;
    bool is_poor; /* no plan served it, or one that did not suit it */
    bool is_cut;  /* too long for a plan, or the host had no memory: no request is known */
} gml_record;

/* A step has at most so many requests and marks, that one which never ends does not fill the host's
 * memory. */
enum { GML_RECORD_MOST = 1 << 22 };

/* Empty, as a new one is; what it has room for stays. */
void gml_record_clear(gml_record *record);

/* Gives the host memory back. */
void gml_record_close(gml_record *record);

/* Room for one more request; where that cannot be had the record is cut. */
void gml_record_prepare(gml_record *record);

/* The request that came now, as its index. pre: prepared, not cut. */
size_t gml_record_add(gml_record *record, uint64_t size_bytes, gml_stream stream, uint32_t phase,
                      uint32_t scope);

/* Remembers a block that this step freed; without host memory it does not. */
void gml_record_inherit(gml_record *record, gml_inherited inherited);

/* The request that the next gml_record_add() would add, without an event: for looking ahead. pre:
 * as there. */
void gml_record_peek(gml_record *record, uint64_t size_bytes, gml_stream stream);

/* Nothing in a record that is cut, which a mark that cannot be kept leads to. */
void gml_record_mark(gml_record *record, gml_mark_kind kind, uint32_t id);

/* A copy that shares nothing. GML_NO_HOST_MEMORY, and *out has no requests. */
gml_status gml_record_copy(const gml_record *record, gml_step *out);

#endif
