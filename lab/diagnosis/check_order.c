/* Clocks of streams, byte by byte. The clock of an API tells, for each stream, how many of its APIs
 * are over when it is. Each byte has two: of what wrote it last, and of all that read it since. */
#include "diagnosis/check_book.h"
#include "diagnosis/check_bytes.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* Two objects that share a memory. */
typedef struct pair {
    uint32_t giver, taker;
    uint32_t next_of_giver, next_of_taker;
} pair;

typedef struct order_walk {
    const gml_check_book *book;
    size_t streams;
    uint32_t *stream_of; /* of each API */
    uint64_t *turns;     /* of each stream: its APIs so far */
    uint64_t *clocks;    /* of the last API of each stream */
    uint64_t *clock;     /* of the API at hand */
    gml_byte_map *maps;  /* of each object that lives */
    pair *pairs;
    uint64_t *needed; /* of each pair: APIs that must complete before the taker starts */
    uint32_t *of_giver, *of_taker; /* of each object: its first pair, or NONE */
    gml_byte_set runs;
} order_walk;

static unsigned long long number(uint64_t value) {
    return value;
}

/* ---- streams --------------------------------------------------------------------------------- */

typedef struct stream_use {
    gml_stream stream;
    size_t api;
} stream_use;

static int compare_streams(const void *a, const void *b) {
    const stream_use *left = a, *right = b;
    return (left->stream > right->stream) - (left->stream < right->stream);
}

static gml_status number_streams(order_walk *walk) {
    const gml_object_trace *trace = walk->book->trace;
    stream_use *list = malloc((trace->api_count + 1) * sizeof *list);
    walk->stream_of = malloc((trace->api_count + 1) * sizeof *walk->stream_of);
    if (!list || !walk->stream_of) {
        free(list);
        return GML_NO_HOST_MEMORY;
    }
    for (size_t a = 0; a < trace->api_count; a++) {
        list[a] = (stream_use){trace->apis[a].stream, a};
    }
    qsort(list, trace->api_count, sizeof *list, compare_streams);
    for (size_t i = 0; i < trace->api_count; i++) {
        walk->streams += i == 0 || list[i].stream != list[i - 1].stream;
        walk->stream_of[list[i].api] = (uint32_t)walk->streams - 1;
    }
    free(list);
    return GML_OK;
}

/* ---- clocks ---------------------------------------------------------------------------------- */

static void join(uint64_t *clock, const uint64_t *other, size_t streams) {
    for (size_t s = 0; s < streams; s++) {
        clock[s] = other[s] > clock[s] ? other[s] : clock[s];
    }
}

static gml_status follow_write(void *state, uint64_t *words, uint64_t begin) {
    (void)begin;
    const order_walk *walk = state;
    join(walk->clock, words, walk->streams);
    return GML_OK;
}

static gml_status follow_all(void *state, uint64_t *words, uint64_t begin) {
    const order_walk *walk = state;
    join(walk->clock, words + walk->streams, walk->streams);
    return follow_write(state, words, begin);
}

static gml_status note_read(void *state, uint64_t *words, uint64_t begin) {
    (void)begin;
    const order_walk *walk = state;
    join(words + walk->streams, walk->clock, walk->streams);
    return GML_OK;
}

static gml_status note_write(void *state, uint64_t *words, uint64_t begin) {
    (void)begin;
    const order_walk *walk = state;
    memcpy(words, walk->clock, walk->streams * sizeof *words);
    memset(words + walk->streams, 0, walk->streams * sizeof *words);
    return GML_OK;
}

static gml_status open_map(order_walk *walk, uint32_t object) {
    gml_byte_map *map = &walk->maps[object];
    return map->ends ? GML_OK
                     : gml_byte_map_open(map, walk->book->trace->objects[object].size_bytes,
                                         2 * walk->streams, walk->book->looks);
}

/* Of an access to the bytes in walk->runs. */
static gml_status visit_runs(order_walk *walk, uint32_t object, gml_byte_visit visit) {
    gml_status status = open_map(walk, object);
    return status == GML_OK ? gml_byte_map_visit(&walk->maps[object], &walk->runs, visit, walk)
                            : status;
}

