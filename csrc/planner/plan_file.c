/* Writing plans. */
#include "planner/plan_file.h"

#include <stdlib.h>

typedef struct plan_writer {
    const gml_plan *plan;
    gml_byte_writer out;
    uint64_t *sizes; /* ascending; in units */
    size_t size_count;
    uint32_t *size_index; /* by entry of the first step */
    uint64_t *last;       /* what the last entry of each size had */
} plan_writer;

static void
put(plan_writer *encoder, uint64_t value)
{
    gml_put_varint(&encoder->out, value);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static int
compare_numbers(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static uint32_t
index_of_size(const plan_writer *encoder, uint64_t size)
{
    size_t low = 0, high = encoder->size_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (encoder->sizes[middle] <= size) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return (uint32_t)low;
}

static gml_status
open_encoder(plan_writer *encoder, const gml_plan *plan)
{
    size_t count = plan->step_entry[1];
    encoder->plan = plan;
    encoder->sizes = gml_plan_array(count, sizeof(uint64_t));
    encoder->size_index = gml_plan_array(count, sizeof(uint32_t));
    encoder->last = gml_plan_array(count, sizeof(uint64_t));
    if (!encoder->sizes || !encoder->size_index || !encoder->last) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        encoder->sizes[i] = plan->entries[i].size_bytes / GML_PLAN_UNIT;
    }
    qsort(encoder->sizes, count, sizeof(uint64_t), compare_numbers);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || encoder->sizes[i] != encoder->sizes[encoder->size_count - 1]) {
            encoder->sizes[encoder->size_count++] = encoder->sizes[i];
        }
    }
    for (size_t i = 0; i < count; i++) {
        encoder->size_index[i] =
            index_of_size(encoder, plan->entries[i].size_bytes / GML_PLAN_UNIT);
    }
    return GML_OK;
}

static void
forget_last(plan_writer *encoder)
{
    for (size_t i = 0; i < encoder->size_count; i++) {
        encoder->last[i] = 0;
    }
}

/* ---- sections -------------------------------------------------------------------------------- */

static void
put_counts(plan_writer *encoder)
{
    const gml_plan *plan = encoder->plan;
    put(encoder, plan->steps);
    put(encoder, plan->step_time[1]);
    put(encoder, plan->step_entry[1]);
    put(encoder, plan->step_mark[1]);
    put(encoder, plan->lane_count);
    put(encoder, encoder->size_count);
    put(encoder, plan->visit_count);
    put(encoder, plan->dynamic_count);
    put(encoder, plan->span_count);
    gml_put_fixed(&encoder->out, plan->fingerprint, 8);
}

static void
put_lanes(plan_writer *encoder)
{
    for (size_t i = 0; i < encoder->plan->lane_count; i++) {
        const gml_plan_lane *lane = &encoder->plan->lanes[i];
        put(encoder, lane->stream);
        put(encoder, lane->peak_bytes / GML_PLAN_UNIT);
        put(encoder, lane->lower_bound_bytes / GML_PLAN_UNIT);
        put(encoder, lane->method);
    }
}

static void
put_sizes(plan_writer *encoder)
{
    for (size_t i = 0; i < encoder->size_count; i++) {
        put(encoder, encoder->sizes[i] - (i > 0 ? encoder->sizes[i - 1] : 0));
    }
}

static void
put_times(plan_writer *encoder)
{
    const gml_plan *plan = encoder->plan;
    uint64_t earliest = 0;
    for (size_t i = 0; i < plan->step_entry[1]; i++) {
        put(encoder, encoder->size_index[i]);
        put(encoder, plan->entries[i].start - earliest);
        put(encoder, plan->entries[i].end - plan->entries[i].start);
        earliest = plan->entries[i].start + 1;
    }
}

static void
put_lane_column(plan_writer *encoder)
{
    const gml_plan *plan = encoder->plan;
    gml_guess_writer guesses = {0};
    uint32_t guess = 0;
    for (size_t i = 0; i < plan->step_entry[1]; i++) {
        gml_put_guessed(&encoder->out, &guesses, plan->entries[i].lane, guess);
        guess = plan->entries[i].lane;
    }
    gml_end_guesses(&encoder->out, &guesses);
}

static void
put_phase_starts(plan_writer *encoder)
{
    const gml_plan *plan = encoder->plan;
    gml_guess_writer guesses = {0};
    uint32_t guess = 0;
    for (size_t i = 0; i < plan->step_entry[1]; i++) {
        gml_put_guessed(&encoder->out, &guesses, plan->entries[i].phase_start, guess);
        guess = plan->entries[i].phase_start;
    }
    gml_end_guesses(&encoder->out, &guesses);
}

