#include "diagnosis/collect/live_objects.h"

#include "base/room.h"

#include <string.h>

/* The number of objects that begin at or below the address. */
static size_t count_up_to(const gml_live *live, uint64_t address) {
    size_t low = 0;
    size_t high = live->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (live->objects[middle].address <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool gml_live_add(gml_live *live, uint64_t address, uint64_t size_bytes) {
    if (!gml_make_room(&live->objects, &live->capacity, live->count + 1, sizeof *live->objects)) {
        return false;
    }
    size_t at = count_up_to(live, address);
    memmove(&live->objects[at + 1], &live->objects[at], (live->count - at) * sizeof *live->objects);
    live->objects[at] = (gml_live_object){address, size_bytes, ++live->serial, false};
    live->count++;
    return true;
}

bool gml_live_remove(gml_live *live, uint64_t address) {
    size_t above = count_up_to(live, address);
    if (above == 0 || live->objects[above - 1].address != address) {
        return false;
    }
    memmove(&live->objects[above - 1], &live->objects[above],
            (live->count - above) * sizeof *live->objects);
    live->count--;
    return true;
}

const gml_live_object *gml_live_find(const gml_live *live, uint64_t address) {
    size_t above = count_up_to(live, address);
    if (above == 0) {
        return NULL;
    }
    const gml_live_object *object = &live->objects[above - 1];
    return address - object->address < object->size_bytes ? object : NULL;
}

const gml_live_object *gml_live_find_in(const gml_live *live, uint64_t address,
                                        uint64_t size_bytes) {
    const gml_live_object *object = gml_live_find(live, address);
    if (object) {
        return object;
    }
    size_t above = count_up_to(live, address);
    bool begins_inside = above < live->count && live->objects[above].address - address < size_bytes;
    return begins_inside ? &live->objects[above] : NULL;
}
