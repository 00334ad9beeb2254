/* Test hooks: wrappers around a lake's driver, and a checker of the streams that use memory. */
#ifndef GML_LAKE_HOOKS_H
#define GML_LAKE_HOOKS_H

#include "gmlake.h"

typedef enum gml_hook_layer {
    GML_HOOK_ONLY, /* the lake cannot sleep: between the policy and the driver */
    /* The sleep wrapper (remap.c) lies between two layers: tests can make its driver calls fail,
     * and the order check ignores its uses of memory. */
    GML_HOOK_BELOW_SLEEP,
    GML_HOOK_ABOVE_SLEEP
} gml_hook_layer;

struct gml_lake_hooks {
    /* Replaces *driver by a wrapper that owns it, or leaves it; after a failure it is what the lake
     * must close. May set *checker, which lives as long as the wrapper. Called by
     * gml_lake_open() only. */
    gml_status (*wrap)(const gml_lake_hooks *self, gml_hook_layer layer, gml_driver **driver,
                       gml_checker **checker);
};

/* Every function is called under the lake's lock. */
struct gml_checker {
    /* Work of `stream` may touch the range from here on; GML_CORRUPT where earlier uses of the same
     * physical memory are not ordered before it. */
    gml_status (*begin_use)(gml_checker *self, gml_address address, uint64_t size_bytes,
                            gml_stream stream);
    /* Work of `stream` may touch the range, too, whose use began at `address`. */
    gml_status (*join_use)(gml_checker *self, gml_address address, gml_stream stream);
    /* Work queued by now on the streams of the use that began at `address` was the last of it. */
    void (*end_use)(gml_checker *self, gml_address address);
    const char *reason; /* of the last failure */
};

#endif
