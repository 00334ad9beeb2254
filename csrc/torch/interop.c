/* The lakes below PyTorch, for others. */
#include "gmlake_interop.h"
#include "gmlake_torch.h"
#include "lake/lake.h"
#include "torch/registry.h"

typedef gml_status (*opener)(int device, gml_lake **out, char *reason, size_t reason_bytes);

/* The lake of that number, opened if need be. */
static gml_status open_lake(int number, int device, opener open, gml_lake **out, char *reason,
                            size_t reason_bytes) {
    gml_lake *lake = gml_torch_lake(number);
    if (!lake) {
        gml_status status = open(device, &lake, reason, reason_bytes);
        if (status != GML_OK) {
            return status;
        }
        /* Other libraries copy between devices by their own peer access, which does not cover
         * mapped memory. */
        gml_registry_grant_all(lake, device);
    }
    *out = lake;
    return GML_OK;
}

gml_status gml_interop_open(int device, gml_lake **out, char *reason, size_t reason_bytes) {
    return open_lake(device, device, gml_registry_open, out, reason, reason_bytes);
}

gml_status gml_interop_open_serving(int device, gml_lake **out, char *reason, size_t reason_bytes) {
    return open_lake(gml_registry_serving(device), device, gml_registry_open_serving, out, reason,
                     reason_bytes);
}

/* Before it is refused, the processes that share the device are asked. */
static gml_status allocate(gml_lake *lake, int device, uint64_t size_bytes, gml_stream stream,
                           gml_address *out) {
    gml_status status = gml_lake_try(lake, size_bytes, stream, out);
    while (status == GML_OUT_OF_MEMORY && gml_torch_ask_neighbours(device, size_bytes, true)) {
        status = gml_lake_try(lake, size_bytes, stream, out);
    }
    return status == GML_OUT_OF_MEMORY ? gml_lake_allocate(lake, size_bytes, stream, out) : status;
}

void *gml_interop_alloc(void *stream, size_t size_bytes, int device) {
    char reason[GML_REASON_BYTES];
    gml_lake *lake = NULL;
    gml_address address = 0;
    if (gml_interop_open(device, &lake, reason, sizeof reason) != GML_OK ||
        allocate(lake, device, size_bytes, (gml_stream)(uintptr_t)stream, &address) != GML_OK) {
        return NULL;
    }
    return (void *)(uintptr_t)address; /* NOLINT(performance-no-int-to-ptr): a device address */
}

void gml_interop_free(void *stream, void *address, int device) {
    (void)stream;
    gml_lake *lake = address ? gml_torch_lake(device) : NULL;
    gml_address freed = (gml_address)(uintptr_t)address;
    gml_status status = lake ? gml_lake_free(lake, freed) : GML_UNKNOWN_ADDRESS;
    for (int number = -1; address && status == GML_UNKNOWN_ADDRESS;) {
        number = gml_registry_next(number);
        if (number < 0) {
            return;
        }
        status = gml_lake_free(gml_torch_lake(number), freed);
    }
}

gml_status gml_interop_wait_stream(gml_lake *lake, gml_stream stream) {
    return gml_lake_wait(lake, &stream);
}

gml_status gml_interop_wait_device(gml_lake *lake) {
    return gml_lake_wait(lake, NULL);
}
