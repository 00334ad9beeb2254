/* The sentences about a refusal. */
#include "base/rounding.h"
#include "base/size.h"
#include "base/text.h"
#include "lake/situation.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What CUDA's context and its libraries take on a device, at most, or an eighth of a small one:
 * more is somebody else's. */
#define CONTEXT_BYTES (UINT64_C(1) << 30)

#define SIZE(size_bytes) gml_size_of(size_bytes).text

/* ---- the case -------------------------------------------------------------------------------- */

static uint64_t reach(const gml_situation *self) {
    return self->idle_bytes + self->room_bytes;
}

/* Free where it cannot serve the request. */
static uint64_t closed(const gml_situation *self) {
    return self->pools_bytes + self->streams_bytes + self->outside_bytes +
           self->regions_idle_bytes + self->pending_bytes;
}

uint64_t gml_situation_others(const gml_situation *self) {
    uint64_t known_bytes =
        self->free_bytes + self->held_bytes + self->native_bytes + self->regions_bytes;
    return gml_difference(self->total_bytes, known_bytes);
}

gml_case gml_situation_case(const gml_situation *self) {
    uint64_t size_bytes = self->size_bytes, others_bytes = gml_situation_others(self);
    uint64_t device_bytes = gml_difference(self->free_bytes, self->margin_bytes);
    if (self->is_limited && size_bytes <= self->idle_bytes + device_bytes) {
        return GML_CASE_LIMIT;
    }
    if (size_bytes <= reach(self)) {
        return GML_CASE_FRAGMENTED;
    }
    if (size_bytes <= reach(self) + closed(self)) {
        return GML_CASE_ELSEWHERE;
    }
    uint64_t usual_bytes = self->total_bytes / 8;
    usual_bytes = usual_bytes < CONTEXT_BYTES ? usual_bytes : CONTEXT_BYTES;
    return others_bytes >= usual_bytes && size_bytes <= reach(self) + closed(self) + others_bytes
               ? GML_CASE_OUTSIDE
               : GML_CASE_FULL;
}

const char *gml_case_name(gml_case value) {
    static const char *const names[GML_CASE_COUNT] = {"full", "fragmented", "elsewhere", "limit",
                                                      "outside"};
    return names[value];
}

/* ---- the verdict ----------------------------------------------------------------------------- */

static void say_full(gml_text *out, const gml_situation *self) {
    uint64_t live_bytes = self->live_bytes + self->elastic_bytes + self->native_bytes +
                          self->regions_bytes - self->regions_idle_bytes;
    uint64_t all_bytes =
        self->held_bytes + self->native_bytes + self->regions_bytes + self->room_bytes;
    gml_say(out,
            "%s of %s are live: what is free adds up to %s, %s too little, so this is not "
            "fragmentation.",
            SIZE(live_bytes), SIZE(all_bytes), SIZE(reach(self)),
            SIZE(gml_difference(self->size_bytes, reach(self))));
}

static void say_fragmented(gml_text *out, const gml_situation *self) {
    if (self->serves_bytes >= self->size_bytes) {
        gml_say(out, "%s are free, and would have served it: why they did not is not recorded.",
                SIZE(self->serves_bytes));
        return;
    }
    gml_say(out, "%s are free", SIZE(self->idle_bytes));
    if (self->pieces) {
        gml_say(out, ", in %" PRIu64 " piece%s", self->pieces, self->pieces == 1 ? "" : "s");
    }
    if (self->largest_bytes) {
        gml_say(out, " that serve%s at most %s", self->pieces == 1 ? "s" : "",
                SIZE(self->largest_bytes));
    }
    if (self->room_bytes) {
        gml_say(out, ", and %s more on the device", SIZE(self->room_bytes));
    }
    gml_say(out, ": enough, but fragmented.");
}

static void say_pool(gml_text *out, uint64_t owner, uint64_t number, uint64_t kind) {
    static const char *const names[] = {"private pool", "graph pool", "MemPool"};
    gml_say(out, "%s (%" PRIu64 ", %" PRIu64 ")",
            names[kind < sizeof names / sizeof *names ? kind : GML_POOL_KIND_UNKNOWN], owner,
            number);
}

typedef struct part {
    uint64_t size_bytes;
    const char *where;
} part;

/* Names where it is free, as far as that suffices. */
static void say_elsewhere(gml_text *out, const gml_situation *self) {
    const part parts[] = {
        {self->most_bytes, NULL},
        {gml_difference(self->pools_bytes, self->most_bytes), "in other private pools"},
        {self->regions_idle_bytes, "in other regions"},
        {self->outside_bytes, "outside of the private pool that must serve it"},
        {self->streams_bytes, "of other streams"},
        {self->pending_bytes, "but still used by other streams"},
    };
    enum { SERVE_NOTHING_ELSE = 3 }; /* the first parts */
    uint64_t left_bytes = gml_difference(self->size_bytes, reach(self));
    size_t end = 0; /* of the parts that were named */
    for (size_t i = 0; i < sizeof parts / sizeof *parts && left_bytes; i++) {
        if (parts[i].size_bytes) {
            gml_say(out, "%s%s%s ", end ? ", " : "", SIZE(parts[i].size_bytes),
                    end ? "" : " are free");
            end = i + 1;
            if (parts[i].where) {
                gml_say(out, "%s", parts[i].where);
            } else {
                gml_say(out, "in ");
                say_pool(out, self->most_owner, self->most_number, self->most_kind);
            }
        }
        left_bytes = gml_difference(left_bytes, parts[i].size_bytes);
    }
    gml_say(out, "%s",
            end <= SERVE_NOTHING_ELSE ? ", which serve nothing else."
                                      : ", where they cannot serve it now.");
}

