/* Opening, closing, allocating and freeing. */
#include "lake/lake.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST_REQUEST (UINT64_C(1) << 48) /* more than any device's address space */

static gml_status
refuse(char *reason, size_t reason_bytes, gml_status status, const char *text)
{
    if (reason && reason_bytes) {
        snprintf(reason, reason_bytes, "%s", text);
    }
    return status;
}

static gml_status
find_policy(const char *name, const gml_policy_ops **out, char *reason)
{
    const gml_policy_ops *found = name ? gml_policy_find(name) : NULL;
    if (found) {
        *out = found;
        return GML_OK;
    }
    int used = snprintf(reason, GML_REASON_BYTES,
                        "no policy is called \"%.60s\"; there are:", name ? name : "");
    for (size_t i = 0; gml_policy_name(i) && used > 0 && used < GML_REASON_BYTES; i++) {
        used +=
            snprintf(reason + used, (size_t)(GML_REASON_BYTES - used), " %s", gml_policy_name(i));
    }
    return GML_INVALID_ARGUMENT;
}

/* Opens the driver, inside a fault wrapper where the configuration asks for one. */
static gml_status
open_driver(const gml_lake_config *config, gml_driver **out, char *reason)
{
    gml_driver *driver;
    gml_status status = gml_driver_open(config->driver, config->device, config->capacity_bytes,
                                        &driver, reason, GML_REASON_BYTES);
    if (status == GML_OK && (config->fail_call || config->fail_per_million)) {
        gml_driver *inner = driver;
        status = gml_fault_driver_open(inner, config->fail_call, config->fail_per_million,
                                       config->fail_seed, &driver);
        if (status != GML_OK) {
            gml_driver_close(inner);
            snprintf(reason, GML_REASON_BYTES, "%s", gml_status_text(status));
        }
    }
    if (status == GML_OK) {
        *out = driver;
    }
    return status;
}

static gml_status
open_parts(gml_lake *lake, const gml_lake_config *config, const gml_policy_ops *policy,
           const gml_knobs *knobs, char *reason)
{
    gml_status status = open_driver(config, &lake->driver, reason);
    if (status != GML_OK) {
        return status;
    }
    status = policy->create(lake->driver, config->capacity_bytes, knobs, &lake->policy);
    if (status != GML_OK) {
        snprintf(reason, GML_REASON_BYTES, "%s",
                 lake->driver->reason[0] ? lake->driver->reason : gml_status_text(status));
        gml_driver_close(lake->driver);
    }
    return status;
}

gml_status
gml_lake_open(const gml_lake_config *config, gml_lake **out, char *reason, size_t reason_bytes)
{
    char text[GML_REASON_BYTES] = "";
    const gml_policy_ops *policy;
    gml_knobs knobs;
    gml_knobs_init(&knobs);
    gml_status status = find_policy(config->policy, &policy, text);
    if (status == GML_OK) {
        status =
            gml_knobs_apply(&knobs, config->settings, config->setting_count, text, sizeof text);
    }
    if (status != GML_OK) {
        return refuse(reason, reason_bytes, status, text);
    }
    gml_lake *lake = calloc(1, sizeof *lake);
    if (!lake) {
        return refuse(reason, reason_bytes, GML_NO_HOST_MEMORY, "out of host memory");
    }
    lake->max_split_size = knobs.max_split_size;
    lake->capacity_bytes = config->capacity_bytes;
    lake->device = config->device;
    status = open_parts(lake, config, policy, &knobs, text);
    if (status != GML_OK) {
        free(lake);
        return refuse(reason, reason_bytes, status, text);
    }
    pthread_mutex_init(&lake->lock, NULL);
    *out = lake;
    return GML_OK;
}

gml_status
gml_lake_close(gml_lake *lake)
{
    if (!lake) {
        return GML_OK;
    }
    gml_status status = lake->policy->ops->destroy(lake->policy);
    gml_driver_close(lake->driver);
    gml_map_clear(&lake->blocks);
    pthread_mutex_destroy(&lake->lock);
    free(lake);
    return status;
}

static gml_status
allocate_locked(gml_lake *lake, uint64_t size_bytes, gml_stream stream, gml_address *out)
{
    /* Room in the table first: once the policy has served, nothing may fail. */
    gml_status status = gml_map_reserve(&lake->blocks, 1);
    if (status != GML_OK) {
        return gml_driver_fail(lake->driver, status, "the table of live blocks cannot grow");
    }
    gml_block *block;
    status = lake->policy->ops->allocate(lake->policy, size_bytes, stream, &block);
    gml_lake_note_reserved(lake);
    if (status != GML_OK) {
        if (status == GML_OUT_OF_MEMORY) {
            gml_lake_explain_refusal(lake, size_bytes);
        }
        return status;
    }
    (void)gml_map_insert(&lake->blocks, block->address, block);
    gml_lake_count_allocation(lake, block);
    *out = block->address;
    return GML_OK;
}

