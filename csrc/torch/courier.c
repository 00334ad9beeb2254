/* A thread that serves one connection after another on an abstract socket: it reads a ticket, then
 * sends an answer, then a message for each file with the size of its memory.
 */
#include "torch/courier.h"

#include "base/status.h"
#include "lake/lake.h"
#include "torch/registry.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* WAY_BYTES: of messages in flight, few enough for the kernel's limit on files in flight.
 */
enum { MOST_PIECES = 1 << 20, MOST_WAITING = 128, PATIENCE_S = 60, WAY_BYTES = 1 << 14 };

typedef struct answer {
    uint64_t count; /* of the pieces that follow; 0: `reason` says why */
    char reason[GML_REASON_BYTES];
} answer;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int listener = -1; /* guarded by the lock; never closed but in a forked child */
static bool watches_forks;
static uint8_t own_name[GML_COURIER_NAME_BYTES];

/* ---- both sides ------------------------------------------------------------------------------ */

static socklen_t address_of(const uint8_t *name, struct sockaddr_un *out) {
    memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    memcpy(out->sun_path + 1, name, GML_COURIER_NAME_BYTES);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + GML_COURIER_NAME_BYTES);
}

/* Whether the other end is a process of this user's; it is not waited for without end. */
static bool is_trusted(int peer) {
    struct ucred who;
    socklen_t size = sizeof who;
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    const int way_bytes = WAY_BYTES;
    errno = EPERM;
    return getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == geteuid() &&
           setsockopt(peer, SOL_SOCKET, SO_SNDBUF, &way_bytes, sizeof way_bytes) == 0 &&
           setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
           setsockopt(peer, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0;
}

/* A message about one piece; its file travels beside it. */
typedef struct letter {
    uint64_t size_bytes;
    struct iovec text;
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } file;
    struct msghdr message;
} letter;

static void prepare(letter *out) {
    memset(out, 0, sizeof *out);
    out->text = (struct iovec){&out->size_bytes, sizeof out->size_bytes};
    out->message = (struct msghdr){.msg_iov = &out->text,
                                   .msg_iovlen = 1,
                                   .msg_control = out->file.bytes,
                                   .msg_controllen = sizeof out->file.bytes};
}

/* ---- giving ---------------------------------------------------------------------------------- */

static bool send_piece(int peer, const gml_shared_piece *piece) {
    letter sent;
    prepare(&sent);
    sent.size_bytes = piece->size_bytes;
    sent.file.head.cmsg_level = SOL_SOCKET;
    sent.file.head.cmsg_type = SCM_RIGHTS;
    sent.file.head.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&sent.file.head), &piece->file, sizeof(int));
    return sendmsg(peer, &sent.message, MSG_NOSIGNAL) >= 0;
}

/* Borrows the files of the block; none if it is not what the ticket is for. */
static gml_shared_piece *borrow(const gml_ticket *ticket, answer *out) {
    (void)snprintf(out->reason, sizeof out->reason, "what it shared is gone");
    for (int number = gml_registry_next(-1); number >= 0; number = gml_registry_next(number)) {
        gml_lake *lake = gml_torch_lake(number);
        gml_lent about = {0};
        if (gml_lake_lend(lake, ticket->address, NULL, 0, &about) != GML_OK ||
            about.mark != ticket->mark) {
            continue;
        }
        gml_shared_piece *pieces = malloc(about.count * sizeof *pieces);
        if (pieces && gml_lake_lend(lake, ticket->address, pieces, about.count, &about) == GML_OK) {
            out->count = about.count;
            return pieces;
        }
        gml_lake_reason(lake, out->reason, sizeof out->reason);
        free(pieces);
    }
    return NULL;
}

static void serve(int peer) {
    gml_ticket ticket;
    answer found = {0};
    if (!is_trusted(peer) || recv(peer, &ticket, sizeof ticket, 0) != (ssize_t)sizeof ticket) {
        return;
    }
    gml_shared_piece *pieces = borrow(&ticket, &found);
    bool is_well = send(peer, &found, sizeof found, MSG_NOSIGNAL) >= 0;
    for (size_t i = 0; i < found.count; i++) {
        is_well = is_well && send_piece(peer, &pieces[i]);
        (void)close(pieces[i].file);
    }
    free(pieces);
}

