/* Copies and fills: what moves when the operation happens, and when the caller has to wait. */
#include "standin.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Which ends of an operation are addresses of this process as they stand, and need not be asked of
 * a device: in `value` of a copy, in `from` of a fill. */
enum { TO_HOST = 1, FROM_HOST = 2 };

static void *
pointer_to(gml_address address)
{
    return (void *)(uintptr_t)address;
}

/* Managed memory has bytes even where the device has none. */
static bool
is_host(const standin_place *place)
{
    return place->type != cudaMemoryTypeDevice;
}

/* The host's alone, without a device behind it. */
static bool
is_only_host(const standin_place *place)
{
    return place->type == cudaMemoryTypeHost || place->type == cudaMemoryTypeUnregistered;
}

/* From the first byte of the first row to the last of the last. */
static uint64_t
span_of(uint64_t width_bytes, uint64_t height, uint64_t pitch_bytes)
{
    return height > 1 ? (height - 1) * pitch_bytes + width_bytes : width_bytes;
}

/* ---- when the operation happens -------------------------------------------------------------- */

/* The bytes at one end of an operation, NULL where the device has none. False where nothing can be
 * touched any more, which is reported. */
static bool
find_bytes(const standin_operation *self, gml_address address, uint64_t pitch_bytes, bool host_end,
           char **out)
{
    *out = NULL;
    if (host_end) {
        *out = pointer_to(address);
        return true;
    }
    standin_device *device = standin_device_of(address);
    if (!device) {
        standin_misuse("%s: the memory at 0x%" PRIx64 " went away before the work was done",
                       self->name, address);
        return false;
    }
    void *bytes = NULL;
    uint64_t size_bytes = span_of(self->width_bytes, self->height, pitch_bytes);
    gml_status status = gml_driver_bytes(device->driver, address, size_bytes, &bytes);
    *out = bytes;
    return status == GML_UNSUPPORTED || standin_error_of(device, status) == cudaSuccess;
}

/* Memory without bytes reads as zeros. */
static void
move(char *to, const char *from, uint64_t size_bytes)
{
    if (from) {
        memmove(to, from, (size_t)size_bytes);
    } else {
        memset(to, 0, (size_t)size_bytes);
    }
}

static void
run_copy(const standin_operation *self)
{
    char *to = NULL;
    char *from = self->staged;
    if (!find_bytes(self, self->to, self->to_pitch_bytes, self->value & TO_HOST, &to)) {
        return;
    }
    if (!from &&
        !find_bytes(self, self->from, self->from_pitch_bytes, self->value & FROM_HOST, &from)) {
        return;
    }
    if (!to) {
        return;
    }
    if (self->to_pitch_bytes == self->width_bytes && self->from_pitch_bytes == self->width_bytes) {
        move(to, from, self->width_bytes * self->height);
        return;
    }
    for (uint64_t row = 0; row < self->height; row++) {
        move(to + row * self->to_pitch_bytes, from ? from + row * self->from_pitch_bytes : NULL,
             self->width_bytes);
    }
}

static void
run_fill(const standin_operation *self)
{
    char *to = NULL;
    if (find_bytes(self, self->to, self->width_bytes, self->from & TO_HOST, &to) && to) {
        memset(to, self->value, (size_t)self->width_bytes);
    }
}

static void
drop_staged(standin_operation *self)
{
    free(self->staged);
}

/* ---- when it is submitted -------------------------------------------------------------------- */

/* Whether the first and the last page belong to this process at all. */
static bool
is_in_process(gml_address address, uint64_t size_bytes)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    gml_address first = address & ~(page_bytes - 1);
    gml_address last = (address + size_bytes - 1) & ~(page_bytes - 1);
    unsigned char is_resident;
    return mincore(pointer_to(first), 1, &is_resident) == 0 &&
           mincore(pointer_to(last), 1, &is_resident) == 0;
}

