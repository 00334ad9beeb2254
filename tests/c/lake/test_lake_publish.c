/* Published counters: what the file says, who may read it, how long it lasts. */
#include "support/trainer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_BYTES = 256 };

typedef struct place {
    char folder[PATH_BYTES], path[PATH_BYTES + 16];
} place;

static place make_place(void) {
    place made = {.folder = "/tmp/gmlake-publish-XXXXXX"};
    CHECK(mkdtemp(made.folder) != NULL);
    snprintf(made.path, sizeof made.path, "%s/lake", made.folder);
    return made;
}

/* The folder is empty again. */
static void leave_place(const place *left) {
    CHECK_EQ(rmdir(left->folder), 0);
}

/* What others see; mapped, so that it is read while it is written. */
static const gml_published *follow(const char *path) {
    int file = open(path, O_RDONLY);
    CHECK(file >= 0);
    void *seen = mmap(NULL, sizeof(gml_published), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (seen == MAP_FAILED) {
        perror("test_lake_publish: mmap");
        exit(1);
    }
    return seen;
}

static void unfollow(const gml_published *seen) {
    CHECK_EQ(munmap((void *)(uintptr_t)seen, sizeof *seen), 0);
}

/* What takes time to find out is looked at after a refusal and a trim. */
TEST(a_refusal_shows_how_much_could_be_had) {
    place at = make_place();
    gml_lake *lake = trainer_open_lake("sim", "stitch", 64 * MIB);
    CHECK_OK(gml_lake_publish(lake, at.path));
    const gml_published *seen = follow(at.path);
    gml_address refused, blocks[4];
    for (size_t i = 0; i < 4; i++) {
        blocks[i] = trainer_take(lake, 16 * MIB, 0);
    }
    CHECK_OK(gml_lake_free(lake, blocks[0]));
    CHECK_OK(gml_lake_free(lake, blocks[2]));
    CHECK_STATUS(gml_lake_allocate(lake, 48 * MIB, 0, &refused), GML_OUT_OF_MEMORY);
    CHECK_EQ(seen->states[GML_STATE_OOM], 1);
    CHECK_EQ(seen->looked_ns, seen->time_ns);
    CHECK_EQ(seen->looked_free_bytes, 32 * MIB);
    CHECK_EQ(seen->largest_free_bytes, trainer_stats(lake).largest_free_bytes);
    gml_address stitched = trainer_take(lake, 32 * MIB, 0);
    CHECK_OK(gml_lake_free(lake, blocks[1]));
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_EQ(seen->views, 1);
    CHECK_EQ(seen->view_bytes, trainer_stats(lake).view_bytes);
    CHECK_EQ(seen->looked_free_bytes, 0);
    CHECK_OK(gml_lake_free(lake, stitched));
    unfollow(seen);
    CHECK_OK(gml_lake_close(lake));
    leave_place(&at);
}

/* ---- the file -------------------------------------------------------------------------------- */

TEST(the_file_is_for_its_user_and_ends_with_the_lake) {
    place at = make_place(), other = make_place();
    struct stat about;
    gml_lake *lake = trainer_open_lake("sim", "stitch", 0);
    mode_t mask = umask(0);
    CHECK_OK(gml_lake_publish(lake, NULL)); /* nothing to end */
    CHECK_OK(gml_lake_publish(lake, at.path));
    umask(mask);
    CHECK_EQ(lstat(at.path, &about), 0);
    CHECK_EQ(about.st_mode, S_IFREG | S_IRUSR | S_IWUSR);
    CHECK_EQ(about.st_size, sizeof(gml_published));

    /* Elsewhere from now on. */
    CHECK_OK(gml_lake_publish(lake, other.path));
    CHECK(lstat(at.path, &about) != 0);
    CHECK_EQ(lstat(other.path, &about), 0);
    CHECK_OK(gml_lake_publish(lake, NULL));
    CHECK(lstat(other.path, &about) != 0);
    CHECK_OK(gml_lake_publish(lake, at.path));
    CHECK_OK(gml_lake_close(lake));
    CHECK(lstat(at.path, &about) != 0);
    leave_place(&at);
    leave_place(&other);
}

static void check_refused(gml_lake *lake, const char *path, int expected) {
    errno = 0;
    gml_status status = gml_lake_publish(lake, path);
    CHECK_EQ(errno, expected);
    CHECK_STATUS(status, GML_INVALID_ARGUMENT);
}

TEST(no_file_is_taken_over) {
    place at = make_place();
    char link[PATH_BYTES + 16], target[PATH_BYTES + 16];
    snprintf(link, sizeof link, "%s/link", at.folder);
    snprintf(target, sizeof target, "%s/target", at.folder);
    gml_lake *lake = trainer_open_lake("sim", "stitch", 0);
    CHECK_OK(gml_lake_publish(lake, at.path));
    const gml_published *seen = follow(at.path);
    CHECK_EQ(symlink(target, link), 0);
    check_refused(lake, at.path, EEXIST);
    check_refused(lake, link, EEXIST);
    check_refused(lake, "lake", EINVAL);
    check_refused(lake, "", EINVAL);
    check_refused(lake, "/nonexistent/lake", ENOENT);
    struct stat about;
    CHECK(lstat(target, &about) != 0);
    CHECK_EQ(unlink(link), 0);

    /* What was published before goes on. */
    gml_address address = trainer_take(lake, MIB, 0);
    CHECK_EQ(seen->live_blocks, 1);
    CHECK_OK(gml_lake_free(lake, address));
    unfollow(seen);
    CHECK_OK(gml_lake_close(lake));
    leave_place(&at);
}

/* Another file in its place is not ours to unlink. */
TEST(a_replaced_file_stays) {
    place at = make_place();
    gml_lake *lake = trainer_open_lake("sim", "stitch", 0);
    CHECK_OK(gml_lake_publish(lake, at.path));
    char kept[PATH_BYTES + 16];
    snprintf(kept, sizeof kept, "%s/kept", at.folder);
    CHECK_EQ(rename(at.path, kept), 0);
    CHECK_EQ(close(open(at.path, O_CREAT | O_WRONLY, S_IRUSR | S_IWUSR)), 0);
    CHECK_OK(gml_lake_close(lake));
    CHECK_EQ(unlink(at.path), 0);
    CHECK_EQ(unlink(kept), 0);
    leave_place(&at);
}
