/* PyTorch's C++ allocator interface over gmlake.
 *
 * The adapter stands in front of PyTorch's own allocator, called `native` here, for the rest of the
 * process. While gmlake serves, tensors come from lakes, and so do the private pools (graphs,
 * torch.cuda.MemPool) that are first seen then. Everything else is native's: earlier and foreign
 * allocations, pools with an allocator of their own, and the calls that are not about memory. Each
 * of them frees its own blocks, identified by address. Statistics and snapshots report the sum of
 * both.
 *
 * lakes.hpp     owners of addresses; memory of other processes
 * routes.hpp    private pools and captures
 * history.hpp   events, stack traces, trackers
 * figures.hpp   statistics, snapshots
 * serving.hpp   requests, frees, and the limits that both share
 * states.hpp    private pools that are put back into an earlier state
 *
 * Locks: each mutex guards the members declared after it; no lock of PyTorch or of a lake is taken
 * while one is held, except a lake's under those of Opened and Parts. Native may hold its own when
 * it calls.
 *
 * No function takes Python's GIL, but the recorder of stack traces that PyTorch hands over may, so
 * it is called with no lock held. These objects are never destroyed: tensors are freed until the
 * very end of the process.
 */
#include "states.hpp"

#include <c10/core/AllocatorConfig.h>
#include <cstdio>
#include <cstring>

/* Newer C libraries have a variable of this name, and newer compilers ask for it. With one of its
 * own the adapter needs no newer C library than PyTorch does. Zero: there may be threads. */
extern "C" {
__attribute__((visibility("hidden"))) extern char __libc_single_threaded;
char __libc_single_threaded = 0;
}

namespace {

class Adapter final : public CUDAAllocator {
  public:
    /* ---- memory. Hot: allocate and release. */

    c10::DataPtr allocate(size_t size_bytes) override {
        Asked asked;
        if (may_take(size_bytes)) {
            c10::DeviceIndex device = c10::cuda::current_device();
            cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device);
            if (void *pointer = take(size_bytes, device, stream, &asked)) {
                return {pointer, pointer, release, c10::Device(c10::DeviceType::CUDA, device)};
            }
        }
        c10::DataPtr served =
            ask_native(size_bytes, asked, [&] { return native->allocate(size_bytes); });
        if (asked.why == Why::IN_POOL) {
            (void)served.compare_exchange_deleter(native->raw_deleter(), release);
        }
        return served;
    }

    /* PyTorch compares the tensors of private pools with it. */
    c10::DeleterFnPtr raw_deleter() const override {
        return release;
    }

    void *raw_alloc(size_t size_bytes) override {
        return raw_alloc_with_stream(size_bytes,
                                     c10::cuda::getCurrentCUDAStream(c10::cuda::current_device()));
    }

    void *raw_alloc_with_stream(size_t size_bytes, cudaStream_t stream) override {
        Asked asked;
        if (may_take(size_bytes)) {
            if (void *pointer = take(size_bytes, c10::cuda::current_device(), stream, &asked)) {
                return pointer;
            }
        }
        return ask_native(size_bytes, asked,
                          [&] { return native->raw_alloc_with_stream(size_bytes, stream); });
    }

    void raw_delete(void *pointer) override {
        if (pointer && !free_to_lake(pointer)) {
            native->raw_delete(pointer);
        }
    }

    void copy_data(void *to, const void *from, std::size_t count) const override {
        native->copy_data(to, from, count);
    }

    /* ---- streams, pools, captures */

    using CUDAAllocator::recordStream;

    void recordStream(const c10::DataPtr &pointer, c10::cuda::CUDAStream stream) override {
        if (pointer.get_deleter() != release) {
            native->recordStream(pointer, stream);
            return;
        }
        gml_status status = ask_lakes([&](gml_lake *lake, int) {
            return core->record_stream(lake, address_of(pointer.get()), stream.device_index(),
                                       handle_of(stream.stream()));
        });
        TORCH_CHECK(
            status == GML_OK || status == GML_UNKNOWN_ADDRESS,
            "gmlake cannot remember that a stream uses a tensor: the host is out of memory");
        if (status == GML_UNKNOWN_ADDRESS) {
            record_in_native(pointer, stream);
        }
    }

