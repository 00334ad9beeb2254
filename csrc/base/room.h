/* Room in an array that grows. */
#ifndef GML_BASE_ROOM_H
#define GML_BASE_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Makes *room at least `count` items, which costs each item a constant in the long run. `array` is
 * the address of the pointer to the first item; at first that pointer is NULL, and *room 0. False,
 * and all is as it was, when the host has no memory. */
static inline bool gml_make_room(void *array, size_t *room, size_t count, size_t item_bytes) {
    const size_t least = 16;
    if (count <= *room) {
        return true;
    }
    size_t wanted = 2 * *room < least ? least : 2 * *room;
    wanted = wanted < count ? count : wanted;
    void *items;
    memcpy(&items, array, sizeof items);
    items = wanted <= SIZE_MAX / item_bytes ? realloc(items, wanted * item_bytes) : NULL;
    if (!items) {
        return false;
    }
    memcpy(array, &items, sizeof items);
    *room = wanted;
    return true;
}

#endif
