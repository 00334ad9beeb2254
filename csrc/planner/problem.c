/* Whether a problem is in range. */
#include "base/reason.h"
#include "base/rounding.h"
#include "planner/instance.h"

#include <inttypes.h>
#include <stdio.h>

static const uint64_t MOST_BYTES = UINT64_C(1) << 48;
static const uint64_t MOST_SUM = UINT64_C(1) << 62;

/* The error in the lifetime; NULL: valid. */
static const char *lifetime_fault(const gml_lifetime *lifetime, uint64_t period) {
    if (!lifetime->size_bytes || lifetime->size_bytes > MOST_BYTES) {
        return "a size outside 1 to 2^48";
    }
    if (lifetime->start >= lifetime->end) {
        return "an end that is not after its start";
    }
    if (period && lifetime->start >= period) {
        return "a start that is not within the period";
    }
    if (period && lifetime->end - lifetime->start > period) {
        return "a life longer than the period";
    }
    return NULL;
}

static gml_status check_lifetimes(const gml_problem *problem, char *reason, size_t reason_bytes) {
    uint64_t sum = 0;
    for (size_t i = 0; i < problem->count; i++) {
        const char *fault = lifetime_fault(&problem->lifetimes[i], problem->period);
        if (fault) {
            return gml_refuse(GML_INVALID_ARGUMENT, reason, reason_bytes, "lifetime %zu has %s", i,
                              fault);
        }
        sum += gml_round_up(problem->lifetimes[i].size_bytes, gml_problem_alignment(problem));
        if (sum > MOST_SUM) {
            return gml_refuse(GML_INVALID_ARGUMENT, reason, reason_bytes,
                              "the sizes add up to more than 2^62");
        }
    }
    return GML_OK;
}

gml_status gml_problem_check(const gml_problem *problem, char *reason, size_t reason_bytes) {
    uint64_t alignment = gml_problem_alignment(problem);
    if (alignment & (alignment - 1) || alignment > MOST_BYTES) {
        return gml_refuse(GML_INVALID_ARGUMENT, reason, reason_bytes,
                          "an alignment of %" PRIu64 " is not a power of two up to 2^48",
                          alignment);
    }
    if (problem->count > INT32_MAX) {
        return gml_refuse(GML_INVALID_ARGUMENT, reason, reason_bytes, "more than 2^31 lifetimes");
    }
    if ((problem->count && !problem->lifetimes) ||
        (problem->ordering_count && !problem->orderings)) {
        return gml_refuse(GML_INVALID_ARGUMENT, reason, reason_bytes, "an array is missing");
    }
    if (problem->period && problem->ordering_count) {
        return gml_refuse(GML_INVALID_ARGUMENT, reason, reason_bytes,
                          "orderings together with a period");
    }
    return check_lifetimes(problem, reason, reason_bytes);
}
