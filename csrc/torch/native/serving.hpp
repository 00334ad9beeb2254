/* Who serves a request, native or a lake, and how much each of them may hold.
 *
 * Either may hold idle what the other one lacks, so each gives back before the other one refuses.
 *
 * The memory fraction of a device, and the capacity that gmlake was given, limit what native and
 * the lakes hold together. Each may hold what the other does not; both are updated whenever that
 * may have changed, only if such a limit exists.
 */
#ifndef GML_TORCH_NATIVE_SERVING_HPP
#define GML_TORCH_NATIVE_SERVING_HPP

#include "figures.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/GPUTrace.h>

namespace {

constexpr size_t refusal_bytes = 4096;
/* Native takes more than it is asked for: 20 MiB for a request below 10 MiB, else whole segments of
 * 2 MiB. This is above both. */
constexpr size_t spare_bytes = size_t{32} << 20;

struct Limits {
    std::atomic<int> count{0};               /* of devices with a fraction; one for the capacity */
    std::atomic<uint64_t> capacity_bytes{0}; /* of each device; 0: all of it */
    std::array<std::atomic<double>, C10_COMPILE_TIME_MAX_GPUS> fractions;
    std::array<std::atomic<double>, C10_COMPILE_TIME_MAX_GPUS> totals{}; /* 0: not asked yet */

    Limits() {
        for (auto &fraction : fractions) {
            fraction = 1;
        }
    }

    std::atomic<double> &fraction(c10::DeviceIndex device) {
        return fractions[static_cast<size_t>(device)];
    }

    bool is_limited(c10::DeviceIndex device) {
        return count.load(std::memory_order_relaxed) > 0 &&
               (capacity_bytes > 0 || fraction(device) < 1);
    }

    /* Of the device, asked once. */
    double total_bytes(c10::DeviceIndex device) {
        std::atomic<double> &known = totals[static_cast<size_t>(device)];
        if (known == 0) {
            size_t free_bytes = 0, total_bytes = 0;
            c10::DeviceGuard guard(c10::Device(c10::DeviceType::CUDA, device));
            C10_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
            known = static_cast<double>(total_bytes);
        }
        return known;
    }

    double allowed_bytes(c10::DeviceIndex device) {
        double bytes = fraction(device) * total_bytes(device);
        return capacity_bytes > 0 ? std::min(bytes, static_cast<double>(capacity_bytes)) : bytes;
    }

    void set_fraction(c10::DeviceIndex device, double wanted) {
        double before = fraction(device).exchange(wanted);
        count += (wanted < 1) - (before < 1);
    }

