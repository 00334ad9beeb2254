/* cuDNN: descriptors keep what they were told, plans touch the memory of their tensors, and the
 * weights of recurrent networks have no gap and no overlap. */
#include "libraries/dnn.h"
#include "memory_support.h"

#define CHECK_DNN(call) CHECK_EQ(call, CUDNN_STATUS_SUCCESS)

enum { TENSORS = 3, TENSOR_BYTES = 4096, BLOCK_BYTES = 2 * TENSOR_BYTES };

static cudnnBackendDescriptor_t
create(cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t made = NULL;
    CHECK_DNN(cudnnBackendCreateDescriptor(type, &made));
    return made;
}

static void
set(cudnnBackendDescriptor_t self, cudnnBackendAttributeName_t name,
    cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    CHECK_DNN(cudnnBackendSetAttribute(self, name, type, count, values));
}

/* 1 x 4 x 16 x 16 floats. */
static cudnnBackendDescriptor_t
tensor(int64_t id)
{
    const int64_t dimensions[] = {1, 4, 16, 16}, strides[] = {1024, 256, 16, 1};
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t made = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dimensions);
    set(made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    CHECK_DNN(cudnnBackendFinalize(made));
    return made;
}

/* A graph of one convolution with tensors 1, 2 and 3; nobody else holds what it is made of. */
static cudnnBackendDescriptor_t
convolution_graph(void)
{
    static const cudnnBackendAttributeName_t names[TENSORS] = {
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
    };
    cudnnBackendDescriptor_t operation =
        create(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    cudnnBackendDescriptor_t graph = create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    for (int i = 0; i < TENSORS; i++) {
        cudnnBackendDescriptor_t each = tensor(i + 1);
        set(operation, names[i], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &each);
        CHECK_DNN(cudnnBackendDestroyDescriptor(each));
    }
    CHECK_DNN(cudnnBackendFinalize(operation));
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &operation);
    CHECK_DNN(cudnnBackendDestroyDescriptor(operation));
    CHECK_DNN(cudnnBackendFinalize(graph));
    return graph;
}

/* A plan for the graph by the proposal number `choice`. */
static cudnnBackendDescriptor_t
plan_for(cudnnBackendDescriptor_t graph, int choice)
{
    enum { MOST = 16 };
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_INSTANT;
    cudnnBackendDescriptor_t configs[MOST] = {NULL};
    cudnnBackendDescriptor_t heuristics = create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    cudnnBackendDescriptor_t plan = create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    int64_t count = 0;
    set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
        &graph);
    set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    CHECK_DNN(cudnnBackendFinalize(heuristics));
    CHECK_DNN(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, NULL));
    CHECK(count > choice && count <= MOST);
    for (int64_t i = 0; i < count; i++) {
        configs[i] = create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    }
    CHECK_DNN(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, configs));
    set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
        &configs[choice]);
    CHECK_DNN(cudnnBackendFinalize(plan));
    for (int64_t i = 0; i < count; i++) {
        CHECK_DNN(cudnnBackendDestroyDescriptor(configs[i]));
    }
    CHECK_DNN(cudnnBackendDestroyDescriptor(heuristics));
    return plan;
}

static int64_t
workspace_of(cudnnBackendDescriptor_t plan)
{
    int64_t size_bytes = -1;
    CHECK_DNN(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                       CUDNN_TYPE_INT64, 1, NULL, &size_bytes));
    return size_bytes;
}

static cudnnStatus_t
execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, char *const data[TENSORS],
        char *workspace)
{
    const int64_t ids[TENSORS] = {1, 2, 3};
    cudnnBackendDescriptor_t pack = create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, TENSORS, ids);
    set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, TENSORS, data);
    set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    CHECK_EQ(cudnnBackendExecute(handle, plan, pack), CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    CHECK_DNN(cudnnBackendFinalize(pack));
    cudnnStatus_t status = cudnnBackendExecute(handle, plan, pack);
    CHECK_DNN(cudnnBackendDestroyDescriptor(pack));
    return status;
}

TEST(attributes_come_back)
{
    const int64_t values[] = {3, -4, 5};
    int64_t back[3] = {0}, count = 0, other = 9;
    cudnnBackendDescriptor_t self = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    CHECK_DNN(cudnnBackendGetAttribute(self, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 3, &count,
                                       back));
    CHECK_EQ(count, 0);
    set(self, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 1, &other);
    set(self, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 3, values);
    set(self, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &other);
    CHECK_DNN(cudnnBackendGetAttribute(self, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 2, &count,
                                       back));
    CHECK(count == 3 && back[0] == 3 && back[1] == -4 && back[2] == 0);
    CHECK_DNN(cudnnBackendGetAttribute(self, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, NULL,
                                       back));
    CHECK_EQ(back[0], 9);
    CHECK_EQ(cudnnBackendGetAttribute(self, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, 1,
                                      &count, back),
             CUDNN_STATUS_BAD_PARAM);
    CHECK_DNN(cudnnBackendFinalize(self));
    CHECK_EQ(
        cudnnBackendSetAttribute(self, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &other),
        CUDNN_STATUS_BAD_PARAM);
    CHECK_DNN(cudnnBackendDestroyDescriptor(self));
}

