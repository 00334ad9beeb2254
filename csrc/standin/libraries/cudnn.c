/* cuDNN: tensors, and operations that touch them. */
#include "standin/libraries/dnn.h"

/* Bytes of one element; 0 for a type that PyTorch has no tensors of. */
static unsigned bytes_of(cudnnDataType_t type) {
    static const unsigned char bytes[] = {
        [CUDNN_DATA_HALF] = 2,   [CUDNN_DATA_BFLOAT16] = 2, [CUDNN_DATA_FLOAT] = 4,
        [CUDNN_DATA_DOUBLE] = 8, [CUDNN_DATA_INT8] = 1,     [CUDNN_DATA_UINT8] = 1,
        [CUDNN_DATA_INT32] = 4,  [CUDNN_DATA_INT64] = 8,    [CUDNN_DATA_BOOLEAN] = 1,
    };
    return (size_t)type < sizeof bytes ? bytes[type] : 0;
}

uint64_t standin_extent_bytes(int64_t count, const int64_t *dimensions, const int64_t *strides,
                              cudnnDataType_t type) {
    int64_t last = 0;
    for (int64_t i = 0; i < count; i++) {
        if (dimensions[i] <= 0) {
            return 0;
        }
        last += (dimensions[i] - 1) * strides[i];
    }
    return (uint64_t)(last + 1) * bytes_of(type);
}

standin_range standin_tensor_range(const struct cudnnTensorStruct *tensor, const void *data) {
    if (tensor == NULL || tensor->count == 0) {
        return standin_range_of(data, 0);
    }
    return standin_range_of(data, standin_extent_bytes(tensor->count, tensor->dimensions,
                                                       tensor->strides, tensor->type));
}

cudnnStatus_t standin_cudnn_run(cudnnHandle_t handle, const standin_range *ranges, int count) {
    const standin_handle *self = (const standin_handle *)(void *)handle;
    cudaError_t error = cudaSuccess;
    for (int i = 0; i == 0 || (i < count && error == cudaSuccess); i += STANDIN_MOST_RANGES) {
        error = standin_run_nothing(self->stream, ranges + i, count - i);
    }
    return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type,
                                         int count, const int dimensions[], const int strides[]) {
    CALLED();
    if (count < 1 || count > CUDNN_DIM_MAX) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    tensor->type = type;
    tensor->count = count;
    for (int i = 0; i < count; i++) {
        tensor->dimensions[i] = dimensions[i];
        tensor->strides[i] = strides[i];
    }
    return CUDNN_STATUS_SUCCESS;
}
