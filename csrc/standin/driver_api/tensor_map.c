/* Tensor maps, which tell kernels of compute capability 9.0 and later how a tensor lies in memory.
 *
 * Only a kernel could read one, so nothing of it is kept but the address; what a GPU refuses is
 * refused here. */
#include "standin/standin.h"

enum { MOST_RANK = 5, LEAST_RANK_INTERLEAVED = 3, MOST_BOX = 256, MOST_ELEMENT_STRIDE = 8 };

static bool is_aligned(gml_address address, uint64_t bytes) {
    return address % bytes == 0;
}

/* One of the dimensions; `stride` is from one of its elements to the next, NULL for the first. */
static bool is_dimension(cuuint64_t size, const cuuint64_t *stride, cuuint32_t box,
                         cuuint32_t element_stride) {
    return size >= 1 && size <= UINT64_C(1) << 32 && box >= 1 && box <= MOST_BOX &&
           element_stride >= 1 && element_stride <= MOST_ELEMENT_STRIDE &&
           (!stride || (is_aligned(*stride, 16) && *stride < UINT64_C(1) << 40));
}

cudaError_t
standin_cuTensorMapEncodeTiled(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank,
                               void *tensor, const cuuint64_t *sizes, const cuuint64_t *strides,
                               const cuuint32_t *box, const cuuint32_t *element_strides,
                               CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                               CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    (void)type, (void)swizzle, (void)promotion, (void)fill;
    cuuint32_t least = interleave == CU_TENSOR_MAP_INTERLEAVE_NONE ? 1 : LEAST_RANK_INTERLEAVED;
    if (standin_settings_get()->major < 9) {
        return cudaErrorNotSupported;
    }
    if (!is_aligned(standin_address(out), 64) || !is_aligned(standin_address(tensor), 16) || !out ||
        !tensor || rank < least || rank > MOST_RANK) {
        return cudaErrorInvalidValue;
    }
    for (cuuint32_t i = 0; i < rank; i++) {
        if (!is_dimension(sizes[i], i ? &strides[i - 1] : NULL, box[i], element_strides[i])) {
            return cudaErrorInvalidValue;
        }
    }
    *out = (CUtensorMap){{standin_address(tensor)}};
    return cudaSuccess;
}
