#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>

enum { STEP = 1024, UNITS = 5 };

static const char units[UNITS][4] = {"KiB", "MiB", "GiB", "TiB", "PiB"};

gml_size_text gml_size_of(uint64_t size_bytes) {
    gml_size_text result;
    if (size_bytes < STEP) {
        (void)snprintf(result.text, sizeof result.text, "%" PRIu64 " B", size_bytes);
        return result;
    }
    double value = (double)size_bytes / STEP;
    int unit = 0;
    while (value >= STEP - 0.5 && unit < UNITS - 1) {
        value /= STEP;
        unit++;
    }
    int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    (void)snprintf(result.text, sizeof result.text, "%.*f %s", digits, value, units[unit]);
    return result;
}

gml_size_text gml_exact_size_of(uint64_t size_bytes) {
    gml_size_text result;
    int unit = 0;
    while (size_bytes && size_bytes % STEP == 0 && unit < UNITS) {
        size_bytes /= STEP;
        unit++;
    }
    (void)snprintf(result.text, sizeof result.text, "%" PRIu64 "%s", size_bytes,
                   unit ? units[unit - 1] : "B");
    return result;
}
