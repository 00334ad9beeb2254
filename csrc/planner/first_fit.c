/* First fit over merged runs.
 *
 * A segment tree over slots. Each node keeps two ascending lists of disjoint runs of addresses:
 * `cover`, occupied in all of the node's slots by items stored at this very node, and `any`,
 * occupied in any of its slots. An item is stored at the few nodes that cover its slots. The
 * obstacles of an item are in the `any` of its nodes and in the `cover` of the nodes above them.
 * Dense packing lets runs grow together, so that the cost of a query follows the number of runs and
 * not that of the items it meets.
 */
#include "planner/methods.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_LEVELS = 33, MOST_NODES = 4 * MOST_LEVELS, BLOCK_RUNS = 1 << 15 };

/* Occupied addresses [low, high). */
typedef struct run {
    uint64_t low, high;
} run;

/* Ascending, disjoint, not touching; all zero: empty. */
typedef struct run_list {
    run *runs;
    uint32_t count, room;
} run_list;

/* Memory for lists, freed all at once: a growing list leaves behind no more than its new size. */
typedef struct run_block {
    struct run_block *next;
    size_t used, room;
    run runs[];
} run_block;

typedef struct run_tree {
    uint32_t leaves;       /* a power of two; node 1 is the root, the leaves come last */
    run_list *any, *cover; /* by node; leaves have no `cover` */
    run_block *blocks;
} run_tree;

/* The nodes that cover the slots of an item, and those above them. */
typedef struct node_cut {
    uint32_t nodes[MOST_NODES], above[MOST_NODES];
    size_t node_count, above_count;
} node_cut;

/* A list, and how far it has been searched. */
typedef struct run_reader {
    const run *runs;
    uint32_t count, next;
} run_reader;

/* ---- lists of runs --------------------------------------------------------------------------- */

/* Twice the room. GML_NO_HOST_MEMORY. */
static gml_status
list_grow(run_tree *tree, run_list *list)
{
    size_t room = list->room ? 2 * (size_t)list->room : 1;
    run_block *block = tree->blocks;
    if (!block || block->room - block->used < room) {
        size_t block_room = room > BLOCK_RUNS ? room : BLOCK_RUNS;
        block = malloc(sizeof *block + block_room * sizeof *block->runs);
        if (!block || room > UINT32_MAX) {
            free(block);
            return GML_NO_HOST_MEMORY;
        }
        *block = (run_block){.next = tree->blocks, .room = block_room};
        tree->blocks = block;
    }
    run *runs = &block->runs[block->used];
    block->used += room;
    if (list->count) {
        memcpy(runs, list->runs, list->count * sizeof *runs);
    }
    *list = (run_list){runs, list->count, (uint32_t)room};
    return GML_OK;
}

