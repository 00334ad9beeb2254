/* The independent check's view of a trace: the life of each object, and its accesses. */
#ifndef GML_DIAGNOSE_CHECK_BOOK_H
#define GML_DIAGNOSE_CHECK_BOOK_H

#include "base/reason.h"
#include "diagnosis/check_byte_set.h"

/* Of one API, in order of invocation. */
typedef struct gml_check_use {
    uint32_t api;
    uint32_t access; /* its number in the trace */
} gml_check_use;

typedef struct gml_check_book {
    const gml_object_trace *trace;
    const gml_diagnosis *diagnosis;
    uint64_t *alloc, *free; /* of each object, or GML_NO_API */
    gml_check_use *uses;    /* object by object, in order of invocation */
    size_t *first_use;      /* of each object, and one past the last */
    uint64_t *looks;        /* that are left, of those that a check may take */
    char *reason;
    size_t reason_bytes;
} gml_check_book;

/* pre: gml_diagnose() took the trace. The caller closes the book either way. */
gml_status gml_check_book_open(gml_check_book *book, const gml_object_trace *trace,
                               const gml_diagnosis *diagnosis);
void gml_check_book_close(gml_check_book *book);

#define GML_CHECK_REFUSE(book, ...)                                                                \
    gml_refuse(GML_CORRUPT, (book)->reason, (book)->reason_bytes, __VA_ARGS__)

/* Takes `looks` from the budget. GML_UNSUPPORTED if fewer are left. */
gml_status gml_check_look(const gml_check_book *book, uint64_t looks);

/* The object is kept after the trace. */
bool gml_check_is_kept(const gml_check_book *book, uint32_t object);

/* The first use of the object by the API or a later one, as a place in book->uses. */
size_t gml_check_use_from(const gml_check_book *book, uint32_t object, uint64_t api);

/* Whether the API accesses the object. */
bool gml_check_accesses(const gml_check_book *book, uint32_t object, uint64_t api);

/* ---- the parts of the check ------------------------------------------------------------------ */

/* A finding, as far as it concerns one object. */
typedef struct gml_check_entry {
    uint32_t object;
    bool gives_memory; /* it is `other` of a redundant allocation */
    const gml_finding *finding;
} gml_check_entry;

/* All that is fixed in one object, its bytes followed through its whole life. */
gml_status gml_check_object(const gml_check_book *book, const gml_check_entry *entries,
                            size_t count);

/* The bytes of a finding within an object, recounted. `dead`: those that the first write skips when
 * fixed. */
gml_status gml_check_dead_write(const gml_check_book *book, const gml_finding *finding,
                                gml_byte_set *dead);
gml_status gml_check_overallocation(const gml_check_book *book, const gml_finding *finding);
gml_status gml_check_slices(const gml_check_book *book, const gml_finding *finding);

/* Objects that share a memory: every access to the first completes before any to the second starts,
 * guaranteed by the order of streams and of accesses to common bytes. */
gml_status gml_check_order(const gml_check_book *book, const gml_check_entry *entries,
                           size_t count);

#endif
