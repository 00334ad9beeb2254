/* PyTorch's C++ allocator interface over gmlake.
 *
 * The adapter stands in front of PyTorch's own allocator, called `native` here, for the rest of the
 * process. While gmlake serves, tensors come from lakes. Everything else is native's: what was
 * allocated before and elsewhere, private pools (graphs, torch.cuda.MemPool), and whatever the
 * interface has that is no memory. What each of them gave goes back to it, by the deleter in the
 * tensor or by asking whose an address is. Questions about both (statistics, snapshots) are
 * answered with the sum.
 *
 * Locks: each mutex here guards what is declared behind it; no lock of PyTorch's or of a lake's is
 * taken while one is held, but for a lake's under that of Opened. Native may hold its own when it
 * calls.
 *
 * No function takes Python's GIL, but the recorder of stack traces that PyTorch hands over may, so
 * it is called with no lock held. What is here is never destroyed: tensors are freed until the very
 * end of the process.
 */
#include "native.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/ApproximateClock.h>
#include <cstdio>
#include <deque>
#include <dlfcn.h>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/api/include/torch/version.h>
#include <unordered_map>
#include <vector>

#if TORCH_VERSION_MINOR >= 11
#include <c10/core/AllocatorConfig.h>
#endif

/* Newer C libraries have a variable of this name, and newer compilers ask for it. With one of its
 * own the adapter needs no newer C library than PyTorch does. Zero: there may be threads. */
extern "C" {
__attribute__((visibility("hidden"))) extern char __libc_single_threaded;
char __libc_single_threaded = 0;
}

namespace
{

namespace torch_cuda = c10::cuda::CUDACachingAllocator;

using c10::GatheredContext;
using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingDeviceAllocator::DeviceStats;
using c10::cuda::MempoolId_t;
using torch_cuda::BlockInfo;
using torch_cuda::CreateContextFn;
using torch_cuda::CUDAAllocator;
using torch_cuda::RecordContext;
using torch_cuda::SegmentInfo;
using torch_cuda::TraceEntry;

using Context = std::shared_ptr<GatheredContext>;

constexpr size_t reason_bytes = 256;
constexpr size_t refusal_bytes = 4096;
constexpr size_t adopted_events = 100000;
constexpr size_t spare_bytes = size_t{32} << 20; /* native takes more than it is asked for */

const gml_native_core *core = nullptr;

std::atomic<bool> is_wanted{false};  /* gmlake may serve */
std::atomic<bool> is_caching{true};  /* torch.cuda.caching_allocator_enable() */
std::atomic<bool> is_serving{false}; /* both */

void
settle_who_serves()
{
    is_serving.store(is_wanted && is_caching, std::memory_order_relaxed);
}

gml_address
address_of(const void *pointer)
{
    return static_cast<gml_address>(reinterpret_cast<uintptr_t>(pointer));
}

void *
pointer_to(gml_address address)
{
    return reinterpret_cast<void *>(static_cast<uintptr_t>(address));
}

gml_stream
handle_of(cudaStream_t stream)
{
    return static_cast<gml_stream>(reinterpret_cast<uintptr_t>(stream));
}

cudaStream_t
stream_of(gml_stream handle)
{
    return static_cast<cudaStream_t>(pointer_to(handle));
}

/* ---- whose an address is ----------------------------------------------------------------------- */

/* The number of the lake that this thread found last: most threads use one. */
thread_local int last_number = 0;

/* Calls `ask` with each open lake until one does not answer GML_UNKNOWN_ADDRESS. */
template <typename Ask>
gml_status
ask_lakes(Ask ask)
{
    gml_lake *lake = core->find(last_number);
    gml_status status = lake ? ask(lake, last_number) : GML_UNKNOWN_ADDRESS;
    for (int number = 0; status == GML_UNKNOWN_ADDRESS && number < core->end(); number++) {
        lake = number == last_number ? nullptr : core->find(number);
        status = lake ? ask(lake, number) : GML_UNKNOWN_ADDRESS;
        if (lake && status != GML_UNKNOWN_ADDRESS) {
            last_number = number;
        }
    }
    return status;
}

/* Calls `tell` with each open lake of a device, and its number. */
template <typename Tell>
void
each_lake(int device, Tell tell)
{
    for (int number = 0; number < core->end(); number++) {
        gml_lake *lake = core->find(number);
        if (lake && core->device_of(number) == device) {
            tell(lake, number);
        }
    }
}

/* Opens a lake, by a function of `core`, also to those devices that native alone has memory on:
 * copies between devices run on the other one's streams. What PyTorch uses later it asks for, see
 * enablePeerAccess. NULL with a reason. */
template <typename Open>
gml_lake *
open_to_all(Open open, c10::DeviceIndex device, char *reason, size_t reason_bytes)
{
    gml_lake *lake = open(device, reason, reason_bytes);
    for (c10::DeviceIndex other = 0; lake && other < c10::cuda::device_count(); other++) {
        if (other != device && c10::cuda::hasPrimaryContext(other)) {
            (void)core->grant(lake, other);
        }
    }
    return lake;
}

bool
is_frozen(int device)
{
    return __atomic_load_n(&core->device(device)->captures, __ATOMIC_RELAXED) > 0;
}

/* The lake that serves this thread; NULL until it is open. */
gml_lake *
serving_lake(int device)
{
    return core->find(core->serving(device));
}

/* number: of the lake that has it. */
bool
find_block(const void *pointer, gml_block_info *block, int *number)
{
    return pointer && ask_lakes([&](gml_lake *lake, int found) {
                          *number = found;
                          return core->block(lake, address_of(pointer), block);
                      }) == GML_OK;
}

/* ---- private pools ------------------------------------------------------------------------------
 *
 * Requests that a pool takes are native's, which keeps the pools. A capture freezes the device: its
 * lakes make no call that would break one. A capture in a region that takes graphs is served by the
 * region's lake, from a pool there.
 *
 * A capture begins its pool before it begins itself, so the filter of that pool takes nothing yet.
 * That of every other pool takes what the thread that begins it asks for.
 *
 * PyTorch says nothing of a capture that fails at its end. Its thread finds out: where that calls
 * again and its stream does not capture, the capture has failed. No other thread can tell that from
 * an end that PyTorch is about to tell of.
 */

bool
is_capturing(cudaStream_t stream)
{
    auto status = cudaStreamCaptureStatus::cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) { /* it is gone */
        (void)cudaGetLastError();
    }
    return status != cudaStreamCaptureStatus::cudaStreamCaptureStatusNone;
}

struct Routes {
    struct Route {
        c10::DeviceIndex device;
        MempoolId_t id;
        std::function<bool(cudaStream_t)> filter;
        bool is_capture;
        gml_lake *regions; /* that serves the capture in place of native; NULL: none */
        cudaStream_t stream;
        std::thread::id thread;
    };

    std::atomic<size_t> count{0};
    std::mutex mutex; /* guards the rest */
    std::vector<Route> list;

    /* A thread ends: whatever it captures is over. */
    struct Leaving {
        Routes *of;

        ~Leaving()
        {
            of->settle();
        }
    };

