/* What PyTorch asks of the lakes below it, asked as the adapter does, through its table of
 * functions. */
#ifndef TEST_TORCH_CALLS_H
#define TEST_TORCH_CALLS_H

#include "gmlake.h"

/* A block of the lake that serves this thread on the device, opened if need be; NULL for size 0,
 * and where there is no such lake or it refuses. */
void *torch_allocate(uint64_t size_bytes, int device, const void *stream);

/* Whether a lake had the block, which is free then. */
bool torch_free(void *address);

/* Ignores what no lake served. */
void torch_record_stream(void *address, const void *stream);

/* Gives back what every lake holds idle. */
void torch_trim(void);

#endif
