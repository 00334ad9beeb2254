/* The thread of this process that answers letters: what is idle, giving it, and the files of
 * tensors that are shared. It never waits for another process.
 *
 * It takes no lock but its own and those of lakes, one at a time. It begins with the first name,
 * and ends with the last.
 */
#ifndef GML_TORCH_ANSWERING_H
#define GML_TORCH_ANSWERING_H

#include "torch/giving.h"

/* Answers at a socket that listens, which is the thread's from now on, with what `giver` gives of
 * the device; NULL: only about blocks and counters. GML_NO_HOST_MEMORY if no thread can begin; then
 * the socket is closed. */
gml_status gml_answer(int socket, gml_giver *giver, int device);

/* Answers who asks for files of shared blocks, at the first place of a group that nobody guesses. A
 * negative errno where it cannot. */
int gml_answer_about_blocks(uint64_t *group);

/* Answers no more for it; nothing is being given when this returns. */
void gml_answer_no_more(const gml_giver *giver);

/* In a child of fork(), which has no such thread. */
void gml_answer_forget(void);

#endif