static void say_limit(gml_text *out, const gml_situation *self) {
    if (self->limit_bytes) {
        gml_say(out,
                "%s is all that may be held, by a capacity or the memory fraction, while the "
                "device has %s free.",
                SIZE(self->limit_bytes), SIZE(self->free_bytes));
    } else {
        gml_say(out, "%s are free on the device, so a limit of the program's refused it.",
                SIZE(self->free_bytes));
    }
}

static void say_verdict(gml_text *out, const gml_situation *self) {
    switch (gml_situation_case(self)) {
    case GML_CASE_FRAGMENTED:
        say_fragmented(out, self);
        break;
    case GML_CASE_ELSEWHERE:
        say_elsewhere(out, self);
        break;
    case GML_CASE_LIMIT:
        say_limit(out, self);
        break;
    case GML_CASE_OUTSIDE:
        gml_say(out,
                "%s of %s are held outside of this process's allocator, by other processes, "
                "CUDA itself or libraries.",
                SIZE(gml_situation_others(self)), SIZE(self->total_bytes));
        break;
    default:
        say_full(out, self);
    }
}

/* ---- what would have helped ------------------------------------------------------------------ */

/* Of an idle private pool. */
static void say_of_pool(gml_text *out, const gml_situation *self) {
    if (self->most_kind == GML_POOL_KIND_MEMPOOL) {
        gml_say(out, " torch.cuda.MemPool(use_on_oom=True) serves others before memory runs out.");
    } else if (self->most_kind == GML_POOL_KIND_GRAPH && self->policy[0] &&
               (self->is_capturing || self->pool_owner || self->pool_number)) {
        gml_say(out,
                " gmlake.graphs_take_turns() lets graphs that never run together share theirs.");
    } else if (self->most_kind == GML_POOL_KIND_GRAPH) {
        gml_say(out, " That memory comes back when the graph is reset.");
    }
}

static void say_of_others(gml_text *out, const gml_situation *self) {
    if (self->is_shared) {
        gml_say(out, " The processes that share the device gave nothing more.");
    } else if (self->policy[0]) {
        gml_say(out,
                " GMLAKE_SHARE=device lets processes with gmlake give each other idle memory.");
    }
}

static void say_of_regions(gml_text *out, const gml_situation *self) {
    if (self->regions_bytes && !self->is_region) {
        gml_say(out, " gmlake.sleep() frees what regions hold, %s.", SIZE(self->regions_bytes));
    } else if (self->asleep_bytes) {
        gml_say(out,
                " Regions sleep, with %s: what other threads allocate sleeps too where a region "
                "is entered with everywhere=True.",
                SIZE(self->asleep_bytes));
    }
}

static void say_remedy(gml_text *out, const gml_situation *self) {
    gml_case seen = gml_situation_case(self);
    uint64_t missing_bytes = gml_difference(self->size_bytes, self->serves_bytes);
    if (missing_bytes && self->serves_bytes) {
        gml_say(out, "%s less would have been served.", SIZE(missing_bytes));
    } else if (missing_bytes) {
        gml_say(out, "No request of this kind would have been served.");
    }
    if (seen == GML_CASE_LIMIT && missing_bytes && self->limit_bytes) {
        gml_say(out, " So would all of it under a limit that is %s higher.", SIZE(missing_bytes));
    } else if (seen == GML_CASE_ELSEWHERE) {
        say_of_pool(out, self);
    } else if (seen == GML_CASE_OUTSIDE) {
        say_of_others(out, self);
    } else if (seen == GML_CASE_FULL) {
        say_of_regions(out, self);
    }
}

/* ---- the figures ----------------------------------------------------------------------------- */

static void say_device(gml_text *out, const gml_situation *self) {
    if (self->is_arena) {
        gml_say(out,
                "gmlake serves GPU %" PRIu64 " from one allocation of %s, of which %s was never "
                "used.",
                self->device, SIZE(self->total_bytes), SIZE(self->free_bytes));
    } else if (self->total_bytes) {
        gml_say(out, "GPU %" PRIu64 " has a total capacity of %s of which %s is free.",
                self->device, SIZE(self->total_bytes), SIZE(self->free_bytes));
    } else {
        gml_say(out, "GPU %" PRIu64 " has %s free.", self->device, SIZE(self->free_bytes));
    }
    if (self->limit_bytes) {
        gml_say(out, " This process may hold %s of it, by its capacity or the memory fraction.",
                SIZE(self->limit_bytes));
    }
    if (self->margin_bytes) {
        gml_say(out, " A margin of %s of it is left to others.", SIZE(self->margin_bytes));
    }
}