    void begin(c10::DeviceIndex device, MempoolId_t id, std::function<bool(cudaStream_t)> filter)
    {
        thread_local Leaving leaving{this};
        settle();
        cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device);
        bool is_capture = !filter(stream);
        gml_lake *regions = is_capture ? begin_in_region(device, id) : nullptr;
        if (is_capture && !regions) {
            core->freeze(core->device(device), 1);
        }
        std::lock_guard<std::mutex> lock(mutex);
        list.push_back({device, id, std::move(filter), is_capture, regions, stream,
                        std::this_thread::get_id()});
        count.store(list.size(), std::memory_order_release);
    }

    /* The lake of this thread's region, where that serves the capture in place of native; or NULL.
     */
    static gml_lake *begin_in_region(c10::DeviceIndex device, MempoolId_t id)
    {
        if (!is_serving.load(std::memory_order_relaxed) || !core->takes_graphs()) {
            return nullptr;
        }
        char reason[reason_bytes] = "";
        gml_lake *lake = open_to_all(core->open, device, reason, sizeof reason);
        TORCH_CHECK(lake, "a graph cannot be captured in this region: ", reason);
        TORCH_CHECK(core->begin_pool(lake, {id.first, id.second}) == GML_OK,
                    "the host has no memory for a graph's pool");
        return lake;
    }

    void end(c10::DeviceIndex device, MempoolId_t id)
    {
        end_where([&](const Route &route) { return route.device == device && route.id == id; },
                  false);
    }

    /* Ends the captures of this thread that failed; see gml_device. */
    void settle()
    {
        auto has_failed = [thread = std::this_thread::get_id()](const Route &route) {
            return route.is_capture && route.thread == thread && !is_capturing(route.stream);
        };
        while (end_where(has_failed, true)) {
        }
    }

    /* Ends the first route of which `is_meant`; false: there is none. The memory of a graph in a
     * region is held until the graph is gone, see releasePool; there is none where it failed. */
    template <typename Meant> bool end_where(Meant is_meant, bool has_failed)
    {
        Route ended{};
        {
            std::lock_guard<std::mutex> lock(mutex);
            auto found = std::find_if(list.begin(), list.end(), is_meant);
            if (found == list.end()) {
                return false;
            }
            ended = std::move(*found);
            list.erase(found);
            count.store(list.size(), std::memory_order_release);
        }
        gml_pool_id id{ended.id.first, ended.id.second};
        if (ended.regions) {
            (void)core->end_pool(ended.regions, id);
        } else if (ended.is_capture) {
            core->freeze(core->device(ended.device), -1);
        }
        if (ended.regions && has_failed) {
            (void)core->release_pool(ended.regions, id);
        }
        return true;
    }

    /* Whether native takes the request; *regions: the lake that does in its place. */
    bool takes(c10::DeviceIndex device, cudaStream_t stream, gml_lake **regions)
    {
        if (count.load(std::memory_order_acquire) == 0) {
            return false;
        }
        settle();
        std::lock_guard<std::mutex> lock(mutex);
        auto found = std::find_if(list.begin(), list.end(), [&](const Route &route) {
            return route.device == device && route.filter(stream);
        });
        if (found == list.end()) {
            return false;
        }
        *regions = found->regions;
        return !found->regions;
    }
};

Routes &routes = *new Routes;

/* ---- memory of other processes ------------------------------------------------------------------
 *
 * What a text leads to is mapped once, however many tensors lie in it.
 */

struct Opened {
    std::mutex mutex; /* guards the rest; held while a lake maps, so that nothing is mapped twice */
    std::unordered_map<std::string, std::weak_ptr<void>> found;

    std::shared_ptr<void> find(const std::string &text, c10::DeviceIndex device)
    {
        std::lock_guard<std::mutex> lock(mutex);
        std::string key = text + "@" + std::to_string(device);
        auto known = found.find(key);
        if (known != found.end()) {
            if (std::shared_ptr<void> alive = known->second.lock()) {
                return alive;
            }
            found.erase(known);
        }
        char reason[reason_bytes] = "";
        gml_address address = 0;
        gml_lake *lake = open_to_all(core->open_of_device, device, reason, sizeof reason);
        gml_status status = lake ? core->open_shared(lake, text.data(), text.size(), &address,
                                                     reason, sizeof reason)
                                 : GML_DRIVER_FAILED;
        TORCH_CHECK(status == GML_OK, "a tensor of another process cannot be opened: ", reason);
        std::shared_ptr<void> mapped(pointer_to(address), [this, key, device](void *pointer) {
            if (gml_lake *of_device = core->find(device)) {
                (void)core->close_shared(of_device, address_of(pointer));
            }
            forget(key);
        });
        found.emplace(std::move(key), mapped);
        return mapped;
    }

    /* Unless it was opened again meanwhile. */
    void forget(const std::string &key)
    {
        std::lock_guard<std::mutex> lock(mutex);
        auto known = found.find(key);
        if (known != found.end() && known->second.expired()) {
            found.erase(known);
        }
    }
};

Opened &opened = *new Opened;

/* ---- history ------------------------------------------------------------------------------------
 *
 * What PyTorch's allocator tells of its own blocks (events, stack traces, trackers), told of the
 * blocks of lakes.
 */

thread_local std::vector<std::string> compile_contexts;

/* What the program says of its events. */
std::string
user_metadata()
{
#if TORCH_VERSION_MINOR >= 10
    return torch_cuda::get()->getUserMetadata();
#else
    return "";
#endif
}

/* Where memory lies: begin and end of places, in address order. */
using Places = std::vector<std::pair<gml_address, gml_address>>;

/* All that a lake holds, each byte of physical memory once. */
Places
places_of(gml_lake *lake)
{
    Places places;
    gml_visitor visitor{
        &places,
        [](void *self, const gml_region_info *region) {
            if (!region->is_view) {
                static_cast<Places *>(self)->emplace_back(region->address,
                                                          region->address + region->size_bytes);
            }
        },
        [](void *, const gml_range_info *) {},
        nullptr,
    };
    (void)core->visit(lake, &visitor);
    std::sort(places.begin(), places.end());
    return places;
}

/* What of `places` is not in `others`. */
Places
without(const Places &places, const Places &others)
{
    Places left;
    auto other = others.begin();
    for (auto [begin, end] : places) {
        while (other != others.end() && other->second <= begin) {
            ++other;
        }
        for (auto next = other; next != others.end() && next->first < end; ++next) {
            if (begin < next->first) {
                left.emplace_back(begin, next->first);
            }
            begin = std::max(begin, next->second);
        }
        if (begin < end) {
            left.emplace_back(begin, end);
        }
    }
    return left;
}

/* PyTorch's own recorder of Python's frames; NULL where this version has it under another name. Its
 * header would draw in most of PyTorch. */
CreateContextFn
recorder_of_python()
{
    using Gather = Context (*)(bool python, bool script, bool cpp);
    static Gather gather = nullptr;
    void *library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    void *symbol = library ? dlsym(library, "_ZN5torch17CapturedTraceback6gatherEbbb") : nullptr;
    gather = reinterpret_cast<Gather>(symbol);
    return gather ? [] { return gather(true, false, false); } : CreateContextFn(nullptr);
}

