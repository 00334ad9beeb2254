/* First fit: each item at the lowest address that is free for as long as it lives. */
#include "planner/methods.h"
#include "planner/order_search.h"
#include "planner/run_tree.h"

#include <stdlib.h>
#include <string.h>

static gml_status place_all(gml_run_tree *tree, const gml_instance *instance, const uint32_t *order,
                            uint64_t limit_bytes, gml_budget *budget, uint64_t *found,
                            size_t *failed) {
    gml_run_cut cut;
    gml_run_reader readers[GML_RUN_MOST_READERS];
    for (size_t i = 0; i < instance->count; i++) {
        uint32_t item = order[i];
        *failed = i;
        uint64_t size = instance->sizes[item];
        gml_run_tree_cut(tree, instance->begin[item], instance->end[item], &cut);
        size_t lists = gml_run_tree_gather(tree, &cut, readers);
        uint64_t visits = 2 * cut.node_count + cut.above_count;
        found[item] = gml_run_lowest_free(readers, lists, size, &visits);
        if (gml_budget_spend(budget, visits) || found[item] + size > limit_bytes) {
            return GML_NOT_READY;
        }
        gml_status status = gml_run_tree_add(tree, &cut, found[item], found[item] + size);
        if (status != GML_OK) {
            return status;
        }
    }
    return GML_OK;
}

static gml_status place(void *context, const uint32_t *order, uint64_t limit_bytes,
                        gml_budget *budget, uint64_t *found, size_t *failed) {
    const gml_instance *instance = context;
    gml_run_tree tree;
    gml_status status = gml_run_tree_open(&tree, instance->slots);
    if (status == GML_OK) {
        status = place_all(&tree, instance, order, limit_bytes, budget, found, failed);
    }
    gml_run_tree_close(&tree);
    return status;
}

gml_status gml_first_fit(const gml_instance *instance, const uint32_t *order, uint64_t limit_bytes,
                         gml_budget *budget, uint64_t *offsets, uint64_t *peak_bytes) {
    size_t failed;
    uint64_t *found = calloc(instance->count + 1, sizeof *found);
    gml_status status =
        found ? place((void *)(uintptr_t)instance, order, limit_bytes, budget, found, &failed)
              : GML_NO_HOST_MEMORY;
    if (status == GML_OK) {
        memcpy(offsets, found, instance->count * sizeof *offsets);
        *peak_bytes = gml_instance_peak(instance, found);
    }
    free(found);
    return status;
}

gml_status gml_first_fit_improve(const gml_instance *instance, uint64_t enough_bytes,
                                 gml_budget *budget, uint64_t *offsets, uint64_t *peak_bytes,
                                 bool *is_better) {
    gml_first_fitting fitting = {
        .count = instance->count,
        .sizes = instance->sizes,
        .stream_count = 1,
        .context = (void *)(uintptr_t)instance,
        .place = place,
    };
    return gml_search_orders(&fitting, enough_bytes, budget, offsets, peak_bytes, is_better);
}
