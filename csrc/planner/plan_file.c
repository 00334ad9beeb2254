/* Writing and reading plans, by one description of the format for both.
 *
 * A file may come from anywhere: announced sizes allocate nothing, no number from it is used as an
 * index here, and the plan that results has to pass gml_plan_check() like any other.
 *
 * The file is a header, then numbers, each as a varint: 7 bits a byte, the lowest first, the top
 * bit set in all but the last (LEB128). A difference in either direction is a small number: 0, -1,
 * 1, -2, ... Sizes and offsets count units of 512 bytes.
 *
 *   magic       8 bytes, "gmlplan\n"
 *   version     4 bytes
 *   zero        4 bytes
 *   checksum    8 bytes, over everything behind it (FNV-1a: any change of one byte changes it)
 *   counts      steps; events and entries of one step; lanes; the fingerprint
 *   lanes       each: stream, peak, lower bound, method
 *   entries     of the first step, since the second repeats it, each: size (difference to the entry
 *               before), start (events since the one before, less 1), life, lane
 *   offsets     step by step: 0 for none, else 1 + the difference to the last offset, or in the
 *               second step to the offset in the first
 *
 * A reader refuses every other version, so a format that changes gets a new number.
 */
#include "base/fnv.h"
#include "base/room.h"
#include "planner/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    VERSION = 4,
    HEADER_BYTES = 24, /* with the checksum, */
    CHECKSUM_AT = 16   /* which lies here */
};

/* "gmlplan\n" as a number whose lowest byte comes first. */
#define MAGIC UINT64_C(0x0a6e616c706c6d67)

#define MOST_UNITS (GML_PLAN_MOST_BYTES / GML_PLAN_UNIT)

typedef struct plan_codec {
    uint8_t *bytes;       /* written so far, or */
    const uint8_t *given; /* to be read; NULL: this writes */
    size_t count, room, at;
    const char *failure; /* the first; NULL: none. After a failure reads yield zeros, so loops need
                            not check */
} plan_codec;

/* ---- numbers --------------------------------------------------------------------------------- */

static void fail(plan_codec *codec, const char *what) {
    codec->failure = codec->failure ? codec->failure : what;
}

static void put_byte(plan_codec *codec, uint8_t byte) {
    if (!codec->failure && !gml_make_room(&codec->bytes, &codec->room, codec->count + 1, 1)) {
        fail(codec, "no host memory");
    }
    if (!codec->failure) {
        codec->bytes[codec->count++] = byte;
    }
}

static uint8_t get_byte(plan_codec *codec) {
    if (codec->at == codec->count) {
        fail(codec, "it ends too early");
    }
    return codec->failure ? 0 : codec->given[codec->at++];
}

static void put_varint(plan_codec *codec, uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
        put_byte(codec, (uint8_t)(value | 0x80));
    }
    put_byte(codec, (uint8_t)value);
}

/* Each number has one way to be written: none ends with a needless 0. */
static uint64_t get_varint(plan_codec *codec) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte = get_byte(codec);
        uint64_t bits = byte & 0x7f;
        if ((shift == 63 && bits > 1) || (shift > 0 && byte == 0)) {
            break;
        }
        value |= bits << shift;
        if (!(byte & 0x80)) {
            return codec->failure ? 0 : value;
        }
    }
    fail(codec, "a number is not written as numbers are");
    return 0;
}

/* Writes `value`, or reads one that is at most `most`; returns the value. */
static uint64_t code(plan_codec *codec, uint64_t value, uint64_t most) {
    if (!codec->given) {
        put_varint(codec, value);
        return value;
    }
    value = get_varint(codec);
    if (value > most) {
        fail(codec, "a number is too large");
    }
    return codec->failure ? 0 : value;
}

static uint64_t difference(uint64_t value, uint64_t base) {
    uint64_t change = value - base;
    return (change << 1) ^ (change >> 63 ? UINT64_MAX : 0);
}

static uint64_t add_difference(plan_codec *codec, uint64_t base, uint64_t coded, uint64_t most) {
    uint64_t value = base + ((coded >> 1) ^ (coded & 1 ? UINT64_MAX : 0));
    if (value > most) {
        fail(codec, "a number is too large");
    }
    return codec->failure ? 0 : value;
}

/* The same as code(), as the difference to `base`. */
static uint64_t code_from(plan_codec *codec, uint64_t base, uint64_t value, uint64_t most) {
    return add_difference(codec, base, code(codec, difference(value, base), UINT64_MAX), most);
}

/* How many items follow, each at least `item_bytes` long: never more than there is room for. */
static size_t code_count(plan_codec *codec, size_t count, size_t item_bytes) {
    return (size_t)code(codec, count, (codec->count - codec->at) / item_bytes);
}