    /* The tensor lies in a pool of native's, or is memory of a parent process, which native does
     * not know either. */
    static void record_in_native(const c10::DataPtr &pointer, c10::cuda::CUDAStream stream) {
        c10::DataPtr natives = as_natives(pointer);
        try {
            native->recordStream(natives, stream);
        } catch (const c10::Error &) { /* unknown */
        } catch (...) {
            (void)natives.release_context();
            throw;
        }
        (void)natives.release_context();
    }

    void beginAllocateToPool(c10::DeviceIndex device, MempoolId_t id,
                             std::function<bool(cudaStream_t)> filter) override {
        routes.begin(device, id, std::move(filter));
    }

    void endAllocateToPool(c10::DeviceIndex device, MempoolId_t id) override {
        routes.end(device, id);
    }

    void releasePool(c10::DeviceIndex device, MempoolId_t id) override {
        if (owners.are_lakes(device, id)) {
            release_in_lakes(device, id);
            history.look_at_all();
        } else if (uses_of_native(device, id) > 0) { /* else it is over: its capture failed */
            native->releasePool(device, id);
            if (uses_of_native(device, id) == 0) {
                owners.forget(device, id);
            }
        }
    }

    int getPoolUseCount(c10::DeviceIndex device, MempoolId_t id) override {
        return owners.are_lakes(device, id) ? uses_of(device, id)
                                            : native->getPoolUseCount(device, id);
    }

    bool checkPoolLiveAllocations(c10::DeviceIndex device, MempoolId_t id,
                                  const std::unordered_set<void *> &expected) override {
        return owners.are_lakes(device, id)
                   ? live_in_pool(device, id) == expected
                   : native->checkPoolLiveAllocations(device, id, expected);
    }

    std::shared_ptr<torch_cuda::AllocatorState> getCheckpointState(c10::DeviceIndex device,
                                                                   MempoolId_t id) override {
        return owners.are_lakes(device, id) ? state_of(device, id)
                                            : native->getCheckpointState(device, id);
    }

    torch_cuda::CheckpointDelta
    setCheckpointPoolState(c10::DeviceIndex device,
                           std::shared_ptr<torch_cuda::AllocatorState> state) override {
        if (const auto *ours = dynamic_cast<const PoolState *>(state.get())) {
            return put_back(device, *ours);
        }
        torch_cuda::CheckpointDelta delta =
            native->setCheckpointPoolState(device, std::move(state));
        for (c10::DataPtr &served : delta.dataptrs_allocd) {
            (void)served.compare_exchange_deleter(native->raw_deleter(), release);
        }
        return delta;
    }

    /* ---- limits and idle memory */

    void init(int device_count) override {
        native->init(device_count);
        adopt_fractions(device_count);
    }

    /* A fraction set earlier, by the program or by PYTORCH_ALLOC_CONF, limits both. */
    void adopt_fractions(int device_count) {
        for (int device = 0; device < device_count; device++) {
            auto index = static_cast<c10::DeviceIndex>(device);
            double fraction = native->getMemoryFraction(index);
            if (fraction < 1) {
                limit(index, fraction);
            }
        }
    }

    bool initialized() override {
        return native->initialized();
    }

    double getMemoryFraction(c10::DeviceIndex device) override {
        return limits.count > 0 ? limits.fraction(device).load()
                                : native->getMemoryFraction(device);
    }

    void setMemoryFraction(double fraction, c10::DeviceIndex device) override {
        native->setMemoryFraction(fraction, device); /* throws for an invalid fraction */
        limit(device, fraction);
    }

    /* A device that the program has not used is not touched: nothing is held there yet. */
    static void limit(c10::DeviceIndex device, double fraction) {
        limits.set_fraction(device, fraction);
        core->limit(device, fraction);
        share_limit_if_any(device);
    }

