#include "planner/exact_items.h"

#include <stdlib.h>

enum { LIFE_BITS = 32 };

static uint64_t
greatest_common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

uint64_t
gml_exact_unit(const gml_instance *instance)
{
    uint64_t unit = 0;
    for (size_t i = 0; i < instance->count; i++) {
        unit = greatest_common_divisor(instance->sizes[i], unit);
    }
    return unit ? unit : 1;
}

/* More than all sizes together is never needed. */
static uint64_t
useful_capacity(const gml_instance *instance, uint64_t capacity_bytes)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < instance->count && sum < capacity_bytes; i++) {
        sum += instance->sizes[i];
    }
    return sum < capacity_bytes ? sum : capacity_bytes;
}

static gml_status
reserve(gml_exact_items *items, size_t count)
{
    items->size = calloc(count + 1, sizeof *items->size);
    items->begin = calloc(count + 1, sizeof *items->begin);
    items->end = calloc(count + 1, sizeof *items->end);
    items->original = calloc(count + 1, sizeof *items->original);
    items->offset = calloc(count + 1, sizeof *items->offset);
    bool is_whole = items->size && items->begin && items->end && items->original && items->offset;
    for (size_t key = 0; key < GML_EXACT_CONTENTION; key++) {
        items->keys[key] = calloc(count + 1, sizeof *items->keys[key]);
        is_whole = is_whole && items->keys[key];
    }
    return is_whole ? GML_OK : GML_NO_HOST_MEMORY;
}

typedef struct sorted_item {
    uint64_t size, life;
    uint32_t begin, end, original;
} sorted_item;

static int
compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int
compare_items(const void *left, const void *right)
{
    const sorted_item *a = left, *b = right;
    int order = compare(a->begin, b->begin);
    order = order ? order : compare(a->end, b->end);
    order = order ? order : compare(a->size, b->size);
    order = order ? order : compare(a->life, b->life);
    return order ? order : compare(a->original, b->original);
}

/* Lives are shifted so that an area fits in 64 bits. */
static unsigned
life_shift(const gml_instance *instance)
{
    unsigned shift = 0;
    for (size_t i = 0; i < instance->count; i++) {
        while (instance->life[i] >> shift >> LIFE_BITS) {
            shift++;
        }
    }
    return shift;
}

static void
take_items(gml_exact_items *items, const gml_instance *instance, const sorted_item *sorted)
{
    unsigned shift = life_shift(instance);
    for (uint32_t i = 0; i < items->count; i++) {
        uint64_t life = sorted[i].life >> shift;
        items->size[i] = (uint32_t)(sorted[i].size / items->unit_bytes);
        items->begin[i] = sorted[i].begin;
        items->end[i] = sorted[i].end;
        items->original[i] = sorted[i].original;
        items->keys[GML_EXACT_LIFE][i] = life;
        items->keys[GML_EXACT_AREA][i] = life * items->size[i];
        items->keys[GML_EXACT_SIZE][i] = items->size[i];
    }
}

gml_status
gml_exact_items_open(gml_exact_items *items, const gml_instance *instance, uint64_t capacity_bytes)
{
    uint64_t unit = gml_exact_unit(instance);
    uint64_t capacity = useful_capacity(instance, capacity_bytes) / unit;
    *items = (gml_exact_items){
        .count = (uint32_t)instance->count,
        .slots = instance->slots,
        .unit_bytes = unit,
        .capacity = (uint32_t)capacity,
    };
    if (capacity >= UINT32_MAX) {
        return GML_UNSUPPORTED;
    }
    gml_status status = reserve(items, instance->count);
    sorted_item *sorted = calloc(instance->count + 1, sizeof *sorted);
    if (status != GML_OK || !sorted) {
        free(sorted);
        return GML_NO_HOST_MEMORY;
    }
    for (uint32_t i = 0; i < items->count; i++) {
        sorted[i] = (sorted_item){instance->sizes[i], instance->life[i], instance->begin[i],
                                  instance->end[i], i};
    }
    qsort(sorted, instance->count, sizeof *sorted, compare_items);
    take_items(items, instance, sorted);
    free(sorted);
    return GML_OK;
}

void
gml_exact_items_close(gml_exact_items *items)
{
    free(items->size);
    free(items->begin);
    free(items->end);
    free(items->original);
    free(items->offset);
    for (size_t key = 0; key < GML_EXACT_CONTENTION; key++) {
        free(items->keys[key]);
    }
    *items = (gml_exact_items){0};
}
