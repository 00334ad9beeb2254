/* The position, and a detour that may replace it.
 *
 * After a disagreement there are 2 explanations of what comes: the position (the request was
 * inserted, or has taken the place of the entry there) and the detour (entries are missing). Both
 * are followed until one of them fails; as long as both agree, the position is believed. When it
 * fails again, a detour by one entry is followed at once, any other only if it has agreed for some
 * time: layers of a model look alike, and a part of one looks like a part of any.
 */
#include "planner/matcher.h"

#include "base/rounding.h"

#include <stdlib.h>
#include <string.h>

enum {
    WORD_BITS = 64,
    NEAR_LENGTH = 2, /* requests that a detour by one entry has to agree with to be followed, */
    FAR_LENGTH = 8,  /* and any other: 7 requests that look like another layer mislead nobody */
    MOST_MARKS = 256 /* looked at for one that the program enters */
};

/* ---- what was met ---------------------------------------------------------------------------- */

static bool
is_met(const gml_matcher *matcher, size_t entry)
{
    return (matcher->is_met[entry / WORD_BITS] >> (entry % WORD_BITS)) & 1;
}

static size_t
meet(gml_matcher *matcher, size_t entry)
{
    matcher->is_met[entry / WORD_BITS] |= UINT64_C(1) << (entry % WORD_BITS);
    return entry;
}

/* Entries [first, end) count as not met. */
static void
clear_range(gml_matcher *matcher, size_t first, size_t end)
{
    while (first < end) {
        size_t bit = first % WORD_BITS;
        size_t count = end - first < WORD_BITS - bit ? end - first : WORD_BITS - bit;
        matcher->is_met[first / WORD_BITS] &= ~((UINT64_MAX >> (WORD_BITS - count)) << bit);
        first += count;
    }
}

static bool
agrees(const gml_matcher *matcher, size_t entry, uint64_t size_bytes, uint32_t lane)
{
    if (entry >= matcher->end) {
        return false;
    }
    const gml_plan_entry *expected = &matcher->plan->entries[entry];
    return expected->size_bytes == size_bytes && expected->lane == lane;
}

static bool
is_open(const gml_matcher *matcher, size_t entry, uint64_t size_bytes, uint32_t lane)
{
    return agrees(matcher, entry, size_bytes, lane) && !is_met(matcher, entry);
}

/* ---- detours --------------------------------------------------------------------------------- */

static bool
is_near(const gml_detour *detour)
{
    return detour->first == detour->from + 1;
}

static void
leave_detour(gml_matcher *matcher)
{
    gml_detour *detour = &matcher->detour;
    if (detour->length) {
        clear_range(matcher, detour->first, detour->next);
    }
    detour->length = 0;
}

static void
follow_detour(gml_matcher *matcher)
{
    gml_detour *detour = &matcher->detour;
    clear_range(matcher, detour->next, matcher->position); /* it leads back: they come again */
    matcher->position = detour->next;
    detour->length = 0;
}

static size_t
begin_detour(gml_matcher *matcher, size_t entry)
{
    matcher->detour = (gml_detour){
        .first = entry,
        .next = entry + 1,
        .from = matcher->position,
        .length = 1,
    };
    return meet(matcher, entry);
}

/* The nearest entry that the request may be. Ahead first, as requests are missing or come early
 * more often than they come late; one that was met only if there is no other, as when the position
 * has run ahead by a layer and the layers are at their end. */
static size_t
look_around(const gml_matcher *matcher, uint64_t size_bytes, uint32_t lane)
{
    size_t position = matcher->position, met = GML_NO_ENTRY;
    size_t ahead = matcher->end - position, behind = position - matcher->begin;
    for (size_t i = 1; i < ahead && i <= matcher->window; i++) {
        if (is_open(matcher, position + i, size_bytes, lane)) {
            return position + i;
        }
    }
    for (size_t i = 1; i <= behind && i <= matcher->window; i++) {
        if (is_open(matcher, position - i, size_bytes, lane)) {
            return position - i;
        }
        if (met == GML_NO_ENTRY && agrees(matcher, position - i, size_bytes, lane)) {
            met = position - i;
        }
    }
    return met;
}

static size_t
meet_elsewhere(gml_matcher *matcher, uint64_t size_bytes, uint32_t lane)
{
    leave_detour(matcher);
    size_t entry = look_around(matcher, size_bytes, lane);
    return entry == GML_NO_ENTRY ? GML_NO_ENTRY : begin_detour(matcher, entry);
}

/* The entry by which the position agrees, or `end`: the next one, too, as the request that began
 * the detour may have taken the place of the one before. */
static size_t
entry_at_position(const gml_matcher *matcher, uint64_t size_bytes, uint32_t lane)
{
    size_t position = matcher->position;
    if (agrees(matcher, position, size_bytes, lane)) {
        return position;
    }
    return agrees(matcher, position + 1, size_bytes, lane) ? position + 1 : matcher->end;
}

static size_t
meet_on_detour(gml_matcher *matcher)
{
    gml_detour *detour = &matcher->detour;
    size_t entry = meet(matcher, detour->next++);
    detour->length++;
    if (detour->length >= (is_near(detour) ? NEAR_LENGTH : FAR_LENGTH)) {
        follow_detour(matcher);
    }
    return entry;
}

