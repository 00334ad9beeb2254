/* What the files that answer for cuDNN share. */
#ifndef GML_STANDIN_DNN_H
#define GML_STANDIN_DNN_H

#include "standin/libraries/libraries.h"

#pragma GCC visibility push(default)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <cudnn.h>
#pragma GCC diagnostic pop
#pragma GCC visibility pop

/* Half of cuDNN's legacy interface is deprecated, and PyTorch calls it. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* What a cudnnTensorDescriptor_t points to. */
struct cudnnTensorStruct {
    cudnnDataType_t type;
    int count; /* of dimensions */
    int64_t dimensions[CUDNN_DIM_MAX], strides[CUDNN_DIM_MAX];
};

/* The bytes of a tensor at `data`; nothing where descriptor or data is NULL. */
standin_range standin_tensor_range(const struct cudnnTensorStruct *tensor, const void *data);

/* Bytes of the elements that strided dimensions reach, the first to the last. */
uint64_t standin_extent_bytes(int64_t count, const int64_t *dimensions, const int64_t *strides,
                              cudnnDataType_t type);

/* Queues operations on the handle's stream that touch the ranges, however many. */
cudnnStatus_t standin_cudnn_run(cudnnHandle_t handle, const standin_range *ranges, int count);

#endif
