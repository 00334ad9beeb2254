/* Elastic buffers of a random program. */
#include "gmlake_elastic.h"
#include "support/stress.h"

#define MIB (UINT64_C(1) << 20)
#define LARGEST_BUFFER (16 * MIB)

static gml_elastic_info describe(const stress_buffer *of) {
    gml_elastic_info info = {0};
    CHECK_OK(gml_lake_elastic(of->at->lake, of->address, &info));
    return info;
}

/* Looks at what was stamped, and stamps the rest of its memory. */
static void touch(const stress *self, stress_buffer *of) {
    void *memory = NULL;
    const gml_elastic_info info = describe(of);
    if (!lake_is_host() || !info.memory_bytes) {
        return;
    }
    (void)pthread_rwlock_rdlock(&of->at->awake);
    if (stress_is_asleep(of->at)) {
        CHECK_STATUS(gml_lake_elastic_bytes(of->at->lake, of->address, &memory), GML_UNSUPPORTED);
    } else if (CHECK_OK(gml_lake_elastic_bytes(of->at->lake, of->address, &memory))) {
        bool has_content = of->stamped >= of->at->lost_nap;
        for (uint64_t at = 0; at < info.memory_bytes; at += info.chunk_bytes) {
            CHECK(stress_queue(of->at, stress_lasting_stream(self), (char *)memory + at,
                               info.chunk_bytes, of->seed + at,
                               !has_content || at >= of->stamped_bytes));
        }
        of->stamped_bytes = info.memory_bytes;
        of->stamped = of->at->sleeps;
    }
    (void)pthread_rwlock_unlock(&of->at->awake);
}

static void open_buffer(stress *self, stress_buffer *of) {
    stress_lake *at = stress_any_lake(self);
    gml_address address = 0;
    uint64_t size_bytes = 1 + check_below(&self->random, LARGEST_BUFFER);
    gml_status status =
        ASK(gml_lake_open_elastic(at->lake, size_bytes, stress_lasting_stream(self), &address));
    if (!at->has_elastic) {
        CHECK_STATUS(status, GML_UNSUPPORTED);
        return;
    }
    stress_expect(self, status);
    if (status == GML_OK) {
        *of = (stress_buffer){.address = address, .at = at, .seed = check_next(&self->random)};
        of->size_bytes = describe(of).size_bytes;
        CHECK(of->size_bytes >= size_bytes);
        CHECK_STATUS(gml_lake_free(at->lake, address), GML_UNKNOWN_ADDRESS);
    }
}

/* Why a buffer may not grow: memory that sleeps, and a capture, of this thread or another. */
static bool may_be_unsupported(const stress *self, const stress_lake *at) {
    return stress_is_asleep(at) || stress_may_capture(self, at);
}

static void resize_buffer(stress *self, stress_buffer *of) {
    const gml_elastic_info before = describe(of);
    uint64_t most_bytes = of->size_bytes >> check_below(&self->random, 4);
    uint64_t size_bytes = check_below(&self->random, most_bytes + 1);
    uint64_t ahead_bytes =
        check_below(&self->random, 2) ? check_below(&self->random, LARGEST_BUFFER) : 0;
    uint64_t told_bytes = before.memory_bytes;
    gml_status status = ASK(
        gml_lake_resize_elastic(of->at->lake, of->address, size_bytes, ahead_bytes, &told_bytes));
    const gml_elastic_info after = describe(of);
    CHECK_EQ(told_bytes, after.memory_bytes);
    uint64_t least_bytes = size_bytes + before.chunk_bytes - 1;
    least_bytes -= least_bytes % before.chunk_bytes;
    bool grows = least_bytes > before.memory_bytes;
    stress_counts.grown += after.memory_bytes > before.memory_bytes;
    stress_counts.shrunk += after.memory_bytes < before.memory_bytes;
    if (status == GML_OK) {
        CHECK(after.memory_bytes >= least_bytes && after.memory_bytes <= of->size_bytes);
        CHECK(grows || after.memory_bytes == least_bytes);
        CHECK(after.memory_bytes <= least_bytes + ahead_bytes + before.chunk_bytes);
    } else {
        CHECK(grows);
        CHECK_EQ(after.memory_bytes, before.memory_bytes);
    }
    if (status == GML_UNSUPPORTED) {
        CHECK(may_be_unsupported(self, of->at));
    } else if (status != GML_OUT_OF_MEMORY) {
        stress_expect(self, status);
    }
    if (of->stamped_bytes > after.memory_bytes) {
        of->stamped_bytes = after.memory_bytes;
    }
    touch(self, of);
}

static void close_buffer(const stress *self, stress_buffer *of) {
    touch(self, of);
    CHECK_OK(ASK(gml_lake_close_elastic(of->at->lake, of->address)));
    if (self->shared->is_alone) { /* another thread may open one at the address */
        CHECK_STATUS(gml_lake_close_elastic(of->at->lake, of->address), GML_UNKNOWN_ADDRESS);
    }
    of->address = 0;
}

void stress_change_buffer(stress *self) {
    size_t most = self->shared->is_alone ? STRESS_BUFFERS : 1;
    stress_buffer *of = &self->buffers[check_below(&self->random, most)];
    if (!of->address) {
        open_buffer(self, of);
    } else if (check_below(&self->random, 16)) {
        resize_buffer(self, of);
    } else {
        close_buffer(self, of);
    }
}

void stress_touch_buffers(stress *self, const stress_lake *at) {
    for (size_t i = 0; i < STRESS_BUFFERS; i++) {
        if (self->buffers[i].address && self->buffers[i].at == at) {
            touch(self, &self->buffers[i]);
        }
    }
}

void stress_close_buffers(stress *self) {
    for (size_t i = 0; i < STRESS_BUFFERS; i++) {
        if (self->buffers[i].address) {
            close_buffer(self, &self->buffers[i]);
        }
    }
}