struct History {
    std::atomic<bool> is_wanted{false}; /* events are kept, or somebody is told of them */
    std::atomic<size_t> known{0};       /* of `contexts` */
    std::array<std::atomic<uint64_t>, GML_NATIVE_LAKES> reserved_bytes{}; /* last look */
    c10::ApproximateClockToUnixTimeConverter clock; /* knows no time before it was made */
    std::mutex mutex;                               /* guards the rest */
    bool is_kept = false;
    CreateContextFn recorder = nullptr;
    RecordContext when = RecordContext::NEVER;
    size_t most = 1;
    std::vector<TraceEntry::Action> skipped;
    std::array<std::deque<TraceEntry>, C10_COMPILE_TIME_MAX_GPUS> entries; /* by device */
    std::unordered_map<const void *, Context> contexts;                    /* of live blocks */
    std::array<Places, GML_NATIVE_LAKES> held; /* by number of the lake: at the last look */
    std::vector<torch_cuda::AllocatorTraceTracker> trackers;

    void record(bool is_enabled, CreateContextFn create, size_t max_entries, RecordContext wanted,
                bool is_clear, std::vector<TraceEntry::Action> skip)
    {
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
        }
        is_wanted = is_kept || !trackers.empty();
    }

    /* A history that began before: nobody tells how many events are kept, nor which stacks; those
     * of Python, where there are any. */
    void adopt(bool has_stacks)
    {
        CreateContextFn create = has_stacks ? recorder_of_python() : nullptr;
        RecordContext wanted = create ? RecordContext::ALL : RecordContext::NEVER;
        record(true, create, adopted_events, wanted, false, {});
    }

    void track(torch_cuda::AllocatorTraceTracker tracker)
    {
        begin_looking();
        std::lock_guard<std::mutex> lock(mutex);
        trackers.push_back(std::move(tracker));
        is_wanted = true;
    }

    /* A stack trace, where events of this importance have one. pre: no lock is held. */
    Context gather(RecordContext importance)
    {
        CreateContextFn create = nullptr;
        {
            std::lock_guard<std::mutex> lock(mutex);
            create = when >= importance ? recorder : nullptr;
        }
        return create ? create() : nullptr;
    }

    /* pre: the mutex is held. */
    void note(TraceEntry entry)
    {
        for (const auto &tracker : trackers) {
            tracker(entry);
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

    TraceEntry entry_of(TraceEntry::Action action, c10::DeviceIndex device, size_t address,
                        size_t size_bytes, cudaStream_t stream, const Context &context,
                        [[maybe_unused]] const std::string &metadata)
    {
        TraceEntry entry(action, device, address, size_bytes, stream, MempoolId_t{0, 0},
                         c10::getApproximateTime(),
                         when >= RecordContext::ALLOC ? context : nullptr,
                         compile_contexts.empty() ? "N/A" : compile_contexts.back());
#if TORCH_VERSION_MINOR >= 10
        entry.user_metadata_ = metadata;
#endif
        return entry;
    }

    /* What is held when the first one wants to know is nobody's news. */
    void begin_looking()
    {
        if (is_wanted) {
            return;
        }
        for (int number = 0; number < core->end(); number++) {
            gml_lake *lake = core->find(number);
            gml_stats stats{};
            bool is_open = lake && core->stats(lake, &stats) == GML_OK;
            reserved_bytes[static_cast<size_t>(number)] = stats.reserved_bytes;
            Places now = is_open ? places_of(lake) : Places{};
            std::lock_guard<std::mutex> lock(mutex);
            held[static_cast<size_t>(number)] = std::move(now);
        }
    }

    /* Tells of memory that came and went in a lake since the last look. */
    void look(int number, gml_lake *lake, const Context &context)
    {
        gml_stats stats{};
        auto device = static_cast<c10::DeviceIndex>(core->device_of(number));
        if (!is_wanted || core->stats(lake, &stats) != GML_OK ||
            reserved_bytes[static_cast<size_t>(number)].exchange(stats.reserved_bytes) ==
                stats.reserved_bytes) {
            return;
        }
        Places now = places_of(lake);
        std::string metadata = user_metadata();
        std::lock_guard<std::mutex> lock(mutex);
        Places &before = held[static_cast<size_t>(number)];
        auto tell = [&](TraceEntry::Action action, const Places &places) {
            for (auto [begin, end] : places) {
                note(entry_of(action, device, begin, end - begin, nullptr, context, metadata));
            }
        };
        tell(TraceEntry::Action::SEGMENT_UNMAP, without(before, now));
        tell(TraceEntry::Action::SEGMENT_MAP, without(now, before));
        before = std::move(now);
    }

    void allocated(c10::DeviceIndex device, const void *pointer, size_t size_bytes,
                   cudaStream_t stream, Context context, const std::string &metadata)
    {
        std::lock_guard<std::mutex> lock(mutex);
        note(entry_of(TraceEntry::Action::ALLOC, device, address_of(pointer), size_bytes, stream,
                      context, metadata));
        if (is_kept && context) {
            contexts[pointer] = std::move(context);
            known = contexts.size();
        }
    }

    /* pre: the block lives still. */
    void will_be_freed(c10::DeviceIndex device, const gml_block_info &block,
                       const std::string &metadata)
    {
        Context context = gather(RecordContext::ALL);
        std::lock_guard<std::mutex> lock(mutex);
        auto found = contexts.find(pointer_to(block.address));
        if (found != contexts.end()) {
            context = context ? context : found->second;
            contexts.erase(found);
            known = contexts.size();
        }
        for (auto action :
             {TraceEntry::Action::FREE_REQUESTED, TraceEntry::Action::FREE_COMPLETED}) {
            note(entry_of(action, device, block.address, block.block_bytes, stream_of(block.stream),
                          context, metadata));
        }
    }

#if TORCH_VERSION_MINOR >= 14
    void annotated(c10::DeviceIndex device, const gml_block_info &block, const std::string &text)
    {
        if (is_wanted) {
            std::lock_guard<std::mutex> lock(mutex);
            note(entry_of(TraceEntry::Action::ANNOTATE, device, block.address, block.block_bytes,
                          stream_of(block.stream), nullptr, text));
        }
    }
#endif

    Context context_of(const void *pointer)
    {
        if (known.load(std::memory_order_relaxed) == 0) {
            return nullptr;
        }
        std::lock_guard<std::mutex> lock(mutex);
        auto found = contexts.find(pointer);
        return found == contexts.end() ? nullptr : found->second;
    }
};

History &history = *new History;

/* Gives back what a lake holds idle, and tells of it. */
void
trim(int number, gml_lake *lake, const Context &context = nullptr)
{
    (void)core->trim(lake, nullptr);
    history.look(number, lake, context);
}

/* The same for all lakes of a device. */
void
trim_idle(int device)
{
    each_lake(device, [](gml_lake *lake, int number) {
        gml_stats stats{};
        if (core->stats(lake, &stats) == GML_OK && stats.reserved_bytes > stats.live_bytes) {
            trim(number, lake);
        }
    });
}

/* ---- statistics --------------------------------------------------------------------------------- */

void
add(Stat &to, const gml_stat &from)
{
    to.current += static_cast<int64_t>(from.current);
    to.peak += static_cast<int64_t>(from.peak);
    to.allocated += static_cast<int64_t>(from.allocated);
    to.freed += static_cast<int64_t>(from.freed);
}

void
add(StatArray &to, const gml_stat (&from)[GML_POOL_COUNT])
{
    for (size_t pool = 0; pool < GML_POOL_COUNT; pool++) {
        add(to[pool], from[pool]);
    }
}

void
accumulate(gml_stat &to, const gml_stat &from)
{
    to.current += from.current;
    to.peak += from.peak;
    to.allocated += from.allocated;
    to.freed += from.freed;
}

void
accumulate(gml_stat (&to)[GML_POOL_COUNT], const gml_stat (&from)[GML_POOL_COUNT])
{
    for (size_t pool = 0; pool < GML_POOL_COUNT; pool++) {
        accumulate(to[pool], from[pool]);
    }
}

void
subtract(gml_stat &from, const gml_stat &forgotten)
{
    from.allocated -= forgotten.allocated;
    from.freed -= forgotten.freed;
}

void
subtract(gml_stat (&from)[GML_POOL_COUNT], const gml_stat (&forgotten)[GML_POOL_COUNT])
{
    for (size_t pool = 0; pool < GML_POOL_COUNT; pool++) {
        subtract(from[pool], forgotten[pool]);
    }
}

/* Calls `each` with every member that both kinds of statistics have, by pool or not. What is split
 * and inactive is native's alone: as in expandable segments, any of it can be given back. */
template <typename Left, typename Right, typename Each>
void
pair_up(Left &left, Right &right, Each each)
{
    each(left.allocation, right.allocation);
    each(left.segment, right.segment);
    each(left.active, right.active);
    each(left.allocated_bytes, right.allocated_bytes);
    each(left.reserved_bytes, right.reserved_bytes);
    each(left.active_bytes, right.active_bytes);
    each(left.requested_bytes, right.requested_bytes);
    each(left.oversize_allocations, right.oversize_allocations);
    each(left.oversize_segments, right.oversize_segments);
}

struct Forgotten {
    std::mutex mutex;                                                /* guards the rest */
    std::array<gml_torch_stats, C10_COMPILE_TIME_MAX_GPUS> counts{}; /* at the last reset */

    /* Of a device's lakes together; false where it has none. */
    static bool sum(c10::DeviceIndex device, gml_torch_stats *out)
    {
        bool is_any = false;
        *out = {};
        each_lake(device, [&](gml_lake *lake, int) {
            gml_torch_stats now{};
            if (core->torch_stats(lake, &now) == GML_OK) {
                pair_up(*out, now, [](auto &to, const auto &from) { accumulate(to, from); });
                out->num_alloc_retries += now.num_alloc_retries;
                out->num_device_alloc += now.num_device_alloc;
                out->num_device_free += now.num_device_free;
                is_any = true;
            }
        });
        return is_any;
    }

    /* The same since the last reset. */
    bool read(c10::DeviceIndex device, gml_torch_stats *out)
    {
        if (!sum(device, out)) {
            return false;
        }
        std::lock_guard<std::mutex> lock(mutex);
        const gml_torch_stats &before = counts[static_cast<size_t>(device)];
        pair_up(*out, before, [](auto &now, const auto &then) { subtract(now, then); });
        out->num_alloc_retries -= before.num_alloc_retries;
        out->num_device_alloc -= before.num_device_alloc;
        out->num_device_free -= before.num_device_free;
        return true;
    }

    void reset(c10::DeviceIndex device)
    {
        gml_torch_stats now{};
        if (sum(device, &now)) {
            std::lock_guard<std::mutex> lock(mutex);
            counts[static_cast<size_t>(device)] = now;
        }
    }
};

Forgotten &forgotten = *new Forgotten;

/* ---- snapshots ---------------------------------------------------------------------------------- */

/* What a lake holds, as PyTorch tells of segments: contiguous, each byte of physical memory once.
 * Idle views, and what views hold at home, are left out. */
struct Walk {
    c10::DeviceIndex device;
    std::vector<SegmentInfo> segments;
    gml_region_info region{};
    bool is_open = false; /* the last segment goes on with the next range */

    static void enter(void *self, const gml_region_info *region)
    {
        auto *walk = static_cast<Walk *>(self);
        walk->region = *region;
        walk->is_open = false;
    }

    static void range(void *self, const gml_range_info *range)
    {
        static_cast<Walk *>(self)->add(*range);
    }

    void add(const gml_range_info &range)
    {
        bool is_lent = range.is_used && range.requested_bytes == 0;
        bool is_idle_view = region.kind == GML_REGION_VIEW && region.used_bytes == 0;
        if (is_lent || is_idle_view) {
            is_open = false;
            return;
        }
        if (!is_open) {
            SegmentInfo segment;
            segment.device = device;
            segment.address = range.address;
            segment.stream = stream_of(region.stream);
            segment.is_large = !region.is_small;
            segment.is_expandable = region.kind != GML_REGION_SEGMENT;
            segments.push_back(std::move(segment));
            is_open = true;
        }
        SegmentInfo &segment = segments.back();
        BlockInfo block;
        block.size = range.size_bytes;
        block.requested_size = range.requested_bytes;
        block.allocated = block.active = range.is_used;
        if (range.is_used) {
            segment.allocated_size += range.size_bytes;
            segment.active_size += range.size_bytes;
            segment.requested_size += range.requested_bytes;
        }
        segment.total_size += range.size_bytes;
        segment.blocks.push_back(std::move(block));
    }
};

std::vector<SegmentInfo>
segments_of_lakes()
{
    std::vector<SegmentInfo> all;
    for (int number = 0; number < core->end(); number++) {
        gml_lake *lake = core->find(number);
        if (lake) {
            Walk walk{static_cast<c10::DeviceIndex>(core->device_of(number)), {}};
            gml_visitor visitor{&walk, Walk::enter, Walk::range, nullptr};
            (void)core->visit(lake, &visitor);
            for (SegmentInfo &segment : walk.segments) {
                size_t address = segment.address;
                for (BlockInfo &block : segment.blocks) {
                    if (block.allocated) {
                        block.context_when_allocated = history.context_of(pointer_to(address));
                        gml_block_info live{};
                        if (core->block(lake, address, &live) != GML_OK) { /* lent to a stream */
                            block.allocated = false;
                            segment.allocated_size -= block.size;
                        }
                    }
                    address += block.size;
                }
            }
            std::move(walk.segments.begin(), walk.segments.end(), std::back_inserter(all));
        }
    }
    return all;
}

/* Puts the events of lakes between those of `traces`, whose times are known already, and keeps as
 * many of both as were asked for. */
void
add_events(std::vector<std::vector<TraceEntry>> &traces)
{
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

/* ---- limits --------------------------------------------------------------------------------------
 *
 * The memory fraction of a device, and the capacity that gmlake was given, limit what native and
 * the lakes hold together. Each may hold what the other does not; both are told whenever that may
 * have changed, which is only done where there is such a limit.
 */

struct Limits {
    std::atomic<int> count{0};               /* of devices with a fraction; one for the capacity */
    std::atomic<uint64_t> capacity_bytes{0}; /* of each device; 0: all of it */
    std::array<std::atomic<double>, C10_COMPILE_TIME_MAX_GPUS> fractions;
    std::array<std::atomic<double>, C10_COMPILE_TIME_MAX_GPUS> totals{}; /* 0: not asked yet */

    Limits()
    {
        for (auto &fraction : fractions) {
            fraction = 1;
        }
    }

    std::atomic<double> &fraction(c10::DeviceIndex device)
    {
        return fractions[static_cast<size_t>(device)];
    }

    bool is_limited(c10::DeviceIndex device)
    {
        return count.load(std::memory_order_relaxed) > 0 &&
               (capacity_bytes > 0 || fraction(device) < 1);
    }

    /* Of the device, asked once. */
    double total_bytes(c10::DeviceIndex device)
    {
        std::atomic<double> &known = totals[static_cast<size_t>(device)];
        if (known == 0) {
            size_t free_bytes = 0, total_bytes = 0;
            c10::DeviceGuard guard(c10::Device(c10::DeviceType::CUDA, device));
            C10_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
            known = static_cast<double>(total_bytes);
        }
        return known;
    }

    double allowed_bytes(c10::DeviceIndex device)
    {
        double bytes = fraction(device) * total_bytes(device);
        return capacity_bytes > 0 ? std::min(bytes, static_cast<double>(capacity_bytes)) : bytes;
    }

    void set_fraction(c10::DeviceIndex device, double wanted)
    {
        double before = fraction(device).exchange(wanted);
        count += (wanted < 1) - (before < 1);
    }

    void set_capacity(uint64_t wanted_bytes)
    {
        uint64_t before = capacity_bytes.exchange(wanted_bytes);
        count += (wanted_bytes > 0) - (before > 0);
    }
};

Limits &limits = *new Limits;

/* ---- the adapter -------------------------------------------------------------------------------- */

/* How much this thread asks native for now; see IdleLakes. */
thread_local size_t asked_of_native = 0;

void release(void *pointer);

class Adapter final : public CUDAAllocator
{
  public:
    explicit Adapter(CUDAAllocator *before) : native(before)
    {
    }

    CUDAAllocator *const native;

    /* ---- memory. Hot: allocate and release. */

    c10::DataPtr allocate(size_t size_bytes) override
    {
        bool is_refused = false;
        if (is_serving.load(std::memory_order_relaxed) && size_bytes != 0) {
            c10::DeviceIndex device = c10::cuda::current_device();
            cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device);
            if (void *pointer = take(size_bytes, device, stream, &is_refused)) {
                return {pointer, pointer, release, c10::Device(c10::DeviceType::CUDA, device)};
            }
        }
        return ask_native(size_bytes, is_refused, [&] { return native->allocate(size_bytes); });
    }

    c10::DeleterFnPtr raw_deleter() const override
    {
        return native->raw_deleter(); /* private pools are compared with it */
    }

    void *raw_alloc(size_t size_bytes) override
    {
        return raw_alloc_with_stream(size_bytes,
                                     c10::cuda::getCurrentCUDAStream(c10::cuda::current_device()));
    }

    void *raw_alloc_with_stream(size_t size_bytes, cudaStream_t stream) override
    {
        bool is_refused = false;
        if (is_serving.load(std::memory_order_relaxed) && size_bytes != 0) {
            if (void *pointer =
                    take(size_bytes, c10::cuda::current_device(), stream, &is_refused)) {
                return pointer;
            }
        }
        return ask_native(size_bytes, is_refused,
                          [&] { return native->raw_alloc_with_stream(size_bytes, stream); });
    }

    void raw_delete(void *pointer) override
    {
        if (pointer && !give_back(pointer)) {
            native->raw_delete(pointer);
        }
    }

    void copy_data(void *to, const void *from, std::size_t count) const override
    {
        native->copy_data(to, from, count);
    }

    /* NULL: native is to be asked; *is_refused where a lake has no memory. */
    void *take(size_t size_bytes, c10::DeviceIndex device, cudaStream_t stream, bool *is_refused)
    {
        gml_lake *lake = nullptr;
        if (routes.takes(device, stream, &lake)) {
            return nullptr;
        }
        int number = core->serving(device);
        lake = C10_LIKELY(!lake) ? core->find(number) : lake;
        gml_address address = 0;
        gml_status status = GML_DRIVER_ABSENT; /* until it is opened */
        if (C10_LIKELY(lake)) {
            status = core->try_allocate(lake, size_bytes, handle_of(stream), &address);
        }
        if (C10_UNLIKELY(status != GML_OK)) {
            address = take_slowly(lake, status, size_bytes, device, stream);
            if (!address) {
                *is_refused = true;
                return nullptr;
            }
        }
        last_number = number;
        tell_of(device, pointer_to(address), size_bytes, stream);
        return pointer_to(address);
    }

    /* Whether a lake gave it, which then has it back. */
    bool give_back(void *pointer)
    {
        if (history.is_wanted.load(std::memory_order_relaxed) || c10::memoryProfilingEnabled() ||
            c10::impl::GPUTrace::get_trace()) {
            tell_of_end(pointer);
        }
        return ask_lakes([&](gml_lake *lake, int) {
                   return core->free(lake, address_of(pointer));
               }) != GML_UNKNOWN_ADDRESS;
    }

    /* ---- streams, pools, captures */

    using CUDAAllocator::recordStream;

    void recordStream(const c10::DataPtr &pointer, c10::cuda::CUDAStream stream) override
    {
        if (pointer.get_deleter() != release) {
            native->recordStream(pointer, stream);
            return;
        }
        gml_status status = ask_lakes([&](gml_lake *lake, int) {
            return core->record_stream(lake, address_of(pointer.get()), handle_of(stream.stream()));
        });
        TORCH_CHECK(
            status == GML_OK || status == GML_UNKNOWN_ADDRESS,
            "gmlake cannot remember that a stream uses a tensor: the host is out of memory");
    }

    void beginAllocateToPool(c10::DeviceIndex device, MempoolId_t id,
                             std::function<bool(cudaStream_t)> filter) override
    {
        native->beginAllocateToPool(device, id, filter);
        routes.begin(device, id, std::move(filter));
    }

    void endAllocateToPool(c10::DeviceIndex device, MempoolId_t id) override
    {
        native->endAllocateToPool(device, id);
        routes.end(device, id);
    }

    void releasePool(c10::DeviceIndex device, MempoolId_t id) override
    {
        native->releasePool(device, id);
        each_lake(device, [&](gml_lake *lake, int number) {
            if (number != device) {
                (void)core->release_pool(lake, {id.first, id.second});
            }
        });
    }

    int getPoolUseCount(c10::DeviceIndex device, MempoolId_t id) override
    {
        return native->getPoolUseCount(device, id);
    }

    bool checkPoolLiveAllocations(c10::DeviceIndex device, MempoolId_t id,
                                  const std::unordered_set<void *> &expected) override
    {
        return native->checkPoolLiveAllocations(device, id, expected);
    }

    std::shared_ptr<torch_cuda::AllocatorState> getCheckpointState(c10::DeviceIndex device,
                                                                   MempoolId_t id) override
    {
        return native->getCheckpointState(device, id);
    }

    torch_cuda::CheckpointDelta
    setCheckpointPoolState(c10::DeviceIndex device,
                           std::shared_ptr<torch_cuda::AllocatorState> state) override
    {
        return native->setCheckpointPoolState(device, std::move(state));
    }

    /* ---- limits and idle memory */

    void init(int device_count) override
    {
        native->init(device_count);
        adopt_fractions(device_count);
    }

    /* What was set before, by the program or by PYTORCH_ALLOC_CONF, limits both. */
    void adopt_fractions(int device_count)
    {
        for (int device = 0; device < device_count; device++) {
            auto index = static_cast<c10::DeviceIndex>(device);
            double fraction = native->getMemoryFraction(index);
            if (fraction < 1) {
                setMemoryFraction(fraction, index);
            }
        }
    }

    bool initialized() override
    {
        return native->initialized();
    }

    double getMemoryFraction(c10::DeviceIndex device) override
    {
        return limits.count > 0 ? limits.fraction(device).load()
                                : native->getMemoryFraction(device);
    }

    void setMemoryFraction(double fraction, c10::DeviceIndex device) override
    {
        native->setMemoryFraction(fraction, device); /* refuses what is no fraction */
        limits.set_fraction(device, fraction);
        if (limits.is_limited(device)) {
            share_limit(device, 0);
        } else {
            core->limit(device, fraction);
        }
    }

    void emptyCache(MempoolId_t id) override
    {
        if (id == MempoolId_t{0, 0}) {
            Context context = history.gather(RecordContext::ALL);
            for (int number = 0; number < core->end(); number++) {
                if (gml_lake *lake = core->find(number)) {
                    trim(number, lake, context);
                }
            }
        }
        native->emptyCache(id);
    }

    void enable(bool is_enabled) override
    {
        native->enable(is_enabled);
        is_caching = is_enabled;
        settle_who_serves();
    }

    bool isEnabled() const override
    {
        return native->isEnabled();
    }

    /* The largest block that needs no memory of the device's. */
    void cacheInfo(c10::DeviceIndex device, size_t *largest_bytes) override
    {
        native->cacheInfo(device, largest_bytes);
        gml_lake *lake = serving_lake(device);
        gml_stats stats{};
        if (lake && core->stats(lake, &stats) == GML_OK) {
            *largest_bytes = std::max<size_t>(*largest_bytes, stats.largest_free_bytes);
        }
    }

    /* ---- questions about both */

    void *getBaseAllocation(void *pointer, size_t *size_bytes) override
    {
        gml_block_info block{};
        int number = 0;
        if (!find_block(pointer, &block, &number)) {
            return native->getBaseAllocation(pointer, size_bytes);
        }
        if (size_bytes) {
            *size_bytes = block.block_bytes;
        }
        return pointer;
    }

    DeviceStats getDeviceStats(c10::DeviceIndex device) override
    {
        DeviceStats stats = native->getDeviceStats(device);
        gml_torch_stats ours{};
        if (forgotten.read(device, &ours)) {
            pair_up(stats, ours, [](auto &to, const auto &from) { add(to, from); });
            stats.num_alloc_retries += static_cast<int64_t>(ours.num_alloc_retries);
            stats.num_device_alloc += static_cast<int64_t>(ours.num_device_alloc);
            stats.num_device_free += static_cast<int64_t>(ours.num_device_free);
        } /* native counts waits and refusals of both, for it is asked after each of a lake's */
        return stats;
    }

    void resetAccumulatedStats(c10::DeviceIndex device) override
    {
        native->resetAccumulatedStats(device);
        forgotten.reset(device);
    }

    void resetPeakStats(c10::DeviceIndex device) override
    {
        native->resetPeakStats(device);
        each_lake(device, [](gml_lake *lake, int) { (void)core->reset_peaks(lake); });
    }

    torch_cuda::SnapshotInfo with_lakes(torch_cuda::SnapshotInfo info, MempoolId_t id,
                                        bool has_traces)
    {
        if (id == MempoolId_t{0, 0}) {
            std::vector<SegmentInfo> ours = segments_of_lakes();
            std::move(ours.begin(), ours.end(), std::back_inserter(info.segments));
            std::sort(info.segments.begin(), info.segments.end(),
                      [](const SegmentInfo &left, const SegmentInfo &right) {
                          return left.address < right.address;
                      });
            if (has_traces) {
                add_events(info.device_traces);
            }
        }
        return info;
    }

    /* ---- histories and observers */

    bool isHistoryEnabled() override
    {
        return native->isHistoryEnabled();
    }

    void recordAnnotation(const std::vector<std::pair<std::string, std::string>> &data) override
    {
        native->recordAnnotation(data);
    }

    void pushCompileContext(std::string &text) override
    {
        native->pushCompileContext(text);
        compile_contexts.push_back(text);
    }

    void popCompileContext() override
    {
        native->popCompileContext();
        if (!compile_contexts.empty()) {
            compile_contexts.pop_back();
        }
    }

    void attachOutOfMemoryObserver(torch_cuda::OutOfMemoryObserver observer) override
    {
        native->attachOutOfMemoryObserver(std::move(observer));
    }

    void attachAllocatorTraceTracker(torch_cuda::AllocatorTraceTracker tracker) override
    {
        native->attachAllocatorTraceTracker(tracker);
        history.track(std::move(tracker));
    }

    /* ---- devices and processes */

    void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex peer) override
    {
        native->enablePeerAccess(device, peer);
        each_lake(peer, [&](gml_lake *lake, int) {
            gml_status status = core->grant(lake, device);
            TORCH_CHECK(status == GML_OK || status == GML_UNSUPPORTED, "gmlake cannot open its ",
                        "memory on device ", static_cast<int>(peer), " to device ",
                        static_cast<int>(device));
        });
    }

    cudaError_t memcpyAsync(void *to, int to_device, const void *from, int from_device,
                            size_t count, cudaStream_t stream, bool has_peers) override
    {
        return native->memcpyAsync(to, to_device, from, from_device, count, stream, has_peers);
    }

    torch_cuda::ShareableHandle shareIpcHandle(void *pointer) override
    {
        gml_block_info block{};
        int number = 0;
        if (!find_block(pointer, &block, &number)) {
            return native->shareIpcHandle(pointer);
        }
        torch_cuda::ShareableHandle shared{0, ""};
        uint64_t offset_bytes = 0;
        char reason[reason_bytes] = "";
        auto write = [](void *to, const char *text, size_t size) {
            static_cast<std::string *>(to)->append(text, size);
        };
        gml_status status =
            core->share(core->find(number), address_of(pointer), TORCH_VERSION_MINOR, write,
                        &shared.handle, &offset_bytes, reason, sizeof reason);
        TORCH_CHECK(status == GML_OK, "this tensor cannot be shared with other processes: ", reason,
                    "; make it outside of gmlake.enabled()");
        shared.offset = static_cast<ptrdiff_t>(offset_bytes);
        return shared;
    }

    std::shared_ptr<void> getIpcDevPtr(std::string handle) override
    {
        return core->is_shared(handle.data(), handle.size())
                   ? opened.find(handle, c10::cuda::current_device())
                   : native->getIpcDevPtr(std::move(handle));
    }

    std::string name() override
    {
        return native->name();
    }

    /* ---- what not every version of PyTorch has, or not in this form */

#if TORCH_VERSION_MINOR >= 10
    std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override
    {
        return native->getMemoryInfo(device);
    }

    std::vector<torch_cuda::StreamSegmentSize>
    getExpandableSegmentSizes(c10::DeviceIndex device) override
    {
        return native->getExpandableSegmentSizes(device);
    }

    void setNoSplit(c10::DeviceIndex device, MempoolId_t id) override
    {
        native->setNoSplit(device, id);
    }

    void setUserMetadata(const std::string &text) override
    {
        native->setUserMetadata(text);
    }
    std::string getUserMetadata() override
    {
        return native->getUserMetadata();
    }
#endif
#if TORCH_VERSION_MINOR >= 11
    void createOrIncrefPool(c10::DeviceIndex device, MempoolId_t id,
                            std::shared_ptr<CUDAAllocator> allocator) override
    {
        native->createOrIncrefPool(device, id, std::move(allocator));
    }

    void setUseOnOOM(c10::DeviceIndex device, MempoolId_t id, bool is_used) override
    {
        native->setUseOnOOM(device, id, is_used);
    }

    torch_cuda::SnapshotInfo snapshot(MempoolId_t id, bool has_traces) override
    {
        return with_lakes(native->snapshot(id, has_traces), id, has_traces);
    }

    void recordHistory(bool is_enabled, CreateContextFn recorder, size_t max_entries,
                       RecordContext when, bool is_clear,
                       const std::vector<std::string> &names) override
    {
        native->recordHistory(is_enabled, recorder, max_entries, when, is_clear, names);
        std::vector<TraceEntry::Action> skipped(names.size());
        std::transform(names.begin(), names.end(), skipped.begin(),
                       c10::CachingDeviceAllocator::parseTraceEntryAction);
        history.record(is_enabled, recorder, max_entries, when, is_clear, std::move(skipped));
    }
#else
    void createOrIncrefPool(c10::DeviceIndex device, MempoolId_t id,
                            CUDAAllocator *allocator) override
    {
        native->createOrIncrefPool(device, id, allocator);
    }

    void setUseOnOOM(c10::DeviceIndex device, MempoolId_t id) override
    {
        native->setUseOnOOM(device, id);
    }

    torch_cuda::SnapshotInfo snapshot(MempoolId_t id) override
    {
        return with_lakes(native->snapshot(id), id, true);
    }

    void recordHistory(bool is_enabled, CreateContextFn recorder, size_t max_entries,
                       RecordContext when, bool is_clear) override
    {
        native->recordHistory(is_enabled, recorder, max_entries, when, is_clear);
        history.record(is_enabled, recorder, max_entries, when, is_clear, {});
    }
#endif
#if TORCH_VERSION_MINOR >= 12
    void attachOomRejectionObserver(torch_cuda::OomRejectionObserver observer) override
    {
        native->attachOomRejectionObserver(std::move(observer));
    }

    Context getContextForPointer(const void *pointer) override
    {
        Context found = history.context_of(pointer);
        return found ? found : native->getContextForPointer(pointer);
    }
#endif
#if TORCH_VERSION_MINOR >= 13
    c10::DataPtr allocateWithAddress(size_t size_bytes, void *address) override
    {
        return native->allocateWithAddress(size_bytes, address);
    }

    void markCaptureBegin(c10::DeviceIndex device) override
    {
        native->markCaptureBegin(device);
    }
    void markCaptureEnd(c10::DeviceIndex device) override
    {
        native->markCaptureEnd(device);
    }
#endif
#if TORCH_VERSION_MINOR >= 14
    bool supportsUserMetadata() override
    {
        return native->supportsUserMetadata();
    }

    void annotateMemory(const void *pointer, const std::string &text) override
    {
        gml_block_info block{};
        int number = 0;
        if (find_block(pointer, &block, &number)) {
            auto device = static_cast<c10::DeviceIndex>(core->device_of(number));
            history.annotated(device, block, text);
        } else {
            native->annotateMemory(pointer, text);
        }
    }
#endif

  private:
    /* The lake is NULL and not open yet, or has answered with `status`: what native holds idle may
     * be what is missing. 0 where there is no memory; throws c10::Error for any other failure. */
    C10_NOINLINE gml_address take_slowly(gml_lake *lake, gml_status status, size_t size_bytes,
                                         c10::DeviceIndex device, cudaStream_t stream)
    {
        char reason[reason_bytes] = "";
        gml_address address = 0;
        if (!lake) {
            lake = open_to_all(core->open, device, reason, sizeof reason);
            status = lake ? core->try_allocate(lake, size_bytes, handle_of(stream), &address)
                          : GML_DRIVER_FAILED;
        }
        if (status == GML_OUT_OF_MEMORY) {
            if (!is_frozen(device)) {
                native->emptyCache({0, 0});
                trim_idle(device);
            }
            if (limits.is_limited(device)) {
                share_limit(device, 0);
            }
            status = core->allocate(lake, size_bytes, handle_of(stream), &address);
        }
        if (status != GML_OK && core->refusal(size_bytes, status) != GML_OUT_OF_MEMORY) {
            char text[refusal_bytes];
            core->explain(lake, device, size_bytes, status, 0, reason, text, sizeof text);
            TORCH_CHECK(false, text);
        }
        return address;
    }

    static void let_go(c10::DataPtr pointer)
    {
        pointer.clear();
    }

    void let_go(void *pointer)
    {
        native->raw_delete(pointer);
    }

    /* Native has the last word: it may hold a block that fits. If not it tells the observers and
     * counts, but the text is ours, which knows of both. What it has is no use where a region
     * refused: it would not sleep with the rest. */
    template <typename Ask>
    auto ask_native(size_t size_bytes, bool is_refused, Ask ask) -> decltype(ask())
    {
        asked_of_native = size_bytes;
        if (C10_LIKELY(!is_refused && limits.count.load(std::memory_order_relaxed) == 0)) {
            return ask();
        }
        c10::DeviceIndex device = c10::cuda::current_device();
        Sharing sharing(this, device, size_bytes);
        if (!is_refused) {
            return ask();
        }
        bool is_region = core->serving(device) != device;
        try {
            auto pointer = ask();
            if (!is_region) {
                return pointer;
            }
            let_go(std::move(pointer));
            if (!is_frozen(device)) {
                native->emptyCache({0, 0});
            }
        } catch (const c10::OutOfMemoryError &) {
            /* told below */
        }
        char text[refusal_bytes];
        core->explain(serving_lake(device), device, size_bytes, GML_OUT_OF_MEMORY,
                      held_by_native(device), "", text, sizeof text);
        C10_THROW_ERROR(OutOfMemoryError, text);
    }

    uint64_t held_by_native(c10::DeviceIndex device)
    {
        auto aggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
        return static_cast<uint64_t>(
            native->getDeviceStats(device).reserved_bytes[aggregate].current);
    }

    /* Around what native is asked for: it may grow, and then the lake may hold less. */
    class Sharing
    {
      public:
        Sharing(Adapter *self, c10::DeviceIndex index, size_t size_bytes)
            : adapter(limits.is_limited(index) ? self : nullptr), device(index)
        {
            if (adapter) {
                adapter->share_limit(device, size_bytes);
            }
        }

        ~Sharing()
        {
            if (adapter) {
                adapter->share_limit(device, 0);
            }
        }

      private:
        Adapter *adapter;
        c10::DeviceIndex device;
    };

    /* Tells native and the lakes what they may hold. Where native is about to be asked for
     * `size_bytes` that are not left, lakes give back what they hold idle. */
    void share_limit(c10::DeviceIndex device, size_t size_bytes)
    {
        const uint64_t *held_bytes = &core->device(device)->held_bytes;
        auto ours_bytes = [&] {
            return static_cast<double>(__atomic_load_n(held_bytes, __ATOMIC_RELAXED));
        };
        double total_bytes = limits.total_bytes(device);
        double allowed_bytes = limits.allowed_bytes(device);
        auto natives_bytes = static_cast<double>(held_by_native(device));
        double left_bytes = allowed_bytes - natives_bytes;
        if (size_bytes > 0 &&
            left_bytes < ours_bytes() + static_cast<double>(size_bytes + spare_bytes)) {
            trim_idle(device);
        }
        auto part = [&](double bytes) { return std::max(0.0, bytes + 0.5) / total_bytes; };
        core->limit(device, part(left_bytes));
        native->setMemoryFraction(std::min(1.0, part(allowed_bytes - ours_bytes())), device);
    }

    void tell_of(c10::DeviceIndex device, void *pointer, size_t size_bytes, cudaStream_t stream)
    {
        if (C10_UNLIKELY(history.is_wanted.load(std::memory_order_relaxed))) {
            Context context = history.gather(RecordContext::STATE);
            int number = core->serving(device);
            history.look(number, core->find(number), context);
            history.allocated(device, pointer, size_bytes, stream, std::move(context),
                              user_metadata());
        }
        if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
            report(device, pointer, rounded(size_bytes));
        }
        if (const c10::impl::PyInterpreter *interpreter = c10::impl::GPUTrace::get_trace()) {
            (*interpreter)->trace_gpu_memory_allocation(c10::kCUDA, address_of(pointer));
        }
    }

    C10_NOINLINE void tell_of_end(void *pointer)
    {
        gml_block_info block{};
        int number = 0;
        if (!find_block(pointer, &block, &number)) {
            return;
        }
        auto index = static_cast<c10::DeviceIndex>(core->device_of(number));
        if (history.is_wanted) {
            history.will_be_freed(index, block, user_metadata());
        }
        if (c10::memoryProfilingEnabled()) {
            report(index, pointer, -rounded(block.requested_bytes));
        }
        if (const c10::impl::PyInterpreter *interpreter = c10::impl::GPUTrace::get_trace()) {
            (*interpreter)->trace_gpu_memory_deallocation(c10::kCUDA, address_of(pointer));
        }
    }

    /* As PyTorch counts sizes. */
    static int64_t rounded(uint64_t size_bytes)
    {
        return static_cast<int64_t>((size_bytes + 511) / 512 * 512);
    }

    /* Of a block that was allocated, or is about to be freed: the statistics count it. */
    void report(c10::DeviceIndex device, void *pointer, int64_t change)
    {
        DeviceStats stats = getDeviceStats(device);
        auto aggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
        int64_t allocated_bytes = stats.allocated_bytes[aggregate].current;
        c10::reportMemoryUsageToProfiler(
            pointer, change, static_cast<size_t>(allocated_bytes + std::min<int64_t>(change, 0)),
            static_cast<size_t>(stats.reserved_bytes[aggregate].current),
            c10::Device(c10::DeviceType::CUDA, device));
    }
};

