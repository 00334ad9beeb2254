/* Devices that several processes use: each takes memory of what the others leave.
 *
 * The processes that name the same file have a slot each, with what they hold of each device. A
 * slot is held by the lock of a byte, which goes with its process; one more byte is locked during
 * each call, so that no two take the same memory. The last process that ends removes the file.
 *
 * Memory that goes to another process as a file is used while it is on its way. Such a file is the
 * same one, opened again, with the lock of a byte of its own. All locks belong to what is open,
 * wherever it is sent, and end when the last process closes it.
 */
#include "driver/model.h"
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

/* Where what is written about flights begins, and where the locks of flights, of slots, and of a
 * call do: none is of a byte that is there. */
#define PLACES_BEGIN (INT64_C(1) << 20)
#define LOCKS_BEGIN (INT64_C(1) << 30)
enum { SLOT_LOCKS = FLIGHTS, CALL_LOCK = SLOT_LOCKS + SLOTS };

typedef struct flight {
    uint64_t size_bytes; /* 0: free */
    int number;          /* of the device */
    int holders;         /* processes whose own memory it is; it counts as used by them */
} flight;

/* What is in the file, held by devices by their numbers, whatever CUDA_VISIBLE_DEVICES makes of
 * them. */
typedef struct page {
    char format[32];
    uint64_t used_bytes[SLOTS][STANDIN_MOST_DEVICES];
    flight flights[FLIGHTS];
} page;

static const char FORMAT[] = "gmlake stand-in devices 2";
static const char OTHERS[] = "another program's file, left as it is: name one that is not there";

/* Guarded by the lock of the stand-in. */
static struct {
    page *page; /* NULL: not open */
    int file, slot;
} shared;

static void __attribute__((noreturn)) give_up(const char *what) {
    char why[200];
    (void)snprintf(why, sizeof why, "%s: %s", what, strerror(errno)); /* NOLINT(*-mt-unsafe) */
    standin_refuse("GMLAKE_STANDIN_SHARED", why);
}

/* Locks a byte, unlocks it, or asks whether anything else has it locked. */
static bool lock_bytes(int file, int command, short type, int number, int count) {
    struct flock wanted = {.l_type = type, .l_start = LOCKS_BEGIN + number, .l_len = count};
    int result;
    do {
        result = fcntl(file, command, &wanted);
    } while (result != 0 && errno == EINTR);
    return result == 0 && (command != F_OFD_GETLK || wanted.l_type != F_UNLCK);
}

static void lock_call(void) {
    if (!lock_bytes(shared.file, F_OFD_SETLKW, F_WRLCK, CALL_LOCK, 1)) {
        give_up("it cannot be locked");
    }
}

/* Whether the path leads to the file that is open. */
static bool is_named(const char *path) {
    struct stat named, opened;
    return stat(path, &named) == 0 && fstat(shared.file, &opened) == 0 &&
           named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
}

/* The sticky bit, which does nothing to a file, tells it from those of others, even while empty. */
static void open_file(const char *path) {
    struct stat about;
    shared.file = -1;
    do {
        (void)close(shared.file); /* the last process that had it has just removed it */
        shared.file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, S_ISVTX | 0600);
        if (shared.file < 0 || fstat(shared.file, &about) != 0) {
            give_up("it cannot be written");
        }
        if (!(about.st_mode & S_ISVTX)) {
            standin_refuse("GMLAKE_STANDIN_SHARED", OTHERS);
        }
        lock_call();
    } while (!is_named(path));
    errno = posix_fallocate(shared.file, 0, sizeof(page));
    shared.page = mmap(NULL, sizeof(page), PROT_READ | PROT_WRITE, MAP_SHARED, shared.file, 0);
    if (errno || shared.page == MAP_FAILED) {
        give_up("it cannot be mapped");
    }
    memcpy(shared.page->format, FORMAT, shared.page->format[0] ? 0 : sizeof FORMAT);
    if (memcmp(shared.page->format, FORMAT, sizeof FORMAT) != 0) {
        standin_refuse("GMLAKE_STANDIN_SHARED", OTHERS);
    }
    while (shared.slot < SLOTS &&
           !lock_bytes(shared.file, F_OFD_SETLK, F_WRLCK, SLOT_LOCKS + shared.slot, 1)) {
        shared.slot++;
    }
    if (shared.slot >= SLOTS) {
        standin_refuse("GMLAKE_STANDIN_SHARED", "64 processes have it already");
    }
    memset(shared.page->used_bytes[shared.slot], 0, sizeof shared.page->used_bytes[0]);
}

