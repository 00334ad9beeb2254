/* Packets over abstract sockets. */
#include "torch/letters.h"

#include "base/fnv.h"
#include "driver/handed.h"
#include "torch/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* WAY_BYTES: of letters under way over one connection, few enough for the kernel's limit on files
 * under way. */
enum { HEAD_BYTES = offsetof(gml_letter, rest), MOST_WAITING = 1024, WAY_BYTES = 1 << 15 };

typedef union control {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int[GML_LETTER_MOST_FILES]))];
} control;

/* ---- names and connections ------------------------------------------------------------------- */

uint64_t gml_letter_group(const char *text) {
    uint64_t group = GML_FNV_BEGIN;
    for (; *text; text++) {
        group = gml_fnv_add(group, (unsigned char)*text);
    }
    return group;
}

void gml_letter_name(char out[GML_LETTER_NAME_BYTES], uint64_t group, unsigned place) {
    (void)snprintf(out, GML_LETTER_NAME_BYTES, "gmlake.3/%lu/%016llx/%u", (unsigned long)geteuid(),
                   (unsigned long long)group, place);
}

static socklen_t address_of(const char *name, struct sockaddr_un *out) {
    size_t size = strlen(name);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(out->sun_path + 1, name, size);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + size);
}

/* A new socket, of which a child of fork() gets nothing. */
static int open_socket(void) {
    int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made >= 0) {
        gml_kept_files_add(made);
    }
    return made;
}

void gml_letter_close(int socket) {
    if (socket >= 0) {
        gml_kept_files_close(socket);
    }
}

int gml_letter_listen(const char *name) {
    struct sockaddr_un at;
    int made = open_socket();
    if (made < 0 || bind(made, (struct sockaddr *)&at, address_of(name, &at)) != 0 ||
        listen(made, MOST_WAITING) != 0) {
        int error = errno;
        gml_letter_close(made);
        return -error;
    }
    return made;
}

/* Whether the other end is this user's; *process: its number. */
static bool is_trusted(int peer, pid_t *process) {
    struct ucred who;
    socklen_t size = sizeof who;
    const int way_bytes = WAY_BYTES;
    if (getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.uid != geteuid()) {
        errno = EPERM;
        return false;
    }
    *process = who.pid;
    return setsockopt(peer, SOL_SOCKET, SO_SNDBUF, &way_bytes, sizeof way_bytes) == 0;
}

static int trusted(int peer, pid_t *process) {
    if (peer >= 0 && !is_trusted(peer, process)) {
        int error = errno;
        gml_letter_close(peer);
        errno = error;
        return -1;
    }
    return peer;
}

int gml_letter_accept(int listener) {
    pid_t process = 0;
    int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (peer >= 0) {
        gml_kept_files_add(peer);
    }
    return trusted(peer, &process);
}

int gml_letter_try(const char *name, int *unused, pid_t *process) {
    struct sockaddr_un at;
    int made = *unused < 0 ? open_socket() : *unused;
    *unused = made;
    if (made < 0 || connect(made, (struct sockaddr *)&at, address_of(name, &at)) != 0) {
        return -1;
    }
    *unused = -1;
    return trusted(made, process);
}

int gml_letter_connect(const char *name, pid_t *process) {
    int unused = -1;
    int made = gml_letter_try(name, &unused, process);
    int error = errno;
    gml_letter_close(unused);
    errno = error;
    return made;
}

/* ---- letters --------------------------------------------------------------------------------- */

static size_t rest_bytes(const gml_letter *letter) {
    return letter->kind == GML_LETTER_FILES     ? letter->count * sizeof *letter->rest.sizes
           : letter->kind == GML_LETTER_REFUSED ? sizeof letter->rest.text
           : letter->kind == GML_LETTER_COUNTED ? sizeof(gml_counters)
                                                : 0;
}

bool gml_letter_send(int socket, const gml_letter *letter, const int *files) {
    control beside = {0};
    size_t files_bytes = letter->count * sizeof *files;
    struct iovec text = {(void *)letter, HEAD_BYTES + rest_bytes(letter)};
    struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1};
    if (files_bytes) {
        beside.head.cmsg_level = SOL_SOCKET;
        beside.head.cmsg_type = SCM_RIGHTS;
        beside.head.cmsg_len = CMSG_LEN(files_bytes);
        memcpy(CMSG_DATA(&beside.head), files, files_bytes);
        message.msg_control = &beside;
        message.msg_controllen = CMSG_SPACE(files_bytes);
    }
    return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

/* How many files may come: the kernel closes the others. Even, as room for an odd one is room for
 * two. */
static size_t most_files(void) {
    size_t room = gml_kept_files_room();
    return room < GML_LETTER_MOST_FILES ? room - room % 2 : GML_LETTER_MOST_FILES;
}

/* The files that came beside a letter; returns how many. */
static size_t unpack(struct msghdr *message, int files[GML_LETTER_MOST_FILES]) {
    size_t count = 0;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR(message, at)) {
        if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_RIGHTS) {
            count = (at->cmsg_len - CMSG_LEN(0)) / sizeof *files;
            memcpy(files, CMSG_DATA(at), count * sizeof *files);
        }
    }
    return count;
}

gml_received gml_letter_receive(int socket, gml_letter *letter, int *files) {
    control beside = {0};
    struct iovec text = {letter, offsetof(gml_letter, lost)};
    struct msghdr message = {.msg_iov = &text,
                             .msg_iovlen = 1,
                             .msg_control = &beside,
                             .msg_controllen = CMSG_SPACE(most_files() * sizeof *files)};
    ssize_t size = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
        return GML_RECEIVED_NOTHING;
    }
    int unpacked[GML_LETTER_MOST_FILES];
    int *came = files ? files : unpacked;
    size_t count = size > 0 ? unpack(&message, came) : 0;
    bool is_whole = size >= HEAD_BYTES && letter->count <= GML_LETTER_MOST_FILES &&
                    (letter->kind == GML_LETTER_FILES || !letter->count) &&
                    (size_t)size == HEAD_BYTES + rest_bytes(letter) && count <= letter->count;
    while (count && !(is_whole && files)) {
        (void)close(came[--count]);
    }
    if (!is_whole) {
        return GML_RECEIVED_END;
    }
    letter->lost = letter->count - (uint32_t)count;
    letter->count = (uint32_t)count;
    return GML_RECEIVED;
}

bool gml_letter_await(int socket, gml_letter *letter, int *files, int most_ms) {
    struct pollfd awaited = {socket, POLLIN, 0};
    gml_received found = GML_RECEIVED_NOTHING;
    while (found == GML_RECEIVED_NOTHING && poll(&awaited, 1, most_ms) > 0) {
        found = gml_letter_receive(socket, letter, files);
    }
    errno = found == GML_RECEIVED_END ? ECONNRESET : ETIMEDOUT;
    return found == GML_RECEIVED;
}

bool gml_letter_is_stopped(pid_t process) {
    char path[32], text[512];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    int file = process > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t size = file < 0 ? 0 : read(file, text, sizeof text - 1);
    (void)(file < 0 || close(file));
    text[size > 0 ? size : 0] = '\0';
    const char *name_end = strrchr(text, ')'); /* the name is the program's choice */
    char state = name_end && name_end[1] ? name_end[2] : 'X';
    return state == 'T' || state == 't' || state == 'Z' || state == 'X';
}
