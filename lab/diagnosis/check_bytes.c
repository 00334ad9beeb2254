#include "diagnosis/check_bytes.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS_AT_ONCE = 8 };

static gml_status reserve(gml_byte_map *map, size_t count, size_t width) {
    *map = (gml_byte_map){
        .ends = calloc(count, sizeof *map->ends),
        .words = calloc(count * width, sizeof *map->words),
        .width = width,
    };
    return map->ends && map->words ? GML_OK : GML_NO_HOST_MEMORY;
}

gml_status gml_byte_map_open(gml_byte_map *map, uint64_t size_bytes, size_t width,
                             uint64_t *looks) {
    gml_status status = reserve(map, 1, width);
    map->looks = looks;
    if (status == GML_OK) {
        map->ends[0] = size_bytes;
        map->count = 1;
    }
    return status;
}

void gml_byte_map_close(gml_byte_map *map) {
    free(map->ends);
    free(map->words);
    *map = (gml_byte_map){0};
}

static uint64_t *words_of(const gml_byte_map *map, size_t segment) {
    return map->words + segment * map->width;
}

/* Appends a segment, to the last one where both are the same. */
static void append(gml_byte_map *map, uint64_t end, const uint64_t *words) {
    size_t bytes = map->width * sizeof *words;
    if (map->count > 0 && memcmp(words_of(map, map->count - 1), words, bytes) == 0) {
        map->ends[map->count - 1] = end;
        return;
    }
    map->ends[map->count] = end;
    memcpy(words_of(map, map->count), words, bytes);
    map->count++;
}

/* The old segments and the visited parts of them, from the left to the right, into the new map. */
static gml_status rebuild(gml_byte_map *map, const gml_byte_map *old, const gml_byte_set *runs,
                          gml_byte_visit visit, void *state) {
    gml_status status = GML_OK;
    uint64_t place = 0;
    uint64_t *words = malloc(map->width * sizeof *words);
    if (!words) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t i = 0, j = 0; status == GML_OK && i < old->count;) {
        while (j < runs->count && runs->items[j].end <= place) {
            j++;
        }
        bool is_inside = j < runs->count && runs->items[j].begin <= place;
        uint64_t stop = j == runs->count ? UINT64_MAX
                        : is_inside      ? runs->items[j].end
                                         : runs->items[j].begin;
        stop = stop < old->ends[i] ? stop : old->ends[i];
        memcpy(words, words_of(old, i), map->width * sizeof *words);
        status = is_inside ? visit(state, words, place) : GML_OK;
        append(map, stop, words);
        place = stop;
        i += place == old->ends[i];
    }
    free(words);
    return status;
}

gml_status gml_byte_map_visit(gml_byte_map *map, const gml_byte_set *runs, gml_byte_visit visit,
                              void *state) {
    gml_byte_map renewed;
    uint64_t looks = (map->count + 2 * runs->count) * (1 + map->width / WORDS_AT_ONCE);
    if (looks > *map->looks) {
        return GML_UNSUPPORTED;
    }
    *map->looks -= looks;
    gml_status status = reserve(&renewed, map->count + 2 * runs->count, map->width);
    renewed.looks = map->looks;
    if (status == GML_OK) {
        status = rebuild(&renewed, map, runs, visit, state);
    }
    if (status != GML_OK) {
        gml_byte_map_close(&renewed);
        return status;
    }
    gml_byte_map_close(map);
    *map = renewed;
    return GML_OK;
}
