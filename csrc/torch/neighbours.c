/* Asking and giving, with one page and one thread for each device that is shared. */
#include "torch/neighbours.h"

#include "base/clock.h"
#include "base/reason.h"
#include "lake/lake.h"
#include "torch/parcel.h"
#include "torch/registry.h"
#include "torch/share_page.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MILLISECOND_NS UINT64_C(1000000)

/* Left to what CUDA takes itself, as for kernels when they are first used: nobody is asked for that
 * memory. */
#define SPARE_BYTES (UINT64_C(256) << 20)

/* Native takes more than it is asked for, a lake whole chunks: this is above both. */
#define ROUNDING_BYTES (UINT64_C(64) << 20)

/* Requests that follow each other need one question after the other; each asks for twice as much,
 * up to this part of the device. */
#define MOST_AT_ONCE 64

enum {
    HEAR_MS = 200,   /* for a process to hear a question; a stopped one never does */
    GIVE_MS = 10000, /* to give: the longest wait for work that is queued */
    SOON_MS = 100,   /* between questions that belong together */
    PAUSE_US = 200,  /* between looks at that work */
};

typedef struct shared_device {
    pthread_mutex_t lock; /* guards the fields; held while others are asked */
    char *path;           /* NULL: not to be shared */
    gml_share_terms terms;
    gml_share_page *page;           /* NULL: not shared yet, or no more */
    pthread_t giver;                /* runs while there is a page */
    int socket;                     /* while there is a page: where files come; -1: none can */
    gml_handed incoming, outgoing;  /* files for this process, and of the giver for another one */
    uint64_t taken_bytes;           /* that others gave, */
    uint64_t handed_bytes;          /* and of it what came as files */
    uint64_t asked_bytes, asked_ns; /* the last question, and when it was answered */
    _Atomic uint64_t given_bytes;
    char why[GML_REASON_BYTES]; /* it could not be shared; "" */
} shared_device;

static shared_device devices[GML_TORCH_DEVICES];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init_locks(void) {
    for (int device = 0; device < GML_TORCH_DEVICES; device++) {
        (void)pthread_mutex_init(&devices[device].lock, NULL);
        (void)pthread_mutex_init(&devices[device].incoming.lock, NULL);
        (void)pthread_mutex_init(&devices[device].outgoing.lock, NULL);
    }
}

static shared_device *device_at(int device) {
    (void)pthread_once(&once, init_locks);
    return device >= 0 && device < GML_TORCH_DEVICES ? &devices[device] : NULL;
}

/* The number of the first lake of the device after `number`, -1 at first; -1: none. */
static int next_lake(int device, int number) {
    do {
        number = gml_registry_next(number);
    } while (number >= 0 && gml_torch_device_of(number) != device);
    return number;
}

/* ---- giving ---------------------------------------------------------------------------------- */

static uint64_t idle_bytes(int device) {
    uint64_t sum_bytes = gml_handed_bytes(&devices[device].incoming);
    for (int number = next_lake(device, -1); number >= 0; number = next_lake(device, number)) {
        sum_bytes += gml_lake_idle_bytes(gml_torch_lake(number));
    }
    return sum_bytes;
}

/* What no work uses, into `to` if that is not NULL; *is_pending: more will follow. */
static uint64_t give_unused(int device, uint64_t wanted_bytes, gml_handed *to, bool *is_pending) {
    uint64_t given_bytes = 0;
    *is_pending = false;
    for (int number = next_lake(device, -1); number >= 0 && given_bytes < wanted_bytes;
         number = next_lake(device, number)) {
        uint64_t released_bytes = 0;
        bool is_later = false;
        /* What fails here is kept, and others are asked. */
        (void)gml_lake_give(gml_torch_lake(number), wanted_bytes - given_bytes, to, &released_bytes,
                            &is_later);
        given_bytes += released_bytes;
        *is_pending |= is_later;
    }
    return given_bytes;
}

/* All that is idle, after a wait for what uses it. */
static uint64_t give_all(int device) {
    uint64_t given_bytes = 0;
    for (int number = next_lake(device, -1); number >= 0; number = next_lake(device, number)) {
        uint64_t released_bytes = 0;
        (void)gml_lake_trim(gml_torch_lake(number), &released_bytes);
        given_bytes += released_bytes;
    }
    return given_bytes;
}

/* What the device lacks of the memory that is left to CUDA. */
static uint64_t lacking_bytes(int device) {
    uint64_t free_bytes = 0, total_bytes = 0;
    int number = next_lake(device, -1);
    if (number >= 0) {
        gml_lake_memory_info(gml_torch_lake(number), &free_bytes, &total_bytes);
    }
    return total_bytes && free_bytes < SPARE_BYTES ? SPARE_BYTES - free_bytes : 0;
}

