/* Object traces told API by API, and what the diagnosis finds in them.
 *
 *     STORY(an_object_of_which_little_is_read)
 *     {
 *         uint32_t object = story_new(s, 100);
 *         story_kernel(s, object, GML_ACCESS_READS);
 *         story_range(s, 0, 10);
 *         story_free(s, object);
 *         CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
 *         CHECK_EQ(story_count(s, GML_PATTERN_OVERALLOCATION, object), 1);
 *     }
 */
#ifndef GML_TEST_STORY_H
#define GML_TEST_STORY_H

#include "gmlake_diagnose.h"
#include "support/check.h"

enum { STORY_EVERY_PATTERN = 0 };

typedef struct story {
    gml_object_trace trace; /* of the arrays that follow */
    gml_api *apis;
    gml_object *objects;
    gml_access *accesses;
    gml_access_range *ranges;
    size_t api_room, object_room, access_room, range_room;
    gml_stream stream; /* of the APIs that follow */
    gml_diagnose_options options;
    gml_diagnosis diagnosis;
    char reason[160];
} story;

/* A test with a story of its own, `s`. */
#define STORY(name)                                                                                \
    static void tell_##name(story *s);                                                             \
    TEST(name)                                                                                     \
    {                                                                                              \
        story own;                                                                                 \
        story_open(&own);                                                                          \
        tell_##name(&own);                                                                         \
        story_close(&own);                                                                         \
    }                                                                                              \
    static void tell_##name(story *s)

void story_open(story *self);
void story_close(story *self);

/* An object without an allocation so far; its elements have one byte, or as many as said. */
uint32_t story_object(story *self, uint64_t size_bytes, uint32_t flags);
uint32_t story_object_of(story *self, uint64_t size_bytes, uint32_t element_bytes, uint32_t flags);

/* Each adds an API of its kind on self->stream and returns its number. */
uint64_t story_alloc(story *self, uint32_t object);
uint64_t story_free(story *self, uint32_t object);
uint64_t story_call(story *self, gml_api_kind kind); /* accesses follow */
uint64_t story_kernel(story *self, uint32_t object, uint32_t flags);

/* Both. */
uint32_t story_new(story *self, uint64_t size_bytes);
uint32_t story_new_of(story *self, uint64_t size_bytes, uint32_t element_bytes);

/* An access of the last API, to the whole object until ranges follow. */
void story_access(story *self, uint32_t object, uint32_t flags);
void story_range(story *self, uint64_t offset, uint64_t size_bytes);
void story_runs(story *self, uint64_t offset, uint64_t size_bytes, uint64_t stride_bytes,
                uint64_t repeat);
void story_weighted(story *self, uint64_t offset, uint64_t size_bytes, uint64_t weight);
void story_add_range(story *self, gml_access_range range);

/* APIs that access nothing of interest. */
void story_pause(story *self, size_t apis);

/* Looks for these patterns with self->options; the diagnosis before is cleared. */
gml_status story_diagnose(story *self, uint32_t patterns);

/* Of the pattern and the object: how many, and the first; NULL: none. */
size_t story_count(const story *self, uint32_t pattern, uint32_t object);
const gml_finding *story_find(const story *self, uint32_t pattern, uint32_t object);

/* Of the pattern: how many, and the only one; a failed check if it is not the only one. */
size_t story_total(const story *self, uint32_t pattern);
gml_finding story_only(const story *self, uint32_t pattern);

/* Checks that there is one finding of the pattern and the object, and from where to where. */
void story_expect(const story *self, uint32_t pattern, uint32_t object, uint64_t from, uint64_t to);

#endif
