/* STAlloc's synthesis: local plans by phase, then global planning by size. */
#include "stalloc/stalloc.h"

#include <stdlib.h>

gml_status gml_stalloc_requests_open(gml_stalloc_requests *requests, size_t item_count) {
    *requests = (gml_stalloc_requests){
        .list = calloc(item_count + 1, sizeof *requests->list),
        .items = calloc(item_count + 1, sizeof *requests->items),
        .addresses = calloc(item_count + 1, sizeof *requests->addresses),
    };
    return requests->list && requests->items && requests->addresses ? GML_OK : GML_NO_HOST_MEMORY;
}

void gml_stalloc_requests_close(gml_stalloc_requests *requests) {
    free(requests->list);
    free(requests->items);
    free(requests->addresses);
    *requests = (gml_stalloc_requests){0};
}

static void write_offsets(const gml_instance *instance, const gml_stalloc_requests *requests,
                          const uint64_t *bases, uint64_t *offsets, uint64_t *peak_bytes) {
    uint64_t peak = 0;
    for (size_t r = 0; r < requests->count; r++) {
        const gml_stalloc_request *request = &requests->list[r];
        for (uint32_t i = 0; i < request->count; i++) {
            uint32_t item = requests->items[request->first + i];
            uint64_t offset = bases[r] + requests->addresses[item];
            uint64_t top = offset + instance->sizes[item];
            offsets[item] = offset;
            peak = top > peak ? top : peak;
        }
    }
    *peak_bytes = peak;
}

gml_status gml_stalloc_place(const gml_problem *problem, const gml_instance *instance,
                             uint64_t *offsets, uint64_t *peak_bytes) {
    gml_stalloc_requests requests;
    uint64_t *bases = calloc(instance->count + 1, sizeof *bases);
    gml_status status = gml_stalloc_requests_open(&requests, instance->count);
    if (!bases) {
        status = GML_NO_HOST_MEMORY;
    }
    if (status == GML_OK) {
        status = gml_stalloc_group(problem, instance, &requests);
    }
    if (status == GML_OK) {
        status = gml_stalloc_layer(&requests, bases);
    }
    if (status == GML_OK) {
        write_offsets(instance, &requests, bases, offsets, peak_bytes);
    }
    gml_stalloc_requests_close(&requests);
    free(bases);
    return status;
}
