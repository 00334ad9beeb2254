/* The address ranges of `gmlake-paper` and their driver calls, including those that fail half-way:
 * what the driver does not take back is kept as a leftover and offered again. */
#include "base/status.h"
#include "core/mapping.h"
#include "paper/paper.h"

#include <stdlib.h>

void gml_paper_list_add(gml_paper_list *list, gml_paper_range *range) {
    range->previous = NULL;
    range->next = list->first;
    if (list->first) {
        list->first->previous = range;
    }
    list->first = range;
    list->count++;
}

void gml_paper_list_remove(gml_paper_list *list, gml_paper_range *range) {
    if (range->previous) {
        range->previous->next = range->next;
    } else {
        list->first = range->next;
    }
    if (range->next) {
        range->next->previous = range->previous;
    }
    list->count--;
}

gml_status gml_paper_range_map(gml_paper *self, gml_paper_range *range, const gml_handle *handles) {
    gml_driver *driver = self->base.driver;
    uint64_t size_bytes = range->node.size_bytes;
    gml_status status = gml_driver_reserve(driver, size_bytes, 0, &range->node.address);
    if (status != GML_OK) {
        return status;
    }
    range->is_reserved = true;
    gml_address end = range->node.address + size_bytes;
    for (gml_address at = range->node.address; at < end && status == GML_OK;
         at += self->chunk_bytes) {
        status = gml_driver_map(driver, at, self->chunk_bytes, *handles++);
        range->mapped_bytes += status == GML_OK ? self->chunk_bytes : 0;
    }
    for (gml_address at = range->node.address; at < end && status == GML_OK;
         at += self->chunk_bytes) { /* GMLake's published code opens access chunk by chunk */
        status = gml_driver_set_access(driver, at, self->chunk_bytes);
    }
    return status;
}

static gml_status close_address(gml_driver *driver, gml_paper_range *range) {
    gml_status status = GML_OK;
    if (range->mapped_bytes) {
        status = gml_driver_unmap(driver, range->node.address, range->mapped_bytes);
        if (status == GML_OK) {
            range->mapped_bytes = 0;
        }
    }
    if (status == GML_OK && range->is_reserved) {
        status = gml_driver_unreserve(driver, range->node.address, range->node.size_bytes);
        range->is_reserved = status != GML_OK;
    }
    return status;
}

/* Releases a primitive's chunks and keeps those that the driver refused, packed to the front. */
static gml_status release_chunks(gml_paper *self, gml_paper_range *range) {
    if (range->is_view || !range->handle_count) {
        return GML_OK;
    }
    gml_status status = gml_chunks_release(self->base.driver, range->handles, range->handle_count);
    size_t kept = 0;
    for (size_t i = 0; i < range->handle_count; i++) {
        if (range->handles[i]) {
            range->handles[kept++] = range->handles[i];
        }
    }
    self->base.reserved_bytes -= (range->handle_count - kept) * self->chunk_bytes;
    range->handle_count = kept;
    return status;
}

/* Everything that the range still holds; stays resumable after a failure. Chunks go only after the
 * mapping over them, so that "released" means that the memory is free. */
static gml_status close_range(gml_paper *self, gml_paper_range *range) {
    gml_status status = close_address(self->base.driver, range);
    if (!range->mapped_bytes) {
        gml_status released = release_chunks(self, range);
        status = status == GML_OK ? released : status;
    }
    return status;
}

static void free_range(gml_paper *self, gml_paper_range *range) {
    free(range->handles);
    gml_pool_give(&self->range_pool, range);
}

gml_status gml_paper_range_drop(gml_paper *self, gml_paper_range *range) {
    gml_status status = close_range(self, range);
    if (status == GML_OK) {
        free_range(self, range);
    } else {
        gml_paper_list_add(&self->leftovers, range);
    }
    return status;
}

gml_status gml_paper_sweep(gml_paper *self) {
    gml_status first = GML_OK;
    gml_paper_range *next;
    for (gml_paper_range *range = self->leftovers.first; range; range = next) {
        next = range->next;
        gml_status status = close_range(self, range);
        if (status == GML_OK) {
            gml_paper_list_remove(&self->leftovers, range);
            free_range(self, range);
        }
        first = gml_first_failure(first, status);
    }
    return first;
}

void gml_paper_forget_leftovers(gml_paper *self) {
    gml_paper_range *next;
    for (gml_paper_range *range = self->leftovers.first; range; range = next) {
        next = range->next;
        free_range(self, range);
    }
    self->leftovers = (gml_paper_list){0};
}