/* An address that no block holds must at least be one of the host. */
static cudaError_t
check_place(const char *name, const standin_place *place, gml_address address, uint64_t size_bytes)
{
    if (address == 0 || size_bytes > UINT64_MAX - address) {
        return cudaErrorInvalidValue;
    }
    if (place->type == cudaMemoryTypeHost && !standin_is_pinned(pointer_to(address), size_bytes)) {
        standin_misuse("%s: %" PRIu64 " bytes at 0x%" PRIx64
                       " go beyond the page-locked memory of %" PRIu64 " bytes at 0x%" PRIx64,
                       name, size_bytes, address, place->size_bytes, place->begin);
        return cudaErrorInvalidValue;
    }
    if (place->type == cudaMemoryTypeUnregistered && !is_in_process(address, size_bytes)) {
        standin_misuse("%s: 0x%" PRIx64 " is no memory, of a device or of the host; it was freed "
                       "before, or never allocated",
                       name, address);
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

/* Copies rows from memory that the caller may change as soon as the call has returned. */
static bool
stage(standin_operation *copy)
{
    char *staged = malloc((size_t)(copy->width_bytes * copy->height));
    if (!staged) {
        return false;
    }
    const char *from = pointer_to(copy->from);
    for (uint64_t row = 0; row < copy->height; row++) {
        memcpy(staged + row * copy->width_bytes, from + row * copy->from_pitch_bytes,
               (size_t)copy->width_bytes);
    }
    copy->from_pitch_bytes = copy->width_bytes;
    copy->staged = staged;
    copy->drop = drop_staged;
    return true;
}

/* Submits, and waits where that is asked for. */
static cudaError_t
submit(standin_stream *stream, standin_operation *operation, bool must_wait)
{
    cudaError_t error = standin_submit(stream, operation);
    return error == cudaSuccess && must_wait ? standin_synchronize_stream(stream) : error;
}

/* Finds the stream, and whether a capture forbids to wait for it. */
static cudaError_t
find_stream(cudaStream_t handle, bool is_blocking, standin_stream **out)
{
    *out = standin_stream_of(handle);
    if (!*out) {
        return cudaErrorInvalidResourceHandle;
    }
    return is_blocking ? standin_guard_stream(*out) : cudaSuccess;
}

/* Whether a copy is over when the call returns though the caller did not ask for that: into memory
 * that is not page-locked, and from host to host. */
static bool
waits_by_itself(const standin_place *to, const standin_place *from)
{
    return to->type == cudaMemoryTypeUnregistered || (is_only_host(to) && is_only_host(from));
}

/* The copy of these rows, but for what is staged. */
static standin_operation
describe_copy(const char *name, const standin_rows *rows, const standin_place *to,
              const standin_place *from)
{
    uint64_t to_bytes = span_of(rows->width_bytes, rows->height, rows->to_pitch_bytes);
    uint64_t from_bytes = span_of(rows->width_bytes, rows->height, rows->from_pitch_bytes);
    return (standin_operation){
        .name = name,
        .ranges = {{rows->to, is_only_host(to) ? 0 : to_bytes},
                   {rows->from, is_only_host(from) ? 0 : from_bytes}},
        .run = run_copy,
        .to = rows->to,
        .from = rows->from,
        .width_bytes = rows->width_bytes,
        .height = rows->height,
        .to_pitch_bytes = rows->to_pitch_bytes,
        .from_pitch_bytes = rows->from_pitch_bytes,
        .value = (is_host(to) ? TO_HOST : 0) | (is_host(from) ? FROM_HOST : 0),
    };
}

/* One end of rows that are to be copied or filled. */
static cudaError_t
check_end(const char *name, const standin_place *place, gml_address address, uint64_t pitch_bytes,
          const standin_rows *rows)
{
    uint64_t size_bytes;
    if (pitch_bytes < rows->width_bytes) {
        return cudaErrorInvalidPitchValue;
    }
    if (__builtin_mul_overflow(pitch_bytes, rows->height, &size_bytes)) {
        return cudaErrorInvalidValue;
    }
    return check_place(name, place, address, span_of(rows->width_bytes, rows->height, pitch_bytes));
}

static cudaError_t
copy_rows(const char *name, const standin_rows *rows, cudaStream_t handle, bool is_blocking,
          bool crosses_devices)
{
    standin_stream *stream = NULL;
    cudaError_t error = find_stream(handle, is_blocking, &stream);
    if (error != cudaSuccess || rows->width_bytes == 0 || rows->height == 0) {
        return error;
    }
    standin_place to = standin_place_of(rows->to);
    standin_place from = standin_place_of(rows->from);
    error = check_end(name, &to, rows->to, rows->to_pitch_bytes, rows);
    if (error == cudaSuccess) {
        error = check_end(name, &from, rows->from, rows->from_pitch_bytes, rows);
    }
    if (error != cudaSuccess) {
        return error;
    }
    standin_operation copy = describe_copy(name, rows, &to, &from);
    copy.crosses_devices = crosses_devices;
    /* A captured copy reads and writes the host whenever the graph runs. */
    bool must_wait = is_blocking || (!stream->capture && waits_by_itself(&to, &from));
    bool can_keep = is_host(&to) || standin_settings_get()->is_backed;
    if (from.type == cudaMemoryTypeUnregistered && can_keep && !must_wait && !stream->capture &&
        !stage(&copy)) {
        return cudaErrorMemoryAllocation;
    }
    return submit(stream, &copy, must_wait);
}

cudaError_t
standin_copy_rows(const char *name, const standin_rows *rows, cudaStream_t handle, bool is_blocking)
{
    return copy_rows(name, rows, handle, is_blocking, false);
}

cudaError_t
standin_copy_across(const char *name, const standin_rows *rows, cudaStream_t handle)
{
    return copy_rows(name, rows, handle, false, true);
}

cudaError_t
standin_copy(const char *name, void *to, const void *from, uint64_t size_bytes, cudaStream_t stream,
             bool is_blocking)
{
    standin_rows row = {
        .to = (gml_address)(uintptr_t)to,
        .from = (gml_address)(uintptr_t)from,
        .to_pitch_bytes = size_bytes,
        .from_pitch_bytes = size_bytes,
        .width_bytes = size_bytes,
        .height = 1,
    };
    return standin_copy_rows(name, &row, stream, is_blocking);
}

cudaError_t
standin_fill(const char *name, gml_address to, int value, uint64_t size_bytes, cudaStream_t handle,
             bool is_blocking)
{
    standin_stream *stream = NULL;
    cudaError_t error = find_stream(handle, is_blocking, &stream);
    if (error != cudaSuccess || size_bytes == 0) {
        return error;
    }
    standin_place place = standin_place_of(to);
    error = check_place(name, &place, to, size_bytes);
    if (error != cudaSuccess) {
        return error;
    }
    if (place.type == cudaMemoryTypeUnregistered) {
        standin_misuse("%s: 0x%" PRIx64 " is no memory that a device can fill", name, to);
        return cudaErrorInvalidValue;
    }
    standin_operation fill = {
        .name = name,
        .ranges = {{to, is_only_host(&place) ? 0 : size_bytes}},
        .run = run_fill,
        .to = to,
        .from = is_host(&place) ? TO_HOST : 0,
        .width_bytes = size_bytes,
        .height = 1,
        .value = value,
    };
    return submit(stream, &fill, is_blocking);
}

/* Reports an end that is not the device's. */
static cudaError_t
check_side(const char *name, const char *side, gml_address address)
{
    bool is_wrong = standin_place_of(address).type == cudaMemoryTypeUnregistered;
    if (is_wrong) {
        standin_misuse("%s: its kind says that the %s is memory of the device, which 0x%" PRIx64
                       " is not",
                       name, side, address);
    }
    return is_wrong ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t
standin_check_kind(const char *name, gml_address to, gml_address from, enum cudaMemcpyKind kind)
{
    if ((int)kind < 0 || kind > cudaMemcpyDefault) {
        return cudaErrorInvalidMemcpyDirection;
    }
    if (kind == cudaMemcpyDefault) {
        return cudaSuccess;
    }
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    cudaError_t error = to_device ? check_side(name, "destination", to) : cudaSuccess;
    return error == cudaSuccess && from_device ? check_side(name, "source", from) : error;
}
