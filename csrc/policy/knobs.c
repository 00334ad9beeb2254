/* The table of settings. */
#include "policy/knobs.h"

#include "base/reason.h"
#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define GIB (MIB * KIB)

typedef struct knob_entry {
    gml_knob_info info;
    size_t offset; /* of the field in gml_knobs */
    size_t count;  /* of consecutive fields that the name sets */
} knob_entry;

#define FIELD(name) offsetof(gml_knobs, name), 1

/* The end of an entry's info. */
#define NUMBER(value, least, most) value, least, most, NULL, false
#define SIZE(value, least, most) value, least, most, NULL, true

static const char ours[] = "stitch";
static const char torchs[] = "caching, expandable";

static const knob_entry knobs_table[] = {
    {{"frag_limit", "smallest request that may be stitched, in bytes; 0: the policy's own default",
      ours, SIZE(0, 0, UINT64_C(1) << 48)},
     FIELD(frag_limit)},
    {{"chunk_size",
      "size of all physical chunks in bytes, a multiple of the device granularity; 0: from 2 MiB "
      "up, by the memory held",
      ours, SIZE(0, 0, 64 * GIB)},
     FIELD(chunk_size)},
    {{"optimize_for", "optimize for time, for a balance of both, or for memory", ours, 1, 0, 2,
      "time balanced memory", false},
     FIELD(optimize_for)},
    {{"host",
      "memory of the host, in bytes, that may be mapped for the device before a request is "
      "refused, for blocks of no graph or region; 0: none",
      ours, SIZE(0, 0, UINT64_C(1) << 48)},
     FIELD(host)},
    {{"arena",
      "serve everything from one up-front allocation of this many bytes (disables stitching); 0: "
      "off, or the capacity if the device has no virtual memory management",
      ours, SIZE(0, 0, UINT64_C(1) << 48)},
     FIELD(arena)},
    {{"max_views", "maximum number of stitched views kept mapped", ours,
      NUMBER(16384, 1, UINT32_MAX)},
     FIELD(max_views)},
    {{"reuse_allow_opportunistic",
      "1: a stream may reuse memory that another freed once all work before the free is complete; "
      "0: off",
      ours, NUMBER(1, 0, 1)},
     FIELD(reuse_allow_opportunistic)},
    {{"reuse_allow_internal_dependencies",
      "1: a stream may be made to wait for the others where it needs memory that one freed; 0: off",
      ours, NUMBER(1, 0, 1)},
     FIELD(reuse_allow_internal_dependencies)},
    {{"borrow_waits", "maximum waits of one stream for the others, per 1024 requests that it makes",
      ours, NUMBER(256, 0, 1024)},
     FIELD(borrow_waits)},
    {{"max_split_size", "blocks of this many bytes or more are not split; the maximum: no limit",
      torchs, SIZE(UINT64_MAX, 20 * MIB, UINT64_MAX)},
     FIELD(max_split_size)},
    {{"max_non_split_rounding", "maximum unused bytes of a block that is not split", torchs,
      SIZE(20 * MIB, 0, UINT64_MAX)},
     FIELD(max_non_split_rounding)},
    {{"large_segment_size", "segment size in bytes for requests between 1 and 10 MiB", torchs,
      SIZE(20 * MIB, 2 * MIB, 64 * GIB)},
     FIELD(large_segment_size)},
    {{"memory_limit",
      "limit of set_per_process_memory_fraction in bytes; expandable segments may exceed it by "
      "less than a granule; 0: no limit",
      torchs, SIZE(0, 0, UINT64_C(1) << 48)},
     FIELD(memory_limit)},
    {{"garbage_collection_percent",
      "percentage of the memory limit, or of the capacity, above which old cached blocks are "
      "freed; 0: off",
      torchs, NUMBER(0, 0, 100)},
     FIELD(garbage_collection_percent)},
    {{"oldest_segment_first",
      "1: among free blocks of one size, use the one in the oldest segment, as in PyTorch 2.14; 0: "
      "the one at the lowest address",
      torchs, NUMBER(0, 0, 1)},
     FIELD(oldest_segment_first)},
    {{"roundup_power2_divisions",
      "round sizes up to this many divisions of a power of two; 0: off; "
      "roundup_power2_divisions.256 sets it for sizes from 256 MiB to below 512 MiB only",
      torchs, NUMBER(0, 0, 1024)},
     offsetof(gml_knobs, roundup_power2_divisions),
     GML_ROUNDUP_INTERVALS},
};

enum { KNOB_COUNT = sizeof knobs_table / sizeof *knobs_table };

gml_status gml_knob_describe(size_t index, gml_knob_info *out) {
    if (index >= KNOB_COUNT) {
        return GML_INVALID_ARGUMENT;
    }
    *out = knobs_table[index].info;
    return GML_OK;
}

static uint64_t *field_of(gml_knobs *knobs, const knob_entry *knob) {
    return (uint64_t *)(void *)((char *)knobs + knob->offset);
}

