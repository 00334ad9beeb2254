/* The guest: PyTorch's caching algorithm in memory that it takes from another policy.
 *
 * What the algorithm takes to be a device is that policy: its malloc is a block of the policy for
 * the stream that is being served, its free gives the block back. So requests are placed as PyTorch
 * places them, and what it holds idle can be had by the policy after a trim, without a driver call.
 * Freeing a segment needs no wait: blocks of one segment serve one stream only, not one handle, and
 * the policy reuses what a stream freed on that stream. Everything else goes to the real driver.
 */
#ifndef GML_LAKE_GUEST_H
#define GML_LAKE_GUEST_H

#include "policy/policy.h"

typedef struct gml_guest gml_guest;

/* A guest of `host`, which outlives it. On failure host->driver->reason says why. */
gml_status gml_guest_open(gml_policy *host, const gml_knobs *knobs, gml_guest **out);

/* Gives every segment back to the host, live blocks included. NULL is allowed. */
gml_status gml_guest_close(gml_guest *guest);

/* Allocates as ops->allocate() does. */
gml_status gml_guest_allocate(gml_guest *guest, uint64_t size_bytes, gml_stream stream,
                              gml_block **out);

/* `stream` will be destroyed: what it holds idle goes back to the host, and a stream that gets its
 * handle is served from other segments. pre: the host knows the stream still. */
gml_status gml_guest_forget(gml_guest *guest, gml_stream stream);

/* `host`, which is a policy around the one before, takes its place. */
void gml_guest_move(gml_guest *guest, gml_policy *host);

/* The caching policy, for everything but allocating. */
gml_policy *gml_guest_policy(gml_guest *guest);

#endif
