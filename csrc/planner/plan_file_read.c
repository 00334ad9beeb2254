/* Reading plans. A file may come from anywhere: nothing is allocated for what it only announces,
 * every number is in range before it is added or used as an index, and the plan that results has to
 * pass gml_plan_check() like any other. */
#include "planner/plan_file.h"

#include <inttypes.h>
#include <stdlib.h>

#define MOST_UNITS (GML_PLAN_MOST_BYTES / GML_PLAN_UNIT)

typedef struct plan_reader {
    gml_byte_reader in;
    gml_plan *plan;
    size_t step_entries;
    uint64_t *sizes; /* in units */
    size_t size_count;
    uint32_t *size_index; /* by entry of the first step */
    uint64_t *last;       /* what the last entry of each size had */
} plan_reader;

static uint64_t
get_units(plan_reader *decoder)
{
    return gml_get_up_to(&decoder->in, MOST_UNITS, "a size or offset is too large");
}

static uint32_t
get_u32(plan_reader *decoder)
{
    return (uint32_t)gml_get_up_to(&decoder->in, UINT32_MAX, "a number is too large");
}

/* ---- counts ---------------------------------------------------------------------------------- */

static void
get_counts(plan_reader *decoder)
{
    gml_plan *plan = decoder->plan;
    gml_byte_reader *in = &decoder->in;
    plan->steps = (unsigned)gml_get_up_to(in, GML_PLAN_MOST_STEPS, "it has too many steps");
    if (plan->steps == 0) {
        gml_fail_reading(in, "it has no steps");
        return;
    }
    uint64_t events = gml_get_up_to(in, GML_PLAN_MOST_EVENTS, "a step has too many events");
    decoder->step_entries = gml_get_count(in, GML_PLAN_FILE_ENTRY_BYTES);
    size_t step_marks = gml_get_count(in, 2);
    plan->lane_count = gml_get_count(in, 4);
    decoder->size_count = gml_get_count(in, 1);
    plan->visit_count = gml_get_count(in, 2);
    plan->dynamic_count = gml_get_count(in, 4);
    plan->span_count = gml_get_count(in, 2);
    plan->fingerprint = gml_get_fixed(in, 8);
    plan->period = events * plan->steps;
    plan->entry_count = decoder->step_entries * plan->steps;
    plan->mark_count = step_marks * plan->steps;
    for (unsigned i = 0; i <= plan->steps; i++) {
        plan->step_time[i] = i * events;
        plan->step_entry[i] = i * decoder->step_entries;
        plan->step_mark[i] = i * step_marks;
    }
}

static gml_status
make_room(plan_reader *decoder)
{
    gml_plan *plan = decoder->plan;
    plan->entries = gml_plan_array(plan->entry_count, sizeof(gml_plan_entry));
    plan->lanes = gml_plan_array(plan->lane_count, sizeof(gml_plan_lane));
    plan->marks = gml_plan_array(plan->mark_count, sizeof(gml_plan_mark));
    plan->visits = gml_plan_array(plan->visit_count, sizeof(gml_plan_visit));
    plan->dynamic = gml_plan_array(plan->dynamic_count, sizeof(gml_plan_dynamic));
    plan->spans = gml_plan_array(plan->span_count, sizeof(gml_span));
    decoder->sizes = gml_plan_array(decoder->size_count, sizeof(uint64_t));
    decoder->last = gml_plan_array(decoder->size_count, sizeof(uint64_t));
    decoder->size_index = gml_plan_array(decoder->step_entries, sizeof(uint32_t));
    bool has_room = plan->entries && plan->lanes && plan->marks && plan->visits && plan->dynamic &&
                    plan->spans && decoder->sizes && decoder->last && decoder->size_index;
    return has_room ? GML_OK : GML_NO_HOST_MEMORY;
}

/* ---- sections -----------------------------------------------------------------------------------
 *
 * What has failed once yields zeros only, so loops need not look.
 */

static void
get_lanes(plan_reader *decoder)
{
    for (size_t i = 0; i < decoder->plan->lane_count; i++) {
        decoder->plan->lanes[i] = (gml_plan_lane){.stream = gml_get_varint(&decoder->in)};
        decoder->plan->lanes[i].peak_bytes = get_units(decoder) * GML_PLAN_UNIT;
        decoder->plan->lanes[i].lower_bound_bytes = get_units(decoder) * GML_PLAN_UNIT;
        decoder->plan->lanes[i].method = (gml_method)gml_get_up_to(
            &decoder->in, GML_METHOD_COUNT - 1, "a lane was placed by an unknown method");
    }
}

static void
get_sizes(plan_reader *decoder)
{
    uint64_t size = 0;
    for (size_t i = 0; i < decoder->size_count; i++) {
        size += get_units(decoder);
        if (size == 0 || size > MOST_UNITS) {
            gml_fail_reading(&decoder->in, "a size is 0 or too large");
            size = 0;
        }
        decoder->sizes[i] = size;
    }
}

