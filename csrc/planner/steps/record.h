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

/* A step has at most so many requests, that one which never ends does not fill the host's
 * memory. */
enum { GML_RECORD_MOST = 1 << 22 };

/* What the fingerprint of a step begins with. */
#define GML_RECORD_SEED UINT64_C(0x9e3779b97f4a7c15)

/* Empty, as a new one is; what it has room for stays. */
void gml_record_clear(gml_record *record);

/* Gives the host memory back. */
void gml_record_close(gml_record *record);

/* The request that came now, as its index; SIZE_MAX: the record is cut, or had to be. */
size_t gml_record_add(gml_record *record, uint64_t size_bytes, gml_stream stream);

/* A copy that shares nothing. GML_NO_HOST_MEMORY, and *out has no requests. */
gml_status gml_record_copy(const gml_record *record, gml_step *out);

#endif
