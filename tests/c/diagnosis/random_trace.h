/* Object traces drawn from a seed: several streams, parts of objects, every kind of access. */
#ifndef GML_TEST_RANDOM_TRACE_H
#define GML_TEST_RANDOM_TRACE_H

#include "diagnosis/scenario.h"

typedef struct random_shape {
    size_t apis;    /* about */
    size_t streams; /* at most */
    uint64_t size;  /* of an object, at most */
    size_t live;    /* objects at a time, about */
} random_shape;

/* Fills an empty scenario. */
void random_trace(scenario *told, const random_shape *shape, check_random *random);

#endif
