#include "planner/order.h"

typedef enum key_kind {
    KEY_NONE,
    KEY_SIZE,
    KEY_LIFE,
    KEY_LIFE_BY_4,   /* the power of 4 */
    KEY_LIFE_BY_16,  /* the power of 16 */
    KEY_LIFE_BY_1_5, /* the power of 1.5 */
    KEY_END,
    KEY_AREA,
    KEY_AREA_BY_4,
    KEY_CONTENTION,
    KEY_CONTENTION_16TH,
    KEY_AT_PEAK /* whether the live sum is within a fiftieth of the largest in its life */
} key_kind;

enum { MOST_KEYS = 2, POWERS_OF_1_5 = 128, PEAK_PART = 50 };

/* The larger first; what is equal in all keys comes in the order of starts. */
static const key_kind KEYS[GML_METHOD_COUNT][MOST_KEYS] = {
    [GML_METHOD_FIRST_FIT_SIZE] = {KEY_SIZE},
    [GML_METHOD_FIRST_FIT_LIFE] = {KEY_LIFE_BY_4},
    [GML_METHOD_FIRST_FIT_LATE] = {KEY_LIFE_BY_16, KEY_END},
    [GML_METHOD_FIRST_FIT_AREA] = {KEY_AREA_BY_4},
    [GML_METHOD_FIRST_FIT_CONTENTION] = {KEY_CONTENTION_16TH, KEY_LIFE_BY_4},
    [GML_METHOD_LOWEST_CONTENTION] = {KEY_CONTENTION, KEY_LIFE},
    [GML_METHOD_LOWEST_LIFE] = {KEY_LIFE_BY_1_5, KEY_SIZE},
    [GML_METHOD_LOWEST_AREA] = {KEY_AREA},
    [GML_METHOD_LOWEST_CONTENTION16] = {KEY_CONTENTION_16TH, KEY_AREA},
    [GML_METHOD_LOWEST_PEAK] = {KEY_AT_PEAK, KEY_LIFE_BY_4},
    [GML_METHOD_LOWEST_CONTENTION_SIZE] = {KEY_CONTENTION, KEY_SIZE},
};

/* What keys are computed from. */
typedef struct key_scales {
    uint64_t powers[POWERS_OF_1_5];
    unsigned power_count;
    unsigned life_shift; /* so that no area overflows */
    uint64_t most_contention;
} key_scales;

static uint64_t
largest(const uint64_t *values, size_t count)
{
    uint64_t most = 0;
    for (size_t i = 0; i < count; i++) {
        most = values[i] > most ? values[i] : most;
    }
    return most;
}

static unsigned
bits_of(uint64_t value)
{
    return value ? 64U - (unsigned)__builtin_clzll(value) : 0;
}

static void
scales_make(key_scales *scales, const gml_instance *instance)
{
    uint64_t most_life = largest(instance->life, instance->count);
    unsigned area_bits = bits_of(most_life) + bits_of(largest(instance->sizes, instance->count));
    scales->life_shift = area_bits > 64 ? area_bits - 64 : 0;
    scales->most_contention = largest(instance->contention, instance->count);
    scales->power_count = 0;
    for (uint64_t power = 1; power <= most_life && scales->power_count < POWERS_OF_1_5;) {
        scales->powers[scales->power_count++] = power;
        uint64_t next = power + power / 2 + (power == 1);
        power = next > power ? next : UINT64_MAX;
    }
}

/* How many powers of 1.5 are not above `life`. */
static uint64_t
power_of_1_5(const key_scales *scales, uint64_t life)
{
    unsigned low = 0, high = scales->power_count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (scales->powers[middle] <= life) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static uint64_t
sixteenths(uint64_t part, uint64_t whole)
{
    return whole >> 59 ? part / (whole / 16) : part * 16 / (whole ? whole : 1);
}

static uint64_t
key_of(const gml_instance *instance, const key_scales *scales, key_kind kind, size_t item)
{
    uint64_t life = instance->life[item], contention = instance->contention[item];
    uint64_t area = instance->sizes[item] * (life >> scales->life_shift);
    switch (kind) {
    case KEY_SIZE:
        return instance->sizes[item];
    case KEY_LIFE:
        return life;
    case KEY_LIFE_BY_4:
        return (bits_of(life) - 1) / 2; /* a life is at least 1 */
    case KEY_LIFE_BY_16:
        return (bits_of(life) - 1) / 4;
    case KEY_LIFE_BY_1_5:
        return power_of_1_5(scales, life);
    case KEY_END:
        return instance->start[item] + life;
    case KEY_AREA:
        return area;
    case KEY_AREA_BY_4:
        return (bits_of(area) + 1) / 2;
    case KEY_CONTENTION:
        return contention;
    case KEY_CONTENTION_16TH:
        return sixteenths(contention, scales->most_contention);
    case KEY_AT_PEAK:
        return contention >= scales->most_contention - scales->most_contention / PEAK_PART;
    case KEY_NONE:
        break;
    }
    return 0;
}

void
gml_order_make(const gml_instance *instance, gml_method method, gml_keyed *room, uint32_t *order)
{
    key_scales scales;
    scales_make(&scales, instance);
    for (size_t i = 0; i < instance->count; i++) {
        room[i] = (gml_keyed){0, i};
    }
    for (unsigned k = MOST_KEYS; k-- > 0;) {
        key_kind kind = KEYS[method][k];
        for (size_t i = 0; kind != KEY_NONE && i < instance->count; i++) {
            room[i].key = ~key_of(instance, &scales, kind, (size_t)room[i].index);
        }
        gml_sort_keyed(room, room + instance->count, instance->count);
    }
    for (size_t i = 0; i < instance->count; i++) {
        order[i] = (uint32_t)room[i].index;
    }
}
