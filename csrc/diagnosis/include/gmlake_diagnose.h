/* gmlake's diagnosis: finds ten patterns of memory inefficiency in a trace of a program's accesses
 * to its objects, each with the bytes of peak that its fix saves.
 *
 * The patterns are those of DrGPUM (Lin, Zhou, Su, "DrGPUM: Guiding Memory Optimization for
 * GPU-Accelerated Applications", ASPLOS 2023). Nothing here needs a device, a lake or Python.
 *
 *   API        one thing that a program asked of a device: an allocation, a free, a copy, a set or
 *              a kernel (an operator of PyTorch counts as one). APIs are numbered by invocation
 *   object     what one allocation gave: a tensor's storage, a cudaMalloc
 *   access     what one API does to one object. An allocation and a free access nothing
 *   time       of an API: its number where there is one stream, else its level in the graph of
 *              dependencies (section 5.3 of the paper); all APIs of a level run at the same time
 *   distance   of two APIs: the difference of their times
 *
 * Sizes and offsets are in bytes. The same input gives the same output.
 */
#ifndef GMLAKE_DIAGNOSE_H
#define GMLAKE_DIAGNOSE_H

#include "gmlake.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GML_NO_API UINT64_MAX
#define GML_NO_OBJECT UINT32_MAX

/* ---- the trace ------------------------------------------------------------------------------- */

typedef enum gml_api_kind {
    GML_API_ALLOC = 0,
    GML_API_FREE,
    GML_API_COPY, /* moves bytes as they are: its writes may be dead */
    GML_API_SET,  /* writes a value everywhere: its writes may be dead */
    GML_API_KERNEL,
    GML_API_KIND_COUNT
} gml_api_kind;

/* 32 bytes. */
typedef struct gml_api {
    gml_stream stream;
    uint64_t first_access; /* its accesses follow those of the API before it */
    uint32_t access_count; /* 0 for an allocation and a free */
    uint32_t object;       /* of an allocation and a free; else GML_NO_OBJECT */
    uint32_t kind;         /* gml_api_kind */
    uint32_t reserved;     /* 0 */
} gml_api;

enum {
    GML_OBJECT_BEFORE = 1, /* exists before the first API: no allocation belongs to it */
    GML_OBJECT_KEPT = 2    /* meant to outlive the trace: no leak */
};

/* 24 bytes. Every object has one allocation, unless GML_OBJECT_BEFORE, and at most one free. */
typedef struct gml_object {
    uint64_t size_bytes;    /* at least 1, at most 2^48 */
    uint64_t tag;           /* the caller's: origin of the request */
    uint32_t element_bytes; /* at least 1: what the patterns within objects count */
    uint32_t flags;
} gml_object;

enum {
    GML_ACCESS_READS = 1,
    GML_ACCESS_WRITES = 2, /* without GML_ACCESS_READS: every byte of its ranges gets a new value */
    GML_ACCESS_TOUCHES = 4 /* alone: somewhere in its ranges, reading or writing, is not known */
};

/* 24 bytes. One API has at most one access to an object with the same flags. */
typedef struct gml_access {
    uint64_t first_range;
    uint32_t range_count; /* 0: the whole object, each element once */
    uint32_t object;
    uint32_t flags;
    uint32_t reserved; /* 0 */
} gml_access;

/* `repeat` runs of `size_bytes`, the first at `offset` and each `stride_bytes` after the one
 * before. 40 bytes. */
typedef struct gml_access_range {
    uint64_t offset;
    uint64_t size_bytes;   /* of one run, at least 1 */
    uint64_t stride_bytes; /* at least size_bytes where repeat is above 1 */
    uint64_t repeat;       /* at least 1 */
    uint64_t weight;       /* how often each element is accessed, at least 1 */
} gml_access_range;

typedef struct gml_object_trace {
    const gml_api *apis;
    size_t api_count; /* below 2^32 */
    const gml_object *objects;
    size_t object_count; /* below 2^32 - 1 */
    const gml_access *accesses;
    size_t access_count; /* below 2^32 */
    const gml_access_range *ranges;
    size_t range_count;
} gml_object_trace;

/* ---- what is looked for ---------------------------------------------------------------------- */

/* Each by its suffix of GML_PATTERN_, and its name. */
#define GML_PATTERNS(X)                                                                            \
    X(EARLY_ALLOCATION, "early allocation")                                                        \
    X(LATE_DEALLOCATION, "late deallocation")                                                      \
    X(REDUNDANT_ALLOCATION, "redundant allocation")                                                \
    X(UNUSED_ALLOCATION, "unused allocation")                                                      \
    X(MEMORY_LEAK, "memory leak")                                                                  \
    X(TEMPORARY_IDLENESS, "temporary idleness")                                                    \
    X(DEAD_WRITE, "dead write")                                                                    \
    X(OVERALLOCATION, "overallocation")                                                            \
    X(NON_UNIFORM_FREQUENCY, "non-uniform access frequency")                                       \
    X(STRUCTURED_ACCESS, "structured access")

#define GML_PATTERN_NUMBER(pattern, name) GML_PATTERN_##pattern,
typedef enum gml_pattern { GML_PATTERNS(GML_PATTERN_NUMBER) GML_PATTERN_COUNT } gml_pattern;
#undef GML_PATTERN_NUMBER

/* "early allocation", ...; never NULL. */
GML_API const char *gml_pattern_name(gml_pattern pattern);

/* ---- what is found --------------------------------------------------------------------------- */

