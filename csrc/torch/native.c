/* The table of functions that PyTorch's C++ interface is served with. */
#include "torch/native/native.h"

#include "driver/device.h"
#include "gmlake_share.h"
#include "gmlake_torch.h"
#include "lake/lake.h"
#include "torch/ipc.h"
#include "torch/refusal.h"
#include "torch/registry.h"
#include "torch/relief.h"

static void explain(gml_lake *lake, int device, uint64_t size_bytes, gml_status status,
                    const char *reason, char *out, size_t out_bytes) {
    if (lake) {
        gml_refusal_write(lake, device, size_bytes, status, out, out_bytes);
    } else {
        gml_refusal_write_unopened(device, size_bytes, status, reason, out, out_bytes);
    }
    gml_refusal_end();
}

static void served(void) {
    (void)gml_take_tried();
    gml_refusal_end();
}

typedef struct listener {
    gml_native_tell tell;
    void *context;
} listener;

static void pass_on(void *context, bool is_new, const gml_held *span) {
    const listener *to = context;
    to->tell(to->context, is_new, span->address, span->size_bytes, span->pool);
}

static void changes(gml_lake *lake, gml_looks **looks, gml_native_tell tell, void *context) {
    listener to = {tell, context};
    gml_lake_changes(lake, looks, tell ? pass_on : NULL, &to);
}

static gml_lake *open_lake(int device, char *reason, size_t reason_bytes) {
    gml_lake *lake = NULL;
    return gml_registry_open_serving(device, &lake, reason, reason_bytes) == GML_OK ? lake : NULL;
}

static gml_lake *open_lake_of_device(int device, char *reason, size_t reason_bytes) {
    gml_lake *lake = NULL;
    return gml_registry_open(device, &lake, reason, reason_bytes) == GML_OK ? lake : NULL;
}

static gml_status begin_pool(gml_lake *lake, gml_pool_id id) {
    return gml_lake_begin_pool_in_turn(lake, id, gml_torch_turn());
}

const gml_native_core *gml_torch_native_core(void) {
    static const gml_native_core core = {
        .version = GML_NATIVE_VERSION,
        .find = gml_torch_lake,
        .serving = gml_registry_serving,
        .device_of = gml_torch_device_of,
        .open = open_lake,
        .open_of_device = open_lake_of_device,
        .next = gml_registry_next,
        .takes_graphs = gml_registry_takes_graphs,
        .allocate = gml_lake_try,
        .allocate_on_host = gml_lake_try_host,
        .free = gml_lake_free,
        .block = gml_lake_block,
        .is_over = gml_lake_block_is_over,
        .pending = gml_lake_pending,
        .record_stream = gml_lake_record_stream_of,
        .trim = gml_lake_trim,
        .grant = gml_lake_grant,
        .has_private_heaps = gml_lake_has_private_heaps,
        .hold_pool = gml_lake_hold_pool,
        .begin_pool = begin_pool,
        .enter_pool = gml_lake_enter_pool,
        .end_pool = gml_lake_end_pool,
        .abandon_pool = gml_lake_abandon_pool,
        .release_pool = gml_lake_release_pool,
        .set_pool = gml_lake_set_pool,
        .allocate_in = gml_lake_try_in,
        .pools = gml_lake_pools,
        .save_pool = gml_lake_save_pool,
        .restore_pool = gml_lake_restore_pool,
        .free_state = gml_pool_state_free,
        .reason = gml_lake_reason,
        .stats = gml_lake_stats,
        .torch_stats = gml_lake_torch_stats,
        .reset_peaks = gml_lake_reset_peaks,
        .visit = gml_lake_visit,
        .changes = changes,
        .device = gml_registry_device,
        .freeze = gml_device_freeze,
        .limit = gml_registry_limit,
        .capacity = gml_registry_capacity,
        .ask_neighbours = gml_torch_ask_neighbours,
        .spend = gml_device_spend,
        .relieve = gml_relief_ask,
        .note = gml_note_tried,
        .served = served,
        .look = gml_refusal_look,
        .refuse = gml_refusal_count,
        .refusal = gml_refusal_status,
        .explain = explain,
        .share = gml_ipc_share,
        .is_shared = gml_ipc_is_ours,
        .open_shared = gml_ipc_open,
        .close_shared = gml_lake_unimport,
    };
    return &core;
}