/* ---- sections -----------------------------------------------------------------------------------
 *
 * Each codes `plan`; reading stores the values in `out`, which then is the same plan. */

enum { LANE_BYTES = 4, ENTRY_BYTES = 5 };

static void code_counts(plan_codec *codec, const gml_plan *plan, gml_plan *out) {
    size_t steps = code(codec, plan->steps, GML_PLAN_MOST_STEPS);
    uint64_t events = code(codec, plan->step_time[1], GML_PLAN_MOST_EVENTS);
    size_t entries = code_count(codec, plan->step_entry[1], ENTRY_BYTES);
    size_t lanes = code_count(codec, plan->lane_count, LANE_BYTES);
    uint64_t fingerprint = code(codec, plan->fingerprint, UINT64_MAX);
    if (out) {
        out->steps = (unsigned)steps;
        out->period = steps * events;
        out->entry_count = steps * entries;
        out->lane_count = lanes;
        out->fingerprint = fingerprint;
        for (size_t step = 0; step <= steps; step++) {
            out->step_time[step] = step * events;
            out->step_entry[step] = step * entries;
        }
    }
}

static void code_lanes(plan_codec *codec, const gml_plan *plan, gml_plan *out) {
    for (size_t i = 0; i < plan->lane_count; i++) {
        gml_plan_lane lane = plan->lanes[i];
        lane.stream = code(codec, lane.stream, UINT64_MAX);
        lane.peak_bytes = GML_PLAN_UNIT * code(codec, lane.peak_bytes / GML_PLAN_UNIT, MOST_UNITS);
        lane.lower_bound_bytes =
            GML_PLAN_UNIT * code(codec, lane.lower_bound_bytes / GML_PLAN_UNIT, MOST_UNITS);
        lane.method = (gml_method)code(codec, lane.method, GML_METHOD_COUNT - 1);
        if (out) {
            out->lanes[i] = lane;
        }
    }
}

static void code_entries(plan_codec *codec, const gml_plan *plan, gml_plan *out) {
    gml_plan_entry before = {.start = UINT64_MAX};
    for (size_t i = 0; i < plan->step_entry[1]; i++) {
        gml_plan_entry entry = plan->entries[i];
        uint64_t size_before = before.size_bytes / GML_PLAN_UNIT, earliest = before.start + 1;
        entry.size_bytes = GML_PLAN_UNIT * code_from(codec, size_before,
                                                     entry.size_bytes / GML_PLAN_UNIT, MOST_UNITS);
        uint64_t life = entry.end - entry.start;
        entry.start = earliest + code(codec, entry.start - earliest, GML_PLAN_MOST_EVENTS);
        entry.end = entry.start + code(codec, life, plan->period);
        entry.lane = (uint32_t)code(codec, entry.lane, UINT32_MAX);
        if (out) {
            out->entries[i] = entry;
        }
        before = entry;
    }
}

/* The second step has the entries of the first. */
static void repeat_first_step(gml_plan *plan) {
    for (size_t i = plan->step_entry[1]; i < plan->entry_count; i++) {
        plan->entries[i] = plan->entries[i - plan->step_entry[1]];
        plan->entries[i].start += plan->step_time[1];
        plan->entries[i].end += plan->step_time[1];
    }
}

static void code_offsets(plan_codec *codec, const gml_plan *plan, gml_plan *out) {
    uint64_t last = 0;
    for (size_t i = 0; i < plan->entry_count; i++) {
        bool is_first = i < plan->step_entry[1];
        uint64_t model = is_first ? 0 : plan->entries[i - plan->step_entry[1]].offset;
        uint64_t offset = plan->entries[i].offset;
        uint64_t base = is_first ? last : model == GML_NO_OFFSET ? 0 : model / GML_PLAN_UNIT;
        uint64_t coded = offset == GML_NO_OFFSET ? 0 : 1 + difference(offset / GML_PLAN_UNIT, base);
        coded = code(codec, coded, UINT64_MAX);
        last = coded ? add_difference(codec, base, coded - 1, MOST_UNITS) : last;
        if (out) {
            out->entries[i].offset = coded ? last * GML_PLAN_UNIT : GML_NO_OFFSET;
            out->placed_count += coded != 0;
        }
    }
}

static void code_sections(plan_codec *codec, const gml_plan *plan, gml_plan *out) {
    code_lanes(codec, plan, out);
    code_entries(codec, plan, out);
    if (out) {
        repeat_first_step(out);
    }
    code_offsets(codec, plan, out);
}

/* ---- files ----------------------------------------------------------------------------------- */

