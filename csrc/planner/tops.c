#include "planner/tops.h"

#include <stdlib.h>
#include <string.h>

static size_t count_blocks(uint32_t slots) {
    return (size_t)slots / GML_TOPS_BLOCK + 1;
}

gml_status gml_tops_open(gml_tops *tops, uint32_t slots) {
    *tops = (gml_tops){.slots = slots};
    tops->by_slot = calloc((size_t)slots + 1, sizeof *tops->by_slot);
    tops->blocks = calloc(count_blocks(slots), sizeof *tops->blocks);
    if (!tops->by_slot || !tops->blocks) {
        gml_tops_close(tops);
        return GML_NO_HOST_MEMORY;
    }
    return GML_OK;
}

void gml_tops_close(gml_tops *tops) {
    free(tops->by_slot);
    free(tops->blocks);
    *tops = (gml_tops){0};
}

void gml_tops_reset(gml_tops *tops, const uint64_t *by_slot) {
    memset(tops->blocks, 0, count_blocks(tops->slots) * sizeof *tops->blocks);
    for (uint32_t slot = 0; slot < tops->slots; slot++) {
        uint64_t top = by_slot ? by_slot[slot] : 0;
        gml_tops_block *block = &tops->blocks[slot / GML_TOPS_BLOCK];
        tops->by_slot[slot] = top;
        block->most = top > block->most ? top : block->most;
    }
}

/* pre: the range lies in one block. */
static uint64_t raise_part(gml_tops *tops, uint32_t begin, uint32_t end, uint64_t by) {
    gml_tops_block *block = &tops->blocks[begin / GML_TOPS_BLOCK];
    uint64_t most = 0;
    for (uint32_t slot = begin; slot < end; slot++) {
        uint64_t top = tops->by_slot[slot] + by;
        tops->by_slot[slot] = top;
        most = top > most ? top : most;
    }
    most += block->raised;
    block->most = most > block->most ? most : block->most;
    return block->most;
}

bool gml_tops_raise(gml_tops *tops, uint32_t begin, uint32_t end, uint64_t by, uint64_t limit) {
    bool is_above = false;
    while (begin < end) {
        uint32_t block_end = (begin / GML_TOPS_BLOCK + 1) * GML_TOPS_BLOCK;
        if (begin % GML_TOPS_BLOCK == 0 && block_end <= end) {
            gml_tops_block *block = &tops->blocks[begin / GML_TOPS_BLOCK];
            block->raised += by;
            block->most += by;
            is_above |= block->most > limit;
        } else {
            uint32_t part_end = block_end < end ? block_end : end;
            is_above |= raise_part(tops, begin, part_end, by) > limit;
        }
        begin = block_end;
    }
    return is_above;
}
