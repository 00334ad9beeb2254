/* Devices that several processes use: each takes memory of what the others leave.
 *
 * The processes that name the same file have a slot each, with what they hold of each device. A
 * slot is held by the lock of the byte of its number, which goes with its process; one more byte is
 * locked during each call, so that no two take the same memory.
 *
 * Memory that goes to another process as a file is used while it is on its way. Such a file is an
 * open second file, the flights, with a lock of a byte of its own: one that belongs to what is
 * open, wherever it is sent, and ends when the last process closes it.
 */
#include "driver/modelled.h"
#include "standin/standin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SLOTS = 64, FLIGHTS = 4096, PLACE_BYTES = 256 };

/* Where what is written about flights begins, and where their locks do. */
#define PLACES_BEGIN (INT64_C(1) << 20)
#define LOCKS_BEGIN (INT64_C(1) << 30)

typedef uint64_t used_bytes[STANDIN_MOST_DEVICES];

typedef struct flight {
    uint64_t size_bytes; /* 0: free */
    int number;          /* of the device */
    int holders;         /* processes whose own memory it is; it counts as used by them */
} flight;

/* Guarded by the lock of the stand-in. Devices by their numbers, whatever CUDA_VISIBLE_DEVICES
 * makes of them. */
static struct {
    used_bytes *slots; /* NULL: not open */
    int file, slot;
    flight *flights;
    int flights_file;
} shared;

static void __attribute__((noreturn)) give_up(const char *what) {
    fprintf(stderr, "gmlake stand-in: GMLAKE_STANDIN_SHARED=%s: %s: %s\n",
            standin_settings_get()->shared_file, what, strerror(errno)); /* NOLINT(*-mt-unsafe) */
    _Exit(2);
}

static bool lock_byte(int number, int command, short type) {
    struct flock wanted = {.l_type = type, .l_whence = SEEK_SET, .l_start = number, .l_len = 1};
    int result;
    do {
        result = fcntl(shared.file, command, &wanted);
    } while (result != 0 && errno == EINTR);
    return command == F_GETLK ? wanted.l_type != F_UNLCK : result == 0;
}

static int open_flights(void) {
    char path[4096];
    (void)snprintf(path, sizeof path, "%s.flights", standin_settings_get()->shared_file);
    return open(path, O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
}

static void *map_file(int file, size_t size) {
    if (file < 0 || posix_fallocate(file, 0, (off_t)size) != 0) {
        give_up("it cannot be written");
    }
    void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) {
        give_up("it cannot be mapped");
    }
    return mapped;
}

