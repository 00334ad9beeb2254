/* The bitmaps behind gml_number_set. */
#include "base/number_set.h"

#include <stdlib.h>

gml_status gml_number_set_open(gml_number_set *set, size_t bound) {
    *set = (gml_number_set){0};
    size_t total = 0;
    size_t bits = bound ? bound : 1;
    do {
        bits = (bits + 63) / 64;
        set->words[set->level_count++] = bits;
        total += bits;
    } while (bits > 1);
    uint64_t *words = calloc(total, sizeof *words);
    if (!words) {
        return GML_NO_HOST_MEMORY;
    }
    for (unsigned level = 0; level < set->level_count; level++) {
        set->levels[level] = words;
        words += set->words[level];
    }
    return GML_OK;
}

void gml_number_set_close(gml_number_set *set) {
    free(set->levels[0]);
    *set = (gml_number_set){0};
}

void gml_number_set_add(gml_number_set *set, size_t number) {
    for (unsigned level = 0; level < set->level_count; level++) {
        uint64_t *word = &set->levels[level][number >> 6];
        bool was_empty = *word == 0;
        *word |= UINT64_C(1) << (number & 63);
        if (!was_empty) {
            return;
        }
        number >>= 6;
    }
}

void gml_number_set_remove(gml_number_set *set, size_t number) {
    for (unsigned level = 0; level < set->level_count; level++) {
        uint64_t *word = &set->levels[level][number >> 6];
        *word &= ~(UINT64_C(1) << (number & 63));
        if (*word) {
            return;
        }
        number >>= 6;
    }
}

bool gml_number_set_has(const gml_number_set *set, size_t number) {
    return (number >> 6) < set->words[0] && (set->levels[0][number >> 6] >> (number & 63) & 1);
}

static unsigned lowest_bit(uint64_t word) {
    return (unsigned)__builtin_ctzll(word);
}

static unsigned highest_bit(uint64_t word) {
    return 63 - (unsigned)__builtin_clzll(word);
}

size_t gml_number_set_from(const gml_number_set *set, size_t number) {
    for (unsigned level = 0; level < set->level_count; level++) {
        size_t at = number >> 6;
        if (at >= set->words[level]) {
            return GML_NO_MEMBER;
        }
        uint64_t word = set->levels[level][at] & (UINT64_MAX << (number & 63));
        if (word) {
            number = (at << 6) + lowest_bit(word);
            while (level-- > 0) {
                number = (number << 6) + lowest_bit(set->levels[level][number]);
            }
            return number;
        }
        number = at + 1;
    }
    return GML_NO_MEMBER;
}

size_t gml_number_set_upto(const gml_number_set *set, size_t number) {
    if (number >> 6 >= set->words[0]) {
        number = (set->words[0] << 6) - 1;
    }
    for (unsigned level = 0; level < set->level_count; level++) {
        size_t at = number >> 6;
        uint64_t word = set->levels[level][at] & (UINT64_MAX >> (63 - (number & 63)));
        if (word) {
            number = (at << 6) + highest_bit(word);
            while (level-- > 0) {
                number = (number << 6) + highest_bit(set->levels[level][number]);
            }
            return number;
        }
        if (at == 0) {
            return GML_NO_MEMBER;
        }
        number = at - 1;
    }
    return GML_NO_MEMBER;
}
