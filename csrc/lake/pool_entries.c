/* Private pools by the lake: the functions of gmlake.h, under its lock. */
#include "lake/lake.h"

gml_status gml_lake_hold_pool(gml_lake *lake, gml_pool_id id) {
    pthread_mutex_lock(&lake->lock);
    gml_status status = gml_pools_hold(&lake->pools, id);
    pthread_mutex_unlock(&lake->lock);
    return status;
}

gml_status gml_lake_begin_pool(gml_lake *lake, gml_pool_id id) {
    return gml_lake_begin_pool_in_turn(lake, id, 0);
}

gml_status gml_lake_begin_pool_in_turn(gml_lake *lake, gml_pool_id id, uint64_t turn) {
    gml_device_halt(lake->driver->device);
    gml_status status = gml_pools_begin(&lake->pools, id, true, turn);
    gml_device_go_on(lake->driver->device);
    return status;
}

gml_status gml_lake_enter_pool(gml_lake *lake, gml_pool_id id) {
    pthread_mutex_lock(&lake->lock);
    gml_status status = gml_pools_begin(&lake->pools, id, false, 0);
    pthread_mutex_unlock(&lake->lock);
    return status;
}

static gml_status end_pool(gml_lake *lake, gml_pool_id id, bool has_failed) {
    gml_device_halt(lake->driver->device);
    gml_status status = gml_pools_end(&lake->pools, id, has_failed);
    gml_lake_note_reserved(lake);
    gml_device_go_on(lake->driver->device);
    return status;
}

gml_status gml_lake_end_pool(gml_lake *lake, gml_pool_id id) {
    return end_pool(lake, id, false);
}

gml_status gml_lake_abandon_pool(gml_lake *lake, gml_pool_id id) {
    return end_pool(lake, id, true);
}

gml_status gml_lake_release_pool(gml_lake *lake, gml_pool_id id) {
    pthread_mutex_lock(&lake->lock);
    gml_status status = gml_pools_release(&lake->pools, id);
    gml_lake_note_reserved(lake);
    pthread_mutex_unlock(&lake->lock);
    return status;
}

gml_status gml_lake_set_pool(gml_lake *lake, gml_pool_id id, gml_pool_flag flag, bool is_set) {
    pthread_mutex_lock(&lake->lock);
    gml_status status = gml_pools_set(&lake->pools, id, flag, is_set);
    pthread_mutex_unlock(&lake->lock);
    return status;
}

gml_status gml_lake_spoil_graph(gml_lake *lake, uint64_t graph, gml_stream stream) {
    pthread_mutex_lock(&lake->lock);
    gml_status status = gml_lake_sleeps(lake)
                            ? gml_driver_fail(lake->driver, GML_UNSUPPORTED,
                                              "%sthe memory of its graphs is asleep", lake->title)
                            : gml_pools_spoil(&lake->pools, graph, stream);
    pthread_mutex_unlock(&lake->lock);
    return status;
}

bool gml_lake_has_private_heaps(gml_lake *lake) {
    return lake->pools.ops->create_private && !lake->driver->arena_bytes; /* both are fixed */
}

void gml_lake_pools(gml_lake *lake, void (*see)(void *context, const gml_pool_info *info),
                    void *context) {
    pthread_mutex_lock(&lake->lock);
    gml_pools_each(&lake->pools, see, context);
    pthread_mutex_unlock(&lake->lock);
}