static size_t
meet_in_doubt(gml_matcher *matcher, uint64_t size_bytes, uint32_t lane)
{
    gml_detour *detour = &matcher->detour;
    bool detour_agrees = agrees(matcher, detour->next, size_bytes, lane);
    size_t entry = entry_at_position(matcher, size_bytes, lane);
    if (entry == matcher->end) {
        return detour_agrees ? meet_on_detour(matcher) : meet_elsewhere(matcher, size_bytes, lane);
    }
    if (detour_agrees) {
        detour->next++;
        detour->length++;
    } else {
        leave_detour(matcher);
    }
    matcher->position = entry + 1;
    return meet(matcher, entry);
}

/* ---- the interface --------------------------------------------------------------------------- */

gml_status
gml_matcher_open(gml_matcher *matcher, const gml_plan *plan, uint32_t window)
{
    *matcher = (gml_matcher){.plan = plan, .window = window};
    size_t words = gml_divide_up(plan->entry_count, WORD_BITS) + 1;
    matcher->is_met = calloc(words, sizeof *matcher->is_met);
    if (!matcher->is_met) {
        return GML_NO_HOST_MEMORY;
    }
    gml_matcher_begin_step(matcher, 0);
    return GML_OK;
}

void
gml_matcher_close(gml_matcher *matcher)
{
    free(matcher->is_met);
    *matcher = (gml_matcher){0};
}

void
gml_matcher_begin_step(gml_matcher *matcher, unsigned step)
{
    const gml_plan *plan = matcher->plan;
    matcher->begin = plan->step_entry[step];
    matcher->end = plan->step_entry[step + 1];
    matcher->next_mark = plan->step_mark[step];
    matcher->mark_end = plan->step_mark[step + 1];
    matcher->position = matcher->begin;
    matcher->detour.length = 0;
    clear_range(matcher, matcher->begin, matcher->end);
}

size_t
gml_matcher_meet(gml_matcher *matcher, uint64_t size_bytes, uint32_t lane)
{
    if (matcher->detour.length) {
        return meet_in_doubt(matcher, size_bytes, lane);
    }
    if (agrees(matcher, matcher->position, size_bytes, lane)) {
        return meet(matcher, matcher->position++);
    }
    return meet_elsewhere(matcher, size_bytes, lane);
}

/* The step's mark of this phase where the program is, or mark_end. */
static size_t
find_mark(const gml_matcher *matcher, uint32_t phase)
{
    const gml_plan_mark *marks = matcher->plan->marks;
    size_t ahead = matcher->mark_end - matcher->next_mark;
    for (size_t i = 0; i < ahead && i < MOST_MARKS; i++) {
        if (marks[matcher->next_mark + i].phase == phase) {
            return matcher->next_mark + i;
        }
    }
    for (size_t i = matcher->next_mark, left = MOST_MARKS; left > 0 && i > 0; i--, left--) {
        const gml_plan_mark *mark = &marks[i - 1];
        if (mark->entry < matcher->begin) {
            break;
        }
        if (mark->phase == phase && mark->entry < matcher->end && !is_met(matcher, mark->entry)) {
            return i - 1;
        }
    }
    return matcher->mark_end;
}

void
gml_matcher_enter_phase(gml_matcher *matcher, uint32_t phase)
{
    size_t mark = find_mark(matcher, phase);
    if (mark == matcher->mark_end) {
        return;
    }
    leave_detour(matcher);
    size_t entry = matcher->plan->marks[mark].entry;
    clear_range(matcher, entry, matcher->position); /* met too early, so by other requests */
    matcher->position = entry;
    matcher->next_mark = mark + 1;
}

/* ---- choosing among plans -------------------------------------------------------------------- */

/* The streams of the requests so far, in the order of their first use, and the lanes that the plan
 * has in the same places. */
typedef struct lane_pairs {
    gml_stream *streams;
    uint32_t *lanes;
    size_t count, most;
} lane_pairs;

static bool
pairs_up(lane_pairs *pairs, gml_stream stream, uint32_t lane)
{
    for (size_t i = 0; i < pairs->count; i++) {
        if (pairs->streams[i] == stream || pairs->lanes[i] == lane) {
            return pairs->streams[i] == stream && pairs->lanes[i] == lane;
        }
    }
    if (pairs->count == pairs->most) {
        return false;
    }
    pairs->streams[pairs->count] = stream;
    pairs->lanes[pairs->count++] = lane;
    return true;
}

static bool
begins_with(const gml_plan *plan, unsigned step, const gml_step_request *requests, size_t count,
            lane_pairs *pairs)
{
    size_t entry = plan->step_entry[step];
    for (size_t i = 0; i < count && entry < plan->step_entry[step + 1]; i++) {
        if (requests[i].scope_birth != 0) {
            continue;
        }
        const gml_plan_entry *expected = &plan->entries[entry++];
        if (expected->size_bytes != requests[i].size_bytes ||
            !pairs_up(pairs, requests[i].stream, expected->lane)) {
            return false;
        }
    }
    return true;
}

bool
gml_plan_begins_with(const gml_plan *plan, unsigned step, const gml_step_request *requests,
                     size_t count)
{
    lane_pairs pairs = {
        .streams = malloc((plan->lane_count + 1) * sizeof *pairs.streams),
        .lanes = malloc((plan->lane_count + 1) * sizeof *pairs.lanes),
        .most = plan->lane_count,
    };
    bool begins = pairs.streams && pairs.lanes && begins_with(plan, step, requests, count, &pairs);
    free(pairs.lanes);
    free(pairs.streams);
    return begins;
}
