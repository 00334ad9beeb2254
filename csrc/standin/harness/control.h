/* What a test, through ctypes, may ask of the stand-in that it runs on. */
#ifndef GML_STANDIN_CONTROL_H
#define GML_STANDIN_CONTROL_H

#include "standin/standin.h"

/* How many rules were broken so far; each was said on standard error. */
STANDIN_API uint64_t gmlake_standin_misuses(void);

/* The count of the call number `index`, and its name; NULL beyond the last. */
STANDIN_API uint64_t gmlake_standin_calls(uint64_t index, const char **name);
STANDIN_API void gmlake_standin_reset_calls(void);

/* "eager", "lag" or "manual"; `lag` is read for "lag" only. 0, or -1 for another word. */
STANDIN_API int gmlake_standin_set_pace(const char *pace, uint64_t lag);

/* Lets `count` operations of a stream happen. 0, or -1 for a handle that is no stream. */
STANDIN_API int gmlake_standin_advance(cudaStream_t stream, uint64_t count);

/* Operations of a stream that were submitted and have not happened. */
STANDIN_API uint64_t gmlake_standin_pending(cudaStream_t stream);

/* Reads the GMLAKE_STANDIN_* variables again, for a process that was forked by one that had called
 * no device, and was given other variables. 0, or -1 where a device is in use. */
STANDIN_API int gmlake_standin_read_settings(void);

#endif
