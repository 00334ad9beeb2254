/* gmlake below other libraries than PyTorch, in the same process: CuPy, Numba, a program in C.
 *
 * They share PyTorch's lakes: the rules of gmlake_torch.h for opening, closing, threads and fork()
 * apply. Nothing throws, and PyTorch is not required.
 *
 * Memory is allocated for use on a stream. A library that does not know the stream in advance has
 * two options. Either all its work runs on one stream, which it names. Or it names a stream on
 * which nothing ever runs, waits for that stream after each request, and for the device before each
 * free: the memory is then idle at allocation and at free, as with cudaMalloc.
 */
#ifndef GMLAKE_INTEROP_H
#define GMLAKE_INTEROP_H

#include "gmlake.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The lake of a device, opened if need be, with memory that every other device may read and write.
 * Do not close it. On failure *out is untouched and `reason` holds one line. */
GML_API gml_status gml_interop_open(int device, gml_lake **out, char *reason, size_t reason_bytes);

/* The same for the lake that serves this thread there: the device's, or that of the region that the
 * thread is in, see gml_torch_enter_region(). */
GML_API gml_status gml_interop_open_serving(int device, gml_lake **out, char *reason,
                                            size_t reason_bytes);

/* For cupy.cuda.CFunctionAllocator and its like, whose parameter is the stream, a cudaStream_t, on
 * which everything that is allocated with it is used. NULL for every failure, and for 0 bytes. */
GML_API void *gml_interop_alloc(void *stream, size_t size_bytes, int device);

/* Work that is queued on the stream by now may still use the memory. Ignores NULL. */
GML_API void gml_interop_free(void *stream, void *address, int device);

/* Waits until the work queued on `stream` has run. GML_NOT_READY during a graph capture, which
 * forbids waiting; GML_DRIVER_FAILED. */
GML_API gml_status gml_interop_wait_stream(gml_lake *lake, gml_stream stream);

/* The same for the whole device. */
GML_API gml_status gml_interop_wait_device(gml_lake *lake);

#ifdef __cplusplus
}
#endif

#endif