    void set_capacity(uint64_t wanted_bytes) {
        uint64_t before = capacity_bytes.exchange(wanted_bytes);
        count += (wanted_bytes > 0) - (before > 0);
    }
};

Limits &limits = *new Limits;

/* Gives back what a lake holds idle, and tells of it. */
void trim(int number, gml_lake *lake, const Context &context = nullptr) {
    looks_itself = true;
    (void)core->trim(lake, nullptr);
    looks_itself = false;
    history.look(number, lake, context);
}

/* The same for all lakes of a device, but for one that `asks`, if any, and holds memory of the
 * host: it would have to take that again, and has tried all the rest. */
void trim_idle(int device, const gml_lake *asks = nullptr) {
    each_lake(device, [asks](gml_lake *lake, int number) {
        gml_stats stats{};
        if (core->stats(lake, &stats) == GML_OK && stats.reserved_bytes > stats.live_bytes &&
            !(lake == asks && stats.host_bytes)) {
            trim(number, lake);
        }
    });
}

uint64_t held_by_native(c10::DeviceIndex device) {
    auto aggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return static_cast<uint64_t>(native->getDeviceStats(device).reserved_bytes[aggregate].current);
}

/* Sets the limits of native and the lakes. If native is about to need `size_bytes` that are not
 * left, the lakes release their idle memory, and take nothing of what it may need. */
void share_limit(c10::DeviceIndex device, size_t size_bytes) {
    const uint64_t *held_bytes = &core->device(device)->held_bytes;
    auto ours_bytes = [&] {
        return static_cast<double>(__atomic_load_n(held_bytes, __ATOMIC_RELAXED));
    };
    double total_bytes = limits.total_bytes(device);
    double allowed_bytes = limits.allowed_bytes(device);
    auto natives_bytes = static_cast<double>(held_by_native(device));
    double left_bytes = allowed_bytes - natives_bytes;
    double needed_bytes = 0;
    if (size_bytes > 0) {
        needed_bytes = static_cast<double>(size_bytes) + static_cast<double>(spare_bytes);
    }
    if (needed_bytes > 0 && left_bytes < ours_bytes() + needed_bytes) {
        trim_idle(device);
    }
    /* Half a byte more: multiplying the part by the total and truncating to whole bytes then yields
     * `bytes` again, not one less. */
    auto part = [&](double bytes) { return std::max(0.0, bytes + 0.5) / total_bytes; };
    core->limit(device,
                part(std::max(std::min(left_bytes, ours_bytes()), left_bytes - needed_bytes)));
    native->setMemoryFraction(std::min(1.0, part(allowed_bytes - ours_bytes())), device);
}

/* Around what native is asked for: it may grow, and then the lake may hold less. */
class Sharing {
  public:
    Sharing(c10::DeviceIndex index, size_t size_bytes)
        : device(index), is_limited(limits.is_limited(index)) {
        if (is_limited) {
            share_limit(device, size_bytes);
        }
    }

    ~Sharing() {
        if (is_limited) {
            quietly([&] { share_limit(device, 0); });
        }
    }

  private:
    c10::DeviceIndex device;
    bool is_limited;
};

/* ---- native's cache of one device ---------------------------------------------------------------
 *
 * Native empties the caches of all devices, except, before 2.14, where a pool is begun. So there
 * one that matches nothing stands on each of the others meanwhile. It would also keep native from
 * emptying that cache before it refuses: a thread that needs more there ends it first. That thread
 * holds native's lock of the device, so none is begun there until it is served or refused.
 */

struct Standing {
    std::atomic<size_t> count{0};
    std::mutex mutex; /* guards the rest */
    std::set<PoolKey> pools;

    PoolKey begin(c10::DeviceIndex device) {
        PoolKey pool{device, shadows.take(device)};
        {
            std::lock_guard<std::mutex> lock(mutex);
            pools.insert(pool);
            count = pools.size();
        }
        native->beginAllocateToPool(device, pool.second, [](cudaStream_t) { return false; });
        return pool;
    }

    void end(const PoolKey &pool) {
        {
            std::lock_guard<std::mutex> lock(mutex);
            pools.erase(pool);
            count = pools.size();
        }
        end_in_native(pool);
        shadows.forget(pool);
    }

    /* pre: native's lock of the device is held. */
    void end_on(c10::DeviceIndex device) {
        if (C10_LIKELY(count == 0)) {
            return;
        }
        std::lock_guard<std::mutex> lock(mutex);
        for (const PoolKey &pool : pools) {
            if (pool.first == device) {
                end_in_native(pool);
            }
        }
    }

