/* PyTorch's allocator history (events, stack traces, trackers), for the blocks of lakes.
 *
 * The events are PyTorch's, each with its stack, compile context and metadata. The lakes' own
 * history, of gmlake.record(), begins, ends and is truncated independently.
 */
#ifndef GML_TORCH_NATIVE_HISTORY_HPP
#define GML_TORCH_NATIVE_HISTORY_HPP

#include "lakes.hpp"

#include <algorithm>
#include <array>
#include <c10/util/ApproximateClock.h>
#include <deque>
#include <dlfcn.h>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/api/include/torch/version.h>
#include <unordered_map>
#include <vector>

namespace {

using c10::GatheredContext;
using torch_cuda::CreateContextFn;
using torch_cuda::RecordContext;
using torch_cuda::TraceEntry;

using Context = std::shared_ptr<GatheredContext>;

constexpr size_t adopted_events = 100000;

thread_local std::vector<std::string> compile_contexts;

/* This thread looks itself after what it does, with its stack. */
thread_local bool looks_itself = false;

void history_look() noexcept;

/* The program's metadata for its events. */
std::string user_metadata() {
    return torch_cuda::get()->getUserMetadata();
}

/* PyTorch's own recorder of Python's frames; NULL where this version has it under another name. Its
 * header would draw in most of PyTorch. */
CreateContextFn recorder_of_python() {
    using Gather = Context (*)(bool python, bool script, bool cpp);
    static Gather gather = nullptr;
    void *library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    void *symbol = library ? dlsym(library, "_ZN5torch17CapturedTraceback6gatherEbbb") : nullptr;
    gather = reinterpret_cast<Gather>(symbol);
    return gather ? [] { return gather(true, false, false); } : CreateContextFn(nullptr);
}

struct History {
    /* What an event is about. */
    struct Place {
        c10::DeviceIndex device;
        gml_address address;
        size_t size_bytes;
        cudaStream_t stream;
        MempoolId_t id; /* of its private pool */
    };

    /* A block that was freed while other streams use it. */
    struct Awaited {
        int number; /* of its lake */
        uint64_t id;
        Place place;
        Context context;
        std::string metadata;
    };

    std::atomic<bool> is_wanted{false}; /* events are kept, or a tracker is registered */
    std::atomic<size_t> known{0};       /* of `contexts` */
    std::atomic<size_t> awaiting{0};    /* in `awaited` */
    std::array<gml_looks *, GML_NATIVE_LAKES> looks{}; /* each guarded by its lake's lock */
    c10::ApproximateClockToUnixTimeConverter clock;    /* knows no time before it was made */
    std::mutex mutex;                                  /* guards the rest */
    bool is_kept = false;
    CreateContextFn recorder = nullptr;
    RecordContext when = RecordContext::NEVER;
    size_t most = 1;
    std::vector<TraceEntry::Action> skipped;
    std::array<std::deque<TraceEntry>, C10_COMPILE_TIME_MAX_GPUS> entries; /* by device */
    std::unordered_map<const void *, Context> contexts;                    /* of live blocks */
    std::vector<torch_cuda::AllocatorTraceTracker> trackers;
    std::vector<Awaited> awaited;  /* frees that other streams hold up */
    std::deque<TraceEntry> untold; /* to the trackers, in order */
    bool is_telling = false;       /* a thread does, and goes on until all is told */

    void record(bool is_enabled, CreateContextFn create, size_t max_entries, RecordContext wanted,
                bool is_clear, std::vector<TraceEntry::Action> skip) {
        if (is_enabled) {
            begin_looking();
        }
        std::lock_guard<std::mutex> lock(mutex);
        is_kept = is_enabled;
        recorder = create;
        when = is_enabled ? wanted : RecordContext::NEVER;
        most = std::max<size_t>(1, max_entries);
        skipped = std::move(skip);
        if (is_clear || !is_enabled) {
            for (auto &of_device : entries) {
                of_device.clear();
            }
        }
        if (!is_enabled) {
            contexts.clear();
            known = 0;
            if (trackers.empty()) {
                awaited.clear();
                awaiting = 0;
            }
        }
        is_wanted = is_kept || !trackers.empty();
    }

    /* A history that began earlier: PyTorch does not report its length or its kind of stacks;
     * assume Python's, if it has stacks. */
    void adopt(bool has_stacks) {
        CreateContextFn create = has_stacks ? recorder_of_python() : nullptr;
        RecordContext wanted = create ? RecordContext::ALL : RecordContext::NEVER;
        record(true, create, adopted_events, wanted, false, {});
    }

    void track(torch_cuda::AllocatorTraceTracker tracker) {
        begin_looking();
        std::lock_guard<std::mutex> lock(mutex);
        trackers.push_back(std::move(tracker));
        is_wanted = true;
    }

    /* A stack trace, where events of this importance have one. pre: no lock is held. */
    Context gather(RecordContext importance) {
        CreateContextFn create = nullptr;
        {
            std::lock_guard<std::mutex> lock(mutex);
            create = when >= importance ? recorder : nullptr;
        }
        return create ? create() : nullptr;
    }

