/* How many bytes matrices occupy, and handles that stand for nothing. */
#include "libraries.h"

unsigned
standin_type_bits(cudaDataType type)
{
    static const struct {
        cudaDataType type;
        unsigned bits;
    } known[] = {
        {CUDA_R_32F, 32},    {CUDA_R_16F, 16},    {CUDA_R_16BF, 16},    {CUDA_R_64F, 64},
        {CUDA_C_32F, 64},    {CUDA_C_64F, 128},   {CUDA_C_16F, 32},     {CUDA_C_16BF, 32},
        {CUDA_R_8I, 8},      {CUDA_R_8U, 8},      {CUDA_C_8I, 16},      {CUDA_C_8U, 16},
        {CUDA_R_32I, 32},    {CUDA_R_32U, 32},    {CUDA_R_64I, 64},     {CUDA_R_64U, 64},
        {CUDA_R_16I, 16},    {CUDA_R_16U, 16},    {CUDA_R_4I, 4},       {CUDA_R_4U, 4},
        {CUDA_R_8F_E4M3, 8}, {CUDA_R_8F_E5M2, 8}, {CUDA_R_8F_UE8M0, 8}, {CUDA_R_4F_E2M1, 4},
        {CUDA_R_6F_E2M3, 6}, {CUDA_R_6F_E3M2, 6},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].type == type) {
            return known[i].bits;
        }
    }
    return 0;
}

standin_range
standin_range_of(const void *data, uint64_t size_bytes)
{
    return (standin_range){(gml_address)(uintptr_t)data, data == NULL ? 0 : size_bytes};
}

standin_range
standin_matrix_range(const standin_matrix *matrix)
{
    if (matrix->rows <= 0 || matrix->columns <= 0 || matrix->batches <= 0) {
        return standin_range_of(matrix->data, 0);
    }
    int64_t elements = (matrix->columns - 1) * matrix->leading + matrix->rows +
                       (matrix->batches - 1) * matrix->stride;
    uint64_t bits = (uint64_t)elements * standin_type_bits(matrix->type);
    return standin_range_of(matrix->data, (bits + 7) / 8);
}

void *
standin_new_handle(void)
{
    static atomic_uintptr_t last = 0x1000;
    return (void *)(atomic_fetch_add(&last, 16) + 16);
}
