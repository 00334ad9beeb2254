/* What a program sends itself through memory without bytes: it gets that back until a kernel may
 * have changed it. Memory with bytes keeps what no copy and no fill changed. */
#include "standin/memory/recent.h"
#include "support.h"

enum { SIZE = 100, MOST_WRITES = 16 };

/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
void __cudaRegisterFunction(void **module, const char *host_function, char *device_function,
                            const char *name, int thread_limit, uint3 *thread, uint3 *block,
                            dim3 *block_dim, dim3 *grid_dim, int *warp_size);
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

static void run_kernel(cudaStream_t stream) {
    static char kernel; /* its address stands for it */
    const dim3 one = {1, 1, 1};
    __cudaRegisterFunction(NULL, &kernel, &kernel, "add", -1, NULL, NULL, NULL, NULL, NULL);
    OK(cudaLaunchKernel(&kernel, one, one, NULL, 0, stream));
}

/* Writes `size_bytes` bytes of this value. */
static void write_to(char *memory, int value, uint64_t size_bytes) {
    unsigned char *host = malloc(size_bytes);
    CHECK(host != NULL);
    if (host != NULL) {
        memset(host, value, size_bytes);
        OK(cudaMemcpy(memory, host, size_bytes, cudaMemcpyHostToDevice));
    }
    free(host);
}

/* Whether this is what is read, and zeros where the memory has no bytes and it is `forgotten`. */
static bool reads(const char *memory, int value, uint64_t size_bytes, bool is_forgotten) {
    unsigned char *host = malloc(size_bytes);
    bool holds = false;
    if (host != NULL) {
        memset(host, 0xee, size_bytes);
        OK(cudaMemcpy(host, memory, size_bytes, cudaMemcpyDeviceToHost));
        holds = holds_value(host, is_forgotten && !is_backed() ? 0 : value, size_bytes);
    }
    free(host);
    return holds;
}

CASE(what_was_written_is_read_back_whole_and_in_part) {
    char *memory = device_memory(MIB);
    write_to(memory + 512, 5, SIZE);
    CHECK(reads(memory + 512, 5, SIZE, false));
    CHECK(reads(memory + 512 + 1, 5, SIZE - 1, false));
    CHECK(reads(memory + 512, 5, SIZE - 1, false));
    CHECK(reads(memory + 512 + SIZE - 1, 5, 1, false));
    CHECK(reads(memory + 512 + SIZE, 0, 1, false));
    CHECK(reads(memory + 512 - 1, 0, 1, false));
}

