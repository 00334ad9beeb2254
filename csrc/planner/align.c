/* A greedy comparison of two sequences: as long as they agree, both go on. Where they do not, the
 * nearest place is looked for at which they agree again, GRAM requests in a row, first within a
 * small window, then within larger ones. What a search costs is proportional to its window, and a
 * large window is searched only to be left far behind, so the whole is linear.
 */
#include "planner/align.h"

#include <stdlib.h>

enum {
    GRAM = 4, /* requests that have to agree in a row */
    SMALLEST_WINDOW = 64,
    LARGEST_WINDOW = 32768,
    WINDOW_GROWTH = 8,
    TABLE_SLOTS = 2 * LARGEST_WINDOW /* a power of two */
};

/* The first place within a window at which a gram lies. */
typedef struct gram_place {
    uint64_t gram;
    size_t at;
    uint32_t search; /* of which this was found; others count as empty */
} gram_place;

typedef struct sequence {
    uint64_t *keys;  /* equal for requests that may be twins */
    uint64_t *grams; /* of the keys from here on, and the phases; shorter ones at the end */
    size_t count;
} sequence;

typedef struct aligner {
    sequence last, previous;
    gram_place *table;
    uint32_t search;
} aligner;

static uint64_t
mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9fb21c651e98df25);
    return hash ^ (hash >> 29);
}

static uint64_t
key_of(const gml_step_request *request)
{
    uint64_t what = request->scope_birth ? request->scope_birth : request->size_bytes;
    return mix(mix(mix(1, request->scope_birth != 0), what), request->stream);
}

static gml_status
open_sequence(sequence *out, size_t count)
{
    out->count = count;
    out->keys = calloc(count + 1, sizeof(uint64_t));
    out->grams = calloc(count + 1, sizeof(uint64_t));
    return out->keys && out->grams ? GML_OK : GML_NO_HOST_MEMORY;
}

static void
fill_sequence(sequence *out, const gml_step *step)
{
    for (size_t i = 0; i < out->count; i++) {
        out->keys[i] = key_of(&step->requests[i]);
    }
    for (size_t i = 0; i < out->count; i++) {
        uint64_t gram = 0;
        for (size_t k = i; k < i + GRAM && k < out->count; k++) {
            gram = mix(mix(gram, out->keys[k]), step->requests[k].phase_birth);
        }
        out->grams[i] = gram;
    }
}

static void
close_alignment(aligner *alignment)
{
    free(alignment->last.keys);
    free(alignment->last.grams);
    free(alignment->previous.keys);
    free(alignment->previous.grams);
    free(alignment->table);
}

/* To be closed whether it succeeds or not. */
static gml_status
open_alignment(aligner *out, const gml_step *last, const gml_step *previous)
{
    *out = (aligner){.table = calloc(TABLE_SLOTS, sizeof(gram_place))};
    gml_status status = out->table ? GML_OK : GML_NO_HOST_MEMORY;
    status = status == GML_OK ? open_sequence(&out->last, last->request_count) : status;
    status = status == GML_OK ? open_sequence(&out->previous, previous->request_count) : status;
    if (status == GML_OK) {
        fill_sequence(&out->last, last);
        fill_sequence(&out->previous, previous);
    }
    return status;
}

/* The slot of the gram in this search, or the free one where it belongs. */
static gram_place *
find_place(const aligner *alignment, uint64_t gram)
{
    size_t slot = (size_t)gram & (TABLE_SLOTS - 1);
    while (alignment->table[slot].search == alignment->search &&
           alignment->table[slot].gram != gram) {
        slot = (slot + 1) & (TABLE_SLOTS - 1);
    }
    return &alignment->table[slot];
}

static void
enter_window(aligner *alignment, size_t begin, size_t end)
{
    alignment->search++;
    for (size_t at = begin; at < end; at++) {
        gram_place *place = find_place(alignment, alignment->previous.grams[at]);
        if (place->search != alignment->search) {
            place->gram = alignment->previous.grams[at];
            place->at = at;
            place->search = alignment->search;
        }
    }
}

static size_t
smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Moves both to where they agree again with the fewest requests left out; then with those spread
 * most evenly, as where one request changed its size. */
static bool
agree_again(aligner *alignment, size_t window, size_t *at_last, size_t *at_previous)
{
    size_t begin = *at_last, end = smaller(begin + window, alignment->last.count);
    size_t other = *at_previous;
    enter_window(alignment, other, smaller(other + window, alignment->previous.count));
    size_t best = SIZE_MAX, best_skew = SIZE_MAX;
    for (size_t at = begin; at < end && at - begin <= best; at++) {
        const gram_place *place = find_place(alignment, alignment->last.grams[at]);
        if (place->search != alignment->search ||
            alignment->previous.keys[place->at] != alignment->last.keys[at]) {
            continue; /* the second: different requests may have one gram by chance */
        }
        size_t a = at - begin, b = place->at - other;
        size_t skew = a > b ? a - b : b - a;
        if (a + b < best || (a + b == best && skew < best_skew)) {
            best = a + b;
            best_skew = skew;
            *at_last = at;
            *at_previous = place->at;
        }
    }
    return best != SIZE_MAX;
}

/* Behind a stretch in which nothing agrees, however far one looks, both go on. */
static void
resynchronise(aligner *alignment, size_t *at_last, size_t *at_previous)
{
    for (size_t window = SMALLEST_WINDOW; window <= LARGEST_WINDOW; window *= WINDOW_GROWTH) {
        if (agree_again(alignment, window, at_last, at_previous)) {
            return;
        }
    }
    *at_last += LARGEST_WINDOW;
    *at_previous += LARGEST_WINDOW;
}

static void
find_twins(aligner *alignment, size_t *twins)
{
    size_t a = 0, b = 0;
    while (a < alignment->last.count && b < alignment->previous.count) {
        if (alignment->last.keys[a] == alignment->previous.keys[b]) {
            twins[a++] = b++;
        } else {
            resynchronise(alignment, &a, &b);
        }
    }
}

gml_status
gml_align_steps(const gml_step *last, const gml_step *previous, size_t *twins)
{
    aligner alignment;
    gml_status status = open_alignment(&alignment, last, previous);
    if (status == GML_OK) {
        for (size_t i = 0; i < last->request_count; i++) {
            twins[i] = GML_NO_TWIN;
        }
        find_twins(&alignment, twins);
    }
    close_alignment(&alignment);
    return status;
}
