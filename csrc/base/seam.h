/* The seam: internal functions that annexes call, which the library therefore exports beside
 * gmlake.h.
 *
 * An annex is built with the library it runs with, so these are no stable interface.
 */
#ifndef GML_BASE_SEAM_H
#define GML_BASE_SEAM_H

#include "gmlake.h"

#define GML_SEAM GML_API

#endif
