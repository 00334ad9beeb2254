/* The idle addresses of dynamic requests: STAlloc's dynamic reusable space (Tan et al., EuroSys
 * 2026, section 5.2).
 *
 * A request that is made in one module and freed in another may be served by what stays idle from
 * the beginning of the first to the end of the second, whatever its size. Requests with the same
 * two bounds ask for the same addresses, so each pair of bounds is asked for once.
 *
 * What stays idle may be in thousands of pieces, and a plan that lists all of them for each of
 * thousands of pairs of bounds is too large to keep. A request fits into a large span wherever it
 * fits into a small one, and each request that lives takes room from about one span, so that as
 * many of the largest as there are dynamic requests alive at once serve nearly all that the whole
 * list serves. Steps of mixtures of experts leave 2 spans for a pair of bounds. On random steps of
 * 30,000 requests and 10,000 dynamic ones, which leave 400 to 850, of the dynamic requests were
 * served in the next step, whose sizes differ by up to half, in percent:
 *
 *   spans kept                              16     32     64    128    all
 *   many sizes, 40 alive at once, tight   89.4   89.5   89.5   89.5   89.5
 *   many sizes, 1,000 alive at once       85.0   85.1   85.1   85.1   85.4
 *   static 1 to 2 MiB, 40 alive at once   96.2   96.8   97.0   97.0   97.0
 *   static 1 to 2 MiB, 300 alive at once  71.1   77.4   85.2   89.1   89.3
 */
#include "base/map.h"
#include "base/sort.h"
#include "planner/build.h"
#include "planner/idle.h"

#include <stdlib.h>
#include <string.h>

/* Spans that a request may choose from: as many as are alive at once, within these bounds. */
enum { FEWEST_SPANS = 32, MOST_SPANS = 128 };

typedef struct window {
    gml_time_range range;
    gml_time_range life; /* as watched */
    uint32_t lane;
    uint32_t dynamic; /* index in the plan */
} window;

typedef struct span_finder {
    gml_builder *builder;
    uint64_t *marks;  /* times of all marks of the step */
    uint64_t *scopes; /* times of those that enter or leave a scope */
    size_t mark_count, scope_count;
    window *windows; /* ascending by lane and bounds */
    size_t window_count;
    gml_map lists; /* content to the gml_plan_dynamic that has it */
    size_t span_room;
} span_finder;

/* ---- windows --------------------------------------------------------------------------------- */

static void
collect_marks(span_finder *finder)
{
    const gml_step *last = &finder->builder->profile->last;
    for (size_t i = 0; i < last->mark_count; i++) {
        finder->marks[finder->mark_count++] = last->marks[i].time;
        if (last->marks[i].kind == GML_MARK_SCOPE) {
            finder->scopes[finder->scope_count++] = last->marks[i].time;
        }
    }
}

/* The first of ascending times behind `time`, or `otherwise`. */
static uint64_t
first_behind(const uint64_t *times, size_t count, uint64_t time, uint64_t otherwise)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (times[middle] > time) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low < count ? times[low] : otherwise;
}

/* A free within a scope may come as late as the scope ends; one outside, as late as the next mark.
 */
static uint64_t
latest_end(const span_finder *finder, const gml_step_request *request, uint64_t end)
{
    uint64_t step = finder->builder->profile->last.event_count;
    uint64_t time = end % step, begin = end - time;
    return begin + (request->scope_death
                        ? first_behind(finder->scopes, finder->scope_count, time, step)
                        : first_behind(finder->marks, finder->mark_count, time, step));
}

static gml_time_range
range_of(const span_finder *finder, size_t request_index, uint64_t visit_begin, uint64_t step_begin)
{
    uint64_t latest = visit_begin + finder->builder->plan->period;
    uint64_t end = finder->builder->ends[request_index];
    if (end < latest) {
        end = latest_end(finder, &finder->builder->profile->last.requests[request_index], end);
    }
    end = end < latest ? end : latest;
    return (gml_time_range){step_begin + visit_begin, step_begin + end};
}

