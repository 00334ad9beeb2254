/* cuDNN's batch normalisation, activations, dropout, spatial transformers and CTC loss. */
#include "dnn.h"

enum {
    RANDOM_STATE_BYTES = 48, /* of one thread */
    RESIDENT_THREADS = 2048, /* of a multiprocessor */
    CTC_WORKSPACE_BYTES = 1 << 20,
};

/* ---- batch normalisation --------------------------------------------------------------------- */

/* Bits of the mask that a fused activation keeps for the backward pass. */
static size_t
mask_bytes(const struct cudnnTensorStruct *x, cudnnBatchNormOps_t operations)
{
    uint64_t size_bytes = standin_tensor_range(x, x).size_bytes;
    return operations == CUDNN_BATCHNORM_OPS_BN ? 0 : (size_t)(size_bytes / 8);
}

cudnnStatus_t
cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t operations,
    const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t z,
    const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t scale,
    const cudnnActivationDescriptor_t activation, size_t *out)
{
    CALLED();
    (void)handle, (void)mode, (void)operations, (void)x, (void)z, (void)y, (void)activation;
    *out = 2 * standin_tensor_range(scale, scale).size_bytes;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t operations,
    const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t y,
    const cudnnTensorDescriptor_t dy, const cudnnTensorDescriptor_t dz,
    const cudnnTensorDescriptor_t dx, const cudnnTensorDescriptor_t scale,
    const cudnnActivationDescriptor_t activation, size_t *out)
{
    CALLED();
    (void)handle, (void)mode, (void)operations, (void)x, (void)y, (void)dy, (void)dz, (void)dx;
    (void)activation;
    *out = 2 * standin_tensor_range(scale, scale).size_bytes;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnGetBatchNormalizationTrainingExReserveSpaceSize(cudnnHandle_t handle,
                                                     cudnnBatchNormMode_t mode,
                                                     cudnnBatchNormOps_t operations,
                                                     const cudnnActivationDescriptor_t activation,
                                                     const cudnnTensorDescriptor_t x, size_t *out)
{
    CALLED();
    (void)handle, (void)mode, (void)activation;
    *out = mask_bytes(x, operations);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnBatchNormalizationForwardTrainingEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t operations,
    const void *alpha, const void *beta, const cudnnTensorDescriptor_t x_descriptor, const void *x,
    const cudnnTensorDescriptor_t z_descriptor, const void *z,
    const cudnnTensorDescriptor_t y_descriptor, void *y, const cudnnTensorDescriptor_t channels,
    const void *scale, const void *bias, double factor, void *running_mean, void *running_variance,
    double epsilon, void *saved_mean, void *saved_variance, cudnnActivationDescriptor_t activation,
    void *workspace, size_t workspace_size, void *reserve, size_t reserve_size)
{
    CALLED();
    (void)mode, (void)operations, (void)alpha, (void)beta, (void)factor, (void)epsilon;
    (void)activation;
    standin_range ranges[] = {
        standin_tensor_range(x_descriptor, x),
        standin_tensor_range(z_descriptor, z),
        standin_tensor_range(y_descriptor, y),
        standin_tensor_range(channels, scale),
        standin_tensor_range(channels, bias),
        standin_tensor_range(channels, running_mean),
        standin_tensor_range(channels, running_variance),
        standin_tensor_range(channels, saved_mean),
        standin_tensor_range(channels, saved_variance),
        standin_range_of(workspace, workspace_size),
        standin_range_of(reserve, reserve_size),
    };
    return standin_cudnn_run(__func__, handle, ranges, sizeof ranges / sizeof ranges[0]);
}

cudnnStatus_t
cudnnBatchNormalizationForwardInference(cudnnHandle_t handle, cudnnBatchNormMode_t mode,
                                        const void *alpha, const void *beta,
                                        const cudnnTensorDescriptor_t x_descriptor, const void *x,
                                        const cudnnTensorDescriptor_t y_descriptor, void *y,
                                        const cudnnTensorDescriptor_t channels, const void *scale,
                                        const void *bias, const void *mean, const void *variance,
                                        double epsilon)
{
    CALLED();
    (void)mode, (void)alpha, (void)beta, (void)epsilon;
    standin_range ranges[] = {
        standin_tensor_range(x_descriptor, x), standin_tensor_range(y_descriptor, y),
        standin_tensor_range(channels, scale), standin_tensor_range(channels, bias),
        standin_tensor_range(channels, mean),  standin_tensor_range(channels, variance),
    };
    return standin_cudnn_run(__func__, handle, ranges, sizeof ranges / sizeof ranges[0]);
}

cudnnStatus_t
cudnnBatchNormalizationBackwardEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t operations,
    const void *alpha_data, const void *beta_data, const void *alpha_parameters,
    const void *beta_parameters, const cudnnTensorDescriptor_t x_descriptor, const void *x,
    const cudnnTensorDescriptor_t y_descriptor, const void *y,
    const cudnnTensorDescriptor_t dy_descriptor, const void *dy,
    const cudnnTensorDescriptor_t dz_descriptor, void *dz,
    const cudnnTensorDescriptor_t dx_descriptor, void *dx, const cudnnTensorDescriptor_t channels,
    const void *scale, const void *bias, void *dscale, void *dbias, double epsilon,
    const void *saved_mean, const void *saved_variance, cudnnActivationDescriptor_t activation,
    void *workspace, size_t workspace_size, void *reserve, size_t reserve_size)
{
    CALLED();
    (void)mode, (void)operations, (void)alpha_data, (void)beta_data, (void)alpha_parameters;
    (void)beta_parameters, (void)epsilon, (void)activation;
    standin_range ranges[] = {
        standin_tensor_range(x_descriptor, x),          standin_tensor_range(y_descriptor, y),
        standin_tensor_range(dy_descriptor, dy),        standin_tensor_range(dz_descriptor, dz),
        standin_tensor_range(dx_descriptor, dx),        standin_tensor_range(channels, scale),
        standin_tensor_range(channels, bias),           standin_tensor_range(channels, dscale),
        standin_tensor_range(channels, dbias),          standin_tensor_range(channels, saved_mean),
        standin_tensor_range(channels, saved_variance), standin_range_of(workspace, workspace_size),
        standin_range_of(reserve, reserve_size),
    };
    return standin_cudnn_run(__func__, handle, ranges, sizeof ranges / sizeof ranges[0]);
}

