/* cuDNN: handles, versions, errors, and the descriptors of tensors and filters. */
#include "dnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned
standin_cudnn_bits(cudnnDataType_t type)
{
    switch (type) {
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_INT32:
    case CUDNN_DATA_UINT32:
        return 32;
    case CUDNN_DATA_DOUBLE:
    case CUDNN_DATA_INT64:
    case CUDNN_DATA_COMPLEX_FP32:
        return 64;
    case CUDNN_DATA_COMPLEX_FP64:
        return 128;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
        return 16;
    case CUDNN_DATA_INT8:
    case CUDNN_DATA_UINT8:
    case CUDNN_DATA_BOOLEAN:
    case CUDNN_DATA_FP8_E4M3:
    case CUDNN_DATA_FP8_E5M2:
    case CUDNN_DATA_FP8_E8M0:
        return 8;
    case CUDNN_DATA_FP4_E2M1:
    case CUDNN_DATA_INT4:
    case CUDNN_DATA_UINT4:
        return 4;
    default:
        return 0;
    }
}

uint64_t
standin_extent_bytes(int64_t count, const int64_t *dimensions, const int64_t *strides,
                     unsigned bits)
{
    int64_t last = 0;
    for (int64_t i = 0; i < count; i++) {
        if (dimensions[i] <= 0) {
            return 0;
        }
        last += (dimensions[i] - 1) * strides[i];
    }
    return ((uint64_t)(last + 1) * bits + 7) / 8;
}

standin_range
standin_tensor_range(const struct cudnnTensorStruct *tensor, const void *data)
{
    int64_t dimensions[CUDNN_DIM_MAX], strides[CUDNN_DIM_MAX];
    if (tensor == NULL || tensor->count == 0) {
        return standin_range_of(data, 0);
    }
    for (int i = 0; i < tensor->count; i++) {
        dimensions[i] = tensor->dimensions[i];
        strides[i] = tensor->strides[i];
    }
    return standin_range_of(data, standin_extent_bytes(tensor->count, dimensions, strides,
                                                       standin_cudnn_bits(tensor->type)));
}

cudnnStatus_t
standin_cudnn_run(const char *name, cudnnHandle_t handle, const standin_range *ranges, int count)
{
    cudaError_t error = cudaSuccess;
    if (handle == NULL) {
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    }
    for (int i = 0; i == 0 || (i < count && error == cudaSuccess); i += STANDIN_MOST_RANGES) {
        error = standin_run_nothing(name, handle->stream, ranges + i, count - i);
    }
    return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

/* ---- handles, versions, errors --------------------------------------------------------------- */

cudnnStatus_t
cudnnCreate(cudnnHandle_t *out)
{
    CALLED();
    *out = calloc(1, sizeof **out);
    return *out == NULL ? CUDNN_STATUS_ALLOC_FAILED : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnDestroy(cudnnHandle_t handle)
{
    CALLED();
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    CALLED();
    if (handle == NULL) {
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    }
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnGetStream(cudnnHandle_t handle, cudaStream_t *out)
{
    CALLED();
    if (handle == NULL) {
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    }
    *out = handle->stream;
    return CUDNN_STATUS_SUCCESS;
}

size_t
cudnnGetVersion(void)
{
    CALLED();
    return CUDNN_VERSION;
}

size_t
cudnnGetCudartVersion(void)
{
    CALLED();
    return CUDART_VERSION;
}

cudnnStatus_t
cudnnGetProperty(libraryPropertyType type, int *out)
{
    CALLED();
    static const int values[] = {
        [MAJOR_VERSION] = CUDNN_MAJOR,
        [MINOR_VERSION] = CUDNN_MINOR,
        [PATCH_LEVEL] = CUDNN_PATCHLEVEL,
    };
    if (type > PATCH_LEVEL) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    *out = values[type];
    return CUDNN_STATUS_SUCCESS;
}

const char *
cudnnGetErrorString(cudnnStatus_t status)
{
    CALLED();
    switch (status) {
    case CUDNN_STATUS_SUCCESS:
        return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_BAD_PARAM_NULL_POINTER:
        return "CUDNN_STATUS_BAD_PARAM_NULL_POINTER";
    case CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED:
        return "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED";
    case CUDNN_STATUS_NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_ALLOC_FAILED:
        return "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED";
    case CUDNN_STATUS_EXECUTION_FAILED:
        return "CUDNN_STATUS_EXECUTION_FAILED";
    default:
        return "an error that the stand-in GPU does not give";
    }
}

/* Which call failed is on standard error, as the line about the misuse. */
void
cudnnGetLastErrorString(char *message, size_t size)
{
    CALLED();
    (void)snprintf(message, size, "the stand-in GPU keeps no message");
}

/* ---- tensors and filters --------------------------------------------------------------------- */

cudnnStatus_t
cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *out)
{
    CALLED();
    *out = calloc(1, sizeof **out);
    return *out == NULL ? CUDNN_STATUS_ALLOC_FAILED : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor)
{
    CALLED();
    free(tensor);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type, int count,
                           const int dimensions[], const int strides[])
{
    CALLED();
    if (tensor == NULL || count < 1 || count > CUDNN_DIM_MAX || standin_cudnn_bits(type) == 0) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    tensor->type = type;
    tensor->count = count;
    memcpy(tensor->dimensions, dimensions, (size_t)count * sizeof(int));
    memcpy(tensor->strides, strides, (size_t)count * sizeof(int));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t tensor, int requested,
                           cudnnDataType_t *type, int *count, int dimensions[], int strides[])
{
    CALLED();
    int copied = requested < tensor->count ? requested : tensor->count;
    *type = tensor->type;
    *count = tensor->count;
    memcpy(dimensions, tensor->dimensions, (size_t)copied * sizeof(int));
    memcpy(strides, tensor->strides, (size_t)copied * sizeof(int));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *out)
{
    CALLED();
    *out = calloc(1, sizeof **out);
    return *out == NULL ? CUDNN_STATUS_ALLOC_FAILED : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter)
{
    CALLED();
    free(filter);
    return CUDNN_STATUS_SUCCESS;
}

/* A filter has no gaps, so that the order of its dimensions does not change its bytes. */
cudnnStatus_t
cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                           cudnnTensorFormat_t format, int count, const int dimensions[])
{
    CALLED();
    if (filter == NULL || count < 1 || count > CUDNN_DIM_MAX || standin_cudnn_bits(type) == 0) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    struct cudnnTensorStruct *tensor = &filter->tensor;
    filter->format = format;
    tensor->type = type;
    tensor->count = count;
    for (int i = count - 1, stride = 1; i >= 0; i--) {
        tensor->dimensions[i] = dimensions[i];
        tensor->strides[i] = stride;
        stride *= dimensions[i];
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnGetFilterNdDescriptor(const cudnnFilterDescriptor_t filter, int requested,
                           cudnnDataType_t *type, cudnnTensorFormat_t *format, int *count,
                           int dimensions[])
{
    CALLED();
    const struct cudnnTensorStruct *tensor = &filter->tensor;
    int copied = requested < tensor->count ? requested : tensor->count;
    *type = tensor->type;
    *format = filter->format;
    *count = tensor->count;
    memcpy(dimensions, tensor->dimensions, (size_t)copied * sizeof(int));
    return CUDNN_STATUS_SUCCESS;
}
