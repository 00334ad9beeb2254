/* Files that go to another process: they arrive with their sizes, from this user only, and nothing
 * stays open where they do not. */
#include "driver/kept_files.h"
#include "support/check.h"
#include "torch/parcel.h"

#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534 };

static gml_handed out = {.lock = PTHREAD_MUTEX_INITIALIZER};
static gml_handed in = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int count_open_files(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder);
    if (!folder) {
        return 0;
    }
    while (readdir(folder)) { /* NOLINT(concurrency-mt-unsafe) */
        count++;
    }
    (void)closedir(folder);
    return count;
}

/* A file that is recognised by its size. */
static gml_shared_piece make_piece(uint64_t size_bytes) {
    int file = memfd_create("piece", MFD_CLOEXEC);
    CHECK(file >= 0 && ftruncate(file, (off_t)size_bytes) == 0);
    return (gml_shared_piece){file, size_bytes};
}

static void add_pieces(size_t count) {
    for (size_t i = 0; i < count; i++) {
        gml_handed_add(&out, make_piece(i + 1));
    }
}

TEST(pieces_arrive_with_their_files) {
    uint64_t name[GML_PARCEL_NAME_WORDS], other[GML_PARCEL_NAME_WORDS];
    int before = count_open_files();
    int to = gml_parcel_open(name), from = gml_parcel_open(other);
    CHECK(to >= 0 && from >= 0 && name[0] && memcmp(name, other, sizeof name) != 0);
    CHECK_EQ(gml_parcel_receive(to, &in), 0);
    add_pieces(GML_HANDED_MOST);
    gml_parcel_send(from, name, &out);
    CHECK_EQ(out.count, 0);
    add_pieces(2);
    gml_parcel_send(from, name, &out);
    CHECK_EQ(gml_parcel_receive(to, &in),
             (uint64_t)GML_HANDED_MOST * (GML_HANDED_MOST + 1) / 2 + 3);
    CHECK_EQ(in.count, GML_HANDED_MOST); /* no more than have room */
    for (uint64_t size_bytes = 1; size_bytes <= GML_HANDED_MOST; size_bytes++) {
        struct stat about = {0};
        int file = gml_handed_take(&in, size_bytes);
        CHECK(fstat(file, &about) == 0 && (fcntl(file, F_GETFD) & FD_CLOEXEC));
        CHECK_EQ(about.st_size, size_bytes);
        gml_kept_files_close(file);
    }
    CHECK_EQ(in.bytes, 0);
    (void)close(to);
    (void)close(from);
    CHECK_EQ(count_open_files(), before);
}

/* Messages that nobody reads are not waited for. */
TEST(a_full_socket_is_not_waited_for) {
    uint64_t name[GML_PARCEL_NAME_WORDS], other[GML_PARCEL_NAME_WORDS];
    int before = count_open_files();
    int to = gml_parcel_open(name), from = gml_parcel_open(other);
    for (int i = 0; i < 1000; i++) {
        gml_handed_add(&out, make_piece(1));
        gml_parcel_send(from, name, &out);
    }
    CHECK(gml_parcel_receive(to, &in) < 1000);
    (void)gml_handed_drop(&in);
    (void)close(to);
    (void)close(from);
    CHECK_EQ(count_open_files(), before);
}

/* Only root can be another user. */
TEST(files_of_other_users_are_closed) {
    uint64_t name[GML_PARCEL_NAME_WORDS], other[GML_PARCEL_NAME_WORDS];
    if (geteuid() != 0) {
        return;
    }
    int before = count_open_files();
    int to = gml_parcel_open(name);
    pid_t pid = fork();
    if (pid == 0) {
        int from = gml_parcel_open(other);
        add_pieces(2);
        gml_parcel_send(setresuid(NOBODY, NOBODY, NOBODY) == 0 ? from : -1, name, &out);
        _exit(0);
    }
    CHECK(waitpid(pid, NULL, 0) == pid);
    char byte = 0;
    CHECK(recv(to, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1); /* it has come */
    CHECK_EQ(gml_parcel_receive(to, &in), 0);
    CHECK_EQ(in.count, 0);
    (void)close(to);
    CHECK_EQ(count_open_files(), before);
}
