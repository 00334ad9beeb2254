/* Looking at every lane, read only. */
#include "plan/lane.h"

#include <inttypes.h>

/* ---- sums ------------------------------------------------------------------------------------ */

static uint64_t
used_within(const gml_lane *lane, uint64_t offset, uint64_t end)
{
    uint64_t used_bytes = end - offset, at, bytes;
    while (gml_occupancy_next_free(&lane->occupancy, offset, end, &at, &bytes)) {
        used_bytes -= bytes;
        offset = at + bytes;
    }
    return used_bytes;
}

uint64_t
gml_lane_largest_free(const gml_lane *lane)
{
    uint64_t offset = 0, end = lane->prefix_count * lane->occupancy.cell_bytes;
    uint64_t largest_bytes = 0, at, bytes;
    while (gml_occupancy_next_free(&lane->occupancy, offset, end, &at, &bytes)) {
        largest_bytes = bytes > largest_bytes ? bytes : largest_bytes;
        offset = at + bytes;
    }
    return largest_bytes;
}

/* ---- check ----------------------------------------------------------------------------------- */

static gml_status
corrupt(const gml_lanes *lanes, const gml_lane *lane, const char *what)
{
    return gml_driver_fail(lanes->stitch->policy.driver, GML_CORRUPT,
                           "the pool of stream %" PRIu64 " %s", lane->pond->stream, what);
}

/* Every byte of it is marked as used, in chunks that are attached. */
static bool
is_block_valid(const gml_lanes *lanes, const gml_lane *lane, const gml_lane_block *block)
{
    uint64_t cell_bytes = gml_stitch_cell_bytes(lanes->stitch);
    uint64_t end = block->offset + block->block.block_bytes;
    uint64_t at, bytes;
    for (uint64_t cell = block->offset / cell_bytes; cell * cell_bytes < end; cell++) {
        if (cell >= lane->cell_count || !lane->cells[cell].chunk) {
            return false;
        }
    }
    return block->lane == lane && block->block.address == lane->base + block->offset &&
           block->block.state == GML_STATE_PLAN &&
           (!block->next || block->next->previous == block) &&
           !gml_occupancy_next_free(&lane->occupancy, block->offset, end, &at, &bytes);
}

static bool
is_chunk_valid(const gml_lanes *lanes, const gml_lane *lane, const gml_placement *chunk)
{
    return chunk->state == GML_PLACEMENT_LIVE && chunk->pond == lane->pond &&
           chunk->run_count == 1 &&
           chunk->only_run.size_bytes == gml_stitch_cell_bytes(lanes->stitch);
}

static gml_status
check_lane(const gml_lanes *lanes, const gml_lane *lane)
{
    uint64_t attached_count = 0, used_bytes = 0;
    for (uint64_t cell = 0; cell < lane->cell_count; cell++) {
        const gml_placement *chunk = lane->cells[cell].chunk;
        attached_count += chunk != NULL;
        if ((chunk && !is_chunk_valid(lanes, lane, chunk)) ||
            (!chunk && cell < lane->prefix_count)) {
            return corrupt(lanes, lane, "has a chunk that is not what it should be");
        }
        const gml_lane_block *block = lane->cells[cell].first;
        for (; block; block = block->next) {
            if (!is_block_valid(lanes, lane, block)) {
                return corrupt(lanes, lane, "has a block that does not hold its bytes");
            }
            used_bytes += block->block.block_bytes;
        }
    }
    /* Blocks that share a byte have more bytes together than are marked. */
    if (attached_count != lane->attached_count || used_bytes != lane->occupancy.used_bytes ||
        used_bytes != used_within(lane, 0, lane->cell_count * lane->occupancy.cell_bytes)) {
        return corrupt(lanes, lane, "does not add up");
    }
    return GML_OK;
}