static void *wait_for_peers(void *context) {
    int at = (int)(intptr_t)context;
    for (;;) {
        int peer = accept4(at, NULL, NULL, SOCK_CLOEXEC);
        if (peer < 0) {
            (void)usleep(10000); /* no file may be left for now */
            continue;
        }
        serve(peer);
        (void)close(peer);
    }
    return NULL;
}

/* Else its copy of the socket would let others connect to what never answers. */
static void forget_in_child(void) {
    (void)pthread_mutex_init(&lock, NULL);
    (void)(listener < 0 || close(listener));
    listener = -1;
}

static int begin_locked(void) {
    struct sockaddr_un at;
    sigset_t all, before;
    pthread_t thread;
    if (!watches_forks && pthread_atfork(NULL, NULL, forget_in_child) != 0) {
        return -ENOMEM;
    }
    watches_forks = true;
    int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (made < 0 || getrandom(own_name, sizeof own_name, 0) != (ssize_t)sizeof own_name ||
        bind(made, (struct sockaddr *)&at, address_of(own_name, &at)) != 0 ||
        listen(made, MOST_WAITING) != 0) {
        int error = errno;
        (void)(made < 0 || close(made));
        return -error;
    }
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the program's affair */
    int error = pthread_create(&thread, NULL, wait_for_peers, (void *)(intptr_t)made);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        (void)close(made);
        return -error;
    }
    (void)pthread_detach(thread);
    listener = made;
    return 0;
}

int gml_courier_name(uint8_t name[GML_COURIER_NAME_BYTES]) {
    pthread_mutex_lock(&lock);
    int error = listener < 0 ? begin_locked() : 0;
    memcpy(name, own_name, GML_COURIER_NAME_BYTES);
    pthread_mutex_unlock(&lock);
    return error;
}

/* ---- taking ---------------------------------------------------------------------------------- */

/* False, and errno says why, where none came. */
static bool receive_piece(int peer, gml_shared_piece *out) {
    letter got;
    prepare(&got);
    ssize_t size = recvmsg(peer, &got.message, MSG_CMSG_CLOEXEC);
    bool has_file = size > 0 && CMSG_FIRSTHDR(&got.message);
    errno = size < 0 ? errno : size == 0 ? ECONNRESET : EMFILE;
    if (has_file) {
        out->size_bytes = got.size_bytes;
        memcpy(&out->file, CMSG_DATA(&got.file.head), sizeof(int));
    }
    return has_file;
}

/* Returns the pieces, all of them or NULL, with the reason in `found` or in errno. */
static gml_shared_piece *take(int peer, const gml_ticket *ticket, answer *found) {
    if (!is_trusted(peer) || send(peer, ticket, sizeof *ticket, MSG_NOSIGNAL) < 0 ||
        recv(peer, found, sizeof *found, 0) != (ssize_t)sizeof *found || !found->count ||
        found->count > MOST_PIECES) {
        return NULL;
    }
    gml_shared_piece *pieces = malloc(found->count * sizeof *pieces);
    size_t done = 0;
    while (pieces && done < found->count && receive_piece(peer, &pieces[done])) {
        done++;
    }
    if (done == found->count) {
        return pieces;
    }
    int error = errno;
    while (done) {
        (void)close(pieces[--done].file);
    }
    free(pieces);
    errno = error;
    return NULL;
}

gml_status gml_courier_fetch(const gml_ticket *ticket, gml_shared_piece **pieces, size_t *count,
                             char *reason, size_t reason_bytes) {
    struct sockaddr_un at;
    answer found = {0};
    int peer = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    *pieces = NULL;
    errno = peer < 0 ? errno : 0;
    if (peer >= 0 && connect(peer, (struct sockaddr *)&at, address_of(ticket->name, &at)) == 0) {
        *pieces = take(peer, ticket, &found);
    }
    int error = errno;
    (void)(peer < 0 || close(peer));
    if (*pieces) {
        *count = found.count;
        return GML_OK;
    }
    found.reason[sizeof found.reason - 1] = '\0';
    (void)snprintf(reason, reason_bytes, "%s",
                   found.reason[0]         ? found.reason
                   : error == ECONNREFUSED ? "it has ended, or runs in another network namespace"
                   : error == EMFILE ? "this process may open no more files; raise `ulimit -n`"
                                     : strerror(error)); /* NOLINT(concurrency-mt-unsafe) */
    return GML_DRIVER_FAILED;
}
