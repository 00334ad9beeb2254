#include "support/torch_calls.h"

#include "torch/native/native.h"

static gml_address address_of(const void *pointer) {
    return (gml_address)(uintptr_t)pointer;
}

void *torch_allocate(uint64_t size_bytes, int device, const void *stream) {
    const gml_native_core *core = gml_torch_native_core();
    char reason[256];
    gml_address address = 0;
    if (size_bytes == 0) {
        return NULL;
    }
    gml_lake *lake = core->find(core->serving(device));
    lake = lake ? lake : core->open(device, reason, sizeof reason);
    if (!lake) {
        return NULL;
    }
    gml_status status = core->allocate(lake, size_bytes, address_of(stream), &address);
    if (status == GML_OUT_OF_MEMORY) {
        core->look(lake, NULL, size_bytes, address_of(stream), 0);
        core->refuse(lake);
    }
    if (status != GML_OK) {
        return NULL;
    }
    return (void *)(uintptr_t)address; /* NOLINT(performance-no-int-to-ptr): a device address */
}

bool torch_free(void *address) {
    const gml_native_core *core = gml_torch_native_core();
    gml_status status = GML_UNKNOWN_ADDRESS;
    for (int number = core->next(-1); number >= 0 && status == GML_UNKNOWN_ADDRESS;
         number = core->next(number)) {
        status = core->free(core->find(number), address_of(address));
    }
    return status == GML_OK;
}

void torch_record_stream(void *address, const void *stream) {
    const gml_native_core *core = gml_torch_native_core();
    for (int number = core->next(-1); number >= 0; number = core->next(number)) {
        (void)core->record_stream(core->find(number), address_of(address), core->device_of(number),
                                  address_of(stream));
    }
}

void torch_trim(void) {
    const gml_native_core *core = gml_torch_native_core();
    for (int number = core->next(-1); number >= 0; number = core->next(number)) {
        (void)core->trim(core->find(number), NULL);
    }
}
