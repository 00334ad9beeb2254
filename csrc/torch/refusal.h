/* The text of a refusal, for the user. */
#ifndef GML_TORCH_REFUSAL_H
#define GML_TORCH_REFUSAL_H

#include "lake/situation.h"

enum { GML_REFUSAL_BYTES = 4096 };

/* The status of a refusal in PyTorch: a request that no device could hold is out of memory, not an
 * invalid argument. */
gml_status gml_refusal_status(uint64_t size_bytes, gml_status status);

/* Takes the account of a request of this thread that `lake` refuses: gml_last_refusal(). It is
 * open, see gml_refusal_open(), until gml_refusal_end(). pool: that was to serve; NULL: none.
 * native_bytes: held on the device by PyTorch's own allocator. */
void gml_refusal_look(gml_lake *lake, const gml_pool_id *pool, uint64_t size_bytes,
                      gml_stream stream, uint64_t native_bytes);

/* Counts it in the lake. */
void gml_refusal_count(gml_lake *lake);

/* That account while it is open; NULL: no request of this thread is being refused. */
const gml_situation *gml_refusal_open(void);
void gml_refusal_end(void);

/* Says why `lake` of `device` answers with `status`. GML_OUT_OF_MEMORY: by the account taken, which
 * the text tells in full, beginning like PyTorch's. Else the lake's reason. */
void gml_refusal_write(gml_lake *lake, int device, uint64_t size_bytes, gml_status status,
                       char *out, size_t out_bytes);

/* The same where the device's lake could not be opened, for `reason`. */
void gml_refusal_write_unopened(int device, uint64_t size_bytes, gml_status status,
                                const char *reason, char *out, size_t out_bytes);

/* Forgets the note of gml_torch_note_refusals(), in a child of fork: it is about the parent. */
void gml_refusal_renew(void);

#endif
