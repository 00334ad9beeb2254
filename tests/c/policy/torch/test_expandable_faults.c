/* The policy `expandable` over drivers that fail: what is begun is undone, and what cannot be
 * undone is counted, reused and given back. */
#include "driver/backends.h"
#include "support/policy_fixture.h"

static uint64_t trimmed(fixture *f) {
    uint64_t released_bytes = UINT64_MAX;
    CHECK_OK(f->policy->ops->trim(f->policy, &released_bytes));
    is_sound(f);
    return released_bytes;
}

typedef void (*action)(fixture *f);

static void grow_by_three(fixture *f) {
    gml_block *block = NULL;
    gml_status status = f->policy->ops->allocate(f->policy, 60 * MIB, 0, &block);
    CHECK(status == GML_OK || f->fail_call);
    is_sound(f);
    if (status == GML_OK) {
        give(f, block);
    }
}

static void grow_and_trim(fixture *f) {
    grow_by_three(f);
    uint64_t released_bytes;
    gml_status status = f->policy->ops->trim(f->policy, &released_bytes);
    CHECK(status == GML_OK || f->fail_call);
    is_sound(f);
}

/* Fails each call of the action in turn; afterwards the same action works, and all is given back.
 */
static void fail_each_call(action act) {
    fixture f = fixture_of(&gml_expandable_policy);
    fixture_start(&f);
    act(&f);
    uint64_t calls = count_calls(&f);
    CHECK(calls > 5);
    fixture_stop(&f);
    for (uint64_t nth = 1; nth <= calls; nth++) {
        f.fail_call = nth;
        fixture_start(&f);
        act(&f);
        f.fail_call = 0; /* has happened: from here on nothing may fail */
        act(&f);
        trimmed(&f);
        CHECK_EQ(f.policy->reserved_bytes, 0);
        fixture_stop(&f);
    }
}

TEST(a_trim_that_fails_is_resumed) {
    fail_each_call(grow_and_trim);
}

/* Two calls in a row fail, so that undoing fails too: what is left is counted, reused, given back.
 */
typedef struct stubborn {
    gml_driver base;
    gml_driver *inner;
    gml_driver_call refused[2];
    int refusals;
} stubborn;

static bool refuses(gml_driver *self, gml_driver_call call) {
    stubborn *driver = (stubborn *)self;
    bool is_refused =
        driver->refusals && (driver->refused[0] == call || driver->refused[1] == call);
    driver->refusals -= is_refused;
    return is_refused;
}

static gml_status stubborn_create(gml_driver *self, uint64_t size_bytes, gml_handle *out) {
    return refuses(self, GML_CALL_CREATE)
               ? gml_driver_fail(self, GML_OUT_OF_MEMORY, "refused")
               : gml_driver_create(((stubborn *)self)->inner, size_bytes, out);
}

static gml_status stubborn_release(gml_driver *self, gml_handle handle) {
    return refuses(self, GML_CALL_RELEASE) ? gml_driver_fail(self, GML_DRIVER_FAILED, "refused")
                                           : gml_driver_release(((stubborn *)self)->inner, handle);
}

static gml_status stubborn_reserve(gml_driver *self, uint64_t size_bytes, uint64_t alignment_bytes,
                                   gml_address *out) {
    return gml_driver_reserve(((stubborn *)self)->inner, size_bytes, alignment_bytes, out);
}

static gml_status stubborn_unreserve(gml_driver *self, gml_address address, uint64_t size_bytes) {
    return gml_driver_unreserve(((stubborn *)self)->inner, address, size_bytes);
}

static gml_status stubborn_map(gml_driver *self, gml_address address, uint64_t size_bytes,
                               gml_handle handle) {
    return gml_driver_map(((stubborn *)self)->inner, address, size_bytes, handle);
}

static gml_status stubborn_unmap(gml_driver *self, gml_address address, uint64_t size_bytes) {
    return refuses(self, GML_CALL_UNMAP)
               ? gml_driver_fail(self, GML_DRIVER_FAILED, "refused")
               : gml_driver_unmap(((stubborn *)self)->inner, address, size_bytes);
}

