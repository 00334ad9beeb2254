/* Asking the others, all at once, over a connection with each. */
#include "torch/neighbours.h"

#include "base/clock.h"
#include "base/reason.h"
#include "lake/lake.h"
#include "torch/answering.h"
#include "torch/letters.h"
#include "torch/registry.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MILLISECOND_NS UINT64_C(1000000)

/* Native takes more than it is asked for, a lake whole chunks: this is above both. */
#define ROUNDING_BYTES (UINT64_C(64) << 20)

/* Requests that follow each other need one question after the other; each asks for twice as much,
 * up to this part of the device. */
#define MOST_AT_ONCE 64

enum {
    SILENT_MS = 20, /* of a process that is stopped, or that the system does not say more of */
    SLOW_MS =
        1000, /* of one that runs, or waits for a processor: else its memory would be missed */
    GIVE_MS = 6000, /* for memory that it says is in use; above what it waits itself */
    SOON_MS = 100,  /* between questions that belong together */
    MOST_ROUNDS = 8 /* of asking for what others did not give */
};

/* What another process is asked, and has said. */
typedef struct neighbour {
    int socket;        /* -1: none */
    pid_t process;     /* 0: its number is not known here */
    bool owes;         /* an answer */
    bool is_at_work;   /* it gives when its work has ended */
    uint64_t heard_ns; /* when it was asked, or said anything */
    gml_share_terms terms;
    uint64_t idle_bytes, held_bytes;
    bool may_yield;       /* more than is idle, and was not asked to yet */
    uint64_t part_bytes;  /* that it is asked for */
    uint64_t given_bytes; /* of it, so far */
} neighbour;

typedef struct shared_device {
    pthread_mutex_t lock; /* guards the fields; held while others are asked */
    char *name;           /* NULL: not to be shared */
    uint64_t group;       /* for the name */
    int place;            /* of this process there; -1: not shared yet, or no more */
    gml_giver giver;
    neighbour neighbours[GML_SHARE_PLACES]; /* by their places */
    uint64_t taken_bytes;                   /* that others gave, */
    uint64_t handed_bytes;                  /* and of it what came as files */
    uint64_t came_bytes;                    /* of taken_bytes, by the questions that are open */
    uint64_t asked_bytes, asked_ns;         /* the last question, and when it was answered */
    uint64_t longest_ns;                    /* that one took */
    char why[GML_REASON_BYTES];             /* it could not be shared; "" */
} shared_device;

static shared_device devices[GML_TORCH_DEVICES];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void forget_neighbours(shared_device *self) {
    for (int place = 0; place < GML_SHARE_PLACES; place++) {
        self->neighbours[place] = (neighbour){.socket = -1};
    }
    self->place = -1;
}

static void init_devices(void) {
    for (int device = 0; device < GML_TORCH_DEVICES; device++) {
        (void)pthread_mutex_init(&devices[device].lock, NULL);
        (void)pthread_mutex_init(&devices[device].giver.incoming.lock, NULL);
        (void)pthread_mutex_init(&devices[device].giver.outgoing.lock, NULL);
        forget_neighbours(&devices[device]);
    }
}

static shared_device *device_at(int device) {
    (void)pthread_once(&once, init_devices);
    return device >= 0 && device < GML_TORCH_DEVICES ? &devices[device] : NULL;
}

static int number_of(const shared_device *self) {
    return (int)(self - devices);
}

/* ---- joining and leaving --------------------------------------------------------------------- */

/* What the device's lakes read: what others handed over, and what is to be left to CUDA. */
static void tell_lakes(shared_device *self) {
    gml_device *device = gml_registry_device(number_of(self));
    __atomic_store_n(&device->handed, &self->giver.incoming, __ATOMIC_RELEASE);
    __atomic_store_n(&device->spare_bytes, self->place < 0 ? 0 : GML_SPARE_BYTES, __ATOMIC_RELAXED);
}