    /* pre: the mutex is held; tell() is called once it is not. */
    void note(TraceEntry entry) {
        if (!trackers.empty()) {
            untold.push_back(entry);
        }
        if (!is_kept || std::find(skipped.begin(), skipped.end(), entry.action_) != skipped.end()) {
            return;
        }
        auto &of_device = entries[static_cast<size_t>(entry.device_)];
        of_device.push_back(std::move(entry));
        while (of_device.size() > most) {
            of_device.pop_front();
        }
    }

    /* Calls the trackers, which may do anything, also allocate, so no lock is held. One thread
     * tells at a time, so that the order stays. */
    void tell() {
        std::unique_lock<std::mutex> lock(mutex);
        if (is_telling) {
            return;
        }
        is_telling = true;
        while (!untold.empty()) {
            TraceEntry entry = std::move(untold.front());
            untold.pop_front();
            for (size_t i = 0; i < trackers.size(); i++) {
                torch_cuda::AllocatorTraceTracker tracker = trackers[i];
                lock.unlock();
                try {
                    tracker(entry);
                } catch (const std::exception &) { /* the others, and the request, go on */
                }
                lock.lock();
            }
        }
        is_telling = false;
    }

    static Place place_of(int number, const gml_block_info &block) {
        return {static_cast<c10::DeviceIndex>(core->device_of(number)), block.address,
                block.block_bytes, stream_of(block.stream),
                told_pool(number, {block.pool.first, block.pool.second})};
    }

    TraceEntry entry_of(TraceEntry::Action action, const Place &place, const Context &context,
                        const std::string &metadata) {
        TraceEntry entry(action, place.device, place.address, place.size_bytes, place.stream,
                         place.id, c10::getApproximateTime(),
                         when >= RecordContext::ALLOC ? context : nullptr,
                         compile_contexts.empty() ? "N/A" : compile_contexts.back());
        entry.user_metadata_ = metadata;
        return entry;
    }

    /* Memory held when the first observer registers is not reported, but the end of frees from
     * before is. */
    void begin_looking() {
        if (is_wanted) {
            return;
        }
        for (int number = core->next(-1); number >= 0; number = core->next(number)) {
            core->changes(core->find(number), &looks[static_cast<size_t>(number)], nullptr,
                          nullptr);
            await_pending(number);
        }
        for (int device = 0; device < c10::cuda::device_count(); device++) {
            void (*look)() = [] { history_look(); };
            __atomic_store_n(&core->device(device)->changed, look, __ATOMIC_RELAXED);
        }
    }

    void await_pending(int number) {
        struct Pending : Callback {
            int number;
            std::vector<Awaited> found{};
        } at;
        at.number = number;
        auto keep = [](void *to, const gml_block_info *block) {
            auto *pending = static_cast<Pending *>(to);
            pending->run([&] {
                pending->found.push_back(
                    {pending->number, block->id, place_of(pending->number, *block), nullptr, ""});
            });
        };
        core->pending(core->find(number), keep, &at);
        at.rethrow();
        std::lock_guard<std::mutex> lock(mutex);
        awaited.insert(awaited.end(), at.found.begin(), at.found.end());
        awaiting = awaited.size();
    }

    /* Tells of memory that came and went in a lake since the last look: noted in the order in which
     * it happened, under the lake's lock. pre: no lock is held. */
    void look(int number, gml_lake *lake, const Context &context) {
        if (!is_wanted) {
            return;
        }
        look_at_awaited(number, lake);
        struct Look : Callback {
            History *of;
            int number;
            const Context *context;
            std::string metadata;
        } at;
        at.of = this;
        at.number = number;
        at.context = &context;
        at.metadata = user_metadata();
        auto keep = [](void *to, bool is_new, gml_address address, uint64_t size_bytes,
                       gml_pool_id id) {
            auto *found = static_cast<Look *>(to);
            found->run([&] {
                auto action =
                    is_new ? TraceEntry::Action::SEGMENT_MAP : TraceEntry::Action::SEGMENT_UNMAP;
                Place place{static_cast<c10::DeviceIndex>(core->device_of(found->number)), address,
                            size_bytes, nullptr, told_pool(found->number, {id.first, id.second})};
                std::lock_guard<std::mutex> lock(found->of->mutex);
                found->of->note(
                    found->of->entry_of(action, place, *found->context, found->metadata));
            });
        };
        core->changes(lake, &looks[static_cast<size_t>(number)], keep, &at);
        tell();
        at.rethrow();
    }

    /* Tells which frees of a lake no stream holds up any more. Hot where a history is kept. */
    void look_at_awaited(int number, gml_lake *lake) {
        if (C10_LIKELY(awaiting.load(std::memory_order_relaxed) == 0)) {
            return;
        }
        std::vector<Awaited> asked;
        {
            std::lock_guard<std::mutex> lock(mutex);
            asked = awaited;
        }
        for (const Awaited &one : asked) {
            if (one.number != number || !core->is_over(lake, one.place.address, one.id)) {
                continue;
            }
            std::lock_guard<std::mutex> lock(mutex);
            auto found = std::find_if(awaited.begin(), awaited.end(), [&](const Awaited &other) {
                return other.number == number && other.id == one.id;
            });
            if (found != awaited.end()) {
                note(entry_of(TraceEntry::Action::FREE_COMPLETED, one.place, one.context,
                              one.metadata));
                awaited.erase(found);
                awaiting = awaited.size();
            }
        }
    }