    static void share_limit_if_any(c10::DeviceIndex device) {
        if (limits.is_limited(device) && c10::cuda::hasPrimaryContext(device)) {
            share_limit(device, 0);
        }
    }

    void emptyCache(MempoolId_t id) override {
        if (id == MempoolId_t{0, 0}) {
            Context context = history.gather(RecordContext::ALL);
            for (int number = core->next(-1); number >= 0; number = core->next(number)) {
                trim(number, core->find(number), context);
            }
        }
        if (!owners.are_lakes_of_any(id)) {
            native->emptyCache(id); /* a pool of lakes gave its memory back with its last use */
        }
        for (c10::DeviceIndex device = 0; device < c10::cuda::device_count(); device++) {
            share_limit_if_any(device);
        }
    }

    void enable(bool is_enabled) override {
        native->enable(is_enabled);
        is_caching = is_enabled;
        update_serving();
    }

    bool isEnabled() const override {
        return native->isEnabled();
    }

    /* The largest block that needs no memory of the device's. */
    void cacheInfo(c10::DeviceIndex device, size_t *largest_bytes) override {
        native->cacheInfo(device, largest_bytes);
        gml_lake *lake = serving_lake(device);
        gml_stats stats{};
        if (lake && core->stats(lake, &stats) == GML_OK) {
            *largest_bytes = std::max<size_t>(*largest_bytes, stats.largest_free_bytes);
        }
    }

    /* ---- questions about both */

    void *getBaseAllocation(void *pointer, size_t *size_bytes) override {
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

    DeviceStats getDeviceStats(c10::DeviceIndex device) override {
        return device_stats(device);
    }

    void resetAccumulatedStats(c10::DeviceIndex device) override {
        native->resetAccumulatedStats(device);
        forgotten.reset(device);
    }

    void resetPeakStats(c10::DeviceIndex device) override {
        native->resetPeakStats(device);
        each_lake(device, [](gml_lake *lake, int) { (void)core->reset_peaks(lake); });
    }

    static torch_cuda::SnapshotInfo without_segments(bool has_traces) {
        torch_cuda::SnapshotInfo info = native->snapshot({0, 0}, has_traces);
        info.segments.clear();
        return info;
    }

    static torch_cuda::SnapshotInfo with_lakes(torch_cuda::SnapshotInfo info, MempoolId_t id,
                                               bool has_traces) {
        if (has_traces) {
            history.look_at_all();
        }
        std::vector<SegmentInfo> ours = segments_of_lakes();
        std::copy_if(ours.begin(), ours.end(), std::back_inserter(info.segments),
                     [&](const SegmentInfo &segment) {
                         return id == MempoolId_t{0, 0} || segment.owner_private_pool_id == id;
                     });
        std::sort(info.segments.begin(), info.segments.end(),
                  [](const SegmentInfo &left, const SegmentInfo &right) {
                      return left.address < right.address;
                  });
        if (has_traces) {
            add_events(info.device_traces);
#if TORCH_VERSION_MINOR < 12
            annotate_pools(info);
#endif
        }
        return info;
    }

    /* ---- histories and observers */

    bool isHistoryEnabled() override {
        return native->isHistoryEnabled();
    }

    void recordAnnotation(const std::vector<std::pair<std::string, std::string>> &data) override {
        native->recordAnnotation(data);
    }

    void pushCompileContext(std::string &text) override {
        native->pushCompileContext(text);
        compile_contexts.push_back(text);
    }

    void popCompileContext() override {
        native->popCompileContext();
        if (!compile_contexts.empty()) {
            compile_contexts.pop_back();
        }
    }

    void attachOutOfMemoryObserver(torch_cuda::OutOfMemoryObserver observer) override {
        native->attachOutOfMemoryObserver(std::move(observer));
    }

    void attachAllocatorTraceTracker(torch_cuda::AllocatorTraceTracker tracker) override {
        native->attachAllocatorTraceTracker(tracker);
        history.track(std::move(tracker));
    }

    /* ---- devices and processes */

    void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex peer) override {
        native->enablePeerAccess(device, peer);
        each_lake(peer, [&](gml_lake *lake, int) {
            gml_status status = core->grant(lake, device);
            /* One text: see ask_host(). */
            TORCH_CHECK(status == GML_OK || status == GML_UNSUPPORTED,
                        "gmlake cannot open its memory on device " + std::to_string(peer) +
                            " to device " + std::to_string(device));
        });
    }

