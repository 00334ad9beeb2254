/* Many ascending lists of disjoint, not touching runs of addresses, in one block of memory. */
#ifndef GML_PLANNER_RUNS_H
#define GML_PLANNER_RUNS_H

#include "gmlake.h"

typedef struct gml_occupied {
    uint64_t low, high; /* [low, high) */
} gml_occupied;

/* A list; all zero: empty. */
typedef struct gml_runs {
    uint32_t first, count; /* in store->runs */
    uint32_t room;         /* 0, or a power of two */
} gml_runs;

enum { GML_RUN_ROOMS = 32 };

typedef struct gml_run_store {
    gml_occupied *runs;
    uint32_t count, capacity;
    uint32_t
        unused[GML_RUN_ROOMS]; /* by the logarithm of its room: the first of a chain; 0: none */
} gml_run_store;

/* GML_NO_HOST_MEMORY. */
gml_status gml_run_store_open(gml_run_store *store);
void gml_run_store_close(gml_run_store *store);

/* Adds [low, high) to the list. GML_NO_HOST_MEMORY: nothing changed. */
gml_status gml_runs_add(gml_run_store *store, gml_runs *list, uint64_t low, uint64_t high);

#endif
