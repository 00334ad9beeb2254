/* Memory for mappings that are not the policy's own: a planned pool's.
 *
 * What is lent are cells, all of one size, each made of whole chunks: a planned pool need not know
 * how large chunks are. */
#include "base/rounding.h"
#include "policy/stitch/stitch.h"

uint64_t
gml_stitch_cell_bytes(const gml_stitch *stitch)
{
    return stitch->economy.largest_bytes;
}

/* The first cell in a range of whole chunks, and how many lie there side by side. */
static uint64_t
cells_in(const gml_stitch *stitch, const gml_tree_node *whole, uint64_t *offset)
{
    uint64_t cell_bytes = gml_stitch_cell_bytes(stitch);
    uint64_t end = whole->address + whole->size_bytes;
    *offset = gml_round_up(whole->address, cell_bytes);
    return end > *offset ? (end - *offset) / cell_bytes : 0;
}

uint64_t
gml_stitch_idle_cells(const gml_stitch *stitch, const gml_pond *pond)
{
    uint64_t count = 0, offset;
    const gml_extent *extent = gml_home_find(&stitch->home, 0);
    for (; extent; extent = extent->next) {
        if (extent->kind == GML_EXTENT_FREE && extent->set == &pond->set) {
            count += cells_in(stitch, &extent->whole, &offset);
        }
    }
    return count;
}

/* One cell, out of the smallest range that has one; NULL: there is none, or *status tells. */
static gml_placement *
lend_one(gml_stitch *stitch, gml_pond *pond, gml_status *status)
{
    uint64_t cell_bytes = gml_stitch_cell_bytes(stitch), offset;
    gml_freeset_index(&pond->set);
    gml_tree_node *node = gml_tree_at_least(&pond->set.wholes, cell_bytes, 0);
    while (node && cells_in(stitch, node, &offset) == 0) {
        node = gml_tree_next(node);
    }
    gml_placement *cell = NULL;
    if (node) {
        *status = gml_placement_fit(stitch, pond, offset, cell_bytes, &cell);
        stitch->held_bytes += cell ? cell_bytes : 0;
    }
    return cell;
}

/* Takes memory for `count` cells from the driver. New memory begins where the home space ends,
 * which need not be where a cell does. */
static gml_status
grow(gml_stitch *stitch, gml_pond *pond, uint64_t count)
{
    const gml_home *home = &stitch->home;
    uint64_t cell_bytes = gml_stitch_cell_bytes(stitch);
    gml_tree_node *lowest = gml_tree_first(&home->absent);
    uint64_t end = lowest ? gml_extent_of_fit(lowest)->offset : 0;
    return gml_stitch_grow(stitch, pond, gml_round_up(end, cell_bytes) - end + count * cell_bytes);
}

static gml_status
lend_rest(gml_stitch *stitch, gml_pond *pond, size_t count, size_t *lent, gml_placement **out)
{
    gml_status status = GML_OK;
    gml_placement *cell = NULL;
    do {
        cell = *lent < count ? lend_one(stitch, pond, &status) : NULL;
        if (cell) {
            out[(*lent)++] = cell;
        }
    } while (cell);
    return status;
}

gml_status
gml_stitch_lend(gml_stitch *stitch, gml_pond *pond, size_t count, gml_placement **out)
{
    size_t lent = 0;
    pond->timeline.requests++;
    gml_pond_settle(stitch, pond);
    gml_status status = lend_rest(stitch, pond, count, &lent, out);
    for (gml_effort effort = GML_KNOWN;
         effort <= GML_WAIT && lent < count && status == GML_OK && gml_share_is_open(stitch);
         effort++) {
        gml_share_look(stitch, pond);
        status = gml_share_take_chunks(stitch, pond, (count - lent) * gml_stitch_cell_bytes(stitch),
                                       effort);
        if (status == GML_OK) {
            status = lend_rest(stitch, pond, count, &lent, out);
        }
    }
    /* Where the home space has holes, one growth may not give as many cells as bytes. */
    while (lent < count && status == GML_OK) {
        status = grow(stitch, pond, count - lent);
        if (status == GML_OK) {
            status = lend_rest(stitch, pond, count, &lent, out);
        }
    }
    while (status != GML_OK && lent) {
        gml_stitch_take_back(stitch, out[--lent]);
    }
    return status;
}

void
gml_stitch_take_back(gml_stitch *stitch, gml_placement *cell)
{
    gml_placement_end(stitch, cell);
}
