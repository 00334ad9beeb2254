/* Private to the files of the driver `cuda`. */
#ifndef GML_DRIVER_CUDA_INTERNAL_H
#define GML_DRIVER_CUDA_INTERNAL_H

#include "driver/cuda_api.h"
#include "driver/cuda_peers.h"
#include "driver/driver.h"

typedef struct gml_cuda_driver {
    gml_driver base; /* must be first */
    gml_cuda_api api;
    gml_cu_device device;
    gml_cu_context context; /* the primary one, retained; NULL before */
    gml_cu_allocation allocation;
    bool is_unified;   /* its memory is the host's */
    bool takes_handed; /* what other processes hand over, which may not be exported again */
    gml_cuda_peers peers;
    gml_map elsewhere; /* ordinals of other devices, plus 1, to their primary contexts, retained */
    gml_map files;     /* exported handles to the files that are kept, plus 1 */
    int caller_mode;   /* capture mode to put back, between gml_cuda_enter() and gml_cuda_leave() */
} gml_cuda_driver;

static inline gml_cuda_driver *gml_cuda_of(gml_driver *self) {
    return (gml_cuda_driver *)self;
}

/* ---- cuda_library.c: libcuda.so.1 and every entry of GML_CUDA_ENTRIES in it ------------------ */

/* GML_DRIVER_ABSENT, with one line in `reason`, if the library or an entry is missing. The library
 * stays loaded until the process ends: the driver has threads of its own in it. */
gml_status gml_cuda_library_load(gml_cuda_api *out, char *reason, size_t reason_bytes);

/* ---- cuda.c ---------------------------------------------------------------------------------- */

/* Turns the answer of a call into a status, with a reason if it failed. */
gml_status gml_cuda_check(gml_cuda_driver *cuda, const char *call, gml_cu_result result);

/* Makes one call of the library, of which the reason of a failure tells. */
#define GML_CUDA_CALL(cuda, name, ...) gml_cuda_check(cuda, #name, (cuda)->api.name(__VA_ARGS__))

/* The same in the context. */
#define GML_CUDA_CALL_INSIDE(self, name, ...)                                                      \
    ({                                                                                             \
        gml_cuda_driver *entered = gml_cuda_of(self);                                              \
        gml_status is_inside = gml_cuda_enter(entered);                                            \
        is_inside == GML_OK ? gml_cuda_leave(entered, GML_CUDA_CALL(entered, name, __VA_ARGS__))   \
                            : is_inside;                                                           \
    })

/* Begins a call that needs the context. */
gml_status gml_cuda_enter(gml_cuda_driver *cuda);

/* The same in another device's. */
gml_status gml_cuda_enter_elsewhere(gml_cuda_driver *cuda, int device);

/* Ends it and passes its status on. Undoing what gml_cuda_enter() did fails only where the driver
 * is shut down, and then the call's own answer says so. */
gml_status gml_cuda_leave(gml_cuda_driver *cuda, gml_status status);

/* ---- cuda_share.c ---------------------------------------------------------------------------- */

/* Memory that is made from now on can be exported as a file, where the device has such memory. */
void gml_cuda_choose_sharing(gml_cuda_driver *cuda);

/* Closes the file of a released handle, if it has one; closes all remaining files. */
void gml_cuda_forget_file(gml_cuda_driver *cuda, gml_handle handle);
void gml_cuda_forget_files(gml_cuda_driver *cuda);

/* A chunk of that size which another process handed over; false: there is none. */
bool gml_cuda_take_handed(gml_cuda_driver *cuda, uint64_t size_bytes, gml_handle *out);

/* Creates memory with the current properties, maps it for the device to use, and gives it back: a
 * driver may refuse at either. */
gml_status gml_cuda_try_allocation(gml_cuda_driver *cuda);

/* ---- cuda_unified.c: devices whose memory is the host's -------------------------------------- */

/* The bytes that may be taken, by what the host has available. pre: cuda->is_unified. */
uint64_t gml_cuda_unified_free(const gml_cuda_driver *cuda);

/* GML_OUT_OF_MEMORY where taking `size_bytes` would leave the host too little. */
gml_status gml_cuda_unified_check(gml_cuda_driver *cuda, uint64_t size_bytes);

/* ---- entries of the table -------------------------------------------------------------------- */

#define GML_CUDA_ENTRY(upper, lower, parameters, arguments, cost_bytes)                            \
    gml_status gml_cuda_##lower parameters;
GML_DRIVER_TABLE(GML_CUDA_ENTRY, GML_CUDA_ENTRY)
#undef GML_CUDA_ENTRY

gml_status gml_cuda_record_elsewhere(gml_driver *self, int device, gml_stream stream,
                                     gml_event *out);
gml_status gml_cuda_share(gml_driver *self, unsigned handle_type);
gml_status gml_cuda_export_file(gml_driver *self, gml_handle handle, bool is_kept, int *out);
gml_status gml_cuda_open_files(gml_driver *self, const gml_shared_piece *pieces, size_t count,
                               gml_address *out);
gml_status gml_cuda_close_files(gml_driver *self, gml_address address, uint64_t size_bytes);

#endif
