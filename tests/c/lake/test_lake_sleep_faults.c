/* Driver calls fail one, two and three at a time while a lake sleeps, wakes and is used between:
 * each block keeps its content and its address, or the call says so by failing. */
#include "gmlake_elastic.h"
#include "gmlake_sleep.h"
#include "support/breaking.h"
#include "support/check.h"

#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define KIB (UINT64_C(1) << 10)

/* Of the calls that fail in turn. One thread makes them all, so the sanitizer that looks for races,
 * under which they take ten times as long, is shown some. */
enum { BLOCKS = 8 };

static const uint64_t NEVER[BREAKING_MOST];

/* A lake and what it should hold. */
typedef struct bed {
    gml_lake *lake;
    gml_backup backup;
    gml_address blocks[BLOCKS]; /* 0: freed */
    uint64_t sizes[BLOCKS];
    gml_address buffer;
    uint64_t buffer_bytes;  /* that it has */
    uint64_t written_bytes; /* of them: the rest holds anything */
    unsigned version;       /* of all contents */
    bool is_known;          /* they hold it; false: anything, since nothing was saved */
} bed;

static unsigned char byte_of(const bed *of, size_t block, uint64_t at) {
    return (unsigned char)(of->version * 89 + block * 37 + at / BREAKING_STRIDE_BYTES % 251 + 1);
}

/* Block BLOCKS: the elastic buffer. NULL: it is none. */
static unsigned char *bytes_of(const bed *of, size_t block, uint64_t *size_bytes) {
    void *bytes = NULL;
    if (block == BLOCKS) {
        *size_bytes = of->written_bytes;
        if (of->buffer_bytes) {
            CHECK_OK(gml_lake_elastic_bytes(of->lake, of->buffer, &bytes));
        }
    } else if (of->blocks[block]) {
        *size_bytes = of->sizes[block];
        CHECK_OK(gml_lake_bytes(of->lake, of->blocks[block], &bytes));
    }
    return bytes;
}

/* Other contents than ever before. */
static void write_all(bed *of) {
    of->version++;
    of->written_bytes = of->buffer_bytes;
    for (size_t i = 0; i <= BLOCKS; i++) {
        uint64_t size_bytes = 0;
        unsigned char *bytes = bytes_of(of, i, &size_bytes);
        for (uint64_t at = 0; bytes && at < size_bytes; at += BREAKING_STRIDE_BYTES) {
            bytes[at] = byte_of(of, i, at);
        }
    }
    of->is_known = true;
}

static bool check_all_bytes(const bed *of) {
    uint64_t wrong = 0;
    for (size_t i = 0; i <= BLOCKS; i++) {
        uint64_t size_bytes = 0;
        const unsigned char *bytes = bytes_of(of, i, &size_bytes);
        for (uint64_t at = 0; bytes && of->is_known && at < size_bytes;
             at += BREAKING_STRIDE_BYTES) {
            wrong += bytes[at] != byte_of(of, i, at);
        }
    }
    return CHECK_EQ(wrong, 0) && CHECK_EQ(breaking_faults(), 0) &&
           CHECK_OK(gml_lake_check(of->lake));
}

