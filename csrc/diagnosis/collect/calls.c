#include "diagnosis/collect/collector.h"
#include "gmlake_diagnose.h"

#include <errno.h>
#include <execinfo.h>

enum { MOST_FRAMES = 24 };

/* ---- writing down ---------------------------------------------------------------------------- */

typedef struct driver_call driver_call;

/* How a driver function is taken down. */
typedef struct entry {
    uint32_t function; /* CUPTI_DRIVER_TRACE_CBID_cu... */
    int site;          /* results exist at the exit; freed memory may be reused after it */
    void (*take)(const driver_call *call);
    bool has_stream;       /* its last parameter is one */
    uint8_t element_bytes; /* of a set */
} entry;

/* One call that is being taken down. */
struct driver_call {
    gml_collector *collector;
    const cupti_callback_data *data;
    const entry *entry;
    uint32_t place;
};

/* 0, the default stream, where the function has no such parameter to read. */
static uint64_t stream_of(const driver_call *call, const uint64_t *parameter) {
    return call->entry->has_stream ? *parameter : 0;
}

static void note_api(const driver_call *call, gml_log_kind kind, const char *name, uint64_t stream,
                     uint64_t address, uint64_t size_bytes) {
    gml_log *log = &call->collector->log;
    uint32_t number = gml_log_name(log, name);
    gml_log_add(log, &(gml_log_record){.kind = kind,
                                       .name = number,
                                       .place = call->place,
                                       .stream = stream,
                                       .address = address,
                                       .size_bytes = size_bytes});
}

/* Runs of bytes that begin in a live object; addresses of the host are left out. */
static void note_runs(const driver_call *call, uint32_t flags, const gml_access_range *runs,
                      uint64_t address) {
    if (!gml_live_find(&call->collector->live, address)) {
        return;
    }
    gml_log_add(&call->collector->log, &(gml_log_record){.kind = GML_LOG_ACCESS,
                                                         .flags = flags,
                                                         .address = address,
                                                         .size_bytes = runs->size_bytes,
                                                         .stride_bytes = runs->stride_bytes,
                                                         .repeat = runs->repeat});
}

static void note_bytes(const driver_call *call, uint32_t flags, uint64_t address,
                       uint64_t size_bytes) {
    if (size_bytes > 0) {
        gml_access_range run = {.size_bytes = size_bytes, .stride_bytes = size_bytes, .repeat = 1};
        note_runs(call, flags, &run, address);
    }
}

/* The call may do anything to any live object. */
static void note_anything(const driver_call *call) {
    gml_log_add(&call->collector->log,
                &(gml_log_record){.kind = GML_LOG_ACCESS, .flags = GML_ACCESS_TOUCHES});
}

/* ---- objects --------------------------------------------------------------------------------- */

static void note_free(const driver_call *call, uint64_t address, uint64_t stream);

/* Frees live objects in the range that were freed unseen, by cuCtxDestroy, cuDevicePrimaryCtxReset,
 * ... */
static void note_lost(const driver_call *call, uint64_t address, uint64_t size_bytes,
                      uint64_t stream) {
    const gml_live_object *object;
    while ((object = gml_live_find_in(&call->collector->live, address, size_bytes))) {
        note_free(call, object->address, stream);
    }
}

static void note_alloc(const driver_call *call, uint64_t address, uint64_t size_bytes,
                       uint64_t stream) {
    note_lost(call, address, size_bytes, stream);
    if (size_bytes > 0 && gml_live_add(&call->collector->live, address, size_bytes)) {
        note_api(call, GML_LOG_ALLOC, NULL, stream, address, size_bytes);
    }
}

static void take_alloc(const driver_call *call) {
    const cuda_alloc *alloc = call->data->parameters;
    note_alloc(call, *alloc->address, alloc->size_bytes, stream_of(call, &alloc->stream_or_pool));
}

static void take_alloc_from_pool(const driver_call *call) {
    const cuda_alloc *alloc = call->data->parameters;
    note_alloc(call, *alloc->address, alloc->size_bytes, alloc->stream);
}

static void take_alloc_pitch(const driver_call *call) {
    const cuda_alloc_pitch *alloc = call->data->parameters;
    note_alloc(call, *alloc->address, *alloc->pitch_bytes * alloc->height, 0);
}