static gml_status visit_access(order_walk *walk, const gml_access *access, gml_byte_visit read,
                               gml_byte_visit write) {
    walk->runs.count = 0;
    gml_status status = gml_byte_set_append_access(&walk->runs, walk->book->trace, access, 1);
    gml_byte_set_normalize(&walk->runs);
    bool is_write = access->flags & GML_ACCESS_WRITES;
    return status == GML_OK ? visit_runs(walk, access->object, is_write ? write : read) : status;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

static uint64_t *needed_of(const order_walk *walk, uint32_t place) {
    return walk->needed + place * walk->streams;
}

static gml_status refuse(const order_walk *walk, const pair *shared, uint64_t api) {
    return GML_CHECK_REFUSE(walk->book,
                            "API %llu is not ordered with all that use object %u, whose memory "
                            "object %u would share",
                            number(api), shared->giver, shared->taker);
}

/* pre: walk->clock is the API's. That all accesses to the giver come first in order of invocation
 * is checked with its bytes. */
static gml_status check_pairs(order_walk *walk, uint32_t object, uint64_t api) {
    for (uint32_t i = walk->of_taker[object]; i != NONE; i = walk->pairs[i].next_of_taker) {
        const uint64_t *needed = needed_of(walk, i);
        for (size_t s = 0; s < walk->streams; s++) {
            if (needed[s] > walk->clock[s]) {
                return refuse(walk, &walk->pairs[i], api);
            }
        }
    }
    uint32_t stream = walk->stream_of[api];
    for (uint32_t i = walk->of_giver[object]; i != NONE; i = walk->pairs[i].next_of_giver) {
        needed_of(walk, i)[stream] = walk->clock[stream];
    }
    return GML_OK;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static gml_status walk_accesses(order_walk *walk, size_t a) {
    const gml_api *api = &walk->book->trace->apis[a];
    const gml_access *accesses = walk->book->trace->accesses + api->first_access;
    gml_status status = GML_OK;
    for (uint32_t i = 0; status == GML_OK && i < api->access_count; i++) {
        status = visit_access(walk, &accesses[i], follow_write, follow_all);
    }
    for (uint32_t i = 0; status == GML_OK && i < api->access_count; i++) {
        status = check_pairs(walk, accesses[i].object, a);
    }
    for (uint32_t i = 0; status == GML_OK && i < api->access_count; i++) {
        status = visit_access(walk, &accesses[i], note_read, note_write);
    }
    return status;
}

static gml_status walk_apis(order_walk *walk) {
    gml_status status = GML_OK;
    for (size_t a = 0; status == GML_OK && a < walk->book->trace->api_count; a++) {
        const gml_api *api = &walk->book->trace->apis[a];
        uint32_t stream = walk->stream_of[a];
        uint64_t *last = walk->clocks + stream * walk->streams;
        memcpy(walk->clock, last, walk->streams * sizeof *last);
        walk->clock[stream] = ++walk->turns[stream];
        status = walk_accesses(walk, a);
        if (api->kind == GML_API_FREE) {
            gml_byte_map_close(&walk->maps[api->object]);
        }
        memcpy(last, walk->clock, walk->streams * sizeof *last);
    }
    return status;
}

static void list_pairs(order_walk *walk, const gml_check_entry *entries, size_t count) {
    for (size_t o = 0; o < walk->book->trace->object_count; o++) {
        walk->of_giver[o] = NONE;
        walk->of_taker[o] = NONE;
    }
    uint32_t place = 0;
    for (size_t i = 0; i < count; i++) {
        if (!entries[i].gives_memory) {
            continue;
        }
        const gml_finding *finding = entries[i].finding;
        walk->pairs[place] = (pair){
            .giver = finding->other,
            .taker = finding->object,
            .next_of_giver = walk->of_giver[finding->other],
            .next_of_taker = walk->of_taker[finding->object],
        };
        walk->of_giver[finding->other] = place;
        walk->of_taker[finding->object] = place;
        place++;
    }
}

static gml_status reserve(order_walk *walk, size_t pairs) {
    size_t objects = walk->book->trace->object_count, streams = walk->streams;
    walk->turns = calloc(streams, sizeof *walk->turns);
    walk->clocks = calloc(streams * streams, sizeof *walk->clocks);
    walk->clock = calloc(streams, sizeof *walk->clock);
    walk->maps = calloc(objects, sizeof *walk->maps);
    walk->pairs = calloc(pairs, sizeof *walk->pairs);
    walk->needed = calloc(pairs * streams, sizeof *walk->needed);
    walk->of_giver = malloc(objects * sizeof *walk->of_giver);
    walk->of_taker = malloc(objects * sizeof *walk->of_taker);
    return walk->turns && walk->clocks && walk->clock && walk->maps && walk->pairs &&
                   walk->needed && walk->of_giver && walk->of_taker
               ? GML_OK
               : GML_NO_HOST_MEMORY;
}

static void close_walk(order_walk *walk) {
    for (size_t o = 0; walk->maps && o < walk->book->trace->object_count; o++) {
        gml_byte_map_close(&walk->maps[o]);
    }
    free(walk->stream_of);
    free(walk->turns);
    free(walk->clocks);
    free(walk->clock);
    free(walk->maps);
    free(walk->pairs);
    free(walk->needed);
    free(walk->of_giver);
    free(walk->of_taker);
    gml_byte_set_clear(&walk->runs);
}

gml_status gml_check_order(const gml_check_book *book, const gml_check_entry *entries,
                           size_t count) {
    size_t pairs = 0;
    for (size_t i = 0; i < count; i++) {
        pairs += entries[i].gives_memory;
    }
    if (pairs == 0) {
        return GML_OK;
    }
    order_walk walk = {.book = book};
    gml_status status = number_streams(&walk);
    /* One stream is in order of invocation, which the bytes are checked in. */
    if (status == GML_OK && walk.streams > 1) {
        status = reserve(&walk, pairs);
        if (status == GML_OK) {
            list_pairs(&walk, entries, count);
            status = walk_apis(&walk);
        }
    }
    close_walk(&walk);
    return status;
}
