/* The treap of idle intervals. */
#include "stalloc/stalloc_idle.h"

#include "base/mix.h"

#include <stdint.h>

gml_idle_set gml_idle_open(void) {
    return (gml_idle_set){.nodes = {.object_bytes = sizeof(gml_idle_node)}};
}

void gml_idle_close(gml_idle_set *set) {
    gml_pool_clear(&set->nodes);
    *set = (gml_idle_set){0};
}

static bool is_below(const gml_idle_node *a, const gml_idle_node *b) {
    return a->begin != b->begin ? a->begin < b->begin : a->serial < b->serial;
}

static uint32_t priority_of(uint64_t serial) {
    return (uint32_t)(gml_mix(serial * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
}

/* ---- shape ----------------------------------------------------------------------------------- */

static void raise_to(gml_idle_node *node, const gml_idle_node *child) {
    if (child) {
        node->latest_end =
            child->latest_end > node->latest_end ? child->latest_end : node->latest_end;
        node->largest_size =
            child->largest_size > node->largest_size ? child->largest_size : node->largest_size;
    }
}

static void summarise(gml_idle_node *node) {
    node->latest_end = node->end;
    node->largest_size = node->size_bytes;
    raise_to(node, node->left);
    raise_to(node, node->right);
}

static void replace_child(gml_idle_set *set, gml_idle_node *parent, gml_idle_node *old,
                          gml_idle_node *next) {
    if (!parent) {
        set->root = next;
    } else if (parent->left == old) {
        parent->left = next;
    } else {
        parent->right = next;
    }
    if (next) {
        next->parent = parent;
    }
}

/* Lifts `node` above its parent. */
static void rotate_up(gml_idle_set *set, gml_idle_node *node) {
    gml_idle_node *parent = node->parent;
    replace_child(set, parent->parent, parent, node);
    gml_idle_node *moved;
    if (parent->left == node) {
        moved = node->right;
        parent->left = moved;
        node->right = parent;
    } else {
        moved = node->left;
        parent->right = moved;
        node->left = parent;
    }
    if (moved) {
        moved->parent = parent;
    }
    parent->parent = node;
    summarise(parent);
    summarise(node);
}

bool gml_idle_add(gml_idle_set *set, uint64_t begin, uint64_t end, uint64_t base,
                  uint64_t size_bytes) {
    if (begin >= end || size_bytes == 0) {
        return true;
    }
    gml_idle_node *node = gml_pool_take(&set->nodes);
    if (!node) {
        return false;
    }
    *node = (gml_idle_node){.begin = begin,
                            .end = end,
                            .base = base,
                            .size_bytes = size_bytes,
                            .serial = set->serial,
                            .priority = priority_of(set->serial)};
    set->serial++;
    summarise(node);
    gml_idle_node *parent = NULL;
    for (gml_idle_node *at = set->root; at; at = is_below(node, at) ? at->left : at->right) {
        parent = at;
        raise_to(at, node);
    }
    node->parent = parent;
    if (!parent) {
        set->root = node;
    } else if (is_below(node, parent)) {
        parent->left = node;
    } else {
        parent->right = node;
    }
    while (node->parent && node->parent->priority < node->priority) {
        rotate_up(set, node);
    }
    return true;
}

void gml_idle_remove(gml_idle_set *set, gml_idle_node *node) {
    while (node->left && node->right) {
        rotate_up(set, node->left->priority > node->right->priority ? node->left : node->right);
    }
    replace_child(set, node->parent, node, node->left ? node->left : node->right);
    for (gml_idle_node *above = node->parent; above; above = above->parent) {
        summarise(above);
    }
    gml_pool_give(&set->nodes, node);
}

/* ---- search ---------------------------------------------------------------------------------- */

static bool may_hold(const gml_idle_node *node, uint64_t end, uint64_t size_bytes) {
    return node && node->latest_end >= end && node->largest_size >= size_bytes;
}

/* The last node of the subtree of `node` that begins by `start`, or what lies above it in the
 * search: goes right wherever there is hope. */
static gml_idle_node *descend(gml_idle_node *node, uint64_t start, uint64_t end,
                              uint64_t size_bytes) {
    for (;;) {
        gml_idle_node *next = node->begin <= start ? node->right : node->left;
        if (!may_hold(next, end, size_bytes)) {
            return node;
        }
        node = next;
    }
}

gml_idle_node *gml_idle_find(const gml_idle_set *set, uint64_t start, uint64_t end,
                             uint64_t size_bytes) {
    if (!may_hold(set->root, end, size_bytes)) {
        return NULL;
    }
    gml_idle_node *node = descend(set->root, start, end, size_bytes);
    while (node) {
        if (node->begin <= start) {
            if (node->end >= end && node->size_bytes >= size_bytes) {
                return node;
            }
            if (may_hold(node->left, end, size_bytes)) {
                node = descend(node->left, start, end, size_bytes);
                continue;
            }
        }
        /* Everything to the left of `node` here was looked at: on to the next one above that is
         * not yet done, which is the first whose right subtree this was. */
        const gml_idle_node *child = node;
        node = node->parent;
        while (node && node->left == child) {
            child = node;
            node = node->parent;
        }
    }
    return NULL;
}
