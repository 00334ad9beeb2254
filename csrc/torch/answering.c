/* One loop over all sockets. */
#include "torch/answering.h"

#include "base/clock.h"
#include "lake/lake.h"
#include "torch/letters.h"
#include "torch/publish.h"
#include "torch/registry.h"
#include "torch/relief.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#define MILLISECOND_NS UINT64_C(1000000)

/* What is given before the next word, so that who asks sees that it goes on. */
#define PART_BYTES (UINT64_C(1) << 30)

enum {
    MOST_LISTENERS = GML_TORCH_DEVICES + 2, /* blocks, and counters */
    MOST_CLIENTS = 256,
    WORK_MS = 5000,   /* the longest wait for work that is queued */
    YIELD_MS = 10000, /* the longest wait for what is given up, which the program's own code does */
    NOTE_MS = 5,      /* between words that it is waited for */
    PAUSE_US = 200,   /* between looks at that work */
    FULL_MS = 10,     /* while this process may open no more files */
    FETCH_FILES = 16  /* beside one letter of a block, whose files may be many */
};

typedef struct listener {
    int socket;
    gml_giver *giver;
    int device;
} listener;

/* A process that asks. */
typedef struct client {
    int socket;
    gml_giver *giver; /* who was asked */
    int device;
    uint64_t heard_ns;
    bool is_given; /* a question for memory is worked on: */
    bool takes_files;
    bool waits;  /* for all work, and gives what is idle then */
    bool yields; /* more than is idle, after that */
    bool is_yielding;
    bool is_flowing; /* the last look gave some */
    uint64_t wanted_bytes, given_bytes, flowed_ns, noted_ns;
    gml_shared_piece *pieces; /* of a block, on their way; the files are open from `sent` on */
    size_t count, sent;
} client;

static pthread_mutex_t changes = PTHREAD_MUTEX_INITIALIZER; /* of the names; taken first */

/* Giving up memory that is not idle: in a thread of its own, as it runs the program's code. */
typedef struct yielding {
    pthread_t thread;
    bool is_begun;
    _Atomic bool is_over;
    int socket; /* of the client */
    int device;
    uint64_t wanted_bytes, given_bytes;
} yielding;

static struct {
    pthread_mutex_t lock; /* guards the rest; the thread has it but while it sleeps */
    uint64_t group;       /* of the name for shared blocks; 0: none */
    bool is_running;
    pthread_t thread;
    int bell; /* wakes the thread */
    listener listeners[MOST_LISTENERS];
    size_t listener_count;
    client clients[MOST_CLIENTS];
    size_t client_count;
    yielding yielding; /* for one client after the other */
} self = {.lock = PTHREAD_MUTEX_INITIALIZER, .bell = -1};

/* ---- clients --------------------------------------------------------------------------------- */

static void drop_pieces(client *of) {
    for (; of->sent < of->count; of->sent++) {
        (void)close(of->pieces[of->sent].file);
    }
    free(of->pieces);
    of->pieces = NULL;
    of->count = of->sent = 0;
}

static void drop_client(size_t index) {
    client *dropped = &self.clients[index];
    drop_pieces(dropped);
    gml_letter_close(dropped->socket);
    self.client_count--;
    *dropped = self.clients[self.client_count];
}

static bool is_busy(const client *one) {
    return one->is_given || one->pieces;
}

/* Who has been silent for longest gives its place to a new one. */
static bool make_place(void) {
    size_t oldest = self.client_count;
    for (size_t i = 0; i < self.client_count; i++) {
        bool is_older =
            oldest == self.client_count || self.clients[i].heard_ns < self.clients[oldest].heard_ns;
        oldest = !is_busy(&self.clients[i]) && is_older ? i : oldest;
    }
    if (self.client_count == MOST_CLIENTS && oldest < self.client_count) {
        drop_client(oldest);
    }
    return self.client_count < MOST_CLIENTS;
}

