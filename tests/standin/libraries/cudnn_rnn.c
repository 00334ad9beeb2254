/* cuDNN's recurrent networks: where each matrix lies in the weights, and the sizes of the rest.
 *
 * The weights of a network are one buffer: for each layer and direction the matrices of the inputs,
 * then those of the state, then the projection; behind all matrices the biases, in the same order.
 */
#include "dnn.h"

#include <stdlib.h>

struct cudnnRNNStruct {
    cudnnRNNMode_t mode;
    cudnnRNNBiasMode_t bias;
    cudnnDataType_t type;
    int64_t input, hidden, projection, layers, directions;
};

/* A sequence of vectors for each member of a batch. */
struct cudnnRNNDataStruct {
    cudnnDataType_t type;
    int64_t longest, batch, vector;
    int64_t steps; /* over all members, padding included where there is any */
};

cudnnStatus_t
cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t *out)
{
    CALLED();
    *out = calloc(1, sizeof **out);
    return *out == NULL ? CUDNN_STATUS_ALLOC_FAILED : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t network)
{
    CALLED();
    free(network);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t network, cudnnRNNAlgo_t algorithm,
                         cudnnRNNMode_t mode, cudnnRNNBiasMode_t bias,
                         cudnnDirectionMode_t direction, cudnnRNNInputMode_t input_mode,
                         cudnnDataType_t type, cudnnDataType_t compute, cudnnMathType_t math,
                         int32_t input, int32_t hidden, int32_t projection, int32_t layers,
                         cudnnDropoutDescriptor_t dropout, uint32_t flags)
{
    CALLED();
    (void)algorithm, (void)input_mode, (void)compute, (void)math, (void)dropout, (void)flags;
    if (network == NULL || input < 1 || hidden < 1 || layers < 1) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    *network = (struct cudnnRNNStruct){
        .mode = mode,
        .bias = bias,
        .type = type,
        .input = input,
        .hidden = hidden,
        .projection = projection > 0 ? projection : hidden,
        .layers = layers,
        .directions = direction == CUDNN_BIDIRECTIONAL ? 2 : 1,
    };
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t *out)
{
    CALLED();
    *out = calloc(1, sizeof **out);
    return *out == NULL ? CUDNN_STATUS_ALLOC_FAILED : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t data)
{
    CALLED();
    free(data);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t data, cudnnDataType_t type,
                          cudnnRNNDataLayout_t data_layout, int longest, int batch, int vector,
                          const int lengths[], void *padding)
{
    CALLED();
    (void)padding;
    if (data == NULL || longest < 1 || batch < 1 || vector < 1) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    int64_t steps = 0;
    for (int i = 0; i < batch; i++) {
        bool is_packed = data_layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED;
        steps += is_packed ? lengths[i] : longest;
    }
    *data = (struct cudnnRNNDataStruct){type, longest, batch, vector, steps};
    return CUDNN_STATUS_SUCCESS;
}

/* ---- weights --------------------------------------------------------------------------------- */

static int64_t
gates(const struct cudnnRNNStruct *self)
{
    switch (self->mode) {
    case CUDNN_LSTM:
        return 4;
    case CUDNN_GRU:
        return 3;
    default:
        return 1;
    }
}

static bool
has_projection(const struct cudnnRNNStruct *self)
{
    return self->projection != self->hidden;
}

/* Columns of the matrices that the inputs of a layer meet. */
static int64_t
input_columns(const struct cudnnRNNStruct *self, int64_t pseudo_layer)
{
    return pseudo_layer < self->directions ? self->input : self->projection * self->directions;
}

static int64_t
matrix_elements(const struct cudnnRNNStruct *self, int64_t pseudo_layer)
{
    int64_t inputs = input_columns(self, pseudo_layer) * self->hidden;
    int64_t states = self->projection * self->hidden;
    return gates(self) * (inputs + states) + (has_projection(self) ? states : 0);
}

static int64_t
all_matrix_elements(const struct cudnnRNNStruct *self, int64_t pseudo_layers)
{
    int64_t elements = 0;
    for (int64_t i = 0; i < pseudo_layers; i++) {
        elements += matrix_elements(self, i);
    }
    return elements;
}

