/* The policy `plan`: its place around the policy `stitch`. */
#include "policy/steps/planned.h"

#include "base/mix.h"
#include "base/status.h"

#include <stdlib.h>

/* Mirrors the fields that the lake reads from the inner policy. */
static void follow(gml_planned *planned) {
    planned->policy.reserved_bytes = planned->inner->reserved_bytes;
    planned->policy.small_bytes = planned->inner->small_bytes;
}

gml_status gml_steps_wrap(gml_policy *stitch, gml_policy **out) {
    if (stitch->ops != &gml_stitch_policy) {
        return gml_driver_fail(stitch->driver, GML_UNSUPPORTED,
                               "the policy %s serves no plans; use stitch or plan",
                               stitch->ops->name);
    }
    gml_planned *planned = calloc(1, sizeof *planned);
    if (!planned) {
        return gml_driver_fail(stitch->driver, GML_NO_HOST_MEMORY, "no host memory to watch steps");
    }
    planned->policy = (gml_policy){.ops = &gml_steps_policy, .driver = stitch->driver};
    planned->policy.chunk_bytes = stitch->chunk_bytes;
    planned->inner = stitch;
    planned->stitch = gml_stitch_of(stitch);
    planned->next_number = 1;
    follow(planned);
    *out = &planned->policy;
    return GML_OK;
}

/* ---- the reservations of all streams --------------------------------------------------------- */

gml_status gml_planned_yield(gml_planned *planned) {
    gml_status status = GML_OK;
    for (gml_reservation *reservation = planned->reservations; reservation;
         reservation = reservation->next) {
        status = gml_first_failure(status, gml_reservation_yield(reservation));
    }
    return status;
}

/* Yields as the policy closes, which ends the blocks of steps: without blocks there is nothing to
 * claim, so it needs no host memory. */
static void end_blocks(gml_planned *planned) {
    for (gml_reservation *reservation = planned->reservations; reservation;
         reservation = reservation->next) {
        while (!gml_list_is_empty(&reservation->live)) {
            gml_reservation_give(reservation, gml_placement_of_live(reservation->live.next));
        }
        reservation->cached = NULL;
    }
    (void)gml_planned_yield(planned);
}

gml_reservation *gml_planned_reservation(gml_planned *planned, gml_stream stream) {
    gml_reservation *reservation = planned->reservations;
    gml_stream_cache *cache;
    while (reservation && reservation->cache->stream != stream) {
        reservation = reservation->next;
    }
    if (reservation || gml_stream_cache_find(planned->stitch, stream, &cache) != GML_OK) {
        return reservation;
    }
    reservation = gml_reservation_open(planned->stitch, cache);
    if (reservation) {
        reservation->next = planned->reservations;
        planned->reservations = reservation;
    }
    return reservation;
}

/* pre: all have yielded, and no layout names one. */
static void close_reservations(gml_planned *planned) {
    for (gml_reservation *reservation = planned->reservations, *next; reservation;
         reservation = next) {
        next = reservation->next;
        gml_reservation_close(reservation);
    }
    planned->reservations = NULL;
}

/* ---- letting go ------------------------------------------------------------------------------ */

/* Stops serving plans, empties the reservations, and unpins all views. */
static gml_status let_go(gml_planned *planned, const char *why) {
    if (planned->open.layout) {
        gml_planned_leave(planned, why);
    }
    gml_status status = gml_planned_yield(planned);
    for (gml_kind *kind = planned->kinds; kind && status == GML_OK; kind = kind->next) {
        gml_kind_drop_layouts(planned, kind);
    }
    if (status == GML_OK && planned->open.seen) {
        gml_layout_drop_places(planned, planned->open.seen);
    }
    return status;
}

/* ---- the policy ------------------------------------------------------------------------------ */

bool gml_steps_are_watched(const gml_policy *policy) {
    return policy->ops == &gml_steps_policy;
}

static gml_status create(gml_driver *driver, uint64_t capacity_bytes, const gml_knobs *knobs,
                         gml_policy **out) {
    gml_policy *stitch;
    gml_status status = gml_stitch_policy.create(driver, capacity_bytes, knobs, &stitch);
    if (status != GML_OK) {
        return status;
    }
    status = gml_steps_wrap(stitch, out);
    if (status != GML_OK) {
        (void)stitch->ops->destroy(stitch);
        return status;
    }
    gml_planned_of(*out)->plans_by_itself = true;
    return GML_OK;
}

/* Steps are not planned there: a graph is captured once. */
static gml_status create_private(gml_driver *driver, uint64_t capacity_bytes,
                                 const gml_knobs *knobs, gml_policy **out) {
    return gml_stitch_policy.create_private(driver, capacity_bytes, knobs, out);
}

static gml_status destroy(gml_policy *self) {
    gml_planned *planned = gml_planned_of(self);
    if (planned->open.kind) {
        (void)gml_steps_end(self, NULL);
    }
    end_blocks(planned);
    gml_kinds_close(planned);
    gml_map_clear(&planned->watched);
    close_reservations(planned);
    gml_status status = planned->inner->ops->destroy(planned->inner);
    free(planned);
    return status;
}

static gml_status allocate(gml_policy *self, uint64_t size_bytes, gml_stream stream,
                           gml_block **out) {
    gml_planned *planned = gml_planned_of(self);
    gml_status status = gml_planned_allocate(planned, size_bytes, stream, out);
    follow(planned);
    return status;
}