    void look_at_all() {
        for (int number = core->next(-1); number >= 0; number = core->next(number)) {
            look(number, core->find(number), nullptr);
        }
    }

    void allocated(const Place &place, Context context, const std::string &metadata) {
        {
            std::lock_guard<std::mutex> lock(mutex);
            note(entry_of(TraceEntry::Action::ALLOC, place, context, metadata));
            if (is_kept && context) {
                contexts[pointer_to(place.address)] = std::move(context);
                known = contexts.size();
            }
        }
        tell();
    }

    /* pre: the block lives still. */
    void will_be_freed(int number, const gml_block_info &block, const std::string &metadata) {
        Place place = place_of(number, block);
        Context context = gather(RecordContext::ALL);
        {
            std::lock_guard<std::mutex> lock(mutex);
            auto found = contexts.find(pointer_to(block.address));
            if (found != contexts.end()) {
                context = context ? context : found->second;
                contexts.erase(found);
                known = contexts.size();
            }
            note(entry_of(TraceEntry::Action::FREE_REQUESTED, place, context, metadata));
            if (block.has_users) {
                awaited.push_back({number, block.id, place, std::move(context), metadata});
                awaiting = awaited.size();
            } else {
                note(entry_of(TraceEntry::Action::FREE_COMPLETED, place, context, metadata));
            }
        }
        tell();
    }

#if TORCH_VERSION_MINOR >= 14
    void annotated(int number, const gml_block_info &block, const std::string &text) {
        if (is_wanted) {
            {
                std::lock_guard<std::mutex> lock(mutex);
                note(
                    entry_of(TraceEntry::Action::ANNOTATE, place_of(number, block), nullptr, text));
            }
            tell();
        }
    }
#endif

    Context context_of(const void *pointer) {
        if (known.load(std::memory_order_relaxed) == 0) {
            return nullptr;
        }
        std::lock_guard<std::mutex> lock(mutex);
        auto found = contexts.find(pointer);
        return found == contexts.end() ? nullptr : found->second;
    }
};

History &history = *new History;

/* What changed other than by this thread's requests: called by lakes. */
void history_look() noexcept try {
    if (!looks_itself) {
        history.look_at_all();
    }
} catch (const std::exception &) { /* the next look tells it */
}

/* Puts the events of lakes between those of `traces`, whose times are known already, and keeps as
 * many of both as were asked for. */
void add_events(std::vector<std::vector<TraceEntry>> &traces) {
    auto to_unix_ns = history.clock.makeConverter();
    std::lock_guard<std::mutex> lock(history.mutex);
    for (size_t device = 0; device < traces.size() && device < history.entries.size(); device++) {
        auto &trace = traces[device];
        size_t before = trace.size();
        for (TraceEntry entry : history.entries[device]) {
            entry.time_.t_ = to_unix_ns(entry.time_.approx_t_) / 1000;
            trace.push_back(std::move(entry));
        }
        std::inplace_merge(trace.begin(), trace.begin() + static_cast<ptrdiff_t>(before),
                           trace.end(), [](const TraceEntry &left, const TraceEntry &right) {
                               return left.time_.t_ < right.time_.t_;
                           });
        if (history.is_kept && trace.size() > history.most) {
            trace.erase(trace.begin(), trace.end() - static_cast<ptrdiff_t>(history.most));
        }
    }
}

#if TORCH_VERSION_MINOR < 12
/* Python is not told the pools of events before PyTorch 2.12, and what a pool has given back by now
 * cannot be inferred from the segments. An annotation is the one place where text of any kind
 * passes through these versions, and whoever does not know this one ignores it. It has three
 * numbers for each run of events of one pool: their count and the pool's two. */
void annotate_pools(torch_cuda::SnapshotInfo &info) {
    for (size_t device = 0; device < info.device_traces.size(); device++) {
        const auto &trace = info.device_traces[device];
        std::string runs;
        bool has_pools = false;
        for (size_t first = 0, end = 0; first < trace.size(); first = end) {
            MempoolId_t id = trace[first].mempool_;
            while (end < trace.size() && trace[end].mempool_ == id) {
                end++;
            }
            has_pools |= id != MempoolId_t{0, 0};
            runs += (first ? " " : "") + std::to_string(end - first) + " " +
                    std::to_string(id.first) + " " + std::to_string(id.second);
        }
        if (has_pools) {
            auto &note = info.external_annotations.emplace_back(
                static_cast<c10::DeviceIndex>(device), c10::approx_time_t{});
            note.time_.t_ = trace.back().time_.t_;
            note.recordUserMetadata("name", "gmlake: pools of events");
            note.recordUserMetadata("stage", "END");
            note.recordUserMetadata("gmlake_pools", std::move(runs));
        }
    }
}
#endif

} // namespace

#endif
