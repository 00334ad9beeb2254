/* The names of the methods. */
#include "planner/method.h"

#include <string.h>

static const char *const NAMES[GML_METHOD_COUNT] = {
    [GML_METHOD_ONLINE_BEST_FIT] = "online-best-fit",
    [GML_METHOD_FIRST_FIT_SIZE] = "first-fit-size",
    [GML_METHOD_LOWEST_CONTENTION] = "lowest-contention",
    [GML_METHOD_LOWEST_PEAK] = "lowest-peak",
    [GML_METHOD_EXACT] = "exact",
};

const char *
gml_method_name(gml_method method)
{
    return (unsigned)method < GML_METHOD_COUNT ? NAMES[method] : "unknown";
}

gml_method
gml_method_named(const char *name)
{
    unsigned method = 0;
    while (method < GML_METHOD_COUNT && strcmp(NAMES[method], name) != 0) {
        method++;
    }
    return (gml_method)method;
}