gml_status
gml_lanes_check(const gml_lanes *lanes)
{
    uint64_t attached_count = 0;
    gml_status status = GML_OK;
    const gml_lane *lane = lanes->first;
    for (; lane && status == GML_OK; lane = lane->next) {
        status = check_lane(lanes, lane);
        attached_count += lane->attached_count;
    }
    if (status == GML_OK && attached_count != lanes->attached_count) {
        status = gml_driver_fail(lanes->stitch->policy.driver, GML_CORRUPT,
                                 "%" PRIu64 " chunks are in pools and %" PRIu64 " are counted",
                                 attached_count, lanes->attached_count);
    }
    return status;
}

/* ---- visit ----------------------------------------------------------------------------------- */

/* The live block that begins at `offset`; NULL if none does. */
static const gml_lane_block *
block_at(const gml_lane *lane, uint64_t offset)
{
    const gml_lane_block *block = lane->cells[offset / lane->occupancy.cell_bytes].first;
    while (block && block->offset != offset) {
        block = block->next;
    }
    return block;
}

static void
visit_free(const gml_lane *lane, uint64_t offset, uint64_t end, const gml_visitor *visitor)
{
    if (offset < end) {
        visitor->range(visitor->context, &(gml_range_info){.address = lane->base + offset,
                                                           .size_bytes = end - offset});
    }
}

/* The ranges of [offset, end), which is attached. */
static void
visit_ranges(const gml_lane *lane, uint64_t offset, uint64_t end, const gml_visitor *visitor)
{
    uint64_t free_offset, free_bytes;
    while (offset < end) {
        const gml_lane_block *block = block_at(lane, offset);
        if (block) {
            visitor->range(visitor->context,
                           &(gml_range_info){.address = block->block.address,
                                             .size_bytes = block->block.block_bytes,
                                             .requested_bytes = block->block.requested_bytes,
                                             .is_used = true});
            offset += block->block.block_bytes;
        } else if (gml_occupancy_next_free(&lane->occupancy, offset, end, &free_offset,
                                           &free_bytes)) {
            visit_free(lane, offset, free_offset + free_bytes, visitor);
            offset = free_offset + free_bytes;
        } else {
            offset = end;
        }
    }
}

/* Where the cells [first, end) lie at home, those that are neighbours there as one piece. */
static void
visit_pieces(const gml_lane *lane, uint64_t first, uint64_t end, const gml_visitor *visitor)
{
    uint64_t cell_bytes = lane->occupancy.cell_bytes;
    uint64_t cell = first;
    while (cell < end && visitor->piece) {
        gml_piece_info piece = {.address = lane->base + cell * cell_bytes,
                                .home_address = lane->cells[cell].chunk->block.address};
        do {
            piece.size_bytes += cell_bytes;
            cell++;
        } while (cell < end &&
                 lane->cells[cell].chunk->block.address == piece.home_address + piece.size_bytes);
        visitor->piece(visitor->context, &piece);
    }
}

/* One region: cells from `first` on that are attached side by side. Returns the cell behind. */
static uint64_t
visit_run(const gml_lane *lane, uint64_t first, const gml_visitor *visitor)
{
    uint64_t end = first;
    while (end < lane->cell_count && lane->cells[end].chunk) {
        end++;
    }
    uint64_t cell_bytes = lane->occupancy.cell_bytes;
    const gml_region_info region = {
        .address = lane->base + first * cell_bytes,
        .size_bytes = (end - first) * cell_bytes,
        .used_bytes = used_within(lane, first * cell_bytes, end * cell_bytes),
        .stream = lane->pond->stream,
        .is_view = true,
        .kind = GML_REGION_PLANNED,
    };
    visitor->region(visitor->context, &region);
    visit_pieces(lane, first, end, visitor);
    visit_ranges(lane, first * cell_bytes, end * cell_bytes, visitor);
    return end;
}

void
gml_lanes_visit(const gml_lanes *lanes, const gml_visitor *visitor)
{
    for (const gml_lane *lane = lanes->first; lane; lane = lane->next) {
        for (uint64_t cell = 0; cell < lane->cell_count; cell++) {
            if (lane->cells[cell].chunk) {
                cell = visit_run(lane, cell, visitor);
            }
        }
    }
}
