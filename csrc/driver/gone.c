/* A list of ranges for each looker. */
#include "driver/gone.h"

#include <stdlib.h>

/* Of one list that nobody has looked at for long. */
enum { FIRST_RANGES = 16, MOST_RANGES = 4096 };

static void extend(gml_gone_range *range, gml_address address, gml_address end) {
    range->address = address < range->address || !range->end ? address : range->address;
    range->end = end > range->end ? end : range->end;
}

static bool has_room(gml_gone_list *list) {
    if (list->ranges && list->count < list->room) {
        return true;
    }
    size_t room = list->room ? 2 * list->room : FIRST_RANGES;
    gml_gone_range *grown =
        room <= MOST_RANGES ? realloc(list->ranges, room * sizeof *grown) : NULL;
    if (grown) {
        list->ranges = grown;
        list->room = room;
    }
    return grown != NULL;
}

static void add_to(gml_gone_list *list, gml_address address, gml_address end) {
    gml_gone_range *last = list->count ? &list->ranges[list->count - 1] : NULL;
    if (last && last->address <= end && address <= last->end) {
        extend(last, address, end);
    } else if (has_room(list)) {
        list->ranges[list->count++] = (gml_gone_range){address, end};
    } else {
        extend(&list->widest, address, end);
    }
}

void gml_gone_add(gml_gone *gone, gml_address address, uint64_t size_bytes) {
    for (int i = 0; i < GML_LOOKERS; i++) {
        if (gone->lists[i].is_wanted) {
            add_to(&gone->lists[i], address, address + size_bytes);
        }
    }
}

void gml_gone_clear(gml_gone *gone) {
    for (int i = 0; i < GML_LOOKERS; i++) {
        free(gone->lists[i].ranges);
    }
    *gone = (gml_gone){0};
}
