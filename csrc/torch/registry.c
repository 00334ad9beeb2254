/* One configuration, one lake per device, and one more for each region there. */
#include "torch/registry.h"

#include "base/status.h"
#include "lake/lake.h"
#include "torch/neighbours.h"
#include "torch/refusal.h"
#include "torch/settings.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* State of a device, whether or not its lake is open. */
typedef struct device_state {
    bool has_fraction;
    double fraction;
    uint64_t total_bytes; /* 0: no lake was opened yet */
    char fallback[GML_REASON_BYTES];
} device_state;

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;

/* Set once per process under the lock, read without it. */
static _Atomic(gml_lake *) lakes[GML_TORCH_DEVICES];
static _Atomic int lakes_end; /* above the ordinal of every device with an open lake */

/* State shared by the lakes of a device. */
static gml_device devices[GML_TORCH_DEVICES];

gml_device *gml_registry_device(int device) {
    return &devices[device];
}

/* A region's lake on a device. Its number is GML_TORCH_DEVICES plus its place here. */
typedef struct region_lake {
    gml_lake *lake;
    int device;
    gml_region region;
} region_lake;

/* Written once, under the lock, before the count says so. */
static region_lake region_lakes[GML_TORCH_REGIONS];
static _Atomic int region_lakes_end;

/* Guarded by the lock: */
static struct {
    gml_lake_config config; /* without a device; its texts are constants, or in the next two */
    char driver[GML_DRIVER_NAME_BYTES];
    gml_setting *settings;
    uint64_t margin_bytes; /* of regions */
    bool watches_forks;
    device_state devices[GML_TORCH_DEVICES];
} registry = {.config = {.driver = "cuda", .policy = "stitch"}};

static bool is_device(int device) {
    return device >= 0 && device < GML_TORCH_DEVICES;
}

static int regions_end(void) {
    return atomic_load_explicit(&region_lakes_end, memory_order_acquire);
}

static bool is_region_lake(int number) {
    return number >= GML_TORCH_DEVICES && number - GML_TORCH_DEVICES < regions_end();
}

gml_lake *gml_torch_lake(int number) {
    return is_device(number)        ? atomic_load_explicit(&lakes[number], memory_order_acquire)
           : is_region_lake(number) ? region_lakes[number - GML_TORCH_DEVICES].lake
                                    : NULL;
}

int gml_torch_device_of(int number) {
    return is_region_lake(number) ? region_lakes[number - GML_TORCH_DEVICES].device : number;
}

gml_region gml_torch_region_of(int number) {
    return is_region_lake(number) ? region_lakes[number - GML_TORCH_DEVICES].region
                                  : (gml_region){0};
}

int gml_registry_next(int number) {
    int end = atomic_load_explicit(&lakes_end, memory_order_acquire);
    for (number++; number < end; number++) {
        if (gml_torch_lake(number)) {
            return number;
        }
    }
    number = number < GML_TORCH_DEVICES ? GML_TORCH_DEVICES : number;
    return is_region_lake(number) ? number : -1;
}

bool gml_registry_takes_graphs(void) {
    return gml_torch_region().takes_graphs;
}

int gml_registry_serving(int device) {
    int region = gml_torch_region().number;
    if (__builtin_expect(!region, true)) {
        return device;
    }
    int end = regions_end();
    for (int place = 0; place < end; place++) {
        if (region_lakes[place].region.number == region && region_lakes[place].device == device) {
            return GML_TORCH_DEVICES + place;
        }
    }
    return -1;
}

static gml_status explain(char *reason, size_t reason_bytes, gml_status status, const char *text) {
    if (reason && reason_bytes > 0) {
        (void)snprintf(reason, reason_bytes, "%s", text[0] ? text : gml_status_text(status));
    }
    return status;
}

/* ---- the configuration ----------------------------------------------------------------------- */

/* pre: the lock is held, the names are checked. */
static gml_status configure_locked(const gml_lake_config *config, char *text) {
    gml_lake_config *known = &registry.config;
    if (gml_settings_are_same(known, config)) {
        return GML_OK;
    }
    if (gml_registry_next(-1) >= 0) {
        (void)snprintf(text, GML_REASON_BYTES,
                       "a device is in use already, with the driver %s, the policy %s and settings "
                       "of its own; these hold until the process ends",
                       known->driver, known->policy);
        return GML_INVALID_ARGUMENT;
    }
    gml_setting *settings = gml_settings_copy(config);
    if (!settings) {
        return GML_NO_HOST_MEMORY;
    }
    free(registry.settings);
    registry.settings = settings;
    (void)snprintf(registry.driver, sizeof registry.driver, "%s", config->driver);
    *known = *config;
    known->driver = registry.driver;
    known->policy = gml_policy_find(config->policy)->name;
    known->settings = settings;
    return GML_OK;
}

