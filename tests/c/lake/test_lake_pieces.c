/* What a walk tells of views: kinds, and where their bytes lie in the base range. */
#include "support/check.h"
#include "support/policies.h"
#include "support/trainer.h"

#include <string.h>

enum { ROOM = 256, STAMP_BYTES = 4096 };

typedef struct atlas {
    gml_span_info spans[ROOM];
    gml_piece_info pieces[ROOM];
    size_t span_count, piece_count;
    gml_address next; /* where the next piece of the span named last must begin */
} atlas;

/* The pieces of the span named last tile it, if it has any. */
static void close_span(const atlas *seen) {
    if (seen->span_count) {
        const gml_span_info *span = &seen->spans[seen->span_count - 1];
        CHECK_EQ(seen->next - span->address, span->is_view ? span->size_bytes : 0);
    }
}

static void see_span(void *context, const gml_span_info *span) {
    atlas *seen = context;
    close_span(seen);
    CHECK(seen->span_count < ROOM);
    if (seen->span_count >= ROOM) {
        return;
    }
    bool has_base = span->kind == GML_SPAN_VIEW;
    CHECK_EQ(span->is_view, has_base);
    seen->spans[seen->span_count++] = *span;
    seen->next = span->address;
}

static void see_range(void *context, const gml_range_info *range) {
    (void)context;
    (void)range;
}

static void see_piece(void *context, const gml_piece_info *piece) {
    atlas *seen = context;
    CHECK(seen->piece_count < ROOM && piece->size_bytes > 0);
    CHECK_EQ(piece->address, seen->next);
    if (seen->piece_count >= ROOM) {
        return;
    }
    seen->pieces[seen->piece_count++] = *piece;
    seen->next += piece->size_bytes;
}

static bool is_at_base(const atlas *seen, const gml_piece_info *piece) {
    for (size_t i = 0; i < seen->span_count; i++) {
        const gml_span_info *span = &seen->spans[i];
        if (span->kind == GML_SPAN_BASE && piece->base_address >= span->address &&
            piece->base_address + piece->size_bytes <= span->address + span->size_bytes) {
            return true;
        }
    }
    return false;
}

static atlas atlas_of(gml_lake *lake) {
    atlas seen = {0};
    CHECK_OK(gml_lake_visit(lake, &(gml_visitor){&seen, see_span, see_range, see_piece, NULL}));
    close_span(&seen);
    for (size_t i = 0; i < seen.piece_count; i++) {
        CHECK(is_at_base(&seen, &seen.pieces[i]));
    }
    return seen;
}

static size_t count_of(const atlas *seen, gml_span_kind kind) {
    size_t count = 0;
    for (size_t i = 0; i < seen->span_count; i++) {
        count += seen->spans[i].kind == kind;
    }
    return count;
}

/* Where the byte at `address` lies in the base range; the address itself where it lies nowhere
 * else. */
static gml_address base_of(const atlas *seen, gml_address address) {
    for (size_t i = 0; i < seen->piece_count; i++) {
        const gml_piece_info *piece = &seen->pieces[i];
        if (address >= piece->address && address - piece->address < piece->size_bytes) {
            return piece->base_address + (address - piece->address);
        }
    }
    return address;
}

static unsigned char *bytes_of(gml_lake *lake, gml_address address) {
    void *bytes;
    CHECK_OK(gml_lake_bytes(lake, address, &bytes));
    return bytes;
}

/* Writes into a block in the base range, here and there, at which address that is. */
static void stamp(gml_lake *lake, gml_address address, uint64_t size_bytes) {
    unsigned char *bytes = bytes_of(lake, address);
    for (uint64_t at = 0; at < size_bytes; at += STAMP_BYTES) {
        gml_address here = address + at;
        memcpy(bytes + at, &here, sizeof here);
    }
}

/* The bytes of a block are those that were stamped where the walk says that they lie. */
static void check_stamps(gml_lake *lake, const atlas *seen, gml_address address,
                         uint64_t size_bytes) {
    const unsigned char *bytes = bytes_of(lake, address);
    uint64_t wrong = 0;
    for (uint64_t at = 0; at < size_bytes; at += STAMP_BYTES) {
        gml_address stamped;
        memcpy(&stamped, bytes + at, sizeof stamped);
        wrong += stamped != base_of(seen, address + at);
    }
    CHECK_EQ(wrong, 0);
}

/* ---- views ----------------------------------------------------------------------------------- */

/* Leaves every other one of eight stamped blocks live, and gives a block that must be stitched from
 * the rest. */
static gml_address stitch(gml_lake *lake, gml_address *kept) {
    gml_address blocks[8];
    for (size_t i = 0; i < 8; i++) {
        blocks[i] = trainer_take(lake, 4 * MIB, 0);
        stamp(lake, blocks[i], 4 * MIB);
    }
    for (size_t i = 0; i < 8; i += 2) {
        CHECK_OK(gml_lake_free(lake, blocks[i]));
        kept[i / 2] = blocks[i + 1];
    }
    return trainer_take(lake, 16 * MIB, 0);
}

