/* Pieces of physical memory, found through the addresses it is mapped at. */
#include "hooks/race_memory.h"

#include "hooks/race_stamps.h"

#include <inttypes.h>

typedef struct memory {
    gml_tree pieces; /* by offset; what no piece covers was never used */
    size_t mapping_count;
    bool is_held; /* the handle was not released */
} memory;

typedef struct mapping {
    gml_tree_node node; /* must be first; by address, its size is 0 */
    uint64_t size_bytes;
    memory *memory;
    gml_stamps ended;  /* streams that may touch the addresses, and when they did last */
    size_t live_count; /* uses that have not ended */
} mapping;

typedef struct use {
    gml_address address;
    uint64_t size_bytes;
    gml_stamps stamps; /* of its streams; times count once it has ended */
    size_t holders;    /* pieces, and the table of live uses */
    bool is_live;
} use;

typedef struct piece {
    gml_tree_node node; /* must be first; by offset, its size is 0 */
    uint64_t size_bytes;
    use *use;
} piece;

void gml_race_memory_init(gml_race_memory *all, gml_driver *driver, gml_order *order) {
    *all = (gml_race_memory){.driver = driver, .order = order};
    all->memory_objects.object_bytes = sizeof(memory);
    all->mapping_objects.object_bytes = sizeof(mapping);
    all->pieces.object_bytes = sizeof(piece);
    all->uses.object_bytes = sizeof(use);
}

static gml_status no_host_memory(const gml_race_memory *all) {
    return gml_driver_fail(all->driver, GML_NO_HOST_MEMORY,
                           "the host has no memory to watch the order of streams");
}

/* ---- memory and mappings --------------------------------------------------------------------- */

static void drop_use(gml_race_memory *all, use *dropped) {
    if (--dropped->holders == 0) {
        gml_stamps_clear(&dropped->stamps);
        gml_pool_give(&all->uses, dropped);
    }
}

static void drop_piece(gml_race_memory *all, memory *of, piece *dropped) {
    gml_tree_remove(&of->pieces, &dropped->node);
    drop_use(all, dropped->use);
    gml_pool_give(&all->pieces, dropped);
}

/* Forgets memory that neither a handle nor a mapping holds. */
static void drop_memory(gml_race_memory *all, memory *dropped) {
    if (dropped->is_held || dropped->mapping_count) {
        return;
    }
    while (dropped->pieces.root) {
        drop_piece(all, dropped, (piece *)(void *)dropped->pieces.root);
    }
    gml_pool_give(&all->memory_objects, dropped);
}

static void drop_mapping(gml_race_memory *all, mapping *dropped) {
    gml_tree_remove(&all->mappings, &dropped->node);
    dropped->memory->mapping_count--;
    drop_memory(all, dropped->memory);
    gml_stamps_clear(&dropped->ended);
    gml_pool_give(&all->mapping_objects, dropped);
}

/* The last node at or below `key`, or NULL. */
static gml_tree_node *find_below(const gml_tree *tree, uint64_t key) {
    gml_tree_node *node = gml_tree_at_least(tree, 0, key);
    if (node && node->address == key) {
        return node;
    }
    return node ? gml_tree_previous(node) : gml_tree_last(tree);
}

/* The mapping that shows `address`, or NULL. */
static mapping *find_mapping(const gml_race_memory *all, gml_address address) {
    mapping *found = (mapping *)(void *)find_below(&all->mappings, address);
    return found && address - found->node.address < found->size_bytes ? found : NULL;
}

/* The continuation of a range of addresses. */
typedef struct walk {
    const gml_race_memory *all;
    gml_address next, end;
    mapping *mapping;            /* last one found */
    uint64_t offset, size_bytes; /* the part of its memory that is in the range */
} walk;

static walk walk_from(const gml_race_memory *all, gml_address address, uint64_t size_bytes) {
    return (walk){.all = all, .next = address, .end = address + size_bytes};
}

/* Advances to the next mapping of the range; false at its end, or at an unmapped address. */
static bool walk_on(walk *at) {
    if (at->next == at->end) {
        return false;
    }
    mapping *next = at->mapping ? (mapping *)(void *)gml_tree_next(&at->mapping->node) : NULL;
    if (!next || next->node.address != at->next) {
        next = find_mapping(at->all, at->next);
    }
    if (!next) {
        return false;
    }
    gml_address mapping_end = next->node.address + next->size_bytes;
    gml_address end = mapping_end < at->end ? mapping_end : at->end;
    at->mapping = next;
    at->offset = at->next - next->node.address;
    at->size_bytes = end - at->next;
    at->next = end;
    return true;
}

