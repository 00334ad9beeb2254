/* The lakes that serve this process: which serves, and which one an address belongs to. */
#ifndef GML_TORCH_NATIVE_LAKES_HPP
#define GML_TORCH_NATIVE_LAKES_HPP

#include "native.h"

#include <atomic>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace {

namespace torch_cuda = c10::cuda::CUDACachingAllocator;

using c10::cuda::MempoolId_t;
using torch_cuda::CUDAAllocator;

constexpr size_t reason_bytes = 256;

/* Set once, when the adapter is put in place. */
const gml_native_core *core = nullptr;
CUDAAllocator *native = nullptr; /* PyTorch's own allocator */

std::atomic<bool> is_wanted{false};  /* gmlake may serve */
std::atomic<bool> is_caching{true};  /* torch.cuda.caching_allocator_enable() */
std::atomic<bool> is_serving{false}; /* both */

void update_serving() {
    is_serving.store(is_wanted && is_caching, std::memory_order_relaxed);
}

gml_address address_of(const void *pointer) {
    return static_cast<gml_address>(reinterpret_cast<uintptr_t>(pointer));
}

void *pointer_to(gml_address address) {
    return reinterpret_cast<void *>(static_cast<uintptr_t>(address));
}

gml_stream handle_of(cudaStream_t stream) {
    return static_cast<gml_stream>(reinterpret_cast<uintptr_t>(stream));
}

cudaStream_t stream_of(gml_stream handle) {
    return static_cast<cudaStream_t>(pointer_to(handle));
}

/* The pool that memory of a lake is told to be in; id: of its private pool there, if it is in one.
 */
MempoolId_t told_pool(int number, MempoolId_t id) {
    bool is_plain = id == MempoolId_t{0, 0} && core->device_of(number) != number;
    return is_plain ? MempoolId_t{GML_NATIVE_REGION, static_cast<uint64_t>(number)} : id;
}

/* The base of what C calls back with, which it does with a lake's lock held: no exception may pass
 * through C. The first is kept until C has returned, and nothing is called after it. */
class Callback {
  public:
    template <typename Call> void run(Call call) noexcept {
        try {
            if (!thrown) {
                call();
            }
        } catch (...) {
            thrown = std::current_exception();
        }
    }

    void rethrow() const {
        if (thrown) {
            std::rethrow_exception(thrown);
        }
    }

  private:
    std::exception_ptr thrown;
};

/* For what may not throw, as destructors: a failure is told to nobody. */
template <typename Call> void quietly(Call call) noexcept {
    Callback().run(call);
}

/* The number of the lake that this thread found last: most threads use one. */
thread_local int last_number = 0;

/* Calls `ask` with each open lake until one does not answer GML_UNKNOWN_ADDRESS. */
template <typename Ask> gml_status ask_lakes(Ask ask) {
    gml_lake *lake = core->find(last_number);
    gml_status status = lake ? ask(lake, last_number) : GML_UNKNOWN_ADDRESS;
    for (int number = core->next(-1); status == GML_UNKNOWN_ADDRESS && number >= 0;
         number = core->next(number)) {
        if (number != last_number) {
            status = ask(core->find(number), number);
            if (status != GML_UNKNOWN_ADDRESS) {
                last_number = number;
                break;
            }
        }
    }
    return status;
}

/* Calls `tell` with each open lake of a device, and its number. */
template <typename Tell> void each_lake(int device, Tell tell) {
    for (int number = core->next(-1); number >= 0; number = core->next(number)) {
        if (core->device_of(number) == device) {
            tell(core->find(number), number);
        }
    }
}

/* Opens a lake, by a function of `core`, also to those devices that native alone has memory on:
 * copies between devices run on the other one's streams. PyTorch requests access for devices used
 * later, see enablePeerAccess. NULL with a reason. */
template <typename Open>
gml_lake *open_to_all(Open open, c10::DeviceIndex device, char *reason, size_t reason_bytes) {
    gml_lake *lake = open(device, reason, reason_bytes);
    for (c10::DeviceIndex other = 0; lake && other < c10::cuda::device_count(); other++) {
        if (other != device && c10::cuda::hasPrimaryContext(other)) {
            (void)core->grant(lake, other);
        }
    }
    return lake;
}

bool is_frozen(int device) {
    return __atomic_load_n(&core->device(device)->captures, __ATOMIC_RELAXED) > 0;
}

/* The lake that serves this thread; NULL until it is open. */
gml_lake *serving_lake(int device) {
    return core->find(core->serving(device));
}

/* number: of the lake that has it. */
bool find_block(const void *pointer, gml_block_info *block, int *number) {
    return pointer && ask_lakes([&](gml_lake *lake, int found) {
                          *number = found;
                          return core->block(lake, address_of(pointer), block);
                      }) == GML_OK;
}

/* ---- memory of other processes ------------------------------------------------------------------
 *
 * The memory of a text is mapped once, regardless of the number of tensors in it.
 */

struct Opened {
    std::mutex mutex; /* guards the rest; held while a lake maps, so that nothing is mapped twice */
    std::unordered_map<std::string, std::weak_ptr<void>> found;

    std::shared_ptr<void> find(const std::string &text, c10::DeviceIndex device) {
        std::lock_guard<std::mutex> lock(mutex);
        std::string key = text + "@" + std::to_string(device);
        auto known = found.find(key);
        if (known != found.end()) {
            if (std::shared_ptr<void> alive = known->second.lock()) {
                return alive;
            }
        }
        std::weak_ptr<void> &place = found[key]; /* nothing fails below once it is mapped */
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
        place = mapped;
        return mapped;
    }

    /* Unless it was opened again meanwhile. */
    void forget(const std::string &key) {
        std::lock_guard<std::mutex> lock(mutex);
        auto known = found.find(key);
        if (known != found.end() && known->second.expired()) {
            found.erase(known);
        }
    }
};

Opened &opened = *new Opened;

} // namespace

#endif