Adapter *adapter = nullptr; /* set once, never freed: tensors are freed until the process ends */

/* The deleter of tensors in lakes. What no lake knows is memory of a parent process. */
void
release(void *pointer)
{
    (void)adapter->give_back(pointer);
}

/* Native calls this where it needs more of the device's memory, with its lock held. */
class IdleLakes final : public c10::FreeMemoryCallback
{
  public:
    bool Execute() override
    {
        c10::DeviceIndex device = c10::cuda::current_device();
        size_t free_bytes = 0, total_bytes = 0;
        if (core && cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess &&
            asked_of_native < total_bytes && free_bytes < asked_of_native + spare_bytes) {
            trim_idle(device);
        }
        return false; /* native's free blocks are what they were */
    }
};

} // namespace

namespace c10
{
REGISTER_FREE_MEMORY_CALLBACK(gmlake, IdleLakes)
}

int
gml_native_minor()
{
    return TORCH_VERSION_MINOR;
}

/* Lets lakes round sizes as PyTorch does, by a setting that may change at any time. The other ones
 * of PyTorch's allocator have no meaning for lakes. */
static void
follow_settings()
{
#if TORCH_VERSION_MINOR >= 11
    using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
    static auto tell = [] {
        static std::array<uint64_t, 16> kept{}; /* as many as PyTorch has intervals */
        const std::vector<size_t> &now = Config::roundup_power2_divisions();
        std::copy_n(now.begin(), std::min(now.size(), kept.size()), kept.begin());
        bool is_any = std::any_of(kept.begin(), kept.end(), [](uint64_t n) { return n > 0; });
        const uint64_t *first = is_any ? kept.data() : nullptr;
        for (int device = 0; device < C10_COMPILE_TIME_MAX_GPUS; device++) {
            __atomic_store_n(&core->device(device)->divisions, first, __ATOMIC_RELAXED);
        }
    };
    Config::getConfigParserHook() = [before =
                                         Config::getConfigParserHook()](const std::string &text) {
        if (before) {
            before(text);
        }
        tell();
    };
    tell();
#endif
}

