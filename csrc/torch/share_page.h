/* A page of shared memory by which the processes that use one device ask each other for memory.
 *
 * It is a file that only one user can open. Each process has a slot of it, as long as it holds the
 * file's lock on the byte of that number. Such locks go with their process, however it ends, and no
 * child inherits them; and no process number is compared, so containers that share the file share
 * the page.
 *
 * A question is a number that rises in the slot's `bell`, beside the bytes that are wanted and who
 * asks; its answer is the same number in `answer`, beside what was given. Both are futexes: who
 * waits sleeps.
 *
 * No lock of its own. One thread answers, until gml_share_page_stop(); any may ask.
 */
#ifndef GML_TORCH_SHARE_PAGE_H
#define GML_TORCH_SHARE_PAGE_H

#include "torch/parcel.h"

enum { GML_SHARE_SLOTS = 64 };

/* Who gives first: those of the lowest priority, of these the one with most idle memory for its
 * weight. */
typedef struct gml_share_terms {
    int32_t priority;
    uint32_t weight; /* above 0 */
} gml_share_terms;

typedef struct gml_share_page gml_share_page;

/* What a process is asked for. */
typedef struct gml_share_question {
    uint64_t wanted_bytes; /* may be 0 */
    bool takes_files;      /* who asks takes memory as files, sent to this name; see parcel.h */
    uint64_t name[GML_PARCEL_NAME_WORDS];
} gml_share_question;

/* Another process that has a slot. */
typedef struct gml_share_other {
    int slot;
    gml_share_terms terms;
    uint64_t idle_bytes;  /* as of its last answer */
    uint64_t given_bytes; /* so far, also by who had the slot before */
} gml_share_other;

/* Makes the file if need be, and takes a slot. `path` is absolute. GML_UNSUPPORTED if there are as
 * many processes as slots, for a file of another version, and without futexes; GML_INVALID_ARGUMENT
 * if the file cannot be made or is not this user's; GML_NO_HOST_MEMORY. `reason` holds one line. */
gml_status gml_share_page_open(const char *path, gml_share_terms terms, gml_share_page **out,
                               char *reason, size_t reason_bytes);

/* Gives the slot back; the last process removes the file. */
void gml_share_page_close(gml_share_page *page);

/* In a child of fork(), which has no slot: leaves the page and the parent's slot as they are. */
void gml_share_page_abandon(gml_share_page *page);

/* ---- who answers ----------------------------------------------------------------------------- */

/* Waits for a question; several are one, which is not answered with files. False after
 * gml_share_page_stop(). */
bool gml_share_page_next(gml_share_page *page, gml_share_question *out);

/* Answers all that was asked before the last gml_share_page_next(). */
void gml_share_page_answer(gml_share_page *page, uint64_t given_bytes, uint64_t idle_bytes);

void gml_share_page_stop(gml_share_page *page);

/* ---- who asks -------------------------------------------------------------------------------- */

/* Fills `out` with the other processes; returns how many. */
size_t gml_share_page_others(gml_share_page *page, gml_share_other out[GML_SHARE_SLOTS]);

/* Says where memory may be sent to as files. */
void gml_share_page_accept(gml_share_page *page, const uint64_t name[GML_PARCEL_NAME_WORDS]);

/* Asks for so many bytes, which may be 0 to have the idle bytes brought up to date; returns the
 * question. takes_files: as files if possible; pre: it was said where to. */
uint32_t gml_share_page_ask(gml_share_page *page, int slot, uint64_t wanted_bytes,
                            bool takes_files);

/* Waits for the answer and reads it into `other`. False if there is none: the process is gone, or
 * for `patience_ns` has neither heard the question nor been at work on another, or has not answered
 * by `deadline_ns`, by gml_clock_ns(). */
bool gml_share_page_wait(gml_share_page *page, uint32_t question, uint64_t patience_ns,
                         uint64_t deadline_ns, gml_share_other *other);

#endif