static void end(gml_planned *planned, gml_placement *placement) {
    gml_reservation *reservation =
        placement->state == GML_PLACEMENT_HELD ? planned->reservations : NULL;
    planned->open.ended += gml_mix(placement->block.address);
    while (reservation && reservation->cache != placement->cache) {
        reservation = reservation->next;
    }
    if (reservation) {
        gml_reservation_give(reservation, placement);
    } else {
        gml_placement_end(planned->stitch, placement);
    }
}

static void free_block(gml_policy *self, gml_block *block) {
    gml_planned *planned = gml_planned_of(self);
    gml_placement *ended[GML_SLABS_TOUCHED] = {(gml_placement *)(void *)block};
    bool is_planned = !block->is_small && ended[0]->state == GML_PLACEMENT_HELD;
    uint64_t note = block->note;
    size_t count = 1;
    if (block->is_small) {
        count = gml_small_free(planned->stitch, block, ended);
        follow(planned);
    }
    for (size_t i = 0; i < count; i++) {
        end(planned, ended[i]);
    }
    if (!is_planned) {
        gml_planned_note_free(planned, note);
    }
}

/* Views of chunks that go are forgotten, and chunks come back elsewhere: so are plans. */
static gml_status trim(gml_policy *self, uint64_t *released_bytes) {
    gml_planned *planned = gml_planned_of(self);
    uint64_t released = 0;
    gml_status status = let_go(planned, "left: idle memory was given back to the device");
    if (status == GML_OK) {
        status = planned->inner->ops->trim(planned->inner, &released);
    }
    follow(planned);
    if (released_bytes) {
        *released_bytes = released;
    }
    return status;
}

static gml_status give(gml_policy *self, uint64_t wanted_bytes, uint64_t *released_bytes,
                       bool *is_pending) {
    gml_planned *planned = gml_planned_of(self);
    *released_bytes = 0;
    *is_pending = false;
    gml_status status = let_go(planned, "left: idle memory was given to another process");
    if (status == GML_OK) {
        status =
            planned->inner->ops->give(planned->inner, wanted_bytes, released_bytes, is_pending);
    }
    follow(planned);
    return status;
}

/* Without host memory, reserved bytes are not idle. */
static uint64_t idle_bytes(gml_policy *self) {
    gml_planned *planned = gml_planned_of(self);
    (void)gml_planned_yield(planned);
    return planned->inner->ops->idle_bytes(planned->inner);
}

static gml_status chunk(gml_policy *self, gml_address address, gml_chunk *out) {
    gml_policy *inner = gml_planned_of(self)->inner;
    return inner->ops->chunk(inner, address, out);
}

static gml_status take_chunk(gml_policy *self, gml_address wanted, uint64_t missing_bytes,
                             gml_stream stream, gml_block **out) {
    gml_planned *planned = gml_planned_of(self);
    if (planned->open.layout) {
        gml_planned_leave(planned, "left: a chunk was taken");
    }
    gml_status status = gml_planned_yield(planned);
    if (status == GML_OK) {
        status = gml_stitch_take_chunk(planned->inner, wanted, missing_bytes, stream, out);
    }
    planned->open.ended += gml_mix(wanted);
    follow(planned);
    return status;
}

static void usage(gml_policy *self, gml_usage *out) {
    gml_planned *planned = gml_planned_of(self);
    planned->inner->ops->usage(planned->inner, out);
    for (const gml_reservation *reservation = planned->reservations; reservation;
         reservation = reservation->next) {
        uint64_t idle_bytes = reservation->held_bytes - reservation->live_bytes;
        out->largest_free_bytes += idle_bytes;
        out->stream_largest_bytes += idle_bytes;
        out->joined_bytes += idle_bytes;
    }
}

static gml_status check(gml_policy *self) {
    gml_planned *planned = gml_planned_of(self);
    gml_status status = gml_planned_yield(planned);
    if (status == GML_OK) {
        status = planned->inner->ops->check(planned->inner);
    }
    if (status == GML_OK && (self->reserved_bytes != planned->inner->reserved_bytes ||
                             self->small_bytes != planned->inner->small_bytes)) {
        status = gml_driver_fail(self->driver, GML_CORRUPT,
                                 "the policy has lost sight of what is reserved");
    }
    return status;
}

/* Without host memory, reserved bytes are shown as free. */
static void visit(gml_policy *self, const gml_visitor *visitor) {
    gml_planned *planned = gml_planned_of(self);
    (void)gml_planned_yield(planned);
    planned->inner->ops->visit(planned->inner, visitor);
}

static void stream_pairs(gml_policy *self, void (*see)(void *context, const gml_stream_pair *pair),
                         void *context) {
    gml_share_pairs(gml_planned_of(self)->inner, see, context);
}

const gml_policy_ops gml_steps_policy = {
    .name = "plan",
    .help = "stitch, with steps that repeat served as they were before, without a search",
    .settings_of = "stitch",
    .create = create,
    .create_private = create_private,
    .destroy = destroy,
    .can_serve_arena = true,
    .allocate = allocate,
    .free = free_block,
    .trim = trim,
    .give = give,
    .idle_bytes = idle_bytes,
    .usage = usage,
    .check = check,
    .visit = visit,
    .chunk = chunk,
    .take_chunk = take_chunk,
    .stream_pairs = stream_pairs,
    .mark = gml_planned_mark,
};
