#include "diagnosis/random_trace.h"

#include <stdlib.h>

/* How an object is used, all its life. */
typedef enum style { ANYHOW, WHOLE, SLICED, IN_PART, UNUSED, STYLE_COUNT } style;

enum { MOST_SLICES = 4, MOST_ACCESSES = 3, MOST_RUNS = 16 };

typedef struct author {
    scenario *scenario;
    const random_shape *shape;
    check_random *random;
    uint32_t *live; /* objects */
    size_t live_count;
    uint8_t *styles; /* of each object */
} author;

static uint64_t below(author *self, uint64_t bound) {
    return check_below(self->random, bound);
}

static bool once_in(author *self, uint64_t chances) {
    return below(self, chances) == 0;
}

static uint64_t draw_size(author *self) {
    uint64_t most = self->shape->size;
    switch (below(self, 4)) {
    case 0:
        return 1 + below(self, most);
    case 1:
        return most / 2 + below(self, most / 16 + 1); /* near enough to reuse */
    default:
        return most - below(self, most / 16 + 1);
    }
}

static void add_object(author *self, bool is_before) {
    uint32_t flags = is_before ? GML_OBJECT_BEFORE : 0;
    flags |= once_in(self, 8) ? (uint32_t)GML_OBJECT_KEPT : 0;
    uint32_t element = once_in(self, 3) ? 4 : 1;
    uint32_t object = scenario_object_of(self->scenario, draw_size(self), element, flags);
    if (!is_before) {
        (void)scenario_alloc(self->scenario, object);
    }
    uint64_t drawn = below(self, STYLE_COUNT + 3);
    self->styles[object] = (uint8_t)(drawn < STYLE_COUNT ? drawn : WHOLE);
    self->live[self->live_count++] = object;
}

static void free_object(author *self) {
    size_t place = (size_t)below(self, self->live_count);
    (void)scenario_free(self->scenario, self->live[place]);
    self->live[place] = self->live[--self->live_count];
}

/* One run, or several with a stride, within `size` bytes from `offset` on. */
static void draw_range(author *self, uint64_t offset, uint64_t size) {
    uint64_t begin = below(self, size), bytes = 1 + below(self, size - begin);
    if (bytes < 4 || !once_in(self, 3)) {
        scenario_range(self->scenario, offset + begin, bytes);
        return;
    }
    uint64_t most = bytes / 2 < MOST_RUNS ? bytes / 2 : MOST_RUNS;
    uint64_t repeat = 2 + below(self, most - 1), stride = bytes / repeat;
    scenario_runs(self->scenario, offset + begin, 1 + below(self, stride), stride, repeat);
}

static void draw_ranges(author *self, uint32_t object) {
    uint64_t size = self->scenario->objects[object].size_bytes;
    uint64_t slice = size / MOST_SLICES;
    switch (self->styles[object]) {
    case WHOLE:
        return;
    case SLICED:
        if (slice > 0) {
            uint64_t number = below(self, MOST_SLICES);
            bool is_part = once_in(self, 2);
            scenario_range(self->scenario, number * slice,
                           is_part ? 1 + below(self, slice) : slice);
        }
        return;
    case IN_PART:
        draw_range(self, 0, size / 2 + 1);
        return;
    default:
        for (uint64_t i = below(self, 3); i > 0; i--) {
            draw_range(self, 0, size);
        }
    }
}

static void draw_access(author *self, uint32_t object) {
    static const uint32_t flags[] = {GML_ACCESS_READS,  GML_ACCESS_READS,
                                     GML_ACCESS_READS,  GML_ACCESS_WRITES,
                                     GML_ACCESS_WRITES, GML_ACCESS_READS | GML_ACCESS_WRITES,
                                     GML_ACCESS_TOUCHES};
    uint32_t drawn = flags[below(self, sizeof flags / sizeof *flags)];
    scenario_access(self->scenario, object, drawn);
    draw_ranges(self, object);
    if (drawn == GML_ACCESS_READS && once_in(self, 4)) {
        scenario_access(self->scenario, object, GML_ACCESS_WRITES);
        draw_ranges(self, object);
    }
}

static bool is_accessed(const author *self, uint32_t api, uint32_t object) {
    for (size_t i = self->scenario->apis[api].first_access; i < self->scenario->trace.access_count;
         i++) {
        if (self->scenario->accesses[i].object == object) {
            return true;
        }
    }
    return false;
}

static void draw_call(author *self) {
    static const gml_api_kind kinds[] = {GML_API_KERNEL, GML_API_KERNEL, GML_API_COPY, GML_API_SET};
    uint32_t api = (uint32_t)scenario_call(self->scenario, kinds[below(self, 4)]);
    for (uint64_t i = below(self, MOST_ACCESSES + 1); i > 0 && self->live_count > 0; i--) {
        uint32_t object = self->live[below(self, self->live_count)];
        if (self->styles[object] != UNUSED && !is_accessed(self, api, object)) {
            draw_access(self, object);
        }
    }
}

void random_trace(scenario *told, const random_shape *shape, check_random *random) {
    author self = {.scenario = told, .shape = shape, .random = random};
    size_t most = shape->apis + shape->live + 1;
    self.live = calloc(most, sizeof *self.live);
    self.styles = calloc(most, 1);
    if (!self.live || !self.styles) {
        abort();
    }
    size_t streams = 1 + (size_t)below(&self, shape->streams);
    for (uint64_t i = below(&self, shape->live / 2 + 1); i > 0; i--) {
        add_object(&self, true);
    }
    for (size_t i = 0; i < shape->apis; i++) {
        told->stream = below(&self, streams);
        bool wants_more = self.live_count < 1 + below(&self, 2 * shape->live);
        if (once_in(&self, 3) && wants_more) {
            add_object(&self, false);
        } else if (once_in(&self, 6) && self.live_count > 0) {
            free_object(&self);
        } else {
            draw_call(&self);
        }
    }
    free(self.live);
    free(self.styles);
}