static void open_file(void) {
    shared.file =
        open(standin_settings_get()->shared_file, O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
    shared.slots = map_file(shared.file, SLOTS * sizeof *shared.slots);
    shared.flights_file = open_flights();
    shared.flights = map_file(shared.flights_file, FLIGHTS * sizeof *shared.flights);
    while (shared.slot < SLOTS && !lock_byte(shared.slot, F_SETLK, F_WRLCK)) {
        shared.slot++;
    }
    if (shared.slot == SLOTS) {
        give_up("64 processes have it already");
    }
    memset(shared.slots[shared.slot], 0, sizeof *shared.slots);
}

static uint64_t held_by_others(int number) {
    uint64_t sum_bytes = 0;
    for (int slot = 0; slot < SLOTS; slot++) {
        uint64_t held_bytes = slot == shared.slot ? 0 : shared.slots[slot][number];
        if (held_bytes && lock_byte(slot, F_GETLK, F_WRLCK)) {
            sum_bytes += held_bytes;
        }
    }
    return sum_bytes;
}

/* ---- flights --------------------------------------------------------------------------------- */

/* Whether the file of a flight is open anywhere: asked of the file that this process keeps, which
 * holds no such lock. */
static bool is_open(int number) {
    struct flock asked = {.l_type = F_WRLCK, .l_start = LOCKS_BEGIN + number, .l_len = 1};
    return fcntl(shared.flights_file, F_OFD_GETLK, &asked) == 0 && asked.l_type != F_UNLCK;
}

int standin_open_flight(int ordinal, uint64_t size_bytes, int *out) {
    *out = -1;
    if (!shared.slots) {
        return memfd_create("gmlake-standin-ticket", MFD_CLOEXEC);
    }
    int number = 0;
    while (number < FLIGHTS && shared.flights[number].size_bytes && is_open(number)) {
        number++;
    }
    int file = number < FLIGHTS ? open_flights() : -1;
    struct flock taken = {.l_type = F_WRLCK, .l_start = LOCKS_BEGIN + number, .l_len = 1};
    if (file >= 0 && (fcntl(file, F_OFD_SETLK, &taken) != 0 ||
                      lseek(file, PLACES_BEGIN + (off_t)number * PLACE_BYTES, SEEK_SET) < 0)) {
        (void)close(file);
        file = -1;
    }
    if (file >= 0) {
        shared.flights[number] = (flight){size_bytes, standin_settings_get()->numbers[ordinal], 1};
        *out = number;
    }
    return file;
}

int standin_flight_of(int file) {
    off_t place = shared.slots ? lseek(file, 0, SEEK_CUR) : 0;
    return place >= PLACES_BEGIN ? (int)((place - PLACES_BEGIN) / PLACE_BYTES) : -1;
}

bool standin_hold_flight(int number, int change) {
    if (number < 0 || number >= FLIGHTS || !shared.slots) {
        return false;
    }
    bool was_held = shared.flights[number].holders > 0;
    shared.flights[number].holders += change;
    return !was_held;
}

/* What is on its way, and nobody's. */
static uint64_t flying_bytes(int device_number) {
    uint64_t sum_bytes = 0;
    for (int number = 0; number < FLIGHTS; number++) {
        flight *at = &shared.flights[number];
        if (at->size_bytes && at->holders == 0 && at->number == device_number) {
            bool is_flying = is_open(number);
            sum_bytes += is_flying ? at->size_bytes : 0;
            at->size_bytes = is_flying ? at->size_bytes : 0;
        }
    }
    return sum_bytes;
}

/* ---- each call ------------------------------------------------------------------------------- */

void standin_begin_sharing(standin_device *devices, int count) {
    const standin_settings *settings = standin_settings_get();
    if (!settings->shared_file) {
        return;
    }
    if (!shared.slots) {
        open_file();
    }
    if (!lock_byte(SLOTS, F_SETLKW, F_WRLCK)) {
        give_up("it cannot be locked");
    }
    for (int i = 0; i < count; i++) {
        gml_model *model = &((gml_modelled *)(void *)devices[i].driver)->model;
        uint64_t others_bytes =
            held_by_others(settings->numbers[i]) + flying_bytes(settings->numbers[i]);
        uint64_t left_bytes =
            settings->served_bytes > others_bytes ? settings->served_bytes - others_bytes : 0;
        devices[i].others_bytes = others_bytes;
        model->capacity_bytes = left_bytes > model->used_bytes ? left_bytes : model->used_bytes;
    }
}

void standin_end_sharing(const standin_device *devices, int count) {
    if (!shared.slots) {
        return;
    }
    for (int i = 0; i < count; i++) {
        const gml_modelled *modelled = (const gml_modelled *)(const void *)devices[i].driver;
        int number = standin_settings_get()->numbers[i];
        shared.slots[shared.slot][number] = modelled->model.used_bytes;
    }
    (void)lock_byte(SLOTS, F_SETLK, F_UNLCK);
}

void standin_forget_sharing(void) {
    if (shared.slots) {
        (void)munmap(shared.slots, SLOTS * sizeof *shared.slots);
        (void)munmap(shared.flights, FLIGHTS * sizeof *shared.flights);
        (void)close(shared.file); /* the locks are the parent's, and stay */
        (void)close(shared.flights_file);
        shared.slots = NULL;
        shared.slot = 0;
    }
}
