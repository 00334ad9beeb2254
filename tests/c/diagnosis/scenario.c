#include "diagnosis/scenario.h"

#include <stdio.h>
#include <stdlib.h>

void scenario_open(scenario *self) {
    *self = (scenario){0};
}

void scenario_close(scenario *self) {
    gml_diagnosis_clear(&self->diagnosis);
    free(self->apis);
    free(self->objects);
    free(self->accesses);
    free(self->ranges);
    *self = (scenario){0};
}

/* Room for one more. A test without memory ends here. */
static void *grown(void *items, size_t count, size_t *room, size_t item_bytes) {
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

/* Appends to one of the four arrays. */
#define ADD(self, things, thing, ...)                                                              \
    ((self)->things = grown((self)->things, (self)->trace.thing##_count, &(self)->thing##_room,    \
                            sizeof *(self)->things),                                               \
     (self)->trace.things = (self)->things,                                                        \
     (self)->things[(self)->trace.thing##_count] = __VA_ARGS__, (self)->trace.thing##_count++)

uint32_t scenario_object_of(scenario *self, uint64_t size_bytes, uint32_t element_bytes,
                            uint32_t flags) {
    return (uint32_t)ADD(
        self, objects, object,
        (gml_object){.size_bytes = size_bytes, .element_bytes = element_bytes, .flags = flags});
}

uint32_t scenario_object(scenario *self, uint64_t size_bytes, uint32_t flags) {
    return scenario_object_of(self, size_bytes, 1, flags);
}

static uint64_t add_api(scenario *self, gml_api_kind kind, uint32_t object) {
    return ADD(self, apis, api,
               (gml_api){.stream = self->stream,
                         .first_access = self->trace.access_count,
                         .object = object,
                         .kind = (uint32_t)kind});
}

uint64_t scenario_alloc(scenario *self, uint32_t object) {
    return add_api(self, GML_API_ALLOC, object);
}

uint64_t scenario_free(scenario *self, uint32_t object) {
    return add_api(self, GML_API_FREE, object);
}

uint64_t scenario_call(scenario *self, gml_api_kind kind) {
    return add_api(self, kind, GML_NO_OBJECT);
}

uint64_t scenario_kernel(scenario *self, uint32_t object, uint32_t flags) {
    uint64_t api = scenario_call(self, GML_API_KERNEL);
    scenario_access(self, object, flags);
    return api;
}

uint32_t scenario_new_of(scenario *self, uint64_t size_bytes, uint32_t element_bytes) {
    uint32_t object = scenario_object_of(self, size_bytes, element_bytes, 0);
    (void)scenario_alloc(self, object);
    return object;
}

uint32_t scenario_new(scenario *self, uint64_t size_bytes) {
    return scenario_new_of(self, size_bytes, 1);
}

void scenario_access(scenario *self, uint32_t object, uint32_t flags) {
    (void)ADD(
        self, accesses, access,
        (gml_access){.first_range = self->trace.range_count, .object = object, .flags = flags});
    self->apis[self->trace.api_count - 1].access_count++;
}

void scenario_add_range(scenario *self, gml_access_range range) {
    (void)ADD(self, ranges, range, range);
    self->accesses[self->trace.access_count - 1].range_count++;
}

void scenario_runs(scenario *self, uint64_t offset, uint64_t size_bytes, uint64_t stride_bytes,
                   uint64_t repeat) {
    scenario_add_range(self, (gml_access_range){offset, size_bytes, stride_bytes, repeat, 1});
}

void scenario_range(scenario *self, uint64_t offset, uint64_t size_bytes) {
    scenario_runs(self, offset, size_bytes, 0, 1);
}

void scenario_pause(scenario *self, size_t apis) {
    for (size_t i = 0; i < apis; i++) {
        (void)scenario_call(self, GML_API_KERNEL);
    }
}

gml_status scenario_diagnose(scenario *self, uint32_t patterns) {
    gml_diagnosis_clear(&self->diagnosis);
    return gml_diagnose(&self->trace, patterns, &self->diagnosis, self->reason,
                        sizeof self->reason);
}

size_t scenario_total(const scenario *self, uint32_t pattern) {
    size_t count = 0;
    for (size_t i = 0; i < self->diagnosis.finding_count; i++) {
        count += self->diagnosis.findings[i].pattern == pattern;
    }
    return count;
}

gml_finding scenario_only(const scenario *self, uint32_t pattern) {
    CHECK_EQ(scenario_total(self, pattern), 1);
    for (size_t i = 0; i < self->diagnosis.finding_count; i++) {
        if (self->diagnosis.findings[i].pattern == pattern) {
            return self->diagnosis.findings[i];
        }
    }
    return (gml_finding){0};
}

size_t scenario_count(const scenario *self, uint32_t pattern, uint32_t object) {
    size_t count = 0;
    for (size_t i = 0; i < self->diagnosis.finding_count; i++) {
        const gml_finding *finding = &self->diagnosis.findings[i];
        count += finding->pattern == pattern && finding->object == object;
    }
    return count;
}

const gml_finding *scenario_find(const scenario *self, uint32_t pattern, uint32_t object) {
    for (size_t i = 0; i < self->diagnosis.finding_count; i++) {
        const gml_finding *finding = &self->diagnosis.findings[i];
        if (finding->pattern == pattern && finding->object == object) {
            return finding;
        }
    }
    return NULL;
}
