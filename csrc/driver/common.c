/* Pieces of common memory, and the handles and mappings of each driver that has them. */
#include "driver/common.h"

#include "base/status.h"
#include "driver/ledger.h"
#include "driver/wrapped.h"

#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct sharer sharer;

/* Physical memory. */
typedef struct piece {
    gml_tree_node node; /* must be first; in gml_common.pieces: its number is the address */
    gml_handle handle;  /* of the inner driver */
    uint64_t size_bytes;
    gml_link users; /* chunks, the oldest first */
    bool is_kept;   /* by its only user: no longer among the pieces that are shared */
} piece;

typedef struct chunk {
    gml_physical known; /* must be first */
    gml_link link;      /* in piece->users */
    piece *piece;       /* NULL: released, and still mapped */
    sharer *owner;
} chunk;

struct sharer {
    gml_wrapped wrapped; /* must be first */
    gml_common *common;
    uint64_t last_number; /* the pieces up to this one were taken, or are of another size */
    uint64_t bytes;       /* that this driver stands for */
    gml_ledger ledger;    /* of chunk */
};

static sharer *sharer_of(gml_driver *self) {
    return (sharer *)(void *)self;
}

static chunk *chunk_of_link(gml_link *link) {
    return (chunk *)(void *)((char *)link - offsetof(chunk, link));
}

/* Each call is a counted one of the inner driver. */
#define PASS(upper, lower, parameters, arguments, cost_bytes)                                      \
    static gml_status pass_##lower parameters {                                                    \
        gml_driver *driver = gml_wrapped_inner(self);                                              \
        return gml_wrapped_relay(self, gml_driver_##lower arguments);                              \
    }
GML_DRIVER_TABLE(PASS, PASS)
#undef PASS

/* ---- pieces ---------------------------------------------------------------------------------- */

/* A piece without users that no driver knows yet. */
static gml_status make_piece(gml_driver *self, uint64_t size_bytes, piece **out) {
    gml_common *common = sharer_of(self)->common;
    piece *made = calloc(1, sizeof *made);
    if (!made) {
        (void)gml_driver_fail(self, GML_NO_HOST_MEMORY, "create: no host memory for a handle");
        return GML_NO_HOST_MEMORY;
    }
    gml_status status = pass_create(self, size_bytes, &made->handle);
    if (status != GML_OK) {
        free(made);
        return status;
    }
    made->size_bytes = size_bytes;
    gml_list_init(&made->users);
    *common->held_bytes += size_bytes;
    *out = made;
    return GML_OK;
}

static void share_piece(gml_common *common, piece *shared) {
    shared->is_kept = false;
    shared->node.address = ++common->last_number;
    gml_tree_insert(&common->pieces, &shared->node);
}

/* A piece without users, whose memory was released. */
static void forget_piece(gml_common *common, piece *gone) {
    if (!gone->is_kept) {
        gml_tree_remove(&common->pieces, &gone->node);
    }
    *common->held_bytes -= gone->size_bytes;
    free(gone);
}

static void add_user(piece *used, chunk *user) {
    user->owner->bytes += gml_list_is_empty(&used->users) ? used->size_bytes : 0;
    user->piece = used;
    gml_list_append(&used->users, &user->link);
}

/* The next user stands for the memory. */
static void remove_user(chunk *user) {
    piece *used = user->piece;
    bool was_first = used->users.next == &user->link;
    gml_list_remove(&user->link);
    if (was_first) {
        user->owner->bytes -= used->size_bytes;
        if (!gml_list_is_empty(&used->users)) {
            chunk_of_link(used->users.next)->owner->bytes += used->size_bytes;
        }
    }
}

static bool is_only_user(const chunk *user) {
    return user->link.next == user->link.previous;
}

/* The next piece of that size which this driver has not taken, made if there is none. */
static gml_status take_piece(gml_driver *self, uint64_t size_bytes, piece **out) {
    sharer *taker = sharer_of(self);
    gml_common *common = taker->common;
    gml_tree_node *node = gml_tree_at_least(&common->pieces, 0, taker->last_number + 1);
    while (node && ((piece *)(void *)node)->size_bytes != size_bytes) {
        node = gml_tree_next(node);
    }
    piece *taken = (piece *)(void *)node;
    if (!taken) {
        gml_status status = make_piece(self, size_bytes, &taken);
        if (status != GML_OK) {
            return status;
        }
        share_piece(common, taken);
    }
    taker->last_number = taken->node.address;
    *out = taken;
    return GML_OK;
}

/* ---- physical memory ------------------------------------------------------------------------- */

static gml_status create(gml_driver *self, uint64_t size_bytes, gml_handle *out) {
    return gml_ledger_create(&sharer_of(self)->ledger, size_bytes, out);
}