static void take_map(const driver_call *call) {
    const cuda_map *map = call->data->parameters;
    note_alloc(call, map->address, map->size_bytes, 0);
}

static void note_free(const driver_call *call, uint64_t address, uint64_t stream) {
    if (gml_live_remove(&call->collector->live, address)) {
        note_api(call, GML_LOG_FREE, NULL, stream, address, 0);
    }
}

static void take_free(const driver_call *call) {
    const cuda_free *freed = call->data->parameters;
    note_free(call, freed->address, stream_of(call, &freed->stream));
}

/* Everything mapped in the range, which may be several mappings. */
static void take_unmap(const driver_call *call) {
    const cuda_map *map = call->data->parameters;
    note_lost(call, map->address, map->size_bytes, 0);
}

/* ---- copies and sets ------------------------------------------------------------------------- */

static void note_copy(const driver_call *call, const cuda_copy *copy, uint64_t stream) {
    note_api(call, GML_LOG_COPY, call->data->function, stream, 0, 0);
    note_bytes(call, GML_ACCESS_READS, copy->source, copy->size_bytes);
    note_bytes(call, GML_ACCESS_WRITES, copy->target, copy->size_bytes);
}

static void take_copy(const driver_call *call) {
    const cuda_copy *copy = call->data->parameters;
    note_copy(call, copy, stream_of(call, &copy->stream));
}

static void take_copy_peer(const driver_call *call) {
    const cuda_copy_peer *peer = call->data->parameters;
    cuda_copy copy = {
        .target = peer->target, .source = peer->source, .size_bytes = peer->size_bytes};
    note_copy(call, &copy, stream_of(call, &peer->stream));
}

static void note_plane(const driver_call *call, uint32_t flags, const cuda_plane *plane,
                       const cuda_rectangle *size) {
    bool is_device = plane->memory == CUDA_MEMORY_DEVICE || plane->memory == CUDA_MEMORY_UNIFIED;
    if (!is_device || size->width_bytes == 0 || size->height == 0) {
        return;
    }
    uint64_t pitch_bytes = plane->pitch_bytes ? plane->pitch_bytes : size->width_bytes;
    gml_access_range runs = {
        .size_bytes = size->width_bytes, .stride_bytes = pitch_bytes, .repeat = size->height};
    note_runs(call, flags, &runs, plane->device + plane->y * pitch_bytes + plane->x_bytes);
}

static void take_copy_2d(const driver_call *call) {
    const cuda_copy_2d *copy = call->data->parameters;
    if (!copy->what) {
        return; /* the driver refuses it */
    }
    note_api(call, GML_LOG_COPY, call->data->function, stream_of(call, &copy->stream), 0, 0);
    note_plane(call, GML_ACCESS_READS, &copy->what->source, copy->what);
    note_plane(call, GML_ACCESS_WRITES, &copy->what->target, copy->what);
}

static void take_set(const driver_call *call) {
    const cuda_set *set = call->data->parameters;
    note_api(call, GML_LOG_SET, call->data->function, stream_of(call, &set->stream), 0, 0);
    note_bytes(call, GML_ACCESS_WRITES, set->target, set->count * call->entry->element_bytes);
}

static void take_set_2d(const driver_call *call) {
    const cuda_set_2d *set = call->data->parameters;
    gml_access_range runs = {.size_bytes = set->width * call->entry->element_bytes,
                             .stride_bytes = set->pitch_bytes,
                             .repeat = set->height};
    note_api(call, GML_LOG_SET, call->data->function, stream_of(call, &set->stream), 0, 0);
    if (runs.size_bytes > 0 && runs.repeat > 0) {
        note_runs(call, GML_ACCESS_WRITES, &runs, set->target);
    }
}

/* A copy whose ranges are not taken apart: of arrays, of three dimensions, of batches. */
static void take_unknown_copy(const driver_call *call) {
    note_api(call, GML_LOG_KERNEL, call->data->function, 0, 0, 0);
    note_anything(call);
}

/* ---- kernels --------------------------------------------------------------------------------- */

