/* What the files of the stand-in GPU share; see docs/standin.md.
 *
 * The stand-in is a libcuda.so.1 to be preloaded: its exported functions bear NVIDIA's names and
 * are declared by NVIDIA's headers, so the compiler checks each of them. generate_stubs.py writes
 * them: each counts the call, takes the lock, looks up the handles that it was given, and leaves
 * the work to a function of the C files, standin_cudaMalloc() for cudaMalloc().
 *
 * Lock: one for the whole process. standin_enter() takes it, standin_leave() gives it back; every
 * other function of this header expects it held, unless it says otherwise. Functions of the host
 * that were queued with cudaLaunchHostFunc run in standin_leave(), after the lock was given back.
 */
#ifndef GML_STANDIN_H
#define GML_STANDIN_H

#include "base/map.h"
#include "driver/driver.h"
#include "driver/streams.h"

/* What NVIDIA's headers declare is what the library exports; all else stays hidden. */
#pragma GCC visibility push(default)
#include <cuda.h>
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include <stdatomic.h>

/* A prototype standin_NAME for each NAME of the two headers, returning a cudaError_t. */
#include <entries.h> /* made by generate_stubs.py */

/* For exported functions that no header declares. */
#define STANDIN_API __attribute__((visibility("default")))

/* ---- calls.c: what was called how often, what nobody answers, what broke a rule -------------- */

typedef struct standin_call {
    const char *name;
    atomic_uint place; /* in the report, from 1; 0 before the first call */
} standin_call;

/* These need no lock. The call is the thread's current one from now on. */
void standin_count(standin_call *call);

/* The name of the call that this thread is in. */
const char *standin_current_call(void);

static inline gml_address standin_address(const void *pointer) {
    return (gml_address)(uintptr_t)pointer;
}

/* In a child of fork(), whose parent reports what it did before; and where it reports elsewhere. */
void standin_forget_counts(void);

/* Counts a call that has no behaviour, and says its name once unless it is known to need none. */
void standin_count_unanswered(standin_call *call, bool is_known);

/* One line on standard error, and in the report of the process. */
void standin_misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns from the calling function what the call answers, unless that is success. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        cudaError_t tried = (call);                                                                \
        if (tried != cudaSuccess) {                                                                \
            return tried;                                                                          \
        }                                                                                          \
    } while (0)

/* Zeros, and an entry of a map. These end the process when the host has no memory left, which no
 * program could go on from. */
void *standin_new(size_t size_bytes);
void standin_insert(gml_map *map, uint64_t key, void *value);
void standin_demand(gml_status status); /* of what fails for want of host memory alone */

/* Handles that exist, so that any other is refused. */
typedef enum standin_kind {
    STANDIN_EVENT = 1,
    STANDIN_GRAPH,
    STANDIN_EXECUTABLE,
    STANDIN_NODE
} standin_kind;

void standin_remember(const void *handle, standin_kind kind);
void standin_forget(const void *handle);

/* cudaErrorInvalidResourceHandle for an event, cudaErrorInvalidValue for the others. */
cudaError_t standin_check_handle(const void *handle, standin_kind kind);

/* First line of the exported functions that the C files define themselves. */
#define CALLED()                                                                                   \
    do {                                                                                           \
        static standin_call call_here = {.name = __func__};                                        \
        standin_count(&call_here);                                                                 \
    } while (0)

/* ---- settings.c: the GMLAKE_STANDIN_* variables ---------------------------------------------- */

enum { STANDIN_MOST_DEVICES = 16 };

typedef enum standin_pace {
    STANDIN_EAGER,  /* work is done as soon as it is submitted */
    STANDIN_LAG,    /* the newest `lag` operations of a stream are pending */
    STANDIN_MANUAL, /* work is done when something waits for it, or a test advances the stream */
} standin_pace;

typedef struct standin_settings {
    int devices;                       /* that are visible; one exists in any case */
    int present;                       /* those that CUDA_VISIBLE_DEVICES hides included */
    int numbers[STANDIN_MOST_DEVICES]; /* of the visible ones, among those present */
    uint64_t capacity_bytes;           /* of each device, as it says */
    uint64_t served_bytes;             /* what it really hands out */
    bool is_backed;                    /* device memory has bytes */
    bool has_virtual_memory;           /* else its calls are refused */
    char name[256];
    int major, minor; /* compute capability */
    int multiprocessors;
    standin_pace pace;
    uint64_t lag;
    bool aborts_on_misuse;
    const char *report_folder; /* NULL: none */
    const char *shared_file;   /* by which processes share the devices; NULL: none does */
} standin_settings;