/* What was handed over to this process and not used goes on first. */
static uint64_t pass_on(shared_device *self, uint64_t wanted_bytes, gml_handed *to) {
    return to ? gml_handed_move(&self->incoming, to, wanted_bytes)
              : gml_handed_drop(&self->incoming);
}

/* First without waiting; then as work ends; and last what cannot be told to be unused. */
static uint64_t give(shared_device *self, uint64_t wanted_bytes, gml_handed *to) {
    const struct timespec pause = {.tv_nsec = (long)PAUSE_US * 1000};
    uint64_t deadline_ns = gml_clock_ns() + GIVE_MS / 2 * MILLISECOND_NS;
    int device = (int)(self - devices);
    bool is_pending = false;
    uint64_t lacking = to ? lacking_bytes(device) : 0;
    uint64_t given_bytes = lacking ? give_unused(device, lacking, NULL, &is_pending) : 0;
    if (given_bytes < wanted_bytes) {
        given_bytes += pass_on(self, wanted_bytes - given_bytes, to);
    }
    if (given_bytes < wanted_bytes) {
        given_bytes += give_unused(device, wanted_bytes - given_bytes, to, &is_pending);
    }
    while (given_bytes < wanted_bytes && is_pending && gml_clock_ns() < deadline_ns) {
        (void)nanosleep(&pause, NULL);
        given_bytes += give_unused(device, wanted_bytes - given_bytes, to, &is_pending);
    }
    return given_bytes < wanted_bytes ? given_bytes + give_all(device) : given_bytes;
}

static void *give_on_demand(void *argument) {
    shared_device *self = argument;
    int device = (int)(self - devices);
    gml_share_page *page = self->page; /* set before the thread began, and closed after its end */
    gml_share_question asked;
    while (gml_share_page_next(page, &asked)) {
        (void)gml_parcel_receive(self->socket, &self->incoming); /* what came too late goes on */
        gml_handed *to = asked.takes_files && self->socket >= 0 ? &self->outgoing : NULL;
        uint64_t given_bytes = asked.wanted_bytes ? give(self, asked.wanted_bytes, to) : 0;
        if (to) {
            gml_parcel_send(self->socket, asked.name, to);
        }
        atomic_fetch_add(&self->given_bytes, given_bytes);
        gml_share_page_answer(page, given_bytes, idle_bytes(device));
    }
    return NULL;
}

/* Signals are for the program's threads. */
static int start_giver(shared_device *self) {
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&self->giver, NULL, give_on_demand, self);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* ---- joining and leaving --------------------------------------------------------------------- */

/* What the device's lakes read: what others handed over, and what is to be left to CUDA. */
static void tell_lakes(shared_device *self) {
    gml_device *device = gml_registry_device((int)(self - devices));
    __atomic_store_n(&device->handed, &self->incoming, __ATOMIC_RELEASE);
    __atomic_store_n(&device->spare_bytes, self->page ? SPARE_BYTES : 0, __ATOMIC_RELAXED);
}

/* Where no files can come, memory goes through the device. */
static void open_socket(shared_device *self) {
    uint64_t name[GML_PARCEL_NAME_WORDS];
    self->socket = gml_parcel_open(name);
    if (self->socket >= 0) {
        gml_share_page_accept(self->page, name);
    }
}

static void close_socket(shared_device *self) {
    (void)gml_handed_drop(&self->incoming);
    (void)(self->socket < 0 || close(self->socket));
    self->socket = -1;
}

/* pre: the lock is held. */
static void join_locked(shared_device *self) {
    if (!self->path || self->page) {
        return;
    }
    self->why[0] = '\0';
    gml_status status =
        gml_share_page_open(self->path, self->terms, &self->page, self->why, sizeof self->why);
    if (status == GML_OK) {
        open_socket(self);
    }
    if (status == GML_OK && start_giver(self) != 0) {
        (void)gml_refuse(GML_NO_HOST_MEMORY, self->why, sizeof self->why, "no thread can begin");
        close_socket(self);
        gml_share_page_close(self->page);
        self->page = NULL;
    }
    tell_lakes(self);
}

/* pre: the lock is held. */
static void leave_locked(shared_device *self) {
    if (self->page) {
        gml_share_page_stop(self->page);
        (void)pthread_join(self->giver, NULL);
        close_socket(self);
        gml_share_page_close(self->page);
        self->page = NULL;
    }
    tell_lakes(self);
    free(self->path);
    self->path = NULL;
}

void gml_neighbours_join(int device) {
    shared_device *self = device_at(device);
    if (self) {
        pthread_mutex_lock(&self->lock);
        join_locked(self);
        pthread_mutex_unlock(&self->lock);
    }
}