gml_status
gml_lake_allocate(gml_lake *lake, uint64_t size_bytes, gml_stream stream, gml_address *out)
{
    if (size_bytes == 0) {
        *out = 0;
        return GML_OK;
    }
    pthread_mutex_lock(&lake->lock);
    gml_status status;
    if (size_bytes > LARGEST_REQUEST) {
        status =
            gml_driver_fail(lake->driver, GML_INVALID_ARGUMENT,
                            "%" PRIu64 " bytes asked for; the largest request is 2^48", size_bytes);
    } else if (stream == UINT64_MAX) {
        status =
            gml_driver_fail(lake->driver, GML_INVALID_ARGUMENT, "2^64 - 1 is not a stream handle");
    } else {
        status = allocate_locked(lake, size_bytes, stream, out);
    }
    pthread_mutex_unlock(&lake->lock);
    return status;
}

gml_status
gml_lake_free_locked(gml_lake *lake, gml_address address)
{
    gml_block *block = gml_map_take(&lake->blocks, address);
    if (!block) {
        return gml_driver_fail(
            lake->driver, GML_UNKNOWN_ADDRESS,
            "no live block begins at 0x%" PRIx64 ": it is foreign, or was freed before", address);
    }
    gml_lake_count_free(lake, block);
    lake->policy->ops->free(lake->policy, block);
    return GML_OK;
}

gml_status
gml_lake_free(gml_lake *lake, gml_address address)
{
    if (address == 0) {
        return GML_OK;
    }
    pthread_mutex_lock(&lake->lock);
    gml_status status = gml_lake_free_locked(lake, address);
    pthread_mutex_unlock(&lake->lock);
    return status;
}

gml_status
gml_lake_trim(gml_lake *lake, uint64_t *released_bytes)
{
    uint64_t released = 0;
    pthread_mutex_lock(&lake->lock);
    gml_status status = lake->policy->ops->trim(lake->policy, &released);
    gml_lake_note_reserved(lake);
    pthread_mutex_unlock(&lake->lock);
    if (released_bytes) {
        *released_bytes = released;
    }
    return status;
}

/* The live block at `address`, or NULL with a reason. */
static gml_block *
find_block(gml_lake *lake, gml_address address)
{
    gml_block *block = gml_map_find(&lake->blocks, address);
    if (!block) {
        (void)gml_driver_fail(lake->driver, GML_UNKNOWN_ADDRESS,
                              "no live block begins at 0x%" PRIx64, address);
    }
    return block;
}

gml_status
gml_lake_block(gml_lake *lake, gml_address address, gml_block_info *out)
{
    pthread_mutex_lock(&lake->lock);
    const gml_block *block = find_block(lake, address);
    if (block) {
        *out = (gml_block_info){
            .address = block->address,
            .requested_bytes = block->requested_bytes,
            .block_bytes = block->block_bytes,
            .stream = block->stream,
            .state = block->state,
        };
    }
    pthread_mutex_unlock(&lake->lock);
    return block ? GML_OK : GML_UNKNOWN_ADDRESS;
}

gml_status
gml_lake_bytes(gml_lake *lake, gml_address address, void **out)
{
    pthread_mutex_lock(&lake->lock);
    const gml_block *block = find_block(lake, address);
    gml_status status = block ? gml_driver_bytes(lake->driver, address, block->block_bytes, out)
                              : GML_UNKNOWN_ADDRESS;
    pthread_mutex_unlock(&lake->lock);
    return status;
}

gml_status
gml_lake_check(gml_lake *lake)
{
    pthread_mutex_lock(&lake->lock);
    gml_status status = lake->policy->ops->check(lake->policy);
    if (status == GML_OK && lake->blocks.count != lake->stats.live_blocks) {
        status = gml_driver_fail(lake->driver, GML_CORRUPT,
                                 "%zu live blocks in the table, %" PRIu64 " counted",
                                 lake->blocks.count, lake->stats.live_blocks);
    }
    pthread_mutex_unlock(&lake->lock);
    return status;
}

gml_status
gml_lake_visit(gml_lake *lake, const gml_visitor *visitor)
{
    pthread_mutex_lock(&lake->lock);
    lake->policy->ops->visit(lake->policy, visitor);
    pthread_mutex_unlock(&lake->lock);
    return GML_OK;
}

void
gml_lake_reason(gml_lake *lake, char *out, size_t out_bytes)
{
    if (!out_bytes) {
        return;
    }
    pthread_mutex_lock(&lake->lock);
    snprintf(out, out_bytes, "%s", lake->driver->reason);
    pthread_mutex_unlock(&lake->lock);
}
