/* The file that the collector writes: records of one size, in the order of the program's calls.
 *
 * A reader needs no index and may stop anywhere, so that a killed program leaves a usable file. All
 * numbers are of the machine's own byte order, which `gml_log_header.order` tells.
 */
#ifndef GML_DIAGNOSE_COLLECT_LOG_H
#define GML_DIAGNOSE_COLLECT_LOG_H

#include "base/map.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GML_LOG_MAGIC "gmlake calls 1"
#define GML_LOG_ORDER UINT32_C(0x01020304)

typedef struct gml_log_header {
    char magic[16];
    uint32_t order;        /* GML_LOG_ORDER */
    uint32_t record_bytes; /* sizeof(gml_log_record) */
    uint64_t process;
    uint8_t reserved[24];
} gml_log_header;

typedef enum gml_log_kind {
    GML_LOG_ALLOC = 1,
    GML_LOG_FREE,
    GML_LOG_COPY,
    GML_LOG_SET,
    GML_LOG_KERNEL, /* size_bytes: a number for its accesses, for others to repeat; address: those
                       that it repeats, as far as is known; 0: none */
    GML_LOG_ACCESS, /* of the copy, set or kernel before it */
    GML_LOG_NAME,   /* `name` is its number, size_bytes its length; the text fills the records that
                       follow */
    GML_LOG_PLACE   /* `place` is its number, size_bytes how many names it has, innermost first, as
                       uint32_t each in the records that follow */
} gml_log_kind;

/* 56 bytes. */
typedef struct gml_log_record {
    uint32_t kind;
    uint32_t name;  /* of a kernel, a copy, a set; 0: none. Of an access: how often each element
                       is accessed; 0: once */
    uint32_t place; /* the caller; 0: unknown */
    uint32_t flags; /* of an access: GML_ACCESS_READS, ... as in gmlake_diagnose.h */
    uint64_t stream;
    uint64_t address; /* of an access: where it begins; 0: all live objects */
    uint64_t size_bytes;
    uint64_t stride_bytes, repeat; /* of an access: runs of size_bytes, see gml_access_range */
} gml_log_record;

/* A frame of a call path in words. */
typedef struct gml_log_frame {
    char text[512];
} gml_log_frame;

typedef struct gml_log {
    int file;               /* -1: closed, added data is lost */
    uint64_t device, inode; /* of the file: the program may close it and reuse its number */
    bool is_direct;         /* never leaves data pending */
    size_t count;
    uint64_t flushed_ms; /* when it was last written because of the time */
    gml_map names;       /* hash of the text -> its number, as a pointer */
    gml_map places;
    uint32_t name_count, place_count;
    gml_log_record pending[1024];
} gml_log;

/* Creates the file, for this user only, and writes its header; false where that fails. */
bool gml_log_open(gml_log *log, const char *path);

/* Writes pending data. Closes a file that cannot be written. */
void gml_log_flush(gml_log *log);

/* After all records of a call: what was not written for a while is written now, since the program
 * may be killed. */
void gml_log_end_call(gml_log *log);

/* Flushes, and writes every record at once from here on: the program may end after each. */
void gml_log_direct(gml_log *log);

/* Closes the file and drops pending data. */
void gml_log_drop(gml_log *log);

void gml_log_add(gml_log *log, const gml_log_record *record);

/* The number of a text, written when first seen; 0 for NULL and when the host has no memory. */
uint32_t gml_log_name(gml_log *log, const char *text);

/* The number of a call path of `count` return addresses, innermost first; 0: not seen so far. */
uint32_t gml_log_find_place(const gml_log *log, void *const *addresses, size_t count);

/* "function  library+0x1234". Asks the dynamic linker, which may be running a constructor that
 * calls the driver while it holds its own lock. pre: the caller holds no lock. */
void gml_log_describe(gml_log_frame *frame, const void *address);

/* As gml_log_find_place(), written with a frame for each address when first seen; 0 when the host
 * has no memory. */
uint32_t gml_log_place(gml_log *log, void *const *addresses, const gml_log_frame *frames,
                       size_t count);

#endif