static uint64_t checksum(const uint8_t *bytes, size_t count) {
    uint64_t sum = GML_FNV_BEGIN;
    for (size_t i = 0; i < count; i++) {
        sum = gml_fnv_add(sum, bytes[i]);
    }
    return sum;
}

static void write_fixed(uint8_t *bytes, uint64_t value, unsigned byte_count) {
    for (unsigned i = 0; i < byte_count; i++) {
        bytes[i] = (uint8_t)(value >> (8 * i));
    }
}

static uint64_t read_fixed(const uint8_t *bytes, unsigned byte_count) {
    uint64_t value = 0;
    for (unsigned i = 0; i < byte_count; i++) {
        value |= (uint64_t)bytes[i] << (8 * i);
    }
    return value;
}

/* Writes the checksum of the rest into the header. */
static void seal(uint8_t *bytes, size_t count) {
    write_fixed(bytes + CHECKSUM_AT, checksum(bytes + HEADER_BYTES, count - HEADER_BYTES), 8);
}

gml_status gml_plan_encode(const gml_plan *plan, uint8_t **out, size_t *out_bytes) {
    plan_codec codec = {0};
    for (unsigned i = 0; i < HEADER_BYTES; i++) {
        put_byte(&codec, 0);
    }
    code_counts(&codec, plan, NULL);
    code_sections(&codec, plan, NULL);
    if (codec.failure) {
        free(codec.bytes);
        return GML_NO_HOST_MEMORY;
    }
    write_fixed(codec.bytes, MAGIC, 8);
    write_fixed(codec.bytes + 8, VERSION, 4);
    seal(codec.bytes, codec.count);
    *out = codec.bytes;
    *out_bytes = codec.count;
    return GML_OK;
}

static gml_status check_header(const uint8_t *bytes, size_t count, char *reason,
                               size_t reason_bytes) {
    if (count > GML_PLAN_MOST_ENTRIES) {
        return gml_refuse(GML_CORRUPT, reason, reason_bytes, "this is too large for a plan");
    }
    if (count < HEADER_BYTES || read_fixed(bytes, 8) != MAGIC) {
        return gml_refuse(GML_CORRUPT, reason, reason_bytes, "this is not a plan");
    }
    uint64_t version = read_fixed(bytes + 8, 4);
    if (version != VERSION) {
        return gml_refuse(GML_UNSUPPORTED, reason, reason_bytes,
                          "a plan of version %" PRIu64 "; this gmlake reads version %d: make "
                          "the plan again",
                          version, (int)VERSION);
    }
    uint64_t sum = checksum(bytes + HEADER_BYTES, count - HEADER_BYTES);
    if (read_fixed(bytes + 12, 4) || read_fixed(bytes + CHECKSUM_AT, 8) != sum) {
        return gml_refuse(GML_CORRUPT, reason, reason_bytes,
                          "the plan is damaged: its checksum does not agree");
    }
    return GML_OK;
}

static bool make_room(gml_plan *plan) {
    plan->entries = gml_plan_array(plan->entry_count, sizeof *plan->entries);
    plan->lanes = gml_plan_array(plan->lane_count, sizeof *plan->lanes);
    return plan->entries && plan->lanes;
}

static gml_status decode(plan_codec *codec, gml_plan *plan, char *reason, size_t reason_bytes) {
    code_counts(codec, plan, plan);
    if (!codec->failure) {
        if (!make_room(plan)) {
            return gml_refuse(GML_NO_HOST_MEMORY, reason, reason_bytes, "no host memory");
        }
        code_sections(codec, plan, plan);
    }
    if (codec->at != codec->count) {
        fail(codec, "something follows its end");
    }
    return codec->failure
               ? gml_refuse(GML_CORRUPT, reason, reason_bytes,
                            "the plan is damaged before byte %zu: %s", codec->at, codec->failure)
               : gml_plan_check(plan, reason, reason_bytes);
}

gml_status gml_plan_decode(const uint8_t *bytes, size_t byte_count, gml_plan **out, char *reason,
                           size_t reason_bytes) {
    plan_codec codec = {.given = bytes, .count = byte_count, .at = HEADER_BYTES};
    gml_status status = check_header(bytes, byte_count, reason, reason_bytes);
    if (status != GML_OK) {
        return status;
    }
    gml_plan *plan = gml_plan_new();
    status = plan ? decode(&codec, plan, reason, reason_bytes)
                  : gml_refuse(GML_NO_HOST_MEMORY, reason, reason_bytes, "no host memory");
    if (status != GML_OK) {
        gml_plan_free(plan);
        return status;
    }
    *out = plan;
    return GML_OK;
}
