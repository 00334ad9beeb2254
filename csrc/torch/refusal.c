/* One paragraph of short sentences, with sizes as PyTorch writes them. */
#include "torch/refusal.h"

#include "gmlake_torch.h"
#include "lake/lake.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct text {
    char *out;
    size_t size_bytes, used;
} text;

static void __attribute__((format(printf, 2, 3)))
say(text *self, const char *format, ...)
{
    size_t left = self->size_bytes - self->used;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(self->out + self->used, left, format, arguments);
    va_end(arguments);
    if (length > 0) {
        self->used += (size_t)length < left ? (size_t)length : left - 1;
    }
}

typedef struct size_text {
    char text[32];
} size_text;

/* As c10's format_size() does. */
static size_text
human(uint64_t size_bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB"};
    size_text result;
    if (size_bytes <= 1024) {
        (void)snprintf(result.text, sizeof result.text, "%" PRIu64 " bytes", size_bytes);
        return result;
    }
    double value = (double)size_bytes / 1024;
    int unit = 0;
    while (value > 1024 && unit < 2) {
        value /= 1024;
        unit++;
    }
    (void)snprintf(result.text, sizeof result.text, "%.2f %s", value, units[unit]);
    return result;
}

/* In PyTorch's words, which programs look for. */
static void
say_request(text *out, uint64_t size_bytes)
{
    bool is_absurd = size_bytes >= UINT64_C(1) << 60;
    say(out, "CUDA out of memory. Tried to allocate %s.",
        is_absurd ? "more than 1EB memory" : human(size_bytes).text);
}

/* ---- what there is --------------------------------------------------------------------------- */

typedef struct situation {
    const char *policy;
    bool has_guest; /* PyTorch's algorithm serves, or has served, out of the policy */
    bool has_pools;
    bool is_capturing;
    bool is_arena;                    /* free and total are of the one allocation that serves */
    uint64_t free_bytes, total_bytes; /* of the device; total 0: it did not say */
    uint64_t limit_bytes;             /* 0: none */
    uint64_t margin_bytes;            /* left to others */
    uint64_t live_bytes, live_blocks; /* in use by the program */
    uint64_t pending_bytes;           /* freed, but other streams still use it */
    uint64_t reserved_bytes, idle_bytes, largest_bytes;
    uint64_t beside_bytes; /* held by PyTorch's own allocator, */
    uint64_t others_bytes; /* and by other lakes of the device, awake */
    bool is_region;
} situation;

static uint64_t
difference(uint64_t whole, uint64_t part)
{
    return whole > part ? whole - part : 0;
}

static situation
look_at(gml_lake *lake)
{
    gml_stats stats = {0};
    situation now = {0};
    (void)gml_lake_stats(lake, &stats);
    pthread_mutex_lock(&lake->lock);
    now.policy = lake->policy->ops->name;
    now.has_guest = lake->guest != NULL;
    now.has_pools = gml_pools_reserved(&lake->pools) > 0;
    now.is_capturing = gml_driver_is_frozen(lake->driver);
    now.limit_bytes = GML_DEVICE_READ(lake->driver->device, limit_bytes);
    now.others_bytes =
        difference(GML_DEVICE_READ(lake->driver->device, held_bytes), lake->driver->held_bytes);
    now.is_region = lake->sleeper != NULL;
    now.margin_bytes = lake->driver->margin_bytes;
    now.is_arena = lake->driver->arena_bytes > 0;
    now.pending_bytes = lake->uses.pending_bytes;
    uint64_t pending_blocks = lake->uses.pending_count;
    if (gml_driver_memory_info(lake->driver, &now.free_bytes, &now.total_bytes) != GML_OK) {
        now.total_bytes = 0;
    }
    pthread_mutex_unlock(&lake->lock);
    now.live_bytes = difference(stats.live_bytes, now.pending_bytes);
    now.live_blocks = difference(stats.live_blocks, pending_blocks);
    now.reserved_bytes = stats.reserved_bytes;
    now.idle_bytes = difference(stats.reserved_bytes, stats.live_bytes);
    now.largest_bytes = stats.largest_free_bytes;
    return now;
}

/* ---- the sentences --------------------------------------------------------------------------- */

/* What the program is told to look at; "": PyTorch's own summary. Guarded by note_lock, which is
 * taken last. */
static pthread_mutex_t note_lock = PTHREAD_MUTEX_INITIALIZER;
static char note[GML_REFUSAL_BYTES / 2];

