/* Kernels and libraries: what they touch is exactly what the real ones would, and what has no
 * behaviour says so. */
#include "standin/libraries/dnn.h"
#include "support.h"

#pragma GCC visibility push(default)
#include <nccl.h>
#pragma GCC visibility pop

/* What code compiled by nvcc calls. */
/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
void __cudaRegisterFunction(void **module, const char *host_function, char *device_function,
                            const char *name, int thread_limit, uint3 *thread, uint3 *block,
                            dim3 *block_dim, dim3 *grid_dim, int *warp_size);
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

int main(void) {
    return run_cases("eager", false);
}