/* Whether events have stacks; where there is none yet they will, as PyTorch records by default. */
static bool
has_stacks(CUDAAllocator *native)
{
#if TORCH_VERSION_MINOR >= 11
    torch_cuda::SnapshotInfo seen = native->snapshot({0, 0}, true);
#else
    torch_cuda::SnapshotInfo seen = native->snapshot({0, 0});
#endif
    size_t events = 0, stacks = 0;
    for (const auto &of_device : seen.device_traces) {
        events += of_device.size();
        stacks += static_cast<size_t>(
            std::count_if(of_device.begin(), of_device.end(),
                          [](const TraceEntry &entry) { return entry.context_ != nullptr; }));
    }
    return stacks > 0 || events == 0;
}

bool
gml_native_install(const gml_native_core *given, char *reason, size_t size_bytes)
{
    if (adapter) {
        return true;
    }
    CUDAAllocator *before = torch_cuda::get();
    if (given->version != GML_NATIVE_VERSION) {
        (void)snprintf(reason, size_bytes, "the adapter is of another version of gmlake");
    } else if (!before || before->name() == "pluggable") {
        (void)snprintf(reason, size_bytes,
                       "another allocator was put into PyTorch by change_current_allocator()");
    } else {
        core = given;
        adapter = new Adapter(before);
        for (int device = 0; device < C10_COMPILE_TIME_MAX_GPUS; device++) {
            core->device(device)->settle = [] { routes.settle(); };
        }
        follow_settings();
        is_caching = before->isEnabled();
        if (before->initialized()) {
            if (before->name() == "native" && before->isHistoryEnabled()) { /* others throw */
                history.adopt(has_stacks(before));
            }
            adapter->adopt_fractions(c10::cuda::device_count());
        }
        /* With less than native's priority, which differs between versions, nothing is set. */
        c10::SetAllocator(c10::DeviceType::CUDA, adapter, UINT8_MAX);
        torch_cuda::allocator.store(adapter);
        return true;
    }
    return false;
}

void
gml_native_serve(bool wanted)
{
    limits.set_capacity(core->capacity());
    is_wanted = wanted && adapter;
    settle_who_serves();
}
