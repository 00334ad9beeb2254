#include "support/story.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
story_open(story *self)
{
    memset(self, 0, sizeof *self);
    self->trace = (gml_object_trace){
        .apis = self->apis,
        .objects = self->objects,
        .accesses = self->accesses,
        .ranges = self->ranges,
    };
    gml_diagnose_defaults(&self->options);
}

void
story_close(story *self)
{
    gml_diagnosis_clear(&self->diagnosis);
}

static void
need_room(bool has_room)
{
    if (!has_room) {
        (void)fprintf(stderr, "story: too long; raise the limits in story.h\n");
        exit(1);
    }
}

uint32_t
story_object(story *self, uint64_t size_bytes, uint32_t flags)
{
    need_room(self->trace.object_count < STORY_MOST_OBJECTS);
    self->objects[self->trace.object_count] =
        (gml_object){.size_bytes = size_bytes, .element_bytes = 1, .flags = flags};
    return (uint32_t)self->trace.object_count++;
}

static uint64_t
add_api(story *self, gml_api_kind kind, uint32_t object)
{
    need_room(self->trace.api_count < STORY_MOST_APIS);
    self->apis[self->trace.api_count] = (gml_api){
        .stream = self->stream,
        .first_access = self->trace.access_count,
        .object = object,
        .kind = kind,
    };
    return self->trace.api_count++;
}

uint64_t
story_alloc(story *self, uint32_t object)
{
    return add_api(self, GML_API_ALLOC, object);
}

uint64_t
story_free(story *self, uint32_t object)
{
    return add_api(self, GML_API_FREE, object);
}

uint64_t
story_call(story *self, gml_api_kind kind)
{
    return add_api(self, kind, GML_NO_OBJECT);
}

uint64_t
story_kernel(story *self, uint32_t object, uint32_t flags)
{
    uint64_t api = story_call(self, GML_API_KERNEL);
    story_access(self, object, flags);
    return api;
}

uint32_t
story_new(story *self, uint64_t size_bytes)
{
    uint32_t object = story_object(self, size_bytes, 0);
    (void)story_alloc(self, object);
    return object;
}

void
story_access(story *self, uint32_t object, uint32_t flags)
{
    need_room(self->trace.access_count < STORY_MOST_ACCESSES);
    self->accesses[self->trace.access_count++] = (gml_access){
        .first_range = self->trace.range_count,
        .object = object,
        .flags = flags,
    };
    self->apis[self->trace.api_count - 1].access_count++;
}

void
story_runs(story *self, uint64_t offset, uint64_t size_bytes, uint64_t stride_bytes,
           uint64_t repeat)
{
    need_room(self->trace.range_count < STORY_MOST_RANGES);
    self->ranges[self->trace.range_count++] =
        (gml_access_range){offset, size_bytes, stride_bytes, repeat, 1};
    self->accesses[self->trace.access_count - 1].range_count++;
}

void
story_range(story *self, uint64_t offset, uint64_t size_bytes)
{
    story_runs(self, offset, size_bytes, 0, 1);
}

void
story_pause(story *self, size_t apis)
{
    for (size_t i = 0; i < apis; i++) {
        (void)story_call(self, GML_API_KERNEL);
    }
}

gml_status
story_diagnose(story *self, uint32_t patterns)
{
    gml_diagnosis_clear(&self->diagnosis);
    self->options.patterns = patterns;
    return gml_diagnose(&self->trace, &self->options, &self->diagnosis, self->reason,
                        sizeof self->reason);
}

size_t
story_count(const story *self, uint32_t pattern, uint32_t object)
{
    size_t count = 0;
    for (size_t i = 0; i < self->diagnosis.finding_count; i++) {
        const gml_finding *finding = &self->diagnosis.findings[i];
        count += finding->pattern == pattern && finding->object == object;
    }
    return count;
}

const gml_finding *
story_find(const story *self, uint32_t pattern, uint32_t object)
{
    for (size_t i = 0; i < self->diagnosis.finding_count; i++) {
        const gml_finding *finding = &self->diagnosis.findings[i];
        if (finding->pattern == pattern && finding->object == object) {
            return finding;
        }
    }
    return NULL;
}

void
story_expect(const story *self, uint32_t pattern, uint32_t object, uint64_t from, uint64_t to)
{
    const gml_finding *finding = story_find(self, pattern, object);
    CHECK_EQ(story_count(self, pattern, object), 1);
    if (CHECK(finding != NULL)) {
        CHECK_EQ(finding->from_api, from);
        CHECK_EQ(finding->to_api, to);
    }
}
