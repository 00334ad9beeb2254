#include "diagnosis/live.h"

#include <stdlib.h>

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static void renew(gml_curve_tree *live, size_t node) {
    gml_curve_tree_node *nodes = live->nodes;
    nodes[node].highest =
        larger(nodes[2 * node].highest, nodes[2 * node + 1].highest) + nodes[node].added;
}

gml_status gml_curve_tree_open(gml_curve_tree *live, const int64_t *bytes, size_t count) {
    size_t leaves = 1;
    while (leaves < count) {
        leaves *= 2;
    }
    *live = (gml_curve_tree){.leaves = leaves, .nodes = calloc(2 * leaves, sizeof *live->nodes)};
    if (!live->nodes) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        live->nodes[leaves + i].highest = bytes[i];
    }
    for (size_t node = leaves - 1; node > 0; node--) {
        renew(live, node);
    }
    return GML_OK;
}

void gml_curve_tree_close(gml_curve_tree *live) {
    free(live->nodes);
    *live = (gml_curve_tree){0};
}

static void add_below(gml_curve_tree *live, size_t node, int64_t bytes) {
    live->nodes[node].highest += bytes;
    live->nodes[node].added += bytes;
}

static void renew_above(gml_curve_tree *live, size_t node) {
    for (node /= 2; node > 0; node /= 2) {
        renew(live, node);
    }
}

void gml_curve_tree_add(gml_curve_tree *live, uint64_t from, uint64_t to, int64_t bytes) {
    if (from >= to || bytes == 0) {
        return;
    }
    size_t left = live->leaves + from, right = live->leaves + to;
    for (; left < right; left /= 2, right /= 2) {
        if (left % 2) {
            add_below(live, left++, bytes);
        }
        if (right % 2) {
            add_below(live, --right, bytes);
        }
    }
    renew_above(live, live->leaves + from);
    renew_above(live, live->leaves + to - 1);
}

uint64_t gml_curve_tree_highest(const gml_curve_tree *live) {
    int64_t highest = live->nodes[1].highest;
    return highest > 0 ? (uint64_t)highest : 0;
}
