/* Object traces told API by API, and what the diagnosis finds in them.
 *
 *     SCENARIO(an_object_of_which_little_is_read)
 *     {
 *         uint32_t object = scenario_new(s, 100);
 *         scenario_kernel(s, object, GML_ACCESS_READS);
 *         scenario_range(s, 0, 10);
 *         scenario_free(s, object);
 *         CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
 *         CHECK_EQ(scenario_count(s, GML_PATTERN_OVERALLOCATION, object), 1);
 *     }
 */
#ifndef GML_TEST_SCENARIO_H
#define GML_TEST_SCENARIO_H

#include "gmlake_diagnose.h"
#include "support/check.h"

enum { SCENARIO_EVERY_PATTERN = 0 };

typedef struct scenario {
    gml_object_trace trace; /* of the arrays that follow */
    gml_api *apis;
    gml_object *objects;
    gml_access *accesses;
    gml_access_range *ranges;
    size_t api_room, object_room, access_room, range_room;
    gml_stream stream; /* of the APIs that follow */
    gml_diagnosis diagnosis;
    char reason[160];
} scenario;

/* A test with a scenario of its own, `s`. */

void scenario_open(scenario *self);
void scenario_close(scenario *self);

/* An object without an allocation so far; its elements have one byte, or as many as said. */
uint32_t scenario_object(scenario *self, uint64_t size_bytes, uint32_t flags);
uint32_t scenario_object_of(scenario *self, uint64_t size_bytes, uint32_t element_bytes,
                            uint32_t flags);

/* Each adds an API of its kind on self->stream and returns its number. */
uint64_t scenario_alloc(scenario *self, uint32_t object);
uint64_t scenario_free(scenario *self, uint32_t object);
uint64_t scenario_call(scenario *self, gml_api_kind kind); /* accesses follow */
uint64_t scenario_kernel(scenario *self, uint32_t object, uint32_t flags);

/* Both. */
uint32_t scenario_new(scenario *self, uint64_t size_bytes);
uint32_t scenario_new_of(scenario *self, uint64_t size_bytes, uint32_t element_bytes);

/* An access of the last API, to the whole object until ranges follow. */
void scenario_access(scenario *self, uint32_t object, uint32_t flags);
void scenario_range(scenario *self, uint64_t offset, uint64_t size_bytes);
void scenario_runs(scenario *self, uint64_t offset, uint64_t size_bytes, uint64_t stride_bytes,
                   uint64_t repeat);
void scenario_add_range(scenario *self, gml_access_range range);

/* APIs that access nothing of interest. */
void scenario_pause(scenario *self, size_t apis);

/* Looks for these patterns; the diagnosis before is cleared. */
gml_status scenario_diagnose(scenario *self, uint32_t patterns);

/* Of the pattern and the object: how many, and the first; NULL: none. */
size_t scenario_count(const scenario *self, uint32_t pattern, uint32_t object);
const gml_finding *scenario_find(const scenario *self, uint32_t pattern, uint32_t object);

/* Of the pattern: how many, and the only one; a failed check if it is not the only one. */
size_t scenario_total(const scenario *self, uint32_t pattern);
gml_finding scenario_only(const scenario *self, uint32_t pattern);

#endif