static void
get_times(plan_reader *decoder)
{
    gml_byte_reader *in = &decoder->in;
    gml_plan *plan = decoder->plan;
    uint64_t earliest = 0, events = plan->step_time[1];
    for (size_t i = 0; i < decoder->step_entries; i++) {
        uint64_t index = gml_get_varint(in);
        uint64_t gap = gml_get_varint(in), life = gml_get_varint(in);
        if (index >= decoder->size_count || gap >= events - earliest || life > plan->period) {
            gml_fail_reading(in, "an entry has an unknown size, or lies outside of the step");
            return;
        }
        gml_plan_entry *entry = &plan->entries[i];
        decoder->size_index[i] = (uint32_t)index;
        entry->size_bytes = decoder->sizes[index] * GML_PLAN_UNIT;
        entry->start = earliest + gap;
        entry->end = entry->start + life;
        earliest = entry->start + 1;
    }
}

static void
get_lane_column(plan_reader *decoder)
{
    gml_guess_reader guesses = {0};
    uint64_t lane = 0;
    for (size_t i = 0; i < decoder->step_entries; i++) {
        lane = gml_get_guessed(&decoder->in, &guesses, lane);
        if (lane >= decoder->plan->lane_count) {
            gml_fail_reading(&decoder->in, "an entry is in an unknown lane");
            return;
        }
        decoder->plan->entries[i].lane = (uint32_t)lane;
    }
    gml_close_guesses(&decoder->in, &guesses);
}

static void
get_phase_starts(plan_reader *decoder)
{
    gml_guess_reader guesses = {0};
    uint64_t phase = 0;
    for (size_t i = 0; i < decoder->step_entries; i++) {
        phase = gml_get_guessed(&decoder->in, &guesses, phase);
        if (phase > UINT32_MAX) {
            gml_fail_reading(&decoder->in, "a phase has too large a number");
            return;
        }
        decoder->plan->entries[i].phase_start = (uint32_t)phase;
    }
    gml_close_guesses(&decoder->in, &guesses);
}

static void
forget_last(plan_reader *decoder)
{
    for (size_t i = 0; i < decoder->size_count; i++) {
        decoder->last[i] = 0;
    }
}

static void
get_phase_ends(plan_reader *decoder)
{
    gml_guess_reader guesses = {0};
    forget_last(decoder);
    for (size_t i = 0; i < decoder->step_entries; i++) {
        gml_plan_entry *entry = &decoder->plan->entries[i];
        uint64_t *last = &decoder->last[decoder->size_index[i]];
        *last = gml_get_guessed(&decoder->in, &guesses, *last);
        uint64_t phase = gml_add_difference(entry->phase_start, *last);
        if (phase > UINT32_MAX) {
            gml_fail_reading(&decoder->in, "a phase has too large a number");
            return;
        }
        entry->phase_end = (uint32_t)phase;
    }
    gml_close_guesses(&decoder->in, &guesses);
}

/* In units; *is_placed: there is one. */
static uint64_t
get_offset(plan_reader *decoder, uint64_t base, bool *is_placed)
{
    uint64_t code = gml_get_varint(&decoder->in);
    *is_placed = code != 0;
    uint64_t offset = code ? gml_add_difference(base, code - 1) : base;
    if (offset > MOST_UNITS) {
        gml_fail_reading(&decoder->in, "an offset is too large");
        return 0;
    }
    return offset;
}

static void
get_offsets(plan_reader *decoder)
{
    gml_plan *plan = decoder->plan;
    forget_last(decoder);
    for (size_t i = 0; i < plan->entry_count && !decoder->in.failure; i++) {
        gml_plan_entry *entry = &plan->entries[i];
        bool is_placed;
        if (i < decoder->step_entries) {
            uint64_t *last = &decoder->last[decoder->size_index[i]];
            *last = get_offset(decoder, *last, &is_placed);
            entry->offset = is_placed ? *last * GML_PLAN_UNIT : GML_NO_OFFSET;
        } else {
            const gml_plan_entry *model = &plan->entries[i - decoder->step_entries];
            uint64_t base = model->offset == GML_NO_OFFSET ? 0 : model->offset / GML_PLAN_UNIT;
            *entry = *model;
            entry->start += plan->step_time[1];
            entry->end += plan->step_time[1];
            entry->offset = get_offset(decoder, base, &is_placed) * GML_PLAN_UNIT;
            entry->offset = is_placed ? entry->offset : GML_NO_OFFSET;
        }
        plan->placed_count += is_placed;
    }
}

static void
get_marks_and_visits(plan_reader *decoder)
{
    gml_plan *plan = decoder->plan;
    size_t step_marks = plan->step_mark[1];
    uint64_t entry = 0;
    for (size_t i = 0; i < step_marks; i++) {
        plan->marks[i].phase = get_u32(decoder);
        entry += gml_get_up_to(&decoder->in, decoder->step_entries - entry,
                               "a mark lies behind the step");
        plan->marks[i].entry = (uint32_t)entry;
    }
    for (size_t i = step_marks; i < plan->mark_count; i++) {
        plan->marks[i] = plan->marks[i - step_marks];
        plan->marks[i].entry += (uint32_t)decoder->step_entries;
    }
    uint64_t first = 0;
    for (size_t i = 0; i < plan->visit_count; i++) {
        plan->visits[i].scope = get_u32(decoder);
        plan->visits[i].first_request = (uint32_t)first;
        plan->visits[i].request_count = (uint32_t)gml_get_up_to(
            &decoder->in, plan->dynamic_count - first, "a visit has too many requests");
        first += plan->visits[i].request_count;
    }
}

