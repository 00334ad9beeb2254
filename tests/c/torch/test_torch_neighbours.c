/* Processes that share a device: who is asked, who gives, and what is left of one that ends. Each
 * neighbour is a child that obeys commands of one letter. */
#include "base/clock.h"
#include "driver/handed.h"
#include "driver/streams.h"
#include "gmlake_elastic.h"
#include "gmlake_interop.h"
#include "gmlake_torch.h"
#include "lake/lake.h"
#include "support/check.h"
#include "support/fence_bench.h"
#include "support/torch_calls.h"
#include "torch/registry.h"
#include "torch/relief.h"
#include "torch/share_page.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

static gml_torch_shared sharing(void) {
    gml_torch_shared shared;
    gml_torch_sharing(0, &shared);
    return shared;
}

static void configure_host(void) {
    gml_lake_config config = {.driver = "host", .policy = "stitch"};
    CHECK_OK(gml_torch_configure(&config, NULL, 0));
}

static void share(int32_t priority, uint32_t weight) {
    char reason[REASON_BYTES] = "";
    configure_host();
    if (!CHECK_OK(gml_torch_share(0, path, priority, weight, reason, sizeof reason))) {
        fprintf(stderr, "%s\n", reason);
    }
}

/* Holds `idle_mib` that it does not use. */
static void hold_idle(uint64_t idle_mib) {
    CHECK(torch_free(torch_allocate(idle_mib * MIB, 0, NULL)));
}

static void nothing(void *context) {
    (void)context;
}

/* Holds idle memory that work uses which ends later. */
static void hold_used(gml_streams *streams, uint64_t idle_mib) {
    CHECK_OK(gml_streams_set_manual(streams, true));
    void *address = torch_allocate(idle_mib * MIB, 0, NULL);
    CHECK_OK(gml_streams_enqueue(streams, 0, nothing, NULL));
    CHECK(torch_free(address));
}

/* Holds idle memory of a device whose driver has no event for all streams, so that nobody knows
 * when it is done. */
static void hold_unmarked(uint64_t idle_mib) {
    bench_make_old(gml_torch_lake(0)->driver);
    hold_idle(idle_mib);
}

static uint64_t count_waits(void) {
    gml_stats stats;
    CHECK_OK(gml_lake_stats(gml_torch_lake(0), &stats));
    return stats.driver_calls[GML_CALL_DEVICE_SYNCHRONIZE] +
           stats.driver_calls[GML_CALL_EVENT_SYNCHRONIZE] +
           stats.driver_calls[GML_CALL_STREAM_SYNCHRONIZE];
}

/* g: how many MiB it has given, as one byte. n: how many neighbours it sees. s: how often it waited
 * for its device. w: all that it holds is in use for a moment longer. x: nobody knows until when.
 * q: ends. */
static void obey(int from, int to) {
    gml_streams *streams = gml_driver_streams(gml_torch_lake(0)->driver);
    char command = 0;
    while (read(from, &command, 1) == 1 && command != 'q') {
        gml_torch_shared now = sharing();
        unsigned char answer = (unsigned char)(command == 'g'   ? now.given_bytes / MIB
                                               : command == 's' ? count_waits()
                                                                : now.neighbours);
        if (command == 'w') {
            hold_used(streams, WORKED_MIB);
        }
        if (command == 'x') {
            hold_unmarked(WORKED_MIB);
        }
        CHECK(write(to, &answer, 1) == 1);
        if (command == 'w') {
            CHECK(usleep(WORK_US) == 0);
            CHECK_OK(gml_streams_set_manual(streams, false));
        }
    }
}

static void add_neighbour(uint64_t idle_mib, int32_t priority, uint32_t weight) {
    int down[2] = {-1, -1}, up[2] = {-1, -1};
    char is_ready = 0;
    CHECK(pipe(down) == 0 && pipe(up) == 0);
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int before = check_failures();
        (void)close(down[1]);
        (void)close(up[0]);
        share(priority, weight);
        hold_idle(idle_mib);
        CHECK(write(up[1], &is_ready, 1) == 1);
        obey(down[0], up[1]);
        gml_torch_unshare();
        _exit(check_failures() != before);
    }
    (void)close(down[0]);
    (void)close(up[1]);
    CHECK(read(up[0], &is_ready, 1) == 1);
    neighbours[neighbour_count] = (neighbour){pid, down[1], up[0]};
    neighbour_count++;
}

