/* What was copied to device memory that has no bytes, until a kernel may have changed it.
 *
 * A program that sends itself a few numbers through the device (as PyTorch's
 * DistributedDataParallel does with the shapes of its buckets) gets them back; what a kernel could
 * have computed reads as zeros. All functions want the lock. */
#ifndef GML_STANDIN_MEMORY_RECENT_H
#define GML_STANDIN_MEMORY_RECENT_H

#include <stdbool.h>
#include <stdint.h>

/* The longest write that is remembered. */
enum { STANDIN_RECENT_BYTES = 64 << 10 };

/* Remembers `size_bytes` at the address `to`; nothing where that is too much. */
void standin_recent_write(uint64_t to, const void *bytes, uint64_t size_bytes);

/* The bytes at the address `from`, where all of them are remembered. */
bool standin_recent_read(uint64_t from, void *out, uint64_t size_bytes);

/* A kernel ran, or device memory was written in another way. */
void standin_recent_forget(void);

#endif