void gml_neighbours_forget(void) {
    for (int device = 0; device < GML_TORCH_DEVICES; device++) {
        shared_device *self = &devices[device];
        (void)pthread_mutex_init(&self->lock, NULL);
        gml_handed_forget(&self->incoming);
        gml_handed_forget(&self->outgoing);
        if (self->page) {
            close_socket(self);
            gml_share_page_abandon(self->page);
            self->page = NULL;
        }
        self->taken_bytes = self->handed_bytes = 0;
        atomic_store(&self->given_bytes, 0);
    }
}

gml_status gml_torch_share(int device, const char *path, int32_t priority, uint32_t weight,
                           char *reason, size_t reason_bytes) {
    shared_device *self = device_at(device);
    if (!self || path[0] != '/' || !weight) {
        return gml_refuse(GML_INVALID_ARGUMENT, reason, reason_bytes, "%s",
                          !self     ? "there is no such device"
                          : !weight ? "a weight is above 0"
                                    : "the path of a shared page is absolute");
    }
    char *copy = strdup(path);
    if (!copy) {
        return gml_refuse(GML_NO_HOST_MEMORY, reason, reason_bytes, "no host memory for a path");
    }
    pthread_mutex_lock(&self->lock);
    leave_locked(self);
    self->path = copy;
    self->terms = (gml_share_terms){priority, weight};
    if (next_lake(device, -1) >= 0) {
        join_locked(self);
    }
    gml_status status = self->why[0] ? GML_UNSUPPORTED : GML_OK;
    if (status != GML_OK) {
        (void)gml_refuse(status, reason, reason_bytes, "%s", self->why);
    }
    pthread_mutex_unlock(&self->lock);
    return status;
}