static gml_status take_chunk(gml_driver *self, gml_physical *made) {
    chunk *user = (chunk *)(void *)made;
    piece *taken;
    gml_status status = take_piece(self, made->size_bytes, &taken);
    if (status == GML_OK) {
        user->owner = sharer_of(self);
        add_user(taken, user);
    }
    return status;
}

static gml_status release(gml_driver *self, gml_handle handle) {
    sharer *owner = sharer_of(self);
    chunk *released = gml_ledger_demand(&owner->ledger, "release", handle);
    if (!released) {
        return GML_MISUSE;
    }
    piece *used = released->piece;
    bool is_last = is_only_user(released);
    gml_status status = is_last ? pass_release(self, used->handle) : GML_OK;
    if (status != GML_OK) {
        return status;
    }
    remove_user(released);
    if (is_last) {
        forget_piece(owner->common, used);
    }
    released->piece = NULL;
    released->known.is_released = true;
    return gml_ledger_end(&owner->ledger, &released->known);
}

/* Its memory was given back with its handle. */
static gml_status give_chunk(gml_driver *self, gml_physical *ended) {
    (void)self, (void)ended;
    return GML_OK;
}

/* ---- mappings -------------------------------------------------------------------------------- */

static gml_status map(gml_driver *self, gml_address address, uint64_t size_bytes,
                      gml_handle handle) {
    return gml_ledger_map(&sharer_of(self)->ledger, address, size_bytes, handle);
}

static gml_status map_chunk(gml_driver *self, gml_address address, gml_physical *mapped) {
    return pass_map(self, address, mapped->size_bytes, ((chunk *)(void *)mapped)->piece->handle);
}

static gml_status unmap(gml_driver *self, gml_address address, uint64_t size_bytes) {
    return gml_ledger_unmap(&sharer_of(self)->ledger, address, size_bytes);
}

static const gml_ledger_user books = {take_chunk, map_chunk,     pass_unmap,
                                      give_chunk, sizeof(chunk), sizeof(gml_mapping)};

static gml_status set_access(gml_driver *self, gml_address address, uint64_t size_bytes) {
    gml_status status = pass_set_access(self, address, size_bytes);
    if (status == GML_OK) {
        gml_ledger_open(&sharer_of(self)->ledger, address, size_bytes);
    }
    return status;
}

static gml_handle handle_below(gml_driver *self, gml_handle handle) {
    const chunk *asked = gml_ledger_find(&sharer_of(self)->ledger, handle);
    return asked ? asked->piece->handle : 0;
}

/* ---- keeping --------------------------------------------------------------------------------- */

/* Puts another piece at one address. */
static gml_status replace(gml_driver *self, gml_mapping *at, const piece *by) {
    gml_ledger *ledger = &sharer_of(self)->ledger;
    gml_status status = gml_ledger_lose(ledger, at);
    if (status == GML_OK) {
        status = pass_map(self, at->node.address, at->size_bytes, by->handle);
    }
    if (status == GML_OK) {
        gml_ledger_regain(ledger, at);
        status = at->is_open ? pass_set_access(self, at->node.address, at->size_bytes) : GML_OK;
    }
    return status;
}

/* At all addresses of a chunk, or as before. */
static gml_status replace_all(gml_driver *self, chunk *of, const piece *by) {
    gml_status status = GML_OK;
    gml_link *link = of->known.mappings.next;
    for (; link != &of->known.mappings && status == GML_OK; link = link->next) {
        status = replace(self, gml_mapping_of_link(link), by);
    }
    gml_driver_begin_undo(self);
    for (gml_link *end = link, *undone = of->known.mappings.next; status != GML_OK && undone != end;
         undone = undone->next) {
        (void)replace(self, gml_mapping_of_link(undone), of->piece);
    }
    gml_driver_end_undo(self);
    return status;
}

gml_status gml_common_keep(gml_driver *driver, gml_handle handle) {
    sharer *owner = sharer_of(driver);
    chunk *kept = gml_ledger_find(&owner->ledger, handle);
    piece *shared = kept->piece, *own = NULL;
    if (shared->is_kept) {
        return GML_OK;
    }
    if (is_only_user(kept)) {
        gml_tree_remove(&owner->common->pieces, &shared->node);
        shared->is_kept = true;
        return GML_OK;
    }
    gml_status status = make_piece(driver, shared->size_bytes, &own);
    if (status != GML_OK) {
        return status;
    }
    own->is_kept = true;
    status = replace_all(driver, kept, own);
    if (status == GML_OK) {
        remove_user(kept);
        add_user(own, kept);
        return GML_OK;
    }
    gml_driver_begin_undo(driver);
    if (pass_release(driver, own->handle) == GML_OK) {
        forget_piece(owner->common, own);
    } else {
        share_piece(owner->common, own);
    }
    gml_driver_end_undo(driver);
    return status;
}

