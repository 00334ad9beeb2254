/* Lanes: attaching chunks, blocks at given places, giving idle chunks back. */
#include "plan/lane.h"

#include "base/rounding.h"
#include "base/status.h"
#include "core/mapping.h"

#include <stdlib.h>

/* How many free runs a search looks at: enough in practice, and a bound on the time. */
enum { MAX_RUNS_TRIED = 64 };

static uint64_t
cell_bytes_of(const gml_lanes *lanes)
{
    return gml_stitch_cell_bytes(lanes->stitch);
}

/* How many cells are as large as the device or capacity. */
static uint64_t
cells_of(const gml_lanes *lanes)
{
    const gml_home *home = &lanes->stitch->home;
    return home->slots * home->grain_bytes / cell_bytes_of(lanes);
}

static gml_driver *
driver_of(const gml_lanes *lanes)
{
    return lanes->stitch->policy.driver;
}

void
gml_lanes_init(gml_lanes *lanes, gml_stitch *stitch)
{
    *lanes = (gml_lanes){.stitch = stitch};
    lanes->blocks.object_bytes = sizeof(gml_lane_block);
}

/* ---- lanes ----------------------------------------------------------------------------------- */

gml_lane *
gml_lanes_find(gml_lanes *lanes, gml_stream stream)
{
    if (lanes->latest && lanes->latest->pond->stream == stream) {
        return lanes->latest;
    }
    gml_lane *lane = lanes->first;
    while (lane && lane->pond->stream != stream) {
        lane = lane->next;
    }
    lanes->latest = lane ? lane : lanes->latest;
    return lane;
}

gml_lane *
gml_lanes_make(gml_lanes *lanes, gml_stream stream)
{
    gml_lane *lane = gml_lanes_find(lanes, stream);
    gml_pond *pond;
    if (lane || gml_pond_find(lanes->stitch, stream, &pond) != GML_OK) {
        return lane;
    }
    lane = calloc(1, sizeof *lane);
    gml_lane_cell *cells = calloc(cells_of(lanes), sizeof *cells);
    if (!lane || !cells) {
        free(lane);
        free(cells);
        return NULL;
    }
    lane->pond = pond;
    pond->user_count++;
    lane->cells = cells;
    lane->cell_count = cells_of(lanes);
    gml_occupancy_init(&lane->occupancy, cell_bytes_of(lanes));
    gml_lane **end = &lanes->first;
    while (*end) {
        end = &(*end)->next;
    }
    *end = lane;
    lanes->latest = lane;
    return lane;
}

/* ---- attaching ------------------------------------------------------------------------------- */

static gml_status
clear_stuck(const gml_lanes *lanes, gml_lane *lane)
{
    if (!lane->stuck_bytes) {
        return GML_OK;
    }
    if (driver_of(lanes)->is_frozen) {
        return gml_driver_fail(
            driver_of(lanes), GML_OUT_OF_MEMORY,
            "a pool cannot grow while a graph is being captured: addresses of an "
            "earlier growth must be unmapped first");
    }
    gml_address address = lane->base + lane->stuck_cell * cell_bytes_of(lanes);
    gml_status status = gml_unmap_finally(driver_of(lanes), address, lane->stuck_bytes);
    if (status == GML_OK) {
        lane->stuck_bytes = 0;
    }
    return status;
}

/* Addresses, and room in the arrays that one attachment works with. */
static gml_status
prepare_attach(gml_lanes *lanes, gml_lane *lane, size_t count)
{
    if (count > lanes->scratch_room) {
        gml_placement **chunks = realloc(lanes->scratch_chunks, count * sizeof(gml_placement *));
        lanes->scratch_chunks = chunks ? chunks : lanes->scratch_chunks;
        if (!chunks) {
            return gml_driver_fail(driver_of(lanes), GML_NO_HOST_MEMORY,
                                   "no host memory for %zu chunks of a pool", count);
        }
        lanes->scratch_room = count;
    }
    gml_status status = clear_stuck(lanes, lane);
    if (status == GML_OK && !lane->base) {
        uint64_t all_bytes = lane->cell_count * cell_bytes_of(lanes);
        status = gml_driver_reserve(driver_of(lanes), all_bytes, 0, &lane->base);
    }
    return status;
}

static void
extend_prefix(gml_lane *lane)
{
    while (lane->prefix_count < lane->cell_count && lane->cells[lane->prefix_count].chunk) {
        lane->prefix_count++;
    }
}

