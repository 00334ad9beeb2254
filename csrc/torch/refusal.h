/* The text of a refusal, for the person who reads it. */
#ifndef GML_TORCH_REFUSAL_H
#define GML_TORCH_REFUSAL_H

#include "gmlake.h"

enum { GML_REFUSAL_BYTES = 4096 };

/* What a refusal counts as in PyTorch: a request that no device could hold is out of memory, and
 * not a wrong argument. */
gml_status gml_refusal_status(uint64_t size_bytes, gml_status status);

/* Says why `lake` of `device` refused `size_bytes` with `status`: what there is, who holds it, and
 * what was tried. Begins as PyTorch's own text does where there is no memory. `beside_bytes`: what
 * PyTorch's own allocator holds on that device beside the lake. */
void gml_refusal_write(gml_lake *lake, int device, uint64_t size_bytes, gml_status status,
                       uint64_t beside_bytes, char *out, size_t out_bytes);

/* The same where the device's lake could not be opened, for `reason`. */
void gml_refusal_write_unopened(int device, uint64_t size_bytes, gml_status status,
                                const char *reason, char *out, size_t out_bytes);

/* Forgets the note of gml_torch_note_refusals(), in a child of fork: it is about the parent. */
void gml_refusal_renew(void);

#endif
