/* What a C++ extension may ask PyTorch's allocator for, for a test in Python: see
 * test_pytorch_interface.py, which compiles this against the headers of the PyTorch that is here.
 */
#include <array>
#include <atomic>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace torch_cuda = c10::cuda::CUDACachingAllocator;
using torch_cuda::TraceEntry;

namespace {

struct Event {
    int64_t tracker, action, device, address, size_bytes;
};

std::mutex mutex; /* guards the rest */
std::vector<Event> events;
std::map<void *, c10::DataPtr> held;
std::atomic<size_t> to_ask{0};

/* Exceptions do not go through ctypes. */
template <typename Work> int outcome(Work work) {
    try {
        work();
        return 0;
    } catch (const c10::OutOfMemoryError &) {
        return 1;
    } catch (const std::exception &) {
        return 2;
    }
}

} // namespace

#define API extern "C" __attribute__((visibility("default")))

API void track(int64_t number) {
    torch_cuda::attachAllocatorTraceTracker([number](const TraceEntry &entry) {
        std::lock_guard<std::mutex> lock(mutex);
        events.push_back({number, entry.action_, entry.device_, static_cast<int64_t>(entry.addr_),
                          static_cast<int64_t>(entry.size_)});
    });
}

/* A tracker that asks the allocator for memory itself while it is told of an event, so often. */
API void track_by_asking(size_t times) {
    to_ask = times;
    torch_cuda::attachAllocatorTraceTracker([](const TraceEntry &) {
        if (to_ask > 0) {
            to_ask--;
            torch_cuda::raw_delete(torch_cuda::raw_alloc(512));
        }
    });
}

API size_t left_to_ask() {
    return to_ask;
}

/* Gives away the events so far: at most `most`; returns how many. */
API size_t take_events(Event *out, size_t most) {
    std::lock_guard<std::mutex> lock(mutex);
    size_t count = std::min(most, events.size());
    std::copy_n(events.begin(), count, out);
    events.clear();
    return count;
}

API size_t largest_idle(int device) {
    size_t largest = 1; /* at 0 it would be what the device has free */
    torch_cuda::cacheInfo(static_cast<c10::DeviceIndex>(device), &largest);
    return largest;
}

API void *base_of(void *pointer, size_t *size_bytes) {
    return torch_cuda::getBaseAllocation(pointer, size_bytes);
}

API int raw_alloc(size_t size_bytes, void *stream, void **out) {
    return outcome([&] {
        *out = stream ? torch_cuda::raw_alloc_with_stream(size_bytes,
                                                          static_cast<cudaStream_t>(stream))
                      : torch_cuda::raw_alloc(size_bytes);
    });
}

API void raw_delete(void *pointer) {
    torch_cuda::raw_delete(pointer);
}

/* Holds a DataPtr of PyTorch's allocator of a kind of device, until release(). */
API int allocate(size_t size_bytes, void **out) {
    return outcome([&] {
        c10::DataPtr pointer = c10::GetAllocator(c10::DeviceType::CUDA)->allocate(size_bytes);
        *out = pointer.get();
        std::lock_guard<std::mutex> lock(mutex);
        held[*out] = std::move(pointer);
    });
}

API void release(void *pointer) {
    c10::DataPtr gone;
    std::lock_guard<std::mutex> lock(mutex);
    gone = std::move(held[pointer]);
    held.erase(pointer);
}

API void lend(void *storage, int64_t stream, int device) {
    torch_cuda::recordStream(
        static_cast<c10::StorageImpl *>(storage)->data_ptr(),
        c10::cuda::getStreamFromExternal(reinterpret_cast<cudaStream_t>(stream),
                                         static_cast<c10::DeviceIndex>(device)));
}

/* What C++ code that registers its memory by storage compares. */
API int deleter_is_of(void *storage) {
    auto deleter = static_cast<c10::StorageImpl *>(storage)->data_ptr().get_deleter();
    return deleter != nullptr && deleter != &c10::detail::deleteNothing;
}

API int64_t statistic(int device, const char *name) {
    auto stats = torch_cuda::getDeviceStats(static_cast<c10::DeviceIndex>(device));
    auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    if (strcmp(name, "allocated_bytes") == 0) {
        return stats.allocated_bytes[all].current;
    }
    if (strcmp(name, "reserved_bytes") == 0) {
        return stats.reserved_bytes[all].current;
    }
    return strcmp(name, "allocation") == 0 ? stats.allocation[all].current : -1;
}

API int is_one() {
    return torch_cuda::get() == c10::GetAllocator(c10::DeviceType::CUDA) &&
           torch_cuda::get() == c10::getDeviceAllocator(c10::DeviceType::CUDA) &&
           torch_cuda::get()->initialized();
}

API size_t name(char *out, size_t most) {
    std::string text = torch_cuda::get()->name();
    strncpy(out, text.c_str(), most);
    return text.size();
}

API void push_compilation(const char *text) {
    std::string given = text;
    torch_cuda::get()->pushCompileContext(given);
}

API void pop_compilation() {
    torch_cuda::get()->popCompileContext();
}

API void memory_info(int device, size_t *free_bytes, size_t *total_bytes) {
    auto found = torch_cuda::get()->getMemoryInfo(static_cast<c10::DeviceIndex>(device));
    *free_bytes = found.first;
    *total_bytes = found.second;
}

API size_t segments(int has_traces, size_t *events_seen) {
    auto found = torch_cuda::snapshot({0, 0}, has_traces != 0);
    *events_seen = 0;
    for (const auto &trace : found.device_traces) {
        *events_seen += trace.size();
    }
    return found.segments.size();
}

API int copy(void *to, const void *from, size_t size_bytes) {
    return outcome([&] { torch_cuda::get()->copy_data(to, from, size_bytes); });
}

API int copy_between(void *to, int to_device, const void *from, int from_device, size_t size_bytes,
                     void *stream, int has_peers) {
    return torch_cuda::memcpyAsync(to, to_device, from, from_device, size_bytes,
                                   static_cast<cudaStream_t>(stream), has_peers != 0);
}

/* Attaches an observer that counts. */
std::atomic<int64_t> observed{0};

API void observe() {
    torch_cuda::attachOutOfMemoryObserver(
        [](int64_t, size_t size_bytes, size_t, size_t) { observed += size_bytes != 0; });
}

API int64_t observations() {
    return observed;
}
