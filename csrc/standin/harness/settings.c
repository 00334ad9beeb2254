/* The GMLAKE_STANDIN_* variables, read once; in a forked process perhaps once more. */
#include "standin/standin.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static standin_settings settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The environment is read before PyTorch has threads, and never changed by us. */
static const char *value_of(const char *name) {
    const char *value = getenv(name); /* NOLINT(concurrency-mt-unsafe) */
    return value && *value ? value : NULL;
}

void standin_refuse(const char *name, const char *why) {
    char shown[200] = "";
    const char *value = value_of(name);
    for (size_t i = 0; value && value[i] && i < sizeof shown - 1; i++) {
        shown[i] = (char)((unsigned char)value[i] < ' ' || value[i] == 127 ? '?' : value[i]);
    }
    fprintf(stderr, "gmlake stand-in: %s=%s: %s\n", name, shown, why);
    _Exit(2);
}

static uint64_t whole_number(const char *name, uint64_t otherwise, uint64_t least, uint64_t most) {
    const char *value = value_of(name);
    char *end = NULL;
    if (!value) {
        return otherwise;
    }
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    if (errno || *end || *value == '-' || number < least || number > most) {
        char why[80];
        (void)snprintf(why, sizeof why, "expected a whole number from %llu to %llu",
                       (unsigned long long)least, (unsigned long long)most);
        standin_refuse(name, why);
    }
    return number;
}

/* "80GiB", "512MiB", "1024KiB", or bytes. */
static uint64_t size_in_bytes(const char *name, uint64_t otherwise) {
    static const struct {
        const char *unit;
        unsigned shift;
    } units[] = {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
    const char *value = value_of(name);
    char *end = NULL;
    if (!value) {
        return otherwise;
    }
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    for (size_t i = 0; i < sizeof units / sizeof units[0] && end != value && *value != '-'; i++) {
        if (!errno && strcmp(end, units[i].unit) == 0 && number << units[i].shift >= 1 << 16 &&
            number <= (UINT64_C(1) << 46) >> units[i].shift) {
            return number << units[i].shift;
        }
    }
    standin_refuse(name, "expected a size such as 80GiB or 512MiB, from 64KiB to 64TiB");
}

static bool yes_or_no(const char *name, bool otherwise) {
    return whole_number(name, otherwise, 0, 1) == 1;
}

bool standin_read_pace(const char *word, standin_pace *out) {
    static const char *const words[] = {"eager", "lag", "manual"};
    for (int i = STANDIN_EAGER; i <= STANDIN_MANUAL; i++) {
        if (strcmp(word, words[i]) == 0) {
            *out = (standin_pace)i;
            return true;
        }
    }
    return false;
}

static void read_pace(void) {
    const char *value = value_of("GMLAKE_STANDIN_PACE");
    if (!standin_read_pace(value ? value : "lag", &settings.pace)) {
        standin_refuse("GMLAKE_STANDIN_PACE", "expected eager, lag or manual");
    }
    settings.lag = whole_number("GMLAKE_STANDIN_LAG", 32, 0, 1 << 20);
}

static void read_capability(void) {
    const char *name = "GMLAKE_STANDIN_CAPABILITY";
    const char *value = value_of(name);
    char end = 0;
    settings.major = 9;
    settings.minor = 0;
    /* "%2d" cannot overflow, and the rest is checked. */
    /* NOLINTNEXTLINE(cert-err34-c,bugprone-unchecked-string-to-number-conversion) */
    if (value && (sscanf(value, "%2d.%1d%c", &settings.major, &settings.minor, &end) != 2 ||
                  settings.major < 7 || settings.major > 12 || settings.minor < 0)) {
        standin_refuse(name, "expected a compute capability such as 9.0, from 7.0 to 12.9");
    }
}

/* CUDA_VISIBLE_DEVICES as CUDA reads it, for devices named by number: what comes after one that is
 * not there, or was named before, is not visible. */
static int read_visible(int devices) {
    const char *rest = getenv("CUDA_VISIBLE_DEVICES"); /* NOLINT(concurrency-mt-unsafe) */
    uint64_t seen = 0;
    int visible = 0;
    for (int i = 0; !rest && i < devices; i++) {
        settings.numbers[i] = i;
    }
    while (rest && *rest) {
        char *end = NULL;
        unsigned long number = strtoul(rest, &end, 10);
        bool is_number = end != rest && *rest >= '0' && *rest <= '9' && (!*end || *end == ',');
        if (!is_number || number >= (unsigned long)devices || seen & UINT64_C(1) << number) {
            return visible;
        }
        seen |= UINT64_C(1) << number;
        settings.numbers[visible++] = (int)number;
        rest = *end ? end + 1 : end;
    }
    return rest ? visible : devices;
}

static void read_settings(void) {
    const char *name = value_of("GMLAKE_STANDIN_NAME");
    settings.present = (int)whole_number("GMLAKE_STANDIN_DEVICES", 1, 1, STANDIN_MOST_DEVICES);
    settings.devices = read_visible(settings.present);
    settings.is_backed = yes_or_no("GMLAKE_STANDIN_BACKED", false);
    settings.has_virtual_memory = yes_or_no("GMLAKE_STANDIN_VIRTUAL_MEMORY", true);
    settings.capacity_bytes =
        size_in_bytes("GMLAKE_STANDIN_CAPACITY", UINT64_C(1) << (settings.is_backed ? 30 : 36));
    settings.served_bytes = size_in_bytes("GMLAKE_STANDIN_SERVED", settings.capacity_bytes);
    settings.multiprocessors = (int)whole_number("GMLAKE_STANDIN_MULTIPROCESSORS", 132, 1, 1024);
    settings.aborts_on_misuse = yes_or_no("GMLAKE_STANDIN_ABORT", false);
    settings.report_folder = value_of("GMLAKE_STANDIN_REPORT");
    settings.shared_file = value_of("GMLAKE_STANDIN_SHARED");
    if (settings.shared_file && *settings.shared_file != '/') {
        standin_refuse("GMLAKE_STANDIN_SHARED", "expected an absolute path");
    }
    (void)snprintf(settings.name, sizeof settings.name, "%s", name ? name : "gmlake stand-in GPU");
    read_pace();
    read_capability();
}

standin_settings *standin_settings_get(void) {
    (void)pthread_once(&once, read_settings);
    return &settings;
}

void standin_settings_read_again(void) {
    read_settings();
}