static void
say_device(text *out, const situation *now, int device)
{
    if (now->is_arena) {
        say(out, " gmlake serves GPU %d from one allocation of %s, of which %s was never used.",
            device, human(now->total_bytes).text, human(now->free_bytes).text);
    } else if (now->total_bytes) {
        say(out, " GPU %d has a total capacity of %s of which %s is free.", device,
            human(now->total_bytes).text, human(now->free_bytes).text);
    }
    if (now->limit_bytes) {
        say(out, " gmlake may hold %s of it in all, by its capacity or the memory fraction.",
            human(now->limit_bytes).text);
    }
    if (now->margin_bytes) {
        say(out, " A margin of %s of it is left to others.", human(now->margin_bytes).text);
    }
}

static void
say_held(text *out, const situation *now)
{
    say(out, " gmlake (policy %s) holds %s, of which %s are in use by %" PRIu64 " tensor%s",
        now->policy, human(now->reserved_bytes).text, human(now->live_bytes).text, now->live_blocks,
        now->live_blocks == 1 ? "" : "s");
    if (now->pending_bytes) {
        say(out, ", %s are freed but still used by other streams", human(now->pending_bytes).text);
    }
    say(out, ", and %s are idle", human(now->idle_bytes).text);
    if (now->idle_bytes && !now->largest_bytes) {
        say(out, ", in pieces that serve only requests of up to 1 MiB");
    } else if (now->idle_bytes) {
        say(out, "; the largest request that they could serve is %s (fragmentation %.2f)",
            human(now->largest_bytes).text,
            1 - (double)now->largest_bytes / (double)now->idle_bytes);
    }
    say(out, ".");
}

/* The driver tells what is free, not who has the rest. */
static void
say_others(text *out, const situation *now)
{
    if (now->beside_bytes) {
        say(out, " PyTorch's own allocator holds %s.", human(now->beside_bytes).text);
    }
    if (now->others_bytes) {
        say(out, now->is_region ? " gmlake holds %s outside of this region." : " Regions hold %s.",
            human(now->others_bytes).text);
    }
    uint64_t known_bytes =
        now->free_bytes + now->reserved_bytes + now->beside_bytes + now->others_bytes;
    uint64_t rest_bytes = difference(now->total_bytes, known_bytes);
    if (rest_bytes) {
        say(out,
            " The other %s are taken by CUDA itself, libraries such as NCCL, and other "
            "processes.",
            human(rest_bytes).text);
    }
}

static void
say_tried(text *out, const situation *now)
{
    if (now->is_capturing) {
        say(out, " Tried: idle memory and new memory from the driver; while a graph is captured "
                 "nothing can be waited for or given back.");
        return;
    }
    say(out,
        " Tried: idle memory, also of other streams%s%s, waiting for the device, and new "
        "memory from the driver.",
        now->has_guest ? ", the cache for requests outside gmlake.enabled()" : "",
        now->has_pools ? ", released graph pools" : "");
}

static void
write_out_of_memory(text *out, const situation *now, int device, uint64_t size_bytes)
{
    say_request(out, size_bytes);
    say_device(out, now, device);
    say_held(out, now);
    say_others(out, now);
    say_tried(out, now);
    pthread_mutex_lock(&note_lock);
    say(out, " To see what lives: %s.", *note ? note : "torch.cuda.memory_summary()");
    pthread_mutex_unlock(&note_lock);
}

void
gml_torch_note_refusals(const char *where)
{
    pthread_mutex_lock(&note_lock);
    (void)snprintf(note, sizeof note, "%s", where);
    pthread_mutex_unlock(&note_lock);
}

void
gml_refusal_renew(void)
{
    (void)pthread_mutex_init(&note_lock, NULL);
    *note = '\0';
}

void
gml_refusal_write_unopened(int device, uint64_t size_bytes, gml_status status, const char *reason,
                           char *out, size_t out_bytes)
{
    text whole = {.out = out, .size_bytes = out_bytes};
    if (status == GML_OUT_OF_MEMORY) {
        say_request(&whole, size_bytes);
        say(&whole, " ");
    }
    say(&whole, "gmlake cannot use GPU %d: %s", device, reason);
}

gml_status
gml_refusal_status(uint64_t size_bytes, gml_status status)
{
    return size_bytes > GML_LARGEST_REQUEST ? GML_OUT_OF_MEMORY : status;
}

void
gml_refusal_write(gml_lake *lake, int device, uint64_t size_bytes, gml_status status,
                  uint64_t beside_bytes, char *out, size_t out_bytes)
{
    text whole = {.out = out, .size_bytes = out_bytes};
    if (status == GML_OUT_OF_MEMORY) {
        situation now = look_at(lake);
        now.beside_bytes = beside_bytes;
        write_out_of_memory(&whole, &now, device, size_bytes);
        return;
    }
    char reason[GML_REASON_BYTES];
    gml_lake_reason(lake, reason, sizeof reason);
    say(&whole, "gmlake could not allocate %s on GPU %d: %s (%s)", human(size_bytes).text, device,
        reason, gml_status_text(status));
}