/* How many biases a layer has: one for each matrix of the inputs, of the states, or of both. */
static int64_t
biases(const struct cudnnRNNStruct *self)
{
    switch (self->bias) {
    case CUDNN_RNN_NO_BIAS:
        return 0;
    case CUDNN_RNN_DOUBLE_BIAS:
        return 2 * gates(self);
    default:
        return gates(self);
    }
}

static size_t
element_bytes(cudnnDataType_t type)
{
    return standin_cudnn_bits(type) / 8;
}

cudnnStatus_t
cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t network, size_t *out)
{
    CALLED();
    (void)handle;
    int64_t pseudo_layers = network->layers * network->directions;
    int64_t elements = all_matrix_elements(network, pseudo_layers) +
                       pseudo_layers * biases(network) * network->hidden;
    *out = (size_t)elements * element_bytes(network->type);
    return CUDNN_STATUS_SUCCESS;
}

static void
describe(struct cudnnTensorStruct *tensor, cudnnDataType_t type, int64_t rows, int64_t columns)
{
    *tensor = (struct cudnnTensorStruct){
        .type = type,
        .count = 3,
        .dimensions = {1, (int)rows, (int)columns},
        .strides = {(int)(rows * columns), (int)columns, 1},
    };
}

typedef struct place {
    int64_t rows, columns;
    int64_t offset; /* in elements */
} place;

/* Matrix `index` of a layer: those of the inputs, of the states, then the projection. */
static bool
find_matrix(const struct cudnnRNNStruct *self, int64_t pseudo_layer, int64_t index, place *out)
{
    int64_t count = gates(self);
    int64_t inputs = input_columns(self, pseudo_layer), states = self->projection;
    int64_t start = all_matrix_elements(self, pseudo_layer);
    if (index < count) {
        *out = (place){self->hidden, inputs, start + index * self->hidden * inputs};
        return true;
    }
    start += count * self->hidden * inputs;
    if (index < 2 * count) {
        *out = (place){self->hidden, states, start + (index - count) * self->hidden * states};
        return true;
    }
    start += count * self->hidden * states;
    *out = (place){states, self->hidden, start};
    return index == 2 * count && has_projection(self);
}

static bool
find_bias(const struct cudnnRNNStruct *self, int64_t pseudo_layer, int64_t index, place *out)
{
    int64_t first = self->bias == CUDNN_RNN_SINGLE_REC_BIAS ? gates(self) : 0;
    int64_t start = all_matrix_elements(self, self->layers * self->directions);
    int64_t number = pseudo_layer * biases(self) + index - first;
    *out = (place){self->hidden, 1, start + number * self->hidden};
    return index >= first && index - first < biases(self);
}

/* Tells where the part lies; one that the network does not have is a tensor without dimensions. The
 * caller may want only one of the two. */
static void
tell(const struct cudnnRNNStruct *network, const void *weights, const place *found,
     struct cudnnTensorStruct *tensor, void **address)
{
    if (address != NULL) {
        *address = found == NULL ? NULL
                                 : (char *)(uintptr_t)weights +
                                       (size_t)found->offset * element_bytes(network->type);
    }
    if (tensor != NULL && found == NULL) {
        *tensor = (struct cudnnTensorStruct){0};
    } else if (tensor != NULL) {
        describe(tensor, network->type, found->rows, found->columns);
    }
}

cudnnStatus_t
cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t network, int32_t pseudo_layer,
                        size_t weights_size, const void *weights, int32_t index,
                        cudnnTensorDescriptor_t matrix, void **matrix_address,
                        cudnnTensorDescriptor_t bias, void **bias_address)
{
    CALLED();
    (void)handle, (void)weights_size;
    place found;
    bool has_matrix = find_matrix(network, pseudo_layer, index, &found);
    tell(network, weights, has_matrix ? &found : NULL, matrix, matrix_address);
    bool has_bias = find_bias(network, pseudo_layer, index, &found);
    tell(network, weights, has_bias ? &found : NULL, bias, bias_address);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Made up: the gates of one layer to work with, and in training those of all layers to keep. */
cudnnStatus_t
cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t network,
                          cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x,
                          size_t *workspace_size, size_t *reserve_size)
{
    CALLED();
    (void)handle;
    int64_t states = x->longest * x->batch * network->hidden * network->directions;
    size_t layer = (size_t)(states * (gates(network) + 1)) * element_bytes(network->type);
    if (workspace_size != NULL) {
        *workspace_size = layer;
    }
    if (reserve_size != NULL) {
        *reserve_size = mode == CUDNN_FWD_MODE_TRAINING ? layer * (size_t)network->layers : 0;
    }
    return CUDNN_STATUS_SUCCESS;
}

