#ifndef GML_TEST_FAKE_CUPTI_H
#define GML_TEST_FAKE_CUPTI_H

#include "diagnosis/collect/cupti.h"

typedef void (*fake_cupti_call_function)(uint32_t function, const char *name,
                                         const void *parameters, const char *symbol, int result);

#endif
