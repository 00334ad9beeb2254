#ifndef GML_TEST_FAKE_KERNEL_H
#define GML_TEST_FAKE_KERNEL_H

#include <stddef.h>

/* A CUkernel of the fake driver. */
typedef struct fake_kernel {
    size_t count;
    size_t sizes[8];
    void (*when_asked)(void); /* called by the driver that is asked about it; may be NULL */
} fake_kernel;

#endif
