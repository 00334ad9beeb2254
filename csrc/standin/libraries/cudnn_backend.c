/* cuDNN's backend: descriptors as objects that store their attributes, and execution plans.
 *
 * Whatever a caller sets is kept and given back. A few attributes are answered instead: the engines
 * that the heuristics propose, and the sizes of work areas.
 */
#include "standin/libraries/conv_workspace.h"
#include "standin/libraries/dnn.h"

#include <stdlib.h>
#include <string.h>

enum {
    ENGINES = 4,       /* that an operation graph can be run by */
    MOST_TENSORS = 64, /* of an operation graph, as far as their memory is checked */
    ATTENTION_BYTES = 256,
    FIRST_ENGINE = 1, /* to be proposed */
};

typedef struct attribute {
    struct attribute *next;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    void *values; /* descriptors among them are referred to */
} attribute;

typedef struct descriptor {
    atomic_int references;
    cudnnBackendDescriptorType_t type;
    attribute *attributes;
} descriptor;

typedef struct tensor_list {
    int count;
    const descriptor *tensors[MOST_TENSORS];
} tensor_list;

/* ---- the store ------------------------------------------------------------------------------- */

static size_t element_bytes(cudnnBackendAttributeType_t type) {
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case CUDNN_TYPE_CHAR:
        return sizeof(char);
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return sizeof(void *);
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
        return sizeof(int64_t);
    case CUDNN_TYPE_FRACTION:
        return sizeof(cudnnFraction_t);
    default: /* float, int32_t, and the enums */
        return sizeof(int32_t);
    }
}

static attribute *find_attribute(const descriptor *self, cudnnBackendAttributeName_t name) {
    attribute *found = self->attributes;
    while (found != NULL && found->name != name) {
        found = found->next;
    }
    return found;
}

/* The descriptors that an attribute holds; none for one that is not there. */
static int64_t children(const attribute *holder, descriptor ***out) {
    bool is_holder = holder != NULL && holder->type == CUDNN_TYPE_BACKEND_DESCRIPTOR;
    *out = is_holder ? holder->values : NULL;
    return is_holder ? holder->count : 0;
}

static descriptor *first_child(const descriptor *self, cudnnBackendAttributeName_t name) {
    descriptor **found = NULL;
    return children(find_attribute(self, name), &found) > 0 ? found[0] : NULL;
}

static int64_t integer_of(const descriptor *self, cudnnBackendAttributeName_t name) {
    const attribute *found = find_attribute(self, name);
    return found != NULL && found->type == CUDNN_TYPE_INT64 && found->count > 0
               ? *(const int64_t *)found->values
               : 0;
}

static bool is_true(const descriptor *self, cudnnBackendAttributeName_t name) {
    const attribute *found = find_attribute(self, name);
    return found != NULL && found->type == CUDNN_TYPE_BOOLEAN && *(const bool *)found->values;
}

static void give_back(descriptor *self);

static void empty(attribute *self) {
    descriptor **held = NULL;
    int64_t count = children(self, &held);
    for (int64_t i = 0; i < count; i++) {
        give_back(held[i]);
    }
    free(self->values);
    self->values = NULL;
    self->count = 0;
}

static void drop_attributes(descriptor *self) {
    while (self->attributes != NULL) {
        attribute *first = self->attributes;
        self->attributes = first->next;
        empty(first);
        free(first);
    }
}

static void give_back(descriptor *self) {
    if (self == NULL || atomic_fetch_sub(&self->references, 1) > 1) {
        return;
    }
    drop_attributes(self);
    free(self);
}

static void fill(attribute *self, cudnnBackendAttributeType_t type, int64_t count,
                 const void *values) {
    size_t size = (size_t)count * element_bytes(type);
    void *copy = standin_new(size + 1);
    memcpy(copy, values, size);
    empty(self);
    self->type = type;
    self->count = count;
    self->values = copy;
    descriptor **held = NULL;
    for (int64_t i = 0; i < children(self, &held); i++) {
        if (held[i] != NULL) {
            atomic_fetch_add(&held[i]->references, 1);
        }
    }
}

static void set(descriptor *self, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    attribute *found = find_attribute(self, name);
    if (found == NULL) {
        found = standin_new(sizeof *found);
        found->name = name;
        found->next = self->attributes;
        self->attributes = found;
    }
    fill(found, type, count, values);
}

static descriptor *create(cudnnBackendDescriptorType_t type) {
    descriptor *self = standin_new(sizeof *self);
    atomic_init(&self->references, 1);
    self->type = type;
    return self;
}

