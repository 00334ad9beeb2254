/* The text of a refusal, for the user. */
#ifndef GML_TORCH_REFUSAL_H
#define GML_TORCH_REFUSAL_H

#include "gmlake.h"

enum { GML_REFUSAL_BYTES = 4096 };

/* The status of a refusal in PyTorch: a request that no device could hold is out of memory, not an
 * invalid argument. */
gml_status gml_refusal_status(uint64_t size_bytes, gml_status status);

/* Says why `lake` of `device` refused `size_bytes` with `status`: the memory available, its
 * holders, and the attempts. Begins like PyTorch's out-of-memory text. `beside_bytes`: held on that
 * device by PyTorch's own allocator. */
void gml_refusal_write(gml_lake *lake, int device, uint64_t size_bytes, gml_status status,
                       uint64_t beside_bytes, char *out, size_t out_bytes);

/* The same where the device's lake could not be opened, for `reason`. */
void gml_refusal_write_unopened(int device, uint64_t size_bytes, gml_status status,
                                const char *reason, char *out, size_t out_bytes);

/* Forgets the note of gml_torch_note_refusals(), in a child of fork: it is about the parent. */
void gml_refusal_renew(void);

#endif
