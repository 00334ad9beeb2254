// Kernels of random accesses to one buffer: `random DRAWS FILE` writes what each really accesses.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

enum Kind { LOAD, STORE, ATOMIC, REDUCE, GATHER, GENERIC, ASYNC, BULK_IN, BULK_OUT, BULK_ADD, KINDS };
static const int BYTES = 16384, MOST = 6;

struct Access {
    int kind, threads, size, offset, stride;
};
struct Draw {
    int count;
    Access accesses[MOST];
};

template <class T> __device__ void load(char *at) { (void)*(volatile T *)at; }
template <class T> __device__ void store(char *at) { *(volatile T *)at = 0; }
__device__ void load_16(char *at) {
    int a, b, c, d;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(at));
}
__device__ void store_16(char *at) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(at), "r"(0) : "memory");
}
__device__ void load_any(char *at, int size) {
    if (size == 1) load<char>(at);
    if (size == 2) load<short>(at);
    if (size == 4) load<int>(at);
    if (size == 8) load<long long>(at);
    if (size == 16) load_16(at);
}
__device__ void store_any(char *at, int size) {
    if (size == 1) store<char>(at);
    if (size == 2) store<short>(at);
    if (size == 4) store<int>(at);
    if (size == 8) store<long long>(at);
    if (size == 16) store_16(at);
}
__device__ void async(char *at, int size, unsigned to) {
    if (size == 4) asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(at) : "memory");
    if (size == 8) asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(at) : "memory");
    if (size == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(at) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
}

__global__ void play(char *data, const int *order, Draw draw, int none) {
    __shared__ alignas(128) char part[4096 + 16 * 256];
    __shared__ alignas(8) uint64_t barrier;
    volatile int local[16];
    unsigned shared = __cvta_generic_to_shared(part), wait = __cvta_generic_to_shared(&barrier);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(wait));
        asm volatile("fence.proxy.async.shared::cta;");
    }
    for (int i = 0; i < 16; i++) local[(i * 5 + none) & 15] = i;
    __syncthreads();
    int parity = 0;
    for (int i = 0; i < draw.count; i++) {
        Access a = draw.accesses[i];
        char *at = data + a.offset + (long long)threadIdx.x * a.stride;
        if (threadIdx.x < a.threads) {
            if (a.kind == LOAD) load_any(at, a.size);
            if (a.kind == STORE) store_any(at, a.size);
            if (a.kind == ATOMIC) atomicAdd((unsigned *)at, local[threadIdx.x & 15]) == 77 ? part[0]++ : 0;
            if (a.kind == REDUCE) atomicMax((unsigned long long *)at, (unsigned long long)i);
            if (a.kind == GATHER) load_any(data + a.offset + order[threadIdx.x] * a.stride, a.size);
            if (a.kind == GENERIC) load_any(none ? part : at, a.size);
            if (a.kind == ASYNC) async(at, a.size, shared + 4096 + threadIdx.x * 16);
        }
        if (a.kind == BULK_IN) {
            if (threadIdx.x == 0) {
                asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(wait), "r"(a.size) : "memory");
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared), "l"(data + a.offset), "r"(a.size), "r"(wait) : "memory");
            }
            int done = 0;
            while (!done) asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.s32 %0, 1, 0, p; }" : "=r"(done) : "r"(wait), "r"(parity) : "memory");
            parity ^= 1;
        }
        if (a.kind == BULK_OUT && threadIdx.x == 0)
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(data + a.offset), "r"(shared), "r"(a.size) : "memory");
        if (a.kind == BULK_ADD && threadIdx.x == 0)
            asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;" ::"l"(data + a.offset), "r"(shared), "r"(a.size) : "memory");
        if (threadIdx.x == 0) asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
        __syncthreads();
    }
}

static Access draw_access() {
    Access a = {rand() % KINDS, 1 + rand() % 256, 1 << rand() % 5, 0, 0};
    if (a.kind == ATOMIC) a.size = 4;
    if (a.kind == REDUCE) a.size = 8;
    if (a.kind == ASYNC) a.size = 4 << rand() % 3;
    if (a.kind >= BULK_IN) {
        a.threads = 1;
        a.size = 16 * (1 + rand() % 200);
    }
    a.stride = a.kind >= BULK_IN ? 0 : a.size * (rand() % 4);
    int unit = a.kind >= BULK_IN ? 16 : a.size;
    a.offset = rand() % ((BYTES - (a.threads - 1) * a.stride - a.size) / unit + 1) * unit;
    return a;
}

// For each byte: 1 read, 2 written; for each word: how often, an atomic counting twice.
static void note(const Access &a, const int *order, uint8_t *kinds, uint32_t *counts) {
    static const int flags[] = {1, 2, 3, 3, 1, 1, 1, 1, 2, 3};
    for (int t = 0; t < a.threads; t++) {
        int at = a.offset + (a.kind == GATHER ? order[t] : t) * a.stride;
        for (int b = at; b < at + a.size; b++) {
            kinds[b] |= flags[a.kind];
            counts[b / 4] += b == at || b % 4 == 0 ? 1 + flags[a.kind] / 3 : 0;
        }
    }
}

int main(int argc, char **argv) {
    char *data;
    int *order, mixed[256];
    FILE *file = fopen(argv[2], "wb");
    cudaMalloc(&data, BYTES);
    cudaMalloc(&order, sizeof mixed);
    for (int draw = 0; draw < atoi(argv[1]); draw++) {
        Draw made = {1 + rand() % MOST};
        uint8_t kinds[BYTES] = {0};
        uint32_t counts[BYTES / 4] = {0};
        int threads = 1;
        for (int i = 0; i < made.count; i++) {
            made.accesses[i] = draw_access();
            threads = made.accesses[i].threads > threads ? made.accesses[i].threads : threads;
        }
        for (int t = 0; t < 256; t++) mixed[t] = t;
        for (int i = 0; i < made.count; i++) { // a permutation of the threads that gather
            Access &a = made.accesses[i];
            if (a.kind == GATHER) a.threads = 256, a.offset = 0;
            if (a.kind == GATHER) threads = 256;
        }
        for (int t = 255; t > 0; t--) {
            int other = rand() % (t + 1), kept = mixed[t];
            mixed[t] = mixed[other];
            mixed[other] = kept;
        }
        cudaMemcpy(order, mixed, sizeof mixed, cudaMemcpyHostToDevice);
        for (int i = 0; i < made.count; i++) note(made.accesses[i], mixed, kinds, counts);
        play<<<1, threads>>>(data, order, made, 0);
        fwrite(kinds, 1, sizeof kinds, file);
        fwrite(counts, 1, sizeof counts, file);
    }
    cudaError_t error = cudaDeviceSynchronize();
    if (error) puts(cudaGetErrorString(error));
    fclose(file);
    return error;
}
