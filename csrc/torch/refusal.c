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

static void __attribute__((format(printf, 2, 3))) say(text *self, const char *format, ...) {
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
static size_text human(uint64_t size_bytes) {
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
static void say_request(text *out, uint64_t size_bytes) {
    bool is_absurd = size_bytes >= UINT64_C(1) << 60;
    say(out, "CUDA out of memory. Tried to allocate %s.",
        is_absurd ? "more than 1EB memory" : human(size_bytes).text);
}

/* ---- the sentences --------------------------------------------------------------------------- */

/* Where the text tells the user to look; "": PyTorch's own summary. Guarded by note_lock, which is
 * taken last. */
static pthread_mutex_t note_lock = PTHREAD_MUTEX_INITIALIZER;
static char note[GML_REFUSAL_BYTES / 2];

static void say_device(text *out, const gml_situation *now, int device) {
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

static void say_held(text *out, const gml_situation *now) {
    say(out, " gmlake (policy %s) holds %s, of which %s are in use by %" PRIu64 " tensor%s",
        now->policy, human(now->reserved_bytes).text, human(now->live_bytes).text, now->live_blocks,
        now->live_blocks == 1 ? "" : "s");
    if (now->elastic_bytes) {
        say(out, ", %s by elastic tensors", human(now->elastic_bytes).text);
    }
    if (now->pending_bytes) {
        say(out, ", %s are freed but still used by other streams", human(now->pending_bytes).text);
    }
    say(out, ", and %s are idle", human(now->idle_bytes).text);
    if (now->idle_bytes && !now->largest_bytes) {
        say(out, ", in pieces that serve only requests of up to 1 MiB");
    } else if (now->idle_bytes) {
        say(out, "; the largest request that they could serve is %s (fragmentation %.1f %%)",
            human(now->largest_bytes).text,
            100 * (1 - (double)now->largest_bytes / (double)now->idle_bytes));
    }
    say(out, ".");
}

/* The driver reports free memory, not the users of the rest. */
static void say_others(text *out, const gml_situation *now, uint64_t beside_bytes) {
    if (beside_bytes) {
        say(out, " PyTorch's own allocator holds %s.", human(beside_bytes).text);
    }
    if (now->others_bytes) {
        say(out, now->can_sleep ? " gmlake holds %s outside of this region." : " Regions hold %s.",
            human(now->others_bytes).text);
    }
    uint64_t known_bytes = now->free_bytes + now->reserved_bytes + beside_bytes + now->others_bytes;
    if (now->total_bytes > known_bytes) {
        say(out,
            " The other %s are taken by CUDA itself, libraries such as NCCL, and other "
            "processes.",
            human(now->total_bytes - known_bytes).text);
    }
}

static void say_tried(text *out, const gml_situation *now) {
    if (now->is_capturing) {
        say(out, " Tried: idle memory and new memory from the driver; while a graph is captured "
                 "nothing can be waited for or given back.");
        return;
    }
    say(out,
        " Tried: idle memory, also of other streams%s, waiting for the device, and new "
        "memory from the driver.",
        now->has_pools ? ", released graph pools" : "");
}

static void write_out_of_memory(text *out, const gml_situation *now, int device,
                                uint64_t size_bytes, uint64_t beside_bytes) {
    say_request(out, size_bytes);
    say_device(out, now, device);
    say_held(out, now);
    say_others(out, now, beside_bytes);
    say_tried(out, now);
    pthread_mutex_lock(&note_lock);
    say(out, " To see what lives: %s.", *note ? note : "torch.cuda.memory_summary()");
    pthread_mutex_unlock(&note_lock);
}

void gml_torch_note_refusals(const char *where) {
    pthread_mutex_lock(&note_lock);
    (void)snprintf(note, sizeof note, "%s", where);
    pthread_mutex_unlock(&note_lock);
}

void gml_refusal_renew(void) {
    (void)pthread_mutex_init(&note_lock, NULL);
    *note = '\0';
}

void gml_refusal_write_unopened(int device, uint64_t size_bytes, gml_status status,
                                const char *reason, char *out, size_t out_bytes) {
    text whole = {.out = out, .size_bytes = out_bytes};
    if (status == GML_OUT_OF_MEMORY) {
        say_request(&whole, size_bytes);
        say(&whole, " ");
    }
    say(&whole, "gmlake cannot use GPU %d: %s", device, reason);
}

gml_status gml_refusal_status(uint64_t size_bytes, gml_status status) {
    return size_bytes > GML_LARGEST_REQUEST ? GML_OUT_OF_MEMORY : status;
}

void gml_refusal_write(gml_lake *lake, int device, uint64_t size_bytes, gml_status status,
                       uint64_t beside_bytes, char *out, size_t out_bytes) {
    text whole = {.out = out, .size_bytes = out_bytes};
    if (status == GML_OUT_OF_MEMORY) {
        gml_situation now;
        gml_lake_look(lake, &now);
        write_out_of_memory(&whole, &now, device, size_bytes, beside_bytes);
        return;
    }
    char reason[GML_REASON_BYTES];
    gml_lake_reason(lake, reason, sizeof reason);
    say(&whole, "gmlake could not allocate %s on GPU %d: %s", human(size_bytes).text, device,
        reason[0] ? reason : gml_status_text(status));
}
