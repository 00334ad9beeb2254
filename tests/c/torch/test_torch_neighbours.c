/* Processes that share a device: who is asked, who gives, and what is left of one that ends. Each
 * neighbour is a child that obeys commands of one letter. */
#include "driver/handed.h"
#include "driver/streams.h"
#include "gmlake_elastic.h"
#include "gmlake_interop.h"
#include "gmlake_torch.h"
#include "lake/lake.h"
#include "support/check.h"
#include "support/fence_bench.h"
#include "support/torch_calls.h"
#include "torch/letters.h"
#include "torch/refusal.h"
#include "torch/registry.h"
#include "torch/relief.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

enum {
    REASON_BYTES = 320,
    MOST_NEIGHBOURS = 3,
    USED_MIB = 128,
    SPARE_MIB = 320,
    WORKED_MIB = 48,
    KEPT_MIB = 32,
    WORK_US = 50000
};

static char group[64]; /* of this run, so that no other one is a neighbour */

typedef struct neighbour {
    pid_t pid;
    int to, from;
} neighbour;

static neighbour neighbours[MOST_NEIGHBOURS];
static int neighbour_count;

/* ---- helpers --------------------------------------------------------------------------------- */

static gml_torch_neighbour others[GML_SHARE_PLACES];

static size_t count_others(void) {
    return gml_torch_neighbours(0, others);
}

static size_t count_files(void) {
    size_t count = 0;
    for (int file = 0; file < 1024; file++) {
        count += fcntl(file, F_GETFD) >= 0;
    }
    return count;
}