TEST(a_query_fills_the_descriptor_that_it_is_given)
{
    int64_t index = -1;
    int64_t count = 0;
    cudnnBackendDescriptor_t graph = convolution_graph();
    cudnnBackendDescriptor_t plan = plan_for(graph, 1);
    cudnnBackendDescriptor_t config = create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    cudnnBackendDescriptor_t engine = create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    CHECK_DNN(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &config));
    CHECK_DNN(cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine));
    CHECK_DNN(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                       &count, &index));
    CHECK(index >= 0);
    CHECK_EQ(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine),
             CUDNN_STATUS_BAD_PARAM);
    CHECK_DNN(cudnnBackendDestroyDescriptor(engine));
    CHECK_DNN(cudnnBackendDestroyDescriptor(config));
    CHECK_DNN(cudnnBackendDestroyDescriptor(plan));
    CHECK_DNN(cudnnBackendDestroyDescriptor(graph));
}

TEST(engines_differ_in_their_workspace)
{
    cudnnBackendDescriptor_t graph = convolution_graph();
    cudnnBackendDescriptor_t first = plan_for(graph, 0), second = plan_for(graph, 1);
    CHECK_DNN(cudnnBackendDestroyDescriptor(graph));
    CHECK(workspace_of(first) > 0);
    CHECK(workspace_of(first) != workspace_of(second));
    CHECK_DNN(cudnnBackendDestroyDescriptor(first));
    CHECK_DNN(cudnnBackendDestroyDescriptor(second));
}

TEST(a_plan_without_an_engine_is_refused)
{
    cudnnBackendDescriptor_t plan = create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    CHECK_EQ(cudnnBackendFinalize(plan), CUDNN_STATUS_NOT_SUPPORTED);
    CHECK_DNN(cudnnBackendDestroyDescriptor(plan));
}

/* The plan is all that is left of the graph when it runs. */
TEST(plans_touch_their_tensors_and_workspace_exactly)
{
    cudnnHandle_t handle = NULL;
    char *block = device_memory(BLOCK_BYTES);
    char *end = block + TENSOR_BYTES; /* where a tensor may begin at the latest */
    cudnnBackendDescriptor_t graph = convolution_graph();
    cudnnBackendDescriptor_t plan = plan_for(graph, 0);
    CHECK_DNN(cudnnBackendDestroyDescriptor(graph));
    CHECK_DNN(cudnnCreate(&handle));
    char *workspace = block + BLOCK_BYTES - workspace_of(plan);
    CHECK_DNN(execute(handle, plan, (char *const[]){end, end, end}, workspace));
    CHECK_MISUSE(execute(handle, plan, (char *const[]){end + 1, end, end}, workspace),
                 CUDNN_STATUS_EXECUTION_FAILED);
    CHECK_MISUSE(execute(handle, plan, (char *const[]){end, end, end + 1}, workspace),
                 CUDNN_STATUS_EXECUTION_FAILED);
    CHECK_MISUSE(execute(handle, plan, (char *const[]){end, end, end}, workspace + 1),
                 CUDNN_STATUS_EXECUTION_FAILED);
    CHECK_DNN(cudnnBackendDestroyDescriptor(plan));
    CHECK_DNN(cudnnDestroy(handle));
    CHECK_CUDA(cudaFree(block));
}

/* ---- the legacy interface -------------------------------------------------------------------- */

TEST(normalisation_touches_every_operand)
{
    const int dimensions[] = {2, 4, 8, 8}, strides[] = {256, 64, 8, 1};
    const int channels[] = {1, 4, 1, 1}, channel_strides[] = {4, 1, 1, 1};
    const float one = 1.0F;
    char *x = device_memory(2048), *scale = device_memory(16);
    cudnnHandle_t handle = NULL;
    cudnnTensorDescriptor_t data = NULL, parameters = NULL;
    CHECK_DNN(cudnnCreate(&handle));
    CHECK_DNN(cudnnCreateTensorDescriptor(&data));
    CHECK_DNN(cudnnCreateTensorDescriptor(&parameters));
    CHECK_DNN(cudnnSetTensorNdDescriptor(data, CUDNN_DATA_FLOAT, 4, dimensions, strides));
    CHECK_DNN(
        cudnnSetTensorNdDescriptor(parameters, CUDNN_DATA_FLOAT, 4, channels, channel_strides));
    CHECK_DNN(cudnnBatchNormalizationForwardInference(handle, CUDNN_BATCHNORM_SPATIAL, &one, &one,
                                                      data, x, data, x, parameters, scale, scale,
                                                      scale, scale, 1e-5));
    CHECK_MISUSE(cudnnBatchNormalizationForwardInference(handle, CUDNN_BATCHNORM_SPATIAL, &one,
                                                         &one, data, x, data, x, parameters, scale,
                                                         scale, scale, scale + 4, 1e-5),
                 CUDNN_STATUS_EXECUTION_FAILED);
    CHECK_MISUSE(cudnnBatchNormalizationForwardInference(handle, CUDNN_BATCHNORM_SPATIAL, &one,
                                                         &one, data, x, data, x + 1, parameters,
                                                         scale, scale, scale, scale, 1e-5),
                 CUDNN_STATUS_EXECUTION_FAILED);
    CHECK_DNN(cudnnDestroyTensorDescriptor(data));
    CHECK_DNN(cudnnDestroyTensorDescriptor(parameters));
    CHECK_DNN(cudnnDestroy(handle));
    CHECK_CUDA(cudaFree(x));
    CHECK_CUDA(cudaFree(scale));
}