    static void end_in_native(const PoolKey &pool) try {
        native->endAllocateToPool(pool.first, pool.second);
    } catch (...) {
        /* it is ended already, or not begun yet */
    }
};

Standing &standing = *new Standing;

/* What native holds idle on a device goes back to it. */
void empty_native(c10::DeviceIndex device) {
    struct Others {
        std::vector<PoolKey> spared;

        ~Others() {
            for (const PoolKey &pool : spared) {
                standing.end(pool);
            }
        }
    };
    auto aggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    DeviceStats stats = native->getDeviceStats(device);
    if (stats.reserved_bytes[aggregate].current <= stats.allocated_bytes[aggregate].current) {
        return;
    }
    Others others;
    others.spared.reserve(C10_COMPILE_TIME_MAX_GPUS);
    /* cudaMallocAsync has one capture at a time. */
    bool may_spare = native->name() == "native" && TORCH_VERSION_MINOR < 14;
    for (c10::DeviceIndex other = 0; may_spare && other < c10::cuda::device_count(); other++) {
        if (other != device && held_by_native(other) > 0) {
            others.spared.push_back(standing.begin(other));
        }
    }
    native->emptyCache({0, 0});
}

/* ---- what is told of a block ----------------------------------------------------------------- */

/* As PyTorch counts sizes. */
int64_t rounded(uint64_t size_bytes) {
    return static_cast<int64_t>((size_bytes + 511) / 512 * 512);
}

/* Of a block that was allocated, or is about to be freed: the statistics count it. */
void report(c10::DeviceIndex device, void *pointer, int64_t change) {
    DeviceStats stats = device_stats(device);
    auto aggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    int64_t allocated_bytes = stats.allocated_bytes[aggregate].current;
    c10::reportMemoryUsageToProfiler(
        pointer, change, static_cast<size_t>(allocated_bytes + std::min<int64_t>(change, 0)),
        static_cast<size_t>(stats.reserved_bytes[aggregate].current),
        c10::Device(c10::DeviceType::CUDA, device));
}

void tell_of(c10::DeviceIndex device, int number, MempoolId_t id, void *pointer, size_t size_bytes,
             cudaStream_t stream) {
    if (C10_UNLIKELY(history.is_wanted.load(std::memory_order_relaxed))) {
        Context context = history.gather(RecordContext::STATE);
        history.look(number, core->find(number), context);
        history.allocated({device, address_of(pointer), size_bytes, stream, told_pool(number, id)},
                          std::move(context), user_metadata());
    }
    if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
        report(device, pointer, rounded(size_bytes));
    }
    if (const c10::impl::PyInterpreter *interpreter = c10::impl::GPUTrace::get_trace()) {
        (*interpreter)->trace_gpu_memory_allocation(c10::kCUDA, address_of(pointer));
    }
}

/* Never throws: tensors are freed until the very end of the process, when CUDA answers no more. */
C10_NOINLINE void tell_of_end(void *pointer) try {
    gml_block_info block{};
    int number = 0;
    if (!find_block(pointer, &block, &number)) {
        return;
    }
    auto index = static_cast<c10::DeviceIndex>(core->device_of(number));
    if (history.is_wanted) {
        history.will_be_freed(number, block, user_metadata());
    }
    if (c10::memoryProfilingEnabled()) {
        report(index, pointer, -rounded(block.requested_bytes));
    }
    if (const c10::impl::PyInterpreter *interpreter = c10::impl::GPUTrace::get_trace()) {
        (*interpreter)->trace_gpu_memory_deallocation(c10::kCUDA, address_of(pointer));
    }
} catch (...) {
    /* nobody is told */
}

/* ---- requests and frees ---------------------------------------------------------------------- */

struct Request {
    size_t size_bytes;
    c10::DeviceIndex device;
    cudaStream_t stream;
    MempoolId_t id; /* the pool that is to serve it; (0, 0): none */

    [[nodiscard]] bool is_pooled() const {
        return id != MempoolId_t{0, 0};
    }

    gml_status ask(gml_lake *lake, gml_address *out) const {
        return C10_UNLIKELY(is_pooled())
                   ? core->allocate_in(lake, pool_id(id), size_bytes, handle_of(stream), out)
                   : core->allocate(lake, size_bytes, handle_of(stream), out);
    }
};

/* Whether other processes may give memory of it. */
bool is_shared(c10::DeviceIndex device) {
    return __atomic_load_n(&core->device(device)->spare_bytes, __ATOMIC_RELAXED) > 0;
}

/* ---- before a refusal ------------------------------------------------------------------------ */

constexpr gml_tried nothing_to_tell = GML_TRIED_COUNT;

/* The lake is asked again after each of these. */
struct Relief {
    gml_tried name; /* nothing_to_tell: told where it is tried, or never */
    bool (*may)(c10::DeviceIndex device);
    gml_status (*run)(gml_lake *lake, const Request &request, gml_address *out);
};