    cudaError_t memcpyAsync(void *to, int to_device, const void *from, int from_device,
                            size_t count, cudaStream_t stream, bool has_peers) override {
        return native->memcpyAsync(to, to_device, from, from_device, count, stream, has_peers);
    }

    torch_cuda::ShareableHandle shareIpcHandle(void *pointer) override {
        gml_block_info block{};
        int number = 0;
        if (!find_block(pointer, &block, &number)) {
            return native->shareIpcHandle(pointer);
        }
        struct Shared : Callback {
            torch_cuda::ShareableHandle shareable{0, ""};
        } shared;
        uint64_t offset_bytes = 0;
        char reason[reason_bytes] = "";
        auto write = [](void *to, const char *text, size_t size) {
            auto *into = static_cast<Shared *>(to);
            into->run([&] { into->shareable.handle.append(text, size); });
        };
        gml_status status =
            core->share(core->find(number), address_of(pointer), TORCH_VERSION_MINOR, write,
                        &shared, &offset_bytes, reason, sizeof reason);
        shared.rethrow();
        TORCH_CHECK(status == GML_OK, "this tensor cannot be shared with other processes: ", reason,
                    "; make it outside of gmlake.enabled()");
        shared.shareable.offset = static_cast<ptrdiff_t>(offset_bytes);
        return shared.shareable;
    }

    std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
        return core->is_shared(handle.data(), handle.size())
                   ? opened.find(handle, c10::cuda::current_device())
                   : native->getIpcDevPtr(std::move(handle));
    }

    std::string name() override {
        return native->name();
    }

    /* ---- what not every version of PyTorch has, or not in this form */

    std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
        return native->getMemoryInfo(device);
    }

    std::vector<torch_cuda::StreamSegmentSize>
    getExpandableSegmentSizes(c10::DeviceIndex device) override {
        return native->getExpandableSegmentSizes(device);
    }

    void setNoSplit(c10::DeviceIndex device, MempoolId_t id) override {
        if (owners.are_lakes(device, id)) {
            set_in_lakes(device, id, GML_POOL_IS_WHOLE, true);
        } else {
            native->setNoSplit(device, id);
        }
    }

    void setUserMetadata(const std::string &text) override {
        native->setUserMetadata(text);
    }
    std::string getUserMetadata() override {
        return native->getUserMetadata();
    }
    void createOrIncrefPool(c10::DeviceIndex device, MempoolId_t id,
                            std::shared_ptr<CUDAAllocator> allocator) override {
        if (owners.decide(device, id, allocator != nullptr)) {
            hold_in_lake(device, id);
        } else {
            native->createOrIncrefPool(device, id, std::move(allocator));
        }
    }

    void setUseOnOOM(c10::DeviceIndex device, MempoolId_t id, bool is_used) override {
        if (owners.are_lakes(device, id)) {
            set_in_lakes(device, id, GML_POOL_HELPS, is_used);
        } else {
            native->setUseOnOOM(device, id, is_used);
        }
    }

    torch_cuda::SnapshotInfo snapshot(MempoolId_t id, bool has_traces) override {
        /* Native knows nothing of a pool of lakes. */
        return with_lakes(owners.are_lakes_of_any(id) ? without_segments(has_traces)
                                                      : native->snapshot(id, has_traces),
                          id, has_traces);
    }

    void recordHistory(bool is_enabled, CreateContextFn recorder, size_t max_entries,
                       RecordContext when, bool is_clear,
                       const std::vector<std::string> &names) override {
        native->recordHistory(is_enabled, recorder, max_entries, when, is_clear, names);
        std::vector<TraceEntry::Action> skipped(names.size());
        std::transform(names.begin(), names.end(), skipped.begin(),
                       c10::CachingDeviceAllocator::parseTraceEntryAction);
        history.record(is_enabled, recorder, max_entries, when, is_clear, std::move(skipped));
    }
