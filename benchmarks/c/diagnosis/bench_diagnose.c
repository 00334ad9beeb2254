/* ms of processor time per pass of a diagnosis: 1,000,000 APIs and 100,000 objects, in one stream
 * and in four.
 *
 * The trace is that of a program that allocates and frees all the time: each object lives for about
 * 600 APIs, one in 64 for a hundred times as long. A kernel reads two objects and writes one, every
 * fourth access is to a part, every eighth API is a copy or a set. The number of
 * APIs may be given. Prints one JSON object; `whole` is gml_diagnose() itself, which also sorts the
 * findings and fixes all of them together.
 */
#include "base/mix.h"
#include "bench.h"
#include "diagnosis/findings.h"

#include <inttypes.h>

#define KIB (UINT64_C(1) << 10)

enum { MOST_LIVE = 64, ACCESSES = 3, APIS_PER_OBJECT = 10, LONG_LIVED = 64 };

static void *take(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) {
        bench_die("no memory");
    }
    return memory;
}

/* ---- the trace ------------------------------------------------------------------------------- */

typedef struct program {
    gml_api *apis;
    gml_object *objects;
    gml_access *accesses;
    gml_access_range *ranges;
    gml_object_trace trace;
    uint32_t live[MOST_LIVE];
    size_t live_count;
    uint64_t random;
    uint64_t streams;
} program;

static uint64_t below(program *self, uint64_t bound) {
    return gml_mix_next(&self->random) % bound;
}

static gml_api *add_api(program *self, gml_api_kind kind, uint32_t object) {
    gml_api *api = &self->apis[self->trace.api_count++];
    *api = (gml_api){
        .stream = below(self, self->streams),
        .first_access = self->trace.access_count,
        .object = object,
        .kind = kind,
    };
    return api;
}

static void add_access(program *self, gml_api *api, uint32_t object, uint32_t flags) {
    gml_access *access = &self->accesses[self->trace.access_count++];
    *access = (gml_access){self->trace.range_count, 0, object, flags, 0};
    api->access_count++;
    if (below(self, 4) == 0) {
        uint64_t piece = self->objects[object].size_bytes / 16, first = below(self, 8);
        access->range_count = 1;
        self->ranges[self->trace.range_count++] =
            (gml_access_range){first * piece, piece, 2 * piece, 1 + below(self, 4), 1};
    }
}

static void add_object(program *self) {
    uint32_t o = (uint32_t)self->trace.object_count++;
    self->objects[o] = (gml_object){
        .size_bytes = (1 + below(self, 4096)) * KIB,
        .element_bytes = 4,
    };
    self->live[self->live_count++] = o;
    add_api(self, GML_API_ALLOC, o);
    gml_api *first = add_api(self, GML_API_KERNEL, GML_NO_OBJECT);
    self->accesses[self->trace.access_count++] = (gml_access){0, 0, o, GML_ACCESS_WRITES, 0};
    first->access_count = 1;
}

static void remove_object(program *self) {
    size_t place = below(self, self->live_count);
    if (self->live[place] % LONG_LIVED == 0 && below(self, 100)) {
        return;
    }
    add_api(self, GML_API_FREE, self->live[place]);
    self->live[place] = self->live[--self->live_count];
}

static void add_kernel(program *self) {
    if (below(self, 8) == 0) {
        gml_api *api = add_api(self, below(self, 2) ? GML_API_COPY : GML_API_SET, GML_NO_OBJECT);
        add_access(self, api, self->live[below(self, self->live_count)], GML_ACCESS_WRITES);
        return;
    }
    gml_api *api = add_api(self, GML_API_KERNEL, GML_NO_OBJECT);
    size_t first = below(self, self->live_count);
    for (size_t i = 0; i < ACCESSES && i < self->live_count; i++) {
        add_access(self, api, self->live[(first + i) % self->live_count],
                   i ? GML_ACCESS_READS : GML_ACCESS_WRITES);
    }
}

static void tell(program *self, size_t apis, uint64_t streams) {
    *self = (program){.random = 7, .streams = streams};
    self->apis = take(apis, sizeof *self->apis);
    self->objects = take(apis, sizeof *self->objects);
    self->accesses = take(ACCESSES * apis, sizeof *self->accesses);
    self->ranges = take(ACCESSES * apis, sizeof *self->ranges);
    self->trace.apis = self->apis;
    self->trace.objects = self->objects;
    self->trace.accesses = self->accesses;
    self->trace.ranges = self->ranges;
    while (self->trace.api_count < apis) {
        bool is_due = self->trace.object_count < self->trace.api_count / APIS_PER_OBJECT;
        if (self->live_count < 2 || (is_due && self->live_count < MOST_LIVE)) {
            add_object(self);
        } else if (is_due) {
            remove_object(self);
        } else {
            add_kernel(self);
        }
    }
}

