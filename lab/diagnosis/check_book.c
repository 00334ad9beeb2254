#include "diagnosis/check_book.h"

#include <stdlib.h>

static gml_status reserve(gml_check_book *book) {
    size_t objects = book->trace->object_count;
    book->alloc = malloc((objects + 1) * sizeof *book->alloc);
    book->free = malloc((objects + 1) * sizeof *book->free);
    book->uses = malloc((book->trace->access_count + 1) * sizeof *book->uses);
    book->first_use = calloc(objects + 2, sizeof *book->first_use);
    if (!book->alloc || !book->free || !book->uses || !book->first_use) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t o = 0; o < objects; o++) {
        book->alloc[o] = GML_NO_API;
        book->free[o] = GML_NO_API;
    }
    return GML_OK;
}

static void note_lives(gml_check_book *book) {
    for (size_t a = 0; a < book->trace->api_count; a++) {
        const gml_api *api = &book->trace->apis[a];
        if (api->kind == GML_API_ALLOC) {
            book->alloc[api->object] = a;
        } else if (api->kind == GML_API_FREE) {
            book->free[api->object] = a;
        }
    }
}

/* Counting sort by object. first_use[o + 1] is where the next use of o goes until all are placed.
 */
static void note_uses(gml_check_book *book) {
    const gml_object_trace *trace = book->trace;
    for (size_t i = 0; i < trace->access_count; i++) {
        book->first_use[trace->accesses[i].object + 2]++;
    }
    for (size_t o = 0; o < trace->object_count; o++) {
        book->first_use[o + 2] += book->first_use[o + 1];
    }
    for (size_t a = 0; a < trace->api_count; a++) {
        const gml_api *api = &trace->apis[a];
        for (uint32_t i = 0; i < api->access_count; i++) {
            uint32_t access = (uint32_t)api->first_access + i;
            size_t place = book->first_use[trace->accesses[access].object + 1]++;
            book->uses[place] = (gml_check_use){(uint32_t)a, access};
        }
    }
}

gml_status gml_check_book_open(gml_check_book *book, const gml_object_trace *trace,
                               const gml_diagnosis *diagnosis) {
    *book = (gml_check_book){.trace = trace, .diagnosis = diagnosis};
    gml_status status = reserve(book);
    if (status == GML_OK) {
        note_lives(book);
        note_uses(book);
    }
    return status;
}

void gml_check_book_close(gml_check_book *book) {
    free(book->alloc);
    free(book->free);
    free(book->uses);
    free(book->first_use);
    *book = (gml_check_book){0};
}

gml_status gml_check_look(const gml_check_book *book, uint64_t looks) {
    if (looks > *book->looks) {
        return GML_UNSUPPORTED;
    }
    *book->looks -= looks;
    return GML_OK;
}

bool gml_check_is_kept(const gml_check_book *book, uint32_t object) {
    return book->trace->objects[object].flags & GML_OBJECT_KEPT && book->free[object] == GML_NO_API;
}

size_t gml_check_use_from(const gml_check_book *book, uint32_t object, uint64_t api) {
    size_t low = book->first_use[object], high = book->first_use[object + 1];
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (book->uses[middle].api >= api) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

bool gml_check_accesses(const gml_check_book *book, uint32_t object, uint64_t api) {
    size_t place = gml_check_use_from(book, object, api);
    return place < book->first_use[object + 1] && book->uses[place].api == api;
}