/* Read once, on first use; a value that cannot be understood ends the process with one line. Needs
 * no lock. `pace` and `lag` may be changed by control.c, under the lock. */
standin_settings *standin_settings_get(void);

/* Ends the process: a setting that cannot be served would make every result meaningless. */
void __attribute__((noreturn)) standin_refuse(const char *name, const char *why);

/* Under the lock, and before any device is in use. */
void standin_settings_read_again(void);

/* False for another word than eager, lag and manual. */
bool standin_read_pace(const char *word, standin_pace *out);

/* ---- device.c: devices, contexts, the current device ----------------------------------------- */

typedef struct standin_stream standin_stream;

/* Also what a CUcontext points to: each device has one context, its primary one. */
typedef struct standin_device {
    gml_driver *driver;             /* `host`: memory, with bytes or as address space only */
    standin_stream *default_stream; /* for the handles 0, 1 and 2 */
    standin_stream *behind_all;     /* see queue.h; NULL: nobody asked for it */
    uint64_t others_bytes;          /* held by other processes, during a call */
    uint64_t graph_nodes;           /* of the executable graphs that were made for it */
    int ordinal;
    unsigned peers; /* bit i: device i may be reached, by cudaDeviceEnablePeerAccess */
    bool is_active; /* the runtime API has used its primary context, and never lets go of it */
} standin_device;

/* Opens the devices on first use and takes the lock. Never fails: no memory left ends the process.
 */
void standin_enter(void);
void standin_leave(void);

/* ---- shared.c: devices that other processes use, too ----------------------------------------- */

/* At the beginning and the end of a call, with the lock: what others hold is counted, and what this
 * process holds is told. Do nothing where GMLAKE_STANDIN_SHARED names no file. */
void standin_begin_sharing(standin_device *devices, int count);
void standin_end_sharing(const standin_device *devices, int count);

/* In a child of fork(). */
void standin_forget_sharing(void);

/* A file by which memory of a device goes to other processes, at the position where to write what
 * they need to know; -1: none can be made. *flight: names it below. Memory that no process holds
 * is used as long as such a file is open anywhere. */
int standin_open_flight(int ordinal, uint64_t size_bytes, int *flight);

/* The flight of an open file; -1: of none. */
int standin_flight_of(int file);

/* A process holds the memory, too (1), or no more (-1). Whether nobody did before. */
bool standin_hold_flight(int flight, int change);

/* Counts the call and enters: the first line of what generate_stubs.py writes. */
void standin_begin(standin_call *call);

/* NULL if there is no such device. */
standin_device *standin_device_at(int ordinal);

/* What the device says that it has, and that is left of it: nothing where more is held. */
void standin_memory_info(const standin_device *device, size_t *free_bytes, size_t *total_bytes);

/* The device of the calling thread, which has one from now on. */
standin_device *standin_current_device(void);
int standin_current_ordinal(void);
/* Whether this thread ever chose or used a device. */
bool standin_has_current(void);
void standin_forget_current(void);
cudaError_t standin_check_device(int ordinal);

/* The bytes that no other device of the machine has, of the one with this number; zeros follow. */
enum { STANDIN_UUID_BYTES = 16 };
void standin_uuid(int number, char out[STANDIN_UUID_BYTES]);

/* A cudaDeviceAttr or CUdevice_attribute, whose numbers are the same; 0 for one not known. */
int standin_attribute(const standin_device *device, int attribute);

/* The device that an address belongs to, as reservation or block; NULL if none. */
standin_device *standin_device_of(gml_address address);

/* Leaves the lock, keeps an error for cudaGetLastError, and returns it: the last line of every
 * function of the runtime API. */
cudaError_t standin_return(cudaError_t error);

/* The same for the driver API, whose errors have the same numbers as far as the stand-in gives
 * them, and which keeps none. */
CUresult standin_return_driver(cudaError_t error);

/* GML_MISUSE is reported by standin_misuse() with the driver's reason, and becomes
 * cudaErrorInvalidValue. */
cudaError_t standin_error_of(standin_device *device, gml_status status);