void gml_collect_launch(gml_collector *collector, const gml_launch *launch) {
    gml_log_add(&collector->log,
                &(gml_log_record){.kind = GML_LOG_KERNEL,
                                  .name = gml_log_name(&collector->log, launch->name),
                                  .place = launch->place,
                                  .stream = launch->stream,
                                  .address = launch->repeats,
                                  .size_bytes = launch->repeated_as});
}

void gml_collect_parameters(gml_collector *collector, const gml_launch *launch) {
    gml_log_record access = {.kind = GML_LOG_ACCESS, .flags = GML_ACCESS_TOUCHES};
    if (launch->found_count == GML_SCAN_UNKNOWN) {
        gml_log_add(&collector->log, &access);
        return;
    }
    for (size_t i = 0; i < launch->found_count; i++) {
        if (gml_live_find(&collector->live, launch->found[i].address)) {
            access.address = launch->found[i].address;
            access.size_bytes = access.stride_bytes = launch->found[i].size_bytes;
            access.repeat = 1;
            gml_log_add(&collector->log, &access);
        }
    }
}

/* Where patches tell what a launch accesses, it is taken down at its end. */
static void take_down(const driver_call *call, gml_launch *launch, const char *name) {
    launch->name = name ? name : call->data->function;
    launch->place = call->place;
    if (call->collector->expect) {
        call->collector->expect(launch);
        return;
    }
    gml_collect_launch(call->collector, launch);
    gml_collect_parameters(call->collector, launch);
}

static void note_launch(const driver_call *call, void *function, void *const *parameters,
                        void *const *extra, uint64_t stream) {
    gml_launch launch = {.stream = stream};
    launch.found_count = gml_scan_parameters(call->collector, function, parameters, extra,
                                             launch.found, GML_MOST_FOUND);
    take_down(call, &launch, call->data->symbol);
}

static void take_launch(const driver_call *call) {
    const cuda_launch *launch = call->data->parameters;
    note_launch(call, launch->function, launch->parameters, launch->extra, launch->stream);
}

static void take_cooperative(const driver_call *call) {
    const cuda_launch *launch = call->data->parameters;
    note_launch(call, launch->function, launch->parameters, NULL, launch->stream);
}

static void take_launch_ex(const driver_call *call) {
    const cuda_launch_ex *launch = call->data->parameters;
    if (launch->config) { /* else the driver refuses it */
        note_launch(call, launch->function, launch->parameters, launch->extra,
                    launch->config->stream);
    }
}

static void take_graph(const driver_call *call) {
    const cuda_graph_launch *graph = call->data->parameters;
    gml_launch launch = {.stream = graph->stream, .found_count = GML_SCAN_UNKNOWN};
    take_down(call, &launch, NULL);
}

/* ---- which function is what ------------------------------------------------------------------ */

/* In the order of cupti_driver_cbid.h; those that end in ptds and ptsz use the calling thread's
 * default stream. */