/* Table 2 of the paper, of an overallocation. */
typedef enum gml_guidance {
    GML_GUIDANCE_NONE = 0,
    GML_GUIDANCE_EASY, /* few elements accessed, the rest in one piece: shrink it */
    GML_GUIDANCE_HARD  /* few elements accessed, the rest scattered */
} gml_guidance;

/* Whose objects are marked: those of so many highest peaks. */
enum { GML_MARKED_PEAKS = 2 };

/* Meaning of from_api and to_api, and of bytes, by pattern:
 *   early allocation       the allocation, the first access; the object
 *   late deallocation      the last access, the free; the object
 *   redundant allocation   the last access of `other`, the first of `object`; the smaller of both.
 *                          `object` should reuse the memory of `other`
 *   unused allocation      the allocation, the free (or GML_NO_API); the object
 *   memory leak            the last access (or the allocation), GML_NO_API; the object
 *   temporary idleness     two consecutive accesses; the object
 *   dead write             the write that nobody reads, the one that overwrites it; the bytes that
 *                          are written twice
 *   overallocation         GML_NO_API twice; the bytes that nothing accesses
 *   non-uniform frequency  the API, twice; the object. Of the slices of an object with structured
 *                          access: its first and its last access
 *   structured access      its first and its last access; the object less its largest slice
 *
 * An object with GML_OBJECT_BEFORE is neither early nor unused, and takes no other's memory. One
 * with GML_OBJECT_KEPT does not leak; unless it is freed anyway, it is not unused and gives its
 * memory to no other. An object takes memory only if all accesses to `other` are known to complete
 * before any to it starts, and if it reads no byte that it did not write before: a touched byte may
 * be read. Two accesses are consecutive if no other lies between them, neither in time nor in order
 * of invocation.
 *
 * The last three, and dead writes, concern parts of objects. Accesses before and after the trace
 * are unknown: an object with GML_OBJECT_BEFORE is never overallocated, and neither it nor one with
 * GML_OBJECT_KEPT has structured access. GML_ACCESS_TOUCHES counts as an access to all of its
 * ranges, but not as a frequency. An overallocation with GML_GUIDANCE_HARD is left out if
 * structured access is found as well: its fix saves the same bytes. An object with millions of runs
 * in unlike strides (limits in diagnosis/spans.h) gets no findings of these kinds.
 */
typedef struct gml_finding {
    uint32_t pattern; /* gml_pattern */
    uint32_t object;
    uint32_t other;    /* of a redundant allocation; else GML_NO_OBJECT */
    uint32_t guidance; /* gml_guidance */
    uint64_t from_api, to_api;
    uint64_t distance;     /* between the two; 0 where one is GML_NO_API */
    uint64_t bytes;        /* the object concerned */
    uint64_t saving_bytes; /* of the highest peak, if this alone is fixed: the trace replayed */
    uint64_t peak_bytes;   /* how much of the object is live at the highest marked peak; 0: none */
    double percent;        /* overallocation: elements accessed; frequency: the coefficient of
                              variation; structured access: the largest slice */
    double fragmented_percent; /* overallocation: 100 less the largest unaccessed run's part of all
                                  that is not accessed */
    uint64_t pieces;           /* structured access: slices; else 0 */
} gml_finding;

/* Numbers of APIs, or GML_NO_API. In order of time: first and last; in order of invocation:
 * earliest and latest. They are the same where there is one stream. */
typedef struct gml_object_life {
    uint64_t alloc, free;
    uint64_t first, last;
    uint64_t earliest, latest;
    uint32_t access_count;
    uint32_t peaks; /* bit 1 << k: live at the k-th highest peak */
} gml_object_life;

typedef struct gml_memory_peak {
    uint64_t api; /* after it, the sum of live objects is highest. GML_NO_API: before the first */
    uint64_t bytes;
} gml_memory_peak;

typedef struct gml_diagnosis {
    gml_finding *findings; /* by saving_bytes, then bytes * distance, both descending; then by
                              object, pattern and from_api, ascending */
    size_t finding_count;
    gml_object_life *lives; /* of each object */
    uint64_t *times;        /* of each API */
    gml_memory_peak peaks[GML_MARKED_PEAKS];
    size_t peak_count;
    uint64_t fixed_peak_bytes; /* the highest peak with every finding fixed: redundant allocations
                                  last, and without those that would raise it */
    uint64_t time_ns;
} gml_diagnosis;

/* Finds the patterns, each by its bit 1 << gml_pattern; 0: all. The thresholds are the paper's.
 * GML_INVALID_ARGUMENT for a trace that contradicts itself (an access outside its object's bytes or
 * life, two allocations of one object, ...) or for bits of no pattern, GML_NO_HOST_MEMORY; `reason`
 * (may be NULL) then holds one line, at most reason_bytes. The result belongs to the caller, for
 * gml_diagnosis_clear(). Cost: about linear in APIs, accesses and expanded ranges, times a
 * logarithm. */
GML_API gml_status gml_diagnose(const gml_object_trace *trace, uint32_t patterns,
                                gml_diagnosis *out, char *reason, size_t reason_bytes);
GML_API void gml_diagnosis_clear(gml_diagnosis *diagnosis);

/* The highest peak with these findings fixed, all at once. Of fixes that exclude each other the
 * first in the list counts. `findings` are numbers into diagnosis->findings. */
GML_API gml_status gml_diagnosis_peak_with(const gml_object_trace *trace,
                                           const gml_diagnosis *diagnosis, const size_t *findings,
                                           size_t count, uint64_t *peak_bytes);

#ifdef __cplusplus
}
#endif

#endif
