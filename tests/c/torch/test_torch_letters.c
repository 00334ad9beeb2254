/* Letters as they come from who should not be trusted: cut off, too long, with files too many. */
#include "driver/handed.h"
#include "support/check.h"
#include "torch/letters.h"

#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD_BYTES = offsetof(gml_letter, rest), NAMES = 1024 };

static int ends[2];

static void open_both(void) {
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends) == 0);
}

static void close_both(void) {
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static size_t open_files(void) {
    size_t count = 0;
    for (int file = 0; file < NAMES; file++) {
        count += fcntl(file, F_GETFD) >= 0;
    }
    return count;
}

/* Sends so many bytes of a letter, with a file as often as that. */
static void send_raw(const gml_letter *letter, size_t size_bytes, size_t file_count) {
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int[GML_LETTER_MOST_FILES]))];
    } beside = {0};
    int files[GML_LETTER_MOST_FILES];
    struct iovec text = {(void *)letter, size_bytes};
    struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1};
    for (size_t i = 0; i < file_count; i++) {
        files[i] = ends[0];
    }
    if (file_count) {
        beside.head.cmsg_level = SOL_SOCKET;
        beside.head.cmsg_type = SCM_RIGHTS;
        beside.head.cmsg_len = CMSG_LEN(file_count * sizeof *files);
        memcpy(CMSG_DATA(&beside.head), files, file_count * sizeof *files);
        message.msg_control = &beside;
        message.msg_controllen = CMSG_SPACE(file_count * sizeof *files);
    }
    CHECK(sendmsg(ends[0], &message, MSG_NOSIGNAL) >= 0);
}

static gml_received receive(gml_letter *out, int files[GML_LETTER_MOST_FILES]) {
    return gml_letter_receive(ends[1], out, files);
}

TEST(a_letter_comes_with_its_files) {
    gml_letter letter = {.kind = GML_LETTER_FILES, .count = 2, .rest.sizes = {7, 8}}, seen;
    int files[GML_LETTER_MOST_FILES];
    open_both();
    CHECK_EQ(receive(&seen, files), GML_RECEIVED_NOTHING);
    CHECK(gml_letter_send(ends[0], &letter, ends));
    CHECK_EQ(receive(&seen, files), GML_RECEIVED);
    CHECK_EQ(seen.count, 2);
    CHECK_EQ(seen.rest.sizes[1], 8);
    CHECK(fcntl(files[0], F_GETFD) & FD_CLOEXEC);
    (void)close(files[0]);
    (void)close(files[1]);
    (void)close(ends[0]);
    CHECK_EQ(receive(&seen, files), GML_RECEIVED_END);
    (void)close(ends[1]);
}

/* And none of its files stays open. */
TEST(what_is_no_letter_ends_the_connection) {
    const struct {
        uint32_t kind, count;
        size_t size_bytes, files;
    } wrong[] = {
        {GML_LETTER_FILES, 2, HEAD_BYTES + sizeof(uint64_t), 2}, /* a size is missing */
        {GML_LETTER_FILES, 1, HEAD_BYTES + sizeof(uint64_t), 3}, /* more than it says */
        {GML_LETTER_FILES, 4000, sizeof(gml_letter), 1},
        {GML_LETTER_LOOK, 1, HEAD_BYTES, 1}, /* of no use there */
        {GML_LETTER_LOOK, 0, HEAD_BYTES + 1, 0},
        {GML_LETTER_LOOK, 0, HEAD_BYTES - 1, 0},
        {GML_LETTER_REFUSED, 0, HEAD_BYTES, 0}, /* without its text */
    };
    gml_letter seen;
    int files[GML_LETTER_MOST_FILES];
    open_both();
    size_t before = open_files();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const gml_letter letter = {.kind = wrong[i].kind, .count = wrong[i].count};
        send_raw(&letter, wrong[i].size_bytes, wrong[i].files);
        CHECK_EQ(receive(&seen, files), GML_RECEIVED_END);
        CHECK_EQ(open_files(), before);
    }
    close_both();
}

/* The kernel closes what there is no room for; half of what may be opened is the program's. */
TEST(files_beyond_half_of_what_may_be_open_do_not_come) {
    gml_letter letter = {.kind = GML_LETTER_FILES, .count = 8}, seen;
    int files[GML_LETTER_MOST_FILES], same[8];
    struct rlimit most;
    open_both();
    for (size_t i = 0; i < 8; i++) {
        same[i] = ends[0];
    }
    CHECK(getrlimit(RLIMIT_NOFILE, &most) == 0);
    most.rlim_cur = 2 * 64;
    CHECK(setrlimit(RLIMIT_NOFILE, &most) == 0);
    for (int i = 0; i < 61; i++) {
        gml_kept_files_add(NAMES + i); /* three more may come, of which an even number does */
    }
    CHECK(gml_letter_send(ends[0], &letter, same));
    CHECK_EQ(receive(&seen, files), GML_RECEIVED);
    CHECK_EQ(seen.count, 2);
    CHECK_EQ(seen.lost, 6);
    close_both();
}

int main(void) {
    for (const check_test *test = check_tests(); test; test = test->next) {
        check_run_alone(test->name, test->run);
    }
    return report();
}