/* Listens at the first place that is free; a negative errno where there is none. */
static int take_place(shared_device *self) {
    char name[GML_LETTER_NAME_BYTES];
    int socket = -EADDRINUSE;
    for (int place = 0; place < GML_SHARE_PLACES && socket == -EADDRINUSE; place++) {
        gml_letter_name(name, self->group, (unsigned)place);
        socket = gml_letter_listen(name);
        self->place = socket < 0 ? -1 : place;
    }
    return socket;
}

/* pre: the lock is held. */
static void join_locked(shared_device *self) {
    if (!self->name || self->place >= 0) {
        return;
    }
    int socket = take_place(self);
    self->why[0] = '\0';
    if (socket == -EADDRINUSE) {
        (void)gml_refuse(GML_UNSUPPORTED, self->why, sizeof self->why,
                         "%d processes share the device already, as many as can", GML_SHARE_PLACES);
    } else if (socket < 0) {
        (void)gml_refuse(GML_UNSUPPORTED, self->why, sizeof self->why,
                         "no socket can be made for it: error %d", -socket);
    } else if (gml_answer(socket, &self->giver, number_of(self)) != GML_OK) {
        (void)gml_refuse(GML_NO_HOST_MEMORY, self->why, sizeof self->why, "no thread can begin");
        self->place = -1;
    }
    tell_lakes(self);
}

static void part_from(neighbour *other) {
    gml_letter_close(other->socket);
    *other = (neighbour){.socket = -1};
}

/* pre: the lock is held. */
static void leave_locked(shared_device *self) {
    if (self->place >= 0) {
        gml_answer_no_more(&self->giver);
        (void)gml_handed_drop(&self->giver.incoming);
    }
    for (int place = 0; place < GML_SHARE_PLACES; place++) {
        part_from(&self->neighbours[place]);
    }
    self->place = -1;
    tell_lakes(self);
    free(self->name);
    self->name = NULL;
}

void gml_neighbours_join(int device) {
    shared_device *self = device_at(device);
    if (self) {
        pthread_mutex_lock(&self->lock);
        join_locked(self);
        pthread_mutex_unlock(&self->lock);
    }
}

/* The sockets are closed in a child as kept files. */
void gml_neighbours_forget(void) {
    gml_answer_forget();
    for (int device = 0; device < GML_TORCH_DEVICES; device++) {
        shared_device *self = &devices[device];
        (void)pthread_mutex_init(&self->lock, NULL);
        gml_handed_forget(&self->giver.incoming);
        gml_handed_forget(&self->giver.outgoing);
        forget_neighbours(self);
        self->taken_bytes = self->handed_bytes = self->longest_ns = 0;
        atomic_store(&self->giver.given_bytes, 0);
    }
}

