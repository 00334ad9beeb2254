/* Chunks that were handed over: found by their size, and no file stays open. */
#include "driver/handed.h"
#include "support/check.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

static gml_handed handed = {.lock = PTHREAD_MUTEX_INITIALIZER};
static gml_handed others = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int add(uint64_t size_bytes) {
    int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    gml_handed_add(&handed, (gml_shared_piece){file, size_bytes});
    return file;
}

static bool is_open(int file) {
    return fcntl(file, F_GETFD) >= 0;
}

TEST(pieces_are_taken_by_size) {
    CHECK(gml_handed_take(&handed, 4) < 0);
    int four = add(4), eight = add(8), two = add(2);
    CHECK_EQ(gml_handed_bytes(&handed), 14);
    CHECK_EQ(gml_handed_bytes(NULL), 0);
    CHECK(gml_handed_take(&handed, 5) < 0);
    CHECK_EQ(gml_handed_take(&handed, 4), four);
    CHECK(gml_handed_take(&handed, 4) < 0);
    CHECK_EQ(gml_handed_bytes(&handed), 10);
    CHECK(is_open(four) && is_open(eight) && is_open(two));
    CHECK_EQ(gml_handed_drop(&handed), 10);
    CHECK(is_open(four) && !is_open(eight) && !is_open(two));
    CHECK_EQ(gml_handed_drop(&handed), 0);
    CHECK_EQ(gml_handed_bytes(&handed), 0);
    gml_kept_files_close(four);
    CHECK(!is_open(four));
}

TEST(as_much_is_passed_on_as_is_wanted) {
    int files[] = {add(4), add(4), add(4)};
    CHECK_EQ(gml_handed_move(&handed, &others, 0), 0);
    CHECK_EQ(gml_handed_move(&handed, &others, 5), 8);
    CHECK_EQ(gml_handed_bytes(&handed), 4);
    CHECK_EQ(gml_handed_bytes(&others), 8);
    CHECK_EQ(gml_handed_move(&handed, &others, 100), 4);
    CHECK(is_open(files[0]) && is_open(files[1]) && is_open(files[2]));
    CHECK_EQ(gml_handed_drop(&others), 12);
    CHECK(!is_open(files[0]) && !is_open(files[1]) && !is_open(files[2]));
}

/* Whoever has them, and the one that was taken; the parent's stay. */
TEST(a_child_has_none) {
    int files[] = {add(4), add(5), add(6)}, status = 1;
    CHECK_EQ(gml_handed_move(&handed, &others, 1), 6);
    CHECK_EQ(gml_handed_take(&handed, 5), files[1]);
    pid_t pid = fork();
    if (pid == 0) {
        bool is_any = is_open(files[0]) || is_open(files[1]) || is_open(files[2]);
        gml_handed_forget(&handed);
        _exit(is_any || handed.count || gml_handed_bytes(&handed) ? 1 : 0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(is_open(files[0]) && is_open(files[1]) && is_open(files[2]));
    CHECK_EQ(gml_handed_drop(&handed) + gml_handed_drop(&others), 10);
    gml_kept_files_close(files[1]);
}