bool may_release(c10::DeviceIndex device) {
    return !is_frozen(device);
}

/* Native has asked for itself, see IdleLakes, or given back. */
gml_status ask_within_limit(gml_lake *lake, const Request &request, gml_address *out) {
    if (limits.is_limited(request.device)) {
        share_limit(request.device, 0);
    }
    return request.ask(lake, out);
}

/* Other processes give what they do not use, and this one keeps what it may need again. */
gml_status ask_processes(gml_lake *lake, const Request &request, gml_address *out) {
    gml_status status = GML_OUT_OF_MEMORY;
    while (status == GML_OUT_OF_MEMORY &&
           core->ask_neighbours(request.device, request.size_bytes, true)) {
        status = request.ask(lake, out);
    }
    if (status == GML_OUT_OF_MEMORY) {
        core->spend(core->device(request.device), 1);
        status = request.ask(lake, out);
        core->spend(core->device(request.device), -1);
    }
    return status;
}

gml_status ask_after_native(gml_lake *lake, const Request &request, gml_address *out) {
    empty_native(request.device);
    return ask_within_limit(lake, request, out);
}

gml_status ask_after_lakes(gml_lake *lake, const Request &request, gml_address *out) {
    trim_idle(request.device, lake);
    return ask_within_limit(lake, request, out);
}

/* The core notes whom it asks. */
gml_status ask_givers(gml_lake *lake, const Request &request, gml_address *out) {
    gml_status status = GML_OUT_OF_MEMORY;
    while (status == GML_OUT_OF_MEMORY && core->relieve(request.device, request.size_bytes)) {
        status = request.ask(lake, out);
        if (status == GML_OUT_OF_MEMORY) {
            status = ask_after_lakes(lake, request, out); /* what was given may be another lake's */
        }
    }
    return status;
}

/* Warns once for each time that a lake comes to hold memory of the host, about once a step. PyTorch
 * tells the line of the program that asked. */
gml_status ask_host(gml_lake *lake, const Request &request, gml_address *out) {
    gml_stats before{}, after{};
    if (request.is_pooled() || core->stats(lake, &before) != GML_OK) {
        return GML_OUT_OF_MEMORY;
    }
    gml_status status =
        core->allocate_on_host(lake, request.size_bytes, handle_of(request.stream), out);
    if (status == GML_OK && core->stats(lake, &after) == GML_OK && !before.host_bytes &&
        after.host_bytes) {
        /* One text: a stream of the libstdc++ that is linked in here can lack its locale. */
        TORCH_WARN("gmlake: the device is full, so " + std::to_string(after.host_bytes >> 20) +
                   " MiB for this request of " + std::to_string(request.size_bytes >> 20) +
                   " MiB lie in memory of the host (setting \"host\"). Work on them goes over the "
                   "link to the host, at about a hundredth of the speed of the device's memory.");
    }
    return status;
}

/* All that is tried where a lake has no memory, in this order; native itself is asked last, see
 * ask_native(). The text of a refusal names what ran. */
constexpr Relief reliefs[] = {
    {nothing_to_tell, [](c10::DeviceIndex device) { return limits.is_limited(device); },
     ask_within_limit},
    {GML_TRIED_PROCESSES, is_shared, ask_processes},
    {GML_TRIED_NATIVE, may_release, ask_after_native},
    {GML_TRIED_LAKES, may_release, ask_after_lakes},
    {nothing_to_tell, may_release, ask_givers},
    {nothing_to_tell, [](c10::DeviceIndex) { return true; }, ask_host},
};

/* The lake is NULL and not open yet, or has returned `status`: native's idle memory may suffice. 0
 * if there is no memory; throws c10::Error for any other failure. */
