#ifndef GML_TEST_FAKE_CUPTI_H
#define GML_TEST_FAKE_CUPTI_H

#include "diagnosis/collect/cupti.h"

int cuptiSubscribe(void **subscriber, cupti_callback callback, void *user);
int cuptiEnableCallback(uint32_t enable, void *subscriber, int domain, uint32_t function);
void fake_cupti_call(uint32_t function, const char *name, const void *parameters,
                     const char *symbol, int result);

typedef void (*fake_cupti_call_function)(uint32_t function, const char *name,
                                         const void *parameters, const char *symbol, int result);

#endif
