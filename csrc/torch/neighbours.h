/* The other processes of this user that use a device, and what they give each other.
 *
 * A process that is asked gives from a thread of its own, which takes no lock but those of lakes,
 * one at a time; who asks holds no lake's lock. So two that ask each other do not wait for ever.
 */
#ifndef GML_TORCH_NEIGHBOURS_H
#define GML_TORCH_NEIGHBOURS_H

#include "gmlake_torch.h"
#include "lake/situation.h"

/* A lake of the device is open now: if the device is to be shared, it is from here on. */
void gml_neighbours_join(int device);

/* Adds to the account of a refusal what the others had when they were asked last. */
void gml_neighbours_tell(gml_situation *out);

/* In a child of fork(), before it has lakes. */
void gml_neighbours_forget(void);

#endif
