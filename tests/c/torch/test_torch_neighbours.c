/* Processes that share a device: who is asked, who gives, and what is left of one that ends. Each
 * neighbour is a child that obeys commands of one letter. */
#include "driver/streams.h"
#include "gmlake_torch.h"
#include "lake/lake.h"
#include "support/check.h"
#include "support/torch_calls.h"
#include "torch/share_page.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

enum {
    REASON_BYTES = 320,
    MOST_NEIGHBOURS = 3,
    USED_MIB = 128,
    SPARE_MIB = 320,
    WORKED_MIB = 48,
    WORK_US = 50000
};

static char folder[] = "/tmp/gmlake-neighbours-XXXXXX";
static char path[sizeof folder + 16];

typedef struct neighbour {
    pid_t pid;
    int to, from;
} neighbour;

static neighbour neighbours[MOST_NEIGHBOURS];
static int neighbour_count;

/* ---- helpers --------------------------------------------------------------------------------- */

static gml_torch_shared
sharing(void)
{
    gml_torch_shared shared;
    gml_torch_sharing(0, &shared);
    return shared;
}

static void
configure_host(void)
{
    gml_lake_config config = {.driver = "host", .policy = "stitch"};
    CHECK_OK(gml_torch_configure(&config, NULL, 0));
}

static void
share(int32_t priority, uint32_t weight)
{
    char reason[REASON_BYTES] = "";
    configure_host();
    if (!CHECK_OK(gml_torch_share(0, path, priority, weight, reason, sizeof reason))) {
        fprintf(stderr, "%s\n", reason);
    }
}

/* Holds `idle_mib` that it does not use. */
static void
hold_idle(uint64_t idle_mib)
{
    CHECK(torch_free(torch_allocate(idle_mib * MIB, 0, NULL)));
}

static void
nothing(void *context)
{
    (void)context;
}

/* Holds idle memory that work uses which ends later. */
static void
hold_used(gml_streams *streams, uint64_t idle_mib)
{
    CHECK_OK(gml_streams_set_manual(streams, true));
    void *address = torch_allocate(idle_mib * MIB, 0, NULL);
    CHECK_OK(gml_streams_enqueue(streams, 0, nothing, NULL));
    CHECK(torch_free(address));
}

/* g: how many MiB it has given, as one byte. n: how many neighbours it sees. w: all that it holds
 * is in use for a moment longer. q: ends. */
static void
obey(int from, int to)
{
    gml_streams *streams = gml_driver_streams(gml_torch_lake(0)->driver);
    char command = 0;
    while (read(from, &command, 1) == 1 && command != 'q') {
        gml_torch_shared now = sharing();
        unsigned char answer =
            (unsigned char)(command == 'g' ? now.given_bytes / MIB : now.neighbours);
        if (command == 'w') {
            hold_used(streams, WORKED_MIB);
        }
        CHECK(write(to, &answer, 1) == 1);
        if (command == 'w') {
            CHECK(usleep(WORK_US) == 0);
            CHECK_OK(gml_streams_set_manual(streams, false));
        }
    }
}

static void
add_neighbour(uint64_t idle_mib, int32_t priority, uint32_t weight)
{
    int down[2], up[2];
    char is_ready = 0;
    CHECK(pipe(down) == 0 && pipe(up) == 0);
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(down[1]);
        (void)close(up[0]);
        share(priority, weight);
        hold_idle(idle_mib);
        CHECK(write(up[1], &is_ready, 1) == 1);
        obey(down[0], up[1]);
        gml_torch_unshare();
        _exit(check_failures() != 0);
    }
    (void)close(down[0]);
    (void)close(up[1]);
    CHECK(read(up[0], &is_ready, 1) == 1);
    neighbours[neighbour_count] = (neighbour){pid, down[1], up[0]};
    neighbour_count++;
}

static unsigned
ask_neighbour(int number, char command)
{
    unsigned char answer = 0;
    CHECK(write(neighbours[number].to, &command, 1) == 1);
    CHECK(read(neighbours[number].from, &answer, 1) == 1);
    return answer;
}

static void
end_neighbours(void)
{
    for (int i = 0; i < neighbour_count; i++) {
        int status = 0;
        CHECK(write(neighbours[i].to, "q", 1) == 1);
        CHECK(waitpid(neighbours[i].pid, &status, 0) == neighbours[i].pid);
        CHECK(status == 0 || WIFSIGNALED(status));
        (void)close(neighbours[i].to);
        (void)close(neighbours[i].from);
    }
    neighbour_count = 0;
}

/* So much that others are asked for `missing_mib`. */
static bool
ask_for(uint64_t missing_mib)
{
    uint64_t free_bytes = 0, total_bytes = 0;
    CHECK_OK(gml_driver_memory_info(gml_torch_lake(0)->driver, &free_bytes, &total_bytes));
    return gml_torch_ask_neighbours(0, free_bytes - SPARE_MIB * MIB + missing_mib * MIB);
}

