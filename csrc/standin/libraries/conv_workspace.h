/* How much memory a convolution of cuDNN's works in: what the first engine that its heuristics
 * choose asks for on an H100.
 *
 * Tensor cores want channels last. Where a tensor has them elsewhere the engine turns it round in
 * its workspace, so that is as large as the tensors; few channels are filled up to a multiple. The
 * rules were read off what cuDNN 9.19 asked for in 912 convolutions of seven networks
 * (benchmarks/gpu/workspaces.py). */
#ifndef GML_STANDIN_CONV_WORKSPACE_H
#define GML_STANDIN_CONV_WORKSPACE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum standin_pass {
    STANDIN_FORWARD,
    STANDIN_DATA,   /* the gradient of what was convolved */
    STANDIN_FILTER, /* that of the filter */
} standin_pass;

/* Dimensions in the order N, C, H, W; the filter's are K, C of a group, R, S. */
typedef struct standin_convolution {
    standin_pass pass;
    int64_t in[4], filter[4], out[4];
    uint64_t element_bytes;
    bool has_channels_last;
} standin_convolution;

uint64_t standin_convolution_workspace(const standin_convolution *of);

#endif