CASE(places_in_a_write_are_told_apart) {
    unsigned char written[SIZE], host[SIZE / 2];
    char *memory = device_memory(MIB);
    for (int i = 0; i < SIZE; i++) {
        written[i] = (unsigned char)i;
    }
    OK(cudaMemcpy(memory, written, SIZE, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(host, memory + 30, SIZE / 2, cudaMemcpyDeviceToHost));
    CHECK(memcmp(host, written + 30, SIZE / 2) == 0);
}

CASE(of_two_writes_to_one_place_the_newer_counts) {
    char *memory = device_memory(MIB);
    write_to(memory, 5, SIZE);
    write_to(memory + SIZE / 2, 6, SIZE);
    CHECK(reads(memory, 5, SIZE / 2, false));
    CHECK(reads(memory + SIZE / 2, 6, SIZE, false));
    write_to(memory, 7, SIZE);
    CHECK(reads(memory, 7, SIZE, false));
    CHECK(reads(memory + SIZE, 6, SIZE / 2, false));
}

CASE(what_was_written_in_parts_is_not_put_together) {
    unsigned char host[2 * SIZE];
    char *memory = device_memory(MIB);
    write_to(memory, 5, SIZE);
    write_to(memory + SIZE, 6, SIZE);
    OK(cudaMemcpy(host, memory, 2 * SIZE, cudaMemcpyDeviceToHost));
    CHECK(holds_value(host, is_backed() ? 5 : 0, SIZE));
    CHECK(holds_value(host + SIZE, is_backed() ? 6 : 0, SIZE));
    OK(cudaMemcpy(host, memory + SIZE, 2 * SIZE, cudaMemcpyDeviceToHost));
    CHECK(holds_value(host, is_backed() ? 6 : 0, SIZE)); /* more than was written */
}

CASE(what_was_changed_in_part_is_not_what_it_was) {
    unsigned char host[SIZE];
    char *memory = device_memory(MIB);
    write_to(memory, 5, SIZE);
    write_to(memory + SIZE / 2, 6, 1);
    OK(cudaMemcpy(host, memory, SIZE, cudaMemcpyDeviceToHost));
    CHECK(holds_value(host, is_backed() ? 5 : 0, SIZE / 2));
    CHECK_EQ(host[SIZE / 2], is_backed() ? 6 : 0);
}

CASE(a_large_write_is_forgotten_with_all_before_it) {
    char *memory = device_memory(MIB);
    write_to(memory, 5, STANDIN_RECENT_BYTES);
    CHECK(reads(memory, 5, STANDIN_RECENT_BYTES, false));
    CHECK(reads(memory + STANDIN_RECENT_BYTES - 1, 5, 1, false));
    write_to(memory, 6, STANDIN_RECENT_BYTES + 1);
    CHECK(reads(memory, 6, SIZE, true));
    CHECK(reads(memory, 6, STANDIN_RECENT_BYTES + 1, true));
}

CASE(of_many_writes_the_oldest_is_forgotten) {
    char *memory = device_memory(MIB);
    for (int i = 0; i < MOST_WRITES; i++) {
        write_to(memory + 512 * i, i + 1, SIZE);
    }
    for (int i = 0; i < MOST_WRITES; i++) {
        CHECK(reads(memory + 512 * i, i + 1, SIZE, false));
    }
    write_to(memory + MIB / 2, 77, SIZE);
    CHECK(reads(memory, 1, SIZE, true));
    for (int i = 1; i < MOST_WRITES; i++) {
        CHECK(reads(memory + 512 * i, i + 1, SIZE, false));
    }
    CHECK(reads(memory + MIB / 2, 77, SIZE, false));
}

CASE(a_kernel_may_have_changed_all) {
    char *memory = device_memory(MIB);
    write_to(memory, 5, SIZE);
    run_kernel(NULL);
    CHECK(reads(memory, 5, SIZE, true));
    write_to(memory, 6, SIZE);
    CHECK(reads(memory, 6, SIZE, false));
}

CASE(a_kernel_changes_nothing_before_it_runs) {
    set_pace("manual");
    cudaStream_t stream = new_stream();
    char *memory = device_memory(MIB);
    write_to(memory, 5, SIZE);
    run_kernel(stream);
    CHECK(reads(memory, 5, SIZE, false));
    OK(cudaStreamSynchronize(stream));
    CHECK(reads(memory, 5, SIZE, true));
}

CASE(what_was_written_is_what_the_host_had_then) {
    set_pace("manual");
    cudaStream_t stream = new_stream();
    char *memory = device_memory(MIB);
    unsigned char *host = malloc(SIZE);
    CHECK(host != NULL);
    if (host != NULL) {
        memset(host, 5, SIZE);
        OK(cudaMemcpyAsync(memory, host, SIZE, cudaMemcpyHostToDevice, stream));
        CHECK_EQ(gmlake_standin_pending(stream), 1);
        memset(host, 6, SIZE);
    }
    free(host); /* a caller may, once the call has returned */
    OK(cudaStreamSynchronize(stream));
    CHECK(reads(memory, 5, SIZE, false));
}

CASE(a_fill_and_a_copy_on_the_device_change_what_they_change) {
    char *memory = device_memory(MIB), *other = device_memory(MIB);
    write_to(memory, 5, SIZE);
    OK(cudaMemset(memory, 6, SIZE));
    CHECK(reads(memory, 6, SIZE, true));
    write_to(memory, 5, SIZE);
    OK(cudaMemcpy(memory, other, SIZE, cudaMemcpyDeviceToDevice));
    CHECK(reads(memory, 0, SIZE, true));
    write_to(memory, 5, SIZE);
    OK(cudaMemcpy(other, memory, SIZE, cudaMemcpyDeviceToDevice));
    CHECK(reads(other, 5, SIZE, true));
}

CASE(rows_that_lie_apart_are_forgotten) {
    unsigned char host[SIZE];
    char *memory = device_memory(MIB);
    memset(host, 8, SIZE);
    write_to(memory, 5, SIZE);
    OK(cudaMemcpy2DAsync(memory, 512, host, SIZE / 2, SIZE / 2, 2, cudaMemcpyHostToDevice, NULL));
    CHECK(reads(memory, 8, SIZE / 2, true));
    CHECK(reads(memory + 512, 8, SIZE / 2, true));
}

int main(void) {
    return run_cases("eager", false);
}
