/* The runtime's calls about graphs. */
#include "graph.h"

#include <stdio.h>

/* ---- looking at a graph ---------------------------------------------------------------------- */

/* Fills in `out`, which has room for *count nodes, as NVIDIA's lists of nodes are: the rest is
 * NULL, and *count becomes how many were given, or, without `out`, how many there are. */
static void
give(const standin_nodes *nodes, cudaGraphNode_t *out, size_t *count)
{
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

cudaError_t
cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t *out, size_t *count)
{
    CALLED();
    standin_enter();
    const struct CUgraph_st *graph = standin_graph_of(handle);
    if (!graph || !count) {
        return standin_return(cudaErrorInvalidValue);
    }
    give(&graph->nodes, out, count);
    return standin_return(cudaSuccess);
}

static void
clear_edges(cudaGraphEdgeData *edges, size_t count)
{
    for (size_t i = 0; edges && i < count; i++) {
        edges[i] = (cudaGraphEdgeData){.from_port = 0};
    }
}

cudaError_t
cudaGraphNodeGetDependencies(cudaGraphNode_t handle, cudaGraphNode_t *out, cudaGraphEdgeData *edges,
                             size_t *count)
{
    CALLED();
    standin_enter();
    const struct CUgraphNode_st *node = standin_node_of(handle);
    if (!node || !count) {
        return standin_return(cudaErrorInvalidValue);
    }
    give(&node->after, out, count);
    clear_edges(out ? edges : NULL, *count);
    return standin_return(cudaSuccess);
}

static cudaError_t
print_dot(const struct CUgraph_st *graph, const char *path)
{
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
    bool is_written = !ferror(file);
    return fclose(file) == 0 && is_written ? cudaSuccess : cudaErrorOperatingSystem;
}

cudaError_t
cudaGraphDebugDotPrint(cudaGraph_t handle, const char *path, unsigned flags)
{
    CALLED();
    (void)flags; /* what more there is to print, a stand-in does not have */
    standin_enter();
    const struct CUgraph_st *graph = standin_graph_of(handle);
    return standin_return(graph && path ? print_dot(graph, path) : cudaErrorInvalidValue);
}

cudaError_t
cudaGraphDestroy(cudaGraph_t handle)
{
    CALLED();
    standin_enter();
    return standin_return(standin_graph_destroy(handle));
}

/* ---- executable graphs ----------------------------------------------------------------------- */

static cudaError_t
instantiate(cudaGraphExec_t *out, cudaGraph_t handle, unsigned long long flags)
{
    cudaGraph_t graph = standin_graph_of(handle);
    if (!graph || !out || graph->is_captured) {
        return cudaErrorInvalidValue;
    }
    return standin_graph_instantiate(graph, flags, out);
}

cudaError_t
cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    CALLED();
    standin_enter();
    return standin_return(instantiate(out, graph, flags));
}

cudaError_t
cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    CALLED();
    standin_enter();
    return standin_return(instantiate(out, graph, flags));
}

/* The executable graph and the stream of a launch, or why there can be none. */
static cudaError_t
look_up(cudaGraphExec_t handle, cudaStream_t stream_handle, cudaGraphExec_t *executable,
        standin_stream **stream)
{
    *executable = standin_executable_of(handle);
    *stream = standin_stream_of(stream_handle);
    if (!*executable) {
        return cudaErrorInvalidValue;
    }
    return *stream ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t
cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle)
{
    CALLED();
    standin_enter();
    cudaGraphExec_t executable;
    standin_stream *stream;
    cudaError_t error = look_up(handle, stream_handle, &executable, &stream);
    if (error == cudaSuccess) {
        error = standin_graph_launch(executable, stream);
    }
    return standin_return(error);
}

cudaError_t
cudaGraphExecDestroy(cudaGraphExec_t handle)
{
    CALLED();
    standin_enter();
    cudaGraphExec_t executable = standin_executable_of(handle);
    if (!executable) {
        return standin_return(cudaErrorInvalidValue);
    }
    standin_executable_free(executable);
    return standin_return(cudaSuccess);
}