/* Attaches chunks to `count` cells side by side, none of which has one. */
static gml_status
attach_run(gml_lanes *lanes, gml_lane *lane, uint64_t first, size_t count)
{
    gml_status status = prepare_attach(lanes, lane, count);
    if (status == GML_OK) {
        status = gml_stitch_lend(lanes->stitch, lane->pond, count, lanes->scratch_chunks);
    }
    if (status != GML_OK) {
        return status;
    }
    uint64_t cell_bytes = cell_bytes_of(lanes);
    gml_home *home = &lanes->stitch->home;
    home->collected_count = 0;
    for (size_t i = 0; i < count && status == GML_OK; i++) {
        status = gml_home_collect(home, lanes->scratch_chunks[i]->only_run.offset, cell_bytes);
    }
    if (status == GML_OK) {
        lane->stuck_cell = first;
        status = gml_mapping_add(driver_of(lanes), lane->base + first * cell_bytes, home->collected,
                                 home->collected_count, GML_ACCESS_RANGE, &lane->stuck_bytes);
    }
    for (size_t i = 0; i < count; i++) {
        if (status == GML_OK) {
            lane->cells[first + i].chunk = lanes->scratch_chunks[i];
        } else {
            gml_stitch_take_back(lanes->stitch, lanes->scratch_chunks[i]);
        }
    }
    if (status == GML_OK) {
        lane->attached_count += count;
        lanes->attached_count += count;
        extend_prefix(lane);
    }
    return status;
}

/* Attaches what is missing of the cells from `first` to `last`. */
static gml_status
attach(gml_lanes *lanes, gml_lane *lane, uint64_t first, uint64_t last)
{
    gml_status status = GML_OK;
    uint64_t cell = first > lane->prefix_count ? first : lane->prefix_count;
    while (cell <= last && status == GML_OK) {
        uint64_t end = cell;
        while (end <= last && !lane->cells[end].chunk) {
            end++;
        }
        if (end > cell) {
            status = attach_run(lanes, lane, cell, (size_t)(end - cell));
        }
        cell = end + 1;
    }
    return status;
}