/* One that nobody saw end is there once in every period. */
static gml_time_range
life_of(const span_finder *finder, size_t request_index, uint64_t step_begin)
{
    uint64_t birth = finder->builder->profile->last.requests[request_index].birth;
    uint64_t end = finder->builder->ends[request_index];
    end = end == GML_LIFE_UNKNOWN ? birth + finder->builder->plan->period : end;
    return (gml_time_range){step_begin + birth, step_begin + end};
}

/* Between two events: what the event behind the mark frees is still live when the scope begins, so
 * that idleness has to begin with the event before it. */
static uint64_t
begin_of_visit(const gml_step_mark *mark)
{
    return mark->time > 0 ? mark->time - 1 : 0;
}

/* pre: in the order in which the plan has its dynamic requests. */
static void
open_windows(span_finder *finder, uint64_t step_begin)
{
    const gml_step *last = &finder->builder->profile->last;
    uint64_t visit_begin = 0;
    uint32_t scope = 0;
    for (size_t i = 0, mark = 0; i < last->request_count; i++) {
        for (; mark < last->mark_count && last->marks[mark].request <= i; mark++) {
            if (last->marks[mark].kind == GML_MARK_SCOPE) {
                visit_begin = begin_of_visit(&last->marks[mark]);
                scope = last->marks[mark].id;
            }
        }
        if (!gml_build_is_dynamic(&last->requests[i])) {
            continue;
        }
        if (last->requests[i].scope_birth != scope) {
            visit_begin = last->requests[i].birth;
            scope = last->requests[i].scope_birth;
        }
        uint32_t dynamic = (uint32_t)finder->window_count;
        finder->windows[finder->window_count++] =
            (window){.range = range_of(finder, i, visit_begin, step_begin),
                     .life = life_of(finder, i, step_begin),
                     .lane = finder->builder->lanes[i],
                     .dynamic = dynamic};
    }
}

static int
compare_bounds(const window *a, const window *b)
{
    if (a->lane != b->lane) {
        return a->lane < b->lane ? -1 : 1;
    }
    if (a->range.start != b->range.start) {
        return a->range.start < b->range.start ? -1 : 1;
    }
    return (a->range.end > b->range.end) - (a->range.end < b->range.end);
}

