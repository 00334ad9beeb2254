/* What a plan must leave where it is: blocks in the pool that live through the step, and that the
 * step did not ask for. */
#include "policy/plan/planned.h"

#include <stdlib.h>

/* Whether the step that made the block is another than `record`, and not one like it: a plan knows
 * how the blocks of its own kind of step overlap with those of the next. What has no record any
 * more has lived through several steps. */
static bool
is_foreign(const gml_planned *planned, const gml_lane_block *block, const gml_record *record)
{
    if (block->kind == record->kind && block->serial == record->step.serial) {
        return false;
    }
    const gml_record *maker = gml_map_find(&planned->records, block->block.note >> 32);
    return block->is_borrowed || block->kind != record->kind || !maker ||
           maker->fingerprint != record->fingerprint;
}

void
gml_planned_note_inherited(gml_planned *planned, const gml_lane_block *block)
{
    gml_record *record = planned->open.record;
    if (!record || (block->kind == record->kind && block->serial == record->step.serial)) {
        return;
    }
    /* Whether it is foreign shows at the end of the step, when its requests are known; without host
     * memory the plan may want its place, and does not get it. */
    gml_record_inherit(
        record, (gml_inherited){
                    .taken = {block->lane->pond->stream, {block->offset, block->block.block_bytes}},
                    .maker = block->block.note >> 32,
                    .is_alien = block->is_borrowed || block->kind != record->kind,
                    .time = record->step.event_count,
                });
}

/* Whether it was there for most of the step: what goes early is best overlooked. */
static bool
has_stayed(const gml_planned *planned, const gml_record *record, const gml_inherited *inherited)
{
    const gml_record *maker = gml_map_find(&planned->records, inherited->maker);
    bool is_foreign_one =
        inherited->is_alien || !maker || maker->fingerprint != record->fingerprint;
    return is_foreign_one && inherited->time >= record->step.event_count / 2;
}

/* Copies what is taken to `out`, unless that is NULL; returns how much it is. */
static size_t
list(const gml_planned *planned, const gml_record *last, gml_taken *out)
{
    size_t count = 0;
    for (size_t i = 0; i < last->inherited_count; i++) {
        if (has_stayed(planned, last, &last->inherited[i])) {
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
                if (!is_foreign(planned, block, last)) {
                    continue;
                }
                if (out) {
                    out[count] =
                        (gml_taken){lane->pond->stream, {block->offset, block->block.block_bytes}};
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
