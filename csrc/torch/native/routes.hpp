/* Private pools: whose they are, and which requests go to them.
 *
 * A pool is native's or the lakes' for all its life. It is the lakes' if it is seen first while
 * gmlake serves, unless it has an allocator of its own or the device's lake makes no private heaps.
 * Which lake serves is decided each time that the pool is begun, so it may have parts in several.
 *
 * A capture freezes the device: its lakes make no call that would break one. Native is told of each
 * capture and of its end; of those that are the lakes' by a pool that matches nothing.
 *
 * A capture begins its pool before it begins itself, so that pool's filter matches nothing yet. The
 * filter of any other pool matches requests of the thread that begins it. The body of a conditional
 * node ends and begins the pool of its graph again, while the graph is captured.
 *
 * PyTorch does not report a capture that fails at its end. Its thread detects it: if it calls again
 * and its stream does not capture, the capture has failed. Other threads cannot tell that from an
 * end that PyTorch is about to report.
 */
#ifndef GML_TORCH_NATIVE_ROUTES_HPP
#define GML_TORCH_NATIVE_ROUTES_HPP

#include "lakes.hpp"

#include <algorithm>
#include <array>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace {

bool is_capturing(cudaStream_t stream) {
    auto status = cudaStreamCaptureStatus::cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) { /* it is gone */
        (void)cudaGetLastError();
    }
    return status != cudaStreamCaptureStatus::cudaStreamCaptureStatusNone;
}

gml_pool_id pool_id(MempoolId_t id) {
    return {id.first, id.second};
}

/* Calls `tell` with each pool of a lake; it may call no lake. */
template <typename Tell> void each_pool(gml_lake *lake, Tell tell) {
    struct Seen : Callback {
        Tell *tell;
    } seen;
    seen.tell = &tell;
    auto see = [](void *to, const gml_pool_info *info) {
        auto *into = static_cast<Seen *>(to);
        into->run([&] { (*into->tell)(*info); });
    };
    core->pools(lake, see, &seen);
    seen.rethrow();
}

/* Calls `tell` with the lakes of a device that know the pool, and how it stands. */
template <typename Tell> void each_with_pool(c10::DeviceIndex device, MempoolId_t id, Tell tell) {
    each_lake(device, [&](gml_lake *lake, int) {
        bool is_found = false;
        gml_pool_info found{};
        each_pool(lake, [&](const gml_pool_info &info) {
            if (MempoolId_t{info.id.first, info.id.second} == id) {
                is_found = true;
                found = info;
            }
        });
        if (is_found) {
            tell(lake, found);
        }
    });
}

/* A lake and its number. */
struct Server {
    gml_lake *lake = nullptr;
    int number = 0;
};

/* How often native uses a pool; it throws for one that it does not know. */
int uses_of_native(c10::DeviceIndex device, MempoolId_t id) {
    try {
        return native->getPoolUseCount(device, id);
    } catch (const c10::Error &) {
        return 0;
    }
}

/* ---- owners ---------------------------------------------------------------------------------- */

using PoolKey = std::pair<c10::DeviceIndex, MempoolId_t>;

struct Owners {
    std::mutex mutex;                 /* guards the rest */
    std::map<PoolKey, bool> is_lakes; /* of pools in use */
    std::set<PoolKey> is_over;        /* captures that were found to have failed */

    static bool may_be_lakes(c10::DeviceIndex device, MempoolId_t id) {
        if (!is_serving.load(std::memory_order_relaxed) || uses_of_native(device, id) > 0) {
            return false;
        }
        char reason[reason_bytes] = "";
        gml_lake *lake = open_to_all(core->open_of_device, device, reason, sizeof reason);
        return core->takes_graphs() || (lake && core->has_private_heaps(lake));
    }

    /* Decides if it has not been decided. */
    bool decide(c10::DeviceIndex device, MempoolId_t id, bool has_allocator = false) {
        {
            std::lock_guard<std::mutex> lock(mutex);
            is_over.erase({device, id});
            auto known = is_lakes.find({device, id});
            if (known != is_lakes.end()) {
                return known->second;
            }
        }
        bool decided = !has_allocator && may_be_lakes(device, id);
        std::lock_guard<std::mutex> lock(mutex);
        return is_lakes.emplace(PoolKey{device, id}, decided).first->second;
    }