static int
compare_windows(const void *left, const void *right)
{
    const window *a = left, *b = right;
    int order = compare_bounds(a, b);
    return order ? order : (a->dynamic > b->dynamic) - (a->dynamic < b->dynamic);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static uint64_t
hash_spans(const gml_span *spans, size_t count)
{
    uint64_t hash = count + 1;
    for (size_t i = 0; i < count; i++) {
        hash = gml_fingerprint_add(hash ^ spans[i].offset, spans[i].size_bytes, 1);
    }
    return hash ? hash : 1;
}

static gml_status
append_spans(span_finder *finder, const gml_span *spans, size_t count)
{
    gml_plan *plan = finder->builder->plan;
    if (count > GML_PLAN_MOST_ENTRIES - plan->span_count) {
        return GML_NO_HOST_MEMORY;
    }
    if (plan->span_count + count > finder->span_room) {
        size_t room = 2 * (plan->span_count + count);
        gml_span *larger = realloc(plan->spans, room * sizeof *larger);
        if (!larger) {
            return GML_NO_HOST_MEMORY;
        }
        plan->spans = larger;
        finder->span_room = room;
    }
    for (size_t i = 0; i < count; i++) {
        plan->spans[plan->span_count++] = spans[i];
    }
    return GML_OK;
}

/* Makes `out` say where the list is, which is appended unless the plan has it. */
static gml_status
enter_list(span_finder *finder, const gml_span *spans, size_t count, gml_plan_dynamic *out)
{
    gml_plan *plan = finder->builder->plan;
    if (count == 0) {
        return GML_OK;
    }
    uint64_t hash = hash_spans(spans, count);
    const gml_plan_dynamic *known = gml_map_find(&finder->lists, hash);
    if (known && known->span_count == count &&
        memcmp(plan->spans + known->first_span, spans, count * sizeof *spans) == 0) {
        out->first_span = known->first_span;
        out->span_count = known->span_count;
        return GML_OK;
    }
    out->first_span = (uint32_t)plan->span_count;
    out->span_count = (uint32_t)count;
    gml_status status = append_spans(finder, spans, count);
    return status == GML_OK && !known ? gml_map_insert(&finder->lists, hash, out) : status;
}

/* ---- one lane -------------------------------------------------------------------------------- */

/* The lane's lifetimes, and what is taken as something that lives for ever. */
static gml_status
open_idle_problem(const span_finder *finder, const gml_lane_problems *problems, size_t lane,
                  gml_problem *out, uint64_t **out_offsets)
{
    const gml_builder *builder = finder->builder;
    const gml_profile *profile = builder->profile;
    *out = gml_lane_problem(problems, builder->plan, lane);
    gml_lifetime *lifetimes = gml_plan_array(out->count + profile->taken_count, sizeof *lifetimes);
    uint64_t *offsets = gml_plan_array(out->count + profile->taken_count, sizeof *offsets);
    *out_offsets = offsets;
    for (size_t i = 0; lifetimes && offsets && i < out->count; i++) {
        lifetimes[i] = out->lifetimes[i];
        offsets[i] = problems->offsets[problems->first[lane] + i];
    }
    out->lifetimes = lifetimes;
    out->period = builder->plan->period;
    if (!lifetimes || !offsets) {
        return GML_NO_HOST_MEMORY;
    }
    uint64_t peak = builder->plan->lanes[lane].peak_bytes;
    gml_stream stream = builder->plan->lanes[lane].stream;
    for (size_t i = 0; i < profile->taken_count; i++) {
        gml_span span = profile->taken[i].span;
        if (profile->taken[i].stream != stream || span.offset >= peak) {
            continue;
        }
        uint64_t size = span.size_bytes < peak - span.offset ? span.size_bytes : peak - span.offset;
        lifetimes[out->count] = (gml_lifetime){
            .size_bytes = size, .end = builder->plan->period, .stream = stream, .tag = i};
        offsets[out->count++] = span.offset;
    }
    return GML_OK;
}

/* The most requests that are alive at once. */
static gml_status
count_alive(const window *windows, size_t count, uint64_t period, size_t *most)
{
    gml_keyed *changes = gml_plan_array(4 * count, sizeof *changes);
    if (!changes) {
        return GML_NO_HOST_MEMORY;
    }
    size_t alive = 0; /* when the period begins */
    for (size_t i = 0; i < count; i++) {
        uint64_t turns = (windows[i].life.end - 1) / period;
        alive += turns;
        changes[2 * i] = (gml_keyed){windows[i].life.end - turns * period, 0};
        changes[2 * i + 1] = (gml_keyed){windows[i].life.start, 1};
    }
    gml_sort_keyed(changes, changes + 2 * count, 2 * count);
    *most = alive;
    for (size_t i = 0; i < 2 * count; i++) {
        alive = changes[i].index ? alive + 1 : alive - 1;
        *most = alive > *most ? alive : *most;
    }
    free(changes);
    return GML_OK;
}

/* The different bounds among windows, and for each window which of them it has. */
static size_t
distinct_ranges(const window *windows, size_t count, gml_time_range *ranges, size_t *group)
{
    size_t groups = 0;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || compare_bounds(&windows[i - 1], &windows[i]) != 0) {
            ranges[groups++] = windows[i].range;
        }
        group[i] = groups - 1;
    }
    return groups;
}

