/* Slots in a file under locks of its bytes, and futexes in the slots. */
#include "torch/share_page.h"

#include "base/clock.h"
#include "base/reason.h"

#include <errno.h>
#include <fcntl.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#define LINE_BYTES 64 /* of a cache */
#define MILLISECOND_NS UINT64_C(1000000)

enum {
    VERSION = 2,
    REST_MS = 60000,  /* without a question; then the wait begins anew */
    LOOK_MS = 20,     /* between looks at whether who is asked still lives */
    OPEN_TRIES = 200, /* a millisecond apart, while the last process removes the file */
};

/* Zeroed: nobody ever had it. */
typedef struct slot {
    alignas(LINE_BYTES) _Atomic uint32_t bell;
    _Atomic uint32_t heard; /* the last question that is worked on */
    _Atomic uint32_t answer;
    _Atomic int32_t priority;
    _Atomic uint32_t weight;
    _Atomic uint64_t wanted_bytes;   /* of all questions that are not answered */
    _Atomic uint64_t askers, takers; /* of these questions: a bit for each slot; who takes files */
    _Atomic uint64_t given_bytes, idle_bytes;
    _Atomic uint64_t name[GML_PARCEL_NAME_WORDS]; /* of its socket */
} slot;

typedef struct shared {
    alignas(LINE_BYTES) _Atomic uint32_t version; /* 0: new */
    slot slots[GML_SHARE_SLOTS];
} shared;

struct gml_share_page {
    shared *shared;
    int file;
    int slot; /* its own */
    _Atomic bool is_stopped;
    char path[]; /* terminated */
};

/* ---- futexes --------------------------------------------------------------------------------- */

#ifdef __linux__

static const bool has_futexes = true;

/* Sleeps while the word has that value, at most `most_ns`; may return at any time. */
static void sleep_on(_Atomic uint32_t *word, uint32_t value, uint64_t most_ns) {
    const struct timespec most = {.tv_sec = (time_t)(most_ns / (1000 * MILLISECOND_NS)),
                                  .tv_nsec = (long)(most_ns % (1000 * MILLISECOND_NS))};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, value, &most, NULL, 0);
}

static void wake_all(_Atomic uint32_t *word) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

#else

static const bool has_futexes = false;

static void sleep_on(_Atomic uint32_t *word, uint32_t value, uint64_t most_ns) {
    (void)word;
    (void)value;
    (void)most_ns;
}

static void wake_all(_Atomic uint32_t *word) {
    (void)word;
}

#endif

static void pause_for(uint64_t pause_ns) {
    const struct timespec pause = {.tv_nsec = (long)pause_ns};
    (void)nanosleep(&pause, NULL);
}

/* ---- the file and its locks ------------------------------------------------------------------ */

/* Locks bytes from `first` on, to the end if `count` is 0, unless another process holds one. */
static bool lock_bytes(int file, off_t first, off_t count) {
    struct flock wanted = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = first, .l_len = count};
    return fcntl(file, F_SETLK, &wanted) == 0;
}

static bool is_held_by_other(int file, int number) {
    struct flock asked = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = number, .l_len = 1};
    return fcntl(file, F_GETLK, &asked) == 0 && asked.l_type != F_UNLCK;
}

/* Whether the open file is still the one at its path. */
static bool is_in_place(const gml_share_page *page) {
    struct stat opened, there;
    return fstat(page->file, &opened) == 0 && lstat(page->path, &there) == 0 &&
           opened.st_dev == there.st_dev && opened.st_ino == there.st_ino;
}

/* Locks a byte that nobody holds; false: there is none. */
static bool take_slot(gml_share_page *page) {
    for (page->slot = 0; page->slot < GML_SHARE_SLOTS; page->slot++) {
        if (lock_bytes(page->file, page->slot, 1)) {
            return true;
        }
    }
    return false;
}

static void close_file(gml_share_page *page) {
    if (page->file >= 0) {
        (void)close(page->file); /* with it go the locks */
        page->file = -1;
    }
}

