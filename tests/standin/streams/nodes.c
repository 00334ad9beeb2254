/* Nodes of graphs, and sets of them. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

static cudaError_t
make_room(standin_nodes *nodes, size_t extra)
{
    if (nodes->capacity - nodes->count >= extra) {
        return cudaSuccess;
    }
    size_t capacity = 2 * nodes->count + extra;
    cudaGraphNode_t *items = realloc(nodes->items, capacity * sizeof(cudaGraphNode_t));
    if (!items) {
        return cudaErrorMemoryAllocation;
    }
    nodes->items = items;
    nodes->capacity = capacity;
    return cudaSuccess;
}

cudaError_t
standin_nodes_append(standin_nodes *nodes, cudaGraphNode_t added)
{
    cudaError_t error = make_room(nodes, 1);
    if (error == cudaSuccess) {
        nodes->items[nodes->count++] = added;
    }
    return error;
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

cudaError_t
standin_nodes_unite(standin_nodes *nodes, const standin_nodes *others)
{
    cudaError_t error = make_room(nodes, others->count);
    for (size_t i = 0; error == cudaSuccess && i < others->count; i++) {
        if (!has(nodes, others->items[i])) {
            nodes->items[nodes->count++] = others->items[i];
        }
    }
    return error;
}

cudaError_t
standin_nodes_assign(standin_nodes *nodes, const standin_nodes *others)
{
    cudaError_t error = make_room(nodes, others->count);
    if (error == cudaSuccess && others->count > 0) {
        memmove(nodes->items, others->items, others->count * sizeof(cudaGraphNode_t));
    }
    if (error == cudaSuccess) {
        nodes->count = others->count;
    }
    return error;
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