void gml_race_memory_close(gml_race_memory *all) {
    for (size_t i = 0; i < all->live.capacity; i++) {
        if (all->live.slots[i].key) {
            drop_use(all, all->live.slots[i].value);
        }
    }
    for (size_t i = 0; i < all->handles.capacity; i++) {
        if (all->handles.slots[i].key) {
            memory *held = all->handles.slots[i].value;
            held->is_held = false;
            drop_memory(all, held);
        }
    }
    while (all->mappings.root) {
        drop_mapping(all, (mapping *)(void *)all->mappings.root);
    }
    gml_map_clear(&all->handles);
    gml_map_clear(&all->live);
    gml_pool_clear(&all->memory_objects);
    gml_pool_clear(&all->mapping_objects);
    gml_pool_clear(&all->pieces);
    gml_pool_clear(&all->uses);
}

gml_status gml_race_memory_prepare(gml_race_memory *all) {
    bool has_room = gml_pool_reserve(&all->memory_objects, 1) &&
                    gml_pool_reserve(&all->mapping_objects, 1) &&
                    gml_map_reserve(&all->handles, 1) == GML_OK;
    return has_room ? GML_OK : no_host_memory(all);
}

void gml_race_memory_create(gml_race_memory *all, gml_handle handle) {
    memory *created = gml_pool_take(&all->memory_objects);
    created->is_held = true;
    (void)gml_map_insert(&all->handles, handle, created);
}

static void map_memory(gml_race_memory *all, gml_address address, uint64_t size_bytes,
                       memory *shown) {
    mapping *added = gml_pool_take(&all->mapping_objects);
    added->node.address = address;
    added->size_bytes = size_bytes;
    added->memory = shown;
    shown->mapping_count++;
    gml_tree_insert(&all->mappings, &added->node);
}

void gml_race_memory_map(gml_race_memory *all, gml_address address, uint64_t size_bytes,
                         gml_handle handle) {
    map_memory(all, address, size_bytes, gml_map_find(&all->handles, handle));
}

void gml_race_memory_malloc(gml_race_memory *all, gml_address address, uint64_t size_bytes) {
    map_memory(all, address, size_bytes, gml_pool_take(&all->memory_objects));
}

void gml_race_memory_release(gml_race_memory *all, gml_handle handle) {
    memory *released = gml_map_take(&all->handles, handle);
    released->is_held = false;
    drop_memory(all, released);
}

void gml_race_memory_unmap(gml_race_memory *all, gml_address address, uint64_t size_bytes) {
    walk at = walk_from(all, address, size_bytes);
    while (walk_on(&at)) {
        drop_mapping(all, at.mapping);
        at.mapping = NULL;
    }
}

void gml_race_memory_free(gml_race_memory *all, gml_address address) {
    drop_mapping(all, find_mapping(all, address));
}

/* ---- what may go ----------------------------------------------------------------------------- */

static gml_stream handle_of(const gml_race_memory *all, size_t stream) {
    return all->order->streams[stream].handle;
}

static gml_status refuse_live(const gml_race_memory *all, const mapping *used, const char *deed) {
    return gml_driver_fail(all->driver, GML_CORRUPT,
                           "race: %s at 0x%" PRIx64 " takes memory that is in use", deed,
                           used->node.address);
}

static gml_status check_mapping_idle(const gml_race_memory *all, mapping *checked) {
    if (checked->live_count) {
        return refuse_live(all, checked, "unmap");
    }
    for (size_t i = 0; i < checked->ended.count; i++) {
        const gml_stamp *last = gml_stamps_at(&checked->ended, i);
        if (!gml_order_is_known(all->order, *last)) {
            return gml_driver_fail(
                all->driver, GML_CORRUPT,
                "race: unmap at 0x%" PRIx64 " of %" PRIu64 " bytes that stream 0x%" PRIx64
                " may still use: nobody waited for it",
                checked->node.address, checked->size_bytes, handle_of(all, last->stream));
        }
    }
    return GML_OK;
}

gml_status gml_race_memory_check_unmap(gml_race_memory *all, gml_address address,
                                       uint64_t size_bytes) {
    walk at = walk_from(all, address, size_bytes);
    gml_status status = GML_OK;
    while (status == GML_OK && walk_on(&at)) {
        status = check_mapping_idle(all, at.mapping);
    }
    return status;
}

