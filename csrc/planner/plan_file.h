/* The plan file, as gml_plan_encode() writes it: a header, then numbers, each as a varint: 7 bits a
 * byte, the lowest first, the top bit set in all but the last (LEB128). A difference in either
 * direction is a small number: 0, -1, 1, -2, ... Sizes and offsets count units of 512 bytes.
 *
 *   magic       8 bytes, "gmlplan\n"
 *   version     4 bytes
 *   zero        4 bytes
 *   checksum    8 bytes, over everything behind it (FNV-1a: any change of one byte changes it)
 *   counts      steps; events and entries of one step; lanes; the fingerprint
 *   lanes       each: stream, peak, lower bound, method
 *   entries     of the first step, since the second repeats it, each: size (difference to the entry
 *               before), start (events since the one before, less 1), life, lane
 *   offsets     step by step: 0 for none, else 1 + the difference to the last offset, or in the
 *               second step to the offset in the first
 *
 * A reader refuses every other version, so a format that changes gets a new number.
 */
#ifndef GML_PLANNER_PLAN_FILE_H
#define GML_PLANNER_PLAN_FILE_H

#include "planner/plan_parts.h"

enum {
    GML_PLAN_FILE_VERSION = 4,
    GML_PLAN_FILE_HEADER = 24,  /* bytes, with the checksum, */
    GML_PLAN_FILE_CHECKSUM = 16 /* which lies here */
};

/* "gmlplan\n" as a number whose lowest byte comes first. */
#define GML_PLAN_FILE_MAGIC UINT64_C(0x0a6e616c706c6d67)

/* Writes the checksum of the rest into the header. */
void gml_plan_file_seal(uint8_t *bytes, size_t count);

#endif