/* It needs some of its device itself, so that requests for the rest are no larger than that. */
static void
begin(void)
{
    share(0, 1);
    CHECK(torch_allocate(USED_MIB * MIB, 0, NULL) != NULL);
}

static void
end(void)
{
    end_neighbours();
    gml_torch_unshare();
}

/* ---- tests ----------------------------------------------------------------------------------- */

TEST(idle_memory_goes_to_who_asks)
{
    add_neighbour(64, 0, 1);
    begin();
    CHECK_EQ(sharing().neighbours, 1);
    CHECK(ask_for(24));
    CHECK(ask_neighbour(0, 'g') >= 24);
    CHECK(ask_neighbour(0, 'g') < 64);
    CHECK_EQ(sharing().taken_bytes / MIB, ask_neighbour(0, 'g'));
    CHECK(ask_for(64)); /* the rest */
    CHECK_EQ(ask_neighbour(0, 'g'), 64);
    CHECK(!ask_for(64));
    CHECK_EQ(ask_neighbour(0, 'n'), 1);
    end();
}

/* So that CUDA can begin in a process that has no lake yet. */
TEST(room_is_made_before_there_is_a_lake)
{
    add_neighbour(64, 0, 1);
    CHECK(!gml_torch_make_room(0, 8 * MIB));
    share(0, 1);
    CHECK(gml_torch_make_room(0, 8 * MIB));
    CHECK(ask_neighbour(0, 'g') >= 8);
    CHECK(!sharing().is_shared);
    CHECK_EQ(ask_neighbour(0, 'n'), 0);
    CHECK(gml_torch_make_room(0, 56 * MIB));
    CHECK(!gml_torch_make_room(0, 56 * MIB));
    CHECK(!gml_torch_make_room(-1, MIB));
    end();
}

TEST(most_idle_for_its_weight_gives_first)
{
    add_neighbour(40, 0, 1);
    add_neighbour(64, 0, 2);
    begin();
    CHECK_EQ(sharing().neighbours, 2);
    CHECK(ask_for(8));
    CHECK(ask_neighbour(0, 'g') >= 8);
    CHECK_EQ(ask_neighbour(1, 'g'), 0);
    end();
}

TEST(the_lowest_priority_gives_first_and_then_the_next)
{
    add_neighbour(64, 1, 1);
    add_neighbour(32, -1, 1);
    begin();
    CHECK(ask_for(8));
    CHECK_EQ(ask_neighbour(0, 'g'), 0);
    CHECK(ask_neighbour(1, 'g') >= 8);
    CHECK(ask_for(48));
    CHECK_EQ(ask_neighbour(1, 'g'), 32);
    CHECK(ask_neighbour(0, 'g') >= 16);
    end();
}

TEST(memory_in_use_is_given_when_its_work_is_done)
{
    add_neighbour(WORKED_MIB, 0, 1);
    begin();
    (void)ask_neighbour(0, 'w');
    CHECK(ask_for(WORKED_MIB));
    CHECK_EQ(ask_neighbour(0, 'g'), WORKED_MIB);
    end();
}

TEST(who_lacks_nothing_asks_nobody)
{
    add_neighbour(64, 0, 1);
    begin();
    CHECK(!gml_torch_ask_neighbours(0, MIB));
    CHECK(!gml_torch_ask_neighbours(0, UINT64_MAX));
    CHECK(!gml_torch_ask_neighbours(1, MIB));
    CHECK(!gml_torch_ask_neighbours(-1, MIB));
    CHECK_EQ(ask_neighbour(0, 'g'), 0);
    end();
}

TEST(who_was_killed_is_asked_no_more)
{
    add_neighbour(64, 0, 1);
    add_neighbour(32, 0, 1);
    begin();
    CHECK(kill(neighbours[0].pid, SIGKILL) == 0);
    CHECK(waitpid(neighbours[0].pid, NULL, 0) == neighbours[0].pid);
    CHECK_EQ(sharing().neighbours, 1);
    CHECK(ask_for(8));
    CHECK(ask_neighbour(1, 'g') >= 8);
    neighbours[0] = neighbours[1];
    neighbour_count = 1;
    end();
}

/* Its slot stays, since it may go on; it is waited for a moment. */
TEST(who_is_stopped_holds_nobody_up)
{
    add_neighbour(64, 0, 1);
    add_neighbour(32, 0, 1);
    begin();
    CHECK(kill(neighbours[0].pid, SIGSTOP) == 0);
    CHECK(ask_for(8));
    CHECK(ask_neighbour(1, 'g') >= 8);
    CHECK(kill(neighbours[0].pid, SIGCONT) == 0);
    CHECK(ask_for(64));
    CHECK(ask_neighbour(0, 'g') > 0);
    end();
}

