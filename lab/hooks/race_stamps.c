#include "hooks/race_stamps.h"

#include <stdlib.h>

enum { FIRST_ROOM = 4 };

void gml_stamps_clear(gml_stamps *set) {
    free(set->more);
    *set = (gml_stamps){0};
}

gml_stamp *gml_stamps_find(gml_stamps *set, size_t stream) {
    for (size_t i = 0; i < set->count; i++) {
        if (gml_stamps_at(set, i)->stream == stream) {
            return gml_stamps_at(set, i);
        }
    }
    return NULL;
}

/* Makes room for one more. */
static bool grow(gml_stamps *set) {
    if (set->count <= set->more_room) {
        return true;
    }
    size_t room = set->more_room ? set->more_room * 2 : FIRST_ROOM;
    gml_stamp *more = realloc(set->more, room * sizeof *more);
    if (more) {
        set->more = more;
        set->more_room = room;
    }
    return more != NULL;
}

bool gml_stamps_add(gml_stamps *set, size_t stream) {
    if (gml_stamps_find(set, stream)) {
        return true;
    }
    if (!grow(set)) {
        return false;
    }
    *gml_stamps_at(set, set->count++) = (gml_stamp){stream, 0};
    return true;
}