C10_NOINLINE gml_address take_slowly(gml_lake *lake, gml_status status, const Request &request) {
    c10::DeviceIndex device = request.device;
    char reason[reason_bytes] = "";
    gml_address address = 0;
    if (!lake) {
        lake = open_to_all(core->open, device, reason, sizeof reason);
        status = lake ? request.ask(lake, &address) : GML_DRIVER_FAILED;
    }
    for (const Relief &relief : reliefs) {
        if (status == GML_OUT_OF_MEMORY && relief.may(device)) {
            if (relief.name != nothing_to_tell) {
                core->note(relief.name);
            }
            status = relief.run(lake, request, &address);
        }
    }
    if (status == GML_OK) {
        core->served();
    } else if (core->refusal(request.size_bytes, status) != GML_OUT_OF_MEMORY) {
        char text[refusal_bytes];
        core->explain(lake, device, request.size_bytes, status, reason, text, sizeof text);
        TORCH_CHECK(false, text);
    }
    return address;
}

enum class Why {
    AT_ONCE,        /* it serves */
    AFTER_REFUSAL,  /* a lake has no memory; native may have some */
    FOR_THE_RECORD, /* the same, but its memory could not serve: of a region or a pool */
    IN_POOL,        /* its own private pool serves */
};

/* Why native is asked, and after a refusal the lake, NULL where it cannot be opened. */
struct Asked {
    Why why = Why::AT_ONCE;
    gml_lake *lake = nullptr;
    cudaStream_t stream = nullptr;
    MempoolId_t id{0, 0}; /* the pool that was to serve */
};

/* A lake calls the driver in the device's context and leaves no trace of it in the thread. CUDA's
 * libraries expect one there behind a thread's first tensor, as native's cudaMalloc leaves it. */
thread_local bool has_context = false;

C10_NOINLINE void leave_context(c10::DeviceIndex device) {
    has_context = true;
    if (cudaSetDevice(device) != cudaSuccess) { /* PyTorch's current one, which it is already */
        (void)cudaGetLastError();
    }
}

/* NULL: native is to be asked. */
void *take(size_t size_bytes, c10::DeviceIndex device, cudaStream_t stream, Asked *asked) {
    Request request{size_bytes, device, stream, {0, 0}};
    Server server;
    Taker taker = routes.find(device, stream, &server, &request.id);
    if (taker == Taker::NATIVE) {
        asked->why = Why::IN_POOL;
        return nullptr;
    }
    if (C10_LIKELY(taker == Taker::NONE)) {
        if (!is_serving.load(std::memory_order_relaxed)) {
            return nullptr;
        }
        server.number = core->serving(device);
        server.lake = core->find(server.number);
    }
    gml_address address = 0;
    gml_status status = GML_DRIVER_ABSENT; /* until it is opened */
    if (C10_LIKELY(server.lake)) {
        status = request.ask(server.lake, &address);
    }
    if (C10_UNLIKELY(status != GML_OK)) {
        address = take_slowly(server.lake, status, request);
        server.number = server.lake ? server.number : core->serving(device); /* it is open now */
        if (!address) {
            bool is_apart = request.is_pooled() || server.number != device;
            *asked = {is_apart ? Why::FOR_THE_RECORD : Why::AFTER_REFUSAL,
                      core->find(server.number), stream, request.id};
            return nullptr;
        }
    }
    if (C10_UNLIKELY(!has_context)) {
        leave_context(device);
    }
    last_number = server.number;
    try {
        tell_of(device, server.number, request.id, pointer_to(address), size_bytes, stream);
    } catch (...) {
        (void)core->free(core->find(server.number), address);
        throw;
    }
    return pointer_to(address);
}

/* Whether a request may be for a lake at all. */
bool may_take(size_t size_bytes) {
    return size_bytes != 0 && (is_serving.load(std::memory_order_relaxed) ||
                               routes.count.load(std::memory_order_relaxed) > 0);
}

/* How much this thread asks native for now; see IdleLakes. 0: the adapter asks for nothing. */
thread_local size_t asked_of_native = 0;

struct Asking {
    explicit Asking(size_t size_bytes) {
        asked_of_native = size_bytes;
    }

    ~Asking() {
        asked_of_native = 0;
    }
};

void return_to_native(c10::DataPtr pointer) {
    pointer.clear();
}

void return_to_native(void *pointer) {
    native->raw_delete(pointer);
}

