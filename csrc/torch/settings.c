/* How lakes below PyTorch are to be opened: checked, compared and kept. */
#include "torch/settings.h"

#include "policy/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gml_setting *gml_settings_copy(const gml_lake_config *config) {
    size_t text_bytes = 1;
    for (size_t i = 0; i < config->setting_count; i++) {
        text_bytes += strlen(config->settings[i].name) + 1;
    }
    gml_setting *copy = malloc(config->setting_count * sizeof *copy + text_bytes);
    if (!copy) {
        return NULL;
    }
    char *text = (char *)(copy + config->setting_count);
    for (size_t i = 0; i < config->setting_count; i++) {
        size_t name_bytes = strlen(config->settings[i].name) + 1;
        memcpy(text, config->settings[i].name, name_bytes);
        copy[i] = (gml_setting){.name = text, .value = config->settings[i].value};
        text += name_bytes;
    }
    return copy;
}

gml_status gml_settings_check(const gml_lake_config *config, char *text) {
    if (!config->driver || strlen(config->driver) >= GML_DRIVER_NAME_BYTES) {
        (void)snprintf(text, GML_REASON_BYTES, "choose one of the drivers: cuda, host, sim");
        return GML_INVALID_ARGUMENT;
    }
    if (!config->policy || !gml_policy_find(config->policy)) {
        (void)snprintf(text, GML_REASON_BYTES, "no policy is called \"%.60s\"",
                       config->policy ? config->policy : "");
        return GML_INVALID_ARGUMENT;
    }
    gml_knobs knobs;
    gml_knobs_init(&knobs);
    return gml_knobs_apply(&knobs, config->settings, config->setting_count, text, GML_REASON_BYTES);
}

bool gml_settings_are_same(const gml_lake_config *known, const gml_lake_config *config) {
    bool is_equal = strcmp(known->driver, config->driver) == 0 &&
                    strcmp(known->policy, config->policy) == 0 &&
                    known->capacity_bytes == config->capacity_bytes &&
                    known->setting_count == config->setting_count &&
                    known->handle_type == config->handle_type && known->hooks == config->hooks;
    for (size_t i = 0; is_equal && i < config->setting_count; i++) {
        is_equal = strcmp(known->settings[i].name, config->settings[i].name) == 0 &&
                   known->settings[i].value == config->settings[i].value;
    }
    return is_equal;
}
