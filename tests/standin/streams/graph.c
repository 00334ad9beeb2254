/* Graphs and executable graphs: making, searching, instantiating, launching. */
#include "graph.h"

#include "base/map.h"
#include "queue.h"

#include <stdlib.h>

/* From each graph, executable graph and node of a graph that exists to what it is. */
static gml_map handles;
static char graph_mark, executable_mark, node_mark;

static bool
is_known(const void *handle, const char *mark)
{
    return handle && gml_map_find(&handles, (uint64_t)(uintptr_t)handle) == mark;
}

static bool
remember(const void *handle, char *mark)
{
    return gml_map_insert(&handles, (uint64_t)(uintptr_t)handle, mark) == GML_OK;
}

static void
forget(const void *handle)
{
    (void)gml_map_take(&handles, (uint64_t)(uintptr_t)handle);
}

cudaGraph_t
standin_graph_of(cudaGraph_t handle)
{
    return is_known(handle, &graph_mark) ? handle : NULL;
}

cudaGraphExec_t
standin_executable_of(cudaGraphExec_t handle)
{
    return is_known(handle, &executable_mark) ? handle : NULL;
}

cudaGraphNode_t
standin_node_of(cudaGraphNode_t handle)
{
    return is_known(handle, &node_mark) ? handle : NULL;
}

static void
release_all(standin_nodes *nodes)
{
    for (size_t i = 0; i < nodes->count; i++) {
        standin_node_release(nodes->items[i]);
    }
    standin_nodes_clear(nodes);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

cudaGraph_t
standin_graph_new(void)
{
    cudaGraph_t added = calloc(1, sizeof *added);
    if (!added || !remember(added, &graph_mark)) {
        free(added);
        return NULL;
    }
    return added;
}

void
standin_graph_free(cudaGraph_t graph)
{
    for (size_t i = 0; i < graph->nodes.count; i++) {
        forget(graph->nodes.items[i]);
    }
    release_all(&graph->nodes);
    forget(graph);
    free(graph);
}

cudaError_t
standin_graph_destroy(cudaGraph_t handle)
{
    cudaGraph_t graph = standin_graph_of(handle);
    if (!graph || graph->is_captured) {
        return cudaErrorInvalidValue;
    }
    standin_graph_free(graph);
    return cudaSuccess;
}

/* Fills a new node in and puts it into the graph. */
static cudaError_t
attach(cudaGraph_t graph, cudaGraphNode_t added, const standin_nodes *after)
{
    added->graph = graph;
    added->index = graph->nodes.count;
    added->holders = 1;
    cudaError_t error = standin_nodes_assign(&added->after, after);
    if (error != cudaSuccess || !remember(added, &node_mark)) {
        return cudaErrorMemoryAllocation;
    }
    error = standin_nodes_append(&graph->nodes, added);
    if (error != cudaSuccess) {
        forget(added);
    }
    return error;
}

cudaError_t
standin_graph_add(cudaGraph_t graph, const standin_action *action, cudaGraphNode_t source,
                  const standin_nodes *after, cudaGraphNode_t *out)
{
    cudaGraphNode_t added = calloc(1, sizeof *added);
    if (!added) {
        return cudaErrorMemoryAllocation;
    }
    added->action = *action;
    cudaError_t error = attach(graph, added, after);
    if (error != cudaSuccess) {
        standin_nodes_clear(&added->after);
        free(added);
        return error;
    }
    if (source) {
        added->source = source;
        standin_node_hold(source);
    }
    *out = added;
    return cudaSuccess;
}

static void
mark(const standin_nodes *nodes)
{
    for (size_t i = 0; i < nodes->count; i++) {
        nodes->items[i]->is_reached = true;
    }
}

/* One sweep from the last node suffices, since a node depends on earlier ones only. */
bool
standin_graph_reaches(cudaGraph_t graph, const standin_nodes *from, const standin_nodes *wanted)
{
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

/* A set that holds each node of the graph. */
static cudaError_t
hold_all(const struct CUgraph_st *graph, standin_nodes *out)
{
    standin_nodes held = {.items = NULL};
    cudaError_t error = standin_nodes_assign(&held, &graph->nodes);
    for (size_t i = 0; error == cudaSuccess && i < held.count; i++) {
        standin_node_hold(held.items[i]);
    }
    *out = held;
    return error;
}

cudaError_t
standin_graph_instantiate(cudaGraph_t graph, unsigned long long flags, cudaGraphExec_t *out)
{
    cudaGraphExec_t added = calloc(1, sizeof *added);
    if (!added || !remember(added, &executable_mark)) {
        free(added);
        return cudaErrorMemoryAllocation;
    }
    added->flags = flags;
    cudaError_t error = hold_all(graph, &added->nodes);
    if (error != cudaSuccess) {
        standin_executable_free(added);
        return error;
    }
    *out = added;
    return cudaSuccess;
}

void
standin_executable_free(cudaGraphExec_t executable)
{
    release_all(&executable->nodes);
    forget(executable);
    free(executable);
}

static cudaError_t
launch_node(standin_stream *stream, cudaGraphNode_t node)
{
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
cudaError_t
standin_graph_launch(cudaGraphExec_t executable, standin_stream *stream)
{
    cudaError_t error = cudaSuccess;
    if (!stream->capture) {
        error = standin_queue_behind(stream, executable->launched_on);
        executable->launched_on = stream;
    }
    for (size_t i = 0; error == cudaSuccess && i < executable->nodes.count; i++) {
        error = launch_node(stream, executable->nodes.items[i]);
    }
    return error;
}
