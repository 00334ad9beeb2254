/* The pattern: each stamp is a word that depends on the seed and on its place. */
#include "support/stamp.h"

#include <stddef.h>

enum { WORD_BYTES = sizeof(uint64_t), EDGE_WORDS = 64 };

static uint64_t word_at(uint64_t seed, size_t index) {
    uint64_t mixed = (seed + index) * UINT64_C(0x9e3779b97f4a7c15);
    return mixed ^ (mixed >> 29);
}

static bool visit_words(uint64_t *words, size_t first, size_t end, size_t step, uint64_t seed,
                        bool writes) {
    for (size_t i = first; i < end; i += step) {
        if (writes) {
            words[i] = word_at(seed, i);
        } else if (words[i] != word_at(seed, i)) {
            return false;
        }
    }
    return true;
}

static bool visit_tail(unsigned char *bytes, size_t first, size_t end, uint64_t seed, bool writes) {
    for (size_t i = first; i < end; i++) {
        unsigned char want = (unsigned char)word_at(seed, i);
        if (writes) {
            bytes[i] = want;
        } else if (bytes[i] != want) {
            return false;
        }
    }
    return true;
}

static bool visit(unsigned char *bytes, uint64_t size_bytes, uint64_t seed, uint64_t stride_bytes,
                  bool writes) {
    uint64_t *words = (uint64_t *)(void *)bytes;
    size_t count = (size_t)(size_bytes / WORD_BYTES);
    bool holds = visit_tail(bytes, count * WORD_BYTES, (size_t)size_bytes, seed, writes);
    if (size_bytes <= STAMP_WHOLE_BYTES) {
        return visit_words(words, 0, count, 1, seed, writes) && holds;
    }
    size_t step = (size_t)(stride_bytes / WORD_BYTES);
    return visit_words(words, 0, EDGE_WORDS, 1, seed, writes) &&
           visit_words(words, step, count, step, seed, writes) &&
           visit_words(words, count - EDGE_WORDS, count, 1, seed, writes) && holds;
}

void stamp_write(void *bytes, uint64_t size_bytes, uint64_t seed, uint64_t stride_bytes) {
    (void)visit(bytes, size_bytes, seed, stride_bytes, true);
}

bool stamp_holds(const void *bytes, uint64_t size_bytes, uint64_t seed, uint64_t stride_bytes) {
    /* Nothing is written when `writes` is false. */
    return visit((unsigned char *)(uintptr_t)bytes, size_bytes, seed, stride_bytes, false);
}
