/* cuDNN: what its plans and its normalisation touch is exactly what the real ones would. */
#include "standin/libraries/dnn.h"
#include "support.h"

enum { TENSORS = 3, TENSOR_BYTES = 4096, BLOCK_BYTES = 2 * TENSOR_BYTES };

static cudnnBackendDescriptor_t create(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t made = NULL;
    OK(cudnnBackendCreateDescriptor(type, &made));
    return made;
}

static void set(cudnnBackendDescriptor_t self, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    OK(cudnnBackendSetAttribute(self, name, type, count, values));
}

/* 1 x 4 x 16 x 16 floats. */
static cudnnBackendDescriptor_t tensor(int64_t id) {
    const int64_t dimensions[] = {1, 4, 16, 16}, strides[] = {1024, 256, 16, 1};
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t made = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dimensions);
    set(made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    OK(cudnnBackendFinalize(made));
    return made;
}

/* A graph of one convolution with tensors 1, 2 and 3; nobody else holds what it is made of. */
static cudnnBackendDescriptor_t convolution_graph(void) {
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
        OK(cudnnBackendDestroyDescriptor(each));
    }
    OK(cudnnBackendFinalize(operation));
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &operation);
    OK(cudnnBackendDestroyDescriptor(operation));
    OK(cudnnBackendFinalize(graph));
    return graph;
}

/* A plan for the graph by the proposal number `choice`. */
static cudnnBackendDescriptor_t plan_for(cudnnBackendDescriptor_t graph, int choice) {
    enum { MOST = 16 };
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_INSTANT;
    cudnnBackendDescriptor_t configs[MOST] = {NULL};
    cudnnBackendDescriptor_t heuristics = create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    cudnnBackendDescriptor_t plan = create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    int64_t count = 0;
    set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
        &graph);
    set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    OK(cudnnBackendFinalize(heuristics));
    OK(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, NULL));
    CHECK(count > choice && count <= MOST);
    for (int64_t i = 0; i < count; i++) {
        configs[i] = create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    }
    OK(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, configs));
    set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
        &configs[choice]);
    OK(cudnnBackendFinalize(plan));
    for (int64_t i = 0; i < count; i++) {
        OK(cudnnBackendDestroyDescriptor(configs[i]));
    }
    OK(cudnnBackendDestroyDescriptor(heuristics));
    return plan;
}

static int64_t workspace_of(cudnnBackendDescriptor_t plan) {
    int64_t size_bytes = -1;
    OK(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                NULL, &size_bytes));
    return size_bytes;
}

static cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                             char *const data[TENSORS], char *workspace) {
    const int64_t ids[TENSORS] = {1, 2, 3};
    cudnnBackendDescriptor_t pack = create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, TENSORS, ids);
    set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, TENSORS, data);
    set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    OK(cudnnBackendFinalize(pack));
    cudnnStatus_t status = cudnnBackendExecute(handle, plan, pack);
    OK(cudnnBackendDestroyDescriptor(pack));
    return status;
}

/* The plan is all that is left of the graph when it runs. */
CASE(plans_touch_their_tensors_and_workspace_exactly) {
    cudnnHandle_t handle = NULL;
    char *block = device_memory(BLOCK_BYTES);
    char *end = block + TENSOR_BYTES; /* where a tensor may begin at the latest */
    cudnnBackendDescriptor_t graph = convolution_graph();
    cudnnBackendDescriptor_t plan = plan_for(graph, 0), other = plan_for(graph, 1);
    OK(cudnnBackendDestroyDescriptor(graph));
    CHECK(workspace_of(plan) > 0 && workspace_of(plan) != workspace_of(other));
    OK(cudnnBackendDestroyDescriptor(other));
    OK(cudnnCreate(&handle));
    char *workspace = device_memory((uint64_t)workspace_of(plan));
    OK(execute(handle, plan, (char *const[]){end, end, end}, workspace));
    CHECK_MISUSE(execute(handle, plan, (char *const[]){end + 1, end, end}, workspace),
                 CUDNN_STATUS_EXECUTION_FAILED);
    CHECK_MISUSE(execute(handle, plan, (char *const[]){end, end, end + 1}, workspace),
                 CUDNN_STATUS_EXECUTION_FAILED);
    CHECK_MISUSE(execute(handle, plan, (char *const[]){end, end, end}, workspace + 1),
                 CUDNN_STATUS_EXECUTION_FAILED);
    OK(cudnnBackendDestroyDescriptor(plan));
    free(handle);
}

/* ---- the legacy interface -------------------------------------------------------------------- */

CASE(normalisation_touches_every_operand) {
    const int dimensions[] = {2, 4, 8, 8}, strides[] = {256, 64, 8, 1};
    const int channels[] = {1, 4, 1, 1}, channel_strides[] = {4, 1, 1, 1};
    const float one = 1.0F;
    char *x = device_memory(2048), *scale = device_memory(16);
    cudnnHandle_t handle = NULL;
    cudnnTensorDescriptor_t data = NULL, parameters = NULL;
    OK(cudnnCreate(&handle));
    OK(cudnnCreateTensorDescriptor(&data));
    OK(cudnnCreateTensorDescriptor(&parameters));
    OK(cudnnSetTensorNdDescriptor(data, CUDNN_DATA_FLOAT, 4, dimensions, strides));
    OK(cudnnSetTensorNdDescriptor(parameters, CUDNN_DATA_FLOAT, 4, channels, channel_strides));
    OK(cudnnBatchNormalizationForwardInference(handle, CUDNN_BATCHNORM_SPATIAL, &one, &one, data, x,
                                               data, x, parameters, scale, scale, scale, scale,
                                               1e-5));
    CHECK_MISUSE(cudnnBatchNormalizationForwardInference(handle, CUDNN_BATCHNORM_SPATIAL, &one,
                                                         &one, data, x, data, x, parameters, scale,
                                                         scale, scale, scale + 4, 1e-5),
                 CUDNN_STATUS_EXECUTION_FAILED);
    CHECK_MISUSE(cudnnBatchNormalizationForwardInference(handle, CUDNN_BATCHNORM_SPATIAL, &one,
                                                         &one, data, x, data, x + 1, parameters,
                                                         scale, scale, scale, scale, 1e-5),
                 CUDNN_STATUS_EXECUTION_FAILED);
    OK(cudnnDestroyTensorDescriptor(data));
    OK(cudnnDestroyTensorDescriptor(parameters));
    free(handle);
}

int main(void) {
    return run_cases("eager", false);
}
