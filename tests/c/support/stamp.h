/* A pattern in a block that tells whose bytes they are: small blocks whole, large ones at both ends
 * and once per `stride_bytes`, so that a test of many large blocks stays fast. */
#ifndef GML_TEST_STAMP_H
#define GML_TEST_STAMP_H

#include <stdbool.h>
#include <stdint.h>

enum { STAMP_WHOLE_BYTES = 8192 }; /* largest block that is written whole */

/* `bytes` is aligned to 512; `stride_bytes` is a multiple of 8. */
void stamp_write(void *bytes, uint64_t size_bytes, uint64_t seed, uint64_t stride_bytes);
bool stamp_holds(const void *bytes, uint64_t size_bytes, uint64_t seed, uint64_t stride_bytes);

#endif