static gml_status open_file(gml_share_page *page, char *reason, size_t reason_bytes) {
    struct stat about;
    page->file = open(page->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (page->file < 0 || fstat(page->file, &about) != 0) {
        return gml_refuse(GML_INVALID_ARGUMENT, reason, reason_bytes,
                          "%s cannot be opened: error %d", page->path, errno);
    }
    if (about.st_uid != geteuid() || !S_ISREG(about.st_mode)) {
        return gml_refuse(GML_INVALID_ARGUMENT, reason, reason_bytes,
                          "%s is not a file of this user's", page->path);
    }
    return GML_OK;
}

/* Opens the file and takes a slot in it, whoever makes or removes it meanwhile. */
static gml_status enter_file(gml_share_page *page, char *reason, size_t reason_bytes) {
    for (int tries = 0; tries < OPEN_TRIES; tries++) {
        gml_status status = open_file(page, reason, reason_bytes);
        if (status != GML_OK || (take_slot(page) && is_in_place(page))) {
            return status;
        }
        close_file(page);
        pause_for(MILLISECOND_NS);
    }
    return gml_refuse(GML_UNSUPPORTED, reason, reason_bytes,
                      "%d processes share the device already, as many as can", GML_SHARE_SLOTS);
}

static gml_status map_file(gml_share_page *page, char *reason, size_t reason_bytes) {
    int error = posix_fallocate(page->file, 0, sizeof *page->shared);
    if (error) {
        return gml_refuse(GML_INVALID_ARGUMENT, reason, reason_bytes,
                          "%s cannot be written: error %d", page->path, error);
    }
    void *mapped =
        mmap(NULL, sizeof *page->shared, PROT_READ | PROT_WRITE, MAP_SHARED, page->file, 0);
    if (mapped == MAP_FAILED) {
        return gml_refuse(GML_NO_HOST_MEMORY, reason, reason_bytes, "%s cannot be mapped: error %d",
                          page->path, errno);
    }
    page->shared = mapped;
    uint32_t found = 0;
    if (!atomic_compare_exchange_strong(&page->shared->version, &found, VERSION) &&
        found != VERSION) {
        return gml_refuse(GML_UNSUPPORTED, reason, reason_bytes,
                          "another version of gmlake shares the device: %s", page->path);
    }
    return GML_OK;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static slot *own_slot(gml_share_page *page) {
    return &page->shared->slots[page->slot];
}

/* What was asked of who had the slot before is answered: it gave nothing. */
static void begin_slot(gml_share_page *page, gml_share_terms terms) {
    slot *own = own_slot(page);
    atomic_store(&own->priority, terms.priority);
    atomic_store(&own->weight, terms.weight);
    atomic_store(&own->wanted_bytes, 0);
    atomic_store(&own->askers, 0);
    atomic_store(&own->takers, 0);
    atomic_store(&own->idle_bytes, 0);
    atomic_store(&own->heard, atomic_load(&own->bell));
    atomic_store(&own->answer, atomic_load(&own->heard));
    wake_all(&own->answer);
}

static void release(gml_share_page *page) {
    if (page->shared) {
        (void)munmap(page->shared, sizeof *page->shared);
    }
    close_file(page);
    free(page);
}

gml_status gml_share_page_open(const char *path, gml_share_terms terms, gml_share_page **out,
                               char *reason, size_t reason_bytes) {
    if (!has_futexes || path[0] != '/') {
        return gml_refuse(has_futexes ? GML_INVALID_ARGUMENT : GML_UNSUPPORTED, reason,
                          reason_bytes, "%s",
                          has_futexes ? "the path of a shared page is absolute"
                                      : "processes cannot share a device on this system");
    }
    size_t path_bytes = strlen(path) + 1;
    gml_share_page *page = calloc(1, sizeof *page + path_bytes);
    if (!page) {
        return gml_refuse(GML_NO_HOST_MEMORY, reason, reason_bytes, "no host memory for a page");
    }
    memcpy(page->path, path, path_bytes);
    page->file = -1;
    gml_status status = enter_file(page, reason, reason_bytes);
    if (status == GML_OK) {
        status = map_file(page, reason, reason_bytes);
    }
    if (status != GML_OK) {
        release(page);
        return status;
    }
    begin_slot(page, terms);
    *out = page;
    return GML_OK;
}

void gml_share_page_close(gml_share_page *page) {
    /* Who holds every byte is alone, and who comes now waits until the file is gone. */
    if (lock_bytes(page->file, 0, 0) && is_in_place(page)) {
        (void)unlink(page->path);
    }
    release(page);
}

void gml_share_page_abandon(gml_share_page *page) {
    release(page);
}

/* ---- who answers ----------------------------------------------------------------------------- */

/* Of all that has been asked since the last one. */
static gml_share_question read_question(gml_share_page *page) {
    slot *own = own_slot(page);
    gml_share_question question = {.wanted_bytes = atomic_exchange(&own->wanted_bytes, 0)};
    uint64_t askers = atomic_exchange(&own->askers, 0), takers = atomic_exchange(&own->takers, 0);
    bool is_one = askers && (askers & (askers - 1)) == 0;
    question.takes_files = is_one && askers == takers;
    for (int i = 0; question.takes_files && i < GML_PARCEL_NAME_WORDS; i++) {
        question.name[i] = atomic_load(&page->shared->slots[__builtin_ctzll(askers)].name[i]);
    }
    return question;
}

bool gml_share_page_next(gml_share_page *page, gml_share_question *out) {
    slot *own = own_slot(page);
    uint32_t bell;
    while ((bell = atomic_load(&own->bell)) == atomic_load(&own->answer) &&
           !atomic_load(&page->is_stopped)) {
        sleep_on(&own->bell, bell, REST_MS * MILLISECOND_NS);
    }
    atomic_store(&own->heard, bell);
    *out = read_question(page);
    return !atomic_load(&page->is_stopped);
}

void gml_share_page_answer(gml_share_page *page, uint64_t given_bytes, uint64_t idle_bytes) {
    slot *own = own_slot(page);
    atomic_fetch_add(&own->given_bytes, given_bytes);
    atomic_store(&own->idle_bytes, idle_bytes);
    atomic_store(&own->answer, atomic_load(&own->heard));
    wake_all(&own->answer);
}

void gml_share_page_stop(gml_share_page *page) {
    slot *own = own_slot(page);
    atomic_store(&page->is_stopped, true);
    atomic_fetch_add(&own->bell, 1);
    wake_all(&own->bell);
}

/* ---- who asks -------------------------------------------------------------------------------- */

static void read_slot(gml_share_page *page, int number, gml_share_other *out) {
    slot *from = &page->shared->slots[number];
    *out = (gml_share_other){
        .slot = number,
        .terms = {atomic_load(&from->priority), atomic_load(&from->weight)},
        .idle_bytes = atomic_load(&from->idle_bytes),
        .given_bytes = atomic_load(&from->given_bytes),
    };
}

size_t gml_share_page_others(gml_share_page *page, gml_share_other out[GML_SHARE_SLOTS]) {
    size_t count = 0;
    for (int number = 0; number < GML_SHARE_SLOTS; number++) {
        if (number != page->slot && is_held_by_other(page->file, number)) {
            read_slot(page, number, &out[count]);
            count++;
        }
    }
    return count;
}

void gml_share_page_accept(gml_share_page *page, const uint64_t name[GML_PARCEL_NAME_WORDS]) {
    for (int i = 0; i < GML_PARCEL_NAME_WORDS; i++) {
        atomic_store(&own_slot(page)->name[i], name[i]);
    }
}

uint32_t gml_share_page_ask(gml_share_page *page, int number, uint64_t wanted_bytes,
                            bool takes_files) {
    slot *asked = &page->shared->slots[number];
    uint64_t self = wanted_bytes ? UINT64_C(1) << page->slot : 0;
    atomic_fetch_or(&asked->takers, takes_files ? self : 0);
    atomic_fetch_or(&asked->askers, self); /* before the bytes: they are never another's alone */
    atomic_fetch_add(&asked->wanted_bytes, wanted_bytes);
    uint32_t question = atomic_fetch_add(&asked->bell, 1) + 1;
    wake_all(&asked->bell);
    return question;
}

/* Whether a number that rises, and may wrap, has come so far. */
static bool has_reached(uint32_t number, uint32_t wanted) {
    return (int32_t)(number - wanted) >= 0;
}

bool gml_share_page_wait(gml_share_page *page, uint32_t question, uint64_t patience_ns,
                         uint64_t deadline_ns, gml_share_other *other) {
    slot *asked = &page->shared->slots[other->slot];
    uint64_t busy_ns = gml_clock_ns(); /* when it was last seen at work, or asked */
    uint32_t answer;
    while (!has_reached(answer = atomic_load(&asked->answer), question)) {
        uint64_t now_ns = gml_clock_ns();
        busy_ns = atomic_load(&asked->heard) == answer ? busy_ns : now_ns;
        if (now_ns - busy_ns >= patience_ns || now_ns >= deadline_ns ||
            !is_held_by_other(page->file, other->slot)) {
            return false;
        }
        sleep_on(&asked->answer, answer, LOOK_MS * MILLISECOND_NS);
    }
    read_slot(page, other->slot, other);
    return true;
}
