/* Names of statuses and states, and the version. */
#include "gmlake.h"

#ifndef GMLAKE_VERSION
#error "the build defines GMLAKE_VERSION, from pyproject.toml"
#endif

static const char *const status_texts[GML_STATUS_COUNT] = {
    [GML_OK] = "ok",
    [GML_OUT_OF_MEMORY] = "out of device memory",
    [GML_NO_HOST_MEMORY] = "out of host memory",
    [GML_INVALID_ARGUMENT] = "invalid argument",
    [GML_UNKNOWN_ADDRESS] = "not the address of a live block",
    [GML_UNSUPPORTED] = "not supported",
    [GML_DRIVER_FAILED] = "a driver call failed",
    [GML_DRIVER_ABSENT] = "no usable driver or device",
    [GML_MISUSE] = "a rule of the driver was broken",
    [GML_NOT_READY] = "not ready",
    [GML_CORRUPT] = "contradicts itself",
};

static const char *const state_names[GML_STATE_COUNT] = {
    [GML_STATE_EXACT] = "exact", [GML_STATE_SPLIT] = "split", [GML_STATE_STITCH] = "stitch",
    [GML_STATE_GROW] = "grow",   [GML_STATE_OOM] = "oom",     [GML_STATE_PLAN] = "plan",
};

const char *gml_status_text(gml_status status) {
    return (unsigned)status < GML_STATUS_COUNT ? status_texts[status] : "unknown status";
}

const char *gml_state_name(gml_state state) {
    return (unsigned)state < GML_STATE_COUNT ? state_names[state] : "unknown state";
}

const char *gml_version(void) {
    return GMLAKE_VERSION;
}