/* ---- queue.c: streams as ordered queues ------------------------------------------------------ */

enum { STANDIN_MOST_RANGES = 4 };

/* Device memory that an operation touches. */
typedef struct standin_range {
    gml_address address;
    uint64_t size_bytes;
} standin_range;

typedef struct standin_operation standin_operation;

/* Work for a stream. Copied when submitted. */
struct standin_operation {
    const char *name;                          /* of the call that submitted it; filled in then */
    standin_range ranges[STANDIN_MOST_RANGES]; /* size 0: unused */
    /* Does the work, with the lock held; NULL where nothing is to be done. It may not submit. */
    void (*run)(const standin_operation *self);
    /* Frees what `staged` points to; NULL: nothing to free. Called once for what was submitted:
     * after run, with the graph, or, when submitting fails, before standin_submit() returns. */
    void (*drop)(standin_operation *self);
    /* For `run`; what they mean is its own affair. */
    uint64_t to, from, width_bytes, height, to_pitch_bytes, from_pitch_bytes;
    int value;
    bool crosses_devices; /* by itself, so that no device needs access to another's memory */
    void *staged;
    void (*host_function)(void *); /* run with `staged`, after the lock was given back */
};

typedef struct standin_capture standin_capture; /* capture.c */

/* A set of nodes of a graph. */
typedef struct standin_nodes {
    cudaGraphNode_t *items;
    size_t count, capacity;
} standin_nodes;

/* What a cudaStream_t points to, but for the handles 0, 1 and 2. */
struct standin_stream {
    struct standin_stream *next; /* of all streams */
    standin_device *device;
    gml_stream number; /* in the queues */
    int priority;
    uint64_t pending;                       /* operations submitted and not yet done */
    standin_capture *capture;               /* that it takes part in; NULL */
    standin_nodes captured;                 /* what the next node of the capture depends on */
    struct standin_in_flight *first, *last; /* the pending operations, in order */
};

/* NULL for a handle that is no stream. 0, 1 and 2 are the current device's default stream. */
standin_stream *standin_stream_of(cudaStream_t handle);

/* cudaErrorInvalidResourceHandle where the handle is none; for the driver API, whose default
 * streams are those of the thread's context, also CUDA_ERROR_INVALID_CONTEXT. */
cudaError_t standin_check_stream(cudaStream_t handle);
cudaError_t standin_check_driver_stream(CUstream handle);

standin_stream *standin_stream_new(standin_device *device, int priority);

/* Queues a copy of `operation`, or adds it to the graph that the stream captures. An operation that
 * touches memory which is not there is a misuse: it is reported, dropped, and
 * cudaErrorIllegalAddress. */
cudaError_t standin_submit(standin_stream *stream, const standin_operation *operation);

/* cudaErrorIllegalAddress, reported, unless every range can be touched. */
cudaError_t standin_check_ranges(const standin_operation *operation);

/* Reports a free in flight: the named call gives up memory that a pending operation touches. */
void standin_check_unused(const char *name, gml_address address, uint64_t size_bytes);

/* Waits: run everything before. Waiting for a stream that captures breaks the capture. */
cudaError_t standin_synchronize_stream(standin_stream *stream);
void standin_synchronize_device(standin_device *device);

/* Lets `count` operations of a stream happen. */
void standin_advance(standin_stream *stream, uint64_t count);

/* Runs what cudaLaunchHostFunc queued and has come to its turn, then waits, if the thread has
 * synchronised since its last such call, for what other threads run. Called without the lock. */
void standin_run_host_functions(void);

/* In a child of fork(): those that are queued are its parent's to run. */
void standin_forget_host_functions(void);

/* ---- capture.c: stream capture and graphs ---------------------------------------------------- */

/* cudaSuccess, or what a call answers that no capture may see (cudaMalloc, synchronisation, ...)
 * while one is under way that forbids it to this thread; that capture is then broken. */
cudaError_t standin_guard_captures(void);

/* The same for a call that would wait for, or query, this one stream, which may itself capture. */
cudaError_t standin_guard_stream(standin_stream *stream);

/* The same for a call that would wait for all streams of a device: where one of these captures, no
 * mode of a thread permits that. */
cudaError_t standin_guard_device(const standin_device *device);

/* Unlike for each capture of the process; 0 for NULL. */
uint64_t standin_capture_id(const standin_capture *capture);