static const entry LISTENED[] = {
    {243, CUPTI_API_EXIT, take_alloc, false, 0},          /* cuMemAlloc_v2 */
    {244, CUPTI_API_EXIT, take_alloc_pitch, false, 0},    /* cuMemAllocPitch_v2 */
    {245, CUPTI_API_ENTER, take_free, false, 0},          /* cuMemFree_v2 */
    {249, CUPTI_API_ENTER, take_set, false, 1},           /* cuMemsetD8_v2 */
    {250, CUPTI_API_ENTER, take_set, false, 2},           /* cuMemsetD16_v2 */
    {251, CUPTI_API_ENTER, take_set, false, 4},           /* cuMemsetD32_v2 */
    {252, CUPTI_API_ENTER, take_set_2d, false, 1},        /* cuMemsetD2D8_v2 */
    {253, CUPTI_API_ENTER, take_set_2d, false, 2},        /* cuMemsetD2D16_v2 */
    {254, CUPTI_API_ENTER, take_set_2d, false, 4},        /* cuMemsetD2D32_v2 */
    {216, CUPTI_API_ENTER, take_set, true, 1},            /* cuMemsetD8Async */
    {218, CUPTI_API_ENTER, take_set, true, 2},            /* cuMemsetD16Async */
    {220, CUPTI_API_ENTER, take_set, true, 4},            /* cuMemsetD32Async */
    {222, CUPTI_API_ENTER, take_set_2d, true, 1},         /* cuMemsetD2D8Async */
    {224, CUPTI_API_ENTER, take_set_2d, true, 2},         /* cuMemsetD2D16Async */
    {226, CUPTI_API_ENTER, take_set_2d, true, 4},         /* cuMemsetD2D32Async */
    {276, CUPTI_API_ENTER, take_copy, false, 0},          /* cuMemcpyHtoD_v2 */
    {277, CUPTI_API_ENTER, take_copy, true, 0},           /* cuMemcpyHtoDAsync_v2 */
    {278, CUPTI_API_ENTER, take_copy, false, 0},          /* cuMemcpyDtoH_v2 */
    {279, CUPTI_API_ENTER, take_copy, true, 0},           /* cuMemcpyDtoHAsync_v2 */
    {280, CUPTI_API_ENTER, take_copy, false, 0},          /* cuMemcpyDtoD_v2 */
    {281, CUPTI_API_ENTER, take_copy, true, 0},           /* cuMemcpyDtoDAsync_v2 */
    {284, CUPTI_API_ENTER, take_unknown_copy, false, 0},  /* cuMemcpyAtoD_v2 */
    {285, CUPTI_API_ENTER, take_unknown_copy, false, 0},  /* cuMemcpyDtoA_v2 */
    {287, CUPTI_API_ENTER, take_copy_2d, false, 0},       /* cuMemcpy2D_v2 */
    {288, CUPTI_API_ENTER, take_copy_2d, false, 0},       /* cuMemcpy2DUnaligned_v2 */
    {289, CUPTI_API_ENTER, take_copy_2d, true, 0},        /* cuMemcpy2DAsync_v2 */
    {290, CUPTI_API_ENTER, take_unknown_copy, false, 0},  /* cuMemcpy3D_v2 */
    {291, CUPTI_API_ENTER, take_unknown_copy, false, 0},  /* cuMemcpy3DAsync_v2 */
    {305, CUPTI_API_ENTER, take_copy, false, 0},          /* cuMemcpy */
    {306, CUPTI_API_ENTER, take_copy, true, 0},           /* cuMemcpyAsync */
    {307, CUPTI_API_ENTER, take_launch, true, 0},         /* cuLaunchKernel */
    {318, CUPTI_API_ENTER, take_copy_peer, false, 0},     /* cuMemcpyPeer */
    {319, CUPTI_API_ENTER, take_copy_peer, true, 0},      /* cuMemcpyPeerAsync */
    {320, CUPTI_API_ENTER, take_unknown_copy, false, 0},  /* cuMemcpy3DPeer */
    {321, CUPTI_API_ENTER, take_unknown_copy, false, 0},  /* cuMemcpy3DPeerAsync */
    {371, CUPTI_API_EXIT, take_alloc, false, 0},          /* cuMemAllocManaged */
    {397, CUPTI_API_ENTER, take_copy, false, 0},          /* cuMemcpyHtoD_v2_ptds */
    {398, CUPTI_API_ENTER, take_copy, false, 0},          /* cuMemcpyDtoH_v2_ptds */
    {399, CUPTI_API_ENTER, take_copy, false, 0},          /* cuMemcpyDtoD_v2_ptds */
    {400, CUPTI_API_ENTER, take_unknown_copy, false, 0},  /* cuMemcpyDtoA_v2_ptds */
    {401, CUPTI_API_ENTER, take_unknown_copy, false, 0},  /* cuMemcpyAtoD_v2_ptds */
    {405, CUPTI_API_ENTER, take_copy_2d, false, 0},       /* cuMemcpy2D_v2_ptds */
    {406, CUPTI_API_ENTER, take_copy_2d, false, 0},       /* cuMemcpy2DUnaligned_v2_ptds */
    {407, CUPTI_API_ENTER, take_unknown_copy, false, 0},  /* cuMemcpy3D_v2_ptds */
    {408, CUPTI_API_ENTER, take_copy, false, 0},          /* cuMemcpy_ptds */
    {409, CUPTI_API_ENTER, take_copy_peer, false, 0},     /* cuMemcpyPeer_ptds */
    {410, CUPTI_API_ENTER, take_unknown_copy, false, 0},  /* cuMemcpy3DPeer_ptds */
    {411, CUPTI_API_ENTER, take_set, false, 1},           /* cuMemsetD8_v2_ptds */
    {412, CUPTI_API_ENTER, take_set, false, 2},           /* cuMemsetD16_v2_ptds */
    {413, CUPTI_API_ENTER, take_set, false, 4},           /* cuMemsetD32_v2_ptds */
    {414, CUPTI_API_ENTER, take_set_2d, false, 1},        /* cuMemsetD2D8_v2_ptds */
    {415, CUPTI_API_ENTER, take_set_2d, false, 2},        /* cuMemsetD2D16_v2_ptds */
    {416, CUPTI_API_ENTER, take_set_2d, false, 4},        /* cuMemsetD2D32_v2_ptds */
    {418, CUPTI_API_ENTER, take_copy, true, 0},           /* cuMemcpyAsync_ptsz */
    {421, CUPTI_API_ENTER, take_copy, true, 0},           /* cuMemcpyHtoDAsync_v2_ptsz */
    {422, CUPTI_API_ENTER, take_copy, true, 0},           /* cuMemcpyDtoHAsync_v2_ptsz */
    {423, CUPTI_API_ENTER, take_copy, true, 0},           /* cuMemcpyDtoDAsync_v2_ptsz */
    {424, CUPTI_API_ENTER, take_copy_2d, true, 0},        /* cuMemcpy2DAsync_v2_ptsz */
    {425, CUPTI_API_ENTER, take_unknown_copy, false, 0},  /* cuMemcpy3DAsync_v2_ptsz */
    {426, CUPTI_API_ENTER, take_copy_peer, true, 0},      /* cuMemcpyPeerAsync_ptsz */
    {427, CUPTI_API_ENTER, take_unknown_copy, false, 0},  /* cuMemcpy3DPeerAsync_ptsz */
    {428, CUPTI_API_ENTER, take_set, true, 1},            /* cuMemsetD8Async_ptsz */
    {429, CUPTI_API_ENTER, take_set, true, 2},            /* cuMemsetD16Async_ptsz */
    {430, CUPTI_API_ENTER, take_set, true, 4},            /* cuMemsetD32Async_ptsz */
    {431, CUPTI_API_ENTER, take_set_2d, true, 1},         /* cuMemsetD2D8Async_ptsz */
    {432, CUPTI_API_ENTER, take_set_2d, true, 2},         /* cuMemsetD2D16Async_ptsz */
    {433, CUPTI_API_ENTER, take_set_2d, true, 4},         /* cuMemsetD2D32Async_ptsz */
    {442, CUPTI_API_ENTER, take_launch, true, 0},         /* cuLaunchKernel_ptsz */
    {477, CUPTI_API_ENTER, take_cooperative, true, 0},    /* cuLaunchCooperativeKernel */
    {478, CUPTI_API_ENTER, take_cooperative, true, 0},    /* cuLaunchCooperativeKernel_ptsz */
    {514, CUPTI_API_ENTER, take_graph, true, 0},          /* cuGraphLaunch */
    {515, CUPTI_API_ENTER, take_graph, true, 0},          /* cuGraphLaunch_ptsz */
    {551, CUPTI_API_EXIT, take_map, false, 0},            /* cuMemMap */
    {552, CUPTI_API_ENTER, take_unmap, false, 0},         /* cuMemUnmap */
    {598, CUPTI_API_EXIT, take_alloc, true, 0},           /* cuMemAllocAsync */
    {599, CUPTI_API_EXIT, take_alloc, true, 0},           /* cuMemAllocAsync_ptsz */
    {600, CUPTI_API_ENTER, take_free, true, 0},           /* cuMemFreeAsync */
    {601, CUPTI_API_ENTER, take_free, true, 0},           /* cuMemFreeAsync_ptsz */
    {611, CUPTI_API_EXIT, take_alloc_from_pool, true, 0}, /* cuMemAllocFromPoolAsync */
    {612, CUPTI_API_EXIT, take_alloc_from_pool, true, 0}, /* cuMemAllocFromPoolAsync_ptsz */
    {652, CUPTI_API_ENTER, take_launch_ex, true, 0},      /* cuLaunchKernelEx */
    {653, CUPTI_API_ENTER, take_launch_ex, true, 0},      /* cuLaunchKernelEx_ptsz */
    {776, CUPTI_API_ENTER, take_unknown_copy, false, 0},  /* cuMemcpyBatchAsync */
    {777, CUPTI_API_ENTER, take_unknown_copy, false, 0},  /* cuMemcpyBatchAsync_ptsz */
    {778, CUPTI_API_ENTER, take_unknown_copy, false, 0},  /* cuMemcpy3DBatchAsync */
    {779, CUPTI_API_ENTER, take_unknown_copy, false, 0},  /* cuMemcpy3DBatchAsync_ptsz */
    {796, CUPTI_API_ENTER, take_unknown_copy, false, 0},  /* cuMemcpyBatchAsync_v2 */
    {797, CUPTI_API_ENTER, take_unknown_copy, false, 0},  /* cuMemcpyBatchAsync_v2_ptsz */
    {798, CUPTI_API_ENTER, take_unknown_copy, false, 0},  /* cuMemcpy3DBatchAsync_v2 */
    {799, CUPTI_API_ENTER, take_unknown_copy, false, 0},  /* cuMemcpy3DBatchAsync_v2_ptsz */
};

