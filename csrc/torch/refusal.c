/* The text of a refusal: PyTorch's first sentence, and those of gml_situation_say(). */
#include "torch/refusal.h"

#include "base/text.h"
#include "gmlake_torch.h"
#include "lake/lake.h"
#include "torch/neighbours.h"
#include "torch/registry.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- writing --------------------------------------------------------------------------------- */

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
static void say_request(gml_text *out, uint64_t size_bytes) {
    bool is_absurd = size_bytes >= UINT64_C(1) << 60;
    gml_say(out, "CUDA out of memory. Tried to allocate %s.",
            is_absurd ? "more than 1EB memory" : human(size_bytes).text);
}

/* ---- the sentences --------------------------------------------------------------------------- */

/* Where the text tells the user to look; "": PyTorch's own summary. Guarded by note_lock, which is
 * taken last. */
static pthread_mutex_t note_lock = PTHREAD_MUTEX_INITIALIZER;
static char note[GML_REFUSAL_BYTES / 2];

static void say_where(gml_text *out) {
    pthread_mutex_lock(&note_lock);
    gml_say(out, " To see what lives: %s.", *note ? note : "torch.cuda.memory_summary()");
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

gml_status gml_refusal_status(uint64_t size_bytes, gml_status status) {
    return size_bytes > GML_LARGEST_REQUEST ? GML_OUT_OF_MEMORY : status;
}

/* ---- the account ----------------------------------------------------------------------------- */

/* Whether the account of this thread is that of a request which is being refused. */
static _Thread_local bool is_open;

void gml_refusal_look(gml_lake *lake, const gml_pool_id *pool, uint64_t size_bytes,
                      gml_stream stream, uint64_t native_bytes) {
    gml_situation *now = gml_last_refusal();
    gml_lake_look(lake, pool, size_bytes, stream, now);
    now->native_bytes = native_bytes;
    for (int number = gml_registry_next(-1); number >= 0; number = gml_registry_next(number)) {
        gml_lake *other = gml_torch_lake(number);
        if (other != lake && (uint64_t)gml_torch_device_of(number) == now->device) {
            uint64_t idle_bytes, asleep_bytes;
            gml_lake_idle(other, &idle_bytes, &asleep_bytes);
            now->regions_idle_bytes += idle_bytes;
            now->asleep_bytes += asleep_bytes;
        }
    }
    gml_neighbours_tell(now);
    is_open = true;
}

const gml_situation *gml_refusal_open(void) {
    return is_open ? gml_last_refusal() : NULL;
}

void gml_refusal_count(gml_lake *lake) {
    gml_lake_refuse(lake, gml_last_refusal());
}

void gml_refusal_end(void) {
    is_open = false;
}

/* ---- the text -------------------------------------------------------------------------------- */

void gml_refusal_write_unopened(int device, uint64_t size_bytes, gml_status status,
                                const char *reason, char *out, size_t out_bytes) {
    gml_text whole = {.out = out, .size_bytes = out_bytes};
    if (status == GML_OUT_OF_MEMORY) {
        say_request(&whole, size_bytes);
        gml_say(&whole, " ");
    }
    gml_say(&whole, "gmlake cannot use GPU %d: %s", device, reason);
}

static void write_out_of_memory(gml_text *out) {
    const gml_situation *seen = gml_last_refusal();
    char sentence[GML_SAY_BYTES];
    say_request(out, seen->size_bytes);
    for (int which = 0; which < GML_SAY_COUNT; which++) {
        gml_situation_say(seen, (gml_sentence)which, sentence, sizeof sentence);
        gml_say(out, "%s%s", *sentence ? " " : "", sentence);
    }
    say_where(out);
}

void gml_refusal_write(gml_lake *lake, int device, uint64_t size_bytes, gml_status status,
                       char *out, size_t out_bytes) {
    gml_text whole = {.out = out, .size_bytes = out_bytes};
    if (status == GML_OUT_OF_MEMORY) {
        write_out_of_memory(&whole);
        return;
    }
    char reason[GML_REASON_BYTES];
    gml_lake_reason(lake, reason, sizeof reason);
    gml_say(&whole, "gmlake could not allocate %s on GPU %d: %s", human(size_bytes).text, device,
            reason[0] ? reason : gml_status_text(status));
}