static standin_range
data_range(const struct cudnnRNNDataStruct *self, const void *data)
{
    return standin_range_of(data,
                            (uint64_t)(self->steps * self->vector) * element_bytes(self->type));
}

cudnnStatus_t
cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t network, cudnnForwardMode_t mode,
                const int32_t lengths[], cudnnRNNDataDescriptor_t x_descriptor, const void *x,
                cudnnRNNDataDescriptor_t y_descriptor, void *y,
                cudnnTensorDescriptor_t h_descriptor, const void *hx, void *hy,
                cudnnTensorDescriptor_t c_descriptor, const void *cx, void *cy, size_t weights_size,
                const void *weights, size_t workspace_size, void *workspace, size_t reserve_size,
                void *reserve)
{
    CALLED();
    (void)network, (void)mode, (void)lengths;
    standin_range ranges[] = {
        data_range(x_descriptor, x),
        data_range(y_descriptor, y),
        standin_tensor_range(h_descriptor, hx),
        standin_tensor_range(h_descriptor, hy),
        standin_tensor_range(c_descriptor, cx),
        standin_tensor_range(c_descriptor, cy),
        standin_range_of(weights, weights_size),
        standin_range_of(workspace, workspace_size),
        standin_range_of(reserve, reserve_size),
    };
    return standin_cudnn_run(__func__, handle, ranges, sizeof ranges / sizeof ranges[0]);
}

cudnnStatus_t
cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t network, const int32_t lengths[],
                        cudnnRNNDataDescriptor_t y_descriptor, const void *y, const void *dy,
                        cudnnRNNDataDescriptor_t x_descriptor, void *dx,
                        cudnnTensorDescriptor_t h_descriptor, const void *hx, const void *dhy,
                        void *dhx, cudnnTensorDescriptor_t c_descriptor, const void *cx,
                        const void *dcy, void *dcx, size_t weights_size, const void *weights,
                        size_t workspace_size, void *workspace, size_t reserve_size, void *reserve)
{
    CALLED();
    (void)network, (void)lengths;
    standin_range ranges[] = {
        data_range(y_descriptor, y),
        data_range(y_descriptor, dy),
        data_range(x_descriptor, dx),
        standin_tensor_range(h_descriptor, hx),
        standin_tensor_range(h_descriptor, dhy),
        standin_tensor_range(h_descriptor, dhx),
        standin_tensor_range(c_descriptor, cx),
        standin_tensor_range(c_descriptor, dcy),
        standin_tensor_range(c_descriptor, dcx),
        standin_range_of(weights, weights_size),
        standin_range_of(workspace, workspace_size),
        standin_range_of(reserve, reserve_size),
    };
    return standin_cudnn_run(__func__, handle, ranges, sizeof ranges / sizeof ranges[0]);
}

cudnnStatus_t
cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t network,
                           cudnnWgradMode_t mode, const int32_t lengths[],
                           cudnnRNNDataDescriptor_t x_descriptor, const void *x,
                           cudnnTensorDescriptor_t h_descriptor, const void *hx,
                           cudnnRNNDataDescriptor_t y_descriptor, const void *y,
                           size_t weights_size, void *dweights, size_t workspace_size,
                           void *workspace, size_t reserve_size, void *reserve)
{
    CALLED();
    (void)network, (void)mode, (void)lengths;
    standin_range ranges[] = {
        data_range(x_descriptor, x),
        standin_tensor_range(h_descriptor, hx),
        data_range(y_descriptor, y),
        standin_range_of(dweights, weights_size),
        standin_range_of(workspace, workspace_size),
        standin_range_of(reserve, reserve_size),
    };
    return standin_cudnn_run(__func__, handle, ranges, sizeof ranges / sizeof ranges[0]);
}
