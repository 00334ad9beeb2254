#include "planner/order.h"

typedef enum key_kind {
    KEY_NONE,
    KEY_SIZE,
    KEY_LIFE,
    KEY_LIFE_BY_4, /* the power of 4 */
    KEY_CONTENTION,
    KEY_AT_PEAK /* whether the live sum is within a fiftieth of the largest in its life */
} key_kind;

enum { MOST_KEYS = 2, PEAK_PART = 50 };

/* The larger first; what is equal in all keys comes in the order of starts. */
static const key_kind KEYS[GML_METHOD_COUNT][MOST_KEYS] = {
    [GML_METHOD_FIRST_FIT_SIZE] = {KEY_SIZE},
    [GML_METHOD_LOWEST_CONTENTION] = {KEY_CONTENTION, KEY_LIFE},
    [GML_METHOD_LOWEST_PEAK] = {KEY_AT_PEAK, KEY_LIFE_BY_4},
};

static uint64_t
most_contention(const gml_instance *instance)
{
    uint64_t most = 0;
    for (size_t i = 0; i < instance->count; i++) {
        most = instance->contention[i] > most ? instance->contention[i] : most;
    }
    return most;
}

static uint64_t
key_of(const gml_instance *instance, uint64_t most, key_kind kind, size_t item)
{
    uint64_t life = instance->life[item], contention = instance->contention[item];
    switch (kind) {
    case KEY_SIZE:
        return instance->sizes[item];
    case KEY_LIFE:
        return life;
    case KEY_LIFE_BY_4:
        return (63U - (unsigned)__builtin_clzll(life)) / 2; /* a life is at least 1 */
    case KEY_CONTENTION:
        return contention;
    case KEY_AT_PEAK:
        return contention >= most - most / PEAK_PART;
    case KEY_NONE:
        break;
    }
    return 0;
}

void
gml_order_make(const gml_instance *instance, gml_method method, gml_keyed *room, uint32_t *order)
{
    uint64_t most = most_contention(instance);
    for (size_t i = 0; i < instance->count; i++) {
        room[i] = (gml_keyed){0, i};
    }
    for (unsigned k = MOST_KEYS; k-- > 0;) {
        key_kind kind = KEYS[method][k];
        for (size_t i = 0; kind != KEY_NONE && i < instance->count; i++) {
            room[i].key = ~key_of(instance, most, kind, (size_t)room[i].index);
        }
        gml_sort_keyed(room, room + instance->count, instance->count);
    }
    for (size_t i = 0; i < instance->count; i++) {
        order[i] = (uint32_t)room[i].index;
    }
}
