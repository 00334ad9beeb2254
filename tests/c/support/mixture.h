/* A training of a mixture of experts as the requests that PyTorch makes for it: what each expert
 * keeps is as large as its share of the tokens, which are drawn anew in each step unless they
 * repeat. Two lakes run the same, step by step.
 */
#ifndef GML_TEST_MIXTURE_H
#define GML_TEST_MIXTURE_H

#include "support/check.h"

#include <stddef.h>

/* How the tokens are shared out. */
typedef enum mixture_routing {
    MIXTURE_RANDOM,    /* anew in each step */
    MIXTURE_SOMETIMES, /* like an earlier step, or anew */
    MIXTURE_LATE,      /* the first blocks as ever, the last ones anew */
    MIXTURE_ROUTINGS,
} mixture_routing;

typedef struct mixture {
    uint64_t seed;
    uint64_t layers, experts, chosen, width, inner, heads, vocab, tokens, steps;
    bool has_checkpoints; /* activations are computed again in the backward pass */
    bool asks_between;    /* a batch is copied between steps */
    mixture_routing routing;
    uint64_t max_views; /* of the lakes; 0: as many as ever */
    uint64_t ends_late; /* in later steps one in so many blocks ends some requests later; 0: none */
} mixture;

/* All of it drawn. */
mixture mixture_draw(uint64_t seed);

typedef struct mixture_result {
    uint64_t reserved_bytes[2]; /* at the peak: without steps, and with */
    uint64_t calls[2];          /* of the driver */
    uint64_t planned_steps;
    uint64_t apart; /* requests at other addresses */
} mixture_result;

/* Runs it on a lake of the policy `stitch`, and on one whose steps are planned. */
mixture_result mixture_run(const mixture *sizes, uint64_t capacity_bytes);

#endif
