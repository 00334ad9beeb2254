/* cuFFT's plans, and what cuSPARSE, NCCL and CUPTI say in words or numbers.
 *
 * What else these libraries have, and all of cuSOLVER, needs no more than a handle, a size or
 * nothing: generate_stubs.py writes those functions.
 */
#include "libraries.h"

#pragma GCC visibility push(default)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <cufftXt.h>
#include <cupti.h>
#include <cusparse.h>
#include <nccl.h>
#pragma GCC diagnostic pop
#pragma GCC visibility pop

/* ---- cuFFT ----------------------------------------------------------------------------------- */

enum { MOST_PLANS = 1 << 16 };

/* Plans are numbers; what an execution needs to know of one. A number is used again after a round
 * of so many, which no program keeps at once. */
typedef struct transform {
    cudaStream_t stream;
    uint64_t input_bytes, output_bytes, workspace_bytes;
    void *workspace;
} transform;

static transform transforms[MOST_PLANS];

static transform *
transform_of(cufftHandle plan)
{
    return &transforms[(unsigned)plan % MOST_PLANS];
}

cufftResult
cufftCreate(cufftHandle *out)
{
    CALLED();
    static atomic_uint last;
    *out = (cufftHandle)(atomic_fetch_add(&last, 1) % (MOST_PLANS - 1) + 1);
    *transform_of(*out) = (transform){0};
    return CUFFT_SUCCESS;
}

cufftResult
cufftDestroy(cufftHandle plan)
{
    CALLED();
    *transform_of(plan) = (transform){0};
    return CUFFT_SUCCESS;
}

cufftResult
cufftSetStream(cufftHandle plan, cudaStream_t stream)
{
    CALLED();
    transform_of(plan)->stream = stream;
    return CUFFT_SUCCESS;
}

cufftResult
cufftSetWorkArea(cufftHandle plan, void *workspace)
{
    CALLED();
    transform_of(plan)->workspace = workspace;
    return CUFFT_SUCCESS;
}

/* Bytes from the first to the last element of a batch. Without `embed` the data have no gaps, and
 * the innermost dimension of the half-complex side of a real transform is half as long. */
static uint64_t
batch_bytes(int rank, const long long *size, const long long *embed, long long stride,
            long long distance, cudaDataType type, long long batches, bool is_half)
{
    long long elements = 1;
    for (int i = 0; i < rank; i++) {
        bool is_innermost = i == rank - 1;
        long long length = is_innermost && is_half ? size[i] / 2 + 1 : size[i];
        elements = embed == NULL || i == 0 ? elements * length : elements * embed[i];
    }
    long long last =
        embed == NULL ? elements * batches - 1 : (elements - 1) * stride + (batches - 1) * distance;
    return ((uint64_t)last + 1) * standin_type_bits(type) / 8;
}

static bool
is_complex(cudaDataType type)
{
    return type == CUDA_C_16F || type == CUDA_C_32F || type == CUDA_C_64F || type == CUDA_C_16BF;
}

/* The work area is as large as the output: made up. */
cufftResult
cufftXtMakePlanMany(cufftHandle plan, int rank, long long *size, long long *input_embed,
                    long long input_stride, long long input_distance, cudaDataType input_type,
                    long long *output_embed, long long output_stride, long long output_distance,
                    cudaDataType output_type, long long batches, size_t *workspace_size,
                    cudaDataType compute_type)
{
    CALLED();
    (void)compute_type;
    transform *self = transform_of(plan);
    bool is_from_real = !is_complex(input_type), is_to_real = !is_complex(output_type);
    self->input_bytes = batch_bytes(rank, size, input_embed, input_stride, input_distance,
                                    input_type, batches, is_to_real);
    self->output_bytes = batch_bytes(rank, size, output_embed, output_stride, output_distance,
                                     output_type, batches, is_from_real);
    self->workspace_bytes = self->output_bytes;
    *workspace_size = (size_t)self->workspace_bytes;
    return CUFFT_SUCCESS;
}

cufftResult
cufftXtExec(cufftHandle plan, void *input, void *output, int direction)
{
    CALLED();
    (void)direction;
    const transform *self = transform_of(plan);
    standin_range ranges[] = {
        standin_range_of(input, self->input_bytes),
        standin_range_of(output, self->output_bytes),
        standin_range_of(self->workspace, self->workspace_bytes),
    };
    cudaError_t error = standin_run_nothing(__func__, self->stream, ranges, 3);
    return error == cudaSuccess ? CUFFT_SUCCESS : CUFFT_EXEC_FAILED;
}

/* ---- words and numbers ----------------------------------------------------------------------- */

const char *
cusparseGetErrorString(cusparseStatus_t status)
{
    CALLED();
    switch (status) {
    case CUSPARSE_STATUS_SUCCESS:
        return "success";
    case CUSPARSE_STATUS_NOT_SUPPORTED:
        return "the stand-in GPU does not do this";
    default:
        return "an error that the stand-in GPU does not give";
    }
}

ncclResult_t
ncclGetVersion(int *out)
{
    CALLED();
    *out = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *
ncclGetErrorString(ncclResult_t result)
{
    CALLED();
    return result == ncclSuccess ? "no error" : "the stand-in GPU has no NCCL: use gloo";
}

const char *
ncclGetLastError(ncclComm_t communicator)
{
    CALLED();
    (void)communicator;
    return "the stand-in GPU has no NCCL: use gloo";
}

CUptiResult
cuptiGetVersion(uint32_t *out)
{
    CALLED();
    *out = CUPTI_API_VERSION;
    return CUPTI_SUCCESS;
}

CUptiResult
cuptiGetResultString(CUptiResult result, const char **out)
{
    CALLED();
    *out = result == CUPTI_SUCCESS ? "CUPTI_SUCCESS" : "the stand-in GPU cannot be profiled";
    return CUPTI_SUCCESS;
}
