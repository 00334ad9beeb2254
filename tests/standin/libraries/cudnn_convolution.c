/* cuDNN's legacy convolutions, and pooling. */
#include "dnn.h"

#include <stdlib.h>

enum { PROPOSED = 3 }; /* algorithms, of which algorithm i works on i quarters of the input */

/* The numbers that describe it compute nothing here. */
struct cudnnConvolutionStruct {
    int groups;
};

cudnnStatus_t
cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *out)
{
    CALLED();
    *out = calloc(1, sizeof **out);
    return *out == NULL ? CUDNN_STATUS_ALLOC_FAILED : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution)
{
    CALLED();
    free(convolution);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t convolution, int count,
                                const int padding[], const int strides[], const int dilation[],
                                cudnnConvolutionMode_t mode, cudnnDataType_t compute)
{
    CALLED();
    (void)padding, (void)strides, (void)dilation, (void)mode, (void)compute;
    return convolution == NULL || count < 1 ? CUDNN_STATUS_BAD_PARAM : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups)
{
    CALLED();
    convolution->groups = groups;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution, cudnnMathType_t type)
{
    CALLED();
    (void)convolution, (void)type;
    return CUDNN_STATUS_SUCCESS;
}

static size_t
workspace_bytes(const struct cudnnTensorStruct *input, int algorithm)
{
    uint64_t size_bytes = standin_tensor_range(input, input).size_bytes;
    return (size_t)(size_bytes / 4 * (uint64_t)(algorithm % PROPOSED) + 511) / 512 * 512;
}

static int
proposed_count(int requested)
{
    return requested < PROPOSED ? requested : PROPOSED;
}

/* ---- Forward
 * -------------------------------------------------------------------------------------
 */

static void
propose_forward(const struct cudnnTensorStruct *input, int count,
                cudnnConvolutionFwdAlgoPerf_t *results)
{
    for (int i = 0; i < count; i++) {
        results[i] = (cudnnConvolutionFwdAlgoPerf_t){
            .algo = (cudnnConvolutionFwdAlgo_t)i,
            .status = CUDNN_STATUS_SUCCESS,
            .time = (float)(i + 1),
            .memory = workspace_bytes(input, i),
            .determinism = CUDNN_DETERMINISTIC,
        };
    }
}

cudnnStatus_t
cudnnFindConvolutionForwardAlgorithmEx(cudnnHandle_t handle,
                                       const cudnnTensorDescriptor_t x_descriptor, const void *x,
                                       const cudnnFilterDescriptor_t w_descriptor, const void *w,
                                       const cudnnConvolutionDescriptor_t convolution,
                                       const cudnnTensorDescriptor_t y_descriptor, void *y,
                                       const int requested, int *returned,
                                       cudnnConvolutionFwdAlgoPerf_t *results, void *workspace,
                                       size_t workspace_size)
{
    CALLED();
    (void)x, (void)w_descriptor, (void)w, (void)convolution, (void)y_descriptor, (void)y,
        (void)handle, (void)workspace, (void)workspace_size;
    *returned = proposed_count(requested);
    propose_forward(x_descriptor, *returned, results);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle,
                                       const cudnnTensorDescriptor_t x_descriptor,
                                       const cudnnFilterDescriptor_t w_descriptor,
                                       const cudnnConvolutionDescriptor_t convolution,
                                       const cudnnTensorDescriptor_t y_descriptor,
                                       const int requested, int *returned,
                                       cudnnConvolutionFwdAlgoPerf_t *results)
{
    CALLED();
    (void)w_descriptor, (void)convolution, (void)y_descriptor, (void)handle;
    *returned = proposed_count(requested);
    propose_forward(x_descriptor, *returned, results);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle,
                                        const cudnnTensorDescriptor_t x_descriptor,
                                        const cudnnFilterDescriptor_t w_descriptor,
                                        const cudnnConvolutionDescriptor_t convolution,
                                        const cudnnTensorDescriptor_t y_descriptor,
                                        cudnnConvolutionFwdAlgo_t algorithm, size_t *out)
{
    CALLED();
    (void)w_descriptor, (void)convolution, (void)y_descriptor, (void)handle;
    *out = workspace_bytes(x_descriptor, (int)algorithm);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha,
                        const cudnnTensorDescriptor_t x_descriptor, const void *x,
                        const cudnnFilterDescriptor_t w_descriptor, const void *w,
                        const cudnnConvolutionDescriptor_t convolution,
                        cudnnConvolutionFwdAlgo_t algorithm, void *workspace, size_t workspace_size,
                        const void *beta, const cudnnTensorDescriptor_t y_descriptor, void *y)
{
    CALLED();
    (void)alpha, (void)convolution, (void)algorithm, (void)beta;
    standin_range ranges[] = {
        standin_tensor_range(x_descriptor, x),
        standin_tensor_range(&w_descriptor->tensor, w),
        standin_tensor_range(y_descriptor, y),
        standin_range_of(workspace, workspace_size),
    };
    return standin_cudnn_run(__func__, handle, ranges, 4);
}