/* The first run that ends at `low` or above. */
static uint32_t
first_reaching(const run *runs, uint32_t count, uint64_t low)
{
    uint32_t at = 0;
    while (count) {
        uint32_t half = count / 2;
        if (runs[at + half].high < low) {
            at += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return at;
}

static gml_status
insert_at(run_tree *tree, run_list *list, uint32_t at, uint64_t low, uint64_t high)
{
    if (list->count == list->room) {
        gml_status status = list_grow(tree, list);
        if (status != GML_OK) {
            return status;
        }
    }
    run *runs = list->runs;
    memmove(&runs[at + 1], &runs[at], (list->count - at) * sizeof *runs);
    runs[at] = (run){low, high};
    list->count++;
    return GML_OK;
}

/* Extends the run at `at` over [low, high) and over all others that it then touches. */
static void
merge_at(run_list *list, uint32_t at, uint64_t low, uint64_t high)
{
    run *runs = list->runs, *grown = &runs[at];
    grown->low = low < grown->low ? low : grown->low;
    if (high <= grown->high) {
        return;
    }
    uint32_t behind = at + 1;
    while (behind < list->count && runs[behind].low <= high) {
        behind++;
    }
    uint64_t last_high = runs[behind - 1].high;
    grown->high = last_high > high ? last_high : high;
    if (behind > at + 1) {
        memmove(&runs[at + 1], &runs[behind], (list->count - behind) * sizeof *runs);
        list->count -= behind - (at + 1);
    }
}

/* Adds [low, high) to the list. GML_NO_HOST_MEMORY: nothing changed. */
static gml_status
add_run(run_tree *tree, run_list *list, uint64_t low, uint64_t high)
{
    uint32_t at = first_reaching(list->runs, list->count, low);
    if (at >= list->count || list->runs[at].low > high) {
        return insert_at(tree, list, at, low, high);
    }
    merge_at(list, at, low, high);
    return GML_OK;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static gml_status
tree_open(run_tree *tree, uint32_t slots)
{
    *tree = (run_tree){.leaves = 1};
    while (tree->leaves < slots) {
        tree->leaves *= 2;
    }
    tree->any = calloc((size_t)2 * tree->leaves, sizeof *tree->any);
    tree->cover = calloc(tree->leaves, sizeof *tree->cover);
    return tree->any && tree->cover ? GML_OK : GML_NO_HOST_MEMORY;
}

static void
tree_close(run_tree *tree)
{
    for (run_block *block = tree->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    free(tree->any);
    free(tree->cover);
}

/* Adds the nodes of slots [begin, end). */
static void
cut_range(node_cut *cut, uint32_t leaves, uint32_t begin, uint32_t end)
{
    const uint64_t first = (uint64_t)begin + leaves, behind = (uint64_t)end + leaves;
    for (uint64_t left = first, right = behind; left < right; left /= 2, right /= 2) {
        if (left & 1) {
            cut->nodes[cut->node_count++] = (uint32_t)left++;
        }
        if (right & 1) {
            cut->nodes[cut->node_count++] = (uint32_t)--right;
        }
    }
    unsigned level = 0;
    for (uint64_t left = first, right = behind - 1; left; left /= 2, right /= 2, level++) {
        if (left << level < first || (left + 1) << level > behind) {
            cut->above[cut->above_count++] = (uint32_t)left;
        }
        if (right != left && (right << level < first || (right + 1) << level > behind)) {
            cut->above[cut->above_count++] = (uint32_t)right;
        }
    }
}

static void
cut_item(node_cut *cut, const gml_instance *instance, uint32_t leaves, size_t item)
{
    uint32_t begin = instance->begin[item], end = instance->end[item];
    cut->node_count = 0;
    cut->above_count = 0;
    if (begin == end) {
        cut_range(cut, leaves, 0, instance->slots);
    } else if (begin < end) {
        cut_range(cut, leaves, begin, end);
    } else {
        cut_range(cut, leaves, begin, instance->slots);
        cut_range(cut, leaves, 0, end);
    }
}

static gml_status
tree_add(run_tree *tree, const node_cut *cut, uint64_t low, uint64_t high)
{
    gml_status status = GML_OK;
    for (size_t i = 0; i < cut->node_count && status == GML_OK; i++) {
        uint32_t node = cut->nodes[i];
        /* NOLINTNEXTLINE(clang-analyzer-security.ArrayBound): as all nodes, below 2 * leaves */
        status = add_run(tree, &tree->any[node], low, high);
        if (status == GML_OK && node < tree->leaves) {
            status = add_run(tree, &tree->cover[node], low, high);
        }
    }
    for (size_t i = 0; i < cut->above_count && status == GML_OK; i++) {
        /* NOLINTNEXTLINE(clang-analyzer-security.ArrayBound): and so are those above them */
        status = add_run(tree, &tree->any[cut->above[i]], low, high);
    }
    return status;
}

/* ---- queries --------------------------------------------------------------------------------- */

static size_t
add_reader(run_list list, run_reader *readers, size_t count)
{
    if (!list.count) {
        return count;
    }
    readers[count] = (run_reader){list.runs, list.count, 0};
    return count + 1;
}

/* Collects the obstacles of an item with these nodes; returns the number of lists. */
static size_t
gather(const run_tree *tree, const node_cut *cut, run_reader *readers)
{
    size_t count = 0;
    for (size_t i = cut->above_count; i-- > 0;) { /* large lists first */
        /* NOLINTNEXTLINE(clang-analyzer-security.ArrayBound): a node of this tree */
        count = add_reader(tree->cover[cut->above[i]], readers, count);
    }
    for (size_t i = cut->node_count; i-- > 0;) {
        count = add_reader(tree->any[cut->nodes[i]], readers, count);
    }
    return count;
}

/* Skips the runs that end at `address` or below: in leaps that double, then by halves. */
static void
skip_below(run_reader *reader, uint64_t address)
{
    uint32_t low = reader->next, leap = 1;
    while (low + leap < reader->count && reader->runs[low + leap].high <= address) {
        low += leap;
        leap *= 2;
    }
    uint32_t high = low + leap < reader->count ? low + leap : reader->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (reader->runs[middle].high <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    reader->next = low;
}

/* The least address at or above `address` at which `size` bytes are free in this list. */
static uint64_t
next_free(run_reader *reader, uint64_t address, uint64_t size)
{
    if (reader->next < reader->count && reader->runs[reader->next].high <= address) {
        skip_below(reader, address);
    }
    while (reader->next < reader->count && reader->runs[reader->next].low < address + size) {
        address = reader->runs[reader->next++].high;
    }
    return address;
}

/* The least address at which `size` bytes are free in all lists. */
static uint64_t
lowest_free(run_reader *readers, size_t count, uint64_t size, uint64_t *visits)
{
    uint64_t address = 0;
    for (size_t agreeing = 0, i = 0; agreeing < count; i = i + 1 < count ? i + 1 : 0) {
        uint32_t before = readers[i].next;
        uint64_t next = next_free(&readers[i], address, size);
        agreeing = next == address ? agreeing + 1 : 1;
        address = next;
        *visits += 1 + (readers[i].next - before);
    }
    return address;
}

/* ---- items ----------------------------------------------------------------------------------- */

static gml_status
place_all(run_tree *tree, const gml_instance *instance, const uint32_t *order, uint64_t limit_bytes,
          gml_budget *budget, uint64_t *found)
{
    node_cut cut;
    run_reader readers[2 * MOST_NODES];
    for (size_t i = 0; i < instance->count; i++) {
        uint32_t item = order[i];
        uint64_t size = instance->sizes[item];
        cut_item(&cut, instance, tree->leaves, item);
        size_t lists = gather(tree, &cut, readers);
        uint64_t visits = 2 * cut.node_count + cut.above_count;
        found[item] = lowest_free(readers, lists, size, &visits);
        if (gml_budget_spend(budget, visits) || found[item] + size > limit_bytes) {
            return GML_NOT_READY;
        }
        gml_status status = tree_add(tree, &cut, found[item], found[item] + size);
        if (status != GML_OK) {
            return status;
        }
    }
    return GML_OK;
}

gml_status
gml_first_fit(const gml_instance *instance, const uint32_t *order, uint64_t limit_bytes,
              gml_budget *budget, uint64_t *offsets, uint64_t *peak_bytes)
{
    run_tree tree;
    gml_status status = tree_open(&tree, instance->slots);
    uint64_t *found = calloc(instance->count ? instance->count : 1, sizeof *found);
    if (status == GML_OK && !found) {
        status = GML_NO_HOST_MEMORY;
    }
    if (status == GML_OK) {
        status = place_all(&tree, instance, order, limit_bytes, budget, found);
    }
    if (status == GML_OK) {
        memcpy(offsets, found, instance->count * sizeof *offsets);
        *peak_bytes = gml_instance_peak(instance, found);
    }
    free(found);
    tree_close(&tree);
    return status;
}