TEST(a_child_is_no_neighbour_until_it_has_a_lake)
{
    if (HAS_THREAD_SANITIZER) {
        return; /* it knows no threads in the child of a process that has some */
    }
    begin();
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        bool is_good = CHECK(!sharing().is_shared);
        hold_idle(2);
        is_good &= CHECK_EQ(sharing().neighbours, 1);
        gml_torch_unshare();
        _exit(!is_good);
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0);
    CHECK(sharing().is_shared);
    CHECK_EQ(sharing().neighbours, 0);
    add_neighbour(64, 0, 1);
    CHECK_EQ(sharing().neighbours, 1);
    CHECK(ask_for(8));
    end();
}

TEST(the_file_goes_with_the_last)
{
    add_neighbour(2, 0, 1);
    begin();
    gml_torch_unshare();
    CHECK(!sharing().is_shared);
    CHECK(access(path, F_OK) == 0);
    end_neighbours();
    CHECK(access(path, F_OK) != 0);
    share(0, 1); /* and comes back with the next */
    CHECK(sharing().is_shared);
    gml_torch_unshare();
    CHECK(access(path, F_OK) != 0);
}

TEST(what_cannot_be_shared_says_why)
{
    char reason[REASON_BYTES] = "";
    const uint32_t other_version = 99;
    configure_host();
    hold_idle(2);
    CHECK_STATUS(gml_torch_share(0, "page", 0, 1, reason, sizeof reason), GML_INVALID_ARGUMENT);
    CHECK(strstr(reason, "absolute"));
    CHECK_STATUS(gml_torch_share(0, path, 0, 0, reason, sizeof reason), GML_INVALID_ARGUMENT);
    CHECK(strstr(reason, "weight"));
    CHECK_STATUS(gml_torch_share(GML_TORCH_DEVICES, path, 0, 1, NULL, 0), GML_INVALID_ARGUMENT);
    CHECK_STATUS(gml_torch_share(0, "/nowhere/page", 0, 1, reason, sizeof reason), GML_UNSUPPORTED);
    CHECK(strstr(reason, "/nowhere/page"));
    CHECK(strcmp(sharing().why, reason) == 0);
    int file = open(path, O_RDWR | O_CREAT, 0600);
    CHECK(write(file, &other_version, sizeof other_version) == sizeof other_version);
    (void)close(file);
    CHECK_STATUS(gml_torch_share(0, path, 0, 1, reason, sizeof reason), GML_UNSUPPORTED);
    CHECK(strstr(reason, "version"));
    CHECK(unlink(path) == 0);
    share(0, 1);
    CHECK_EQ(sharing().why[0], 0);
    gml_torch_unshare();
}

/* ---- the page alone -------------------------------------------------------------------------- */

TEST(there_is_room_for_as_many_as_it_has_slots)
{
    pid_t children[GML_SHARE_SLOTS];
    int ready[2], hold[2];
    char letter = 0;
    gml_share_page *page = NULL;
    char reason[REASON_BYTES] = "";
    CHECK(pipe(ready) == 0 && pipe(hold) == 0);
    for (int i = 0; i < GML_SHARE_SLOTS; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            (void)close(hold[1]);
            gml_status status = gml_share_page_open(path, (gml_share_terms){0, 1}, &page, NULL, 0);
            letter = (char)status;
            (void)!write(ready[1], &letter, 1);
            (void)!read(hold[0], &letter, 1); /* until the other end is closed */
            _exit(0);
        }
    }
    for (int i = 0; i < GML_SHARE_SLOTS; i++) {
        CHECK(read(ready[0], &letter, 1) == 1 && letter == GML_OK);
    }
    CHECK_STATUS(gml_share_page_open(path, (gml_share_terms){0, 1}, &page, reason, sizeof reason),
                 GML_UNSUPPORTED);
    CHECK(strstr(reason, "64 processes"));
    (void)close(hold[1]);
    for (int i = 0; i < GML_SHARE_SLOTS; i++) {
        CHECK(waitpid(children[i], NULL, 0) == children[i]);
    }
    /* They left without a word, and their slots are free. */
    if (CHECK_OK(
            gml_share_page_open(path, (gml_share_terms){0, 1}, &page, reason, sizeof reason))) {
        gml_share_other others[GML_SHARE_SLOTS];
        CHECK_EQ(gml_share_page_others(page, others), 0);
        gml_share_page_close(page);
    }
    CHECK(access(path, F_OK) != 0);
}

static struct {
    const char *name;
    void (*test)(void);
} current;

/* Lakes live as long as their process. */
static void
run_in_child(void)
{
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int before = check_failures();
        check_run(current.name, current.test);
        _exit(check_failures() != before);
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0);
}

int
main(void)
{
    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(path, sizeof path, "%s/device", folder);
    for (const check_test *test = check_tests(); test; test = test->next) {
        current.name = test->name;
        current.test = test->run;
        check_run(test->name, run_in_child);
    }
    CHECK(rmdir(folder) == 0);
    return report();
}
