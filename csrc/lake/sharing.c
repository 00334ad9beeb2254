/* Memory shared between a lake's streams: the pairs of them. */
#include "base/room.h"
#include "lake/lake.h"

#include <stdlib.h>

typedef struct pair_list {
    gml_stream_pair *pairs;
    size_t count, capacity;
    bool is_short; /* of host memory: not all pairs are in it */
} pair_list;

/* Puts a pair at the end; NULL without host memory. */
static gml_stream_pair *add_pair(pair_list *list, const gml_stream_pair *pair) {
    if (!gml_make_room(&list->pairs, &list->capacity, list->count + 1, sizeof *list->pairs)) {
        list->is_short = true;
        return NULL;
    }
    list->pairs[list->count] = *pair;
    return &list->pairs[list->count++];
}

static void see_pair(void *context, const gml_stream_pair *pair) {
    (void)add_pair(context, pair);
}

static gml_stream_pair *find_pair(const pair_list *list, gml_stream owner, gml_stream borrower) {
    for (size_t i = 0; i < list->count; i++) {
        gml_stream_pair *pair = &list->pairs[i];
        if (pair->owner == owner && pair->borrower == borrower) {
            return pair;
        }
    }
    return NULL;
}

static void see_use(void *context, const gml_block *block, gml_stream stream) {
    gml_stream_pair *pair = find_pair(context, block->stream, stream);
    if (!pair) {
        pair = add_pair(context, &(gml_stream_pair){.owner = block->stream, .borrower = stream});
    }
    if (pair) {
        pair->deferred_free_bytes += block->block_bytes;
    }
}

gml_status gml_lake_stream_pairs(gml_lake *lake, gml_stream_pair **out, size_t *count) {
    pair_list list = {0};
    gml_status status = GML_OK;
    pthread_mutex_lock(&lake->lock);
    const gml_policy_ops *ops = lake->policy->ops;
    if (ops->stream_pairs) {
        ops->stream_pairs(lake->policy, see_pair, &list);
    }
    gml_uses_each_use(&lake->uses, see_use, &list);
    if (list.is_short) {
        status = gml_driver_fail(lake->driver, GML_NO_HOST_MEMORY,
                                 "no host memory for a list of the pairs of streams");
    }
    pthread_mutex_unlock(&lake->lock);
    if (status != GML_OK) {
        free(list.pairs);
        list = (pair_list){0};
    }
    *out = list.pairs;
    *count = list.count;
    return status;
}