static void forget(program *self) {
    free(self->apis);
    free(self->objects);
    free(self->accesses);
    free(self->ranges);
}

/* ---- the passes ------------------------------------------------------------------------------ */

typedef gml_status (*find_pass)(const gml_trace_index *, const gml_diagnose_options *,
                                gml_findings *);

static uint64_t spent_ns(void) {
    struct timespec spent;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent) != 0) {
        bench_die("no clock");
    }
    return (uint64_t)spent.tv_sec * UINT64_C(1000000000) + (uint64_t)spent.tv_nsec;
}

static double since(uint64_t begin_ns) {
    return (double)(spent_ns() - begin_ns) / 1e6;
}

static void check(gml_status status) {
    if (status != GML_OK) {
        bench_die(gml_status_text(status));
    }
}

static void time_finders(const gml_trace_index *index, const gml_diagnose_options *options,
                         gml_findings *findings) {
    static const struct {
        const char *name;
        find_pass find;
    } passes[] = {{"timing", gml_find_timing},
                  {"reuse", gml_find_reuse},
                  {"dead_writes", gml_find_dead_writes},
                  {"inside", gml_find_inside}};
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        size_t before = findings->count;
        uint64_t begin_ns = spent_ns();
        check(passes[i].find(index, options, findings));
        printf("      \"%s\": {\"ms\": %.0f, \"findings\": %zu},\n", passes[i].name,
               since(begin_ns), findings->count - before);
    }
}

static void time_passes(const gml_object_trace *trace) {
    gml_diagnose_options options;
    gml_diagnose_defaults(&options);
    gml_trace_index index;
    gml_findings findings = {0};
    gml_diagnosis diagnosis = {0};
    char reason[160];
    uint64_t begin_ns = spent_ns();
    if (gml_index_build(&index, trace, reason, sizeof reason) != GML_OK) {
        bench_die(reason);
    }
    printf("      \"index\": {\"ms\": %.0f, \"times\": %zu},\n", since(begin_ns),
           (size_t)index.time_count);
    time_finders(&index, &options, &findings);
    diagnosis.findings = findings.items;
    diagnosis.finding_count = findings.count;
    begin_ns = spent_ns();
    check(gml_find_peaks(&index, &options, &diagnosis));
    printf("      \"peaks\": {\"ms\": %.0f},\n", since(begin_ns));
    begin_ns = spent_ns();
    check(gml_value_findings(&index, &diagnosis));
    printf("      \"value\": {\"ms\": %.0f},\n", since(begin_ns));
    gml_index_clear(&index);
    gml_diagnosis_clear(&diagnosis);
}

static void bench(const char *name, size_t apis, uint64_t streams, const char *comma) {
    program self;
    tell(&self, apis, streams);
    printf("    \"%s\": {\n", name);
    printf("      \"trace\": {\"apis\": %zu, \"objects\": %zu, \"accesses\": %zu},\n",
           self.trace.api_count, self.trace.object_count, self.trace.access_count);
    time_passes(&self.trace);
    gml_diagnosis diagnosis;
    uint64_t begin_ns = spent_ns();
    check(gml_diagnose(&self.trace, NULL, &diagnosis, NULL, 0));
    double whole_ms = since(begin_ns);
    printf("      \"whole\": {\"ms\": %.0f, \"findings\": %zu, \"peak_MiB\": %" PRIu64
           ", \"fixed_peak_MiB\": %" PRIu64 "}\n    }%s\n",
           whole_ms, diagnosis.finding_count, diagnosis.peaks[0].bytes / KIB / KIB,
           diagnosis.fixed_peak_bytes / KIB / KIB, comma);
    gml_diagnosis_clear(&diagnosis);
    forget(&self);
}

int main(int argc, char **argv) {
    const size_t usual_apis = 1000000;
    size_t apis = argc > 1 ? strtoull(argv[1], NULL, 10) : usual_apis;
    if (apis < 1) {
        bench_die("the number of APIs must be at least 1");
    }
    printf("{\n  \"unit\": \"ms\",\n  \"scenarios\": {\n");
    bench("one_stream", apis, 1, ",");
    bench("four_streams", apis, 4, "");
    printf("  }\n}\n");
    return 0;
}
