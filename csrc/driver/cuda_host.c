/* Page-locked memory of the host.
 *
 * CUDA's own calls take it page by page: for allocators that use them a first sleep of 13.5 GB took
 * 8 to 10 s on a machine with an NVIDIA H100. Taken in huge pages by several threads and locked
 * afterwards it took 1.2 s, and 4.9 s in the first process on that machine, the copies among them;
 * those are as fast (benchmarks/results/gpu_sleeping.json).
 */
#include "base/rounding.h"
#include "base/size.h"
#include "driver/cuda_internal.h"

#include <inttypes.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_THREADS = 8 };
static const uint64_t LEAST_PART_BYTES = UINT64_C(64) << 20; /* the least that is worth a thread */
static const uint64_t HUGE_PAGE_BYTES = UINT64_C(2) << 20;

/* The range that one thread touches. */
typedef struct part {
    volatile char *begin;
    uint64_t size_bytes;
    uint64_t page_bytes;
} part;

static void *touch(void *context) {
    const part *of = context;
    for (uint64_t at = 0; at < of->size_bytes; at += of->page_bytes) {
        of->begin[at] = 0;
    }
    return NULL;
}

/* Makes the system back every address with a page. This thread touches the parts that get no thread
 * of their own. */
static void touch_all(char *memory, uint64_t size_bytes) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t count = size_bytes / LEAST_PART_BYTES + 1;
    count = count < MOST_THREADS ? count : MOST_THREADS;
    count = cores > 0 && count > (uint64_t)cores ? (uint64_t)cores : count;
    uint64_t part_bytes = gml_round_up(gml_divide_up(size_bytes, count), HUGE_PAGE_BYTES);
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    part parts[MOST_THREADS];
    pthread_t threads[MOST_THREADS];
    bool is_started[MOST_THREADS] = {false};
    for (uint64_t i = 0; i < count; i++) {
        uint64_t begin = i * part_bytes < size_bytes ? i * part_bytes : size_bytes;
        uint64_t left_bytes = size_bytes - begin;
        parts[i] =
            (part){memory + begin, left_bytes < part_bytes ? left_bytes : part_bytes, page_bytes};
        is_started[i] = i > 0 && pthread_create(&threads[i], NULL, touch, &parts[i]) == 0;
    }
    for (uint64_t i = 0; i < count; i++) {
        if (is_started[i]) {
            (void)pthread_join(threads[i], NULL);
        } else {
            (void)touch(&parts[i]);
        }
    }
}

gml_status gml_cuda_host_malloc(gml_driver *self, uint64_t size_bytes, void **out) {
    void *memory =
        mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return gml_driver_fail(self, GML_NO_HOST_MEMORY, "the host has no %s left: %m",
                               gml_size_of(size_bytes).text);
    }
    /* A child of this process would share its pages, and a write to one after that would go to
     * another page than the device knows. */
    (void)madvise(memory, size_bytes, MADV_DONTFORK);
    (void)madvise(memory, size_bytes, MADV_HUGEPAGE);
    touch_all(memory, size_bytes);
    gml_status status = GML_CUDA_CALL_INSIDE(self, cuMemHostRegister, memory, size_bytes, 0);
    if (status != GML_OK) {
        (void)munmap(memory, size_bytes);
        return status == GML_OUT_OF_MEMORY ? GML_NO_HOST_MEMORY : status;
    }
    *out = memory;
    return GML_OK;
}

gml_status gml_cuda_host_free(gml_driver *self, void *memory, uint64_t size_bytes) {
    gml_status status = GML_CUDA_CALL_INSIDE(self, cuMemHostUnregister, memory);
    if (status == GML_OK) {
        (void)munmap(memory, size_bytes);
    }
    return status;
}
