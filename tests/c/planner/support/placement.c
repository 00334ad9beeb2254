#include "planner/support/placement.h"

void stage_open(stage *scene, uint64_t alignment, uint64_t period) {
    *scene = (stage){0};
    scene->problem = (gml_problem){.lifetimes = scene->lifetimes,
                                   .period = period,
                                   .alignment_bytes = alignment,
                                   .orderings = scene->orderings};
}

void stage_place(stage *scene, uint64_t size, uint64_t start, uint64_t end, gml_stream stream,
                 uint64_t offset) {
    size_t i = scene->problem.count++;
    scene->lifetimes[i] =
        (gml_lifetime){.size_bytes = size, .start = start, .end = end, .stream = stream};
    scene->offsets[i] = offset;
}

void stage_order(stage *scene, uint64_t time, gml_stream before, gml_stream after) {
    scene->orderings[scene->problem.ordering_count++] = (gml_ordering){time, before, after};
}

bool stage_lives_at(const stage *scene, size_t i, uint64_t time) {
    const gml_lifetime *lifetime = &scene->lifetimes[i];
    uint64_t period = scene->problem.period;
    return (lifetime->start <= time && time < lifetime->end) ||
           (period && lifetime->start <= time + period && time + period < lifetime->end);
}

bool stage_covers(const stage *scene, size_t i, uint64_t byte) {
    return scene->offsets[i] != GML_NO_OFFSET && scene->offsets[i] <= byte &&
           byte < scene->offsets[i] + scene->lifetimes[i].size_bytes;
}

static bool is_ordered(const stage *scene, size_t a, size_t b) {
    for (size_t i = 0; i < scene->problem.ordering_count; i++) {
        const gml_ordering *ordering = &scene->orderings[i];
        if (ordering->before == scene->lifetimes[a].stream &&
            ordering->after == scene->lifetimes[b].stream &&
            scene->lifetimes[a].end <= ordering->time &&
            ordering->time <= scene->lifetimes[b].start) {
            return true;
        }
    }
    return false;
}

/* One byte over all times: who has it, one after the other. */
static bool byte_is_valid(const stage *scene, uint64_t byte) {
    size_t last = STAGE_MOST;
    for (uint64_t time = 0; time < (scene->problem.period ? scene->problem.period : STAGE_TIMES);
         time++) {
        size_t owner = STAGE_MOST;
        for (size_t i = 0; i < scene->problem.count; i++) {
            if (!stage_covers(scene, i, byte) || !stage_lives_at(scene, i, time)) {
                continue;
            }
            if (owner != STAGE_MOST) {
                return false;
            }
            owner = i;
        }
        if (owner == STAGE_MOST) {
            continue;
        }
        if (last != STAGE_MOST && last != owner &&
            scene->lifetimes[last].stream != scene->lifetimes[owner].stream &&
            !is_ordered(scene, last, owner)) {
            return false;
        }
        last = owner;
    }
    return true;
}

bool stage_is_valid(const stage *scene) {
    uint64_t top = 0;
    for (size_t i = 0; i < scene->problem.count; i++) {
        uint64_t end = scene->offsets[i] + scene->lifetimes[i].size_bytes;
        top = end > top ? end : top;
    }
    bool valid = top == scene->peak;
    for (uint64_t byte = 0; valid && byte < STAGE_BYTES; byte++) {
        valid = byte_is_valid(scene, byte);
    }
    return valid;
}

static void random_lifetime(stage *scene, check_random *random, unsigned streams) {
    uint64_t period = scene->problem.period;
    uint64_t start = check_below(random, period ? period : STAGE_TIMES - 1);
    uint64_t longest = period ? period : STAGE_TIMES - start;
    uint64_t life = 1 + check_below(random, longest < 9 ? longest : 9);
    stage_place(scene, 1 + check_below(random, 6), start, start + life,
                check_below(random, streams), 0);
}

void stage_settle_peak(stage *scene) {
    scene->peak = 0;
    for (size_t i = 0; i < scene->problem.count; i++) {
        uint64_t end = scene->offsets[i] + scene->lifetimes[i].size_bytes;
        scene->peak = end > scene->peak ? end : scene->peak;
    }
}

/* Each goes to the lowest byte where the whole is still valid, or is dropped. */
void stage_fill(stage *scene, check_random *random) {
    stage_open(scene, 1, check_below(random, 3) ? 0 : 12);
    unsigned streams = 1 + (unsigned)check_below(random, 3);
    while (streams > 1 && !scene->problem.period && scene->problem.ordering_count < 8) {
        stage_order(scene, check_below(random, STAGE_TIMES), check_below(random, streams),
                    check_below(random, streams));
    }
    size_t wanted = 2 + check_below(random, STAGE_MOST - 2);
    while (wanted-- > 0) {
        random_lifetime(scene, random, streams);
        size_t i = scene->problem.count - 1;
        for (; scene->offsets[i] + scene->lifetimes[i].size_bytes <= STAGE_BYTES;
             scene->offsets[i]++) {
            stage_settle_peak(scene);
            if (stage_is_valid(scene)) {
                break;
            }
        }
        if (scene->offsets[i] + scene->lifetimes[i].size_bytes > STAGE_BYTES) {
            scene->problem.count--;
        }
    }
    stage_settle_peak(scene);
}
