/* Devices that several processes use: each takes memory of what the others leave.
 *
 * The processes that name the same file have a slot each, with what they hold of each device. A
 * slot is held by the lock of the byte of its number, which goes with its process; one more byte is
 * locked during each call, so that no two take the same memory.
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

enum { SLOTS = 64 };

typedef uint64_t used_bytes[STANDIN_MOST_DEVICES];

/* Guarded by the lock of the stand-in. Devices by their numbers, whatever CUDA_VISIBLE_DEVICES
 * makes of them. */
static struct {
    used_bytes *slots; /* NULL: not open */
    int file, slot;
} shared;

static void __attribute__((noreturn))
give_up(const char *what)
{
    fprintf(stderr, "gmlake stand-in: GMLAKE_STANDIN_SHARED=%s: %s: %s\n",
            standin_settings_get()->shared_file, what, strerror(errno)); /* NOLINT(*-mt-unsafe) */
    _Exit(2);
}

static bool
lock_byte(int number, int command, short type)
{
    struct flock wanted = {.l_type = type, .l_whence = SEEK_SET, .l_start = number, .l_len = 1};
    int result;
    do {
        result = fcntl(shared.file, command, &wanted);
    } while (result != 0 && errno == EINTR);
    return command == F_GETLK ? wanted.l_type != F_UNLCK : result == 0;
}

static void
open_file(void)
{
    shared.file =
        open(standin_settings_get()->shared_file, O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (shared.file < 0 || posix_fallocate(shared.file, 0, SLOTS * sizeof *shared.slots) != 0) {
        give_up("it cannot be written");
    }
    void *mapped = mmap(NULL, SLOTS * sizeof *shared.slots, PROT_READ | PROT_WRITE, MAP_SHARED,
                        shared.file, 0);
    if (mapped == MAP_FAILED) {
        give_up("it cannot be mapped");
    }
    shared.slots = mapped;
    while (shared.slot < SLOTS && !lock_byte(shared.slot, F_SETLK, F_WRLCK)) {
        shared.slot++;
    }
    if (shared.slot == SLOTS) {
        give_up("64 processes have it already");
    }
    memset(shared.slots[shared.slot], 0, sizeof *shared.slots);
}

static uint64_t
held_by_others(int number)
{
    uint64_t sum_bytes = 0;
    for (int slot = 0; slot < SLOTS; slot++) {
        uint64_t held_bytes = slot == shared.slot ? 0 : shared.slots[slot][number];
        if (held_bytes && lock_byte(slot, F_GETLK, F_WRLCK)) {
            sum_bytes += held_bytes;
        }
    }
    return sum_bytes;
}

void
standin_begin_sharing(standin_device *devices, int count)
{
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
        uint64_t others_bytes = held_by_others(settings->numbers[i]);
        uint64_t left_bytes =
            settings->served_bytes > others_bytes ? settings->served_bytes - others_bytes : 0;
        devices[i].others_bytes = others_bytes;
        model->capacity_bytes = left_bytes > model->used_bytes ? left_bytes : model->used_bytes;
    }
}

void
standin_end_sharing(const standin_device *devices, int count)
{
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

void
standin_forget_sharing(void)
{
    if (shared.slots) {
        (void)munmap(shared.slots, SLOTS * sizeof *shared.slots);
        (void)close(shared.file); /* the locks are the parent's, and stay */
        shared.slots = NULL;
        shared.slot = 0;
    }
}
