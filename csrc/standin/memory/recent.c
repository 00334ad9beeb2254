#include "standin/memory/recent.h"

#include <stddef.h>
#include <string.h>

enum { MOST_WRITES = 16 };

typedef struct recent_write {
    uint64_t to, size_bytes;
    unsigned char bytes[STANDIN_RECENT_BYTES];
} recent_write;

static recent_write writes[MOST_WRITES]; /* the newest `count` of `made`, in a ring */
static size_t made, count;

void standin_recent_write(uint64_t to, const void *bytes, uint64_t size_bytes) {
    if (size_bytes > STANDIN_RECENT_BYTES) {
        standin_recent_forget();
        return;
    }
    recent_write *next = &writes[made++ % MOST_WRITES];
    next->to = to;
    next->size_bytes = size_bytes;
    memcpy(next->bytes, bytes, (size_t)size_bytes);
    count = count < MOST_WRITES ? count + 1 : count;
}

bool standin_recent_read(uint64_t from, void *out, uint64_t size_bytes) {
    for (size_t age = 1; age <= count; age++) {
        const recent_write *of = &writes[(made - age) % MOST_WRITES];
        bool overlaps = from < of->to + of->size_bytes && of->to < from + size_bytes;
        if (overlaps && from >= of->to && from + size_bytes <= of->to + of->size_bytes) {
            memcpy(out, of->bytes + (from - of->to), (size_t)size_bytes);
            return true;
        }
        if (overlaps) {
            return false; /* part of it is older, or was never written */
        }
    }
    return false;
}

void standin_recent_forget(void) {
    count = 0;
}
