// Programs with one planted inefficiency each, and programs without any: `planted NAME`.
#include <cstdio>
#include <cstring>
#include <vector>

static const int N = 1 << 18; // elements; the object at fault has twice as many

__global__ void fill(float *to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = i;
}
__global__ void copy(float *to, const float *from, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[i] + 1;
}
__global__ void change(float *to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] *= 2;
}
__global__ void triangle(float *to, const float *from, int n) { // the first are read most
    float sum = 0;
    for (int i = 0; i <= threadIdx.x; i++) sum += from[i];
    for (int i = threadIdx.x; i < n; i += blockDim.x) to[i] = sum + from[i];
}
__global__ void tile(float *to, const float *from, int n) {
    __shared__ float part[256];
    part[threadIdx.x] = from[blockIdx.x * 256 + threadIdx.x];
    __syncthreads();
    to[blockIdx.x * 256 + threadIdx.x] = part[255 - threadIdx.x];
}
__global__ void vectors(float4 *to, const float4 *from) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    to[i] = from[i];
}
__global__ void gather(float *to, const float *from, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    to[i] = from[(i * 7919LL) % n];
}
__global__ void count(float *sums) { atomicAdd(&sums[threadIdx.x], 1.0f); }
__global__ void strided(float *to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int part = 0; part < 4; part++) to[i + part * (n / 4)] = part;
}
__global__ void bytes(unsigned char *to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = i;
}

static float *get(int n) {
    float *made = nullptr;
    cudaMalloc(&made, n * sizeof(float));
    return made;
}
static std::vector<float> host(2 * N, 1.0f);
static void up(float *to, int n) { cudaMemcpy(to, host.data(), n * 4, cudaMemcpyHostToDevice); }
static void down(float *from, int n) { cudaMemcpy(host.data(), from, n * 4, cudaMemcpyDeviceToHost); }
#define RUN(kernel, n, ...) kernel<<<((n) + 255) / 256, 256>>>(__VA_ARGS__)

static void used(int n) { // a buffer without any fault
    float *a = get(n);
    up(a, n);
    down(a, n);
    cudaFree(a);
}

// ---- with an inefficiency of the object of 2 N elements

static void early_allocation() {
    float *early = get(2 * N);
    used(N);
    up(early, 2 * N);
    down(early, 2 * N);
    cudaFree(early);
}
static void late_deallocation() {
    float *late = get(2 * N);
    up(late, 2 * N);
    down(late, 2 * N);
    used(N);
    cudaFree(late);
}
static void redundant_allocation() {
    float *first = get(2 * N), *second = get(2 * N);
    up(first, 2 * N);
    down(first, 2 * N);
    RUN(fill, 2 * N, second, 2 * N);
    down(second, 2 * N);
    cudaFree(first);
    cudaFree(second);
}
static void unused_allocation() {
    float *unused = get(2 * N), *a = get(N);
    RUN(copy, N, a, (const float *)a, unused ? N : 0);
    cudaFree(a);
    cudaFree(unused);
}
static void memory_leak() {
    float *leaked = get(2 * N);
    RUN(fill, 2 * N, leaked, 2 * N);
    down(leaked, 2 * N);
}
static void temporary_idleness() {
    float *idle = get(2 * N), *a = get(N);
    RUN(fill, 2 * N, idle, 2 * N);
    for (int i = 0; i < 4; i++) RUN(fill, N, a, N);
    RUN(change, 2 * N, idle, 2 * N);
    cudaFree(idle);
    cudaFree(a);
}
static void dead_write() {
    float *twice = get(2 * N);
    cudaMemset(twice, 0, 2 * N * 4);
    up(twice, 2 * N);
    down(twice, 2 * N);
    cudaFree(twice);
}
static void overallocation() {
    float *large = get(2 * N);
    RUN(fill, N / 4, large, N / 4);
    cudaFree(large);
}
static void non_uniform_access_frequency() {
    float *hot = get(2 * N), *a = get(2 * N);
    RUN(fill, 2 * N, hot, 2 * N);
    triangle<<<1, 1024>>>(a, hot, 2 * N);
    cudaFree(hot);
    cudaFree(a);
}
static void structured_access() {
    float *slices = get(2 * N);
    for (int i = 0; i < 4; i++) RUN(fill, N / 2, slices + i * (N / 2), N / 2);
    cudaFree(slices);
}

// ---- without any

static void clean_copy() { used(N); }
static void clean_kernel() {
    float *a = get(N);
    up(a, N);
    float *b = get(N);
    RUN(copy, N, b, a, N);
    cudaFree(a);
    down(b, N);
    cudaFree(b);
}
static void clean_in_place() {
    float *a = get(N);
    RUN(fill, N, a, N);
    for (int i = 0; i < 5; i++) RUN(change, N, a, N);
    cudaFree(a);
}
static void clean_shared() {
    float *a = get(N);
    RUN(fill, N, a, N);
    float *b = get(2 * N);
    RUN(tile, N, b + N, a, N);
    cudaFree(a);
    RUN(tile, N, b, b + N, N);
    cudaFree(b);
}
static void clean_vectors() {
    float *a = get(N);
    RUN(fill, N, a, N);
    float *b = get(N);
    RUN(vectors, N / 4, (float4 *)b, (float4 *)a);
    cudaFree(a);
    down(b, N);
    cudaFree(b);
}
static void clean_gather() {
    float *a = get(N);
    RUN(fill, N, a, N);
    float *b = get(N);
    RUN(gather, N, b, a, N);
    cudaFree(a);
    down(b, N);
    cudaFree(b);
}
static void clean_atomics() {
    float *sums = get(256);
    cudaMemset(sums, 0, 256 * 4);
    RUN(count, N, sums);
    down(sums, 256);
    cudaFree(sums);
}
static void clean_strided() {
    float *a = get(N);
    RUN(strided, N / 4, a, N);
    down(a, N);
    cudaFree(a);
}
static void clean_bytes() {
    unsigned char *a = nullptr;
    cudaMalloc(&a, N + 13);
    RUN(bytes, N + 13, a, N + 13);
    cudaMemcpy(host.data(), a, N + 13, cudaMemcpyDeviceToHost);
    cudaFree(a);
}
static void clean_managed() {
    float *a = nullptr;
    cudaMallocManaged(&a, N * 4);
    RUN(fill, N, a, N);
    RUN(change, N, a, N);
    cudaDeviceSynchronize();
    cudaFree(a);
}

int main(int argc, char **argv) {
#define PROGRAM(name) {#name, name}
    static const struct {
        const char *name;
        void (*run)();
    } programs[] = {PROGRAM(early_allocation),  PROGRAM(late_deallocation),
                    PROGRAM(redundant_allocation), PROGRAM(unused_allocation),
                    PROGRAM(memory_leak),       PROGRAM(temporary_idleness),
                    PROGRAM(dead_write),        PROGRAM(overallocation),
                    PROGRAM(non_uniform_access_frequency), PROGRAM(structured_access),
                    PROGRAM(clean_copy),        PROGRAM(clean_kernel),
                    PROGRAM(clean_in_place),    PROGRAM(clean_shared),
                    PROGRAM(clean_vectors),     PROGRAM(clean_gather),
                    PROGRAM(clean_atomics),     PROGRAM(clean_strided),
                    PROGRAM(clean_bytes),       PROGRAM(clean_managed)};
    for (auto &program : programs) {
        if (argc > 1 && strcmp(argv[1], program.name) == 0) program.run();
    }
    cudaError_t error = cudaDeviceSynchronize();
    if (error) puts(cudaGetErrorString(error));
    return error;
}