gml_status gml_torch_share(int device, const char *name, int32_t priority, uint32_t weight,
                           char *reason, size_t reason_bytes) {
    shared_device *self = device_at(device);
    if (!self || !name[0] || !weight) {
        return gml_refuse(GML_INVALID_ARGUMENT, reason, reason_bytes, "%s",
                          !self     ? "there is no such device"
                          : !weight ? "a weight is above 0"
                                    : "what a device is shared by has a name");
    }
    char *copy = strdup(name);
    if (!copy) {
        return gml_refuse(GML_NO_HOST_MEMORY, reason, reason_bytes, "no host memory for a name");
    }
    pthread_mutex_lock(&self->lock);
    leave_locked(self);
    self->name = copy;
    self->group = gml_letter_group(copy);
    self->giver.terms = (gml_share_terms){priority, weight};
    if (gml_giver_lake(device, -1) >= 0) {
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

/* ---- one neighbour --------------------------------------------------------------------------- */

/* Whether an answer may still come soon. */
static bool is_awaited(const neighbour *other, uint64_t now_ns) {
    uint64_t silent_ns = now_ns - other->heard_ns;
    if (!other->owes || silent_ns < SILENT_MS * MILLISECOND_NS) {
        return other->owes;
    }
    uint64_t most_ms = other->is_at_work ? GIVE_MS : SLOW_MS;
    return silent_ns < most_ms * MILLISECOND_NS && !gml_letter_is_stopped(other->process);
}

static bool ask(neighbour *other, const gml_letter *letter) {
    other->owes = gml_letter_send(other->socket, letter, NULL);
    other->is_at_work = false;
    other->heard_ns = gml_clock_ns();
    if (!other->owes) {
        part_from(other);
    }
    return other->owes;
}

static bool look_at(neighbour *other) {
    const gml_letter letter = {.kind = GML_LETTER_LOOK};
    return ask(other, &letter);
}

/* Connects with who is at that place, if anybody is. unused: see gml_letter_try(). */
static bool meet(shared_device *self, int place, int *unused) {
    neighbour *other = &self->neighbours[place];
    char name[GML_LETTER_NAME_BYTES];
    if (other->socket < 0) {
        gml_letter_name(name, self->group, (unsigned)place);
        other->socket = gml_letter_try(name, unused, &other->process);
    }
    return other->socket >= 0;
}

/* What it was asked for it does not give now, as nobody takes it; and it is asked again when it has
 * answered that it is there. */
static void meet_again(shared_device *self, int place) {
    neighbour *other = &self->neighbours[place];
    uint64_t heard_ns = other->heard_ns;
    int unused = -1;
    part_from(other);
    if (meet(self, place, &unused) && look_at(other)) {
        other->heard_ns = heard_ns;
    }
    gml_letter_close(unused);
}

static void note_given(shared_device *self, neighbour *other, uint64_t more_bytes) {
    other->given_bytes += more_bytes;
    self->came_bytes += more_bytes;
}

/* Who was asked for none hands over nothing. */
static void keep_files(shared_device *self, neighbour *other, const gml_letter *letter,
                       const int *files) {
    for (uint32_t i = 0; i < letter->count; i++) {
        uint64_t size_bytes = letter->rest.sizes[i];
        if (!other->part_bytes) {
            (void)close(files[i]);
            continue;
        }
        gml_handed_add(&self->giver.incoming, (gml_shared_piece){files[i], size_bytes});
        self->handed_bytes += size_bytes;
        note_given(self, other, size_bytes);
    }
}

/* Notes what it says. */
static void hear(shared_device *self, neighbour *other, const gml_letter *letter,
                 const int *files) {
    other->heard_ns = gml_clock_ns();
    if (letter->kind == GML_LETTER_FILES) {
        keep_files(self, other, letter, files);
    } else if (letter->kind == GML_LETTER_WORKING || letter->kind == GML_LETTER_WAITING) {
        other->is_at_work = letter->kind == GML_LETTER_WAITING;
    } else {
        other->owes = false;
        other->idle_bytes = letter->idle_bytes;
        other->held_bytes = letter->held_bytes;
        other->may_yield =
            letter->kind == GML_LETTER_TOLD ? letter->flags & GML_LETTER_YIELDS : other->may_yield;
        other->terms = (gml_share_terms){letter->priority, letter->weight ? letter->weight : 1};
        if (letter->kind == GML_LETTER_GAVE && letter->bytes > other->given_bytes) {
            note_given(self, other, letter->bytes - other->given_bytes);
        }
    }
}

/* Reads all that it has said by now. Who ends a connection that served before, and is not giving,
 * may only have needed its place for others: it is met again. */
static void listen_to(shared_device *self, int place) {
    neighbour *other = &self->neighbours[place];
    gml_letter letter;
    int files[GML_LETTER_MOST_FILES];
    gml_received found = GML_RECEIVED;
    while (other->socket >= 0 && found == GML_RECEIVED) {
        found = gml_letter_receive(other->socket, &letter, files);
        if (found == GML_RECEIVED) {
            hear(self, other, &letter, files);
        }
    }
    if (found == GML_RECEIVED_END && other->terms.weight && !other->part_bytes) {
        meet_again(self, place);
    } else if (found == GML_RECEIVED_END) {
        part_from(other);
    }
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Lists who is waited for, which who has been silent for too long is not any more. */
static size_t list_awaited(shared_device *self, struct pollfd *out) {
    uint64_t now_ns = gml_clock_ns();
    size_t count = 0;
    for (int place = 0; place < GML_SHARE_PLACES; place++) {
        neighbour *other = &self->neighbours[place];
        if (is_awaited(other, now_ns)) {
            out[count++] = (struct pollfd){other->socket, POLLIN, 0};
        } else if (other->owes && other->part_bytes) {
            meet_again(self, place);
        }
    }
    return count;
}

/* Of those that have answered, and gave what they were asked for. */
static uint64_t idle_elsewhere(const shared_device *self) {
    uint64_t idle_bytes = 0;
    for (int place = 0; place < GML_SHARE_PLACES; place++) {
        const neighbour *other = &self->neighbours[place];
        bool has_more = !other->owes && other->given_bytes >= other->part_bytes;
        idle_bytes += has_more ? other->idle_bytes : 0;
    }
    return idle_bytes;
}

/* Waits until each has answered or is passed over; for who runs but is slow only as long as what
 * came and what the others have idle is less than `wanted_bytes`. */
static void await_all(shared_device *self, uint64_t wanted_bytes) {
    struct pollfd awaited[GML_SHARE_PLACES];
    uint64_t began_ns = gml_clock_ns();
    size_t count;
    while ((count = list_awaited(self, awaited)) > 0 &&
           (self->came_bytes + idle_elsewhere(self) < wanted_bytes ||
            gml_clock_ns() - began_ns < SILENT_MS * MILLISECOND_NS)) {
        (void)poll(awaited, count, SILENT_MS);
        for (int place = 0; place < GML_SHARE_PLACES; place++) {
            listen_to(self, place);
        }
    }
    for (int place = 0; place < GML_SHARE_PLACES; place++) {
        if (self->neighbours[place].owes && self->neighbours[place].part_bytes) {
            meet_again(self, place);
        }
    }
}

/* Asks all what they have, and waits as await_all() does. */
static void look_around(shared_device *self, uint64_t wanted_bytes) {
    int unused = -1;
    for (int place = 0; place < GML_SHARE_PLACES; place++) {
        neighbour *other = &self->neighbours[place];
        listen_to(self, place);
        other->idle_bytes = other->part_bytes = other->given_bytes = 0;
        if (place != self->place && !other->owes && meet(self, place, &unused) && !look_at(other) &&
            meet(self, place, &unused)) { /* see listen_to() */
            (void)look_at(other);
        }
    }
    gml_letter_close(unused);
    await_all(self, wanted_bytes);
}

static int by_order_of_giving(const void *left, const void *right) {
    const neighbour *one = *(neighbour *const *)left, *other = *(neighbour *const *)right;
    if (one->terms.priority != other->terms.priority) {
        return one->terms.priority < other->terms.priority ? -1 : 1;
    }
    double mine = (double)one->idle_bytes / one->terms.weight;
    double theirs = (double)other->idle_bytes / other->terms.weight;
    return mine > theirs ? -1 : mine < theirs;
}

/* Asks those who give first for parts of it, at once; whether anybody was asked. */
static bool ask_for_parts(shared_device *self, uint64_t wanted_bytes, bool as_files) {
    neighbour *asked[GML_SHARE_PLACES];
    size_t count = 0;
    bool is_any = false;
    for (int place = 0; place < GML_SHARE_PLACES; place++) {
        neighbour *other = &self->neighbours[place];
        bool has_given = other->given_bytes >= other->part_bytes; /* less: it has no more */
        other->part_bytes = other->given_bytes = 0;
        if (other->socket >= 0 && !other->owes && other->idle_bytes && has_given) {
            asked[count++] = other;
        }
    }
    qsort(asked, count, sizeof *asked, by_order_of_giving);
    for (size_t i = 0; i < count && wanted_bytes; i++) {
        neighbour *other = asked[i];
        uint64_t part = other->idle_bytes < wanted_bytes ? other->idle_bytes : wanted_bytes;
        const gml_letter letter = {
            .kind = GML_LETTER_TAKE, .bytes = part, .flags = as_files ? GML_LETTER_AS_FILES : 0};
        if (ask(other, &letter)) {
            other->part_bytes = part;
            other->idle_bytes = 0;
            wanted_bytes -= part;
            is_any = true;
        }
    }
    return is_any;
}

/* Asks the next one to give up what is not idle, of those that can; false: there is none. */
static bool ask_to_yield(shared_device *self, uint64_t wanted_bytes, bool as_files) {
    const gml_letter letter = {.kind = GML_LETTER_TAKE,
                               .bytes = wanted_bytes,
                               .flags = GML_LETTER_YIELDS | (as_files ? GML_LETTER_AS_FILES : 0)};
    neighbour *first = NULL;
    for (int place = 0; place < GML_SHARE_PLACES; place++) {
        neighbour *other = &self->neighbours[place];
        if (other->socket >= 0 && !other->owes && other->may_yield &&
            (!first || other->terms.priority < first->terms.priority)) {
            first = other;
        }
    }
    if (first && ask(first, &letter)) {
        first->may_yield = false;
        first->part_bytes = wanted_bytes;
        first->given_bytes = 0;
    }
    return first;
}

/* as_files: what is given need not be free on the device. pre: the lock is held. */
static uint64_t ask_locked(shared_device *self, uint64_t wanted_bytes, bool as_files) {
    self->came_bytes = 0;
    look_around(self, wanted_bytes);
    for (int round = 0; round < MOST_ROUNDS && self->came_bytes < wanted_bytes &&
                        ask_for_parts(self, wanted_bytes - self->came_bytes, as_files);
         round++) {
        await_all(self, wanted_bytes);
    }
    while (self->came_bytes < wanted_bytes &&
           ask_to_yield(self, wanted_bytes - self->came_bytes, as_files)) {
        await_all(self, UINT64_MAX);
    }
    self->taken_bytes += self->came_bytes;
    return self->came_bytes;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* What the device lacks for a request, which may also be served from files that came and were not
 * used yet, if `as_files`; 0: others cannot help, since this process's own limit stands against it,
 * or there is enough. *most_bytes: the most to ask for beyond. */
static uint64_t missing_bytes(int device, uint64_t size_bytes, bool as_files,
                              uint64_t *most_bytes) {
    uint64_t free_bytes, total_bytes;
    gml_giver_memory_info(device, &free_bytes, &total_bytes);
    if (size_bytes > gml_device_room(gml_registry_device(device)) ||
        (total_bytes && size_bytes > total_bytes)) {
        return 0;
    }
    uint64_t wanted_bytes = size_bytes + GML_SPARE_BYTES + ROUNDING_BYTES;
    uint64_t has_bytes =
        free_bytes + (as_files ? gml_handed_bytes(&devices[device].giver.incoming) : 0);
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

/* Whether the request has more memory now. pre: the device is shared, and the lock is held. */
static bool ask_for(shared_device *self, uint64_t size_bytes, bool is_for_lake) {
    int device = number_of(self);
    uint64_t most_bytes = 0, freed_bytes = 0;
    uint64_t missing = missing_bytes(device, size_bytes, is_for_lake, &most_bytes);
    if (missing && !is_for_lake) { /* what came as files is of use on the device only */
        freed_bytes = gml_handed_drop(&self->giver.incoming);
        missing -= freed_bytes < missing ? freed_bytes : missing;
    }
    if (missing) {
        uint64_t began_ns = gml_clock_ns();
        self->asked_bytes = raise_question(self, missing, most_bytes);
        freed_bytes += ask_locked(self, self->asked_bytes, is_for_lake);
        self->asked_ns = gml_clock_ns();
        uint64_t took_ns = self->asked_ns - began_ns;
        self->longest_ns = took_ns > self->longest_ns ? took_ns : self->longest_ns;
    }
    return freed_bytes > 0;
}

bool gml_torch_ask_neighbours(int device, uint64_t size_bytes, bool is_for_lake) {
    shared_device *self = device_at(device);
    if (!self) {
        return false;
    }
    pthread_mutex_lock(&self->lock);
    if (self->place >= 0) {
        gml_note_tried(GML_TRIED_PROCESSES);
    }
    bool has_more = self->place >= 0 && ask_for(self, size_bytes, is_for_lake);
    pthread_mutex_unlock(&self->lock);
    return has_more;
}

bool gml_torch_make_room(int device, uint64_t wanted_bytes) {
    shared_device *self = device_at(device);
    if (!self) {
        return false;
    }
    pthread_mutex_lock(&self->lock);
    uint64_t taken_bytes = self->name ? ask_locked(self, wanted_bytes, false) : 0;
    pthread_mutex_unlock(&self->lock);
    return taken_bytes > 0;
}

/* pre: the lock is held. */
static size_t list_locked(const shared_device *self, gml_torch_neighbour out[GML_SHARE_PLACES]) {
    size_t count = 0;
    for (int place = 0; place < GML_SHARE_PLACES; place++) {
        const neighbour *other = &self->neighbours[place];
        if (other->socket >= 0) {
            out[count++] = (gml_torch_neighbour){
                .process = other->process,
                .priority = other->terms.priority,
                .held_bytes = other->held_bytes,
                .idle_bytes = other->idle_bytes,
                .is_silent = other->owes,
                .is_stopped = other->owes && gml_letter_is_stopped(other->process),
            };
        }
    }
    return count;
}

size_t gml_torch_neighbours(int device, gml_torch_neighbour out[GML_SHARE_PLACES]) {
    shared_device *self = device_at(device);
    if (!self) {
        return 0;
    }
    pthread_mutex_lock(&self->lock);
    if (self->place >= 0) {
        look_around(self, UINT64_MAX);
    }
    size_t count = list_locked(self, out);
    pthread_mutex_unlock(&self->lock);
    return count;
}

size_t gml_torch_look_at(const char *name, gml_torch_neighbour out[GML_SHARE_PLACES]) {
    shared_device *guest = calloc(1, sizeof *guest); /* nobody else has it, so it needs no lock */
    if (!guest) {
        return 0;
    }
    forget_neighbours(guest);
    guest->group = gml_letter_group(name);
    look_around(guest, UINT64_MAX);
    size_t count = list_locked(guest, out);
    for (int place = 0; place < GML_SHARE_PLACES; place++) {
        part_from(&guest->neighbours[place]);
    }
    free(guest);
    return count;
}

void gml_neighbours_tell(gml_situation *out) {
    gml_torch_neighbour others[GML_SHARE_PLACES];
    shared_device *self = device_at((int)out->device);
    if (!self) {
        return;
    }
    pthread_mutex_lock(&self->lock);
    out->processes = list_locked(self, others);
    pthread_mutex_unlock(&self->lock);
    for (size_t i = 0; i < out->processes; i++) {
        out->processes_held_bytes += others[i].held_bytes;
        out->processes_idle_bytes += others[i].idle_bytes;
        out->processes_silent += others[i].is_silent;
    }
}

void gml_torch_sharing(int device, gml_torch_shared *out) {
    shared_device *self = device_at(device);
    *out = (gml_torch_shared){0};
    if (!self) {
        return;
    }
    pthread_mutex_lock(&self->lock);
    out->is_shared = self->place >= 0;
    out->taken_bytes = self->taken_bytes;
    out->handed_bytes = self->handed_bytes;
    out->longest_ns = self->longest_ns;
    out->given_bytes = atomic_load(&self->giver.given_bytes);
    (void)snprintf(out->why, sizeof out->why, "%s", self->why);
    pthread_mutex_unlock(&self->lock);
}
