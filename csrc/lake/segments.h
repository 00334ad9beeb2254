/* What a lake holds from the device, as events: which addresses came and went. */
#ifndef GML_LAKE_SEGMENTS_H
#define GML_LAKE_SEGMENTS_H

#include "gmlake.h"

/* Physical memory at one place. */
typedef struct gml_held {
    gml_address address;
    uint64_t size_bytes;
    gml_stream stream;
} gml_held;

/* In address order, without overlaps. */
typedef struct gml_held_list {
    gml_held *list;
    size_t count, room;
} gml_held_list;

/* Looks at what the lake holds, to compare with later; nothing where no events are kept. */
void gml_lake_begin_segments(gml_lake *lake);

/* Notes SEGMENT_FREE and SEGMENT_ALLOC events, in this order, for what went and came since the last
 * look. Their sizes make up the change from `before_bytes` to `reserved_bytes`: what has no place
 * of its own (left over from a failed call, or not seen without host memory) is one more event at
 * address 0. Linear in what is held, so for changes of what is reserved only. pre: events are kept.
 */
void gml_lake_note_segments(gml_lake *lake, uint64_t before_bytes, uint64_t reserved_bytes);

/* Gives the host memory of a list back. */
void gml_held_list_clear(gml_held_list *held);

#endif
