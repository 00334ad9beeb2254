/* Whole chunks for mappings that are not the policy's own: a planned pool's. */
#include "policy/stitch/stitch.h"

/* One whole free chunk, out of the smallest run of them. pre: there is one; the set is indexed. */
static gml_status
lend_one(gml_stitch *stitch, gml_class *class, gml_placement **out)
{
    gml_freeset *set = &class->pond->set;
    uint64_t chunk_bytes = stitch->home.chunk_bytes;
    const gml_tree_node *node = gml_tree_at_least(&set->wholes, chunk_bytes, 0);
    const gml_run run = {node->address, chunk_bytes, NULL};
    gml_status status = gml_placement_create(stitch, class, &run, 1, out);
    if (status == GML_OK) {
        (*out)->block.block_bytes = chunk_bytes;
        gml_pond_hold(stitch, class->pond, chunk_bytes);
        gml_freeset_index(set);
    }
    return status;
}

gml_status
gml_stitch_lend(gml_stitch *stitch, gml_pond *pond, size_t count, gml_placement **out)
{
    uint64_t chunk_bytes = stitch->home.chunk_bytes;
    pond->timeline.requests++;
    gml_pond_ask(pond, count * chunk_bytes);
    gml_pond_unpark(stitch, pond);
    uint64_t present = pond->set.whole_bytes / chunk_bytes;
    gml_status status = GML_OK;
    for (gml_effort effort = GML_KNOWN;
         effort <= GML_WAIT && present < count && status == GML_OK && gml_share_is_open(stitch);
         effort++) {
        gml_share_look(stitch, pond);
        status = gml_share_borrow(stitch, pond, count - present, false, effort);
        present = pond->set.whole_bytes / chunk_bytes;
    }
    if (status == GML_OK && present < count) {
        status = gml_stitch_grow(stitch, pond, count - present);
    }
    if (status != GML_OK) {
        return status;
    }
    gml_class *class = gml_class_find(stitch, pond, chunk_bytes);
    if (!class) {
        return GML_NO_HOST_MEMORY;
    }
    gml_freeset_index(&pond->set);
    size_t lent = 0;
    while (lent < count && status == GML_OK) {
        status = lend_one(stitch, class, &out[lent]);
        lent += status == GML_OK;
    }
    if (status != GML_OK) {
        class->placement_count++; /* lasts as long as it is needed here */
        while (lent) {
            gml_stitch_take_back(stitch, out[--lent]);
        }
        class->placement_count--;
        gml_class_drop_if_empty(stitch, class);
    }
    return status;
}

void
gml_stitch_take_back(gml_stitch *stitch, gml_placement *chunk)
{
    gml_placement_end(stitch, chunk);
}

gml_handle
gml_stitch_handle(const gml_stitch *stitch, const gml_placement *chunk)
{
    return stitch->home.handles[chunk->only_run.offset / stitch->home.chunk_bytes];
}
