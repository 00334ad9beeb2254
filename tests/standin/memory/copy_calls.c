/* The runtime API for copies and fills. Those without a stream use the default one, which no
 * capture may see. */
#include "standin.h"

static gml_address
address_of(const void *pointer)
{
    return (gml_address)(uintptr_t)pointer;
}

static bool
is_device(gml_address address)
{
    return standin_place_of(address).type == cudaMemoryTypeDevice;
}

/* Whether the call is over before it returns: every copy but one within devices. */
static bool
blocks_host(const standin_rows *rows)
{
    return !is_device(rows->to) || !is_device(rows->from);
}

static standin_rows
one_row(void *to, const void *from, uint64_t size_bytes)
{
    return (standin_rows){
        .to = address_of(to),
        .from = address_of(from),
        .to_pitch_bytes = size_bytes,
        .from_pitch_bytes = size_bytes,
        .width_bytes = size_bytes,
        .height = 1,
    };
}

/* In stream order. Nothing to copy has no direction. */
static cudaError_t
copy_in_order(const char *name, const standin_rows *rows, enum cudaMemcpyKind kind,
              cudaStream_t stream, bool is_blocking)
{
    cudaError_t error = cudaSuccess;
    if (rows->width_bytes > 0 && rows->height > 0) {
        error = standin_check_kind(name, rows->to, rows->from, kind);
    }
    return error == cudaSuccess ? standin_copy_rows(name, rows, stream, is_blocking) : error;
}

static cudaError_t
copy_now(const char *name, const standin_rows *rows, enum cudaMemcpyKind kind)
{
    cudaError_t error = standin_guard_captures();
    return error == cudaSuccess ? copy_in_order(name, rows, kind, NULL, blocks_host(rows)) : error;
}

cudaError_t
cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    CALLED();
    standin_enter();
    standin_rows row = one_row(dst, src, count);
    return standin_return(copy_now(__func__, &row, kind));
}

cudaError_t
cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                cudaStream_t stream)
{
    CALLED();
    standin_enter();
    standin_rows row = one_row(dst, src, count);
    return standin_return(copy_in_order(__func__, &row, kind, stream, false));
}

static standin_rows
rows_of(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height)
{
    return (standin_rows){address_of(to), address_of(from), to_pitch, from_pitch, width, height};
}

cudaError_t
cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                  size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    CALLED();
    standin_enter();
    standin_rows rows = rows_of(dst, dpitch, src, spitch, width, height);
    return standin_return(copy_in_order(__func__, &rows, kind, stream, false));
}

/* ---- between devices ------------------------------------------------------------------------- */

/* Reports memory that is not of the device that it is said to be of. */
static cudaError_t
check_owner(const char *name, gml_address address, int ordinal)
{
    const standin_device *device = standin_device_at(ordinal);
    if (!device) {
        return cudaErrorInvalidDevice;
    }
    const standin_place place = standin_place_of(address);
    if (place.type == cudaMemoryTypeDevice && place.device != device) {
        standin_misuse("%s: %p is memory of device %d, not of device %d", name,
                       (void *)(uintptr_t)address, place.device->ordinal, ordinal);
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

static cudaError_t
check_owners(const char *name, const standin_rows *row, int to, int from)
{
    cudaError_t error = check_owner(name, row->to, to);
    return error == cudaSuccess ? check_owner(name, row->from, from) : error;
}

cudaError_t
cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice, size_t count,
                    cudaStream_t stream)
{
    CALLED();
    standin_enter();
    standin_rows row = one_row(dst, src, count);
    cudaError_t error = check_owners(__func__, &row, dstDevice, srcDevice);
    return standin_return(error == cudaSuccess ? standin_copy_across(__func__, &row, stream)
                                               : error);
}

/* ---- variables of kernels -------------------------------------------------------------------- */

/* The `count` bytes at `offset` of a variable of the current device. */
static cudaError_t
find_in_symbol(const void *symbol, size_t count, size_t offset, void **out)
{
    uint64_t size_bytes = 0;
    gml_address address = standin_symbol_address(symbol, &size_bytes);
    if (address == 0) {
        return cudaErrorInvalidSymbol;
    }
    if (offset > size_bytes || count > size_bytes - offset) {
        return cudaErrorInvalidValue;
    }
    *out = (void *)(uintptr_t)(address + offset);
    return cudaSuccess;
}

cudaError_t
cudaMemcpyToSymbol(const void *symbol, const void *src, size_t count, size_t offset,
                   enum cudaMemcpyKind kind)
{
    CALLED();
    standin_enter();
    void *to = NULL;
    cudaError_t error = find_in_symbol(symbol, count, offset, &to);
    if (error == cudaSuccess) {
        standin_rows row = one_row(to, src, count);
        error = copy_now(__func__, &row, kind);
    }
    return standin_return(error);
}

/* ---- fills ----------------------------------------------------------------------------------- */

/* Over before the call returns unless the memory is the device's alone. */
cudaError_t
cudaMemset(void *devPtr, int value, size_t count)
{
    CALLED();
    standin_enter();
    gml_address to = address_of(devPtr);
    cudaError_t error = standin_guard_captures();
    if (error == cudaSuccess) {
        error = standin_fill(__func__, to, value, count, NULL, !is_device(to));
    }
    return standin_return(error);
}

cudaError_t
cudaMemsetAsync(void *devPtr, int value, size_t count, cudaStream_t stream)
{
    CALLED();
    standin_enter();
    return standin_return(standin_fill(__func__, address_of(devPtr), value, count, stream, false));
}