#if TORCH_VERSION_MINOR >= 12
    void attachOomRejectionObserver(torch_cuda::OomRejectionObserver observer) override {
        native->attachOomRejectionObserver(std::move(observer));
    }

    Context getContextForPointer(const void *pointer) override {
        Context found = history.context_of(pointer);
        return found ? found : native->getContextForPointer(pointer);
    }
#endif
#if TORCH_VERSION_MINOR >= 13
    c10::DataPtr allocateWithAddress(size_t size_bytes, void *address) override {
        return native->allocateWithAddress(size_bytes, address);
    }

    void markCaptureBegin(c10::DeviceIndex device) override {
        native->markCaptureBegin(device);
    }
    void markCaptureEnd(c10::DeviceIndex device) override {
        native->markCaptureEnd(device);
    }
#endif
#if TORCH_VERSION_MINOR >= 14
    bool supportsUserMetadata() override {
        return native->supportsUserMetadata();
    }

    void annotateMemory(const void *pointer, const std::string &text) override {
        gml_block_info block{};
        int number = 0;
        if (find_block(pointer, &block, &number)) {
            history.annotated(number, block, text);
        } else {
            native->annotateMemory(pointer, text);
        }
    }
#endif
};

} // namespace

namespace c10 {
REGISTER_FREE_MEMORY_CALLBACK(gmlake, IdleLakes)
}

#ifndef GML_NATIVE_INTERFACE
#define GML_NATIVE_INTERFACE "" /* compiled by hand */
#endif

const char gml_native_interface[] = GML_NATIVE_INTERFACE;

/* Lets lakes round sizes as PyTorch does, by a setting that may change at any time. The other ones
 * of PyTorch's allocator have no meaning for lakes. */
static void follow_settings() {
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
}

/* Whether events have stacks; true without events, as PyTorch records stacks by default. */
static bool has_stacks() {
    torch_cuda::SnapshotInfo seen = native->snapshot({0, 0}, true);
    size_t events = 0, stacks = 0;
    for (const auto &of_device : seen.device_traces) {
        events += of_device.size();
        stacks += static_cast<size_t>(
            std::count_if(of_device.begin(), of_device.end(),
                          [](const TraceEntry &entry) { return entry.context_ != nullptr; }));
    }
    return stacks > 0 || events == 0;
}

bool gml_native_install(const gml_native_core *given, char *reason, size_t size_bytes) try {
    if (native) {
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
        native = before;
        auto *adapter = new Adapter; /* never freed: tensors are freed until the process ends */
        for (int device = 0; device < C10_COMPILE_TIME_MAX_GPUS; device++) {
            core->device(device)->end_failed_captures = [] {
                quietly([] { routes.end_failed_captures(); });
            };
        }
        follow_settings();
        is_caching = before->isEnabled();
        if (before->initialized()) {
            if (before->name() == "native" && before->isHistoryEnabled()) { /* others throw */
                history.adopt(has_stacks());
            }
            adapter->adopt_fractions(c10::cuda::device_count());
        }
        /* A priority below native's, which differs between versions, would set nothing. */
        c10::SetAllocator(c10::DeviceType::CUDA, adapter, UINT8_MAX);
        torch_cuda::allocator.store(adapter);
        return true;
    }
    return false;
} catch (const std::exception &error) {
    int line = static_cast<int>(strcspn(error.what(), "\n"));
    (void)snprintf(reason, size_bytes, "%.*s", line, error.what());
    return false;
}

bool gml_native_knows_pools() {
    static std::atomic<bool> is_known{false};
    bool is_any = false;
    if (!is_known && native->initialized()) {
        for (c10::DeviceIndex device = 0; device < c10::cuda::device_count(); device++) {
            is_any |= has_begun_pool(device);
        }
    }
    is_known = !is_any;
    return !is_any;
}

void gml_native_serve(bool wanted) {
    limits.set_capacity(core->capacity());
    is_wanted = wanted && native;
    update_serving();
}