/* Whether anything else than the file that this process keeps has one of these locks. */
static bool is_locked(int number, int count) {
    return lock_bytes(shared.file, F_OFD_GETLK, F_WRLCK, number, count);
}

static uint64_t held_by_others(int number) {
    uint64_t sum_bytes = 0;
    for (int slot = 0; slot < SLOTS; slot++) {
        uint64_t held_bytes = shared.page->used_bytes[slot][number];
        if (held_bytes && is_locked(SLOT_LOCKS + slot, 1)) {
            sum_bytes += held_bytes;
        }
    }
    return sum_bytes;
}

/* ---- flights --------------------------------------------------------------------------------- */

int standin_open_flight(int ordinal, uint64_t size_bytes, int *out) {
    *out = -1;
    if (!shared.page) {
        return memfd_create("gmlake-standin-ticket", MFD_CLOEXEC);
    }
    int number = 0;
    while (number < FLIGHTS && shared.page->flights[number].size_bytes && is_locked(number, 1)) {
        number++;
    }
    char path[40];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", shared.file);
    int file = number < FLIGHTS ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file >= 0 && (!lock_bytes(file, F_OFD_SETLK, F_WRLCK, number, 1) ||
                      lseek(file, PLACES_BEGIN + (off_t)number * PLACE_BYTES, SEEK_SET) < 0)) {
        (void)close(file);
        file = -1;
    }
    if (file >= 0) {
        shared.page->flights[number] =
            (flight){size_bytes, standin_settings_get()->numbers[ordinal], 1};
        *out = number;
    }
    return file;
}

int standin_flight_of(int file) {
    off_t place = shared.page ? lseek(file, 0, SEEK_CUR) : 0;
    return place >= PLACES_BEGIN ? (int)((place - PLACES_BEGIN) / PLACE_BYTES) : -1;
}

bool standin_hold_flight(int number, int change) {
    if (number < 0 || number >= FLIGHTS || !shared.page) {
        return false;
    }
    bool was_held = shared.page->flights[number].holders > 0;
    shared.page->flights[number].holders += change;
    return !was_held;
}

/* What is on its way, and nobody's. */
static uint64_t flying_bytes(int device_number) {
    uint64_t sum_bytes = 0;
    for (int number = 0; number < FLIGHTS; number++) {
        flight *at = &shared.page->flights[number];
        if (at->size_bytes && at->holders == 0 && at->number == device_number) {
            bool is_flying = is_locked(number, 1);
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
    if (!shared.page) {
        open_file(settings->shared_file);
    } else {
        lock_call();
    }
    for (int i = 0; i < count; i++) {
        gml_model *model = (gml_model *)(void *)devices[i].driver;
        uint64_t others_bytes =
            held_by_others(settings->numbers[i]) + flying_bytes(settings->numbers[i]);
        uint64_t left_bytes =
            settings->served_bytes > others_bytes ? settings->served_bytes - others_bytes : 0;
        devices[i].others_bytes = others_bytes;
        model->capacity_bytes = left_bytes > model->used_bytes ? left_bytes : model->used_bytes;
    }
}

void standin_end_sharing(const standin_device *devices, int count) {
    if (!shared.page || !standin_settings_get()->shared_file) {
        return;
    }
    for (int i = 0; i < count; i++) {
        const gml_model *model = (const gml_model *)(const void *)devices[i].driver;
        int number = standin_settings_get()->numbers[i];
        shared.page->used_bytes[shared.slot][number] = model->used_bytes;
    }
    (void)lock_bytes(shared.file, F_OFD_SETLK, F_UNLCK, CALL_LOCK, 1);
}

void standin_forget_sharing(void) {
    if (shared.page) {
        (void)munmap(shared.page, sizeof *shared.page);
        (void)close(shared.file); /* the locks are the parent's, and stay */
        shared.page = NULL;
        shared.slot = 0;
    }
}

/* The process ends, and the file where it is the last: others that end after this one may call
 * still, and find the devices as they were. */
static void __attribute__((destructor)) leave(void) {
    standin_settings *settings = standin_settings_get();
    if (shared.page) {
        lock_call();
        if (!is_locked(SLOT_LOCKS, SLOTS) && is_named(settings->shared_file)) {
            (void)unlink(settings->shared_file);
        }
        settings->shared_file = NULL;
        (void)close(shared.file);
    }
}
