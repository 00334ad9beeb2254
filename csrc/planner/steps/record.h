/* A step as it is watched, for a plan that is made of it: its requests, and when each was freed. */
#ifndef GML_PLAN_RECORD_H
#define GML_PLAN_RECORD_H

#include "gmlake_plan.h"
#include "policy/policy.h"

typedef struct gml_record {
    gml_step step;
    size_t request_room;
    struct gml_kind *kind;
    uint64_t number; /* of the step, over all kinds, from 1 */
    bool is_cut;     /* too long for a plan, or the host had no memory: no request is known */
} gml_record;

/* The most requests of a step, so that a step that never ends does not exhaust host memory. */
enum { GML_RECORD_MOST = 1 << 22 };

/* The initial value of a step's fingerprint. */
#define GML_RECORD_SEED UINT64_C(0x9e3779b97f4a7c15)

/* Empties a record; keeps its capacity. */
void gml_record_clear(gml_record *record);

/* Gives the host memory back. */
void gml_record_close(gml_record *record);

/* The request that came now, as its index; SIZE_MAX: the record is cut, or had to be. */
size_t gml_record_add(gml_record *record, uint64_t size_bytes, gml_stream stream);

/* A deep copy. GML_NO_HOST_MEMORY; *out is empty then. */
gml_status gml_record_copy(const gml_record *record, gml_step *out);

#endif