/* Marks the bytes of one part of the weights; false if one was marked before or lies outside. */
static bool
mark(unsigned char *marks, size_t size, cudnnTensorDescriptor_t part, const char *begin,
     const void *address)
{
    cudnnDataType_t type = CUDNN_DATA_DOUBLE;
    int count = 0;
    int dimensions[3] = {0}, strides[3] = {0};
    CHECK_DNN(cudnnGetTensorNdDescriptor(part, 3, &type, &count, dimensions, strides));
    if (count == 0) {
        return address == NULL;
    }
    size_t offset = (size_t)((const char *)address - begin);
    size_t bytes = (size_t)dimensions[0] * (size_t)dimensions[1] * (size_t)dimensions[2] * 4;
    for (size_t i = offset; i < offset + bytes; i++) {
        if (i >= size || marks[i]++ != 0) {
            return false;
        }
    }
    return type == CUDNN_DATA_FLOAT && count == 3;
}

static void
check_weights(cudnnRNNMode_t mode, cudnnRNNBiasMode_t bias, cudnnDirectionMode_t direction,
              int projection)
{
    enum { INPUT = 3, HIDDEN = 5, LAYERS = 2, MOST_BYTES = 1 << 14, MATRICES = 9 };
    unsigned char marks[MOST_BYTES] = {0};
    size_t size = 0, marked = 0;
    char *begin = (char *)marks; /* any address serves */
    cudnnRNNDescriptor_t network = NULL;
    cudnnTensorDescriptor_t matrix = NULL, vector = NULL;
    CHECK_DNN(cudnnCreateRNNDescriptor(&network));
    CHECK_DNN(cudnnCreateTensorDescriptor(&matrix));
    CHECK_DNN(cudnnCreateTensorDescriptor(&vector));
    CHECK_DNN(cudnnSetRNNDescriptor_v8(network, CUDNN_RNN_ALGO_STANDARD, mode, bias, direction,
                                       CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT,
                                       CUDNN_DEFAULT_MATH, INPUT, HIDDEN, projection, LAYERS, NULL,
                                       0));
    CHECK_DNN(cudnnGetRNNWeightSpaceSize(NULL, network, &size));
    CHECK(size <= MOST_BYTES);
    int pseudo_layers = direction == CUDNN_BIDIRECTIONAL ? 2 * LAYERS : LAYERS;
    for (int layer = 0; layer < pseudo_layers; layer++) {
        for (int i = 0; i < MATRICES; i++) {
            void *matrix_address = NULL, *vector_address = NULL;
            CHECK_DNN(cudnnGetRNNWeightParams(NULL, network, layer, size, begin, i, matrix,
                                              &matrix_address, vector, &vector_address));
            CHECK(mark(marks, size, matrix, begin, matrix_address));
            CHECK(mark(marks, size, vector, begin, vector_address));
        }
    }
    for (size_t i = 0; i < size; i++) {
        marked += marks[i];
    }
    CHECK_EQ(marked, size);
    CHECK_DNN(cudnnDestroyTensorDescriptor(matrix));
    CHECK_DNN(cudnnDestroyTensorDescriptor(vector));
    CHECK_DNN(cudnnDestroyRNNDescriptor(network));
}

TEST(recurrent_weights_have_no_gap_and_no_overlap)
{
    check_weights(CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS, CUDNN_UNIDIRECTIONAL, 0);
    check_weights(CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS, CUDNN_BIDIRECTIONAL, 2);
    check_weights(CUDNN_GRU, CUDNN_RNN_NO_BIAS, CUDNN_BIDIRECTIONAL, 0);
    check_weights(CUDNN_GRU, CUDNN_RNN_SINGLE_REC_BIAS, CUDNN_UNIDIRECTIONAL, 0);
    check_weights(CUDNN_RNN_TANH, CUDNN_RNN_SINGLE_INP_BIAS, CUDNN_BIDIRECTIONAL, 0);
}

static void
run_all(void)
{
    RUN(attributes_come_back);
    RUN(a_query_fills_the_descriptor_that_it_is_given);
    RUN(engines_differ_in_their_workspace);
    RUN(a_plan_without_an_engine_is_refused);
    RUN(plans_touch_their_tensors_and_workspace_exactly);
    RUN(normalisation_touches_every_operand);
    RUN(recurrent_weights_have_no_gap_and_no_overlap);
}

int
main(void)
{
    return run_in_both_modes(run_all);
}