/* ---- descriptors that say nothing about memory ----------------------------------------------- */

cudnnStatus_t
cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t *out)
{
    CALLED();
    *out = standin_new_handle();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnCreateSpatialTransformerDescriptor(cudnnSpatialTransformerDescriptor_t *out)
{
    CALLED();
    *out = standin_new_handle();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnCreateCTCLossDescriptor(cudnnCTCLossDescriptor_t *out)
{
    CALLED();
    *out = standin_new_handle();
    return CUDNN_STATUS_SUCCESS;
}

/* ---- CTC loss -------------------------------------------------------------------------------- */

cudnnStatus_t
cudnnGetCTCLossWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t probabilities,
                             const cudnnTensorDescriptor_t gradients, const int *labels,
                             const int *label_lengths, const int *input_lengths,
                             cudnnCTCLossAlgo_t algorithm, cudnnCTCLossDescriptor_t loss,
                             size_t *out)
{
    CALLED();
    (void)handle, (void)probabilities, (void)gradients, (void)labels, (void)label_lengths;
    (void)input_lengths, (void)algorithm, (void)loss;
    *out = CTC_WORKSPACE_BYTES;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnGetCTCLossWorkspaceSize_v8(cudnnHandle_t handle, cudnnCTCLossAlgo_t algorithm,
                                cudnnCTCLossDescriptor_t loss,
                                const cudnnTensorDescriptor_t probabilities,
                                const cudnnTensorDescriptor_t gradients, size_t *out)
{
    CALLED();
    (void)handle, (void)algorithm, (void)loss, (void)probabilities, (void)gradients;
    *out = CTC_WORKSPACE_BYTES;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnCTCLoss(cudnnHandle_t handle, const cudnnTensorDescriptor_t probabilities_descriptor,
             const void *probabilities, const int labels[], const int label_lengths[],
             const int input_lengths[], void *costs,
             const cudnnTensorDescriptor_t gradients_descriptor, void *gradients,
             cudnnCTCLossAlgo_t algorithm, cudnnCTCLossDescriptor_t loss, void *workspace,
             size_t workspace_size)
{
    CALLED();
    (void)labels, (void)label_lengths, (void)input_lengths, (void)costs, (void)algorithm;
    (void)loss;
    standin_range ranges[] = {
        standin_tensor_range(probabilities_descriptor, probabilities),
        standin_tensor_range(gradients_descriptor, gradients),
        standin_range_of(workspace, workspace_size),
    };
    return standin_cudnn_run(__func__, handle, ranges, 3);
}

cudnnStatus_t
cudnnCTCLoss_v8(cudnnHandle_t handle, cudnnCTCLossAlgo_t algorithm, cudnnCTCLossDescriptor_t loss,
                const cudnnTensorDescriptor_t probabilities_descriptor, const void *probabilities,
                const int labels[], const int label_lengths[], const int input_lengths[],
                void *costs, const cudnnTensorDescriptor_t gradients_descriptor, void *gradients,
                size_t workspace_size, void *workspace)
{
    CALLED();
    (void)algorithm, (void)loss, (void)labels, (void)label_lengths, (void)input_lengths;
    (void)costs;
    standin_range ranges[] = {
        standin_tensor_range(probabilities_descriptor, probabilities),
        standin_tensor_range(gradients_descriptor, gradients),
        standin_range_of(workspace, workspace_size),
    };
    return standin_cudnn_run(__func__, handle, ranges, 3);
}

/* ---- dropout: the states of its random numbers ----------------------------------------------- */

cudnnStatus_t
cudnnCreateDropoutDescriptor(cudnnDropoutDescriptor_t *out)
{
    CALLED();
    *out = standin_new_handle();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t *out)
{
    CALLED();
    (void)handle;
    *out = (size_t)standin_settings_get()->multiprocessors * RESIDENT_THREADS * RANDOM_STATE_BYTES;
    return CUDNN_STATUS_SUCCESS;
}

/* A new descriptor fills the states; a restored one takes them as they are. */
cudnnStatus_t
cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle, float rate,
                          void *states, size_t states_size, unsigned long long seed)
{
    CALLED();
    (void)dropout, (void)rate, (void)seed;
    standin_range range = standin_range_of(states, states_size);
    return standin_cudnn_run(__func__, handle, &range, 1);
}

cudnnStatus_t
cudnnRestoreDropoutDescriptor(cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle, float rate,
                              void *states, size_t states_size, unsigned long long seed)
{
    CALLED();
    (void)dropout, (void)handle, (void)rate, (void)states, (void)states_size, (void)seed;
    return CUDNN_STATUS_SUCCESS;
}