static unsigned ask_neighbour(int number, char command) {
    unsigned char answer = 0;
    CHECK(write(neighbours[number].to, &command, 1) == 1);
    CHECK(read(neighbours[number].from, &answer, 1) == 1);
    return answer;
}

static void end_neighbours(void) {
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
static bool ask_for(uint64_t missing_mib) {
    uint64_t free_bytes = 0, total_bytes = 0;
    CHECK_OK(gml_driver_memory_info(gml_torch_lake(0)->driver, &free_bytes, &total_bytes));
    return gml_torch_ask_neighbours(0, free_bytes - SPARE_MIB * MIB + missing_mib * MIB, true);
}

/* It needs some of its device itself, so that requests for the rest are no larger than that. */
static void begin(void) {
    share(0, 1);
    CHECK(torch_allocate(USED_MIB * MIB, 0, NULL) != NULL);
}

static void end(void) {
    end_neighbours();
    gml_torch_unshare();
}

/* ---- tests ----------------------------------------------------------------------------------- */

TEST(idle_memory_goes_to_who_asks) {
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
TEST(room_is_made_before_there_is_a_lake) {
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

TEST(the_lowest_priority_gives_first_and_then_the_next) {
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

TEST(memory_in_use_is_given_when_its_work_is_done) {
    add_neighbour(WORKED_MIB, 0, 1);
    begin();
    (void)ask_neighbour(0, 'w');
    CHECK(ask_for(WORKED_MIB));
    CHECK_EQ(ask_neighbour(0, 'g'), WORKED_MIB);
    CHECK_EQ(ask_neighbour(0, 's'), 0);
    end();
}

/* A device of 1 GiB: no more than a 64th part is asked for beyond. */
TEST(requests_that_follow_each_other_ask_for_twice_as_much) {
    add_neighbour(200, 0, 1);
    begin();
    CHECK(ask_for(4));
    unsigned first = ask_neighbour(0, 'g');
    CHECK(ask_for(4));
    unsigned second = ask_neighbour(0, 'g') - first;
    CHECK(ask_for(4));
    CHECK(ask_for(4));
    unsigned before = ask_neighbour(0, 'g');
    CHECK(ask_for(4));
    CHECK(first >= 4 && first < 8);
    CHECK(second >= 8);
    CHECK(ask_neighbour(0, 'g') - before < 24);
    end();
}

TEST(all_that_need_memory_ask) {
    add_neighbour(40, 0, 1);
    begin();
    uint64_t free_bytes = 0, total_bytes = 0;
    CHECK_OK(gml_driver_memory_info(gml_torch_lake(0)->driver, &free_bytes, &total_bytes));
    CHECK(gml_relief_ask(0, free_bytes - SPARE_MIB * MIB + MIB));
    unsigned given = ask_neighbour(0, 'g');
    CHECK(given > 0);
    CHECK(gml_interop_alloc(NULL, total_bytes - MIB, 0) == NULL);
    CHECK_EQ(ask_neighbour(0, 'g'), 40);
    end();
}

/* What CUDA takes itself needs memory, too, as long as it can be had elsewhere. */
TEST(some_memory_is_left_free_until_there_is_no_other) {
    begin();
    gml_lake *lake = gml_torch_lake(0);
    gml_address address = 0;
    uint64_t free_bytes = 0, total_bytes = 0;
    CHECK_OK(gml_driver_memory_info(lake->driver, &free_bytes, &total_bytes));
    uint64_t wanted_bytes = free_bytes - 200 * MIB;
    CHECK_STATUS(gml_lake_try(lake, wanted_bytes, 0, &address), GML_OUT_OF_MEMORY);
    CHECK_OK(gml_lake_try(lake, wanted_bytes - 80 * MIB, 0, &address));
    CHECK_OK(gml_lake_free(lake, address));
    CHECK_OK(gml_lake_allocate(lake, wanted_bytes, 0, &address));
    CHECK_OK(gml_lake_free(lake, address));
    CHECK_OK(gml_lake_trim(lake, NULL));
    uint64_t held_bytes = 0;
    CHECK_OK(gml_lake_open_elastic(lake, total_bytes, 0, &address));
    CHECK_STATUS(gml_lake_try_elastic(lake, address, wanted_bytes, 0, &held_bytes),
                 GML_OUT_OF_MEMORY);
    CHECK_OK(gml_lake_resize_elastic(lake, address, wanted_bytes, 0, &held_bytes));
    CHECK_OK(gml_lake_close_elastic(lake, address));
    end();
}

TEST(who_lacks_nothing_asks_nobody) {
    add_neighbour(64, 0, 1);
    begin();
    CHECK(!gml_torch_ask_neighbours(0, MIB, true));
    CHECK(!gml_torch_ask_neighbours(0, UINT64_MAX, true));
    CHECK(!gml_torch_ask_neighbours(1, MIB, true));
    CHECK(!gml_torch_ask_neighbours(-1, MIB, true));
    CHECK_EQ(ask_neighbour(0, 'g'), 0);
    end();
}

/* Its slot stays, since it may go on; it is waited for a moment. */
TEST(who_is_stopped_holds_nobody_up) {
    add_neighbour(64, 0, 1);
    add_neighbour(32, 0, 1);
    begin();
    int status = 0;
    CHECK(kill(neighbours[0].pid, SIGSTOP) == 0);
    CHECK(waitpid(neighbours[0].pid, &status, WUNTRACED) == neighbours[0].pid); /* it may run on */
    CHECK(WIFSTOPPED(status));
    CHECK(ask_for(8));
    CHECK(ask_neighbour(1, 'g') >= 8);
    CHECK(kill(neighbours[0].pid, SIGCONT) == 0);
    CHECK(ask_for(64));
    CHECK(ask_neighbour(0, 'g') > 0);
    end();
}

TEST(what_cannot_be_shared_says_why) {
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
    CHECK(mkfifo(path, 0600) == 0);
    CHECK_STATUS(gml_torch_share(0, path, 0, 1, reason, sizeof reason), GML_UNSUPPORTED);
    CHECK(strstr(reason, "not a file of this user's"));
    CHECK(unlink(path) == 0);
    share(0, 1);
    CHECK_EQ(sharing().why[0], 0);
    gml_torch_unshare();
}

/* ---- the page alone -------------------------------------------------------------------------- */

#define SECOND_NS UINT64_C(1000000000)

static gml_share_page *open_page(void) {
    gml_share_page *page = NULL;
    CHECK_OK(gml_share_page_open(path, (gml_share_terms){0, 1}, &page, NULL, 0));
    return page;
}

/* A child with a slot, which does as `live` says, or nothing until it is killed. */
static pid_t start_owner(void (*live)(gml_share_page *page, int ready)) {
    int ready[2] = {-1, -1};
    char letter = 0;
    CHECK(pipe(ready) == 0);
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        gml_share_page *page = open_page();
        if (live) {
            live(page, ready[1]);
            _exit(0);
        }
        (void)!write(ready[1], &letter, 1);
        for (;;) {
            (void)pause();
        }
    }
    CHECK(read(ready[0], &letter, 1) == 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    return pid;
}

static gml_share_other told_of(gml_share_page *page, gml_share_other other, uint64_t wanted_bytes,
                               bool takes_files) {
    uint32_t question = gml_share_page_ask(page, other.slot, wanted_bytes, takes_files);
    CHECK(gml_share_page_wait(page, question, UINT64_MAX, UINT64_MAX, &other));
    return other;
}

enum { LATE_MIB = 70 };

/* Says that it has idle memory, and ends when it is asked for some; a child of it sends that later,
 * when who asked has given up. */
static void give_and_end(gml_share_page *page, int ready) {
    static gml_handed given = {.lock = PTHREAD_MUTEX_INITIALIZER};
    uint64_t own[GML_PARCEL_NAME_WORDS];
    gml_share_question asked;
    int from = gml_parcel_open(own);
    (void)!write(ready, "", 1);
    while (gml_share_page_next(page, &asked) && !asked.wanted_bytes) {
        gml_share_page_answer(page, 0, LATE_MIB * MIB);
    }
    CHECK(asked.takes_files);
    if (fork() == 0) {
        (void)usleep(4 * WORK_US);
        gml_handed_add(&given, (gml_shared_piece){dup(from), LATE_MIB * MIB});
        gml_parcel_send(from, asked.name, &given);
        _exit(0);
    }
}

/* What the process in that slot holds idle, by its own answer; asked from a process with a slot of
 * its own. */
static unsigned idle_mib_of(int slot) {
    int answer[2] = {-1, -1};
    unsigned char mib = 0;
    CHECK(pipe(answer) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        gml_share_page *page = open_page();
        gml_share_other others[GML_SHARE_SLOTS];
        size_t count = gml_share_page_others(page, others);
        for (size_t i = 0; i < count; i++) {
            if (others[i].slot == slot) {
                mib = (unsigned char)(told_of(page, others[i], 0, false).idle_bytes / MIB);
            }
        }
        (void)!write(answer[1], &mib, 1);
        _exit(0);
    }
    CHECK(read(answer[0], &mib, 1) == 1);
    CHECK(waitpid(pid, NULL, 0) == pid);
    return mib;
}

/* Waits until what was sent has come, which a question finds out. */
static void await_late(int own_slot) {
    uint64_t deadline_ns = gml_clock_ns() + 20 * SECOND_NS;
    while (idle_mib_of(own_slot) != LATE_MIB && gml_clock_ns() < deadline_ns) {
        (void)usleep(WORK_US);
    }
    CHECK_EQ(gml_handed_bytes(gml_handed_to(gml_registry_device(0))), LATE_MIB * MIB);
}

/* It is idle memory of who got it, who asks for less until it is used. */
TEST(what_comes_too_late_is_not_lost) {
    add_neighbour(100, 1, 1);
    begin();
    pid_t pid = start_owner(give_and_end);
    CHECK(ask_for(8)); /* of the neighbour, after that one */
    CHECK(waitpid(pid, NULL, 0) == pid);
    unsigned before = ask_neighbour(0, 'g');
    await_late(1);
    CHECK(!ask_for(LATE_MIB - 2));
    CHECK_EQ(ask_neighbour(0, 'g'), before);
    CHECK(ask_for(LATE_MIB + 2));
    unsigned given = ask_neighbour(0, 'g') - before;
    CHECK(given > 0 && given < LATE_MIB);
    end();
}

TEST(what_waits_goes_to_the_device_when_no_more_is_shared) {
    begin();
    pid_t pid = start_owner(give_and_end);
    CHECK(!ask_for(8));
    CHECK(waitpid(pid, NULL, 0) == pid);
    await_late(0);
    gml_handed *waiting = gml_handed_to(gml_registry_device(0));
    pthread_mutex_lock(&waiting->lock);
    CHECK_EQ(waiting->count, 1);
    int file = waiting->pieces[0].file;
    pthread_mutex_unlock(&waiting->lock);
    pid = fork();
    if (pid == 0) {
        _exit(fcntl(file, F_GETFD) < 0 && gml_handed_bytes(waiting) == 0 ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0); /* a child has none */
    CHECK(fcntl(file, F_GETFD) >= 0);
    gml_torch_unshare();
    CHECK(fcntl(file, F_GETFD) < 0);
}

TEST(there_is_room_for_as_many_as_it_has_slots) {
    pid_t children[GML_SHARE_SLOTS];
    int ready[2] = {-1, -1}, hold[2] = {-1, -1};
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

int main(void) {
    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(path, sizeof path, "%s/device", folder);
    for (const check_test *test = check_tests(); test; test = test->next) {
        check_run_alone(test->name, test->run); /* lakes live as long as their process */
    }
    CHECK(rmdir(folder) == 0);
    return report();
}
