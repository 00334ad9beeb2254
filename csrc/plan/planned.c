/* The policy `plan`: its place around the policy `stitch`. */
#include "plan/planned.h"

#include "base/status.h"

#include <stdlib.h>

/* What the lake reads from a policy follows the inner one. */
static void
follow(gml_planned *planned)
{
    planned->policy.reserved_bytes = planned->inner->reserved_bytes;
    planned->policy.small_bytes = planned->inner->small_bytes;
}

gml_status
gml_steps_wrap(gml_policy *stitch, const gml_knobs *knobs, gml_policy **out)
{
    if (stitch->ops != &gml_stitch_policy) {
        return gml_driver_fail(stitch->driver, GML_UNSUPPORTED,
                               "the policy %s serves no plans; use stitch or plan",
                               stitch->ops->name);
    }
    gml_planned *planned = calloc(1, sizeof *planned);
    if (!planned) {
        return gml_driver_fail(stitch->driver, GML_NO_HOST_MEMORY, "no host memory to watch steps");
    }
    planned->policy = (gml_policy){.ops = &gml_plan_policy, .driver = stitch->driver};
    planned->inner = stitch;
    planned->stitch = gml_stitch_of(stitch);
    /* Pools are made of cells as large as the largest chunk: from now on none is larger than those
     * there are, so that pools of small programs leave little behind. */
    planned->stitch->economy.largest_bytes = planned->stitch->home.largest_bytes;
    planned->next_number = 1;
    planned->profile_steps = knobs->profile_steps;
    planned->budget_ms = knobs->plan_budget;
    planned->window = (uint32_t)knobs->plan_window;
    gml_lanes_init(&planned->lanes, planned->stitch);
    follow(planned);
    *out = &planned->policy;
    return GML_OK;
}

bool
gml_steps_are_watched(const gml_policy *policy)
{
    return policy->ops == &gml_plan_policy;
}

static gml_status
create(gml_driver *driver, uint64_t capacity_bytes, const gml_knobs *knobs, gml_policy **out)
{
    gml_policy *stitch;
    gml_status status = gml_stitch_policy.create(driver, capacity_bytes, knobs, &stitch);
    if (status != GML_OK) {
        return status;
    }
    status = gml_steps_wrap(stitch, knobs, out);
    if (status != GML_OK) {
        (void)stitch->ops->destroy(stitch);
        return status;
    }
    gml_planned_of(*out)->plans_by_itself = true;
    return GML_OK;
}

static gml_status
destroy(gml_policy *self)
{
    gml_planned *planned = gml_planned_of(self);
    if (planned->open.record) {
        (void)gml_steps_end(self, NULL);
    }
    gml_kinds_close(planned);
    gml_map_clear(&planned->records);
    gml_status first = gml_lanes_close(&planned->lanes);
    first = gml_first_failure(first, planned->inner->ops->destroy(planned->inner));
    free(planned);
    return first;
}

static gml_status
allocate(gml_policy *self, uint64_t size_bytes, gml_stream stream, gml_block **out)
{
    gml_planned *planned = gml_planned_of(self);
    gml_status status = gml_planned_allocate(planned, size_bytes, stream, out);
    follow(planned);
    return status;
}

static void
free_block(gml_policy *self, gml_block *block)
{
    gml_planned *planned = gml_planned_of(self);
    uint64_t note = block->note;
    if (block->state == GML_STATE_PLAN) {
        gml_lane_block *given = (gml_lane_block *)(void *)block;
        gml_planned_note_inherited(planned, given);
        gml_lane_give(&planned->lanes, given);
    } else {
        planned->inner->ops->free(planned->inner, block);
        follow(planned);
    }
    gml_planned_note_free(planned, note);
}

static gml_status
trim(gml_policy *self, uint64_t *released_bytes)
{
    gml_planned *planned = gml_planned_of(self);
    uint64_t released = 0;
    bool is_any;
    gml_status status = gml_lanes_release_idle(&planned->lanes, NULL, UINT64_MAX, &is_any);
    if (status == GML_OK) {
        status = planned->inner->ops->trim(planned->inner, &released);
    }
    follow(planned);
    if (released_bytes) {
        *released_bytes = released;
    }
    return status;
}

static gml_status
chunk(gml_policy *self, gml_address address, gml_chunk *out)
{
    gml_policy *inner = gml_planned_of(self)->inner;
    return inner->ops->chunk(inner, address, out);
}

static void
usage(gml_policy *self, gml_usage *out)
{
    gml_planned *planned = gml_planned_of(self);
    planned->inner->ops->usage(planned->inner, out);
    const gml_lane *lane = gml_lanes_find(&planned->lanes, 0);
    uint64_t free_bytes = lane ? gml_lane_largest_free(lane) : 0;
    out->largest_free_bytes =
        free_bytes > out->largest_free_bytes ? free_bytes : out->largest_free_bytes;
}

static gml_status
check(gml_policy *self)
{
    gml_planned *planned = gml_planned_of(self);
    gml_status status = planned->inner->ops->check(planned->inner);
    if (status == GML_OK) {
        status = gml_lanes_check(&planned->lanes);
    }
    if (status == GML_OK && (self->reserved_bytes != planned->inner->reserved_bytes ||
                             self->small_bytes != planned->inner->small_bytes)) {
        status = gml_driver_fail(self->driver, GML_CORRUPT,
                                 "the policy has lost sight of what is reserved");
    }
    return status;
}

static void
visit(gml_policy *self, const gml_visitor *visitor)
{
    gml_planned *planned = gml_planned_of(self);
    planned->inner->ops->visit(planned->inner, visitor);
    gml_lanes_visit(&planned->lanes, visitor);
}

/* A lane stays with its pond: a stream that comes with the same handle later gets another one. */
static gml_status
forget_stream(gml_policy *self, gml_stream stream)
{
    return gml_pond_forget(gml_planned_of(self)->inner, stream);
}

static gml_status
distrust_stream(gml_policy *self, gml_stream stream)
{
    return gml_pond_distrust(gml_planned_of(self)->inner, stream);
}

static gml_status
order_streams(gml_policy *self, gml_stream later, gml_stream earlier)
{
    return gml_share_order(gml_planned_of(self)->inner, later, earlier);
}

static void
stream_pairs(gml_policy *self, void (*see)(void *context, const gml_stream_pair *pair),
             void *context)
{
    gml_share_pairs(gml_planned_of(self)->inner, see, context);
}

const gml_policy_ops gml_plan_policy = {
    .name = "plan",
    .create = create,
    .destroy = destroy,
    .allocate = allocate,
    .free = free_block,
    .trim = trim,
    .usage = usage,
    .check = check,
    .visit = visit,
    .chunk = chunk,
    .forget_stream = forget_stream,
    .distrust_stream = distrust_stream,
    .order_streams = order_streams,
    .stream_pairs = stream_pairs,
    .mark = gml_planned_mark,
};
