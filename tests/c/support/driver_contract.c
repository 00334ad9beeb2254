/* The backends, one after the other, and the scene of a test. */
#include "support/driver_contract.h"

#include "driver/backends.h"
#include "hooks/fault.h"

#include <stdlib.h>
#include <string.h>

/* A backend; `driver` is what gml_driver_open() calls it. */
typedef struct backend {
    const char *label, *driver;
    bool has_bytes, is_hollow, is_wrapped;
} backend;

static const backend backends[] = {
    {"sim", "sim", false, false, false},
    {"host", "host", true, false, false},
    {"hollow", "host", false, true, false},
    {"fault", "host", true, false, true},
};
static const backend cuda_backend = {"cuda", "cuda", true, false, false};

static const backend *current;
static bool is_gpu; /* a real device: others may use its memory at the same time */
static raw_cuda raw;

bool contract_is_cuda(void) {
    return current == &cuda_backend;
}

const raw_cuda *contract_cuda(void) {
    return &raw;
}

gml_driver *open_driver(void) {
    char reason[GML_REASON_BYTES] = "";
    gml_driver *driver = NULL;
    gml_status status =
        current->is_hollow
            ? gml_model_driver_open(GML_MODEL_HOLLOW, 0, 0, &driver, reason, sizeof reason)
            : gml_driver_open(current->driver, 0, 0, &driver, reason, sizeof reason);
    if (!CHECK_OK(status)) {
        fprintf(stderr, "%s\n", reason);
        abort();
    }
    if (current->is_wrapped) {
        gml_driver *wrapped = NULL;
        CHECK_OK(gml_fault_driver_open(driver, 0, 0, 0, &wrapped));
        return wrapped;
    }
    return driver;
}

uint64_t free_bytes_of(gml_driver *driver) {
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
    CHECK_OK(gml_driver_memory_info(driver, &free_bytes, &total_bytes));
    CHECK(free_bytes <= total_bytes);
    return free_bytes;
}

void check_taken(gml_driver *driver, uint64_t before, uint64_t taken) {
    uint64_t now = free_bytes_of(driver);
    if (!is_gpu) {
        CHECK_EQ(before - now, taken);
    } else {
        CHECK(before + (UINT64_C(8) << 20) >= now + taken);
        CHECK(before <= now + taken + (UINT64_C(8) << 20));
    }
}

void check_refused(gml_driver *driver, gml_status status) {
    CHECK(status != GML_OK && status != GML_NOT_READY && status != GML_OUT_OF_MEMORY);
    if (!contract_is_cuda()) {
        CHECK_STATUS(status, GML_MISUSE);
    }
    CHECK(strlen(driver->reason) > 10);
    CHECK(!strchr(driver->reason, '\n'));
}

bool check_refused_but_on_a_gpu(gml_driver *driver, gml_status status) {
    if (is_gpu && status == GML_OK) {
        return true;
    }
    check_refused(driver, status);
    return false;
}

bool has_bytes(void) {
    return current->has_bytes;
}

void write_byte(gml_driver *driver, gml_address address, unsigned char value) {
    if (contract_is_cuda()) {
        CHECK(raw_cuda_write(&raw, address, &value, 1));
        return;
    }
    void *bytes = NULL;
    if (CHECK_OK(gml_driver_bytes(driver, address, 1, &bytes))) {
        *(unsigned char *)bytes = value;
    }
}

unsigned read_byte(gml_driver *driver, gml_address address) {
    unsigned char value = 0;
    if (contract_is_cuda()) {
        CHECK(raw_cuda_read(&raw, &value, address, 1));
        return value;
    }
    void *bytes = NULL;
    if (CHECK_OK(gml_driver_bytes(driver, address, 1, &bytes))) {
        value = *(unsigned char *)bytes;
    }
    return value;
}

gml_stream new_stream(void) {
    static gml_stream next = 1;
    return contract_is_cuda() ? raw_cuda_stream(&raw) : next++;
}

scene open_scene(void) {
    scene made = {.driver = open_driver()};
    made.granule = made.driver->info.granularity_bytes;
    CHECK_OK(gml_driver_reserve(made.driver, SOME_GRANULES * made.granule, 0, &made.base));
    made.free_before = free_bytes_of(made.driver);
    for (int i = 0; i < SOME_GRANULES; i++) {
        CHECK_OK(gml_driver_create(made.driver, made.granule, &made.handles[i]));
    }
    return made;
}

void release_handles(scene *of) {
    for (int i = 0; i < SOME_GRANULES; i++) {
        if (of->handles[i]) {
            CHECK_OK(gml_driver_release(of->driver, of->handles[i]));
            of->handles[i] = 0;
        }
    }
}

void close_scene(scene *of) {
    release_handles(of);
    check_taken(of->driver, of->free_before, 0);
    CHECK_OK(gml_driver_unreserve(of->driver, of->base, SOME_GRANULES * of->granule));
    gml_driver_close(of->driver);
}

gml_address granule_at(const scene *of, uint64_t index) {
    return of->base + index * of->granule;
}

void map_at(scene *of, uint64_t index, gml_handle handle) {
    CHECK_OK(gml_driver_map(of->driver, granule_at(of, index), of->granule, handle));
}

void unmap_at(scene *of, uint64_t index, uint64_t count) {
    CHECK_OK(gml_driver_unmap(of->driver, granule_at(of, index), count * of->granule));
}

void open_access_at(scene *of, uint64_t index, uint64_t count) {
    CHECK_OK(gml_driver_set_access(of->driver, granule_at(of, index), count * of->granule));
}

static void run_all_on(const backend *on) {
    current = on;
    for (const check_test *test = check_tests(); test; test = test->next) {
        char name[128];
        (void)snprintf(name, sizeof name, "%s/%s", on->label, test->name);
        check_run(name, test->run);
    }
}

int driver_contract_main(void) {
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
        run_all_on(&backends[i]);
    }
    const char *cuda = raw_cuda_begin(&raw);
    if (cuda) {
        is_gpu = strcmp(cuda, "fake") != 0;
        run_all_on(&cuda_backend);
    } else {
        printf("not run on cuda: GMLAKE_TEST_CUDA is not set\n");
    }
    return report();
}
