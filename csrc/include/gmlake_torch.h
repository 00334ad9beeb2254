/* gmlake below PyTorch: the lakes that serve a process, and how they are opened.
 *
 * PyTorch has one allocator per process, hence one registry: a lake per device, opened by the first
 * request that needs it and never closed, since tensors may be freed until the very end of the
 * process. The adapter (csrc/torch/native) asks these lakes on PyTorch's behalf.
 *
 * No function here takes Python's GIL, calls Python, or calls PyTorch's allocator. Any thread may
 * call any of them. After fork() the child has no lakes and opens its own.
 */
#ifndef GMLAKE_TORCH_H
#define GMLAKE_TORCH_H

#include "gmlake.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    GML_TORCH_DEVICES = 128, /* as many as PyTorch knows at most */
    GML_TORCH_REGIONS = 256, /* lakes of regions, of all devices together */
};

/* Configures lakes opened from now on; `device` is ignored, strings and settings are copied.
 * Default: the driver `cuda`, the policy `stitch`, nothing else. GML_INVALID_ARGUMENT, with a
 * reason, for an unknown policy or setting, and once a lake is open, unless the configuration is
 * the same; GML_NO_HOST_MEMORY. */
GML_API gml_status gml_torch_configure(const gml_lake_config *config, char *reason,
                                       size_t reason_bytes);

/* The lake of a device, NULL before its first request; numbers from GML_TORCH_DEVICES on, without a
 * gap, are regions, see gml_torch_region_of(). Do not close it. */
GML_API gml_lake *gml_torch_lake(int number);

/* A region: one lake on each device, which can sleep (gmlake_sleep.h). */
typedef struct gml_region {
    int number;        /* by the caller; 0: no region, but the lakes of the devices */
    bool takes_graphs; /* also the memory of graphs captured in it, and of the pools where they are,
                        * which the lakes of the devices serve otherwise */
    bool is_exclusive; /* each block lies in one chunk, as transports want it, under PyTorch's
                        * caching algorithm */
} gml_region;

/* Serves this thread's requests from the lakes of that region. `is_everywhere`: also those of
 * threads that are in no region of their own, such as backward passes. A thread's last open entry
 * applies. `owner`: any address; identifies the entry when it ends. GML_NO_HOST_MEMORY. */
GML_API gml_status gml_torch_enter_region(gml_region region, bool is_everywhere, const void *owner);

/* Graphs that this thread begins to capture take turns with all of that number, which is not 0, see
 * gml_lake_begin_pool_in_turn(); ended by gml_torch_leave_region(). GML_NO_HOST_MEMORY. */
GML_API gml_status gml_torch_enter_turn(uint64_t turn, const void *owner);

/* The turn of this thread's graphs; 0: none. */
GML_API uint64_t gml_torch_turn(void);

/* gml_lake_spoil_graph() on the lake that has the graph, with a reason of one line. */
GML_API gml_status gml_torch_spoil_graph(uint64_t graph, gml_stream stream, char *reason,
                                         size_t reason_bytes);

/* Ends the owner's last entry of this thread, else its last of any thread; its other entries stay
 * open, in any order. False if the owner has no entry. */
GML_API bool gml_torch_leave_region(const void *owner);

/* The region that this thread is in; number 0: none. Hot: every request asks. */
GML_API gml_region gml_torch_region(void);

/* Whether an entry into a region is open, of any thread. */
GML_API bool gml_torch_has_entered(void);

/* The device of the open lake of that number. */
GML_API int gml_torch_device_of(int number);

/* The region of the open lake of that number; number 0 if it is a device's or not open. */
GML_API gml_region gml_torch_region_of(int number);

/* Why the lake of that device could not be opened with the configured policy and serves as
 * `caching` instead; "" where it is as configured or not open. Always terminated. */
GML_API void gml_torch_fallback(int device, char *out, size_t out_bytes);

/* Where out-of-memory messages from now on tell the user to look, such as a report just written; ""
 * for none. Longer texts are cut. */
GML_API void gml_torch_note_refusals(const char *where);

/* Asked before a request of that size on that device is refused: gives up memory that can be
 * spared, and returns whether it did, in which case the request is served again. Called in the
 * thread that allocates, without locks, and not during a capture; again inside of itself, if what
 * it allocates is refused. */
typedef bool (*gml_torch_relief)(int device, uint64_t size_bytes);

/* Sets who is asked from now on; NULL: nobody. */
GML_API void gml_torch_set_relief(gml_torch_relief relief);

/* gml_lake_set_margin() for the lake of every region, open now or later. */
GML_API void gml_torch_set_margin(uint64_t margin_bytes);

/* ---- one device, several processes ----------------------------------------------------------- */

/* Shares the device with the processes of this user, in its network namespace, that share by the
 * same name: before one of them is refused memory, the others give what they hold idle, each from a
 * thread of its own, without stopping a stream. Begins with the first lake of the device, and ends
 * with the process or gml_torch_unshare(); a child of fork() begins anew. `name`: any text; one for
 * each device.
 * Who gives first: those of the lowest `priority`, of these the one with most idle memory for its
 * `weight`, above 0. Another call changes the terms. GML_INVALID_ARGUMENT; GML_UNSUPPORTED where it
 * cannot begin; GML_NO_HOST_MEMORY. A reason of one line. */
GML_API gml_status gml_torch_share(int device, const char *name, int32_t priority, uint32_t weight,
                                   char *reason, size_t reason_bytes);

/* Ends it on every device. */
GML_API void gml_torch_unshare(void);

/* Asks the others for what the device lacks for a request of that size; whether they gave any,
 * which somebody else may have taken meanwhile. False at once where the device is not shared, or
 * where a limit of this process refuses the request. is_for_lake: a lake will take it, so that it
 * need not be free on the device; for others what came as files goes to the device first. pre: no
 * lake's lock is held. */
GML_API bool gml_torch_ask_neighbours(int device, uint64_t size_bytes, bool is_for_lake);

/* Has the others give `wanted_bytes`, for what no lake asks for: the context and the kernels of a
 * process that begins. Whether they gave any; also before a lake is open. */
GML_API bool gml_torch_make_room(int device, uint64_t wanted_bytes);

enum { GML_SHARE_PLACES = 64 }; /* for processes that share a device */

/* Another process that shares a device. */
typedef struct gml_torch_neighbour {
    int process; /* its number; 0: it has none here */
    int32_t priority;
    uint64_t held_bytes; /* on the device */
    uint64_t idle_bytes; /* of them, that it could give */
    bool is_silent;      /* it does not answer, so that it is passed over */
    bool is_stopped;     /* that is why */
} gml_torch_neighbour;

typedef struct gml_torch_shared {
    bool is_shared;
    uint64_t given_bytes, taken_bytes; /* by this process to others and from them, so far */
    uint64_t handed_bytes;             /* of taken_bytes: as files, without the driver */
    uint64_t longest_ns;               /* that others were waited for, in one question */
    char why[320];                     /* it could not be shared; "" */
} gml_torch_shared;

/* How a device is shared. */
GML_API void gml_torch_sharing(int device, gml_torch_shared *out);

/* Asks the other processes that share it now what they have; returns how many there are. */
GML_API size_t gml_torch_neighbours(int device, gml_torch_neighbour out[GML_SHARE_PLACES]);

/* The same of all that share by that name, for who does not share itself. 0 also where there is no
 * host memory. */
GML_API size_t gml_torch_look_at(const char *name, gml_torch_neighbour out[GML_SHARE_PLACES]);

#ifdef __cplusplus
}
#endif

#endif