static gml_status
enter_lists(span_finder *finder, const window *windows, size_t count, const size_t *group,
            const gml_span *spans, const size_t *first)
{
    gml_plan *plan = finder->builder->plan;
    gml_status status = GML_OK;
    for (size_t i = 0; i < count && status == GML_OK; i++) {
        gml_plan_dynamic *out = &plan->dynamic[windows[i].dynamic];
        if (i > 0 && group[i] == group[i - 1]) {
            const gml_plan_dynamic *before = &plan->dynamic[windows[i - 1].dynamic];
            out->first_span = before->first_span;
            out->span_count = before->span_count;
            continue;
        }
        size_t begin = first[group[i]];
        status = enter_list(finder, spans + begin, first[group[i] + 1] - begin, out);
    }
    return status;
}

static size_t
spans_to_keep(size_t alive)
{
    size_t most = alive < MOST_SPANS ? alive : MOST_SPANS;
    return most > FEWEST_SPANS ? most : FEWEST_SPANS;
}

static gml_status
serve_lane(span_finder *finder, const gml_lane_problems *problems, const window *windows,
           size_t count)
{
    size_t lane = windows->lane;
    gml_problem problem = {.count = 0};
    uint64_t *offsets = NULL;
    gml_span *spans = NULL;
    gml_time_range *ranges = gml_plan_array(count, sizeof *ranges);
    size_t *group = gml_plan_array(count, sizeof *group);
    size_t *first = gml_plan_array(count + 1, sizeof *first);
    gml_status status = open_idle_problem(finder, problems, lane, &problem, &offsets);
    if (!ranges || !group || !first) {
        status = GML_NO_HOST_MEMORY;
    }
    size_t alive = 0;
    if (status == GML_OK) {
        status = count_alive(windows, count, problem.period, &alive);
    }
    if (status == GML_OK) {
        size_t groups = distinct_ranges(windows, count, ranges, group);
        status = gml_idle_largest(&problem, offsets, finder->builder->plan->lanes[lane].peak_bytes,
                                  ranges, groups, spans_to_keep(alive), &spans, first);
    }
    if (status == GML_OK) {
        status = enter_lists(finder, windows, count, group, spans, first);
    }
    free((void *)problem.lifetimes);
    free(offsets);
    free(spans);
    free(ranges);
    free(group);
    free(first);
    return status;
}

static gml_status
serve_lanes(span_finder *finder)
{
    gml_plan *plan = finder->builder->plan;
    gml_lane_problems problems;
    gml_status status = gml_lane_problems_open(&problems, plan);
    if (status != GML_OK) {
        return status;
    }
    for (size_t begin = 0, end = 0; begin < finder->window_count && status == GML_OK; begin = end) {
        uint32_t lane = finder->windows[begin].lane;
        while (end < finder->window_count && finder->windows[end].lane == lane) {
            end++;
        }
        if (plan->lanes[lane].peak_bytes > 0) {
            status = serve_lane(finder, &problems, finder->windows + begin, end - begin);
        }
    }
    gml_lane_problems_close(&problems);
    return status;
}

gml_status
gml_build_find_spans(gml_builder *builder)
{
    const gml_plan *plan = builder->plan;
    const gml_step *last = &builder->profile->last;
    if (plan->dynamic_count == 0) {
        return GML_OK;
    }
    span_finder finder = {
        .builder = builder,
        .marks = gml_plan_array(last->mark_count, sizeof(uint64_t)),
        .scopes = gml_plan_array(last->mark_count, sizeof(uint64_t)),
        .windows = gml_plan_array(plan->dynamic_count, sizeof(window)),
    };
    gml_status status = GML_NO_HOST_MEMORY;
    if (finder.marks && finder.scopes && finder.windows) {
        collect_marks(&finder);
        for (unsigned step = 0; step < plan->steps; step++) {
            open_windows(&finder, plan->step_time[step]);
        }
        qsort(finder.windows, finder.window_count, sizeof(window), compare_windows);
        status = serve_lanes(&finder);
    }
    free(finder.marks);
    free(finder.scopes);
    free(finder.windows);
    gml_map_clear(&finder.lists);
    return status;
}
