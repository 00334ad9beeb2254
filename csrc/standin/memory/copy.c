/* Copies and fills: what moves when the operation happens, and when the caller has to wait. */
#include "standin/memory/recent.h"
#include "standin/standin.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Which ends of an operation are addresses of this process as they stand, and need not be asked of
 * a device: in its `value`. */
enum { TO_HOST = 1, FROM_HOST = 2 };

static bool is_host(const standin_place *place) {
    return place->type != cudaMemoryTypeDevice;
}

/* From the first byte of the first row to the last of the last. */
static uint64_t span_of(uint64_t width_bytes, uint64_t height, uint64_t pitch_bytes) {
    return height > 1 ? (height - 1) * pitch_bytes + width_bytes : width_bytes;
}

/* A copy of rows that lie some pitch apart. */
typedef struct copied_rows {
    gml_address to, from;
    uint64_t to_pitch_bytes, from_pitch_bytes, width_bytes, height;
    bool crosses_devices; /* so that neither needs access to the other's memory */
} copied_rows;

/* ---- when the operation happens -------------------------------------------------------------- */

/* The bytes at one end of an operation, NULL where the device has none. False where nothing can be
 * touched any more, which is reported. */
static bool find_bytes(const standin_operation *self, gml_address address, uint64_t pitch_bytes,
                       bool host_end, char **out) {
    *out = NULL;
    if (host_end) {
        *out = (void *)(uintptr_t)address;
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

/* Memory without bytes reads as zeros, but for what was copied to it since the last kernel. */
static void move(char *to, const char *from, uint64_t size_bytes) {
    if (from) {
        memmove(to, from, (size_t)size_bytes);
    } else {
        memset(to, 0, (size_t)size_bytes);
    }
}

/* A copy to memory without bytes. */
static void remember(const standin_operation *self, const char *from) {
    if (from && self->height == 1) {
        standin_recent_write(self->to, from, self->width_bytes);
    } else {
        standin_recent_forget();
    }
}

static void run_copy(const standin_operation *self) {
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
        remember(self, from);
        return;
    }
    if (!from && self->height == 1 && standin_recent_read(self->from, to, self->width_bytes)) {
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

/* Writes the pattern in `from`, of width_bytes, as often as `height` says. */
static void run_fill(const standin_operation *self) {
    char *to = NULL;
    standin_recent_forget();
    if (!find_bytes(self, self->to, self->width_bytes, self->value & TO_HOST, &to) || !to) {
        return;
    }
    if (self->width_bytes == 1) {
        memset(to, (int)self->from, (size_t)self->height);
        return;
    }
    for (uint64_t i = 0; i < self->height; i++) {
        memcpy(to + i * self->width_bytes, &self->from, (size_t)self->width_bytes);
    }
}

static void drop_staged(standin_operation *self) {
    free(self->staged);
}

/* ---- when it is submitted -------------------------------------------------------------------- */

/* Whether the first and the last page belong to this process at all. */
static bool is_in_process(gml_address address, uint64_t size_bytes) {
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    gml_address first = address & ~(page_bytes - 1);
    gml_address last = (address + size_bytes - 1) & ~(page_bytes - 1);
    unsigned char is_resident;
    return mincore((void *)(uintptr_t)first, 1, &is_resident) == 0 &&
           mincore((void *)(uintptr_t)last, 1, &is_resident) == 0;
}

/* An address that no block holds must at least be one of the host. */
static cudaError_t check_place(const standin_place *place, gml_address address,
                               uint64_t size_bytes) {
    if (address == 0 || size_bytes > UINT64_MAX - address) {
        return cudaErrorInvalidValue;
    }
    if (place->type == cudaMemoryTypeHost &&
        !standin_is_pinned((void *)(uintptr_t)address, size_bytes)) {
        standin_misuse("%s: %" PRIu64 " bytes at 0x%" PRIx64
                       " go beyond the page-locked memory of %" PRIu64 " bytes at 0x%" PRIx64,
                       standin_current_call(), size_bytes, address, place->size_bytes,
                       place->begin);
        return cudaErrorInvalidValue;
    }
    if (place->type == cudaMemoryTypeUnregistered && !is_in_process(address, size_bytes)) {
        standin_misuse("%s: 0x%" PRIx64 " is no memory, of a device or of the host; it was freed "
                       "before, or never allocated",
                       standin_current_call(), address);
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

/* Copies rows from memory that the caller may change as soon as the call has returned. */
static bool stage(standin_operation *copy) {
    char *staged = malloc((size_t)(copy->width_bytes * copy->height));
    if (!staged) {
        return false;
    }
    const char *from = (void *)(uintptr_t)copy->from;
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
static cudaError_t submit(standin_stream *stream, standin_operation *operation, bool must_wait) {
    TRY(standin_submit(stream, operation));
    return must_wait ? standin_synchronize_stream(stream) : cudaSuccess;
}

/* Whether a copy is over when the call returns though the caller did not ask for that: into memory
 * that is not page-locked, and from host to host. */
static bool waits_by_itself(const standin_place *to, const standin_place *from) {
    return to->type == cudaMemoryTypeUnregistered || (is_host(to) && is_host(from));
}

/* The copy of these rows, but for what is staged. */
static standin_operation describe_copy(const copied_rows *rows, bool to_host, bool from_host) {
    uint64_t to_bytes = span_of(rows->width_bytes, rows->height, rows->to_pitch_bytes);
    uint64_t from_bytes = span_of(rows->width_bytes, rows->height, rows->from_pitch_bytes);
    return (standin_operation){
        .ranges = {{rows->to, to_host ? 0 : to_bytes}, {rows->from, from_host ? 0 : from_bytes}},
        .run = run_copy,
        .to = rows->to,
        .from = rows->from,
        .width_bytes = rows->width_bytes,
        .height = rows->height,
        .to_pitch_bytes = rows->to_pitch_bytes,
        .from_pitch_bytes = rows->from_pitch_bytes,
        .value = (to_host ? TO_HOST : 0) | (from_host ? FROM_HOST : 0),
        .crosses_devices = rows->crosses_devices,
    };
}

/* One end of rows that are to be copied. */
static cudaError_t check_end(const standin_place *place, gml_address address, uint64_t pitch_bytes,
                             const copied_rows *rows) {
    uint64_t size_bytes;
    if (pitch_bytes < rows->width_bytes) {
        return cudaErrorInvalidPitchValue;
    }
    if (__builtin_mul_overflow(pitch_bytes, rows->height, &size_bytes)) {
        return cudaErrorInvalidValue;
    }
    return check_place(place, address, span_of(rows->width_bytes, rows->height, pitch_bytes));
}

/* Any mixture of host and device addresses. What is read from memory without bytes is zeros. With
 * `is_blocking` it is done when the call returns. */
static cudaError_t copy_rows(const copied_rows *rows, cudaStream_t handle, bool is_blocking) {
    standin_stream *stream = standin_stream_of(handle);
    TRY(is_blocking ? standin_guard_stream(stream) : cudaSuccess);
    if (rows->width_bytes == 0 || rows->height == 0) {
        return cudaSuccess;
    }
    standin_place to = standin_place_of(rows->to);
    standin_place from = standin_place_of(rows->from);
    TRY(check_end(&to, rows->to, rows->to_pitch_bytes, rows));
    TRY(check_end(&from, rows->from, rows->from_pitch_bytes, rows));
    standin_operation copy = describe_copy(rows, is_host(&to), is_host(&from));
    /* A captured copy reads and writes the host whenever the graph runs. */
    bool must_wait = is_blocking || (!stream->capture && waits_by_itself(&to, &from));
    bool is_read = is_host(&to) || standin_settings_get()->is_backed ||
                   copy.width_bytes * copy.height <= STANDIN_RECENT_BYTES;
    if (from.type == cudaMemoryTypeUnregistered && is_read && !must_wait && !stream->capture &&
        !stage(&copy)) {
        return cudaErrorMemoryAllocation;
    }
    return submit(stream, &copy, must_wait);
}

/* Reports an end that is not the device's. Where the kind says the host's, a device's will do:
 * addresses are unified, and a GPU was seen to take them. */
static cudaError_t check_side(bool is_device, const char *side, gml_address address) {
    if (!is_device || standin_place_of(address).type != cudaMemoryTypeUnregistered) {
        return cudaSuccess;
    }
    standin_misuse("%s: its kind says that the %s is memory of the device, which 0x%" PRIx64
                   " is not",
                   standin_current_call(), side, address);
    return cudaErrorInvalidValue;
}

/* In stream order. Nothing to copy has no direction. */
static cudaError_t copy_as(enum cudaMemcpyKind kind, const copied_rows *rows, cudaStream_t stream,
                           bool is_blocking) {
    if (rows->width_bytes > 0 && rows->height > 0) {
        bool within = kind == cudaMemcpyDeviceToDevice;
        TRY(check_side(within || kind == cudaMemcpyHostToDevice, "destination", rows->to));
        TRY(check_side(within || kind == cudaMemcpyDeviceToHost, "source", rows->from));
    }
    return copy_rows(rows, stream, is_blocking);
}

static copied_rows one_row(void *to, const void *from, uint64_t size_bytes) {
    return (copied_rows){
        standin_address(to), standin_address(from), size_bytes, size_bytes, size_bytes, 1, false};
}

/* ---- the calls ------------------------------------------------------------------------------- */

/* Those without a stream use the default one, which no capture may see. They are over before they
 * return unless they stay within devices. */
cudaError_t standin_cudaMemcpy(void *to, const void *from, size_t size_bytes,
                               enum cudaMemcpyKind kind) {
    copied_rows row = one_row(to, from, size_bytes);
    standin_place places[] = {standin_place_of(row.to), standin_place_of(row.from)};
    TRY(standin_guard_captures());
    return copy_as(kind, &row, NULL, is_host(&places[0]) || is_host(&places[1]));
}

cudaError_t standin_cudaMemcpyAsync(void *to, const void *from, size_t size_bytes,
                                    enum cudaMemcpyKind kind, cudaStream_t stream) {
    copied_rows row = one_row(to, from, size_bytes);
    return copy_as(kind, &row, stream, false);
}

cudaError_t standin_cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from,
                                      size_t from_pitch, size_t width, size_t height,
                                      enum cudaMemcpyKind kind, cudaStream_t stream) {
    copied_rows rows = {
        standin_address(to), standin_address(from), to_pitch, from_pitch, width, height, false,
    };
    return copy_as(kind, &rows, stream, false);
}

/* Reports memory that is not of the device that it is said to be of. */
static cudaError_t check_owner(const void *pointer, int ordinal) {
    const standin_place place = standin_place_of(standin_address(pointer));
    if (!is_host(&place) && place.device->ordinal != ordinal) {
        standin_misuse("%s: %p is memory of device %d, not of device %d", standin_current_call(),
                       pointer, place.device->ordinal, ordinal);
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

/* Neither device needs access to the other's memory. */
cudaError_t standin_cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                        size_t size_bytes, cudaStream_t stream) {
    copied_rows row = one_row(to, from, size_bytes);
    row.crosses_devices = true;
    TRY(check_owner(to, to_device));
    TRY(check_owner(from, from_device));
    return copy_rows(&row, stream, false);
}

/* Into a variable of a kernel, of the current device. */
cudaError_t standin_cudaMemcpyToSymbol(const void *symbol, const void *from, size_t count,
                                       size_t offset, enum cudaMemcpyKind kind) {
    uint64_t size_bytes = 0;
    gml_address address = standin_symbol_address(symbol, &size_bytes);
    if (address == 0) {
        return cudaErrorInvalidSymbol;
    }
    if (offset > size_bytes || count > size_bytes - offset) {
        return cudaErrorInvalidValue;
    }
    return standin_cudaMemcpy((void *)(uintptr_t)(address + offset), from, count, kind);
}

/* ---- fills ----------------------------------------------------------------------------------- */

/* Fills with a pattern, whose size divides the address. */
static cudaError_t fill(gml_address to, uint64_t pattern, uint64_t pattern_bytes, size_t count,
                        cudaStream_t handle) {
    standin_stream *stream = standin_stream_of(handle);
    if (count == 0) {
        return cudaSuccess;
    }
    if (to % pattern_bytes != 0 || count > SIZE_MAX / pattern_bytes) {
        return cudaErrorInvalidValue;
    }
    uint64_t size_bytes = pattern_bytes * count;
    standin_place place = standin_place_of(to);
    TRY(check_place(&place, to, size_bytes));
    if (place.type == cudaMemoryTypeUnregistered) {
        standin_misuse("%s: 0x%" PRIx64 " is no memory that a device can fill",
                       standin_current_call(), to);
        return cudaErrorInvalidValue;
    }
    standin_operation operation = {
        .ranges = {{to, is_host(&place) ? 0 : size_bytes}},
        .run = run_fill,
        .to = to,
        .from = pattern,
        .width_bytes = pattern_bytes,
        .height = count,
        .value = is_host(&place) ? TO_HOST : 0,
    };
    return standin_submit(stream, &operation);
}

cudaError_t standin_cudaMemsetAsync(void *to, int value, size_t size_bytes, cudaStream_t stream) {
    return fill(standin_address(to), (unsigned char)value, 1, size_bytes, stream);
}

/* Over before the call returns unless the memory is the device's alone. */
cudaError_t standin_cudaMemset(void *to, int value, size_t size_bytes) {
    standin_place place = standin_place_of(standin_address(to));
    TRY(standin_guard_captures());
    TRY(standin_cudaMemsetAsync(to, value, size_bytes, NULL));
    return is_host(&place) ? standin_cudaStreamSynchronize(NULL) : cudaSuccess;
}

cudaError_t standin_cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count,
                                     CUstream stream) {
    return fill(to, value, sizeof value, count, stream);
}

cudaError_t standin_cuStreamWriteValue32(CUstream stream, CUdeviceptr to, cuuint32_t value,
                                         unsigned flags) {
    (void)flags; /* of ordering, which a queue has anyway */
    return fill(to, value, sizeof value, 1, stream);
}
