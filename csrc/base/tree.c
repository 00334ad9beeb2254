/* The treap behind gml_tree. */
#include "base/tree.h"

#include "base/mix.h"

static bool is_below(const gml_tree_node *node, uint64_t size_bytes, uint64_t address) {
    return node->size_bytes != size_bytes ? node->size_bytes < size_bytes : node->address < address;
}

/* Neighbouring addresses get unrelated values. */
static uint32_t priority_of(uint64_t address, uint64_t size_bytes) {
    return (uint32_t)(gml_mix(address ^ (size_bytes << 20)) >> 32);
}

static void replace_child(gml_tree *tree, gml_tree_node *parent, gml_tree_node *old,
                          gml_tree_node *new) {
    if (!parent) {
        tree->root = new;
    } else if (parent->left == old) {
        parent->left = new;
    } else {
        parent->right = new;
    }
    if (new) {
        new->parent = parent;
    }
}

/* Lifts `node` above its parent. */
static void rotate_up(gml_tree *tree, gml_tree_node *node) {
    gml_tree_node *parent = node->parent;
    replace_child(tree, parent->parent, parent, node);
    gml_tree_node *moved;
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
}

void gml_tree_insert(gml_tree *tree, gml_tree_node *node) {
    gml_tree_node *parent = NULL;
    gml_tree_node **link = &tree->root;
    while (*link) {
        parent = *link;
        link = is_below(parent, node->size_bytes, node->address) ? &parent->right : &parent->left;
    }
    *link = node;
    node->parent = parent;
    node->left = NULL;
    node->right = NULL;
    node->priority = priority_of(node->address, node->size_bytes);
    while (node->parent && node->parent->priority < node->priority) {
        rotate_up(tree, node);
    }
    tree->count++;
}

void gml_tree_remove(gml_tree *tree, gml_tree_node *node) {
    while (node->left && node->right) {
        rotate_up(tree, node->left->priority >= node->right->priority ? node->left : node->right);
    }
    replace_child(tree, node->parent, node, node->left ? node->left : node->right);
    tree->count--;
}

gml_tree_node *gml_tree_at_least(const gml_tree *tree, uint64_t size_bytes, uint64_t address) {
    gml_tree_node *best = NULL;
    gml_tree_node *node = tree->root;
    while (node) {
        if (is_below(node, size_bytes, address)) {
            node = node->right;
        } else {
            best = node;
            node = node->left;
        }
    }
    return best;
}

static gml_tree_node *leftmost(gml_tree_node *node) {
    while (node && node->left) {
        node = node->left;
    }
    return node;
}

static gml_tree_node *rightmost(gml_tree_node *node) {
    while (node && node->right) {
        node = node->right;
    }
    return node;
}

gml_tree_node *gml_tree_first(const gml_tree *tree) {
    return leftmost(tree->root);
}

gml_tree_node *gml_tree_last(const gml_tree *tree) {
    return rightmost(tree->root);
}

uint64_t gml_tree_largest(const gml_tree *tree) {
    const gml_tree_node *node = gml_tree_last(tree);
    return node ? node->size_bytes : 0;
}

gml_tree_node *gml_tree_next(const gml_tree_node *node) {
    if (node->right) {
        return leftmost(node->right);
    }
    while (node->parent && node->parent->right == node) {
        node = node->parent;
    }
    return node->parent;
}

gml_tree_node *gml_tree_previous(const gml_tree_node *node) {
    if (node->left) {
        return rightmost(node->left);
    }
    while (node->parent && node->parent->left == node) {
        node = node->parent;
    }
    return node->parent;
}

bool gml_tree_is_valid(const gml_tree *tree) {
    size_t count = 0;
    const gml_tree_node *previous = NULL;
    for (const gml_tree_node *node = gml_tree_first(tree); node; node = gml_tree_next(node)) {
        if (previous && !is_below(previous, node->size_bytes, node->address)) {
            return false;
        }
        if (node->parent ? (node->parent->left != node && node->parent->right != node) ||
                               node->parent->priority < node->priority
                         : tree->root != node) {
            return false;
        }
        previous = node;
        count++;
    }
    return count == tree->count;
}
