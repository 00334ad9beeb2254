/* What an elastic buffer is made of, and what is mapped at its places: see elastic.c. */
#ifndef GML_LAKE_ELASTIC_H
#define GML_LAKE_ELASTIC_H

#include "lake/lake.h"

#include <stddef.h>

typedef struct gml_elastic {
    gml_address address;
    uint64_t size_bytes, chunk_bytes;
    gml_stream stream;
    size_t count;        /* of chunks in use: they are at the first places */
    size_t mapped_end;   /* no place from this one on is mapped */
    gml_block **blocks;  /* by place, of those in use */
    gml_address *homes;  /* by place: where the chunk that is mapped lies in the policy; 0: none */
    gml_handle *handles; /* by place, while it is being mapped */
    gml_event event;     /* behind the work that may use idle mappings, where it is recorded */
    bool has_event, is_recorded;
    bool is_unordered; /* no event could be recorded: the device must have finished */
    bool is_over;      /* closed, and still mapped */
    gml_link all;      /* in lake->elastic_list */
} gml_elastic;

static inline gml_elastic *
gml_elastic_of_link(gml_link *link)
{
    return (gml_elastic *)(void *)((char *)link - offsetof(gml_elastic, all));
}

/* Lets each place of [first, end) show its chunk, as far as it does not yet. After a failure what
 * is mapped there is known. */
gml_status gml_elastic_map(gml_lake *lake, gml_elastic *of, size_t first, size_t end);

/* What is queued on the stream now is the last that may use the mappings that become idle. */
void gml_elastic_note_idle(gml_lake *lake, gml_elastic *of);

/* Tells whoever watches the order of streams that the mappings of [first, end) are used, or no more
 * so. */
gml_status gml_elastic_begin_uses(gml_lake *lake, const gml_elastic *of, size_t first, size_t end);
void gml_elastic_end_uses(gml_lake *lake, const gml_elastic *of, size_t first, size_t end);

/* Gives the host's memory of a buffer back that is in no list. */
void gml_elastic_release(gml_elastic *of);

/* Ends the buffers that were closed, as far as the driver lets them; returns the first failure. The
 * open ones are not looked at. */
gml_status gml_elastics_end_late(gml_lake *lake);

#endif