void gml_torch_unshare(void) {
    for (int device = 0; device < GML_TORCH_DEVICES; device++) {
        shared_device *self = device_at(device);
        pthread_mutex_lock(&self->lock);
        leave_locked(self);
        pthread_mutex_unlock(&self->lock);
    }
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* What the device lacks for a request, which may also be served from files that came and were not
 * used yet, if `as_files`; 0: others cannot help, since this process's own limit stands against it,
 * or there is enough. *most_bytes: the most to ask for beyond. */
static uint64_t missing_bytes(int device, uint64_t size_bytes, bool as_files,
                              uint64_t *most_bytes) {
    int number = next_lake(device, -1);
    uint64_t free_bytes = 0, total_bytes = 0;
    if (number >= 0) {
        gml_lake_memory_info(gml_torch_lake(number), &free_bytes, &total_bytes);
    }
    if (size_bytes > gml_device_room(gml_registry_device(device)) ||
        (total_bytes && size_bytes > total_bytes)) {
        return 0;
    }
    uint64_t wanted_bytes = size_bytes + SPARE_BYTES + ROUNDING_BYTES;
    uint64_t has_bytes = free_bytes + (as_files ? gml_handed_bytes(&devices[device].incoming) : 0);
    uint64_t missing = wanted_bytes > has_bytes ? wanted_bytes - has_bytes : 0;
    *most_bytes = total_bytes / MOST_AT_ONCE;
    return missing;
}

/* What is asked for where so much is missing. pre: the lock is held. */
static uint64_t raise_question(const shared_device *self, uint64_t missing, uint64_t most_bytes) {
    bool is_next = gml_clock_ns() - self->asked_ns < SOON_MS * MILLISECOND_NS;
    uint64_t twice_bytes = is_next ? 2 * self->asked_bytes : 0;
    twice_bytes = twice_bytes < most_bytes ? twice_bytes : most_bytes;
    return missing > twice_bytes ? missing : twice_bytes;
}

static int by_order_of_giving(const void *left, const void *right) {
    const gml_share_other *one = left, *other = right;
    if (one->terms.priority != other->terms.priority) {
        return one->terms.priority < other->terms.priority ? -1 : 1;
    }
    double mine = (double)one->idle_bytes / one->terms.weight;
    double theirs = (double)other->idle_bytes / other->terms.weight;
    return mine > theirs ? -1 : mine < theirs;
}

static bool wait_for(gml_share_page *page, uint32_t question, uint64_t asked_ns,
                     gml_share_other *other) {
    return gml_share_page_wait(page, question, HEAR_MS * MILLISECOND_NS,
                               asked_ns + GIVE_MS * MILLISECOND_NS, other);
}

/* Fills `out` with those that have idle memory, who gives first at the beginning. */
static size_t find_givers(gml_share_page *page, gml_share_other out[GML_SHARE_SLOTS]) {
    uint32_t questions[GML_SHARE_SLOTS];
    size_t count = gml_share_page_others(page, out), left = 0;
    uint64_t asked_ns = gml_clock_ns();
    for (size_t i = 0; i < count; i++) {
        questions[i] = gml_share_page_ask(page, out[i].slot, 0, false);
    }
    for (size_t i = 0; i < count; i++) {
        if (wait_for(page, questions[i], asked_ns, &out[i]) && out[i].idle_bytes) {
            out[left] = out[i];
            left++;
        }
    }
    qsort(out, left, sizeof *out, by_order_of_giving);
    return left;
}

static uint64_t take_from(gml_share_page *page, gml_share_other *other, uint64_t wanted_bytes,
                          bool as_files) {
    uint64_t before_bytes = other->given_bytes;
    uint64_t asked_ns = gml_clock_ns();
    uint32_t question = gml_share_page_ask(page, other->slot, wanted_bytes, as_files);
    return wait_for(page, question, asked_ns, other) ? other->given_bytes - before_bytes : 0;
}

/* as_files: what is given need not be free on the device. pre: the lock is held. */
static uint64_t ask_locked(shared_device *self, gml_share_page *page, uint64_t wanted_bytes,
                           bool as_files) {
    gml_share_other others[GML_SHARE_SLOTS];
    size_t count = find_givers(page, others);
    uint64_t taken_bytes = 0;
    for (size_t i = 0; i < count && taken_bytes < wanted_bytes; i++) {
        uint64_t left_bytes = wanted_bytes - taken_bytes;
        uint64_t part_bytes = others[i].idle_bytes < left_bytes ? others[i].idle_bytes : left_bytes;
        taken_bytes += take_from(page, &others[i], part_bytes, as_files);
        self->handed_bytes += as_files ? gml_parcel_receive(self->socket, &self->incoming) : 0;
    }
    self->taken_bytes += taken_bytes;
    return taken_bytes;
}

/* Whether the request has more memory now. pre: the device is shared, and the lock is held. */
static bool ask_for(shared_device *self, uint64_t size_bytes, bool is_for_lake) {
    int device = (int)(self - devices);
    uint64_t most_bytes = 0, freed_bytes = 0;
    uint64_t missing = missing_bytes(device, size_bytes, is_for_lake, &most_bytes);
    if (missing && !is_for_lake) { /* what came as files is of use on the device only */
        freed_bytes = gml_handed_drop(&self->incoming);
        missing -= freed_bytes < missing ? freed_bytes : missing;
    }
    if (missing) {
        self->asked_bytes = raise_question(self, missing, most_bytes);
        freed_bytes +=
            ask_locked(self, self->page, self->asked_bytes, is_for_lake && self->socket >= 0);
        self->asked_ns = gml_clock_ns();
    }
    return freed_bytes > 0;
}

bool gml_torch_ask_neighbours(int device, uint64_t size_bytes, bool is_for_lake) {
    shared_device *self = device_at(device);
    if (!self) {
        return false;
    }
    pthread_mutex_lock(&self->lock);
    if (self->page) {
        gml_note_tried(GML_TRIED_PROCESSES);
    }
    bool has_more = self->page && ask_for(self, size_bytes, is_for_lake);
    pthread_mutex_unlock(&self->lock);
    return has_more;
}

bool gml_torch_make_room(int device, uint64_t wanted_bytes) {
    shared_device *self = device_at(device);
    if (!self) {
        return false;
    }
    uint64_t taken_bytes = 0;
    pthread_mutex_lock(&self->lock);
    gml_share_page *page = self->page;
    if (!page && self->path) {
        (void)gml_share_page_open(self->path, self->terms, &page, NULL, 0);
    }
    if (page) {
        taken_bytes = ask_locked(self, page, wanted_bytes, false);
    }
    if (page && page != self->page) {
        gml_share_page_close(page); /* nothing answers there yet */
    }
    pthread_mutex_unlock(&self->lock);
    return taken_bytes > 0;
}

void gml_torch_sharing(int device, gml_torch_shared *out) {
    shared_device *self = device_at(device);
    gml_share_other others[GML_SHARE_SLOTS];
    *out = (gml_torch_shared){0};
    if (!self) {
        return;
    }
    pthread_mutex_lock(&self->lock);
    out->is_shared = self->page != NULL;
    out->neighbours = self->page ? gml_share_page_others(self->page, others) : 0;
    out->taken_bytes = self->taken_bytes;
    out->handed_bytes = self->handed_bytes;
    out->given_bytes = atomic_load(&self->given_bytes);
    (void)snprintf(out->why, sizeof out->why, "%s", self->why);
    pthread_mutex_unlock(&self->lock);
}
