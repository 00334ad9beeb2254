/* STAlloc's synthesis on the lifetimes of one stream, which planner.py compares the planner with.
 *
 * bench_stalloc ALIGNMENT < LIFETIMES: 64-byte lifetimes as in gmlake_plan.h, one after the other.
 * The placement passes the independent check. Prints one JSON object; its time covers making the
 * instance ready, placing and checking, as gml_solution.time_ns does.
 */
#include "bench.h"
#include "stalloc/stalloc.h"

enum { FIRST_ROOM = 1024 };

typedef struct workload {
    gml_problem problem;
    gml_lifetime *lifetimes;
    uint32_t *members;
    uint64_t *by_item, *offsets;
} workload;

static void *room_for(void *old, size_t count, size_t item_bytes) {
    void *room = realloc(old, count * item_bytes);
    if (!room) {
        bench_die("no memory for the lifetimes");
    }
    return room;
}

static void read_lifetimes(workload *work) {
    size_t room = FIRST_ROOM, *count = &work->problem.count;
    do {
        room *= 2;
        work->lifetimes = room_for(work->lifetimes, room, sizeof *work->lifetimes);
        *count += fread(work->lifetimes + *count, sizeof *work->lifetimes, room - *count, stdin);
    } while (*count == room);
    work->problem.lifetimes = work->lifetimes;
    work->members = room_for(NULL, room, sizeof *work->members);
    work->by_item = room_for(NULL, room, sizeof *work->by_item);
    work->offsets = room_for(NULL, room, sizeof *work->offsets);
    for (size_t i = 0; i < *count; i++) {
        work->members[i] = (uint32_t)i;
        if (work->lifetimes[i].stream != work->lifetimes[0].stream) {
            bench_die("STAlloc's synthesis knows one stream");
        }
    }
}

static uint64_t place(workload *work) {
    gml_instance instance;
    uint64_t peak = 0;
    bench_check(
        gml_instance_open(&instance, &work->problem, work->members, work->problem.count, NULL),
        "no memory for the instance");
    bench_check(gml_stalloc_place(&work->problem, &instance, work->by_item, &peak),
                "no memory to place in");
    for (size_t i = 0; i < instance.count; i++) {
        work->offsets[instance.lifetime[i]] = work->by_item[i];
    }
    gml_instance_close(&instance);
    return peak;
}

int main(int argc, char **argv) {
    static char reason[200];
    workload work = {.problem.alignment_bytes = argc == 2 ? strtoull(argv[1], NULL, 10) : 0};
    if (work.problem.alignment_bytes == 0) {
        bench_die("usage: bench_stalloc ALIGNMENT < LIFETIMES");
    }
    read_lifetimes(&work);
    bench_check(gml_problem_check(&work.problem, reason, sizeof reason), reason);
    uint64_t begin_ns = gml_clock_ns(), peak = place(&work);
    bench_check(gml_planner_check(&work.problem, work.offsets, peak, reason, sizeof reason),
                reason);
    printf("{\"peak_bytes\": %llu, \"seconds\": %.9f}\n", (unsigned long long)peak,
           (double)(gml_clock_ns() - begin_ns) / 1e9);
    free(work.lifetimes);
    free(work.members);
    free(work.by_item);
    free(work.offsets);
    return 0;
}