    /* Whether it is the lakes'; false of what is not known. */
    bool are_lakes(c10::DeviceIndex device, MempoolId_t id) {
        std::lock_guard<std::mutex> lock(mutex);
        auto known = is_lakes.find({device, id});
        return known != is_lakes.end() && known->second;
    }

    /* The same on any device. */
    bool are_lakes_of_any(MempoolId_t id) {
        std::lock_guard<std::mutex> lock(mutex);
        return std::any_of(is_lakes.begin(), is_lakes.end(), [&](const auto &known) {
            return known.first.second == id && known.second;
        });
    }

    void forget(c10::DeviceIndex device, MempoolId_t id) {
        std::lock_guard<std::mutex> lock(mutex);
        is_lakes.erase({device, id});
    }

    void capture_is_over(c10::DeviceIndex device, MempoolId_t id) {
        std::lock_guard<std::mutex> lock(mutex);
        is_over.insert({device, id});
    }

    /* Whether PyTorch ends what has been ended here. */
    bool was_over(c10::DeviceIndex device, MempoolId_t id) {
        std::lock_guard<std::mutex> lock(mutex);
        return is_over.count({device, id}) > 0;
    }
};

Owners &owners = *new Owners;

void check_pool(gml_status status, const char *what) {
    TORCH_CHECK(status == GML_OK, what, ": ",
                status == GML_NO_HOST_MEMORY ? "the host is out of memory"
                                             : "the pool is not in use, or was used before");
}