/* Once it has seen which connections are gone. */
static bool closes_files_down_to(size_t count) {
    for (int looks = 0; looks < 10000 && count_files() > count; looks++) {
        (void)usleep(1000);
    }
    return count_files() <= count;
}

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
    if (!CHECK_OK(gml_torch_share(0, group, priority, weight, reason, sizeof reason))) {
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

static _Atomic(void *) kept; /* given up when that is asked for */
static _Atomic unsigned reliefs;

static bool give_up(int device, uint64_t size_bytes) {
    (void)device;
    (void)size_bytes;
    void *given = kept;
    reliefs++;
    kept = NULL;
    if (given) {
        CHECK(torch_free(given));
        CHECK_OK(gml_lake_trim(gml_torch_lake(0), NULL));
    }
    return given;
}

/* y: keeps memory that it gives up when that is asked for. r: how often that was so.
 * g: how many MiB it has given, as one byte. n: how many neighbours it sees. s: how often it waited
 * for its device. w: all that it holds is in use for a moment longer. x: nobody knows until when.
 * q: ends. */
static void obey(int from, int to) {
    gml_streams *streams = gml_torch_lake(0)->driver->streams;
    char command = 0;
    while (read(from, &command, 1) == 1 && command != 'q') {
        gml_torch_shared now = sharing();
        unsigned char answer = (unsigned char)(command == 'g'   ? now.given_bytes / MIB
                                               : command == 's' ? count_waits()
                                               : command == 'r' ? reliefs
                                                                : count_others());
        if (command == 'w') {
            hold_used(streams, WORKED_MIB);
        }
        if (command == 'x') {
            hold_unmarked(WORKED_MIB);
        }
        if (command == 'y') {
            kept = torch_allocate(KEPT_MIB * MIB, 0, NULL);
            gml_torch_set_relief(give_up);
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

static void name_place(unsigned place, char out[GML_LETTER_NAME_BYTES]) {
    gml_letter_name(out, gml_letter_group(group), place);
}

static void end(void) {
    char name[GML_LETTER_NAME_BYTES];
    end_neighbours();
    gml_torch_unshare();
    name_place(0, name);
    int socket = gml_letter_listen(name);
    CHECK(socket >= 0); /* nobody is there any more */
    gml_letter_close(socket);
}

/* ---- tests ----------------------------------------------------------------------------------- */

TEST(idle_memory_goes_to_who_asks) {
    add_neighbour(64, 0, 1);
    begin();
    CHECK_EQ(count_others(), 1);
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

TEST(of_one_priority_who_has_most_for_its_weight_gives_first) {
    add_neighbour(64, 0, 4);
    add_neighbour(40, 0, 1);
    begin();
    CHECK(ask_for(8));
    CHECK_EQ(ask_neighbour(0, 'g'), 0);
    CHECK(ask_neighbour(1, 'g') >= 8);
    end();
}

/* After what is idle, and no more of them than need be. */
TEST(the_lowest_priority_gives_up_first) {
    add_neighbour(KEPT_MIB + 2, 1, 1); /* what is kept comes of what was idle */
    add_neighbour(KEPT_MIB + 2, -1, 1);
    add_neighbour(KEPT_MIB + 24, 2, 1);
    for (int i = 0; i < 3; i++) {
        (void)ask_neighbour(i, 'y');
    }
    begin();
    CHECK(ask_for(16));
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(ask_neighbour(i, 'r'), 0);
    }
    CHECK(ask_for(24));
    CHECK_EQ(ask_neighbour(1, 'r'), 1);
    CHECK_EQ(ask_neighbour(1, 'g'), 2 + KEPT_MIB);
    CHECK_EQ(ask_neighbour(0, 'r'), 0);
    CHECK(ask_for(2 * KEPT_MIB));
    CHECK_EQ(ask_neighbour(0, 'r'), 1);
    CHECK_EQ(ask_neighbour(2, 'r'), 1);
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

/* Nobody knows when that is: it is given after a wait for all work. */
TEST(memory_of_unknown_use_is_given_after_a_wait) {
    add_neighbour(2, 0, 1);
    begin();
    (void)ask_neighbour(0, 'x');
    unsigned before = ask_neighbour(0, 's');
    CHECK(ask_for(WORKED_MIB));
    CHECK(ask_neighbour(0, 'g') >= WORKED_MIB);
    CHECK(ask_neighbour(0, 's') > before);
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

static void stop_neighbour(int number) {
    int status = 0;
    CHECK(kill(neighbours[number].pid, SIGSTOP) == 0);
    CHECK(waitpid(neighbours[number].pid, &status, WUNTRACED) == neighbours[number].pid);
    CHECK(WIFSTOPPED(status)); /* it may run on until then */
}

/* Its place stays, since it may go on. */
TEST(who_is_stopped_holds_nobody_up) {
    add_neighbour(64, 0, 1);
    add_neighbour(32, 0, 1);
    begin();
    stop_neighbour(0);
    CHECK(ask_for(8));
    CHECK(ask_neighbour(1, 'g') >= 8);
    CHECK_EQ(count_others(), 2);
    CHECK(others[0].is_silent && !others[1].is_silent);
    CHECK_EQ(others[0].process, neighbours[0].pid);
    CHECK(kill(neighbours[0].pid, SIGCONT) == 0);
    while (count_others() && others[0].is_silent) {
        (void)usleep(1000); /* until it runs */
    }
    CHECK_EQ(others[0].idle_bytes, 64 * MIB);
    CHECK(ask_for(64));
    CHECK(ask_neighbour(0, 'g') > 0);
    end();
}

TEST(what_cannot_be_shared_says_why) {
    char reason[REASON_BYTES] = "";
    configure_host();
    hold_idle(2);
    CHECK_STATUS(gml_torch_share(0, "", 0, 1, reason, sizeof reason), GML_INVALID_ARGUMENT);
    CHECK(strstr(reason, "name"));
    CHECK_STATUS(gml_torch_share(0, group, 0, 0, reason, sizeof reason), GML_INVALID_ARGUMENT);
    CHECK(strstr(reason, "weight"));
    CHECK_STATUS(gml_torch_share(GML_TORCH_DEVICES, group, 0, 1, NULL, 0), GML_INVALID_ARGUMENT);
    CHECK_EQ(sharing().why[0], 0);
}

/* ---- others that are not as they should be --------------------------------------------------- */

enum { LATE_MIB = 70 };

/* A child that listens at the place, and does as `live` says with who connects, one after the
 * other. */
static pid_t start_stranger(unsigned place, void (*live)(int peer)) {
    char name[GML_LETTER_NAME_BYTES], letter = 0;
    int ready[2] = {-1, -1};
    CHECK(pipe(ready) == 0);
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        name_place(place, name);
        int listener = gml_letter_listen(name), peer = -1;
        (void)!write(ready[1], &letter, 1);
        for (;;) {
            peer = gml_letter_accept(listener);
            if (peer >= 0) {
                live(peer);
            }
            gml_letter_close(peer);
            (void)usleep(1000);
        }
    }
    CHECK(read(ready[0], &letter, 1) == 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    return pid;
}

static void end_stranger(pid_t pid) {
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK(waitpid(pid, NULL, 0) == pid);
}

/* The next letter of that kind; false: there is none, as the other end is gone. */
static bool await(int peer, gml_letter *letter, gml_letter_kind kind) {
    int files[GML_LETTER_MOST_FILES];
    gml_received found = GML_RECEIVED_NOTHING;
    while (found != GML_RECEIVED_END && !(found == GML_RECEIVED && letter->kind == kind)) {
        found = gml_letter_receive(peer, letter, files);
        (void)usleep(found == GML_RECEIVED_NOTHING ? 100 : 0);
    }
    return found == GML_RECEIVED;
}

static bool say(int peer, gml_letter_kind kind, uint64_t bytes) {
    const gml_letter letter = {
        .kind = kind, .weight = 1, .bytes = bytes, .idle_bytes = LATE_MIB * MIB};
    return gml_letter_send(peer, &letter, NULL);
}

/* Is asked what it has, and then for some of it. */
static bool is_asked_for_memory(int peer) {
    gml_letter letter;
    return await(peer, &letter, GML_LETTER_LOOK) && say(peer, GML_LETTER_TOLD, 0) &&
           await(peer, &letter, GML_LETTER_TAKE);
}

static void end_when_asked(int peer) {
    (void)is_asked_for_memory(peer);
}

static void be_silent_when_asked(int peer) {
    gml_letter letter;
    if (is_asked_for_memory(peer)) {
        (void)await(peer, &letter, GML_LETTER_REFUSED); /* nobody says that */
    }
}

static void give_nothing_of_what_it_has(int peer) {
    gml_letter letter;
    bool goes_on = is_asked_for_memory(peer);
    while (goes_on) {
        goes_on = say(peer, GML_LETTER_GAVE, 0) && await(peer, &letter, GML_LETTER_TAKE);
    }
}

/* Sends a file when it goes on, after it was stopped. */
static void send_late(int peer) {
    gml_letter letter = {.kind = GML_LETTER_FILES, .count = 1, .rest.sizes = {LATE_MIB * MIB}};
    if (is_asked_for_memory(peer)) {
        (void)raise(SIGSTOP);
        (void)gml_letter_send(peer, &letter, &peer);
        (void)say(peer, GML_LETTER_GAVE, LATE_MIB * MIB);
    }
}

static void write_nonsense(int peer) {
    gml_letter letter;
    (void)await(peer, &letter, GML_LETTER_LOOK);
    (void)send(peer, "nonsense", 8, MSG_NOSIGNAL);
    (void)await(peer, &letter, GML_LETTER_REFUSED);
}

/* Sends a file, and ends before it says that this is all. */
static void send_and_end(int peer) {
    gml_letter letter = {.kind = GML_LETTER_FILES, .count = 1, .rest.sizes = {LATE_MIB * MIB}};
    if (is_asked_for_memory(peer)) {
        (void)gml_letter_send(peer, &letter, &peer);
    }
}

static void claim_more_files(int peer) {
    gml_letter letter = {.kind = GML_LETTER_FILES, .count = 1, .rest.sizes = {LATE_MIB * MIB}};
    if (is_asked_for_memory(peer)) {
        letter.count = GML_LETTER_MOST_FILES;
        CHECK(send(peer, &letter, sizeof letter - sizeof letter.lost, MSG_NOSIGNAL) > 0);
        CHECK(say(peer, GML_LETTER_GAVE, 0));
        (void)await(peer, &letter, GML_LETTER_REFUSED);
    }
}

/* Answers once, and ends the connection at the next question. */
static void answer_once(int peer) {
    gml_letter letter;
    if (await(peer, &letter, GML_LETTER_LOOK) && say(peer, GML_LETTER_TOLD, 0)) {
        (void)await(peer, &letter, GML_LETTER_LOOK);
    }
}

/* Sends a file with its answer, which nobody asked for. */
static void send_unasked(int peer) {
    gml_letter letter = {.kind = GML_LETTER_FILES, .count = 1, .rest.sizes = {LATE_MIB * MIB}};
    if (await(peer, &letter, GML_LETTER_LOOK)) {
        letter = (gml_letter){.kind = GML_LETTER_FILES, .count = 1};
        letter.rest.sizes[0] = LATE_MIB * MIB;
        (void)gml_letter_send(peer, &letter, &peer);
        (void)say(peer, GML_LETTER_TOLD, 0);
        (void)await(peer, &letter, GML_LETTER_REFUSED);
    }
}

TEST(files_that_nobody_asked_for_are_not_kept) {
    begin();
    pid_t pid = start_stranger(2, send_unasked);
    size_t before = count_files();
    CHECK_EQ(count_others(), 1);
    CHECK_EQ(gml_torch_look_at(group, others), 2); /* this process, too */
    CHECK(closes_files_down_to(before + 1));       /* a connection is kept */
    CHECK_EQ(gml_handed_bytes(gml_handed_to(gml_registry_device(0))), 0);
    CHECK_EQ(sharing().taken_bytes, 0);
    end_stranger(pid);
    end();
}

/* So that who watches sees what a process that asks would see. */
TEST(who_does_not_share_sees_all_that_do) {
    CHECK_EQ(gml_torch_look_at(group, others), 0);
    add_neighbour(64, 3, 1);
    add_neighbour(32, 0, 1);
    stop_neighbour(1);
    CHECK_EQ(gml_torch_look_at(group, others), 2);
    CHECK_EQ(others[0].process, neighbours[0].pid);
    CHECK_EQ(others[0].priority, 3);
    CHECK_EQ(others[0].held_bytes, 64 * MIB);
    CHECK_EQ(others[0].idle_bytes, 64 * MIB);
    CHECK(!others[0].is_silent && !others[0].is_stopped);
    CHECK(others[1].is_silent && others[1].is_stopped);
    CHECK(kill(neighbours[1].pid, SIGCONT) == 0);
    CHECK_EQ(ask_neighbour(0, 'n'), 1); /* nobody joined */
    end();
}

/* In the account of a refusal, and its text. */
TEST(a_refusal_says_what_others_hold) {
    char text[GML_REFUSAL_BYTES];
    add_neighbour(64, 0, 1);
    add_neighbour(32, 0, 1);
    begin();
    CHECK(ask_for(8));
    CHECK_EQ(ask_neighbour(1, 'n'), 2);
    stop_neighbour(1);
    (void)ask_for(200);
    gml_lake *lake = gml_torch_lake(0);
    gml_refusal_look(lake, NULL, 512 * MIB, 0, 0);
    gml_refusal_write(lake, 0, 512 * MIB, GML_OUT_OF_MEMORY, text, sizeof text);
    gml_refusal_end();
    CHECK_EQ(gml_last_refusal()->processes, 2);
    CHECK_EQ(gml_last_refusal()->processes_silent, 1);
    CHECK(strstr(text, "2 processes with gmlake share the device: "));
    CHECK(strstr(text, "1 of them did not answer and was passed over"));
    CHECK(kill(neighbours[1].pid, SIGCONT) == 0);
    end();
}

/* It may have needed the place for others. */
TEST(who_ends_a_connection_is_asked_over_another) {
    begin();
    pid_t pid = start_stranger(2, answer_once);
    for (int looks = 0; looks < 3; looks++) {
        CHECK_EQ(count_others(), 1);
        CHECK_EQ(others[0].idle_bytes, LATE_MIB * MIB);
    }
    end_stranger(pid);
    CHECK_EQ(count_others(), 0);
    end();
}

/* Who dies, says nothing or writes nonsense is passed over, and another one gives. */
TEST(others_give_what_one_does_not) {
    void (*const lives[])(int) = {end_when_asked, be_silent_when_asked, write_nonsense,
                                  claim_more_files, give_nothing_of_what_it_has};
    add_neighbour(200, 1, 1);
    begin();
    for (size_t i = 0; i < sizeof lives / sizeof *lives; i++) {
        unsigned before = ask_neighbour(0, 'g');
        pid_t pid = start_stranger(2, lives[i]);
        CHECK(ask_for(8));
        CHECK(ask_neighbour(0, 'g') >= before + 8);
        CHECK_EQ(gml_handed_bytes(gml_handed_to(gml_registry_device(0))), 0);
        end_stranger(pid);
    }
    end();
}

static _Atomic unsigned *counted; /* by a child */

static void count_looks(int peer) {
    gml_letter letter;
    while (await(peer, &letter, GML_LETTER_LOOK)) {
        (*counted)++;
    }
}

/* It has its question already. */
TEST(who_does_not_answer_is_asked_once) {
    counted =
        mmap(NULL, sizeof *counted, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    begin();
    pid_t pid = start_stranger(2, count_looks);
    for (int times = 0; times < 3; times++) {
        CHECK_EQ(count_others(), 1);
        CHECK(others[0].is_silent && !others[0].is_stopped);
    }
    CHECK_EQ(*counted, 1);
    end_stranger(pid);
    end();
}

/* Longer than one is waited for that says nothing. */
static void give_after_work(int peer) {
    if (is_asked_for_memory(peer)) {
        CHECK(say(peer, GML_LETTER_WAITING, 0));
        (void)usleep(1200 * 1000);
        CHECK(say(peer, GML_LETTER_GAVE, LATE_MIB * MIB));
        (void)await(peer, &(gml_letter){0}, GML_LETTER_REFUSED);
    }
}

TEST(who_says_that_it_waits_for_work_is_waited_for) {
    begin();
    pid_t pid = start_stranger(2, give_after_work);
    CHECK(ask_for(8));
    CHECK_EQ(sharing().taken_bytes, LATE_MIB * MIB);
    CHECK(sharing().longest_ns > 1100 * UINT64_C(1000000));
    end_stranger(pid);
    end();
}

/* Nobody waits for it any more, and it is asked again once it has answered that it is there. */
TEST(what_is_given_too_late_is_not_taken) {
    add_neighbour(100, 1, 1);
    begin();
    pid_t pid = start_stranger(2, send_late);
    CHECK(ask_for(8));
    unsigned before = ask_neighbour(0, 'g');
    CHECK(before >= 8);
    CHECK(kill(pid, SIGCONT) == 0);
    for (int looks = 0; looks < 10000 && (count_others() < 2 || others[1].is_silent); looks++) {
        (void)usleep(1000);
    }
    CHECK_EQ(others[1].idle_bytes, LATE_MIB * MIB);
    CHECK_EQ(gml_handed_bytes(gml_handed_to(gml_registry_device(0))), 0);
    CHECK_EQ(sharing().taken_bytes / MIB, before);
    end_stranger(pid);
    end();
}

/* What came is idle memory of who got it, who asks for less until it is used. */
TEST(what_came_before_one_ended_is_not_lost) {
    add_neighbour(100, 1, 1);
    begin();
    pid_t pid = start_stranger(2, send_and_end);
    CHECK(ask_for(8));
    end_stranger(pid);
    gml_handed *waiting = gml_handed_to(gml_registry_device(0));
    CHECK_EQ(gml_handed_bytes(waiting), LATE_MIB * MIB);
    CHECK_EQ(sharing().taken_bytes, LATE_MIB * MIB);
    unsigned before = ask_neighbour(0, 'g');
    CHECK(!ask_for(LATE_MIB - 2));
    CHECK_EQ(ask_neighbour(0, 'g'), before);
    CHECK(ask_for(LATE_MIB + 2));
    CHECK(ask_neighbour(0, 'g') > before);
    int file = waiting->pieces[0].file;
    pid = fork();
    if (pid == 0) {
        _exit(fcntl(file, F_GETFD) < 0 && gml_handed_bytes(waiting) == 0 ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0); /* a child has none */
    CHECK(fcntl(file, F_GETFD) >= 0);
    uint64_t free_bytes = 0, total_bytes = 0;
    CHECK_OK(gml_driver_memory_info(gml_torch_lake(0)->driver, &free_bytes, &total_bytes));
    CHECK(gml_torch_ask_neighbours(0, free_bytes - SPARE_MIB * MIB + MIB, false));
    CHECK(fcntl(file, F_GETFD) < 0); /* what is no lake's needs it on the device */
    end();
}

TEST(who_asked_and_is_gone_is_given_nothing) {
    char name[GML_LETTER_NAME_BYTES];
    pid_t process = 0;
    const gml_letter asked = {.kind = GML_LETTER_TAKE, .bytes = 32 * MIB};
    add_neighbour(64, 0, 1);
    begin();
    stop_neighbour(0);
    name_place(0, name);
    int socket = gml_letter_connect(name, &process);
    CHECK_EQ(process, neighbours[0].pid);
    CHECK(gml_letter_send(socket, &asked, NULL));
    gml_letter_close(socket);
    CHECK(kill(neighbours[0].pid, SIGCONT) == 0);
    CHECK_EQ(ask_neighbour(0, 'n'), 1);
    while (count_others() && others[0].is_silent) {
        (void)usleep(1000);
    }
    CHECK_EQ(others[0].idle_bytes, 64 * MIB);
    CHECK_EQ(ask_neighbour(0, 'g'), 0);
    end();
}

/* Connections that ask for nothing, more than it keeps, and letters that nobody should write. */
TEST(who_writes_nonsense_keeps_nobody_from_asking) {
    enum { MOST = 400 };
    const gml_letter with_a_file = {.kind = GML_LETTER_FILES, .count = 1};
    static int sockets[MOST];
    char name[GML_LETTER_NAME_BYTES];
    pid_t process = 0;
    add_neighbour(64, 0, 1);
    begin();
    CHECK(ask_for(8));
    CHECK_EQ(ask_neighbour(0, 'n'), 1); /* each knows the other one */
    size_t before = count_files();
    name_place(1, name); /* its own: the neighbour came first */
    for (int i = 0; i < MOST; i++) {
        sockets[i] = gml_letter_connect(name, &process);
        if (sockets[i] >= 0 && i % 8 == 0) {
            (void)send(sockets[i], name, (size_t)i % sizeof name, MSG_NOSIGNAL);
        } else if (sockets[i] >= 0 && i % 8 == 1) {
            (void)say(sockets[i], (gml_letter_kind)(i % 12), 0);
        } else if (sockets[i] >= 0 && i % 8 == 2) {
            (void)gml_letter_send(sockets[i], &with_a_file, &sockets[0]);
        }
    }
    CHECK(ask_for(8));
    CHECK_EQ(ask_neighbour(0, 'n'), 1);
    CHECK_EQ(gml_torch_look_at(group, others), 2);
    CHECK(!others[0].is_silent && !others[1].is_silent); /* there is a place for a new one */
    for (int i = 0; i < MOST; i++) {
        gml_letter_close(sockets[i]);
    }
    CHECK(ask_for(64));
    CHECK(closes_files_down_to(before));
    end();
}

TEST(there_is_room_for_as_many_as_it_has_places) {
    char name[GML_LETTER_NAME_BYTES];
    int sockets[GML_SHARE_PLACES];
    char reason[REASON_BYTES] = "";
    configure_host();
    for (unsigned i = 0; i < GML_SHARE_PLACES; i++) {
        name_place(i, name);
        sockets[i] = gml_letter_listen(name);
        CHECK(sockets[i] >= 0);
    }
    hold_idle(2);
    CHECK_STATUS(gml_torch_share(0, group, 0, 1, reason, sizeof reason), GML_UNSUPPORTED);
    CHECK(strstr(reason, "64 processes"));
    CHECK(strcmp(sharing().why, reason) == 0);
    CHECK(!sharing().is_shared);
    gml_letter_close(sockets[7]);
    CHECK_OK(gml_torch_share(0, group, 0, 1, reason, sizeof reason));
    CHECK_EQ(sharing().why[0], 0);
    gml_torch_unshare();
}

int main(void) {
    (void)snprintf(group, sizeof group, "test %ld", (long)getpid());
    for (const check_test *test = check_tests(); test; test = test->next) {
        check_run_alone(test->name, test->run); /* lakes live as long as their process */
    }
    return report();
}