/* The paper's policy, which stitches blocks of 4 MiB where it is told to. */
static gml_lake *open_paper(void) {
    const gml_setting small = {"frag_limit", 2 * MIB};
    const gml_lake_config config = {.driver = "host",
                                    .policy = "gmlake-paper",
                                    .capacity_bytes = 32 * MIB,
                                    .settings = &small,
                                    .setting_count = 1};
    gml_lake *lake = NULL;
    CHECK_OK(gml_lake_open(&config, &lake, NULL, 0));
    return lake;
}

static void see_a_view(gml_lake *lake) {
    gml_address kept[4];
    gml_address address = stitch(lake, kept);
    atlas seen = atlas_of(lake);
    CHECK_EQ(count_of(&seen, GML_SPAN_VIEW), 1);
    CHECK_EQ(count_of(&seen, GML_SPAN_SEGMENT), 0);
    CHECK_EQ(seen.piece_count, 4);
    check_stamps(lake, &seen, address, 16 * MIB);

    /* It is mapped where it was while it serves nobody. */
    CHECK_OK(gml_lake_free(lake, address));
    atlas idle = atlas_of(lake);
    CHECK_EQ(idle.piece_count, 4);
    CHECK(memcmp(idle.pieces, seen.pieces, 4 * sizeof *seen.pieces) == 0);
    for (size_t i = 0; i < 4; i++) {
        CHECK_OK(gml_lake_free(lake, kept[i]));
    }
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_EQ(atlas_of(lake).span_count, 0);
    trainer_close(lake);
}

TEST(a_view_tells_where_its_bytes_lie) {
    for (size_t i = 0; lending_policy(i); i++) {
        see_a_view(trainer_open_lake("host", lending_policy(i), 32 * MIB));
    }
    see_a_view(open_paper());
}

TEST(policies_without_views_have_segments) {
    static const char *const policies[] = {"caching", "expandable"};
    for (size_t i = 0; i < 2; i++) {
        gml_lake *lake = trainer_open_lake("sim", policies[i], 0);
        gml_address large = trainer_take(lake, 3 * MIB, 0);
        gml_address small = trainer_take(lake, 3, 0);
        atlas seen = atlas_of(lake);
        CHECK_EQ(count_of(&seen, GML_SPAN_SEGMENT), seen.span_count);
        CHECK_EQ(seen.span_count, 2);
        CHECK_EQ(seen.piece_count, 0);
        CHECK_OK(gml_lake_free(lake, large));
        CHECK_OK(gml_lake_free(lake, small));
        trainer_close(lake);
    }
}

/* ---- steps that repeat ----------------------------------------------------------------------- */

enum { STEP_BLOCKS = 5 };

static void take_step(gml_lake *lake, gml_address *addresses) {
    for (size_t i = 0; i < STEP_BLOCKS; i++) {
        addresses[i] = trainer_take(lake, 4 * MIB, 0);
    }
}

static void give_step(gml_lake *lake, const gml_address *addresses) {
    for (size_t i = 0; i < STEP_BLOCKS; i++) {
        CHECK_OK(gml_lake_free(lake, addresses[i]));
    }
}

TEST(a_step_that_repeats_tells_where_its_bytes_lie) {
    if (!policy_with_steps()) {
        return;
    }
    gml_lake *lake = trainer_open_lake("host", policy_with_steps(), 64 * MIB);
    gml_address addresses[STEP_BLOCKS];
    for (int step = 0; step < 3; step++) {
        CHECK_OK(gml_lake_mark(lake));
        take_step(lake, addresses);
        give_step(lake, addresses);
    }
    CHECK_OK(gml_lake_mark(lake));
    take_step(lake, addresses);
    CHECK_EQ(trainer_state(lake, addresses[0]), GML_STATE_PLAN);
    for (size_t i = 0; i < STEP_BLOCKS; i++) {
        stamp(lake, addresses[i], 4 * MIB);
    }
    atlas seen = atlas_of(lake);
    for (size_t i = 0; i < STEP_BLOCKS; i++) {
        check_stamps(lake, &seen, addresses[i], 4 * MIB);
    }
    give_step(lake, addresses);
    trainer_close(lake);
}

/* ---- callers without an interest ------------------------------------------------------------- */

TEST(pieces_may_be_left_out) {
    gml_lake *lake = trainer_open_lake("host", "stitch", 32 * MIB);
    gml_address kept[4];
    gml_address address = stitch(lake, kept);
    atlas seen = {0};
    CHECK_OK(gml_lake_visit(lake, &(gml_visitor){&seen, see_span, see_range, NULL, NULL}));
    CHECK_EQ(seen.piece_count, 0);
    CHECK_OK(gml_lake_free(lake, address));
    CHECK_OK(gml_lake_close(lake));
}

TEST(every_kind_has_a_name) {
    for (int kind = 0; kind < GML_SPAN_KIND_COUNT; kind++) {
        CHECK(strcmp(gml_span_kind_name((gml_span_kind)kind), "unknown kind") != 0);
    }
    CHECK(strcmp(gml_span_kind_name(GML_SPAN_KIND_COUNT), "unknown kind") == 0);
}
