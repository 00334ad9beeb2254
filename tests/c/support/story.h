/* A small object trace, told API by API. */
#ifndef GML_TEST_STORY_H
#define GML_TEST_STORY_H

#include "gmlake_diagnose.h"
#include "support/check.h"

enum {
    STORY_MOST_APIS = 256,
    STORY_MOST_OBJECTS = 64,
    STORY_MOST_ACCESSES = 1024,
    STORY_MOST_RANGES = 1024,
    STORY_EVERY_PATTERN = 0
};

typedef struct story {
    gml_api apis[STORY_MOST_APIS];
    gml_object objects[STORY_MOST_OBJECTS];
    gml_access accesses[STORY_MOST_ACCESSES];
    gml_access_range ranges[STORY_MOST_RANGES];
    gml_object_trace trace;
    gml_stream stream; /* of the APIs that follow */
    gml_diagnose_options options;
    gml_diagnosis diagnosis;
    char reason[160];
} story;

void story_open(story *self);
void story_close(story *self);

/* An object without an allocation so far. */
uint32_t story_object(story *self, uint64_t size_bytes, uint32_t flags);

/* Each adds an API of its kind on self->stream and returns its number. */
uint64_t story_alloc(story *self, uint32_t object);
uint64_t story_free(story *self, uint32_t object);
uint64_t story_call(story *self, gml_api_kind kind); /* accesses follow */
uint64_t story_kernel(story *self, uint32_t object, uint32_t flags);

/* Both. */
uint32_t story_new(story *self, uint64_t size_bytes);

/* An access of the last API, to the whole object until ranges follow. */
void story_access(story *self, uint32_t object, uint32_t flags);
void story_range(story *self, uint64_t offset, uint64_t size_bytes);
void story_runs(story *self, uint64_t offset, uint64_t size_bytes, uint64_t stride_bytes,
                uint64_t repeat);

/* APIs that access nothing of interest. */
void story_pause(story *self, size_t apis);

/* Looks for these patterns with self->options; the diagnosis before is cleared. */
gml_status story_diagnose(story *self, uint32_t patterns);

/* Of the pattern and the object: how many, and the first; NULL: none. */
size_t story_count(const story *self, uint32_t pattern, uint32_t object);
const gml_finding *story_find(const story *self, uint32_t pattern, uint32_t object);

/* Checks that there is one finding of the pattern and the object, and from where to where. */
void story_expect(const story *self, uint32_t pattern, uint32_t object, uint64_t from, uint64_t to);

#endif