void
gml_lane_attach_idle(gml_lanes *lanes, gml_lane *lane, uint64_t end_bytes)
{
    uint64_t cell_bytes = cell_bytes_of(lanes);
    gml_pond_settle(lanes->stitch, lane->pond);
    uint64_t idle_count = gml_stitch_idle_cells(lanes->stitch, lane->pond);
    uint64_t wanted = gml_divide_up(end_bytes, cell_bytes);
    wanted = wanted < lane->cell_count ? wanted : lane->cell_count;
    uint64_t end = 0;
    while (end < wanted && (lane->cells[end].chunk || idle_count)) {
        idle_count -= !lane->cells[end].chunk;
        end++;
    }
    if (end) {
        (void)attach(lanes, lane, 0, end - 1);
    }
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void
link_block(gml_lane_cell *cell, gml_lane_block *block)
{
    block->next = cell->first;
    if (cell->first) {
        cell->first->previous = block;
    }
    cell->first = block;
}

static void
unlink_block(gml_lane_cell *cell, gml_lane_block *block)
{
    if (block->previous) {
        block->previous->next = block->next;
    } else {
        cell->first = block->next;
    }
    if (block->next) {
        block->next->previous = block->previous;
    }
}

gml_lane_block *
gml_lane_take(gml_lanes *lanes, gml_lane *lane, uint64_t offset, uint64_t size_bytes)
{
    uint64_t cell_bytes = cell_bytes_of(lanes);
    uint64_t all_bytes = lane->cell_count * cell_bytes;
    if (size_bytes > all_bytes || offset > all_bytes - size_bytes ||
        !gml_occupancy_is_free(&lane->occupancy, offset, size_bytes) ||
        gml_occupancy_prepare(&lane->occupancy, offset, size_bytes) != GML_OK) {
        return NULL;
    }
    uint64_t first = offset / cell_bytes;
    uint64_t last = (offset + size_bytes - 1) / cell_bytes;
    gml_lane_block *block = gml_pool_take(&lanes->blocks);
    if (!block || attach(lanes, lane, first, last) != GML_OK) {
        gml_pool_give(&lanes->blocks, block);
        return NULL;
    }
    gml_occupancy_take(&lane->occupancy, offset, size_bytes);
    block->block = (gml_block){
        .address = lane->base + offset,
        .block_bytes = size_bytes,
        .stream = lane->pond->stream,
        .state = GML_STATE_PLAN,
    };
    block->lane = lane;
    block->offset = offset;
    link_block(&lane->cells[first], block);
    return block;
}

void
gml_lane_give(gml_lanes *lanes, gml_lane_block *block)
{
    gml_lane *lane = block->lane;
    gml_occupancy_give(&lane->occupancy, block->offset, block->block.block_bytes);
    unlink_block(&lane->cells[block->offset / cell_bytes_of(lanes)], block);
    gml_pool_give(&lanes->blocks, block);
}

bool
gml_lane_best_fit(const gml_lane *lane, uint64_t begin, uint64_t end, uint64_t size_bytes,
                  uint64_t *offset, uint64_t *run_bytes)
{
    uint64_t best_bytes = UINT64_MAX, at, bytes;
    for (int tried = 0; tried < MAX_RUNS_TRIED && best_bytes != size_bytes; tried++) {
        if (!gml_occupancy_next_free(&lane->occupancy, begin, end, &at, &bytes)) {
            break;
        }
        if (bytes >= size_bytes && bytes < best_bytes) {
            best_bytes = bytes;
            *offset = at;
        }
        begin = at + bytes;
    }
    *run_bytes = best_bytes;
    return best_bytes != UINT64_MAX;
}

bool
gml_lane_best_attached(const gml_lane *lane, uint64_t size_bytes, uint64_t *offset)
{
    uint64_t run_bytes;
    uint64_t end = lane->prefix_count * lane->occupancy.cell_bytes;
    return gml_lane_best_fit(lane, 0, end, size_bytes, offset, &run_bytes);
}

/* ---- giving back ----------------------------------------------------------------------------- */

static bool
is_idle(const gml_lane *lane, uint64_t cell)
{
    return lane->cells[cell].chunk && gml_occupancy_is_cell_free(&lane->occupancy, cell);
}

static bool
has_idle(const gml_lane *lane)
{
    uint64_t cell = 0;
    while (cell < lane->cell_count && !is_idle(lane, cell)) {
        cell++;
    }
    return cell < lane->cell_count;
}

static void
detach(gml_lanes *lanes, gml_lane *lane, uint64_t first, uint64_t count)
{
    for (uint64_t cell = first; cell < first + count; cell++) {
        gml_stitch_take_back(lanes->stitch, lane->cells[cell].chunk);
        lane->cells[cell].chunk = NULL;
    }
    lane->attached_count -= count;
    lanes->attached_count -= count;
    lane->prefix_count = first < lane->prefix_count ? first : lane->prefix_count;
}

/* Gives back up to `most` chunks, and adds to *count how many. pre: the device was synchronised. */
static gml_status
release_idle(gml_lanes *lanes, gml_lane *lane, uint64_t most, uint64_t *count)
{
    uint64_t cell_bytes = cell_bytes_of(lanes);
    gml_status status = clear_stuck(lanes, lane);
    for (uint64_t end = lane->cell_count; end > 0 && *count < most && status == GML_OK;) {
        uint64_t first = end;
        while (first > 0 && end - first < most - *count && is_idle(lane, first - 1)) {
            first--;
        }
        if (first == end) {
            end--;
            continue;
        }
        status = gml_driver_unmap(driver_of(lanes), lane->base + first * cell_bytes,
                                  (end - first) * cell_bytes);
        if (status == GML_OK) {
            detach(lanes, lane, first, end - first);
            *count += end - first;
        }
        end = first;
    }
    return status;
}

gml_status
gml_lanes_release_idle(gml_lanes *lanes, const gml_pond *asking, uint64_t most, bool *is_any)
{
    *is_any = false;
    bool is_worth_it = false;
    for (const gml_lane *lane = lanes->first; lane && !is_worth_it; lane = lane->next) {
        is_worth_it = lane->stuck_bytes || has_idle(lane);
    }
    if (!is_worth_it) {
        return GML_OK;
    }
    bool is_done;
    gml_status status = gml_stitch_synchronize(lanes->stitch, asking, &is_done);
    if (status != GML_OK || !is_done) {
        return status;
    }
    uint64_t count = 0;
    for (gml_lane *lane = lanes->first; lane && status == GML_OK; lane = lane->next) {
        status = release_idle(lanes, lane, most, &count);
    }
    *is_any = count > 0;
    return status;
}

/* Unmaps everything, live blocks included. */
static gml_status
close_lane(gml_lanes *lanes, gml_lane *lane)
{
    uint64_t cell_bytes = cell_bytes_of(lanes);
    gml_status first = clear_stuck(lanes, lane);
    for (uint64_t cell = 0; cell < lane->cell_count; cell++) {
        uint64_t end = cell;
        while (end < lane->cell_count && lane->cells[end].chunk) {
            end++;
        }
        if (end > cell) {
            gml_address address = lane->base + cell * cell_bytes;
            first = gml_first_failure(
                first, gml_unmap_finally(driver_of(lanes), address, (end - cell) * cell_bytes));
            detach(lanes, lane, cell, end - cell);
        }
        cell = end;
    }
    if (lane->base) {
        first = gml_first_failure(first, gml_unreserve_finally(driver_of(lanes), lane->base,
                                                               lane->cell_count * cell_bytes));
    }
    gml_occupancy_close(&lane->occupancy);
    lane->pond->user_count--;
    free(lane->cells);
    free(lane);
    return first;
}

gml_status
gml_lanes_close(gml_lanes *lanes)
{
    gml_status first = lanes->first ? gml_synchronize_finally(driver_of(lanes)) : GML_OK;
    for (gml_lane *lane = lanes->first, *next; lane; lane = next) {
        next = lane->next;
        first = gml_first_failure(first, close_lane(lanes, lane));
    }
    gml_pool_clear(&lanes->blocks);
    free(lanes->scratch_chunks);
    return first;
}
