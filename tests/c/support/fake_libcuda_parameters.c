/* What kernels take, as the driver tells it: a kernel here is a list of the sizes of its
 * parameters, and a function, of which this driver knows none, is a null pointer. */
#include "support/fake_kernel.h"

__attribute__((visibility("default"))) int cuFuncGetParamInfo(void *function, size_t index,
                                                              size_t *offset, size_t *size);
__attribute__((visibility("default"))) int cuKernelGetParamInfo(void *kernel, size_t index,
                                                                size_t *offset, size_t *size);

enum { INVALID_VALUE = 1 };

int cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *size) {
    (void)function, (void)index, (void)offset, (void)size;
    return INVALID_VALUE;
}

int cuKernelGetParamInfo(void *kernel, size_t index, size_t *offset, size_t *size) {
    const fake_kernel *known = kernel;
    if (!known || index >= known->count) {
        return INVALID_VALUE;
    }
    if (known->when_asked) {
        known->when_asked();
    }
    *offset = 0;
    *size = known->sizes[index];
    return 0;
}