static uint64_t chunks(uint64_t size_bytes) {
    return (size_bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

static void resize(bed *of, uint64_t size_bytes) {
    uint64_t memory_bytes = of->buffer_bytes;
    gml_elastic_info info = {0};
    gml_status status = gml_lake_resize_elastic(of->lake, of->buffer, size_bytes, 0, &memory_bytes);
    CHECK(status == GML_OK || size_bytes > of->buffer_bytes);
    CHECK_OK(gml_lake_elastic(of->lake, of->buffer, &info));
    CHECK_EQ(info.memory_bytes, status == GML_OK ? chunks(size_bytes) : of->buffer_bytes);
    CHECK_EQ(info.memory_bytes, memory_bytes);
    of->buffer_bytes = memory_bytes;
    if (of->written_bytes > memory_bytes) {
        of->written_bytes = memory_bytes;
    }
}

/* Blocks of which some share a chunk, some have several, and one is stitched; and a buffer. */
static void make_bed(bed *of) {
    static const uint64_t sizes[BLOCKS] = {1000,     4 * MIB, 2 * MIB,       4 * MIB,
                                           90 * KIB, 300000,  2 * MIB + 512, 6 * MIB};
    const gml_setting tight = {"optimize_for", 2}; /* so that it stitches early */
    const gml_lake_config config = {.driver = "host",
                                    .policy = "stitch",
                                    .capacity_bytes = 64 * MIB,
                                    .settings = &tight,
                                    .setting_count = 1,
                                    .hooks = &breaking_hooks,
                                    .can_sleep = true};
    char reason[240] = "";
    gml_stats stats = {0};
    CHECK_OK(gml_lake_open(&config, &of->lake, reason, sizeof reason));
    for (size_t i = 0; i < BLOCKS; i++) {
        of->sizes[i] = sizes[i];
        for (size_t j = 1; j <= 3 && i == BLOCKS - 1; j += 2) { /* two holes */
            CHECK_OK(gml_lake_free(of->lake, of->blocks[j]));
            of->blocks[j] = 0;
        }
        CHECK_OK(gml_lake_allocate(of->lake, sizes[i], 0, &of->blocks[i]));
    }
    CHECK_OK(gml_lake_stats(of->lake, &stats));
    CHECK(stats.states[GML_STATE_STITCH] > 0);
    CHECK_OK(gml_lake_open_elastic(of->lake, 12 * MIB, 0, &of->buffer));
    resize(of, 4 * MIB);
    write_all(of);
}

static void end_bed(bed *of) {
    breaking_begin(NEVER);
    CHECK_OK(gml_lake_close(of->lake));
}

/* Blocks that nobody had before can be used. */
static void use_others(const bed *of) {
    gml_address others[4] = {0};
    void *bytes = NULL;
    for (size_t i = 0; i < 4; i++) {
        uint64_t size_bytes = (2 + i) * MIB;
        if (gml_lake_allocate(of->lake, size_bytes, 0, &others[i]) == GML_OK &&
            CHECK_OK(gml_lake_bytes(of->lake, others[i], &bytes))) {
            ((unsigned char *)bytes)[0] = 1;
            ((unsigned char *)bytes)[size_bytes - 1] = 1;
        }
    }
    for (size_t i = 0; i < 4; i++) {
        CHECK_OK(gml_lake_free(of->lake, others[i]));
    }
}

/* Sleeps; whether it does. A sleep that fails leaves it awake and whole, or asleep and says so. */
static bool sleep_once(bed *of) {
    gml_sleep_report report = {0};
    gml_status status = gml_lake_sleep(of->lake, of->backup, &report);
    bool is_asleep = gml_lake_is_asleep(of->lake);
    if (status == GML_OK) {
        CHECK(is_asleep);
        of->is_known &= of->backup != GML_BACKUP_NONE;
    } else if (is_asleep) {
        char reason[240] = "";
        gml_lake_reason(of->lake, reason, sizeof reason);
        CHECK(strstr(reason, "so it is asleep, with ") != NULL);
        CHECK(strstr(reason, "refused as call") != NULL);
    } else {
        check_all_bytes(of);
    }
    return is_asleep;
}

/* Wakes, in as many calls as it takes. */
static bool wake_at_last(bed *of) {
    gml_sleep_report report = {0};
    gml_address none = 0;
    for (int i = 0; i <= BREAKING_MOST; i++) {
        CHECK_STATUS(gml_lake_allocate(of->lake, 1000, 0, &none), GML_UNSUPPORTED);
        if (gml_lake_wake(of->lake, &report) == GML_OK) {
            return !gml_lake_is_asleep(of->lake) && check_all_bytes(of);
        }
        CHECK(gml_lake_is_asleep(of->lake));
    }
    return CHECK(false);
}

/* What comes between two wakes: a sleep, frees and trims while it lasts, and growth afterwards. */
static bool live_once(bed *of) {
    write_all(of);
    size_t freed = of->version % 2 ? 5 : BLOCKS - 1; /* one place, or several in a view */
    bool is_asleep = sleep_once(of);
    if (!is_asleep) {
        write_all(of);
        is_asleep = sleep_once(of);
    }
    if (is_asleep) {
        resize(of, 2 * MIB);
        CHECK_OK(gml_lake_free(of->lake, of->blocks[freed]));
        of->blocks[freed] = 0;
        (void)gml_lake_trim(of->lake, NULL);
        wake_at_last(of);
    }
    use_others(of);
    resize(of, 4 * MIB);
    bool is_well = check_all_bytes(of);
    /* As it was, for the next time. */
    breaking_begin(NEVER);
    if (gml_lake_is_asleep(of->lake)) {
        return is_well && wake_at_last(of);
    }
    if (!of->blocks[freed]) {
        CHECK_OK(gml_lake_allocate(of->lake, of->sizes[freed], 0, &of->blocks[freed]));
    }
    resize(of, 4 * MIB);
    return is_well;
}

/* One program with these calls failing; false at the first that goes wrong. */
static bool run_with(bed *of, uint64_t first, uint64_t second, uint64_t third) {
    const uint64_t numbers[BREAKING_MOST] = {first, second, third};
    int failures = check_failures();
    breaking_begin(numbers);
    (void)live_once(of);
    bool is_well = check_failures() == failures;
    if (!is_well) {
        fprintf(stderr, "with calls %" PRIu64 ", %" PRIu64 ", %" PRIu64 " failing, backup %d\n",
                first, second, third, (int)of->backup);
    }
    return is_well;
}

static void fail_together(gml_backup backup) {
    static const uint64_t gaps[] = {1, 2, 3, 5, 8, 13, 21};
    enum { GAPS = sizeof gaps / sizeof *gaps };
    bed of = {.backup = backup};
    make_bed(&of);
    CHECK(run_with(&of, 0, 0, 0));
    breaking_begin(NEVER);
    live_once(&of);
    breaking_begin(NEVER);
    write_all(&of);
    CHECK(sleep_once(&of));
    CHECK(wake_at_last(&of));
    uint64_t made = breaking_made() * 3 / 2; /* with those of undoing */
    bool is_well = true;
    for (uint64_t call = 1; call <= made && is_well; call++) {
        uint64_t gap = gaps[call % GAPS];
        uint64_t second = call % 3 ? call + gap : call + 1;
        is_well = run_with(&of, call, 0, 0) && run_with(&of, call, call + 1, call + 2) &&
                  run_with(&of, call, second, call % 3 == 2 ? 0 : second + gap);
    }
    end_bed(&of);
}

TEST(saved_on_the_host) {
    fail_together(GML_BACKUP_HOST);
}

TEST(saved_nowhere) {
    fail_together(GML_BACKUP_NONE);
}

static uint64_t calls(const bed *of, gml_driver_call call) {
    gml_stats stats = {0};
    CHECK_OK(gml_lake_stats(of->lake, &stats));
    return stats.driver_calls[call];
}

/* Whatever was left half done is not done twice, and what is there is not copied back. */
TEST(a_call_that_was_made_is_not_made_again) {
    static const gml_driver_call made[] = {GML_CALL_CREATE, GML_CALL_MAP, GML_CALL_SET_ACCESS,
                                           GML_CALL_COPY_IN};
    enum { MADE = sizeof made / sizeof *made };
    for (int backup = GML_BACKUP_NONE; backup <= GML_BACKUP_HOST; backup++) {
        bed of = {.backup = (gml_backup)backup};
        gml_sleep_report report = {0};
        uint64_t before[MADE], once[MADE];
        const void *bytes = NULL;
        make_bed(&of);
        for (size_t i = 0; i < MADE; i++) {
            before[i] = calls(&of, made[i]);
        }
        CHECK(sleep_once(&of));
        CHECK(wake_at_last(&of));
        for (size_t i = 0; i < MADE; i++) {
            once[i] = calls(&of, made[i]) - before[i];
            before[i] = calls(&of, made[i]);
        }
        /* A sleep that ends nothing. */
        write_all(&of);
        breaking_refuse(GML_CALL_UNMAP, true);
        CHECK(!sleep_once(&of));
        for (size_t i = 0; i < BLOCKS; i++) { /* of which it saved some */
            CHECK(gml_lake_saved(of.lake, of.blocks[i], 1, &bytes) != GML_OK);
        }
        for (size_t i = 0; i < MADE; i++) {
            CHECK_EQ(calls(&of, made[i]), before[i]);
        }
        breaking_refuse(GML_CALL_UNMAP, false);
        /* Two wakes: the first one maps, and neither opens it nor takes it back. */
        CHECK(sleep_once(&of));
        breaking_refuse(GML_CALL_UNMAP, true);
        breaking_refuse(GML_CALL_SET_ACCESS, true);
        CHECK_STATUS(gml_lake_wake(of.lake, &report), GML_DRIVER_FAILED);
        breaking_refuse(GML_CALL_UNMAP, false);
        breaking_refuse(GML_CALL_SET_ACCESS, false);
        CHECK(wake_at_last(&of));
        for (size_t i = 0; i < MADE; i++) {
            CHECK_EQ(calls(&of, made[i]),
                     before[i] + once[i] + (made[i] == GML_CALL_SET_ACCESS)); /* the refused one */
        }
        end_bed(&of);
    }
}

/* Others may need it: a wake that fails at its end leaves the device as much as it had. */
TEST(what_a_failed_wake_took_goes_back) {
    bed of = {.backup = GML_BACKUP_HOST};
    gml_sleep_report report = {0};
    make_bed(&of);
    CHECK(sleep_once(&of));
    uint64_t created = calls(&of, GML_CALL_CREATE), released = calls(&of, GML_CALL_RELEASE);
    breaking_refuse(GML_CALL_COPY_IN, true);
    CHECK_STATUS(gml_lake_wake(of.lake, &report), GML_DRIVER_FAILED);
    breaking_refuse(GML_CALL_COPY_IN, false);
    CHECK(calls(&of, GML_CALL_CREATE) > created);
    CHECK_EQ(calls(&of, GML_CALL_RELEASE) - released, calls(&of, GML_CALL_CREATE) - created);
    CHECK(wake_at_last(&of));
    end_bed(&of);
}