gml_status gml_race_memory_check_free(gml_race_memory *all, gml_address address) {
    const mapping *freed = find_mapping(all, address);
    return freed && freed->live_count ? refuse_live(all, freed, "free") : GML_OK;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static piece *next_piece(const piece *of) {
    return (piece *)(void *)gml_tree_next(&of->node);
}

/* The first piece that ends behind `offset`, or NULL. */
static piece *first_piece(const memory *of, uint64_t offset) {
    piece *below = (piece *)(void *)find_below(&of->pieces, offset);
    if (!below) {
        return (piece *)(void *)gml_tree_first(&of->pieces);
    }
    bool reaches = below->node.address + below->size_bytes > offset;
    return reaches ? below : next_piece(below);
}

/* pre: the object was reserved. */
static void add_piece(gml_race_memory *all, memory *to, uint64_t offset, uint64_t size_bytes,
                      use *of) {
    piece *added = gml_pool_take(&all->pieces);
    added->node.address = offset;
    added->size_bytes = size_bytes;
    added->use = of;
    of->holders++;
    gml_tree_insert(&to->pieces, &added->node);
}

/* Takes the range away from the pieces that cover it. pre: one piece is reserved. */
static void cut_pieces(gml_race_memory *all, memory *of, uint64_t offset, uint64_t size_bytes) {
    uint64_t end = offset + size_bytes;
    piece *cut = first_piece(of, offset);
    while (cut && cut->node.address < end) {
        piece *next = next_piece(cut);
        uint64_t cut_end = cut->node.address + cut->size_bytes;
        if (cut_end > end) {
            add_piece(all, of, end, cut_end - end, cut->use);
        }
        if (cut->node.address < offset) {
            cut->size_bytes = offset - cut->node.address;
        } else {
            drop_piece(all, of, cut);
        }
        cut = next;
    }
}

/* ---- uses ------------------------------------------------------------------------------------ */

static gml_status refuse_race(const gml_race_memory *all, const walk *at, const use *earlier,
                              size_t stream, size_t earlier_stream) {
    return gml_driver_fail(all->driver, GML_CORRUPT,
                           "race: stream 0x%" PRIx64 " is given memory at 0x%" PRIx64
                           " that stream 0x%" PRIx64 " %s (as 0x%" PRIx64 ", %" PRIu64 " bytes)",
                           handle_of(all, stream), at->mapping->node.address + at->offset,
                           handle_of(all, earlier_stream),
                           earlier->is_live ? "holds" : "may still use: nothing orders the two",
                           earlier->address, earlier->size_bytes);
}

static bool is_unseen(const gml_race_memory *all, size_t stream) {
    return handle_of(all, stream) == GML_ORDER_UNSEEN;
}

/* Whether what `stream` does next comes after the use: behind the streams that are known to use it,
 * and, unless it is the use's own, behind all others, since the program orders nobody else behind
 * those. */
static gml_status check_after(const gml_race_memory *all, const walk *at, use *earlier,
                              size_t stream) {
    if (earlier->is_live) {
        return refuse_race(all, at, earlier, stream, earlier->stamps.first.stream);
    }
    size_t owner = earlier->stamps.first.stream;
    for (size_t i = 0; i < earlier->stamps.count; i++) {
        const gml_stamp *last = gml_stamps_at(&earlier->stamps, i);
        bool is_programs = owner == stream && is_unseen(all, last->stream);
        if (!is_programs && !gml_order_is_before(all->order, *last, stream)) {
            return refuse_race(all, at, earlier, stream, last->stream);
        }
    }
    return GML_OK;
}

static bool find_unseen(gml_race_memory *all, size_t *out) {
    return gml_order_find(all->order, GML_ORDER_UNSEEN, out) == GML_OK;
}

/* Checks the part of the range at which the walk stands, and has its mapping know the stream. */
static gml_status check_part(gml_race_memory *all, const walk *at, size_t stream) {
    size_t unseen;
    if (!find_unseen(all, &unseen) || !gml_stamps_add(&at->mapping->ended, stream) ||
        !gml_stamps_add(&at->mapping->ended, unseen)) {
        return no_host_memory(all);
    }
    uint64_t end = at->offset + at->size_bytes;
    piece *seen = first_piece(at->mapping->memory, at->offset);
    gml_status status = GML_OK;
    while (status == GML_OK && seen && seen->node.address < end) {
        status = check_after(all, at, seen->use, stream);
        seen = next_piece(seen);
    }
    return status;
}

/* Checks the whole range; *parts is of how many mappings it consists. */
static gml_status check_range(gml_race_memory *all, gml_address address, uint64_t size_bytes,
                              size_t stream, size_t *parts) {
    walk at = walk_from(all, address, size_bytes);
    gml_status status = GML_OK;
    *parts = 0;
    while (status == GML_OK && walk_on(&at)) {
        status = check_part(all, &at, stream);
        ++*parts;
    }
    if (status == GML_OK && at.next != at.end) {
        status = gml_driver_fail(all->driver, GML_CORRUPT,
                                 "race: stream 0x%" PRIx64 " is given 0x%" PRIx64
                                 ", where nothing is mapped",
                                 handle_of(all, stream), at.next);
    }
    return status;
}

/* A use in the table of live ones, that no piece is of yet; NULL when the host has no memory. */
static use *open_use(gml_race_memory *all, gml_address address, uint64_t size_bytes,
                     size_t stream) {
    use *opened = gml_pool_take(&all->uses);
    size_t unseen;
    if (!opened || !find_unseen(all, &unseen)) {
        gml_pool_give(&all->uses, opened);
        return NULL;
    }
    (void)gml_stamps_add(&opened->stamps, stream); /* the first needs no memory */
    if (!gml_stamps_add(&opened->stamps, unseen) ||
        gml_map_insert(&all->live, address, opened) != GML_OK) {
        gml_stamps_clear(&opened->stamps);
        gml_pool_give(&all->uses, opened);
        return NULL;
    }
    opened->address = address;
    opened->size_bytes = size_bytes;
    opened->is_live = true;
    opened->holders = 1;
    return opened;
}

gml_status gml_race_memory_begin(gml_race_memory *all, gml_address address, uint64_t size_bytes,
                                 gml_stream stream) {
    size_t number, parts;
    if (gml_order_find(all->order, stream, &number) != GML_OK) {
        return no_host_memory(all);
    }
    gml_status status = check_range(all, address, size_bytes, number, &parts);
    if (status != GML_OK) {
        return status;
    }
    /* Each part becomes one piece, and may leave one behind it. */
    bool has_room = gml_pool_reserve(&all->pieces, 2 * parts);
    use *opened = has_room ? open_use(all, address, size_bytes, number) : NULL;
    if (!opened) {
        return no_host_memory(all);
    }
    walk at = walk_from(all, address, size_bytes);
    while (walk_on(&at)) {
        cut_pieces(all, at.mapping->memory, at.offset, at.size_bytes);
        add_piece(all, at.mapping->memory, at.offset, at.size_bytes, opened);
        at.mapping->live_count++;
    }
    return GML_OK;
}

gml_status gml_race_memory_join(gml_race_memory *all, gml_address address, gml_stream stream) {
    use *joined = gml_map_find(&all->live, address);
    size_t number;
    if (!joined) {
        return GML_OK;
    }
    if (gml_order_find(all->order, stream, &number) != GML_OK) {
        return no_host_memory(all);
    }
    walk at = walk_from(all, address, joined->size_bytes);
    bool has_room = gml_stamps_add(&joined->stamps, number);
    while (has_room && walk_on(&at)) {
        has_room = gml_stamps_add(&at.mapping->ended, number);
    }
    return has_room ? GML_OK : no_host_memory(all);
}

/* The times of the ended use's streams become those of the mappings it went through. */
static void stamp_mapping(mapping *left, use *ended) {
    left->live_count--;
    for (size_t i = 0; i < ended->stamps.count; i++) {
        const gml_stamp *stamp = gml_stamps_at(&ended->stamps, i);
        gml_stamp *last = gml_stamps_find(&left->ended, stamp->stream);
        if (last && last->time < stamp->time) {
            last->time = stamp->time;
        }
    }
}

void gml_race_memory_end(gml_race_memory *all, gml_address address) {
    use *ended = gml_map_take(&all->live, address);
    if (!ended) {
        return;
    }
    for (size_t i = 0; i < ended->stamps.count; i++) {
        gml_stamp *stamp = gml_stamps_at(&ended->stamps, i);
        *stamp = gml_order_now(all->order, stamp->stream);
    }
    ended->is_live = false;
    walk at = walk_from(all, address, ended->size_bytes);
    while (walk_on(&at)) {
        stamp_mapping(at.mapping, ended);
    }
    drop_use(all, ended);
}