enum { LISTENED_COUNT = sizeof LISTENED / sizeof *LISTENED };

uint32_t gml_collected_function(size_t index) {
    return index < LISTENED_COUNT ? LISTENED[index].function : 0;
}

static const entry *find_listened(uint32_t function) {
    for (size_t i = 0; i < LISTENED_COUNT; i++) {
        if (LISTENED[i].function == function) {
            return &LISTENED[i];
        }
    }
    return NULL;
}

/* A failed call has no effect. */
static bool has_failed(const cupti_callback_data *data) {
    return data->site == CUPTI_API_EXIT && data->result && *(const int *)data->result != 0;
}

bool gml_collector_enter(gml_collector *collector) {
    pthread_mutex_lock(&collector->lock);
    if (collector->is_busy) {
        pthread_mutex_unlock(&collector->lock);
        return false;
    }
    collector->is_busy = true;
    return true;
}

void gml_collector_leave(gml_collector *collector) {
    collector->is_busy = false;
    pthread_mutex_unlock(&collector->lock);
}

static uint32_t add_place(gml_collector *collector, void *const *addresses, size_t count) {
    gml_log_frame frames[MOST_FRAMES];
    for (size_t i = 0; i < count; i++) {
        gml_log_describe(&frames[i], addresses[i]);
    }
    if (!gml_collector_enter(collector)) {
        return 0;
    }
    uint32_t place = gml_log_place(&collector->log, addresses, frames, count);
    gml_collector_leave(collector);
    return place;
}

