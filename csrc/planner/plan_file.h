/* The plan file, as gml_plan_encode() writes it. Numbers are varints unless they say otherwise (see
 * plan_bytes.h); sizes and offsets count units of 512 bytes.
 *
 *   magic       8 bytes, "gmlplan\n"
 *   version     4 bytes
 *   zero        4 bytes
 *   checksum    8 bytes, over everything behind it
 *   counts      steps; events, entries and phase marks of one step; lanes; sizes; visits; dynamic
 *               requests; spans
 *   fingerprint 8 bytes
 *   lanes       each: stream, peak, lower bound, method
 *   sizes       the different sizes of entries, ascending, each as the difference to the one before
 *   entries     of the first step, since the second repeats it. Column by column:
 *               size (its index), start (events since the one before, less 1), life,
 *               lane, phase of the start (guessed: as before), phase of the end (guessed: as far
 * from that of the start as where an entry had this size last) offsets     step by step: 0 for
 * none, else 1 + the difference to the last offset of an entry of this size, or in the second step
 * to the offset in the first marks       of the first step, each: phase, entries since the one
 * before visits      each: scope, requests dynamic     each: size, lane, first span (difference),
 * spans spans       each: offset (difference to the end of the one before), size
 *
 * A reader refuses every other version, so a format that changes gets a new number.
 */
#ifndef GML_PLANNER_PLAN_FILE_H
#define GML_PLANNER_PLAN_FILE_H

#include "planner/plan_bytes.h"
#include "planner/plan_parts.h"

enum {
    GML_PLAN_FILE_VERSION = 2,
    GML_PLAN_FILE_HEADER = 24,    /* bytes, with the checksum, */
    GML_PLAN_FILE_CHECKSUM = 16,  /* which lies here */
    GML_PLAN_FILE_ENTRY_BYTES = 4 /* an entry takes no less */
};

/* "gmlplan\n" as a number whose lowest byte comes first. */
#define GML_PLAN_FILE_MAGIC UINT64_C(0x0a6e616c706c6d67)

#endif
