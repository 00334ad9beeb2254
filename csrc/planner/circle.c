#include "planner/circle.h"

#include <stdlib.h>
#include <string.h>

/* ---- where to cut ---------------------------------------------------------------------------- */

/* The slot before which the least is live across. pre: `change` has slots + 1 entries, all 0. */
static uint32_t
find_cut(const gml_instance *instance, uint64_t *change)
{
    for (size_t i = 0; i < instance->count; i++) {
        uint32_t begin = instance->begin[i], end = instance->end[i];
        if (begin == end || end - begin == instance->slots) {
            continue; /* across every cut */
        }
        if (begin > end) { /* across all cuts but end to begin, */
            change[0] += instance->sizes[i];
        }
        change[begin + 1] += instance->sizes[i]; /* else across begin + 1 to end - 1 */
        change[end] -= instance->sizes[i];
    }
    uint32_t best = 0;
    uint64_t across = change[0], least = across;
    for (uint32_t cut = 1; cut < instance->slots; cut++) {
        across += change[cut]; /* modulo 2^64; no sum is below 0 */
        if (across < least) {
            best = cut;
            least = across;
        }
    }
    return best;
}

/* Slot `slot`, counted from the cut; 0 to slots - 1. */
static uint32_t
from_cut(const gml_instance *instance, uint32_t cut, uint32_t slot)
{
    return (uint32_t)(((uint64_t)slot + instance->slots - cut) % instance->slots);
}

static void
turn(gml_circle *circle, const gml_instance *instance, uint32_t cut)
{
    for (size_t i = 0; i < instance->count; i++) {
        uint32_t begin = from_cut(instance, cut, instance->begin[i]);
        uint32_t end = from_cut(instance, cut, instance->end[i]);
        bool is_everywhere = begin == end;
        circle->begin[i] = is_everywhere ? 0 : begin;
        circle->end[i] = is_everywhere || end == 0 ? instance->slots : end;
        circle->stack_count += circle->begin[i] >= circle->end[i];
    }
}

/* ---- in which order to stack --------------------------------------------------------------------
 *
 * Whatever else is live above an item of the stack has to lie above its top, so the highest address
 * is at least the top of each item plus the most that is live above it. The order by that,
 * descending, makes the largest of these sums least: Jackson's rule for jobs with delivery times.
 */

typedef struct stacked {
    uint64_t above; /* the most that is live in its life, the stack left out */
    uint32_t life;  /* in slots; longer ones lie lower, so that less hangs over */
    uint32_t item;
} stacked;

static int
compare(const void *left, const void *right)
{
    const stacked *a = left, *b = right;
    if (a->above != b->above) {
        return a->above > b->above ? -1 : 1;
    }
    if (a->life != b->life) {
        return a->life > b->life ? -1 : 1;
    }
    return a->item < b->item ? -1 : a->item > b->item;
}

/* What is live by slot from the cut, without the stack. */
static void
sum_rest(const gml_circle *circle, const gml_instance *instance, uint64_t *rest)
{
    memset(rest, 0, ((size_t)instance->slots + 1) * sizeof *rest);
    for (size_t i = 0; i < instance->count; i++) {
        if (circle->begin[i] < circle->end[i]) {
            rest[circle->begin[i]] += instance->sizes[i];
            rest[circle->end[i]] -= instance->sizes[i];
        }
    }
    for (uint32_t slot = 0; slot < instance->slots; slot++) {
        rest[slot + 1] += rest[slot];
    }
}

/* The most that is live from slot 0 on, and up to the last one, at each slot. */
static void
sweep_most(const uint64_t *rest, uint32_t slots, uint64_t *up_to, uint64_t *from)
{
    uint64_t most = 0;
    for (uint32_t slot = 0; slot < slots; slot++) {
        most = rest[slot] > most ? rest[slot] : most;
        up_to[slot] = most;
    }
    most = 0;
    for (uint32_t slot = slots; slot-- > 0;) {
        most = rest[slot] > most ? rest[slot] : most;
        from[slot] = most;
    }
}

static void
sort_stack(gml_circle *circle, const gml_instance *instance, uint64_t *rest, stacked *stack)
{
    uint64_t *up_to = circle->heights;
    sum_rest(circle, instance, rest);
    sweep_most(rest, instance->slots, up_to, rest);
    size_t count = 0;
    for (uint32_t i = 0; i < instance->count; i++) {
        uint32_t begin = circle->begin[i], end = circle->end[i];
        if (begin >= end) {
            uint64_t first = up_to[end - 1], last = rest[begin];
            stack[count++] = (stacked){.above = first > last ? first : last,
                                       .life = instance->slots - (begin - end),
                                       .item = i};
        }
    }
    qsort(stack, count, sizeof *stack, compare);
    for (size_t i = 0; i < count; i++) {
        circle->stack[i] = stack[i].item;
    }
}

/* From the highest of the stack down: slots below `left` and from `right` on have their height. */
static void
find_heights(gml_circle *circle, const gml_instance *instance)
{
    uint64_t top = 0;
    for (size_t i = 0; i < circle->stack_count; i++) {
        top += instance->sizes[circle->stack[i]];
    }
    memset(circle->heights, 0, instance->slots * sizeof *circle->heights);
    uint32_t left = 0, right = instance->slots;
    for (size_t i = circle->stack_count; i-- > 0;) {
        uint32_t item = circle->stack[i];
        while (left < right && left < circle->end[item]) {
            circle->heights[left++] = top;
        }
        while (left < right && right > circle->begin[item]) {
            circle->heights[--right] = top;
        }
        top -= instance->sizes[item];
    }
}

static gml_status
stack_up(gml_circle *circle, const gml_instance *instance, uint64_t *rest)
{
    if (circle->stack_count > 0) {
        stacked *stack = malloc(circle->stack_count * sizeof *stack);
        circle->stack = malloc(circle->stack_count * sizeof *circle->stack);
        if (!stack || !circle->stack) {
            free(stack);
            return GML_NO_HOST_MEMORY;
        }
        sort_stack(circle, instance, rest, stack);
        free(stack);
    }
    find_heights(circle, instance);
    return GML_OK;
}

gml_status
gml_circle_open(gml_circle *circle, const gml_instance *instance)
{
    *circle = (gml_circle){0};
    uint64_t *sums = calloc((size_t)instance->slots + 1, sizeof *sums);
    circle->begin = malloc(instance->count * sizeof *circle->begin);
    circle->end = malloc(instance->count * sizeof *circle->end);
    circle->heights = malloc(instance->slots * sizeof *circle->heights);
    gml_status status = GML_NO_HOST_MEMORY;
    if (sums && circle->begin && circle->end && circle->heights) {
        turn(circle, instance, find_cut(instance, sums));
        status = stack_up(circle, instance, sums);
    }
    free(sums);
    if (status != GML_OK) {
        gml_circle_close(circle);
    }
    return status;
}

void
gml_circle_close(gml_circle *circle)
{
    free(circle->begin);
    free(circle->end);
    free(circle->stack);
    free(circle->heights);
    *circle = (gml_circle){0};
}