static void accept_all(const listener *from) {
    const struct timespec pause = {.tv_nsec = FULL_MS * MILLISECOND_NS};
    int socket = 0;
    while (make_place() && socket >= 0) {
        socket = gml_letter_accept(from->socket);
        if (socket >= 0) {
            self.clients[self.client_count] = (client){.socket = socket,
                                                       .giver = from->giver,
                                                       .device = from->device,
                                                       .heard_ns = gml_clock_ns()};
            self.client_count++;
        }
    }
    if (socket < 0 && (errno == EMFILE || errno == ENFILE)) {
        (void)nanosleep(&pause, NULL); /* who waits stays there */
    }
}

/* ---- giving ---------------------------------------------------------------------------------- */

/* Looks at no lake, which another thread may have for long. */
static bool say(client *to, gml_letter_kind kind) {
    const gml_letter word = {.kind = kind};
    return gml_letter_send(to->socket, &word, NULL);
}

static bool tell(client *to, gml_letter_kind kind) {
    gml_letter letter = {.kind = kind,
                         .priority = to->giver->terms.priority,
                         .weight = to->giver->terms.weight,
                         .bytes = to->given_bytes,
                         .idle_bytes = gml_giver_idle(to->giver, to->device),
                         .held_bytes = gml_giver_held(to->device),
                         .flags = gml_relief_may_give(to->device) ? GML_LETTER_YIELDS : 0};
    return gml_letter_send(to->socket, &letter, NULL);
}

/* Sends what was given, and closes it here. What cannot be sent goes back to the device. */
static void send_given(client *to, gml_handed *given) {
    gml_letter letter = {.kind = GML_LETTER_FILES};
    int files[GML_LETTER_MOST_FILES];
    for (size_t i = 0; i < given->count; i += letter.count) { /* nobody else has them */
        size_t left = given->count - i;
        letter.count = (uint32_t)(left < GML_LETTER_MOST_FILES ? left : GML_LETTER_MOST_FILES);
        for (uint32_t j = 0; j < letter.count; j++) {
            letter.rest.sizes[j] = given->pieces[i + j].size_bytes;
            files[j] = given->pieces[i + j].file;
        }
        (void)gml_letter_send(to->socket, &letter, files);
    }
    (void)gml_handed_drop(given);
}

/* Gives the next part; *may_go_on: there is more, at once or as work ends. */
static void give_some(client *to, bool waits, bool *may_go_on) {
    bool is_pending = false;
    gml_handed *files = to->takes_files ? &to->giver->outgoing : NULL;
    uint64_t left_bytes = to->wanted_bytes - to->given_bytes;
    uint64_t part_bytes = left_bytes < PART_BYTES ? left_bytes : PART_BYTES;
    uint64_t given_bytes =
        gml_giver_give(to->giver, to->device, part_bytes, files, waits, &is_pending);
    if (files) {
        send_given(to, files);
    }
    to->given_bytes += given_bytes;
    to->is_flowing = given_bytes > 0;
    to->flowed_ns = to->is_flowing ? gml_clock_ns() : to->flowed_ns;
    *may_go_on = to->given_bytes < to->wanted_bytes && (is_pending || given_bytes >= part_bytes);
}

static void *yield(void *argument) {
    yielding *work = argument;
    work->given_bytes = gml_relief_give(work->device, work->wanted_bytes);
    atomic_store(&work->is_over, true);
    return NULL;
}

