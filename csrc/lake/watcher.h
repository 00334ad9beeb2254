/* Who is told which streams use what memory, to check that the order between them holds: a test aid
 * (aids/race.h). Every function is called under the lake's lock. */
#ifndef GML_LAKE_WATCHER_H
#define GML_LAKE_WATCHER_H

#include "gmlake.h"

struct gml_watcher {
    /* Work of `stream` may touch the range from here on; GML_CORRUPT where earlier uses of the same
     * physical memory are not ordered before it. */
    gml_status (*begin_use)(gml_watcher *self, gml_address address, uint64_t size_bytes,
                            gml_stream stream);
    /* Work of `stream` may touch the range, too, whose use began at `address`. */
    gml_status (*join_use)(gml_watcher *self, gml_address address, gml_stream stream);
    /* Work queued by now on the streams of the use that began at `address` was the last of it. */
    void (*end_use)(gml_watcher *self, gml_address address);
    /* The program says: what is queued on `later` from now on comes after all that is on `earlier`
     * by now. */
    void (*order)(gml_watcher *self, gml_stream later, gml_stream earlier);
    /* The program says: no more work comes to `stream`. Who waits for, or uses memory under the
     * same handle after this is another stream. */
    void (*forget)(gml_watcher *self, gml_stream stream);

    const char *reason; /* of the last failure */
};

#endif
