/* gmlake below PyTorch: the functions that PyTorch calls, and what decides how they answer.
 *
 * PyTorch takes the addresses of plain functions (torch.cuda.memory.CUDAPluggableAllocator and the
 * setters of its optional hooks). There is one set of them per process, hence one registry: a lake
 * per device, opened by the first request that needs it and never closed, since tensors may be
 * freed until the very end of the process.
 *
 * Two ways to be called:
 *   full  every tensor's request and free; a refusal is thrown as torch.OutOfMemoryError
 *   pool  the segments of a torch.cuda.MemPool; a refusal is NULL, and PyTorch does the rest
 *
 * No function here takes Python's GIL, calls Python, or calls PyTorch's allocator. Any thread may
 * call any of them. After fork() the child has no lakes: it may free what it inherited, which does
 * nothing, and opens lakes of its own.
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

/* How lakes are opened from now on; `device` is ignored, strings and settings are copied. Where
 * this is never called: the driver `cuda`, the policy `stitch`, nothing else. GML_INVALID_ARGUMENT,
 * with a reason, for a policy or setting that is not there, and once a lake is open, unless the
 * configuration is the same; GML_NO_HOST_MEMORY. */
GML_API gml_status gml_torch_configure(const gml_lake_config *config, char *reason,
                                       size_t reason_bytes);

/* Who serves on every lake, open now or later. See gml_lake_serve_with(). After a failure every
 * lake has the server that it had. */
GML_API gml_status gml_torch_serve_with(gml_server server);

/* The lake of a device, NULL while nothing has been asked of it; from GML_TORCH_DEVICES on, without
 * a gap, those of regions, see gml_torch_region_of(). Do not close it. */
GML_API gml_lake *gml_torch_lake(int number);

/* What this thread asks for from now on comes from lakes of that region, one for each device, which
 * can sleep (gmlake_sleep.h), or, for region 0, from those of the devices, as at first;
 * `is_everywhere`: also what threads ask for that are in no region of their own, those of backward
 * passes among them. Of the entries that are open, a thread's last one counts. Regions are numbered
 * by the caller, and two bits say more: whether the region takes the memory of graphs that are
 * captured in it, too, which is left to PyTorch's own allocator otherwise; and whether each block
 * lies in one chunk, as transports want it, under PyTorch's caching algorithm. `owner`: any
 * address, by which the entry is ended. GML_NO_HOST_MEMORY. */
enum { GML_TORCH_TAKES_GRAPHS = 1, GML_TORCH_EXCLUSIVE = 2 };
GML_API gml_status gml_torch_enter_region(int region, bool is_everywhere, const void *owner);

/* Ends the owner's last entry of this thread, else its last of any thread; the others hold on,
 * whatever the order. False where it has none. */
GML_API bool gml_torch_leave_region(const void *owner);

/* The region that this thread is in; 0: none. Hot: every request asks. */
GML_API int gml_torch_region(void);

/* Whether an entry is open, of any thread. */
GML_API bool gml_torch_has_entered(void);

/* The device of the open lake of that number. */
GML_API int gml_torch_device_of(int number);

/* The region of the open lake of that number; 0 where it is a device's, or there is none. */
GML_API int gml_torch_region_of(int number);

/* Why the lake of that device could not be opened with the configured policy and serves as
 * `caching` instead; "" where it is as configured or not open. Always terminated. */
GML_API void gml_torch_fallback(int device, char *out, size_t out_bytes);

/* Looks for what is needed to throw PyTorch's exceptions, in the libraries that this process has
 * loaded. GML_UNSUPPORTED, with a reason: in full mode the end of memory would not be a
 * torch.OutOfMemoryError, and without PyTorch's libraries it would be a crash. */
GML_API gml_status gml_torch_find_exceptions(char *reason, size_t reason_bytes);

/* Keeps histories of every lake, open now or later. See gml_lake_keep_history(). GML_NO_HOST_MEMORY
 * where that failed for a lake, whose history is then as it was; lakes opened later do as before.
 */
GML_API gml_status gml_torch_keep_history(size_t max_events);

/* What the text of a refusal for lack of memory names as the place to look at from now on, as a
 * file that was just written; "" for none. Longer texts are cut. */
GML_API void gml_torch_note_refusals(const char *where);

/* gml_lake_distrust_stream() for the lake of that device, open now or later. Nothing for the
 * streams that nobody can destroy: 0, cudaStreamLegacy and cudaStreamPerThread.
 * GML_INVALID_ARGUMENT for what is no device; GML_NO_HOST_MEMORY. */
GML_API gml_status gml_torch_distrust_stream(int device, gml_stream stream);

/* gml_lake_forget_stream() for the lake of that device, if it is open; also the end of distrust,
 * since a stream that has the same handle later is another one. */
GML_API gml_status gml_torch_forget_stream(int device, gml_stream stream);

/* gml_lake_set_margin() for the lake of every region, open now or later. */
GML_API void gml_torch_set_margin(uint64_t margin_bytes);

/* How many frees there were of addresses that no lake served. Nothing was done for them. */
GML_API uint64_t gml_torch_foreign_frees(void);

/* ---- what PyTorch calls -------------------------------------------------------------------------
 *
 * `stream` is a cudaStream_t.
 */

/* Throws c10::OutOfMemoryError where there is no memory, and c10::Error for any other
 * failure. Returns NULL if `size_bytes` is 0, and where gml_torch_find_exceptions() finds nothing
 * to throw. */
GML_API void *gml_torch_alloc(size_t size_bytes, int device, void *stream);
/* Ignores NULL. */
GML_API void gml_torch_free(void *address, size_t size_bytes, int device, void *stream);

/* Nothing: lakes are opened when they are needed. */
GML_API void gml_torch_init(int device_count);
/* Gives idle memory of every lake back; nothing while a graph is captured. */
GML_API void gml_torch_empty_cache(void);
/* The device may hold that fraction of its memory from now on, 1: all of it. */
GML_API void gml_torch_memory_fraction(double fraction, int device);
/* The start and, in *size_bytes, the size of the block that begins at `address`; for what no lake
 * served, `address` and 0. */
GML_API void *gml_torch_base(void *address, size_t *size_bytes);
/* Ignores NULL and what no lake served. Throws c10::Error where the host has no memory to remember
 * the use. */
GML_API void gml_torch_record_stream(void *address, void *stream);
/* Throws c10::Error where the lake cannot be opened or the host has no memory. `filter` is a
 * std::function of PyTorch's, by reference; not used, see gml_lake_begin_pool(). */
GML_API void gml_torch_begin_pool(int device, gml_pool_id id, void *filter);
/* These two ignore a pool that is not begun, or not in use. */
GML_API void gml_torch_end_pool(int device, gml_pool_id id);
GML_API void gml_torch_release_pool(int device, gml_pool_id id);

#ifdef __cplusplus
}
#endif

#endif
