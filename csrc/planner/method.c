/* The names of the methods. */
#include "gmlake_plan.h"

static const char *const NAMES[GML_METHOD_COUNT] = {
    [GML_METHOD_STALLOC] = "stalloc",
    [GML_METHOD_FIRST_FIT_SIZE] = "first-fit-size",
    [GML_METHOD_FIRST_FIT_LIFE] = "first-fit-life",
    [GML_METHOD_FIRST_FIT_LATE] = "first-fit-late",
    [GML_METHOD_FIRST_FIT_AREA] = "first-fit-area",
    [GML_METHOD_FIRST_FIT_CONTENTION] = "first-fit-contention",
    [GML_METHOD_LOWEST_CONTENTION] = "lowest-contention",
    [GML_METHOD_LOWEST_LIFE] = "lowest-life",
    [GML_METHOD_LOWEST_AREA] = "lowest-area",
    [GML_METHOD_LOWEST_CONTENTION16] = "lowest-contention16",
    [GML_METHOD_LOWEST_PEAK] = "lowest-peak",
    [GML_METHOD_LOWEST_CONTENTION_SIZE] = "lowest-contention-size",
    [GML_METHOD_ONLINE_BEST_FIT] = "online-best-fit",
    [GML_METHOD_IMPROVED] = "improved",
    [GML_METHOD_EXACT] = "exact",
};

const char *
gml_method_name(gml_method method)
{
    return (unsigned)method < GML_METHOD_COUNT ? NAMES[method] : "unknown";
}