/* Who called the driver: the frames of the collector and of CUPTI are cut off by the reader, which
 * knows their libraries. */
static uint32_t find_place(gml_collector *collector) {
    void *addresses[MOST_FRAMES];
    int count = backtrace(addresses, MOST_FRAMES);
    if (count < 2 || !gml_collector_enter(collector)) {
        return 0;
    }
    uint32_t place = gml_log_find_place(&collector->log, addresses + 1, (size_t)count - 1);
    gml_collector_leave(collector);
    return place ? place : add_place(collector, addresses + 1, (size_t)count - 1);
}

void gml_collect_call(void *user, int domain, uint32_t function, const cupti_callback_data *data) {
    const entry *heard = domain == CUPTI_DOMAIN_DRIVER_API ? find_listened(function) : NULL;
    if (!heard || heard->site != data->site || has_failed(data) || !data->parameters) {
        return;
    }
    gml_collector *collector = user;
    int error = errno;
    int cancel_state;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state); /* writing could end it */
    uint32_t place = find_place(collector);
    if (gml_collector_enter(collector)) {
        heard->take(&(driver_call){collector, data, heard, place});
        gml_log_end_call(&collector->log);
        gml_collector_leave(collector);
    }
    (void)pthread_setcancelstate(cancel_state, NULL);
    errno = error;
}