/* Makes `to` say what `from` says, as a query for a descriptor does. */
static void copy_into(descriptor *to, const descriptor *from) {
    drop_attributes(to);
    for (const attribute *each = from->attributes; each != NULL; each = each->next) {
        set(to, each->name, each->type, each->count, each->values);
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */

static uint64_t tensor_bytes(const descriptor *self) {
    const attribute *dimensions = find_attribute(self, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const attribute *strides = find_attribute(self, CUDNN_ATTR_TENSOR_STRIDES);
    const attribute *type = find_attribute(self, CUDNN_ATTR_TENSOR_DATA_TYPE);
    if (dimensions == NULL || strides == NULL || type == NULL ||
        dimensions->count != strides->count) {
        return 0;
    }
    return standin_extent_bytes(dimensions->count, dimensions->values, strides->values,
                                *(const cudnnDataType_t *)type->values);
}

/* Whether the tensor is that many bytes of device memory: not one between two operations, nor a
 * number on the host, nor one whose rows have lengths of their own. */
static bool is_plain_memory(const descriptor *self) {
    return !is_true(self, CUDNN_ATTR_TENSOR_IS_VIRTUAL) &&
           !is_true(self, CUDNN_ATTR_TENSOR_IS_BY_VALUE) &&
           first_child(self, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC) == NULL;
}

static void add_tensor(tensor_list *list, const descriptor *tensor) {
    int64_t id = integer_of(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    for (int i = 0; i < list->count; i++) {
        if (integer_of(list->tensors[i], CUDNN_ATTR_TENSOR_UNIQUE_ID) == id) {
            return;
        }
    }
    if (list->count < MOST_TENSORS && is_plain_memory(tensor)) {
        list->tensors[list->count++] = tensor;
    }
}

/* The tensors of one operation are its attributes, whatever their names. */
static void add_operation(tensor_list *list, const descriptor *operation) {
    for (const attribute *each = operation->attributes; each != NULL; each = each->next) {
        descriptor **held = NULL;
        int64_t count = children(each, &held);
        for (int64_t i = 0; i < count; i++) {
            if (held[i] != NULL && held[i]->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) {
                add_tensor(list, held[i]);
            }
        }
    }
}

static void list_tensors(tensor_list *list, const descriptor *graph) {
    descriptor **operations = NULL;
    *list = (tensor_list){0};
    if (graph == NULL) {
        return;
    }
    int64_t count = children(find_attribute(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS), &operations);
    for (int64_t i = 0; i < count; i++) {
        add_operation(list, operations[i]);
    }
}

/* ---- engines and plans ----------------------------------------------------------------------- */

static const descriptor *engine_of(const descriptor *config) {
    return config == NULL ? NULL : first_child(config, CUDNN_ATTR_ENGINECFG_ENGINE);
}

/* The operation of a graph that is a convolution, NULL for none. */
static const descriptor *convolution_in(const descriptor *graph) {
    descriptor **operations = NULL;
    int64_t count =
        graph ? children(find_attribute(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS), &operations) : 0;
    for (int64_t i = 0; i < count; i++) {
        cudnnBackendDescriptorType_t type = operations[i] ? operations[i]->type : 0;
        if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
            type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
            type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR) {
            return operations[i];
        }
    }
    return NULL;
}

/* N, C, H, W; 1 where a tensor has fewer. The depth of one with more counts as height. */
static void read_dimensions(const descriptor *tensor, int64_t out[4]) {
    const attribute *found = tensor ? find_attribute(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS) : NULL;
    out[0] = out[1] = out[2] = out[3] = 1;
    for (int64_t i = 0; found != NULL && i < found->count; i++) {
        int64_t size = ((const int64_t *)found->values)[i];
        if (i < 4) {
            out[i] = size;
        } else {
            out[2] *= out[3];
            out[3] = size;
        }
    }
}

static standin_convolution read_convolution(const descriptor *operation) {
    static const struct {
        cudnnBackendDescriptorType_t type;
        standin_pass pass;
        cudnnBackendAttributeName_t in, filter, out;
    } forms[] = {
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, STANDIN_FORWARD,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, STANDIN_DATA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, STANDIN_FILTER,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
    };
    size_t form = 0;
    while (forms[form].type != operation->type) {
        form++;
    }
    const descriptor *in = first_child(operation, forms[form].in);
    standin_convolution read = {.pass = forms[form].pass};
    read_dimensions(in, read.in);
    read_dimensions(first_child(operation, forms[form].filter), read.filter);
    read_dimensions(first_child(operation, forms[form].out), read.out);
    const attribute *type = in ? find_attribute(in, CUDNN_ATTR_TENSOR_DATA_TYPE) : NULL;
    const attribute *strides = in ? find_attribute(in, CUDNN_ATTR_TENSOR_STRIDES) : NULL;
    const int64_t one = 1;
    read.element_bytes =
        type ? standin_extent_bytes(1, &one, &one, *(const cudnnDataType_t *)type->values) : 0;
    read.has_channels_last =
        strides != NULL && strides->count > 1 && ((const int64_t *)strides->values)[1] == 1;
    return read;
}

/* Attention asks for what it was seen to ask for on an H200 (cuDNN 9.19). Of the engines of a
 * convolution the first to be proposed asks for what an H100's asks for, the second for nothing. */
static int64_t workspace_bytes(const descriptor *config) {
    const descriptor *engine = engine_of(config);
    if (engine == NULL) {
        return 0;
    }
    const descriptor *operation =
        convolution_in(first_child(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH));
    if (operation == NULL) {
        return ATTENTION_BYTES;
    }
    if (integer_of(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX) != FIRST_ENGINE) {
        return 0;
    }
    standin_convolution convolution = read_convolution(operation);
    return (int64_t)((standin_convolution_workspace(&convolution) + 511) / 512 * 512);
}

/* Makes `config` a configuration of engine `index` for the graph. */
static void configure(descriptor *config, descriptor *graph, int64_t index) {
    descriptor *engine = create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    set(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index);
    set(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    give_back(engine);
}

/* Proposed in an order in which the first choice needs a work area and a later one does not. */
static cudnnStatus_t propose(const descriptor *heuristics, int64_t requested, int64_t *count,
                             descriptor **configs) {
    static const int64_t order[ENGINES] = {FIRST_ENGINE, 0, 2, 3};
    descriptor *graph = first_child(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    *count = configs != NULL && requested < ENGINES ? requested : ENGINES;
    for (int64_t i = 0; configs != NULL && i < *count; i++) {
        configure(configs[i], graph, order[i]);
    }
    return graph == NULL ? CUDNN_STATUS_BAD_PARAM : CUDNN_STATUS_SUCCESS;
}

/* ---- the interface --------------------------------------------------------------------------- */

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *out) {
    CALLED();
    *out = create(type);
    return CUDNN_STATUS_SUCCESS;
}

/* What other descriptors hold stays until they are gone. */
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t handle) {
    CALLED();
    give_back(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *values) {
    CALLED();
    set(handle, name, type, count, values);
    return CUDNN_STATUS_SUCCESS;
}

/* Gives a stored attribute: how many values there are, and as many as were asked for. */
static cudnnStatus_t get_stored(const descriptor *self, cudnnBackendAttributeName_t name,
                                cudnnBackendAttributeType_t type, int64_t requested, int64_t *count,
                                void *out) {
    const attribute *found = find_attribute(self, name);
    *count = found == NULL ? 0 : found->count;
    if (found == NULL || out == NULL || found->type != type) {
        return CUDNN_STATUS_SUCCESS;
    }
    int64_t copied = requested < found->count ? requested : found->count;
    descriptor **held = NULL;
    if (children(found, &held) == 0) {
        memcpy(out, found->values, (size_t)copied * element_bytes(type));
        return CUDNN_STATUS_SUCCESS;
    }
    for (int64_t i = 0; i < copied; i++) {
        copy_into(((descriptor **)out)[i], held[i]);
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t get_integer(int64_t value, int64_t requested, int64_t *count, void *out) {
    *count = 1;
    if (out != NULL && requested >= 1) {
        *(int64_t *)out = value;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const handle,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested,
                                       int64_t *count, void *out) {
    CALLED();
    const descriptor *self = handle;
    int64_t unused = 0;
    int64_t *number = count == NULL ? &unused : count;
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        return propose(self, requested, number, out);
    case CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT:
        return get_integer(ENGINES, requested, number, out);
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
        return get_integer(workspace_bytes(self), requested, number, out);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: {
        const descriptor *config = first_child(self, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
        return get_integer(workspace_bytes(config), requested, number, out);
    }
    case CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED:
        *number = 1;
        *(int32_t *)out = 0;
        return CUDNN_STATUS_SUCCESS;
    default:
        return get_stored(self, name, type, requested, number, out);
    }
}

/* Where the pack says that the tensor lies; NULL if it does not. */
static const void *data_of(const descriptor *pack, const descriptor *tensor) {
    const attribute *ids = find_attribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const attribute *pointers = find_attribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    int64_t id = integer_of(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    if (ids == NULL || pointers == NULL) {
        return NULL;
    }
    for (int64_t i = 0; i < ids->count && i < pointers->count; i++) {
        if (((const int64_t *)ids->values)[i] == id) {
            return ((void *const *)pointers->values)[i];
        }
    }
    return NULL;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_handle,
                                  cudnnBackendDescriptor_t pack_handle) {
    CALLED();
    const descriptor *plan = plan_handle, *pack = pack_handle;
    const descriptor *config = first_child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const descriptor *graph = first_child(engine_of(config), CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    const attribute *workspace = find_attribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    standin_range ranges[MOST_TENSORS + 1];
    tensor_list list;
    int count = 0;
    list_tensors(&list, graph);
    /* Shapes that this call overrides are not those of the graph. */
    for (int i = 0; i < list.count &&
                    find_attribute(pack, CUDNN_ATTR_VARIANT_PACK_OVERRIDE_UNIQUE_IDS) == NULL;
         i++) {
        ranges[count++] =
            standin_range_of(data_of(pack, list.tensors[i]), tensor_bytes(list.tensors[i]));
    }
    if (workspace != NULL) {
        ranges[count++] =
            standin_range_of(*(void *const *)workspace->values, (uint64_t)workspace_bytes(config));
    }
    return standin_cudnn_run(handle, ranges, count);
}