/* ---- memory.c: plain memory ------------------------------------------------------------------ */

/* Whether a capture forbids it is the caller's to ask. */
cudaError_t standin_malloc(standin_device *device, uint64_t size_bytes, gml_address *out);

/* Whether the range lies in page-locked memory of the host. */
bool standin_is_pinned(const void *address, uint64_t size_bytes);

/* What an address belongs to. */
typedef struct standin_place {
    enum cudaMemoryType type; /* cudaMemoryTypeUnregistered: nothing that CUDA knows */
    standin_device *device;   /* its own, or that was current when the host gave it; NULL if none */
    gml_address begin;        /* of the block; 0 for memory of a reservation */
    uint64_t size_bytes;      /* of the block */
} standin_place;

standin_place standin_place_of(gml_address address);

typedef struct standin_pool standin_pool;

/* Memory for use in the stream, counted in the pool; of the graph while the stream captures. */
cudaError_t standin_malloc_in_order(standin_pool *pool, uint64_t size_bytes, standin_stream *stream,
                                    gml_address *out);

/* Gives a plain block back when the stream gets there. */
cudaError_t standin_free_in_order(gml_address address, standin_stream *stream);

/* ---- pool.c: stream-ordered memory (cudaMallocAsync) ----------------------------------------- */

cudaError_t standin_check_pool(cudaMemPool_t handle);

/* So many bytes more are in use, or fewer. */
void standin_pool_count(standin_pool *pool, int64_t bytes);

/* ---- kernel.c: kernels, which do nothing ----------------------------------------------------- */

/* Where the current device keeps a __device__ or __constant__ variable, given the address of its
 * shadow on the host; 0 if no such variable was registered, or no memory is left for it. */
gml_address standin_symbol_address(const void *symbol, uint64_t *size_bytes);

/* One operation without effect that reads and writes these ranges (up to STANDIN_MOST_RANGES):
 * what a library call such as cublasGemmEx submits. Takes and leaves the lock by itself. */
cudaError_t standin_run_nothing(cudaStream_t stream, const standin_range *ranges, int count);

/* A kernel of these dimensions, or cudaErrorInvalidConfiguration. */
cudaError_t standin_launch(dim3 grid, dim3 block, cudaStream_t stream);

/* What kernels are said to need and may have; the numbers are those of a block. */
enum {
    STANDIN_MOST_THREADS = 1024,
    STANDIN_REGISTERS = 32, /* of a thread */
    STANDIN_SHARED_BYTES = 48 * 1024,
};

/* ---- entry_points.c -------------------------------------------------------------------------- */

/* What this library exports under a name; NULL if nothing. Needs no lock. */
void *standin_entry(const char *name);

/* ---- context.c ------------------------------------------------------------------------------- */

/* The device of the calling thread's context; NULL, and so CUDA_ERROR_INVALID_CONTEXT, where it has
 * none. The driver API gives no context to a thread that did not ask for it. */
standin_device *standin_context_device(void);

/* The device of a context; NULL for a pointer that is none. */
standin_device *standin_context_of(CUcontext context);
cudaError_t standin_check_context(void);

/* ---- vmm.c: virtual memory ------------------------------------------------------------------- */

/* Physical memory that is mapped at an address, and the reservation around it. */
typedef struct standin_mapping {
    standin_device *device;
    standin_range mapping, reservation;
    CUmemAllocationHandleType handle_types; /* as asked for by cuMemCreate */
    bool is_accessible;                     /* to its own device */
    bool is_of_program;                     /* by a handle */
} standin_mapping;

/* False where no handle is mapped, in plain memory too. */
bool standin_find_mapping(gml_address address, standin_mapping *out);

/* The reservation or plain block of a device that the address lies in; false if there is none. */
bool standin_find_range(gml_address address, standin_range *out, bool *is_reservation);

/* ---- peers.c: virtual memory and other devices ----------------------------------------------- */

/* Lets devices, given as bits, touch what is mapped at an address, or shuts them out. */
void standin_peers_change(gml_address mapping, unsigned let_in, unsigned shut_out);

/* After an unmap. */
void standin_peers_forget(gml_address mapping);

/* cudaErrorIllegalAddress, reported, where work of that device would touch virtual memory of
 * another that it was not let into. */
cudaError_t standin_check_peers(const standin_device *device, const standin_operation *operation);

#endif