static void say_held(gml_text *out, const gml_situation *self) {
    const part parts[] = {
        {self->elastic_bytes, "by elastic tensors"},
        {self->pending_bytes, "freed but still used by other streams"},
        {self->pools_bytes, "free in private pools"},
        {self->streams_bytes, "free of other streams"},
        {self->outside_bytes, "free outside of the private pool"},
    };
    if (self->policy[0]) {
        gml_say(out, "gmlake (policy %s)", self->policy);
    } else {
        gml_say(out, "PyTorch");
    }
    gml_say(out, " holds %s: %s in use by %" PRIu64 " tensor%s", SIZE(self->held_bytes),
            SIZE(self->live_bytes), self->live_blocks, self->live_blocks == 1 ? "" : "s");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].size_bytes) {
            gml_say(out, ", %s %s", SIZE(parts[i].size_bytes), parts[i].where);
        }
    }
    if (self->host_bytes) {
        gml_say(out, ", beside %s of the host's memory", SIZE(self->host_bytes));
    }
    gml_say(out, ", and %s free", self->idle_bytes ? SIZE(self->idle_bytes) : "nothing else");
    if (self->largest_bytes) {
        gml_say(out, ", which serve at most %s", SIZE(self->largest_bytes));
    }
    gml_say(out, ".");
}

static void say_processes(gml_text *out, const gml_situation *self, const char *space) {
    gml_say(out, "%s%" PRIu64 " %s the device: %s held there%s%s%s.", space, self->processes,
            self->processes == 1 ? "process with gmlake shares" : "processes with gmlake share",
            SIZE(self->processes_held_bytes), self->processes_idle_bytes ? ", " : "",
            self->processes_idle_bytes ? SIZE(self->processes_idle_bytes) : "",
            self->processes_idle_bytes ? " of it idle" : "");
    if (self->processes_silent) {
        gml_say(out,
                " %" PRIu64 " of them did not answer and %s passed over: see "
                "gmlake.sharing().",
                self->processes_silent, self->processes_silent == 1 ? "was" : "were");
    }
}

static void say_others(gml_text *out, const gml_situation *self) {
    uint64_t others_bytes = gml_situation_others(self);
    const char *space = "";
    if (self->native_bytes) {
        gml_say(out, "PyTorch's own allocator holds %s.", SIZE(self->native_bytes));
        space = " ";
    }
    if (self->regions_bytes) {
        gml_say(out, "%s%s %s.", space,
                self->is_region ? "Outside of this region gmlake holds" : "Regions hold",
                SIZE(self->regions_bytes));
        space = " ";
    }
    if (others_bytes) {
        gml_say(out,
                "%sThe other %s are taken by CUDA itself, libraries such as NCCL, and other "
                "processes.",
                space, SIZE(others_bytes));
        space = " ";
    }
    if (self->processes) {
        say_processes(out, self, space);
    }
}

static void say_tried(gml_text *out, const gml_situation *self) {
    static const char *const names[GML_TRIED_COUNT] = {
        [GML_TRIED_IDLE] = "idle memory",
        [GML_TRIED_STREAMS] = "idle memory of other streams",
        [GML_TRIED_POOLS] = "released private pools",
        [GML_TRIED_DEVICE] = "waiting for the device",
        [GML_TRIED_LAKES] = "idle memory of other regions",
        [GML_TRIED_NATIVE] = "what PyTorch's own allocator caches",
        [GML_TRIED_PROCESSES] = "other processes",
        [GML_TRIED_GIVERS] = "elastic tensors and regions that yield",
        [GML_TRIED_HOST] = "memory of the host",
        [GML_TRIED_DRIVER] = "new memory from the driver",
    };
    const char *before = "Tried: ";
    for (int step = 0; step < GML_TRIED_COUNT; step++) {
        if (self->tried >> step & 1) {
            gml_say(out, "%s%s", before, names[step]);
            before = ", ";
        }
    }
    gml_say(out, "%s", self->tried ? "." : "");
    if (self->is_capturing) {
        gml_say(out, "%sWhile a graph is captured nothing can be waited for or given back.",
                self->tried ? " " : "");
    }
}

void gml_situation_say(const gml_situation *self, gml_sentence which, char *out, size_t out_bytes) {
    static void (*const say_each[GML_SAY_COUNT])(gml_text *, const gml_situation *) = {
        [GML_SAY_VERDICT] = say_verdict, [GML_SAY_REMEDY] = say_remedy,
        [GML_SAY_DEVICE] = say_device,   [GML_SAY_HELD] = say_held,
        [GML_SAY_OTHERS] = say_others,   [GML_SAY_TRIED] = say_tried,
    };
    out[0] = '\0';
    say_each[which](&(gml_text){.out = out, .size_bytes = out_bytes}, self);
}
