#include "support/trainer.h"

#include "support/contract.h"
#include "support/stamp.h"

#include <stdlib.h>

gml_lake *trainer_open_lake(const char *driver, const char *policy, uint64_t capacity_bytes) {
    static const gml_setting chunks = {"chunk_size", 2 * MIB};
    gml_lake_config config = {.driver = driver,
                              .policy = policy,
                              .capacity_bytes = capacity_bytes,
                              .settings = &chunks,
                              .setting_count = 1};
    gml_lake *lake = NULL;
    if (!CHECK_OK(gml_lake_open(&config, &lake, NULL, 0))) {
        exit(1);
    }
    return lake;
}

gml_stats trainer_stats(gml_lake *lake) {
    return lake_stats_of(lake);
}

uint64_t trainer_calls(gml_lake *lake) {
    return lake_calls(lake);
}

gml_address trainer_take(gml_lake *lake, uint64_t size_bytes, gml_stream stream) {
    gml_address address = 0;
    CHECK_OK(gml_lake_allocate(lake, size_bytes, stream, &address));
    return address;
}

gml_state trainer_state(gml_lake *lake, gml_address address) {
    gml_block_info info = {0};
    CHECK_OK(gml_lake_block(lake, address, &info));
    return info.state;
}

void trainer_close(gml_lake *lake) {
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_EQ(trainer_stats(lake).reserved_bytes, 0);
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_close(lake));
}

static void fill(const trainer *self, const item *filled) {
    void *bytes;
    if (self->fills && CHECK_OK(gml_lake_bytes(self->lake, filled->address, &bytes))) {
        stamp_write(bytes, filled->size_bytes, filled->seed, 4096);
    }
}

bool trainer_request(trainer *self, uint64_t size_bytes, item *out) {
    out->size_bytes = size_bytes;
    out->seed = check_next(&self->random);
    gml_status status = gml_lake_allocate(self->lake, size_bytes, self->stream, &out->address);
    if (status == GML_OUT_OF_MEMORY) {
        self->refused++;
        return false;
    }
    if (status == GML_DRIVER_FAILED && self->may_fail) {
        self->failed++;
        return false;
    }
    if (CHECK_OK(status)) {
        fill(self, out);
    }
    return status == GML_OK;
}

void trainer_drop(trainer *self, const item *dropped) {
    void *bytes;
    if (self->fills && CHECK_OK(gml_lake_bytes(self->lake, dropped->address, &bytes))) {
        CHECK(stamp_holds(bytes, dropped->size_bytes, dropped->seed, 4096));
    }
    CHECK_OK(gml_lake_free(self->lake, dropped->address));
}

static uint64_t activation_bytes(uint64_t layer, uint64_t index) {
    return (3 + layer % 3 + 2 * index) * MIB / 2 + 512 * (layer * 7 + index * 3);
}

/* A request more, that lives for a while; or the size of one changed. */
static uint64_t drifted(trainer *self, uint64_t size_bytes) {
    if (check_below(&self->random, 100) >= self->drift_percent) {
        return size_bytes;
    }
    if (check_below(&self->random, 2) && self->extra_count < TRAINER_MOST) {
        item *extra = &self->extras[self->extra_count];
        self->extra_count += trainer_request(self, 1 + check_below(&self->random, 6 * MIB), extra);
        return size_bytes;
    }
    return check_below(&self->random, 3) ? 1 + check_below(&self->random, 6 * MIB) : 0;
}

static void drop_extras(trainer *self, size_t left) {
    while (self->extra_count > left) {
        size_t at = (size_t)check_below(&self->random, self->extra_count);
        trainer_drop(self, &self->extras[at]);
        self->extras[at] = self->extras[--self->extra_count];
    }
}

void trainer_forward(trainer *self) {
    for (uint64_t layer = 0; layer < TRAINER_LAYERS; layer++) {
        item workspace;
        bool has_workspace = trainer_request(self, 2 * MIB + 512 * layer, &workspace);
        for (uint64_t i = 0; i < TRAINER_PER_LAYER; i++) {
            uint64_t size_bytes = drifted(self, activation_bytes(layer, i) * self->scale);
            item *next = &self->activations[self->activation_count];
            self->activation_count += size_bytes && trainer_request(self, size_bytes, next);
        }
        if (has_workspace) {
            trainer_drop(self, &workspace);
        }
    }
}

void trainer_backward(trainer *self) {
    for (uint64_t layer = TRAINER_LAYERS; layer-- > 0;) {
        uint64_t size_bytes = drifted(self, MIB + 512 * (layer * 11));
        item *next = &self->gradients[self->gradient_count];
        self->gradient_count += size_bytes && trainer_request(self, size_bytes, next);
        for (uint64_t i = 0; i < TRAINER_PER_LAYER && self->activation_count; i++) {
            trainer_drop(self, &self->activations[--self->activation_count]);
        }
        drop_extras(self, self->extra_count / 2);
    }
    while (self->activation_count) {
        trainer_drop(self, &self->activations[--self->activation_count]);
    }
}

void trainer_drop_gradients(trainer *self) {
    while (self->gradient_count) {
        trainer_drop(self, &self->gradients[--self->gradient_count]);
    }
}
