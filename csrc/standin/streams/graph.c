/* Graphs and executable graphs: making, searching, instantiating, launching, looking into. */
#include "standin/streams/graph.h"

#include "standin/streams/queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- nodes, and sets of them ----------------------------------------------------------------- */

static void make_room(standin_nodes *nodes, size_t extra) {
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

void standin_nodes_append(standin_nodes *nodes, cudaGraphNode_t added) {
    make_room(nodes, 1);
    nodes->items[nodes->count++] = added;
}

static bool has(const standin_nodes *nodes, const struct CUgraphNode_st *wanted) {
    size_t i = 0;
    while (i < nodes->count && nodes->items[i] != wanted) {
        i++;
    }
    return i < nodes->count;
}

void standin_nodes_unite(standin_nodes *nodes, const standin_nodes *others) {
    for (size_t i = 0; i < others->count; i++) {
        if (!has(nodes, others->items[i])) {
            standin_nodes_append(nodes, others->items[i]);
        }
    }
}

void standin_nodes_assign(standin_nodes *nodes, const standin_nodes *others) {
    standin_nodes_clear(nodes);
    for (size_t i = 0; i < others->count; i++) {
        standin_nodes_append(nodes, others->items[i]);
    }
}

void standin_nodes_clear(standin_nodes *nodes) {
    free(nodes->items);
    *nodes = (standin_nodes){.items = NULL};
}

void standin_node_hold(cudaGraphNode_t node) {
    node->holders++;
}

void standin_node_release(cudaGraphNode_t node) {
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

static void release_all(standin_nodes *nodes) {
    for (size_t i = 0; i < nodes->count; i++) {
        standin_node_release(nodes->items[i]);
    }
    standin_nodes_clear(nodes);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

cudaGraph_t standin_graph_new(void) {
    cudaGraph_t added = standin_new(sizeof *added);
    standin_remember(added, STANDIN_GRAPH);
    return added;
}

void standin_graph_free(cudaGraph_t graph) {
    for (size_t i = 0; i < graph->nodes.count; i++) {
        standin_forget(graph->nodes.items[i]);
    }
    release_all(&graph->nodes);
    standin_forget(graph);
    free(graph);
}

cudaError_t standin_cudaGraphDestroy(cudaGraph_t graph) {
    if (graph->is_captured) {
        return cudaErrorInvalidValue;
    }
    standin_graph_free(graph);
    return cudaSuccess;
}

cudaGraphNode_t standin_graph_add(cudaGraph_t graph, const standin_action *action,
                                  cudaGraphNode_t source, const standin_nodes *after) {
    cudaGraphNode_t added = standin_new(sizeof *added);
    *added = (struct CUgraphNode_st){
        .holders = 1, .index = graph->nodes.count, .action = *action, .source = source};
    standin_nodes_assign(&added->after, after);
    standin_nodes_append(&graph->nodes, added);
    standin_remember(added, STANDIN_NODE);
    if (source) {
        standin_node_hold(source);
    }
    return added;
}

static void mark(const standin_nodes *nodes) {
    for (size_t i = 0; i < nodes->count; i++) {
        nodes->items[i]->is_reached = true;
    }
}

/* One sweep from the last node suffices, since a node depends on earlier ones only. */
bool standin_graph_reaches(cudaGraph_t graph, const standin_nodes *from,
                           const standin_nodes *wanted) {
    for (size_t i = 0; i < graph->nodes.count; i++) {
        graph->nodes.items[i]->is_reached = false;
    }
    mark(from);
    for (size_t i = graph->nodes.count; i-- > 0;) {
        if (graph->nodes.items[i]->is_reached) {
            mark(&graph->nodes.items[i]->after);
        }
    }
    for (size_t i = 0; i < wanted->count; i++) {
        if (!wanted->items[i]->is_reached) {
            return false;
        }
    }
    return true;
}

/* ---- executable graphs ----------------------------------------------------------------------- */

cudaError_t standin_cudaGraphExecDestroy(cudaGraphExec_t executable) {
    executable->device->graph_nodes -= executable->nodes.count;
    release_all(&executable->nodes);
    standin_forget(executable);
    free(executable);
    return cudaSuccess;
}

cudaError_t standin_cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                         unsigned long long flags) {
    (void)flags;
    if (graph->is_captured) {
        return cudaErrorInvalidValue;
    }
    cudaGraphExec_t added = standin_new(sizeof *added);
    standin_remember(added, STANDIN_EXECUTABLE);
    standin_nodes_assign(&added->nodes, &graph->nodes);
    for (size_t k = 0; k < added->nodes.count; k++) {
        standin_node_hold(added->nodes.items[k]);
    }
    added->device = standin_current_device();
    added->device->graph_nodes += added->nodes.count;
    *out = added;
    return cudaSuccess;
}

static cudaError_t launch_node(standin_stream *stream, cudaGraphNode_t node) {
    if (stream->capture) {
        return standin_capture_action(stream, &node->action, node->source ? node->source : node);
    }
    switch (node->action.kind) {
    case STANDIN_RECORD:
        return standin_event_record_on(node->action.event, stream);
    case STANDIN_WAIT:
        return standin_event_wait_on(stream, node->action.event);
    default:
        return standin_queue_node(stream, node);
    }
}

/* The nodes go into the one stream in the order of their capture, which keeps every dependency, and
 * orders some nodes that a device might run side by side. */
cudaError_t standin_cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
    standin_stream *stream = standin_stream_of(handle);
    if (!stream->capture) {
        standin_queue_behind(stream, executable->launched_on);
        executable->launched_on = stream;
    }
    for (size_t i = 0; i < executable->nodes.count; i++) {
        TRY(launch_node(stream, executable->nodes.items[i]));
    }
    return cudaSuccess;
}

/* ---- looking at a graph ---------------------------------------------------------------------- */

/* Fills in `out`, which has room for *count nodes, as NVIDIA's lists of nodes are: the rest is
 * NULL, and *count becomes how many were given, or, without `out`, how many there are. */
static void give(const standin_nodes *nodes, cudaGraphNode_t *out, size_t *count) {
    if (!out) {
        *count = nodes->count;
        return;
    }
    size_t given = nodes->count < *count ? nodes->count : *count;
    for (size_t i = 0; i < *count; i++) {
        out[i] = i < given ? nodes->items[i] : NULL;
    }
    *count = given;
}

cudaError_t standin_cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *out, size_t *count) {
    give(&graph->nodes, out, count);
    return cudaSuccess;
}

cudaError_t standin_cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *out,
                                                 cudaGraphEdgeData *edges, size_t *count) {
    give(&node->after, out, count);
    for (size_t i = 0; out && edges && i < *count; i++) {
        edges[i] = (cudaGraphEdgeData){.from_port = 0};
    }
    return cudaSuccess;
}

cudaError_t standin_cudaGraphDebugDotPrint(cudaGraph_t graph, const char *path, unsigned flags) {
    (void)flags; /* what more there is to print, a stand-in does not have */
    FILE *file = fopen(path, "w");
    if (!file) {
        return cudaErrorOperatingSystem;
    }
    fprintf(file, "digraph captured {\n");
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct CUgraphNode_st *node = graph->nodes.items[i];
        fprintf(file, "    n%zu [label=\"%s\"];\n", i, node->action.operation.name);
        for (size_t j = 0; j < node->after.count; j++) {
            fprintf(file, "    n%zu -> n%zu;\n", node->after.items[j]->index, i);
        }
    }
    fprintf(file, "}\n");
    return fclose(file) == 0 ? cudaSuccess : cudaErrorOperatingSystem;
}