static void
get_dynamic(plan_reader *decoder)
{
    gml_plan *plan = decoder->plan;
    uint64_t first = 0;
    for (size_t i = 0; i < plan->dynamic_count; i++) {
        gml_plan_dynamic *dynamic = &plan->dynamic[i];
        dynamic->size_bytes = get_units(decoder) * GML_PLAN_UNIT;
        dynamic->lane = get_u32(decoder);
        first = gml_add_difference(first, gml_get_varint(&decoder->in));
        if (first > plan->span_count) {
            gml_fail_reading(&decoder->in, "a dynamic request has spans that do not exist");
            return;
        }
        dynamic->first_span = (uint32_t)first;
        dynamic->span_count = get_u32(decoder);
    }
    uint64_t end = 0;
    for (size_t i = 0; i < plan->span_count; i++) {
        uint64_t offset = gml_add_difference(end, gml_get_varint(&decoder->in));
        uint64_t size = get_units(decoder);
        if (offset > MOST_UNITS) {
            gml_fail_reading(&decoder->in, "a span lies too high");
            return;
        }
        plan->spans[i] = (gml_span){offset * GML_PLAN_UNIT, size * GML_PLAN_UNIT};
        end = offset + size;
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void
get_sections(plan_reader *decoder)
{
    static void (*const sections[])(plan_reader *) = {
        get_lanes,        get_sizes,      get_times,   get_lane_column,
        get_phase_starts, get_phase_ends, get_offsets, get_marks_and_visits,
        get_dynamic,
    };
    for (size_t i = 0; i < sizeof sections / sizeof sections[0] && !decoder->in.failure; i++) {
        sections[i](decoder);
    }
    if (decoder->in.at != decoder->in.count) {
        gml_fail_reading(&decoder->in, "something follows its end");
    }
}

static gml_status
get_header(gml_byte_reader *in, char *reason, size_t reason_bytes)
{
    if (in->count > GML_PLAN_MOST_ENTRIES) {
        return gml_refuse(GML_CORRUPT, reason, reason_bytes, "this is too large for a plan");
    }
    if (gml_get_fixed(in, 8) != GML_PLAN_FILE_MAGIC) {
        return gml_refuse(GML_CORRUPT, reason, reason_bytes, "this is not a plan");
    }
    uint64_t version = gml_get_fixed(in, 4);
    if (in->failure == NULL && version != GML_PLAN_FILE_VERSION) {
        return gml_refuse(GML_UNSUPPORTED, reason, reason_bytes,
                          "a plan of version %" PRIu64 "; this gmlake reads version %d: make "
                          "the plan again",
                          version, (int)GML_PLAN_FILE_VERSION);
    }
    uint64_t zero = gml_get_fixed(in, 4), sum = gml_get_fixed(in, 8);
    if (in->failure || zero != 0 || sum != gml_checksum(in->bytes + in->at, in->count - in->at)) {
        return gml_refuse(GML_CORRUPT, reason, reason_bytes,
                          "the plan is damaged: its checksum does not agree");
    }
    return GML_OK;
}

static gml_status
decode(plan_reader *decoder, char *reason, size_t reason_bytes)
{
    get_counts(decoder);
    if (!decoder->in.failure) {
        if (make_room(decoder) != GML_OK) {
            return gml_refuse(GML_NO_HOST_MEMORY, reason, reason_bytes, "no host memory");
        }
        get_sections(decoder);
    }
    if (decoder->in.failure) {
        return gml_refuse(GML_CORRUPT, reason, reason_bytes,
                          "the plan is damaged before byte %zu: %s", decoder->in.at,
                          decoder->in.failure);
    }
    return gml_plan_check(decoder->plan, reason, reason_bytes);
}

gml_status
gml_plan_decode(const uint8_t *bytes, size_t byte_count, gml_plan **out, char *reason,
                size_t reason_bytes)
{
    plan_reader decoder = {.in = {.bytes = bytes, .count = byte_count}};
    gml_status status = get_header(&decoder.in, reason, reason_bytes);
    if (status != GML_OK) {
        return status;
    }
    decoder.plan = gml_plan_new();
    status = decoder.plan ? decode(&decoder, reason, reason_bytes)
                          : gml_refuse(GML_NO_HOST_MEMORY, reason, reason_bytes, "no host memory");
    free(decoder.sizes);
    free(decoder.size_index);
    free(decoder.last);
    if (status != GML_OK) {
        gml_plan_release(decoder.plan);
        return status;
    }
    *out = decoder.plan;
    return GML_OK;
}
