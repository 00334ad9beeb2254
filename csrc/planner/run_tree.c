/* Lists of runs, and the tree of them: what an item meets, and the lowest gap that it fits into. */
#include "planner/run_tree.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_BLOCK_RUNS = 1 << 8, MOST_BLOCK_RUNS = 1 << 15 };

/* Memory for lists, freed all at once: a growing list leaves behind no more than its new size. */
typedef struct gml_run_block {
    struct gml_run_block *next;
    size_t used, room;
    gml_occupied runs[];
} run_block;

/* ---- lists of runs --------------------------------------------------------------------------- */

/* Twice the room. GML_NO_HOST_MEMORY. */
static gml_status list_grow(gml_run_tree *tree, gml_run_list *list) {
    size_t room = list->room ? 2 * (size_t)list->room : 1;
    run_block *block = tree->blocks;
    if (!block || block->room - block->used < room) {
        size_t block_room = block ? 2 * block->room : LEAST_BLOCK_RUNS;
        block_room = block_room < MOST_BLOCK_RUNS ? block_room : MOST_BLOCK_RUNS;
        block_room = block_room > room ? block_room : room;
        block = malloc(sizeof *block + block_room * sizeof *block->runs);
        if (!block || room > UINT32_MAX) {
            free(block);
            return GML_NO_HOST_MEMORY;
        }
        *block = (run_block){.next = tree->blocks, .room = block_room};
        tree->blocks = block;
    }
    gml_occupied *runs = &block->runs[block->used];
    block->used += room;
    if (list->count) {
        memcpy(runs, list->runs, list->count * sizeof *runs);
    }
    *list = (gml_run_list){runs, list->count, (uint32_t)room};
    return GML_OK;
}

/* The first run that ends at `low` or above. */
static uint32_t first_reaching(const gml_occupied *runs, uint32_t count, uint64_t low) {
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

static gml_status insert_at(gml_run_tree *tree, gml_run_list *list, uint32_t at, uint64_t low,
                            uint64_t high) {
    if (list->count == list->room) {
        gml_status status = list_grow(tree, list);
        if (status != GML_OK) {
            return status;
        }
    }
    gml_occupied *runs = list->runs;
    memmove(&runs[at + 1], &runs[at], (list->count - at) * sizeof *runs);
    runs[at] = (gml_occupied){low, high};
    list->count++;
    return GML_OK;
}

/* Extends the run at `at` over [low, high) and over all others that it then touches. */
static void merge_at(gml_run_list *list, uint32_t at, uint64_t low, uint64_t high) {
    gml_occupied *runs = list->runs, *grown = &runs[at];
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
static gml_status add_run(gml_run_tree *tree, gml_run_list *list, uint64_t low, uint64_t high) {
    uint32_t at = first_reaching(list->runs, list->count, low);
    if (at >= list->count || list->runs[at].low > high) {
        return insert_at(tree, list, at, low, high);
    }
    merge_at(list, at, low, high);
    return GML_OK;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

gml_status gml_run_tree_open(gml_run_tree *tree, uint32_t slots) {
    *tree = (gml_run_tree){.slots = slots, .leaves = 1};
    while (tree->leaves < slots) {
        tree->leaves *= 2;
    }
    tree->any = calloc((size_t)2 * tree->leaves, sizeof *tree->any);
    tree->cover = calloc(tree->leaves, sizeof *tree->cover);
    return tree->any && tree->cover ? GML_OK : GML_NO_HOST_MEMORY;
}

void gml_run_tree_close(gml_run_tree *tree) {
    for (run_block *block = tree->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    free(tree->any);
    free(tree->cover);
}

/* Adds the nodes of slots [begin, end). */
static void cut_range(gml_run_cut *cut, uint32_t leaves, uint32_t begin, uint32_t end) {
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

void gml_run_tree_cut(const gml_run_tree *tree, uint32_t begin, uint32_t end, gml_run_cut *cut) {
    cut->node_count = 0;
    cut->above_count = 0;
    if (begin == end) {
        cut_range(cut, tree->leaves, 0, tree->slots);
    } else if (begin < end) {
        cut_range(cut, tree->leaves, begin, end);
    } else {
        cut_range(cut, tree->leaves, begin, tree->slots);
        cut_range(cut, tree->leaves, 0, end);
    }
}

gml_status gml_run_tree_add(gml_run_tree *tree, const gml_run_cut *cut, uint64_t low,
                            uint64_t high) {
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

static size_t add_reader(gml_run_list list, gml_run_reader *readers, size_t count) {
    if (!list.count) {
        return count;
    }
    readers[count] = (gml_run_reader){list.runs, list.count, 0};
    return count + 1;
}

size_t gml_run_tree_gather(const gml_run_tree *tree, const gml_run_cut *cut,
                           gml_run_reader *readers) {
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
static void skip_below(gml_run_reader *reader, uint64_t address) {
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
static uint64_t next_free(gml_run_reader *reader, uint64_t address, uint64_t size) {
    if (reader->next < reader->count && reader->runs[reader->next].high <= address) {
        skip_below(reader, address);
    }
    while (reader->next < reader->count && reader->runs[reader->next].low < address + size) {
        address = reader->runs[reader->next++].high;
    }
    return address;
}

uint64_t gml_run_lowest_free(gml_run_reader *readers, size_t count, uint64_t size,
                             uint64_t *visits) {
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