gml_status gml_common_trim(gml_common *common) {
    gml_status first = GML_OK;
    for (gml_tree_node *node = gml_tree_first(&common->pieces), *next; node; node = next) {
        next = gml_tree_next(node);
        piece *left = (piece *)(void *)node;
        if (!gml_list_is_empty(&left->users)) {
            continue;
        }
        gml_status status = gml_driver_release(common->driver, left->handle);
        if (status == GML_OK) {
            forget_piece(common, left);
        }
        first = gml_first_failure(first, status);
    }
    return first;
}

enum { PATTERN_BYTES = 1 << 18 };

/* Lasts as long as the process: a device copies it when it gets there. */
static unsigned char pattern[PATTERN_BYTES];

static void make_pattern(void) {
    memset(pattern, 0xFF, sizeof pattern);
}

static gml_status spoil(gml_driver *self, const gml_mapping *at, gml_stream stream) {
    gml_status status = GML_OK;
    for (uint64_t done = 0; done < at->size_bytes && status == GML_OK;) {
        uint64_t left_bytes = at->size_bytes - done;
        uint64_t bytes = left_bytes < PATTERN_BYTES ? left_bytes : PATTERN_BYTES;
        status = gml_driver_copy_in(self, at->node.address + done, pattern, bytes, stream);
        done += bytes;
    }
    return status;
}

/* A place where the chunk can be written to, or NULL. */
static const gml_mapping *find_open(chunk *of) {
    for (gml_link *link = of->known.mappings.next; link != &of->known.mappings; link = link->next) {
        const gml_mapping *at = gml_mapping_of_link(link);
        if (at->is_open && !at->is_absent) {
            return at;
        }
    }
    return NULL;
}

gml_status gml_common_spoil(gml_driver *driver, gml_stream stream) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, make_pattern);
    const sharer *owner = sharer_of(driver);
    gml_status status = GML_OK;
    for (size_t i = 0; i < owner->ledger.chunks.capacity && status == GML_OK; i++) {
        chunk *at = gml_ledger_in_slot(&owner->ledger, i);
        bool is_shared = at && at->piece && !at->piece->is_kept;
        const gml_mapping *seen = is_shared ? find_open(at) : NULL;
        status = seen ? spoil(driver, seen, stream) : GML_OK;
    }
    return status;
}

/* Pieces that this driver has not taken yet. */
static uint64_t spare_bytes(const gml_driver *self) {
    const sharer *asked = (const sharer *)(const void *)self;
    uint64_t bytes = 0;
    const gml_tree_node *node =
        gml_tree_at_least(&asked->common->pieces, 0, asked->last_number + 1);
    for (; node; node = gml_tree_next(node)) {
        bytes += ((const piece *)(const void *)node)->size_bytes;
    }
    return bytes;
}

static bool stands_for(gml_driver *self, gml_handle handle) {
    const chunk *asked = gml_ledger_find(&sharer_of(self)->ledger, handle);
    return asked && asked->piece->users.next == &asked->link;
}

uint64_t gml_common_bytes(const gml_driver *driver) {
    return ((const sharer *)(const void *)driver)->bytes;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* What the driver below refused to release stays among the shared pieces. */
static void destroy(gml_driver *self) {
    sharer *closed = sharer_of(self);
    for (size_t i = 0; i < closed->ledger.chunks.capacity; i++) {
        chunk *left = gml_ledger_in_slot(&closed->ledger, i);
        piece *used = left ? left->piece : NULL;
        if (used) {
            remove_user(left);
            if (used->is_kept) {
                share_piece(closed->common, used);
            }
        }
    }
    gml_ledger_clear(&closed->ledger);
    free(closed);
}

gml_status gml_common_open(gml_common *common, gml_driver **out) {
    sharer *opened = calloc(1, sizeof *opened);
    if (!opened) {
        return gml_driver_fail(common->driver, GML_NO_HOST_MEMORY,
                               "no host memory for graphs that take turns");
    }
    gml_wrap(&opened->wrapped, common->driver, destroy);
    opened->common = common;
    gml_ledger_init(&opened->ledger, &opened->wrapped.base, &books);
    gml_driver_ops *ops = &opened->wrapped.ops;
#define COUNT(upper, lower, parameters, arguments, cost_bytes) ops->lower = pass_##lower;
    GML_DRIVER_TABLE(COUNT, COUNT)
#undef COUNT
    ops->create = create;
    ops->release = release;
    ops->map = map;
    ops->unmap = unmap;
    ops->set_access = set_access;
    ops->handle_below = handle_below;
    ops->spare_bytes = spare_bytes;
    ops->stands_for = stands_for;
    ops->behind_malloc = NULL;
    ops->expect_malloc = NULL;
    ops->take_host = NULL;
    opened->wrapped.base.has_own_account = true;
    *out = &opened->wrapped.base;
    return GML_OK;
}