static int begin_thread(pthread_t *thread, void *(*run)(void *), void *argument) {
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the program's affair */
    int error = pthread_create(thread, NULL, run, argument);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Begins to give up memory for this client, or looks whether that is over; false where there is
 * nothing to wait for any more. */
static bool yield_on(client *to) {
    yielding *work = &self.yielding;
    bool may_wait = gml_clock_ns() - to->flowed_ns < YIELD_MS * MILLISECOND_NS;
    if (work->is_begun && !atomic_load(&work->is_over)) {
        return may_wait;
    }
    if (work->is_begun) {
        (void)pthread_join(work->thread, NULL);
        work->is_begun = false;
        if (work->socket == to->socket) {
            to->given_bytes += work->given_bytes;
            atomic_fetch_add(&to->giver->given_bytes, work->given_bytes);
            return false;
        }
    }
    *work = (yielding){.socket = to->socket,
                       .device = to->device,
                       .wanted_bytes = to->wanted_bytes - to->given_bytes};
    work->is_begun = begin_thread(&work->thread, yield, work) == 0;
    return work->is_begun;
}

/* Says from time to time that it goes on; false if the other one is gone. */
static bool note(client *to, uint64_t now_ns) {
    bool is_due = now_ns - to->noted_ns >= NOTE_MS * MILLISECOND_NS;
    to->noted_ns = is_due ? now_ns : to->noted_ns;
    return !is_due || say(to, GML_LETTER_WORKING);
}

/* First without waiting; then as work ends; then what cannot be told to be unused; and last what is
 * given up, if it is to be. False if the other one is gone. */
static bool work_on(client *to) {
    bool may_go_on = false;
    if (!to->is_yielding && to->given_bytes < to->wanted_bytes) {
        give_some(to, to->waits, &may_go_on);
    }
    uint64_t now_ns = gml_clock_ns();
    if (may_go_on && now_ns - to->flowed_ns < WORK_MS * MILLISECOND_NS) {
        return note(to, now_ns);
    }
    if (to->given_bytes < to->wanted_bytes && !to->waits && !to->is_yielding &&
        gml_giver_idle(to->giver, to->device)) {
        to->waits = true;
        return say(to, GML_LETTER_WAITING);
    }
    if (to->given_bytes < to->wanted_bytes && to->yields) {
        to->is_yielding = yield_on(to);
        to->yields = to->is_yielding; /* once, and then what became idle is given */
        return note(to, now_ns);
    }
    to->is_given = false;
    return tell(to, GML_LETTER_GAVE);
}

static void begin_giving(client *to, const gml_letter *asked) {
    to->is_given = true;
    to->waits = to->is_yielding = false;
    to->yields = asked->flags & GML_LETTER_YIELDS && gml_relief_may_give(to->device);
    to->takes_files = asked->flags & GML_LETTER_AS_FILES;
    to->wanted_bytes = asked->bytes;
    to->given_bytes = to->takes_files ? gml_giver_spare(to->giver, to->device) : 0;
    to->flowed_ns = to->noted_ns = gml_clock_ns();
}

/* ---- files of a block ------------------------------------------------------------------------ */

/* Borrows the files of the block that is asked for; none, and `text` says why, if it is not there
 * any more. */
static gml_shared_piece *borrow(const gml_letter *asked, size_t *count, char *text,
                                size_t text_bytes) {
    (void)snprintf(text, text_bytes, "what it shared is gone");
    for (int number = gml_registry_next(-1); number >= 0; number = gml_registry_next(number)) {
        gml_lake *lake = gml_torch_lake(number);
        gml_lent about = {0};
        if (gml_lake_lend(lake, asked->address, NULL, 0, &about) != GML_OK ||
            about.mark != asked->mark) {
            continue;
        }
        gml_shared_piece *pieces = malloc(about.count * sizeof *pieces);
        if (pieces && gml_lake_lend(lake, asked->address, pieces, about.count, &about) == GML_OK) {
            *count = about.count;
            return pieces;
        }
        gml_lake_reason(lake, text, text_bytes);
        free(pieces);
    }
    return NULL;
}

static bool begin_lending(client *to, const gml_letter *asked) {
    gml_letter refused = {.kind = GML_LETTER_REFUSED};
    drop_pieces(to);
    to->pieces = borrow(asked, &to->count, refused.rest.text, sizeof refused.rest.text);
    return to->pieces || gml_letter_send(to->socket, &refused, NULL);
}

/* Sends as many files as there is room for under way. False if the other one is gone. */
static bool lend_on(client *to) {
    while (to->sent < to->count) {
        gml_letter letter = {.kind = GML_LETTER_FILES};
        int files[FETCH_FILES];
        size_t left = to->count - to->sent;
        letter.count = (uint32_t)(left < FETCH_FILES ? left : FETCH_FILES);
        letter.bytes = left - letter.count;
        for (uint32_t i = 0; i < letter.count; i++) {
            letter.rest.sizes[i] = to->pieces[to->sent + i].size_bytes;
            files[i] = to->pieces[to->sent + i].file;
        }
        if (!gml_letter_send(to->socket, &letter, files)) {
            return errno == EAGAIN || errno == ETOOMANYREFS;
        }
        for (uint32_t i = 0; i < letter.count; i++) {
            (void)close(files[i]);
        }
        to->sent += letter.count;
    }
    drop_pieces(to);
    return true;
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* False: this client is dropped. */
static bool answer(client *to, const gml_letter *asked) {
    to->heard_ns = gml_clock_ns();
    if (asked->kind == GML_LETTER_FETCH) {
        return begin_lending(to, asked);
    }
    if (asked->kind == GML_LETTER_COUNT) {
        return gml_publish_answer(to->socket);
    }
    if (!to->giver || is_busy(to)) {
        return false;
    }
    if (asked->kind == GML_LETTER_TAKE) {
        begin_giving(to, asked);
        return true;
    }
    return asked->kind == GML_LETTER_LOOK && tell(to, GML_LETTER_TOLD);
}

/* Reads a letter and works on what was asked; false: this client is dropped. What somebody asked
 * who is gone is not given. */
static bool serve(client *one, short events) {
    gml_letter letter;
    if (events & (POLLHUP | POLLERR)) {
        return false;
    }
    gml_received found =
        events & POLLIN ? gml_letter_receive(one->socket, &letter, NULL) : GML_RECEIVED_NOTHING;
    return found != GML_RECEIVED_END && (found != GML_RECEIVED || answer(one, &letter)) &&
           (!one->pieces || lend_on(one)) && (!one->is_given || work_on(one));
}

/* Fills `out` with what to wait for: the bell, the clients, and new ones if there is a place. */
static size_t list_sockets(struct pollfd *out) {
    size_t count = 0;
    size_t busy_count = 0;
    out[count++] = (struct pollfd){self.bell, POLLIN, 0};
    for (size_t i = 0; i < self.client_count; i++) {
        short events = self.clients[i].pieces ? POLLIN | POLLOUT : POLLIN;
        out[count++] = (struct pollfd){self.clients[i].socket, events, 0};
        busy_count += is_busy(&self.clients[i]);
    }
    for (size_t i = 0; i < self.listener_count && busy_count < MOST_CLIENTS; i++) {
        out[count++] = (struct pollfd){self.listeners[i].socket, POLLIN, 0};
    }
    return count;
}

/* How long to wait for the next letter; NULL: until it comes. */
static const struct timespec *most_wait(void) {
    static const struct timespec none, pause = {.tv_nsec = (long)PAUSE_US * 1000};
    const struct timespec *most = NULL;
    for (size_t i = 0; i < self.client_count; i++) {
        const client *one = &self.clients[i];
        most = one->is_given && (one->is_flowing || most == &none) ? &none
               : one->is_given                                     ? &pause
                                                                   : most;
    }
    return most;
}

/* What happened to a socket; 0 also if that is not the socket that was waited for. */
static short events_of(const struct pollfd *seen, size_t count, int socket) {
    short events = 0;
    for (size_t i = 0; i < count; i++) {
        events |= seen[i].fd == socket ? seen[i].revents : 0;
    }
    return events;
}

static void serve_all(const struct pollfd *seen, size_t count) {
    for (size_t i = self.client_count; i--;) { /* the last one takes the place of who is dropped */
        if (!serve(&self.clients[i], events_of(seen, count, self.clients[i].socket))) {
            drop_client(i);
        }
    }
    for (size_t i = 0; i < self.listener_count; i++) {
        accept_all(&self.listeners[i]);
    }
}

static void *answer_all(void *unused) {
    static struct pollfd seen[1 + MOST_LISTENERS + MOST_CLIENTS];
    uint64_t rung;
    (void)unused;
    pthread_mutex_lock(&self.lock);
    while (self.listener_count) {
        size_t count = list_sockets(seen);
        const struct timespec *most = most_wait();
        pthread_mutex_unlock(&self.lock);
        (void)ppoll(seen, count, most, NULL);
        (void)!read(seen[0].fd, &rung, sizeof rung);
        pthread_mutex_lock(&self.lock);
        serve_all(seen, count);
    }
    pthread_mutex_unlock(&self.lock);
    return NULL;
}

/* ---- beginning and ending -------------------------------------------------------------------- */

static void ring(void) {
    const uint64_t one = 1;
    (void)!write(self.bell, &one, sizeof one);
}

/* pre: the lock is held. */
static gml_status begin_answering(void) {
    self.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = self.bell < 0 ? errno : begin_thread(&self.thread, answer_all, NULL);
    if (error && self.bell >= 0) {
        (void)close(self.bell);
    }
    self.is_running = !error;
    return error ? GML_NO_HOST_MEMORY : GML_OK;
}

/* pre: `changes` is held. */
static gml_status add_listener(int socket, gml_giver *giver, int device) {
    pthread_mutex_lock(&self.lock);
    self.listeners[self.listener_count] = (listener){socket, giver, device};
    self.listener_count++;
    gml_status status = self.is_running ? GML_OK : begin_answering();
    if (status == GML_OK) {
        ring();
    } else {
        self.listener_count--;
        gml_letter_close(socket);
    }
    pthread_mutex_unlock(&self.lock);
    return status;
}

gml_status gml_answer(int socket, gml_giver *giver, int device) {
    pthread_mutex_lock(&changes);
    gml_status status = add_listener(socket, giver, device);
    pthread_mutex_unlock(&changes);
    return status;
}

/* pre: `changes` is held. */
static int begin_lending_at(uint64_t group) {
    char name[GML_LETTER_NAME_BYTES];
    gml_letter_name(name, group, 0);
    int socket = gml_letter_listen(name);
    return socket < 0 ? socket : add_listener(socket, NULL, -1) == GML_OK ? 0 : -ENOMEM;
}

int gml_answer_about_blocks(uint64_t *group) {
    int error = 0;
    pthread_mutex_lock(&changes);
    if (!self.group) {
        uint64_t chosen = 0;
        error = getrandom(&chosen, sizeof chosen, 0) == sizeof chosen ? 0 : -errno;
        error = error ? error : begin_lending_at(chosen);
        self.group = error ? 0 : chosen;
    }
    *group = self.group;
    pthread_mutex_unlock(&changes);
    return error;
}

void gml_answer_no_more(const gml_giver *giver) {
    pthread_mutex_lock(&changes);
    pthread_mutex_lock(&self.lock);
    for (size_t i = self.listener_count; i--;) {
        if (self.listeners[i].giver == giver) {
            gml_letter_close(self.listeners[i].socket);
            self.listener_count--;
            self.listeners[i] = self.listeners[self.listener_count];
        }
    }
    for (size_t i = self.client_count; i--;) {
        if (self.clients[i].giver == giver) {
            drop_client(i);
        }
    }
    bool is_last = self.is_running && !self.listener_count;
    self.is_running &= !is_last;
    if (is_last) {
        ring();
    }
    pthread_mutex_unlock(&self.lock);
    if (is_last) {
        (void)pthread_join(self.thread, NULL);
        (void)close(self.bell);
        (void)(self.yielding.is_begun && pthread_join(self.yielding.thread, NULL));
        self.yielding.is_begun = false;
    }
    pthread_mutex_unlock(&changes);
}

/* The sockets are closed in a child as kept files. */
void gml_answer_forget(void) {
    (void)pthread_mutex_init(&changes, NULL);
    (void)pthread_mutex_init(&self.lock, NULL);
    for (size_t i = 0; i < self.client_count; i++) {
        for (client *of = &self.clients[i]; of->sent < of->count; of->sent++) {
            (void)close(of->pieces[of->sent].file);
        }
    }
    if (self.is_running) {
        (void)close(self.bell);
    }
    self.listener_count = self.client_count = 0;
    self.group = 0;
    self.is_running = self.yielding.is_begun = false;
}
