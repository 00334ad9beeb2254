/* What a kernel's patches mark, in device memory: shared by the patch (patch.cu) and the collector.
 *
 * The table lists the objects by address. Each object's cells are, one after another, a bit for
 * each of its bytes that was read, a bit for each that was written, and a counter for each granule.
 */
#ifndef GML_DIAGNOSE_COLLECT_TABLE_H
#define GML_DIAGNOSE_COLLECT_TABLE_H

enum {
    GML_MARK_READ = 1,
    GML_MARK_WRITTEN = 2,
    GML_MARK_BYTES = 32, /* that a word of bits stands for */
    GML_NO_COUNTERS = 64 /* a granule_shift: only bytes are marked */
};

typedef struct gml_table_object {
    unsigned long long begin, size_bytes;
    unsigned long long cells;     /* where they are; 0: none, only `kinds` is marked */
    unsigned long long low, high; /* all accesses lie from low to high, offsets in bytes */
    unsigned kinds;               /* GML_MARK_READ | GML_MARK_WRITTEN */
    unsigned granule_shift;       /* a counter for each 2^granule_shift bytes */
    unsigned long long serial;    /* the collector's, see live_objects.h */
} gml_table_object;

typedef struct gml_table {
    unsigned long long count;
    gml_table_object objects[1]; /* `count` of them, ascending */
} gml_table;

#endif