/* For who began or ends a capture. */
void check_capture(gml_status status, gml_lake *lake, const char *what) {
    char reason[reason_bytes] = "";
    if (status != GML_OK) {
        core->reason(lake, reason, sizeof reason);
    }
    if (status == GML_OUT_OF_MEMORY) {
        C10_THROW_ERROR(OutOfMemoryError,
                        c10::str("CUDA out of memory. The outputs of a graph ",
                                 "that takes turns need memory of their own: ", reason));
    }
    TORCH_CHECK(status == GML_OK, "a capture ", what, ": ", reason);
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* A pool in one lake. */
struct Part {
    gml_lake *lake;
    gml_pool_info info;
};

/* The parts of a pool: those that are in use. Its memory is held as long as it is used in any of
 * them, as PyTorch's allocator does it: of several parts, each has one use more than PyTorch counts
 * there. */
struct Parts {
    std::mutex mutex; /* held while parts are begun, held and released */

    static std::vector<Part> of(c10::DeviceIndex device, MempoolId_t id) {
        std::vector<Part> found;
        each_with_pool(device, id, [&](gml_lake *lake, const gml_pool_info &info) {
            if (info.use_count > 0) {
                found.push_back({lake, info});
            }
        });
        return found;
    }

    /* Of each part, those that PyTorch does not count. */
    static size_t extra_uses(const std::vector<Part> &parts) {
        return parts.size() > 1 ? 1 : 0;
    }

    static size_t uses(const std::vector<Part> &parts) {
        size_t sum = 0;
        for (const Part &part : parts) {
            sum += part.info.use_count - extra_uses(parts);
        }
        return sum;
    }

    /* Before a use in a lake, which may become a part by it, with the flags of the others. pre: the
     * mutex is held. */
    static void join(c10::DeviceIndex device, MempoolId_t id, gml_lake *lake) {
        std::vector<Part> parts = of(device, id);
        bool is_part = std::any_of(parts.begin(), parts.end(),
                                   [&](const Part &part) { return part.lake == lake; });
        if (parts.empty() || is_part) {
            return;
        }
        const Part &first = parts.front();
        for (gml_lake *held : {parts.size() == 1 ? first.lake : nullptr, lake}) {
            if (held) {
                check_pool(core->hold_pool(held, pool_id(id)), "a pool cannot be used");
            }
        }
        for (gml_pool_flag flag : {GML_POOL_HELPS, GML_POOL_IS_WHOLE}) {
            if (first.info.flags & flag) { /* refused where it has served before */
                (void)core->set_pool(lake, pool_id(id), flag, true);
            }
        }
    }

    /* After a use has ended. All parts end with the last one. pre: the mutex is held. */
    static void leave(c10::DeviceIndex device, MempoolId_t id) {
        std::vector<Part> parts = of(device, id);
        if (uses(parts) > 0) {
            return;
        }
        for (const Part &part : parts) {
            (void)core->release_pool(part.lake, pool_id(id));
        }
        owners.forget(device, id);
    }
};

Parts &all_parts = *new Parts;

/* How often a pool of lakes is used. */
int uses_of(c10::DeviceIndex device, MempoolId_t id) {
    return static_cast<int>(Parts::uses(Parts::of(device, id)));
}

/* The lake that a pool is begun or held in: that of this thread's region, else the device's. The
 * memory of graphs belongs only to regions that take it, be it that this is a capture, or that
 * graphs were captured in the pool, which then write there. */
Server open_for_pool(c10::DeviceIndex device, MempoolId_t id, bool is_capture) {
    bool is_region = core->takes_graphs();
    if (!is_region && !is_capture) {
        std::vector<Part> parts = Parts::of(device, id);
        is_region = std::none_of(parts.begin(), parts.end(),
                                 [](const Part &part) { return part.info.is_kept; });
    }
    char reason[reason_bytes] = "";
    gml_lake *lake =
        open_to_all(is_region ? core->open : core->open_of_device, device, reason, sizeof reason);
    TORCH_CHECK(lake, "memory for a graph or a pool cannot be had: ", reason);
    return {lake, is_region ? core->serving(device) : device};
}

/* One use more, of a pool that is the lakes'. */
void hold_in_lake(c10::DeviceIndex device, MempoolId_t id) {
    gml_lake *lake = open_for_pool(device, id, false).lake;
    std::lock_guard<std::mutex> lock(all_parts.mutex);
    Parts::join(device, id, lake);
    check_pool(core->hold_pool(lake, pool_id(id)), "a pool cannot be made");
}

void set_in_lakes(c10::DeviceIndex device, MempoolId_t id, gml_pool_flag flag, bool is_set) {
    for (const Part &part : Parts::of(device, id)) {
        check_pool(core->set_pool(part.lake, pool_id(id), flag, is_set),
                   "a pool cannot be changed");
    }
}

/* ---- routes ---------------------------------------------------------------------------------- */

enum class Taker {
    NONE, /* no pool: whoever serves this thread */
    NATIVE,
    LAKE,
};

struct Route {
    c10::DeviceIndex device;
    MempoolId_t id;
    std::function<bool(cudaStream_t)> filter;
    bool is_capture;
    Server server;      /* no lake: native */
    MempoolId_t stands; /* for a capture in a lake: in native, see Shadows */
    cudaStream_t stream;
    std::thread::id thread;
};

/* Pools of native that stand for captures in lakes: they match nothing. Native takes no id again
 * whose uses have ended until it empties its cache, so these are never released. */
struct Shadows {
    std::mutex mutex;      /* guards the rest */
    std::set<PoolKey> all; /* in use */

    static bool is_one(MempoolId_t id) {
        return id.first == UINT64_MAX;
    }

    MempoolId_t take(c10::DeviceIndex device) {
        MempoolId_t id{UINT64_MAX, 1};
        std::lock_guard<std::mutex> lock(mutex);
        while (!all.insert({device, id}).second) {
            id.second++;
        }
        return id;
    }

    MempoolId_t begin(c10::DeviceIndex device) {
        MempoolId_t id = take(device);
        native->beginAllocateToPool(device, id, [](cudaStream_t) { return false; });
        return id;
    }

    void end(c10::DeviceIndex device, MempoolId_t id) {
        native->endAllocateToPool(device, id);
        forget({device, id});
    }

    void forget(const PoolKey &pool) {
        std::lock_guard<std::mutex> lock(mutex);
        all.erase(pool);
    }
};

Shadows &shadows = *new Shadows;

/* Whether native has begun a pool of a device that is in use: it then refuses to begin it again. */
bool has_begun(c10::DeviceIndex device, MempoolId_t id) {
    if (uses_of_native(device, id) == 0) {
        return false;
    }
    bool is_begun = false;
    try {
        native->beginAllocateToPool(device, id, [](cudaStream_t) { return false; });
        native->endAllocateToPool(device, id);
    } catch (const c10::Error &) {
        is_begun = true;
    }
    native->releasePool(device, id); /* refused or not, the begin counts as a use */
    return is_begun;
}

/* The next id that PyTorch gives a pool, which it numbers: a program's by the second number, a
 * graph's by the first. {0, 0} where PyTorch does not say. */
MempoolId_t next_pool(bool is_programs) {
    constexpr std::array<const char *, 2> places[] = {
        {"libtorch_cuda.so", "_ZN2at4cuda7MemPool17graph_pool_handleEb"},
        {"libc10_cuda.so", "_ZN3c104cuda7MemPool17graph_pool_handleEb"},
    };
    for (auto [name, symbol] : places) {
        void *library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
        void *found = library ? dlsym(library, symbol) : nullptr;
        if (library) {
            dlclose(library);
        }
        if (found) {
            return reinterpret_cast<MempoolId_t (*)(bool)>(found)(is_programs);
        }
    }
    return {0, 0};
}

/* Whether any thread captures on a device, or has begun a pool there, as native knows it, which
 * does not say. */
bool has_begun_pool(c10::DeviceIndex device) try {
    if (native->name() != "native") { /* one capture at a time, by cudaMallocAsync */
        shadows.end(device, shadows.begin(device));
        return false;
    }
    auto [graphs, none] = next_pool(false);
    auto [zero, programs] = next_pool(true);
    for (uint64_t number = 1; number < std::max<uint64_t>(graphs, programs); number++) {
        if (has_begun(device, {number, none}) || has_begun(device, {zero, number})) {
            return true;
        }
    }
    return false;
} catch (...) {
    return true;
}

struct Routes {
    std::atomic<size_t> count{0};
    std::mutex mutex; /* guards the rest */
    std::vector<Route> list;

    /* A thread ends, and its captures with it. */
    struct Leaving {
        Routes *of;

        ~Leaving() {
            quietly([&] { of->end_failed_captures(); });
        }
    };

    void begin(c10::DeviceIndex device, MempoolId_t id, std::function<bool(cudaStream_t)> filter) {
        thread_local Leaving leaving{this};
        end_failed_captures();
        cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device);
        bool is_capture = !filter(stream) || is_capturing(stream);
        Server server;
        MempoolId_t stands{0, 0};
        if (owners.decide(device, id)) {
            server = open_for_pool(device, id, is_capture);
            refuse_second_begin(device, id, server.lake);
            stands = begin_in_lake(device, id, server.lake, is_capture);
        } else {
            native->beginAllocateToPool(device, id, filter);
            if (is_capture) {
                core->freeze(core->device(device), 1);
            }
        }
        std::lock_guard<std::mutex> lock(mutex);
        list.push_back({device, id, std::move(filter), is_capture, server, stands, stream,
                        std::this_thread::get_id()});
        count.store(list.size(), std::memory_order_release);
    }

    /* PyTorch counts the use that it refuses, and programs release it. */
    void refuse_second_begin(c10::DeviceIndex device, MempoolId_t id, gml_lake *lake) {
        bool is_begun = false;
        {
            std::lock_guard<std::mutex> lock(mutex);
            is_begun = std::any_of(list.begin(), list.end(), [&](const Route &route) {
                return route.device == device && route.id == id;
            });
        }
        if (is_begun) {
            std::lock_guard<std::mutex> lock(all_parts.mutex);
            Parts::join(device, id, lake);
            (void)core->hold_pool(lake, pool_id(id));
            TORCH_CHECK(false, "beginAllocateToPool: already recording to mempool_id");
        }
    }

    /* What stands for it in native. */
    static MempoolId_t begin_in_lake(c10::DeviceIndex device, MempoolId_t id, gml_lake *lake,
                                     bool is_capture) {
        MempoolId_t stands = is_capture ? shadows.begin(device) : MempoolId_t{0, 0};
        gml_status status = GML_OK;
        {
            std::lock_guard<std::mutex> lock(all_parts.mutex);
            Parts::join(device, id, lake);
            status = is_capture ? core->begin_pool(lake, pool_id(id))
                                : core->enter_pool(lake, pool_id(id));
            if (status != GML_OK) {
                Parts::leave(device, id);
            }
        }
        if (status != GML_OK && is_capture) {
            shadows.end(device, stands);
            owners.capture_is_over(device, id); /* from 2.14 on the graph's destructor ends it */
        }
        check_capture(status, lake, "cannot be begun");
        return stands;
    }

    void end(c10::DeviceIndex device, MempoolId_t id) {
        auto is_meant = [&](const Route &route) {
            return route.device == device && route.id == id;
        };
        if (!end_where(is_meant, false) && !owners.was_over(device, id)) {
            native->endAllocateToPool(device, id); /* it was begun before the adapter came */
        }
    }

    /* Ends the captures of this thread that failed; see gml_device. */
    void end_failed_captures() {
        auto has_failed = [thread = std::this_thread::get_id()](const Route &route) {
            return route.is_capture && route.thread == thread && !is_capturing(route.stream);
        };
        while (count.load(std::memory_order_acquire) > 0 && end_where(has_failed, true)) {
        }
    }

    /* Ends the last route that satisfies `is_meant`; false: none does. The memory of a graph is
     * held until the graph is destroyed, see releasePool; a failed capture has no graph. */
    template <typename Meant> bool end_where(Meant is_meant, bool has_failed) {
        Route ended{};
        {
            std::lock_guard<std::mutex> lock(mutex);
            auto found = std::find_if(list.rbegin(), list.rend(), is_meant);
            if (found == list.rend()) {
                return false;
            }
            ended = std::move(*found);
            list.erase(std::next(found).base());
            count.store(list.size(), std::memory_order_release);
        }
        if (ended.server.lake) {
            end_in_lake(ended, has_failed);
        } else {
            native->endAllocateToPool(ended.device, ended.id);
            if (ended.is_capture) {
                core->freeze(core->device(ended.device), -1);
            }
            if (has_failed) {
                native->releasePool(ended.device, ended.id);
            }
        }
        if (has_failed) {
            owners.capture_is_over(ended.device, ended.id);
        }
        return true;
    }

    /* A capture that cannot be ended has failed: PyTorch makes no graph of it. */
    static void end_in_lake(const Route &ended, bool has_failed) {
        gml_pool_id id = pool_id(ended.id);
        gml_lake *lake = ended.server.lake;
        gml_status status = has_failed ? core->abandon_pool(lake, id) : core->end_pool(lake, id);
        if (has_failed || status != GML_OK) {
            std::lock_guard<std::mutex> lock(all_parts.mutex);
            Parts::leave(ended.device, ended.id);
        }
        if (ended.is_capture) {
            shadows.end(ended.device, ended.stands);
        }
        if (status != GML_OK) { /* from 2.14 on the graph's destructor ends it again */
            owners.capture_is_over(ended.device, ended.id);
        }
        if (!has_failed) {
            check_capture(status, lake, "cannot be ended");
        }
    }

    /* How many begins of a pool in a lake have not ended. */
    size_t begun_in(c10::DeviceIndex device, MempoolId_t id, const gml_lake *lake) {
        std::lock_guard<std::mutex> lock(mutex);
        return static_cast<size_t>(std::count_if(list.begin(), list.end(), [&](const Route &route) {
            return route.device == device && route.id == id && route.server.lake == lake;
        }));
    }

    /* Who takes the request of a stream: the pool begun last whose filter matches. */
    Taker find(c10::DeviceIndex device, cudaStream_t stream, Server *server, MempoolId_t *id) {
        if (count.load(std::memory_order_acquire) == 0) {
            return Taker::NONE;
        }
        end_failed_captures();
        std::lock_guard<std::mutex> lock(mutex);
        auto found = std::find_if(list.rbegin(), list.rend(), [&](const Route &route) {
            return route.device == device && route.filter(stream);
        });
        if (found == list.rend()) {
            return Taker::NONE;
        }
        *server = found->server;
        *id = found->id;
        return found->server.lake ? Taker::LAKE : Taker::NATIVE;
    }
};

Routes &routes = *new Routes;

/* Ends one use, of a region's part first, but none whose begin has not ended. */
void release_in_lakes(c10::DeviceIndex device, MempoolId_t id) {
    std::lock_guard<std::mutex> lock(all_parts.mutex);
    std::vector<Part> parts = Parts::of(device, id);
    size_t extra = Parts::extra_uses(parts);
    auto found = std::find_if(parts.rbegin(), parts.rend(), [&](const Part &part) {
        return part.info.use_count > extra + routes.begun_in(device, id, part.lake);
    });
    if (found == parts.rend()) { /* a use too many is ended */
        found = std::find_if(parts.rbegin(), parts.rend(),
                             [&](const Part &part) { return part.info.use_count > extra; });
    }
    if (found != parts.rend()) {
        (void)core->release_pool(found->lake, pool_id(id));
    }
    Parts::leave(device, id);
}

} // namespace

#endif
