/* Idle intervals of memory-layers: rectangles of time and address that hold nothing.
 *
 * A treap by the begin of the interval, in which every node knows the latest end and the largest
 * size below it.
 */
#ifndef GML_LAB_STALLOC_IDLE_H
#define GML_LAB_STALLOC_IDLE_H

#include "base/pool.h"

#include <stdint.h>

typedef struct gml_idle_node {
    struct gml_idle_node *parent, *left, *right;
    uint64_t begin, end; /* idle on [begin, end) */
    uint64_t base, size_bytes;
    uint64_t latest_end, largest_size; /* of the subtree */
    uint64_t serial;                   /* breaks ties; its hash is the priority */
    uint32_t priority;
} gml_idle_node;

typedef struct gml_idle_set {
    gml_idle_node *root;
    gml_pool nodes;
    uint64_t serial;
} gml_idle_set;

/* An empty set. */
gml_idle_set gml_idle_open(void);
void gml_idle_close(gml_idle_set *set);

/* A no-op for an empty one. false without host memory. */
bool gml_idle_add(gml_idle_set *set, uint64_t begin, uint64_t end, uint64_t base,
                  uint64_t size_bytes);

void gml_idle_remove(gml_idle_set *set, gml_idle_node *node);

/* The interval that begins last among those that hold `size_bytes` for [start, end), or NULL. */
gml_idle_node *gml_idle_find(const gml_idle_set *set, uint64_t start, uint64_t end,
                             uint64_t size_bytes);

#endif
