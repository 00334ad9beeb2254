/* A libcupti.so for machines without one: takes a subscription, and lets a test make the calls. */
#include "diagnosis/fake_cupti.h"

#include <stdbool.h>

enum { MOST_FUNCTIONS = 1024, REFUSED = 1 };

static struct {
    cupti_callback callback;
    void *user;
    bool is_enabled[MOST_FUNCTIONS];
} state;

__attribute__((visibility("default"))) int cuptiSubscribe(void **subscriber,
                                                          cupti_callback callback, void *user) {
    if (state.callback) {
        return REFUSED;
    }
    state.callback = callback;
    state.user = user;
    *subscriber = &state;
    return CUPTI_SUCCESS;
}

__attribute__((visibility("default"))) int cuptiEnableCallback(uint32_t enable, void *subscriber,
                                                               int domain, uint32_t function) {
    if (subscriber != &state || domain != CUPTI_DOMAIN_DRIVER_API || function >= MOST_FUNCTIONS) {
        return REFUSED;
    }
    state.is_enabled[function] = enable != 0;
    return CUPTI_SUCCESS;
}

/* Both callbacks of one driver call with this result, if somebody listens to it. */
__attribute__((visibility("default"))) void fake_cupti_call(uint32_t function, const char *name,
                                                            const void *parameters,
                                                            const char *symbol, int result) {
    cupti_callback_data data = {
        .site = CUPTI_API_ENTER, .function = name, .parameters = parameters, .symbol = symbol};
    if (!state.callback || !state.is_enabled[function]) {
        return;
    }
    state.callback(state.user, CUPTI_DOMAIN_DRIVER_API, function, &data);
    data.site = CUPTI_API_EXIT;
    data.result = &result;
    state.callback(state.user, CUPTI_DOMAIN_DRIVER_API, function, &data);
}
