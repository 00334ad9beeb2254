/* The functions that PyTorch calls. No lock is held where an exception leaves one of them. */
#include "gmlake_torch.h"
#include "torch/exception.h"
#include "torch/refusal.h"
#include "torch/registry.h"

#include <stdatomic.h>
#include <stdio.h>

enum { REASON_BYTES = 256 };

static _Atomic uint64_t foreign_frees;

uint64_t
gml_torch_foreign_frees(void)
{
    return atomic_load_explicit(&foreign_frees, memory_order_relaxed);
}

static gml_address
address_of(const void *pointer)
{
    return (gml_address)(uintptr_t)pointer;
}

static void *
pointer_to(gml_address address)
{
    return (void *)(uintptr_t)address; /* NOLINT(performance-no-int-to-ptr): a device address */
}

/* The lake that serves this thread on the device, opened if need be; NULL with a reason where that
 * fails. */
static gml_lake *
find_lake(int device, gml_status *status, char *reason, size_t reason_bytes)
{
    gml_lake *lake = gml_torch_lake(gml_registry_serving(device));
    if (!lake) {
        *status = gml_registry_open_serving(device, &lake, reason, reason_bytes);
    }
    return lake;
}

static void
throw_status(gml_status status, const char *text)
{
    if (status == GML_OUT_OF_MEMORY) {
        gml_throw_out_of_memory(text);
    } else {
        gml_throw_error(text);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* What is rare, out of the way of what is not. */
static void __attribute__((noinline, cold))
refuse(gml_lake *lake, int device, size_t size_bytes, gml_status status)
{
    char text[GML_REFUSAL_BYTES];
    status = gml_refusal_status(size_bytes, status);
    gml_refusal_write(lake, device, size_bytes, status, 0, text, sizeof text);
    throw_status(status, text);
}

/* NULL where there is nothing to throw with. */
static gml_lake *__attribute__((noinline, cold))
open_or_throw(int device, size_t size_bytes)
{
    char reason[REASON_BYTES] = "";
    char text[GML_REFUSAL_BYTES];
    gml_status status = GML_OK;
    gml_lake *lake = find_lake(device, &status, reason, sizeof reason);
    if (!lake) {
        gml_refusal_write_unopened(device, size_bytes, status, reason, text, sizeof text);
        throw_status(status, text);
    }
    return lake;
}

void *
gml_torch_alloc(size_t size_bytes, int device, void *stream)
{
    if (size_bytes == 0) {
        return NULL;
    }
    gml_lake *lake = gml_torch_lake(gml_registry_serving(device));
    if (!lake) {
        lake = open_or_throw(device, size_bytes);
    }
    if (!lake) {
        return NULL;
    }
    gml_address address = 0;
    gml_status status = gml_lake_allocate(lake, size_bytes, address_of(stream), &address);
    if (status != GML_OK) {
        refuse(lake, device, size_bytes, status);
    }
    return pointer_to(address);
}

/* The block may be another device's than PyTorch says. */
static void __attribute__((noinline, cold))
free_elsewhere(gml_address address, int device)
{
    for (int other = 0; other < gml_registry_end(); other++) {
        gml_lake *lake = other != device ? gml_torch_lake(other) : NULL;
        if (lake && gml_lake_free(lake, address) == GML_OK) {
            return;
        }
    }
    atomic_fetch_add_explicit(&foreign_frees, 1, memory_order_relaxed);
}

void
gml_torch_free(void *address, size_t size_bytes, int device, void *stream)
{
    (void)size_bytes;
    (void)stream;
    if (!address) {
        return;
    }
    gml_lake *lake = gml_torch_lake(device);
    if (!lake || gml_lake_free(lake, address_of(address)) != GML_OK) {
        free_elsewhere(address_of(address), device);
    }
}

void *
gml_torch_base(void *address, size_t *size_bytes)
{
    gml_block_info block = {0};
    for (int device = 0; address && device < gml_registry_end(); device++) {
        gml_lake *lake = gml_torch_lake(device);
        if (lake && gml_lake_block(lake, address_of(address), &block) == GML_OK) {
            break;
        }
    }
    *size_bytes = (size_t)block.block_bytes;
    return address;
}

/* ---- streams and pools ----------------------------------------------------------------------- */

void
gml_torch_record_stream(void *address, void *stream)
{
    gml_status status = GML_UNKNOWN_ADDRESS;
    for (int device = 0; address && status == GML_UNKNOWN_ADDRESS && device < gml_registry_end();
         device++) {
        gml_lake *lake = gml_torch_lake(device);
        if (lake) {
            status = gml_lake_record_stream(lake, address_of(address), address_of(stream));
        }
    }
    if (status != GML_OK && status != GML_UNKNOWN_ADDRESS) {
        gml_throw_error("gmlake cannot remember that a stream uses a tensor: the host is out of "
                        "memory");
    }
}

void
gml_torch_begin_pool(int device, gml_pool_id id, void *filter)
{
    (void)filter;
    char reason[REASON_BYTES] = "";
    gml_status status = GML_OK;
    gml_lake *lake = find_lake(device, &status, reason, sizeof reason);
    if (lake) {
        status = gml_lake_begin_pool(lake, id);
    }
    if (status != GML_OK) {
        char text[GML_REFUSAL_BYTES];
        (void)snprintf(text, sizeof text, "gmlake cannot begin a graph's memory pool on GPU %d: %s",
                       device, reason[0] ? reason : gml_status_text(status));
        gml_throw_error(text);
    }
}

void
gml_torch_end_pool(int device, gml_pool_id id)
{
    for (int number = 0; number < gml_registry_end(); number++) {
        gml_lake *lake = gml_torch_lake(number);
        if (lake && gml_torch_device_of(number) == device) {
            (void)gml_lake_end_pool(lake, id);
        }
    }
}

void
gml_torch_release_pool(int device, gml_pool_id id)
{
    for (int number = 0; number < gml_registry_end(); number++) {
        gml_lake *lake = gml_torch_lake(number);
        if (lake && gml_torch_device_of(number) == device) {
            (void)gml_lake_release_pool(lake, id);
        }
    }
}

/* ---- the rest -------------------------------------------------------------------------------- */

void
gml_torch_init(int device_count)
{
    (void)device_count; /* lakes are opened when they are needed */
}

void
gml_torch_empty_cache(void)
{
    for (int device = 0; device < gml_registry_end(); device++) {
        gml_lake *lake = gml_torch_lake(device);
        if (lake) {
            (void)gml_lake_trim(lake, NULL);
        }
    }
}

void
gml_torch_memory_fraction(double fraction, int device)
{
    gml_registry_limit(device, fraction);
}
