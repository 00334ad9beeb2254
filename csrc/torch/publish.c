/* Counters of this process for who follows it, told when they are asked for. */
#include "torch/publish.h"

#include "base/clock.h"
#include "base/reason.h"
#include "gmlake_torch.h"
#include "lake/lake.h"
#include "torch/answering.h"
#include "torch/letters.h"
#include "torch/registry.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_LAKES = 64, ANSWER_MS = 500 };

_Static_assert(sizeof(gml_counters) <= sizeof(((gml_letter *)0)->rest.sizes), "fits a letter");

/* Held while this begins to be answered; taken first, and never by the thread that answers. */
static pthread_mutex_t beginning = PTHREAD_MUTEX_INITIALIZER;
static bool watches_forks;        /* guarded by it */
static _Atomic uint64_t start_ns; /* written under it; 0: nothing is published */

static struct {
    pthread_mutex_t lock;        /* guards the rest */
    gml_lake *lakes[MOST_LAKES]; /* beside those of PyTorch */
    size_t count;
} self = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- being asked ----------------------------------------------------------------------------- */

typedef struct sums {
    gml_counters of[GML_TORCH_DEVICES];
    size_t count;
} sums;

static gml_counters *sum_of(sums *all, int device) {
    size_t i = 0;
    while (i < all->count && all->of[i].device != (uint64_t)device) {
        i++;
    }
    if (i == all->count && i < GML_TORCH_DEVICES) {
        all->of[i] = (gml_counters){.device = (uint64_t)device, .start_ns = start_ns};
        all->count++;
    }
    return i < all->count ? &all->of[i] : NULL;
}

static void add_lake(sums *all, gml_lake *lake, int device) {
    gml_stats stats;
    gml_counters *sum = sum_of(all, device);
    if (!sum || gml_lake_stats(lake, &stats) != GML_OK) {
        return;
    }
#define ADD(name) sum->name += stats.name;
    GML_COUNTERS_OF_STATS(ADD)
#undef ADD
    for (int call = 0; call < GML_CALL_COUNT; call++) {
        sum->driver_calls += stats.driver_calls[call];
    }
    for (int state = 0; state < GML_STATE_COUNT; state++) {
        sum->states[state] += stats.states[state];
    }
    if (stats.largest_free_bytes > sum->largest_free_bytes) {
        sum->largest_free_bytes = stats.largest_free_bytes;
    }
}

/* One at a time: of the thread that answers. */
static sums gathered;

bool gml_publish_answer(int socket) {
    gml_letter letter = {.kind = GML_LETTER_COUNTED};
    gathered.count = 0;
    pthread_mutex_lock(&self.lock);
    for (int number = gml_registry_next(-1); number >= 0; number = gml_registry_next(number)) {
        add_lake(&gathered, gml_torch_lake(number), gml_torch_device_of(number));
    }
    for (size_t i = 0; i < self.count; i++) {
        add_lake(&gathered, self.lakes[i], self.lakes[i]->device);
    }
    pthread_mutex_unlock(&self.lock);
    bool goes_on = true;
    for (size_t i = 0; i <= gathered.count && goes_on; i++) { /* the last one says that it is */
        letter.bytes = gathered.count - i;
        if (letter.bytes) {
            memcpy(letter.rest.sizes, &gathered.of[i], sizeof gathered.of[i]);
        }
        goes_on = gml_letter_send(socket, &letter, NULL);
    }
    return goes_on;
}

/* ---- publishing ------------------------------------------------------------------------------ */

static void forget(void) {
    (void)pthread_mutex_init(&beginning, NULL);
    (void)pthread_mutex_init(&self.lock, NULL);
    start_ns = 0;
    self.count = 0;
    gml_answer_forget();
}

/* pre: `beginning` is held. */
static int begin(const char *name) {
    char address[GML_LETTER_NAME_BYTES];
    if (start_ns) {
        return 0;
    }
    watches_forks = watches_forks || pthread_atfork(NULL, NULL, forget) == 0;
    gml_letter_name(address, gml_letter_group(name), (unsigned)getpid());
    int socket = watches_forks ? gml_letter_listen(address) : -ENOMEM;
    if (socket >= 0 && gml_answer(socket, NULL, -1) != GML_OK) {
        socket = -ENOMEM;
    }
    start_ns = socket < 0 ? 0 : gml_wall_clock_ns();
    return socket < 0 ? -socket : 0;
}

static int add_to_list(gml_lake *lake) {
    pthread_mutex_lock(&self.lock);
    bool is_known = false;
    for (size_t i = 0; i < self.count; i++) {
        is_known |= self.lakes[i] == lake;
    }
    bool has_room = self.count < MOST_LAKES;
    if (!is_known && has_room) {
        self.lakes[self.count++] = lake;
    }
    pthread_mutex_unlock(&self.lock);
    return is_known || has_room ? 0 : ENOSPC;
}

int gml_publish(const char *name, gml_lake *lake) {
    pthread_mutex_lock(&beginning);
    int error = begin(name);
    pthread_mutex_unlock(&beginning);
    return error || !lake ? error : add_to_list(lake);
}

void gml_publish_no_more(const gml_lake *lake) {
    pthread_mutex_lock(&self.lock);
    for (size_t i = self.count; i--;) {
        if (self.lakes[i] == lake) {
            self.lakes[i] = self.lakes[--self.count];
        }
    }
    pthread_mutex_unlock(&self.lock);
}

/* ---- asking ---------------------------------------------------------------------------------- */

gml_status gml_read_counters(const char *name, int process, gml_counters *out, size_t capacity,
                             size_t *count, char *reason, size_t reason_bytes) {
    char address[GML_LETTER_NAME_BYTES];
    gml_letter letter = {.kind = GML_LETTER_COUNT};
    pid_t peer = 0;
    *count = 0;
    gml_letter_name(address, gml_letter_group(name), (unsigned)process);
    int socket = gml_letter_connect(address, &peer);
    if (socket < 0) {
        return gml_refuse(GML_UNKNOWN_ADDRESS, reason, reason_bytes, "it publishes nothing");
    }
    if (peer != process) { /* it counts its processes in another way */
        gml_letter_close(socket);
        return gml_refuse(GML_UNSUPPORTED, reason, reason_bytes, "it runs in another container");
    }
    bool goes_on = gml_letter_send(socket, &letter, NULL), is_whole = false;
    while (goes_on && !is_whole) {
        goes_on =
            gml_letter_await(socket, &letter, NULL, ANSWER_MS) && letter.kind == GML_LETTER_COUNTED;
        is_whole = goes_on && !letter.bytes;
        if (goes_on && !is_whole && *count < capacity) {
            memcpy(&out[(*count)++], letter.rest.sizes, sizeof *out);
        }
    }
    gml_letter_close(socket);
    return is_whole ? GML_OK
                    : gml_refuse(GML_NOT_READY, reason, reason_bytes, "it %s",
                                 gml_letter_is_stopped(peer) ? "is stopped" : "does not answer");
}

void gml_published_name(const char *name, char *out, size_t out_bytes) {
    char address[GML_LETTER_NAME_BYTES];
    gml_letter_name(address, gml_letter_group(name), 0);
    (void)snprintf(out, out_bytes, "%.*s", (int)strlen(address) - 1, address);
}
