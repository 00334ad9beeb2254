/* Nodes of graphs, and sets of them. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

static void
make_room(standin_nodes *nodes, size_t extra)
{
    if (nodes->capacity - nodes->count >= extra) {
        return;
    }
    nodes->capacity = 2 * nodes->count + extra;
    cudaGraphNode_t *items = standin_new(nodes->capacity * sizeof *items);
    if (nodes->count > 0) {
        memcpy(items, nodes->items, nodes->count * sizeof *items);
    }
    free(nodes->items);
    nodes->items = items;
}

void
standin_nodes_append(standin_nodes *nodes, cudaGraphNode_t added)
{
    make_room(nodes, 1);
    nodes->items[nodes->count++] = added;
}

static bool
has(const standin_nodes *nodes, const struct CUgraphNode_st *wanted)
{
    size_t i = 0;
    while (i < nodes->count && nodes->items[i] != wanted) {
        i++;
    }
    return i < nodes->count;
}

void
standin_nodes_unite(standin_nodes *nodes, const standin_nodes *others)
{
    for (size_t i = 0; i < others->count; i++) {
        if (!has(nodes, others->items[i])) {
            standin_nodes_append(nodes, others->items[i]);
        }
    }
}

void
standin_nodes_assign(standin_nodes *nodes, const standin_nodes *others)
{
    standin_nodes_clear(nodes);
    for (size_t i = 0; i < others->count; i++) {
        standin_nodes_append(nodes, others->items[i]);
    }
}

void
standin_nodes_clear(standin_nodes *nodes)
{
    free(nodes->items);
    *nodes = (standin_nodes){.items = NULL};
}

void
standin_node_hold(cudaGraphNode_t node)
{
    node->holders++;
}

void
standin_node_release(cudaGraphNode_t node)
{
    if (--node->holders > 0) {
        return;
    }
    if (node->source) {
        standin_node_release(node->source);
    } else if (node->action.operation.drop) {
        node->action.operation.drop(&node->action.operation);
    }
    standin_nodes_clear(&node->after);
    free(node);
}
