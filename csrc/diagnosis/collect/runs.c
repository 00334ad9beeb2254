#include "diagnosis/collect/runs.h"

#include "base/room.h"
#include "diagnosis/collect/table.h"

#include <string.h>

enum { FIRST_GAP = 64, GAP_GROWTH = 16 };

/* ---- runs, one after the other --------------------------------------------------------------- */

/* Runs at one distance are one item. False if there are too many or the host has no memory. */
static bool push(gml_runs *runs, uint64_t offset, uint64_t size_bytes, uint32_t weight) {
    gml_marked_run *last = runs->count ? &runs->items[runs->count - 1] : NULL;
    if (last && last->size_bytes == size_bytes && last->weight == weight) {
        uint64_t distance = offset - last->offset;
        if (last->repeat == 1 || distance == last->stride_bytes * last->repeat) {
            last->stride_bytes = last->repeat == 1 ? distance : last->stride_bytes;
            last->repeat++;
            return true;
        }
    }
    if (runs->count == runs->most ||
        !gml_make_room(&runs->items, &runs->capacity, runs->count + 1, sizeof *runs->items) ||
        !runs->items) {
        return false;
    }
    runs->items[runs->count++] = (gml_marked_run){offset, size_bytes, size_bytes, 1, weight};
    return true;
}

static bool close_run(gml_runs *runs) {
    uint64_t size_bytes = runs->open_end - runs->open;
    runs->bytes += (double)size_bytes;
    runs->weighted_bytes += (double)size_bytes * runs->open_weight;
    return size_bytes == 0 || push(runs, runs->open, size_bytes, runs->open_weight);
}

static bool add_piece(gml_runs *runs, uint64_t offset, uint64_t size_bytes, uint32_t weight) {
    weight = runs->even_weight ? runs->even_weight : weight;
    bool is_open = runs->open_end > runs->open;
    bool is_added = true;
    if (!is_open || offset - runs->open_end > runs->gap || weight != runs->open_weight) {
        is_added = close_run(runs);
        runs->open = offset;
        runs->open_weight = weight;
    }
    runs->open_end = offset + size_bytes;
    return is_added;
}

/* ---- marks, word by word --------------------------------------------------------------------- */

/* A granule that was read and written counts once as written. */
static uint32_t weight_of(const gml_marks *marks, uint64_t at, bool has_other) {
    if (!marks->counters) {
        return 1;
    }
    uint32_t count = marks->counters[(at - marks->first) >> marks->granule_shift];
    if (has_other) {
        count = marks->is_written ? 1 : count - (count > 0);
    }
    return count ? count : 1;
}

static uint32_t mask_of(uint64_t size_bytes) {
    return UINT32_MAX >> (GML_MARK_BYTES - size_bytes);
}

/* The part of a word that lies within one granule. */
static bool add_part(gml_runs *runs, const gml_marks *marks, uint64_t at, uint64_t size_bytes,
                     uint32_t bits, uint32_t others) {
    if (bits == 0) {
        return true;
    }
    uint32_t weight = weight_of(marks, at, others != 0);
    if (bits == mask_of(size_bytes)) {
        return add_piece(runs, at, size_bytes, weight);
    }
    bool is_added = true;
    for (uint64_t i = 0; i < size_bytes; i++) {
        if (bits >> i & 1) {
            is_added = add_piece(runs, at + i, 1, weight) && is_added;
        }
    }
    return is_added;
}

/* Whether a word goes on as the one before, which is full and of one weight: that is quick. */
static bool is_alike(const gml_runs *runs, const gml_marks *marks, uint64_t index) {
    uint64_t at = marks->first + index * GML_MARK_BYTES;
    bool is_full = index > 0 && marks->bits[index] == UINT32_MAX && runs->open_end == at &&
                   runs->open_end - runs->open >= GML_MARK_BYTES;
    if (!is_full || marks->others[index] != marks->others[index - 1]) {
        return false;
    }
    size_t count = GML_MARK_BYTES >> marks->granule_shift;
    const uint32_t *counters = marks->counters + index * count;
    return !marks->counters ||
           (count && memcmp(counters, counters - count, count * sizeof *counters) == 0);
}

static bool add_word(gml_runs *runs, const gml_marks *marks, uint64_t index) {
    if (is_alike(runs, marks, index)) {
        runs->open_end += GML_MARK_BYTES;
        return true;
    }
    uint64_t granule = UINT64_C(1) << marks->granule_shift;
    uint64_t step = granule < GML_MARK_BYTES ? granule : GML_MARK_BYTES;
    uint32_t bits = marks->bits[index];
    uint32_t others = marks->others[index];
    bool is_added = true;
    for (uint64_t i = 0; bits && i < GML_MARK_BYTES; i += step) {
        uint32_t mask = mask_of(step);
        is_added = add_part(runs, marks, marks->first + index * GML_MARK_BYTES + i, step,
                            bits >> i & mask, others >> i & mask) &&
                   is_added;
    }
    return is_added;
}

/* Goes on where there are too many, for the average. */
static bool add_words(gml_runs *runs, const gml_marks *marks) {
    uint64_t words = (marks->end - marks->first + GML_MARK_BYTES - 1) / GML_MARK_BYTES;
    bool is_added = true;
    runs->count = 0;
    runs->open = runs->open_end = 0;
    runs->bytes = runs->weighted_bytes = 0;
    for (uint64_t i = 0; i < words; i++) {
        if (marks->bits[i]) {
            is_added = add_word(runs, marks, i) && is_added;
        }
    }
    return close_run(runs) && is_added;
}

bool gml_runs_find(gml_runs *runs, const gml_marks *marks, size_t most) {
    runs->most = most;
    runs->gap = 0;
    runs->even_weight = 0;
    runs->is_exact = true;
    runs->is_even = false;
    if (add_words(runs, marks)) {
        return true;
    }
    if (runs->bytes > 0) {
        double average = runs->weighted_bytes / runs->bytes;
        runs->even_weight = average > 1 ? (uint32_t)(average + 0.5) : 1;
    }
    runs->is_even = true;
    while (!add_words(runs, marks)) {
        if (runs->gap >= marks->end) {
            return false;
        }
        runs->gap = runs->gap ? runs->gap * GAP_GROWTH : FIRST_GAP;
        runs->is_exact = false;
    }
    return true;
}
