/* What the tests of streams that lend each other memory share: a lake whose streams run by hand,
 * with the order of streams checked, and short ways to make things happen on it. */
#ifndef GML_TEST_SHARING_H
#define GML_TEST_SHARING_H

#include "gmlake.h"
#include "support/contract.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

typedef struct sharing_config {
    const char *driver, *policy; /* NULL: sim, stitch */
    uint64_t capacity_bytes;
    const gml_setting *settings;
    size_t setting_count;
    bool runs_at_once; /* streams do */
} sharing_config;

/* Opens a lake, or ends the program. */
gml_lake *sharing_open(const sharing_config *config);

/* The same with up to two settings, on `stitch` over `sim`; a NULL name: none. */
gml_lake *sharing_open_with(const char *name, uint64_t value, const char *second_name,
                            uint64_t second_value);

/* Runs what is queued, checks, trims to nothing and closes; every block was given back. */
void sharing_finish(gml_lake *lake);

/* Allocates where that must succeed; then queues work on the stream that uses the block. */
gml_address sharing_take(gml_lake *lake, uint64_t size_bytes, gml_stream stream);

/* Frees; work on the stream is pending. */
void sharing_give(gml_lake *lake, gml_address address);

/* Takes and gives back. */
void sharing_leave(gml_lake *lake, uint64_t size_bytes, gml_stream stream);

/* The same with two blocks, of which another one, that stays, keeps them apart: returns that. */
gml_address sharing_leave_two(gml_lake *lake, uint64_t size_bytes, gml_stream stream);

void sharing_work(gml_lake *lake, gml_stream stream);
void sharing_run(gml_lake *lake, gml_stream stream); /* all that is queued on it */
void sharing_run_all(gml_lake *lake);

uint64_t sharing_reserved(gml_lake *lake);

/* Calls that take memory or address space, map it, or give it back. */
uint64_t sharing_memory_calls(gml_lake *lake);

/* Zeroed where there is no such pair. */
gml_stream_pair sharing_pair(gml_lake *lake, gml_stream owner, gml_stream borrower);

/* Calls made so far. */
typedef struct sharing_tally {
    uint64_t records, waits; /* event_record_all, stream_wait */
    uint64_t creates;
} sharing_tally;

sharing_tally sharing_count(gml_lake *lake);

#endif