cudnnStatus_t
cudnnConvolutionBiasActivationForward(cudnnHandle_t handle, const void *alpha1,
                                      const cudnnTensorDescriptor_t x_descriptor, const void *x,
                                      const cudnnFilterDescriptor_t w_descriptor, const void *w,
                                      const cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t algorithm, void *workspace,
                                      size_t workspace_size, const void *alpha2,
                                      const cudnnTensorDescriptor_t z_descriptor, const void *z,
                                      const cudnnTensorDescriptor_t bias_descriptor,
                                      const void *bias,
                                      const cudnnActivationDescriptor_t activation,
                                      const cudnnTensorDescriptor_t y_descriptor, void *y)
{
    CALLED();
    (void)alpha1, (void)convolution, (void)algorithm, (void)alpha2, (void)activation;
    standin_range ranges[] = {
        standin_tensor_range(x_descriptor, x), standin_tensor_range(&w_descriptor->tensor, w),
        standin_tensor_range(z_descriptor, z), standin_tensor_range(bias_descriptor, bias),
        standin_tensor_range(y_descriptor, y), standin_range_of(workspace, workspace_size),
    };
    return standin_cudnn_run(__func__, handle, ranges, 6);
}

/* ---- BackwardData
 * --------------------------------------------------------------------------------
 */

static void
propose_backward_data(const struct cudnnTensorStruct *input, int count,
                      cudnnConvolutionBwdDataAlgoPerf_t *results)
{
    for (int i = 0; i < count; i++) {
        results[i] = (cudnnConvolutionBwdDataAlgoPerf_t){
            .algo = (cudnnConvolutionBwdDataAlgo_t)i,
            .status = CUDNN_STATUS_SUCCESS,
            .time = (float)(i + 1),
            .memory = workspace_bytes(input, i),
            .determinism = CUDNN_DETERMINISTIC,
        };
    }
}

cudnnStatus_t
cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w_descriptor, const void *w,
    const cudnnTensorDescriptor_t dy_descriptor, const void *dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t dx_descriptor,
    void *dx, const int requested, int *returned, cudnnConvolutionBwdDataAlgoPerf_t *results,
    void *workspace, size_t workspace_size)
{
    CALLED();
    (void)w_descriptor, (void)w, (void)dy, (void)convolution, (void)dx_descriptor, (void)dx,
        (void)handle, (void)workspace, (void)workspace_size;
    *returned = proposed_count(requested);
    propose_backward_data(dy_descriptor, *returned, results);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t handle,
                                            const cudnnFilterDescriptor_t w_descriptor,
                                            const cudnnTensorDescriptor_t dy_descriptor,
                                            const cudnnConvolutionDescriptor_t convolution,
                                            const cudnnTensorDescriptor_t dx_descriptor,
                                            const int requested, int *returned,
                                            cudnnConvolutionBwdDataAlgoPerf_t *results)
{
    CALLED();
    (void)w_descriptor, (void)convolution, (void)dx_descriptor, (void)handle;
    *returned = proposed_count(requested);
    propose_backward_data(dy_descriptor, *returned, results);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t handle,
                                             const cudnnFilterDescriptor_t w_descriptor,
                                             const cudnnTensorDescriptor_t dy_descriptor,
                                             const cudnnConvolutionDescriptor_t convolution,
                                             const cudnnTensorDescriptor_t dx_descriptor,
                                             cudnnConvolutionBwdDataAlgo_t algorithm, size_t *out)
{
    CALLED();
    (void)w_descriptor, (void)convolution, (void)dx_descriptor, (void)handle;
    *out = workspace_bytes(dy_descriptor, (int)algorithm);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha,
                             const cudnnFilterDescriptor_t w_descriptor, const void *w,
                             const cudnnTensorDescriptor_t dy_descriptor, const void *dy,
                             const cudnnConvolutionDescriptor_t convolution,
                             cudnnConvolutionBwdDataAlgo_t algorithm, void *workspace,
                             size_t workspace_size, const void *beta,
                             const cudnnTensorDescriptor_t dx_descriptor, void *dx)
{
    CALLED();
    (void)alpha, (void)convolution, (void)algorithm, (void)beta;
    standin_range ranges[] = {
        standin_tensor_range(&w_descriptor->tensor, w),
        standin_tensor_range(dy_descriptor, dy),
        standin_tensor_range(dx_descriptor, dx),
        standin_range_of(workspace, workspace_size),
    };
    return standin_cudnn_run(__func__, handle, ranges, 4);
}

