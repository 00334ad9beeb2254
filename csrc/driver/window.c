/* Addresses out of one range, the lowest that are free. */
#include "driver/window.h"

#include "base/rounding.h"
#include "base/size.h"
#include "driver/ranges.h"
#include "driver/wrapped.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct window {
    gml_wrapped wrapped; /* must be first */
    gml_ranges reserved;
    unsigned place; /* among the windows of the process */
} window;

/* Which places the process's windows have: a bit for each. */
enum { MOST_WINDOWS = 16 };
static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned places;

static window *window_of(gml_driver *self) {
    return (window *)(void *)self;
}

/* The lowest place that no window has; MOST_WINDOWS if there is none. */
static unsigned take_place(void) {
    unsigned place = 0;
    (void)pthread_mutex_lock(&places_lock);
    while (place < MOST_WINDOWS && places & 1U << place) {
        place++;
    }
    places |= place < MOST_WINDOWS ? 1U << place : 0;
    (void)pthread_mutex_unlock(&places_lock);
    return place;
}

static void give_place(unsigned place) {
    (void)pthread_mutex_lock(&places_lock);
    places &= ~(1U << place);
    (void)pthread_mutex_unlock(&places_lock);
}

static void free_host_memory(window *self) {
    gml_ranges_clear(&self->reserved);
    give_place(self->place);
    free(self);
}

static void destroy(gml_driver *self) {
    window *of = window_of(self);
    gml_driver *inner = of->wrapped.inner;
    (void)inner->ops->unreserve(inner, of->reserved.begin, self->window_bytes);
    gml_driver_close(inner);
    free_host_memory(of);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static gml_status reserve(gml_driver *self, uint64_t size_bytes, uint64_t alignment_bytes,
                          gml_address *out) {
    window *of = window_of(self);
    uint64_t granule_bytes = self->info.granularity_bytes;
    if (size_bytes == 0 || size_bytes % granule_bytes ||
        (alignment_bytes & (alignment_bytes - 1)) != 0) {
        return gml_driver_fail(self, GML_MISUSE,
                               "reserve: %" PRIu64 " bytes, aligned to %" PRIu64
                               ", are no multiple of %" PRIu64 " or no power of two",
                               size_bytes, alignment_bytes, granule_bytes);
    }
    uint64_t even_bytes = alignment_bytes < granule_bytes ? granule_bytes : alignment_bytes;
    gml_address found = gml_ranges_find_hole(&of->reserved, size_bytes, even_bytes);
    if (!found) {
        return gml_driver_fail(self, GML_OUT_OF_MEMORY,
                               "reserve: the window of %s has no %s of addresses left",
                               gml_size_of(self->window_bytes).text, gml_size_of(size_bytes).text);
    }
    gml_range *taken = gml_pool_take(&of->reserved.objects);
    if (!taken) {
        return gml_driver_fail(self, GML_NO_HOST_MEMORY, "reserve: no host memory for addresses");
    }
    *taken = (gml_range){.node.address = found, .size_bytes = size_bytes};
    gml_ranges_enter(&of->reserved, taken);
    *out = found;
    return GML_OK;
}

static gml_status unreserve(gml_driver *self, gml_address address, uint64_t size_bytes) {
    window *of = window_of(self);
    gml_range *freed = gml_ranges_at(&of->reserved, address);
    if (!freed || freed->node.address != address || freed->size_bytes != size_bytes) {
        return gml_driver_fail(self, GML_MISUSE,
                               "unreserve: %" PRIu64 " bytes at 0x%" PRIx64 " are no reservation",
                               size_bytes, address);
    }
    gml_ranges_remove(&of->reserved, freed);
    return GML_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Many times the device's memory, as far as windows lie apart. */
static uint64_t size_of(const gml_driver *inner) {
    uint64_t granule_bytes = inner->info.granularity_bytes;
    uint64_t wanted_bytes = gml_round_up(inner->info.total_bytes, granule_bytes) * 32;
    return wanted_bytes < GML_WINDOW_BYTES ? wanted_bytes : GML_WINDOW_BYTES;
}

/* Takes the range from the inner driver. */
static gml_status take_range(window *of, gml_address base, uint64_t size_bytes, gml_driver *inner) {
    gml_address begin = base + of->place * GML_WINDOW_BYTES;
    gml_status status = gml_driver_reserve_at(inner, begin, size_bytes);
    if (status != GML_OK) {
        char why[GML_REASON_BYTES];
        (void)snprintf(why, sizeof why, "%s", inner->reason);
        return gml_driver_fail(inner, status, "base=0x%" PRIx64 " is refused: %s", base, why);
    }
    gml_ranges_init(&of->reserved, begin, begin + size_bytes);
    return GML_OK;
}

gml_status gml_window_driver_open(gml_address base, gml_driver **driver) {
    gml_driver *inner = *driver;
    uint64_t granule_bytes = inner->info.granularity_bytes;
    if (!inner->info.has_virtual_memory) {
        return gml_driver_fail(inner, GML_UNSUPPORTED,
                               "base=0x%" PRIx64 ": this device has no virtual memory management",
                               base);
    }
    if (base % granule_bytes) {
        return gml_driver_fail(inner, GML_INVALID_ARGUMENT,
                               "base=0x%" PRIx64 " is not a multiple of %s, this device's "
                               "granularity",
                               base, gml_exact_size_of(granule_bytes).text);
    }
    window *of = calloc(1, sizeof *of);
    if (!of) {
        return gml_driver_fail(inner, GML_NO_HOST_MEMORY, "no host memory for a window");
    }
    of->place = take_place();
    uint64_t size_bytes = size_of(inner);
    gml_status status = of->place < MOST_WINDOWS
                            ? take_range(of, base, size_bytes, inner)
                            : gml_driver_fail(inner, GML_UNSUPPORTED,
                                              "base=0x%" PRIx64 ": %d lakes of this process have "
                                              "their places already",
                                              base, MOST_WINDOWS);
    if (status != GML_OK) {
        free_host_memory(of);
        return status;
    }
    gml_wrap(&of->wrapped, inner, destroy);
    of->wrapped.ops.reserve = reserve;
    of->wrapped.ops.unreserve = unreserve;
    of->wrapped.ops.reserve_at = NULL;
    of->wrapped.base.window_bytes = size_bytes;
    *driver = &of->wrapped.base;
    return GML_OK;
}
