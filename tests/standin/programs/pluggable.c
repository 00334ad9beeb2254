/* A pluggable allocator for PyTorch: it hands on what it is asked to cudaMalloc and cudaFree, and
 * counts each kind of question. The signatures are those of torch/csrc/cuda/
 * CUDAPluggableAllocator.h as a C function can have them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

enum { ALLOC, FREE, INIT, RESET, FRACTION, BASE, RECORD, BEGIN, END, RELEASE, KINDS };

/* std::pair<unsigned long long, unsigned long long>, which comes in two registers. */
typedef struct pool_id {
    uint64_t first, second;
} pool_id;

uint64_t asked[KINDS];
uint64_t live_bytes, most_bytes;
int device_count;
double fraction;
const void *recorded_stream;
pool_id begun, ended, released;

static int call_cuda(const char *name, void **place, void *address, size_t size) {
    if (place) {
        int (*take)(void **, size_t);
        *(void **)&take = dlsym(RTLD_DEFAULT, name);
        return take(place, size);
    }
    int (*give)(void *);
    *(void **)&give = dlsym(RTLD_DEFAULT, name);
    return give(address);
}

void *plug_alloc(size_t size, int device, void *stream) {
    void *address = NULL;
    (void)device, (void)stream;
    asked[ALLOC]++;
    if (size == 0 || call_cuda("cudaMalloc", &address, NULL, size) != 0) {
        return NULL;
    }
    live_bytes += size;
    most_bytes = live_bytes > most_bytes ? live_bytes : most_bytes;
    return address;
}

void plug_free(void *address, size_t size, int device, void *stream) {
    (void)device, (void)stream;
    asked[FREE]++;
    if (address && call_cuda("cudaFree", NULL, address, 0) == 0) {
        live_bytes -= size;
    }
}

void plug_init(int devices) {
    asked[INIT]++;
    device_count = devices;
}

void plug_reset(void) {
    asked[RESET]++;
}

void plug_fraction(double value, int device) {
    (void)device;
    asked[FRACTION]++;
    fraction = value;
}

void *plug_base(void *address, size_t *size) {
    (void)size;
    asked[BASE]++;
    return address;
}

void plug_record(void *address, void *stream) {
    asked[RECORD]++;
    if (address) {
        recorded_stream = stream;
    }
}

/* `filter` is a std::function by hidden reference. */
void plug_begin(int device, pool_id pool, const void *filter) {
    (void)device, (void)filter;
    asked[BEGIN]++;
    begun = pool;
}

void plug_end(int device, pool_id pool) {
    (void)device;
    asked[END]++;
    ended = pool;
}

void plug_release(int device, pool_id pool) {
    (void)device;
    asked[RELEASE]++;
    released = pool;
}
