#include "base/sort.h"

#include <stdbool.h>
#include <string.h>

enum {
    FEW_ITEMS = 48,
    MANY_ITEMS = 4096,
    SMALL_DIGIT_BITS = 8,
    LARGE_DIGIT_BITS = 11,
    MOST_BUCKETS = 1 << LARGE_DIGIT_BITS,
    KEY_BITS = 64
};

static void insertion_sort(gml_keyed *items, size_t count) {
    for (size_t i = 1; i < count; i++) {
        gml_keyed moved = items[i];
        size_t hole = i;
        for (; hole > 0 && items[hole - 1].key > moved.key; hole--) {
            items[hole] = items[hole - 1];
        }
        items[hole] = moved;
    }
}

/* One pass, from `from` to `to`. */
static void sort_by_digit(const gml_keyed *from, gml_keyed *to, size_t count, unsigned shift,
                          uint64_t mask) {
    size_t places[MOST_BUCKETS];
    memset(places, 0, (size_t)(mask + 1) * sizeof *places);
    for (size_t i = 0; i < count; i++) {
        places[(from[i].key >> shift) & mask]++;
    }
    size_t next = 0;
    for (uint64_t digit = 0; digit <= mask; digit++) {
        size_t here = places[digit];
        places[digit] = next;
        next += here;
    }
    for (size_t i = 0; i < count; i++) {
        to[places[(from[i].key >> shift) & mask]++] = from[i];
    }
}

/* The bits in which any two keys differ; *is_sorted: they are in order already. */
static uint64_t differing_bits(const gml_keyed *items, size_t count, bool *is_sorted) {
    uint64_t bits = 0;
    *is_sorted = true;
    for (size_t i = 1; i < count; i++) {
        bits |= items[i].key ^ items[0].key;
        *is_sorted = *is_sorted && items[i - 1].key <= items[i].key;
    }
    return bits;
}

void gml_sort_keyed(gml_keyed *items, gml_keyed *scratch, size_t count) {
    bool is_sorted = true;
    uint64_t differing = differing_bits(items, count, &is_sorted);
    if (is_sorted) {
        return;
    }
    if (count <= FEW_ITEMS) {
        insertion_sort(items, count);
        return;
    }
    unsigned bits = count < MANY_ITEMS ? SMALL_DIGIT_BITS : LARGE_DIGIT_BITS;
    uint64_t mask = (UINT64_C(1) << bits) - 1;
    gml_keyed *from = items, *to = scratch;
    for (unsigned shift = 0; shift < KEY_BITS;) {
        if (!((differing >> shift) & 1)) { /* digits begin where keys differ */
            shift++;
            continue;
        }
        sort_by_digit(from, to, count, shift, mask);
        gml_keyed *other = from;
        from = to;
        to = other;
        shift += bits;
    }
    if (from != items) {
        memcpy(items, from, count * sizeof *items);
    }
}