gml_status gml_torch_configure(const gml_lake_config *config, char *reason, size_t reason_bytes) {
    char text[GML_REASON_BYTES] = "";
    gml_status status = gml_settings_check(config, text);
    if (status == GML_OK) {
        pthread_mutex_lock(&registry_lock);
        status = configure_locked(config, text);
        pthread_mutex_unlock(&registry_lock);
    }
    return status == GML_OK ? status : explain(reason, reason_bytes, status, text);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Opens the lake as configured, or as `caching` where the device cannot do what the policy needs.
 */
static gml_status open_either(int device, gml_region region, gml_lake **out, char *text) {
    gml_lake_config config = registry.config;
    config.device = device;
    config.shared = &devices[device];
    config.can_sleep = region.number != 0;
    if (region.is_exclusive) {
        config.policy = gml_caching_policy.name; /* a segment is one chunk where memory can sleep */
    }
    gml_status status = gml_lake_open(&config, out, text, GML_REASON_BYTES);
    if (status == GML_UNSUPPORTED && !region.number &&
        strcmp(config.policy, gml_caching_policy.name) != 0) {
        char why[GML_REASON_BYTES];
        (void)snprintf(why, sizeof why, "%s", text);
        config.policy = gml_caching_policy.name;
        status = gml_lake_open(&config, out, text, GML_REASON_BYTES);
        if (status == GML_OK) {
            (void)snprintf(registry.devices[device].fallback, sizeof why, "%s", why);
        }
    }
    return status;
}

/* Limits what all lakes of the device hold together. pre: the lock is held. */
static void apply_limit(int device) {
    const device_state *state = &registry.devices[device];
    uint64_t limit_bytes = registry.config.capacity_bytes;
    double part = state->fraction * (double)state->total_bytes;
    if (state->has_fraction && state->fraction < 1 && state->total_bytes &&
        (!limit_bytes || part < (double)limit_bytes)) {
        limit_bytes = part < 1 ? 1 : (uint64_t)part; /* 0 would be no limit at all */
    }
    __atomic_store_n(&devices[device].limit_bytes, limit_bytes, __ATOMIC_RELAXED);
}

/* Opens the memory of every open lake to the device, and the new lake's to theirs. */
static gml_status meet_peers(gml_lake *lake, int device, char *text) {
    for (int peer = gml_registry_next(-1); peer >= 0; peer = gml_registry_next(peer)) {
        gml_lake *other = gml_torch_lake(peer);
        gml_status status = gml_lake_grant(lake, gml_torch_device_of(peer));
        if (status != GML_OK && status != GML_UNSUPPORTED) {
            gml_lake_reason(lake, text, GML_REASON_BYTES);
            return status;
        }
        status = gml_lake_grant(other, device);
        if (status != GML_OK && status != GML_UNSUPPORTED) {
            gml_lake_reason(other, text, GML_REASON_BYTES);
            return status;
        }
    }
    return GML_OK;
}

/* In a child the lakes of the parent are out of reach: their locks may be held for ever, and their
 * devices do not know this process. */
static void forget_lakes(void) {
    (void)pthread_mutex_init(&registry_lock, NULL);
    gml_refusal_renew();
    gml_neighbours_forget();
    for (int device = 0; device < GML_TORCH_DEVICES; device++) {
        atomic_store_explicit(&lakes[device], NULL, memory_order_release);
        registry.devices[device].fallback[0] = '\0';
        (void)pthread_mutex_init(&devices[device].lock, NULL);
        devices[device].sharers = NULL;
        devices[device].captures = devices[device].held_bytes = 0;
        devices[device].highest_bytes = 0;
        devices[device].spare_bytes = devices[device].spending = 0;
        /* A thread of the parent may have been changing it: do not read it. */
    }
    atomic_store_explicit(&lakes_end, 0, memory_order_release);
    atomic_store_explicit(&region_lakes_end, 0, memory_order_release);
}

static gml_status watch_forks(void) {
    if (!registry.watches_forks && pthread_atfork(NULL, NULL, forget_lakes) != 0) {
        return GML_NO_HOST_MEMORY;
    }
    registry.watches_forks = true;
    return GML_OK;
}

/* Publishes the lake of a device, or of a region there. */
static void announce(int device, gml_region region, gml_lake *lake) {
    int end = regions_end();
    if (region.number) {
        region_lakes[end] = (region_lake){lake, device, region};
        atomic_store_explicit(&region_lakes_end, end + 1, memory_order_release);
        return;
    }
    if (atomic_load_explicit(&lakes_end, memory_order_relaxed) <= device) {
        atomic_store_explicit(&lakes_end, device + 1, memory_order_release);
    }
    atomic_store_explicit(&lakes[device], lake, memory_order_release);
}

static gml_status open_locked(int device, gml_region region, gml_lake **out, char *text) {
    gml_lake *lake = NULL;
    if (region.number && regions_end() == GML_TORCH_REGIONS) {
        (void)snprintf(text, GML_REASON_BYTES,
                       "regions have %d lakes already, as many as there may be", GML_TORCH_REGIONS);
        return GML_UNSUPPORTED;
    }
    apply_limit(device);
    gml_status status = watch_forks();
    if (status == GML_OK) {
        status = open_either(device, region, &lake, text);
    }
    if (status != GML_OK) {
        return status;
    }
    registry.devices[device].total_bytes = gml_lake_total_bytes(lake);
    apply_limit(device);
    if (region.number) {
        status = gml_lake_set_margin(lake, registry.margin_bytes);
    }
    if (status == GML_OK) {
        status = meet_peers(lake, device, text);
    }
    if (status != GML_OK) {
        (void)gml_lake_close(lake);
        if (!region.number) {
            registry.devices[device].fallback[0] = '\0';
        }
        return status;
    }
    announce(device, region, lake);
    *out = lake;
    return GML_OK;
}

void gml_registry_grant_all(gml_lake *lake, int device) {
    gml_status status = GML_OK;
    for (int peer = 0; peer < GML_TORCH_DEVICES && status == GML_OK; peer++) {
        status = peer == device ? GML_OK : gml_lake_grant(lake, peer);
    }
}

static gml_status open_lake(int device, gml_region region, gml_lake **out, char *reason,
                            size_t reason_bytes) {
    if (!is_device(device)) {
        (void)snprintf(reason, reason_bytes, "device %d is outside 0 to %d", device,
                       GML_TORCH_DEVICES - 1);
        return GML_INVALID_ARGUMENT;
    }
    char text[GML_REASON_BYTES] = "";
    gml_status status = GML_OK;
    pthread_mutex_lock(&registry_lock);
    gml_lake *lake = gml_torch_lake(region.number ? gml_registry_serving(device) : device);
    if (!lake) {
        status = open_locked(device, region, &lake, text);
    }
    pthread_mutex_unlock(&registry_lock);
    if (status != GML_OK) {
        return explain(reason, reason_bytes, status, text);
    }
    gml_neighbours_join(device);
    *out = lake;
    return GML_OK;
}

gml_status gml_registry_open(int device, gml_lake **out, char *reason, size_t reason_bytes) {
    return open_lake(device, (gml_region){0}, out, reason, reason_bytes);
}

gml_status gml_registry_open_serving(int device, gml_lake **out, char *reason,
                                     size_t reason_bytes) {
    return open_lake(device, gml_torch_region(), out, reason, reason_bytes);
}

void gml_torch_fallback(int device, char *out, size_t out_bytes) {
    if (out_bytes == 0) {
        return;
    }
    pthread_mutex_lock(&registry_lock);
    (void)snprintf(out, out_bytes, "%s",
                   is_device(device) ? registry.devices[device].fallback : "");
    pthread_mutex_unlock(&registry_lock);
}

/* ---- what holds for every lake --------------------------------------------------------------- */

gml_status gml_torch_spoil_graph(uint64_t graph, gml_stream stream, char *reason,
                                 size_t reason_bytes) {
    gml_lake *lake = NULL;
    gml_status status = GML_UNKNOWN_ADDRESS;
    pthread_mutex_lock(&registry_lock);
    for (int number = gml_registry_next(-1); number >= 0 && status == GML_UNKNOWN_ADDRESS;
         number = gml_registry_next(number)) {
        lake = gml_torch_lake(number);
        status = gml_lake_spoil_graph(lake, graph, stream);
    }
    pthread_mutex_unlock(&registry_lock);
    if (status == GML_UNKNOWN_ADDRESS) {
        (void)snprintf(reason, reason_bytes, "graph %" PRIu64 " is gone", graph);
    } else if (status != GML_OK) {
        gml_lake_reason(lake, reason, reason_bytes);
    }
    return status;
}

void gml_torch_set_margin(uint64_t margin_bytes) {
    pthread_mutex_lock(&registry_lock);
    registry.margin_bytes = margin_bytes;
    for (int place = 0; place < regions_end(); place++) {
        (void)gml_lake_set_margin(region_lakes[place].lake, margin_bytes);
    }
    pthread_mutex_unlock(&registry_lock);
}

uint64_t gml_registry_capacity(void) {
    pthread_mutex_lock(&registry_lock);
    uint64_t capacity_bytes = registry.config.capacity_bytes;
    pthread_mutex_unlock(&registry_lock);
    return capacity_bytes;
}

void gml_registry_limit(int device, double fraction) {
    if (!is_device(device) || !(fraction >= 0)) {
        return;
    }
    pthread_mutex_lock(&registry_lock);
    device_state *state = &registry.devices[device];
    state->has_fraction = true;
    state->fraction = fraction;
    apply_limit(device);
    pthread_mutex_unlock(&registry_lock);
}
