/* When each API of a trace with several streams runs, and which APIs complete before it. */
#ifndef GML_DIAGNOSE_GRAPH_H
#define GML_DIAGNOSE_GRAPH_H

#include "diagnosis/index.h"

/* index->times and index->time_count: the level of each API in the graph of section 5.3 of the
 * paper, with an edge from each API to the next of its stream and, by objects, from a write to the
 * reads after it and from both to the next write. An allocation and a free count as writes; an API
 * only known to touch an object counts as a read. pre: all other members except `before` and
 * `clocks` are set. */
gml_status gml_graph_levels(gml_trace_index *index);

/* index->clocks. Of the edges between streams only those count that a program without races cannot
 * lack: of two accesses to one byte, one of which writes it. An allocation and a free are no such
 * accesses: a cudaMalloc waits for no stream, and a tensor that record_stream() was told of is
 * freed while other streams still use it. Where the clocks would need more than 1 GiB they stay
 * NULL. */
gml_status gml_graph_clocks(gml_trace_index *index);

#endif
