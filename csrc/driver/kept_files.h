/* Files of chunks: a child of fork() has them, too, and would hold the chunks' memory after this
 * process has released it. It closes them.
 *
 * No lock: any thread may call.
 */
#ifndef GML_DRIVER_KEPT_FILES_H
#define GML_DRIVER_KEPT_FILES_H

#include <stddef.h>

/* How many more may be added without being needed: half of what the process may open is the
 * program's. */
size_t gml_kept_files_room(void);

/* An open file of a chunk. */
void gml_kept_files_add(int file);

/* Closes a file that was added. */
void gml_kept_files_close(int file);

#endif
