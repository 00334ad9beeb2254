/* Which basic blocks a process and its children run: a byte for each in a file that all of them
 * map.
 *
 * Preloaded into programs whose libraries were built with -fsanitize-coverage=trace-pc, as
 * tests/matrix/reach.py does. GMLAKE_REACH names the file: SLOTS paths of modules, then a map of
 * MAP_BYTES for each, in which a byte stands for the address that follows a block's call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SLOTS = 16, PATH_BYTES = 256 };
#define MAP_BYTES ((size_t)8 << 20)
#define FILE_BYTES (SLOTS * PATH_BYTES + SLOTS * MAP_BYTES)

/* A module of this process: addresses, and its map. */
static struct {
    uintptr_t begin, end, base;
    unsigned char *map;
} modules[SLOTS];
static atomic_int module_count;
static atomic_flag is_adding = ATOMIC_FLAG_INIT;
static char *shared;

__attribute__((constructor)) static void open_file(void) {
    const char *path = getenv("GMLAKE_REACH");
    int file = path ? open(path, O_RDWR) : -1;
    if (file >= 0) {
        void *mapped = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        shared = mapped == MAP_FAILED ? NULL : mapped;
        close(file);
    }
}

/* The map of a module's path; another process may take the slot at the same time, which the
 * first byte decides. */
static unsigned char *map_of(const char *path) {
    for (int i = 0; i < SLOTS; i++) {
        char *slot = shared + i * PATH_BYTES;
        char none = 0;
        if (__atomic_compare_exchange_n(slot, &none, path[0], 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
            strncpy(slot + 1, path + 1, PATH_BYTES - 2);
        }
        if (strncmp(slot, path, PATH_BYTES - 1) == 0) {
            return (unsigned char *)shared + SLOTS * PATH_BYTES + (size_t)i * MAP_BYTES;
        }
    }
    return NULL;
}

static int look(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    uintptr_t address = *(uintptr_t *)data;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + part->p_vaddr, end = begin + part->p_memsz;
        if (part->p_type == PT_LOAD && address >= begin && address < end) {
            char own[PATH_BYTES] = "";
            const char *path = info->dlpi_name;
            if (!path[0] && readlink("/proc/self/exe", own, sizeof own - 1) > 0) {
                path = own;
            }
            int count = module_count;
            modules[count].begin = begin;
            modules[count].end = end;
            modules[count].base = info->dlpi_addr;
            modules[count].map = map_of(path);
            module_count = count + 1;
            return 1;
        }
    }
    return 0;
}

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void) {
    if (!shared) {
        return;
    }
    uintptr_t address = (uintptr_t)__builtin_return_address(0);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < module_count; i++) {
            if (address >= modules[i].begin && address < modules[i].end) {
                if (modules[i].map && address - modules[i].base < MAP_BYTES) {
                    modules[i].map[address - modules[i].base] = 1;
                }
                return;
            }
        }
        if (atomic_flag_test_and_set(&is_adding)) {
            return; /* another thread adds it; this block is run again, or it is lost */
        }
        if (module_count < SLOTS) {
            dl_iterate_phdr(look, &address);
        }
        atomic_flag_clear(&is_adding);
    }
}
