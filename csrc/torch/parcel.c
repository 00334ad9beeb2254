/* Datagrams between abstract sockets: the sizes of the pieces, and their files beside them. Anybody
 * can send to such a socket, so a message says whose it is. */
#include "torch/parcel.h"

#include "driver/kept_files.h"

#include <stddef.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { NAME_BYTES = sizeof(uint64_t[GML_PARCEL_NAME_WORDS]) };

typedef struct parcel {
    uint64_t sizes[GML_HANDED_MOST];
    int files[GML_HANDED_MOST];
    size_t count;
} parcel;

/* The control part of a message: of the files, and of who sent them. */
typedef union control {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int[GML_HANDED_MOST])) + CMSG_SPACE(sizeof(struct ucred))];
} control;

static socklen_t address_of(const uint64_t name[GML_PARCEL_NAME_WORDS], struct sockaddr_un *out) {
    memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    memcpy(out->sun_path + 1, name, NAME_BYTES);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + NAME_BYTES);
}

int gml_parcel_open(uint64_t name[GML_PARCEL_NAME_WORDS]) {
    const int yes = 1;
    struct sockaddr_un at;
    int made = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (made >= 0 && (getrandom(name, NAME_BYTES, 0) != NAME_BYTES || !name[0] ||
                      setsockopt(made, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) != 0 ||
                      bind(made, (struct sockaddr *)&at, address_of(name, &at)) != 0)) {
        (void)close(made);
        made = -1;
    }
    return made;
}

/* ---- sending --------------------------------------------------------------------------------- */

static void pack(gml_handed *pieces, parcel *out) {
    pthread_mutex_lock(&pieces->lock);
    out->count = pieces->count;
    for (size_t i = 0; i < out->count; i++) {
        out->sizes[i] = pieces->pieces[i].size_bytes;
        out->files[i] = pieces->pieces[i].file;
    }
    pthread_mutex_unlock(&pieces->lock);
}

void gml_parcel_send(int socket, const uint64_t name[GML_PARCEL_NAME_WORDS], gml_handed *pieces) {
    parcel sent;
    control files = {0};
    struct sockaddr_un to;
    pack(pieces, &sent);
    size_t files_bytes = sent.count * sizeof *sent.files;
    files.head.cmsg_level = SOL_SOCKET;
    files.head.cmsg_type = SCM_RIGHTS;
    files.head.cmsg_len = CMSG_LEN(files_bytes);
    memcpy(CMSG_DATA(&files.head), sent.files, files_bytes);
    struct iovec sizes = {sent.sizes, sent.count * sizeof *sent.sizes};
    struct msghdr message = {.msg_name = &to,
                             .msg_namelen = address_of(name, &to),
                             .msg_iov = &sizes,
                             .msg_iovlen = 1,
                             .msg_control = &files,
                             .msg_controllen = CMSG_SPACE(files_bytes)};
    if (sent.count) {
        (void)sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    (void)gml_handed_drop(pieces);
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Reads what came beside a message; whether this user sent it. */
static bool unpack(struct msghdr *message, parcel *out) {
    bool is_ours = false;
    out->count = 0;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR(message, at)) {
        if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_RIGHTS) {
            out->count = (at->cmsg_len - CMSG_LEN(0)) / sizeof *out->files;
            memcpy(out->files, CMSG_DATA(at), out->count * sizeof *out->files);
        } else if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_CREDENTIALS) {
            struct ucred sender;
            memcpy(&sender, CMSG_DATA(at), sizeof sender);
            is_ours = sender.uid == geteuid();
        }
    }
    return is_ours;
}

/* How many files may come: the kernel closes the others. Even, as room for an odd one is room for
 * two. */
static size_t most_files(void) {
    size_t room = gml_kept_files_room();
    return room < GML_HANDED_MOST ? room - room % 2 : GML_HANDED_MOST;
}

/* One message; false: there is none. */
static bool receive_one(int socket, gml_handed *pieces, uint64_t *sum_bytes) {
    parcel got;
    control beside = {0};
    size_t files_bytes = most_files() * sizeof *got.files;
    struct iovec sizes = {got.sizes, sizeof got.sizes};
    struct msghdr message = {.msg_iov = &sizes,
                             .msg_iovlen = 1,
                             .msg_control = &beside,
                             .msg_controllen =
                                 CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(files_bytes)};
    ssize_t told = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (told < 0) {
        return false;
    }
    bool is_ours = unpack(&message, &got);
    for (size_t i = 0; i < got.count; i++) {
        if (is_ours && (i + 1) * sizeof *got.sizes <= (size_t)told) {
            gml_handed_add(pieces, (gml_shared_piece){got.files[i], got.sizes[i]});
            *sum_bytes += got.sizes[i];
        } else {
            (void)close(got.files[i]);
        }
    }
    return true;
}

uint64_t gml_parcel_receive(int socket, gml_handed *pieces) {
    uint64_t sum_bytes = 0;
    while (receive_one(socket, pieces, &sum_bytes)) {
    }
    return sum_bytes;
}
