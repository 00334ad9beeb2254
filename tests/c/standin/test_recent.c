/* What a program sends itself through memory without bytes: it gets that back until a kernel may
 * have changed it. Memory with bytes keeps what no copy and no fill changed. */
#include "standin/memory/recent.h"
#include "support.h"

/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
void __cudaRegisterFunction(void **module, const char *host_function, char *device_function,
                            const char *name, int thread_limit, uint3 *thread, uint3 *block,
                            dim3 *block_dim, dim3 *grid_dim, int *warp_size);
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

int main(void) {
    return run_cases("eager", false);
}