static void set_all(gml_knobs *knobs, const knob_entry *knob, uint64_t value) {
    for (size_t i = 0; i < knob->count; i++) {
        field_of(knobs, knob)[i] = value;
    }
}

void gml_knobs_init(gml_knobs *knobs) {
    *knobs = (gml_knobs){0};
    for (size_t i = 0; i < KNOB_COUNT; i++) {
        set_all(knobs, &knobs_table[i], knobs_table[i].info.default_value);
    }
}

/* The knob whose name ends where `name` does, or at its dot; NULL: none. */
static const knob_entry *find_by_name(const char *name) {
    size_t length = strcspn(name, ".");
    for (size_t i = 0; i < KNOB_COUNT; i++) {
        const char *known = knobs_table[i].info.name;
        if (strlen(known) == length && strncmp(known, name, length) == 0) {
            return &knobs_table[i];
        }
    }
    return NULL;
}

/* The knob a setting names, "base" or "base.power"; *interval is that power's place, or SIZE_MAX
 * for all. NULL: no such knob. */
static const knob_entry *find_knob(const char *name, size_t *interval) {
    const char *dot = strchr(name, '.');
    const knob_entry *knob = find_by_name(name);
    *interval = SIZE_MAX;
    if (!dot || !knob) {
        return knob;
    }
    for (size_t power = 0; power < knob->count && knob->count > 1; power++) {
        char text[24];
        snprintf(text, sizeof text, "%" PRIu64, UINT64_C(1) << power);
        if (strcmp(text, dot + 1) == 0) {
            *interval = power;
            return knob;
        }
    }
    return NULL;
}

static gml_status refuse_name(const char *name, char *reason, size_t reason_bytes) {
    const knob_entry *knob = find_by_name(name);
    if (knob && knob->count > 1) {
        return gml_refuse(GML_INVALID_ARGUMENT, reason, reason_bytes,
                          "\"%.60s\" names no interval: behind the dot is where it begins, in MiB, "
                          "a power of two up to %" PRIu64,
                          name, UINT64_C(1) << (knob->count - 1));
    }
    int used = snprintf(reason, reason_bytes, "no setting is called \"%.60s\"; there are:", name);
    for (size_t i = 0; i < KNOB_COUNT && used > 0 && (size_t)used < reason_bytes; i++) {
        used +=
            snprintf(reason + used, reason_bytes - (size_t)used, " %s", knobs_table[i].info.name);
    }
    return GML_INVALID_ARGUMENT;
}

static gml_size_text value_text(const gml_knob_info *knob, uint64_t value) {
    gml_size_text result;
    if (!knob->is_size) {
        (void)snprintf(result.text, sizeof result.text, "%" PRIu64, value);
    } else if (value == UINT64_MAX) {
        (void)snprintf(result.text, sizeof result.text, "no limit");
    } else {
        result = gml_exact_size_of(value);
    }
    return result;
}

static gml_status refuse_value(const gml_knob_info *knob, const gml_setting *setting, char *reason,
                               size_t reason_bytes) {
    return gml_refuse(GML_INVALID_ARGUMENT, reason, reason_bytes,
                      "%s is %s, but must be between %s and %s%s%s", setting->name,
                      value_text(knob, setting->value).text, value_text(knob, knob->minimum).text,
                      value_text(knob, knob->maximum).text, knob->words ? ", for: " : "",
                      knob->words ? knob->words : "");
}

static gml_status apply(gml_knobs *knobs, const gml_setting *setting, char *reason,
                        size_t reason_bytes) {
    size_t interval;
    const knob_entry *knob = find_knob(setting->name, &interval);
    if (!knob) {
        return refuse_name(setting->name, reason, reason_bytes);
    }
    if (setting->value < knob->info.minimum || setting->value > knob->info.maximum) {
        return refuse_value(&knob->info, setting, reason, reason_bytes);
    }
    if (interval == SIZE_MAX) {
        set_all(knobs, knob, setting->value);
    } else {
        field_of(knobs, knob)[interval] = setting->value;
    }
    return GML_OK;
}

gml_status gml_knobs_apply(gml_knobs *knobs, const gml_setting *settings, size_t count,
                           char *reason, size_t reason_bytes) {
    gml_status status = GML_OK;
    for (size_t i = 0; i < count && status == GML_OK; i++) {
        status = apply(knobs, &settings[i], reason, reason_bytes);
    }
    return status;
}

gml_status gml_knobs_check(const gml_setting *settings, size_t count, uint64_t granularity_bytes,
                           char *reason, size_t reason_bytes) {
    gml_knobs knobs;
    gml_knobs_init(&knobs);
    gml_status status = gml_knobs_apply(&knobs, settings, count, reason, reason_bytes);
    if (status == GML_OK && knobs.chunk_size % granularity_bytes) {
        return gml_refuse(GML_INVALID_ARGUMENT, reason, reason_bytes,
                          "chunk_size is %s, but must be a multiple of the device's granularity of "
                          "%s",
                          gml_exact_size_of(knobs.chunk_size).text,
                          gml_exact_size_of(granularity_bytes).text);
    }
    return status;
}
