/* The two sides of PyTorch's C++ allocator interface: the core, as the adapter sees it, and the
 * adapter, as the core sees it.
 *
 * The adapter (adapter.cpp, with the .hpp beside it) is one unit of C++, compiled for one minor
 * version of PyTorch: the tables of virtual functions differ between them. It is loaded into a
 * process by itself and links nothing of gmlake. So all that it needs of the core is in one table
 * of functions, passed to it at installation. It decides only which allocator serves: PyTorch's
 * own, or a lake.
 */
#ifndef GML_TORCH_NATIVE_H
#define GML_TORCH_NATIVE_H

#include "gmlake.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    GML_NATIVE_VERSION = 19,
    GML_NATIVE_LAKES = 512, /* more than there are numbers of lakes */
};

/* Snapshots tell memory of a region as that of a private pool, since it serves nothing else: the
 * pool's id is this, "gmlake", and the number of the lake. PyTorch's have a 0. */
#define GML_NATIVE_REGION UINT64_C(0x656b616c6d67)

typedef struct gml_looks gml_looks;
typedef void (*gml_native_tell)(void *context, bool is_new, gml_address address,
                                uint64_t size_bytes, gml_pool_id pool);

/* Functions of gmlake.h, by their names there, and of the registry of lakes. */
typedef struct gml_native_core {
    uint32_t version; /* GML_NATIVE_VERSION */
    /* The lake of a device, by its ordinal, or of a region, by a higher number; NULL before its
     * first request. */
    gml_lake *(*find)(int number);
    /* The number of the lake that serves this thread on a device; one without a lake until it is
     * opened. */
    int (*serving)(int device);
    /* That lake, opened if need be; NULL with a reason of one line. */
    gml_lake *(*open)(int device, char *reason, size_t reason_bytes);
    /* The lake of the device itself, regardless of this thread's region. */
    gml_lake *(*open_of_device)(int device, char *reason, size_t reason_bytes);
    /* The device of the lake of that number. */
    int (*device_of)(int number);
    /* The number of the first open lake after `number`, -1 at first; -1: none. */
    int (*next)(int number);
    /* Whether this thread is in a region that takes the memory of graphs that are captured. */
    bool (*takes_graphs)(void);
    /* GML_OUT_OF_MEMORY is no refusal yet; see refuse. */
    gml_status (*allocate)(gml_lake *lake, uint64_t size_bytes, gml_stream stream,
                           gml_address *out);
    /* The same with memory of the host, where it is configured. */
    gml_status (*allocate_on_host)(gml_lake *lake, uint64_t size_bytes, gml_stream stream,
                                   gml_address *out);
    gml_status (*free)(gml_lake *lake, gml_address address);
    gml_status (*block)(gml_lake *lake, gml_address address, gml_block_info *out);
    bool (*is_over)(gml_lake *lake, gml_address address, uint64_t id);
    void (*pending)(gml_lake *lake, void (*see)(void *context, const gml_block_info *block),
                    void *context);
    gml_status (*record_stream)(gml_lake *lake, gml_address address, int device, gml_stream stream);
    gml_status (*trim)(gml_lake *lake, uint64_t *released_bytes);
    gml_status (*grant)(gml_lake *lake, int peer);
    /* Private pools. Whether those of the lake are of its own kind: else PyTorch's are better. */
    bool (*has_private_heaps)(gml_lake *lake);
    gml_status (*hold_pool)(gml_lake *lake, gml_pool_id id);
    /* In the turn of this thread's graphs. */
    gml_status (*begin_pool)(gml_lake *lake, gml_pool_id id);
    gml_status (*enter_pool)(gml_lake *lake, gml_pool_id id);
    gml_status (*end_pool)(gml_lake *lake, gml_pool_id id);
    gml_status (*abandon_pool)(gml_lake *lake, gml_pool_id id);
    gml_status (*release_pool)(gml_lake *lake, gml_pool_id id);
    gml_status (*set_pool)(gml_lake *lake, gml_pool_id id, gml_pool_flag flag, bool is_set);
    gml_status (*allocate_in)(gml_lake *lake, gml_pool_id id, uint64_t size_bytes,
                              gml_stream stream, gml_address *out);
    void (*pools)(gml_lake *lake, void (*see)(void *context, const gml_pool_info *info),
                  void *context);
    gml_status (*save_pool)(gml_lake *lake, gml_pool_id id, gml_pool_state **out);
    gml_status (*restore_pool)(gml_lake *lake, const gml_pool_state *state,
                               void (*see)(void *context, bool is_new, gml_address address),
                               void *context);
    void (*free_state)(gml_pool_state *state);
    /* Of a lake's last failure. */
    void (*reason)(gml_lake *lake, char *out, size_t out_bytes);
    gml_status (*stats)(gml_lake *lake, gml_stats *out);
    gml_status (*torch_stats)(gml_lake *lake, gml_torch_stats *out);
    gml_status (*reset_peaks)(gml_lake *lake);
    gml_status (*visit)(gml_lake *lake, const gml_visitor *visitor);
    /* Reports spans added and released in a lake since the last look of `*looks`, NULL before the
     * first: both where other memory lies at the same addresses now. A NULL `tell` only looks.
     * `tell` is called under the lake's lock. */
    void (*changes)(gml_lake *lake, gml_looks **looks, gml_native_tell tell, void *context);
    /* State shared by the lakes of a device, whether or not any is open. */
    gml_device *(*device)(int device);
    /* A capture there begins (1) or ends (-1) that is native's. */
    void (*freeze)(gml_device *device, int change);
    /* The most that they may hold together, of the device's memory; also before any is opened. */
    void (*limit)(int device, double fraction);
    /* The most that any device's memory may be, as configured; 0: all of it. */
    uint64_t (*capacity)(void);
    /* Whether other processes gave up memory for a request of that size, see gml_torch_share(). */
    bool (*ask_neighbours)(int device, uint64_t size_bytes, bool is_for_lake);
    /* What those leave free may be taken from now on (1), or no more (-1). */
    void (*spend)(gml_device *device, int change);
    /* Whether these or somebody in this process did, see gml_torch_set_relief(). pre: the device is
     * not frozen. */
    bool (*relieve)(int device, uint64_t size_bytes);
    /* Notes what is tried for the request of this thread before it is refused. */
    void (*note)(gml_tried step);
    /* After that, or after look(): it was served. */
    void (*served)(void);
    /* Takes the account of a request of this thread for which nobody has memory; native is still to
     * be asked, and its observers read the account. pool: that was to serve; NULL: none.
     * native_bytes: held by native. */
    void (*look)(gml_lake *lake, const gml_pool_id *pool, uint64_t size_bytes, gml_stream stream,
                 uint64_t native_bytes);
    /* Counts that request as refused. */
    void (*refuse)(gml_lake *lake);
    /* The status of a refusal in PyTorch: GML_OUT_OF_MEMORY for a size that no device could
     * hold. */
    gml_status (*refusal)(uint64_t size_bytes, gml_status status);
    /* The text for the user about a lake's refusal; NULL: it could not be opened, for `reason`. */
    void (*explain)(gml_lake *lake, int device, uint64_t size_bytes, gml_status status,
                    const char *reason, char *out, size_t out_bytes);
    /* Memory of other processes; see torch/ipc.h. A failure has a reason of one line. */
    gml_status (*share)(gml_lake *lake, gml_address address, int minor,
                        void (*write)(void *to, const char *text, size_t size), void *to,
                        uint64_t *offset_bytes, char *reason, size_t reason_bytes);
    bool (*is_shared)(const char *text, size_t size);
    gml_status (*open_shared)(gml_lake *lake, const char *text, size_t size, gml_address *out,
                              char *reason, size_t reason_bytes);
    gml_status (*close_shared)(gml_lake *lake, gml_address address);
} gml_native_core;

/* For the adapter. Never NULL. */
GML_API const gml_native_core *gml_torch_native_core(void);

/* ---- exported by the adapter ----------------------------------------------------------------- */

/* Of the headers of PyTorch that it is compiled with: looked for in its file, before it is loaded.
 */
GML_API extern const char gml_native_interface[];

/* Installs the adapter in front of PyTorch's allocator until the process ends; at first it forwards
 * everything. `core` stays valid. False, with a reason of one line, where another allocator is in
 * place already or `core` is of another version. */
GML_API bool gml_native_install(const gml_native_core *core, char *reason, size_t reason_bytes);

/* Whether the adapter knows all captures and pools of torch.cuda.MemPool that are in use on any
 * device, by any thread: lakes may serve only then. True once none is in use, and from then on. */
GML_API bool gml_native_knows_pools(void);

/* Whether lakes serve tensors from now on; off at first. Each allocator still frees the blocks it
 * served. */
GML_API void gml_native_serve(bool is_wanted);

#ifdef __cplusplus
}
#endif

#endif
