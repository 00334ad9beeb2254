/* Profiles come from programs, by way of Python, so they are checked before they are believed. */
#include "planner/build.h"

typedef struct watched_step {
    const gml_step *step;
    const char *name;
    char *reason;
    size_t reason_bytes;
} watched_step;

#define REFUSE(subject, ...)                                                                       \
    gml_refuse(GML_INVALID_ARGUMENT, (subject)->reason, (subject)->reason_bytes, __VA_ARGS__)

static bool ends_in_time(const gml_step *step, const gml_step_request *request) {
    if (request->death == GML_STILL_LIVE) {
        return true;
    }
    if (request->death_serial != step->serial) {
        return request->death_serial > step->serial && request->death <= GML_PLAN_MOST_EVENTS;
    }
    return request->death > request->birth && request->death <= step->event_count;
}

static gml_status check_requests(const watched_step *subject) {
    const gml_step *step = subject->step;
    uint64_t sum = 0;
    for (size_t i = 0; i < step->request_count; i++) {
        const gml_step_request *request = &step->requests[i];
        if (request->size_bytes == 0 || request->size_bytes > GML_PLAN_MOST_SIZE) {
            return REFUSE(subject, "request %zu of the %s step asks for %llu B", i, subject->name,
                          (unsigned long long)request->size_bytes);
        }
        if (request->birth >= step->event_count ||
            (i > 0 && request->birth <= step->requests[i - 1].birth)) {
            return REFUSE(subject, "request %zu of the %s step is event %llu: out of order", i,
                          subject->name, (unsigned long long)request->birth);
        }
        if (!ends_in_time(step, request)) {
            return REFUSE(subject, "request %zu of the %s step is freed before it is made, or late",
                          i, subject->name);
        }
        sum += gml_build_size(request);
        if (sum > GML_PLAN_MOST_BYTES / GML_PLAN_MOST_STEPS) {
            return REFUSE(subject, "the requests of the %s step have too many bytes in all",
                          subject->name);
        }
    }
    return GML_OK;
}

static gml_status check_step(const watched_step *subject) {
    const gml_step *step = subject->step;
    if (step->event_count > GML_PLAN_MOST_EVENTS || step->request_count > GML_PLAN_MOST_ENTRIES) {
        return REFUSE(subject, "the %s step has too many events or requests", subject->name);
    }
    return check_requests(subject);
}

gml_status gml_profile_check(const gml_profile *profile, char *reason, size_t reason_bytes) {
    const watched_step last = {&profile->last, "last", reason, reason_bytes};
    const watched_step previous = {&profile->previous, "previous", reason, reason_bytes};
    if (profile->last.request_count == 0) {
        return REFUSE(&last, "the step to plan for has no requests");
    }
    gml_status status = check_step(&last);
    if (status == GML_OK && profile->previous.request_count > 0) {
        status = profile->previous.serial < profile->last.serial
                     ? check_step(&previous)
                     : REFUSE(&previous, "the previous step is not older than the last");
    }
    return status;
}