/* ---- BackwardFilter
 * ------------------------------------------------------------------------------
 */

static void
propose_backward_filter(const struct cudnnTensorStruct *input, int count,
                        cudnnConvolutionBwdFilterAlgoPerf_t *results)
{
    for (int i = 0; i < count; i++) {
        results[i] = (cudnnConvolutionBwdFilterAlgoPerf_t){
            .algo = (cudnnConvolutionBwdFilterAlgo_t)i,
            .status = CUDNN_STATUS_SUCCESS,
            .time = (float)(i + 1),
            .memory = workspace_bytes(input, i),
            .determinism = CUDNN_DETERMINISTIC,
        };
    }
}

cudnnStatus_t
cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x_descriptor, const void *x,
    const cudnnTensorDescriptor_t dy_descriptor, const void *dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t dw_descriptor,
    void *dw, const int requested, int *returned, cudnnConvolutionBwdFilterAlgoPerf_t *results,
    void *workspace, size_t workspace_size)
{
    CALLED();
    (void)x, (void)dy_descriptor, (void)dy, (void)convolution, (void)dw_descriptor, (void)dw,
        (void)handle, (void)workspace, (void)workspace_size;
    *returned = proposed_count(requested);
    propose_backward_filter(x_descriptor, *returned, results);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t handle,
                                              const cudnnTensorDescriptor_t x_descriptor,
                                              const cudnnTensorDescriptor_t dy_descriptor,
                                              const cudnnConvolutionDescriptor_t convolution,
                                              const cudnnFilterDescriptor_t dw_descriptor,
                                              const int requested, int *returned,
                                              cudnnConvolutionBwdFilterAlgoPerf_t *results)
{
    CALLED();
    (void)dy_descriptor, (void)convolution, (void)dw_descriptor, (void)handle;
    *returned = proposed_count(requested);
    propose_backward_filter(x_descriptor, *returned, results);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t handle,
                                               const cudnnTensorDescriptor_t x_descriptor,
                                               const cudnnTensorDescriptor_t dy_descriptor,
                                               const cudnnConvolutionDescriptor_t convolution,
                                               const cudnnFilterDescriptor_t dw_descriptor,
                                               cudnnConvolutionBwdFilterAlgo_t algorithm,
                                               size_t *out)
{
    CALLED();
    (void)dy_descriptor, (void)convolution, (void)dw_descriptor, (void)handle;
    *out = workspace_bytes(x_descriptor, (int)algorithm);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha,
                               const cudnnTensorDescriptor_t x_descriptor, const void *x,
                               const cudnnTensorDescriptor_t dy_descriptor, const void *dy,
                               const cudnnConvolutionDescriptor_t convolution,
                               cudnnConvolutionBwdFilterAlgo_t algorithm, void *workspace,
                               size_t workspace_size, const void *beta,
                               const cudnnFilterDescriptor_t dw_descriptor, void *dw)
{
    CALLED();
    (void)alpha, (void)convolution, (void)algorithm, (void)beta;
    standin_range ranges[] = {
        standin_tensor_range(x_descriptor, x),
        standin_tensor_range(dy_descriptor, dy),
        standin_tensor_range(&dw_descriptor->tensor, dw),
        standin_range_of(workspace, workspace_size),
    };
    return standin_cudnn_run(__func__, handle, ranges, 4);
}

/* ---- pooling -----------------------------------------------------------------------------------
 */

/* A window says nothing about memory. */
struct cudnnPoolingStruct {
    int window[2];
};

cudnnStatus_t
cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t *out)
{
    CALLED();
    *out = calloc(1, sizeof **out);
    return *out == NULL ? CUDNN_STATUS_ALLOC_FAILED : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t pooling)
{
    CALLED();
    free(pooling);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t pooling, cudnnPoolingMode_t mode,
                            cudnnNanPropagation_t nan, int window_height, int window_width,
                            int vertical_padding, int horizontal_padding, int vertical_stride,
                            int horizontal_stride)
{
    CALLED();
    (void)mode, (void)nan, (void)vertical_padding, (void)horizontal_padding;
    (void)vertical_stride, (void)horizontal_stride;
    pooling->window[0] = window_height;
    pooling->window[1] = window_width;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnPoolingForward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t pooling, const void *alpha,
                    const cudnnTensorDescriptor_t x_descriptor, const void *x, const void *beta,
                    const cudnnTensorDescriptor_t y_descriptor, void *y)
{
    CALLED();
    (void)pooling, (void)alpha, (void)beta;
    standin_range ranges[] = {
        standin_tensor_range(x_descriptor, x),
        standin_tensor_range(y_descriptor, y),
    };
    return standin_cudnn_run(__func__, handle, ranges, 2);
}