static gml_status stubborn_set_access(gml_driver *self, gml_address address, uint64_t size_bytes) {
    return refuses(self, GML_CALL_SET_ACCESS)
               ? gml_driver_fail(self, GML_DRIVER_FAILED, "refused")
               : gml_driver_set_access(((stubborn *)self)->inner, address, size_bytes);
}

static gml_status stubborn_memory_info(gml_driver *self, uint64_t *free_bytes,
                                       uint64_t *total_bytes) {
    return gml_driver_memory_info(((stubborn *)self)->inner, free_bytes, total_bytes);
}

static gml_status stubborn_device_synchronize(gml_driver *self) {
    return gml_driver_device_synchronize(((stubborn *)self)->inner);
}

static void stubborn_destroy(gml_driver *self) {
    gml_driver_close(((stubborn *)self)->inner);
}

static const gml_driver_ops stubborn_ops = {
    .name = "stubborn",
    .destroy = stubborn_destroy,
    .create = stubborn_create,
    .release = stubborn_release,
    .reserve = stubborn_reserve,
    .unreserve = stubborn_unreserve,
    .map = stubborn_map,
    .unmap = stubborn_unmap,
    .set_access = stubborn_set_access,
    .memory_info = stubborn_memory_info,
    .device_synchronize = stubborn_device_synchronize,
};

/* Grows while two kinds of call are refused, `refusals` times in all, and looks at what is left. */
static void check_strays(gml_driver_call first, gml_driver_call second, int refusals,
                         uint64_t left_bytes) {
    fixture f = fixture_of(&gml_expandable_policy);
    char reason[GML_REASON_BYTES];
    stubborn driver = {.base.ops = &stubborn_ops, .refused = {first, second}};
    CHECK_OK(gml_model_driver_open(GML_MODEL_SIM, GIB, 0, &driver.inner, reason, sizeof reason));
    driver.base.info = driver.inner->info;
    driver.base.device = driver.inner->device;
    driver.base.gone = driver.inner->gone;
    f.driver = &driver.base;
    CHECK_OK(f.ops->create(f.driver, 0, &f.knobs, &f.policy));
    get(&f, 20 * MIB, 0); /* so that places begin behind something live */
    driver.refusals = refusals;
    gml_block *block = NULL;
    CHECK_STATUS(f.ops->allocate(f.policy, 60 * MIB, 0, &block), GML_DRIVER_FAILED);
    is_sound(&f);
    CHECK_EQ(f.policy->reserved_bytes, 20 * MIB + left_bytes);
    gml_torch_stats stats = stats_of(&f);
    CHECK_EQ(stats.reserved_bytes[GML_POOL_ALL].current, f.policy->reserved_bytes);

    driver.refusals = 0;
    uint64_t creates = driver.base.calls[GML_CALL_CREATE];
    block = get(&f, 60 * MIB, 0); /* what was left serves */
    CHECK_EQ(driver.base.calls[GML_CALL_CREATE] - creates, 3 - left_bytes / (20 * MIB));
    CHECK_EQ(f.policy->reserved_bytes, 80 * MIB);
    is_sound(&f);
    give(&f, block);
    CHECK_EQ(trimmed(&f), 60 * MIB);

    driver.refusals = refusals;
    CHECK_STATUS(f.ops->allocate(f.policy, 60 * MIB, 0, &block), GML_DRIVER_FAILED);
    driver.refusals = 0;
    CHECK_EQ(trimmed(&f), left_bytes); /* or it is given back */
    CHECK_OK(f.ops->destroy(f.policy));
    CHECK_EQ(held_by_driver(&f), 0);
    gml_driver_close(&driver.base);
}

TEST(what_cannot_be_undone_is_kept_and_reused) {
    check_strays(GML_CALL_SET_ACCESS, GML_CALL_UNMAP, 100, 60 * MIB); /* still mapped */
    check_strays(GML_CALL_SET_ACCESS, GML_CALL_RELEASE, 2, 20 * MIB); /* unmapped, not released */
    check_strays(GML_CALL_SET_ACCESS, GML_CALL_RELEASE, 3, 40 * MIB);
}