/* Native is tried last: it may hold a block that fits. If not, it notifies the observers and
 * counts, but the error text is ours, which covers both. Its memory cannot serve a region: it would
 * not sleep with the rest. Nor a pool. */
template <typename Ask>
auto ask_native(size_t size_bytes, const Asked &asked, Ask ask) -> decltype(ask()) {
    bool is_refused = asked.why == Why::AFTER_REFUSAL || asked.why == Why::FOR_THE_RECORD;
    Asking asking(size_bytes);
    if (C10_LIKELY(!is_refused && limits.count.load(std::memory_order_relaxed) == 0)) {
        return ask();
    }
    c10::DeviceIndex device = c10::cuda::current_device();
    if (!is_refused) {
        Sharing sharing(device, size_bytes);
        return ask();
    }
    if (asked.lake) {
        gml_pool_id pool = pool_id(asked.id);
        core->look(asked.lake, asked.id == MempoolId_t{0, 0} ? nullptr : &pool, size_bytes,
                   handle_of(asked.stream), held_by_native(device));
    }
    try {
        Sharing sharing(device, size_bytes);
        auto pointer = ask();
        if (asked.why == Why::AFTER_REFUSAL) {
            core->served();
            return pointer;
        }
        return_to_native(std::move(pointer));
        if (!is_frozen(device)) {
            empty_native(device);
        }
    } catch (const c10::OutOfMemoryError &) {
        /* reported below */
    }
    if (asked.lake) {
        core->refuse(asked.lake);
    }
    char text[refusal_bytes];
    core->explain(asked.lake, device, size_bytes, GML_OUT_OF_MEMORY, "", text, sizeof text);
    C10_THROW_ERROR(OutOfMemoryError, text);
}

/* Whether a lake gave it, which then has it back. */
bool free_to_lake(void *pointer) {
    if (history.is_wanted.load(std::memory_order_relaxed) || c10::memoryProfilingEnabled() ||
        c10::impl::GPUTrace::get_trace()) {
        tell_of_end(pointer);
    }
    return ask_lakes([&](gml_lake *lake, int) { return core->free(lake, address_of(pointer)); }) !=
           GML_UNKNOWN_ADDRESS;
}

/* The deleter of tensors in lakes, and in pools of either: PyTorch compares those with the one
 * deleter of the allocator. An address that neither knows is memory of a parent process. */
void release(void *pointer) {
    if (!free_to_lake(pointer)) {
        quietly([&] { native->raw_delete(pointer); });
    }
}

/* A tensor of native's, as native knows it. */
c10::DataPtr as_natives(const c10::DataPtr &pointer) {
    return {pointer.get(), pointer.get(), native->raw_deleter(), pointer.device()};
}

/* Native calls this where it needs more of the device's memory, with its lock of the device held.
 *
 * A storage from before the adapter came keeps native as its allocator, and calls it itself when it
 * is resized. How much it asks for is not told: the lakes give all that they hold idle, and under a
 * limit take nothing more until they ask themselves, see take_slowly. */
class IdleLakes final : public c10::FreeMemoryCallback {
  public:
    bool Execute() override {
        if (core) {
            c10::DeviceIndex device = c10::cuda::current_device();
            standing.end_on(device);
            if (asked_of_native == 0) {
                give_all(device);
            } else {
                give_what_is_lacking(device);
            }
        }
        return false; /* native's free blocks are unchanged */
    }

  private:
    static void give_all(c10::DeviceIndex device) {
        if (limits.is_limited(device)) {
            share_limit(device, SIZE_MAX);
        } else {
            trim_idle(device);
        }
    }

    static void give_what_is_lacking(c10::DeviceIndex device) {
        size_t free_bytes = 0, total_bytes = 0;
        auto is_short = [&] {
            return cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess &&
                   asked_of_native < total_bytes && free_bytes < asked_of_native + spare_bytes;
        };
        if (is_short()) {
            trim_idle(device);
            if (is_short()) {
                (void)core->ask_neighbours(device, asked_of_native, false);
            }
        }
    }
};

} // namespace

#endif
