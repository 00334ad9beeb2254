/* Graphs as captures make them and launches use them; the lock is held throughout. */
#ifndef GML_STANDIN_GRAPH_H
#define GML_STANDIN_GRAPH_H

#include "standin/standin.h"

typedef enum standin_action_kind {
    STANDIN_WORK,
    STANDIN_RECORD, /* of an event from outside of the graph */
    STANDIN_WAIT,   /* for such an event */
} standin_action_kind;

/* What a node does at each launch. */
typedef struct standin_action {
    standin_action_kind kind;
    standin_operation operation; /* of the others, the name alone */
    cudaEvent_t event;           /* not for STANDIN_WORK */
} standin_action;

/* A node never changes, and lives as long as somebody holds it: its graph, an executable graph, a
 * launch that is not done, or a node that repeats it. */
struct CUgraphNode_st {
    size_t holders;
    size_t index; /* in its graph; what it depends on has smaller ones */
    standin_action action;
    cudaGraphNode_t source; /* whose work it repeats, and who owns what `staged` points to; NULL */
    standin_nodes after;    /* what it depends on */
    bool is_reached;        /* by the search that runs now */
};

struct CUgraph_st {
    standin_nodes nodes; /* in the order of their capture */
    bool is_captured;    /* at this moment, and therefore not to be destroyed */
};

/* What a graph was when it was instantiated. */
struct CUgraphExec_st {
    standin_nodes nodes;
    standin_device *device;      /* that has memory for it */
    standin_stream *launched_on; /* last; it may be gone */
};

/* ---- graph.c --------------------------------------------------------------------------------- */

void standin_nodes_append(standin_nodes *nodes, cudaGraphNode_t added);
void standin_nodes_unite(standin_nodes *nodes, const standin_nodes *others);
void standin_nodes_assign(standin_nodes *nodes, const standin_nodes *others);
void standin_nodes_clear(standin_nodes *nodes);

void standin_node_hold(cudaGraphNode_t node);
void standin_node_release(cudaGraphNode_t node);

cudaGraph_t standin_graph_new(void);
void standin_graph_free(cudaGraph_t graph);

/* A new node that depends on `after`. `source` as in the node; with one, `drop` is ignored. */
cudaGraphNode_t standin_graph_add(cudaGraph_t graph, const standin_action *action,
                                  cudaGraphNode_t source, const standin_nodes *after);

/* Whether every one of `wanted` is in `from`, or is something that one of them depends on. */
bool standin_graph_reaches(cudaGraph_t graph, const standin_nodes *from,
                           const standin_nodes *wanted);

/* ---- capture.c ------------------------------------------------------------------------------- */

/* cudaErrorStreamCaptureInvalidated if the stream takes part in a broken capture. */
cudaError_t standin_capture_check(const standin_stream *stream);

/* Breaks the capture of the stream, and returns `error`. */
cudaError_t standin_capture_break(standin_stream *stream, cudaError_t error);

/* The answer to a call that asks about an event recorded in a capture, which it breaks. */
cudaError_t standin_capture_asked(uint64_t capture_id);

/* The stream shall go on after `at`, recorded in a capture, and takes part in it from now on. */
cudaError_t standin_capture_join(standin_stream *stream, uint64_t capture_id,
                                 const standin_nodes *at);

/* Adds a node behind what the stream has captured so far; as standin_graph_add(). */
cudaError_t standin_capture_action(standin_stream *stream, const standin_action *action,
                                   cudaGraphNode_t source);

/* The stream is to be destroyed. */
void standin_capture_leave(standin_stream *stream);

#endif
