/* What a plan must leave where it is: blocks in the pool that live through the step, and that the
 * step did not ask for. */
#include "plan/planned.h"

#include <stdlib.h>

static bool
is_of(const gml_lane_block *block, const gml_record *record)
{
    return block->kind == record->kind && block->serial == record->step.serial;
}

static gml_inherited
inherited_by(const gml_record *record, const gml_lane_block *block)
{
    return (gml_inherited){
        .taken = {block->lane->pond->stream, {block->offset, block->block.block_bytes}},
        .maker = block->block.note >> 32,
        .time = record->step.event_count,
        .is_alien = block->is_borrowed || block->kind != record->kind,
    };
}

void
gml_planned_note_inherited(gml_planned *planned, const gml_lane_block *block)
{
    gml_record *record = planned->open.record;
    if (record && !is_of(block, record)) {
        /* Without host memory the plan may want its place, and does not get it. */
        gml_record_inherit(record, inherited_by(record, block));
    }
}

/* Whether a plan for `record` must leave it: it was there for most of the step, since what goes
 * early is best overlooked, and the step that made it is not one like `record`, for a plan knows
 * how the blocks of its own kind of step overlap with those of the next. What has no record any
 * more has lived through several steps. pre: `record` has ended, so that its requests are known. */
static bool
is_taken(const gml_planned *planned, const gml_record *record, const gml_inherited *inherited)
{
    const gml_record *maker = gml_map_find(&planned->records, inherited->maker);
    bool is_foreign = inherited->is_alien || !maker || maker->fingerprint != record->fingerprint;
    return is_foreign && inherited->time >= record->step.event_count / 2;
}

/* Copies what is taken to `out`, unless that is NULL; returns how much it is. */
static size_t
list(const gml_planned *planned, const gml_record *last, gml_taken *out)
{
    size_t count = 0;
    for (size_t i = 0; i < last->inherited_count; i++) {
        if (is_taken(planned, last, &last->inherited[i])) {
            if (out) {
                out[count] = last->inherited[i].taken;
            }
            count++;
        }
    }
    for (const gml_lane *lane = planned->lanes.first; lane; lane = lane->next) {
        for (uint64_t cell = 0; cell < lane->cell_count; cell++) {
            const gml_lane_block *block = lane->cells[cell].first;
            for (; block; block = block->next) {
                const gml_inherited still = inherited_by(last, block);
                if (is_of(block, last) || !is_taken(planned, last, &still)) {
                    continue;
                }
                if (out) {
                    out[count] = still.taken;
                }
                count++;
            }
        }
    }
    return count;
}

gml_status
gml_planned_list_taken(const gml_planned *planned, const gml_record *last, gml_profile *profile)
{
    profile->taken_count = list(planned, last, NULL);
    profile->taken = calloc(profile->taken_count + 1, sizeof *profile->taken);
    if (!profile->taken) {
        return GML_NO_HOST_MEMORY;
    }
    (void)list(planned, last, profile->taken);
    return GML_OK;
}