static void
put_phase_ends(plan_writer *encoder)
{
    const gml_plan *plan = encoder->plan;
    gml_guess_writer guesses = {0};
    forget_last(encoder);
    for (size_t i = 0; i < plan->step_entry[1]; i++) {
        const gml_plan_entry *entry = &plan->entries[i];
        uint64_t *last = &encoder->last[encoder->size_index[i]];
        uint64_t distance = gml_difference(entry->phase_end, entry->phase_start);
        gml_put_guessed(&encoder->out, &guesses, distance, *last);
        *last = distance;
    }
    gml_end_guesses(&encoder->out, &guesses);
}

static void
put_offset(plan_writer *encoder, uint64_t offset, uint64_t base)
{
    put(encoder, offset == GML_NO_OFFSET ? 0 : 1 + gml_difference(offset / GML_PLAN_UNIT, base));
}

static void
put_offsets(plan_writer *encoder)
{
    const gml_plan *plan = encoder->plan;
    size_t half = plan->step_entry[1];
    forget_last(encoder);
    for (size_t i = 0; i < half; i++) {
        uint64_t *last = &encoder->last[encoder->size_index[i]];
        uint64_t offset = plan->entries[i].offset;
        put_offset(encoder, offset, *last);
        *last = offset == GML_NO_OFFSET ? *last : offset / GML_PLAN_UNIT;
    }
    for (size_t i = half; i < plan->entry_count; i++) {
        uint64_t model = plan->entries[i - half].offset;
        put_offset(encoder, plan->entries[i].offset,
                   model == GML_NO_OFFSET ? 0 : model / GML_PLAN_UNIT);
    }
}

static void
put_marks_and_visits(plan_writer *encoder)
{
    const gml_plan *plan = encoder->plan;
    uint32_t entry = 0;
    for (size_t i = 0; i < plan->step_mark[1]; i++) {
        put(encoder, plan->marks[i].phase);
        put(encoder, plan->marks[i].entry - entry);
        entry = plan->marks[i].entry;
    }
    for (size_t i = 0; i < plan->visit_count; i++) {
        put(encoder, plan->visits[i].scope);
        put(encoder, plan->visits[i].request_count);
    }
}

static void
put_dynamic(plan_writer *encoder)
{
    const gml_plan *plan = encoder->plan;
    uint32_t first = 0;
    for (size_t i = 0; i < plan->dynamic_count; i++) {
        put(encoder, plan->dynamic[i].size_bytes / GML_PLAN_UNIT);
        put(encoder, plan->dynamic[i].lane);
        put(encoder, gml_difference(plan->dynamic[i].first_span, first));
        put(encoder, plan->dynamic[i].span_count);
        first = plan->dynamic[i].first_span;
    }
    uint64_t end = 0;
    for (size_t i = 0; i < plan->span_count; i++) {
        uint64_t offset = plan->spans[i].offset / GML_PLAN_UNIT;
        uint64_t size = plan->spans[i].size_bytes / GML_PLAN_UNIT;
        put(encoder, gml_difference(offset, end));
        put(encoder, size);
        end = offset + size;
    }
}

static void
put_all(plan_writer *encoder)
{
    gml_put_fixed(&encoder->out, GML_PLAN_FILE_MAGIC, 8);
    gml_put_fixed(&encoder->out, GML_PLAN_FILE_VERSION, 4);
    gml_put_fixed(&encoder->out, 0, 4);
    gml_put_fixed(&encoder->out, 0, 8); /* until the rest is known */
    put_counts(encoder);
    put_lanes(encoder);
    put_sizes(encoder);
    put_times(encoder);
    put_lane_column(encoder);
    put_phase_starts(encoder);
    put_phase_ends(encoder);
    put_offsets(encoder);
    put_marks_and_visits(encoder);
    put_dynamic(encoder);
}

static void
seal(gml_byte_writer *out)
{
    uint64_t sum =
        gml_checksum(out->bytes + GML_PLAN_FILE_HEADER, out->count - GML_PLAN_FILE_HEADER);
    for (unsigned i = 0; i < 8; i++) {
        out->bytes[GML_PLAN_FILE_CHECKSUM + i] = (uint8_t)(sum >> (8 * i));
    }
}

gml_status
gml_plan_encode(const gml_plan *plan, uint8_t **out, size_t *out_bytes)
{
    plan_writer encoder = {.plan = plan};
    gml_status status = open_encoder(&encoder, plan);
    if (status == GML_OK) {
        put_all(&encoder);
        status = encoder.out.has_failed ? GML_NO_HOST_MEMORY : GML_OK;
    }
    free(encoder.sizes);
    free(encoder.size_index);
    free(encoder.last);
    if (status != GML_OK) {
        free(encoder.out.bytes);
        return status;
    }
    seal(&encoder.out);
    *out = encoder.out.bytes;
    *out_bytes = encoder.out.count;
    return GML_OK;
}
