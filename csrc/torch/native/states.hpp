/* States of private pools, which graph trees go back to. */
#ifndef GML_TORCH_NATIVE_STATES_HPP
#define GML_TORCH_NATIVE_STATES_HPP

#include "serving.hpp"

namespace {

/* Of a pool in the lakes of a device. */
struct PoolState final : torch_cuda::AllocatorState {
    struct Saved {
        gml_lake *lake;
        gml_pool_state *state;
    };

    MempoolId_t id;
    std::vector<Saved> parts;

    explicit PoolState(MempoolId_t of) : id(of) {
    }
    PoolState(const PoolState &) = delete;
    PoolState &operator=(const PoolState &) = delete;

    ~PoolState() override {
        for (const Saved &part : parts) {
            core->free_state(part.state);
        }
    }
};

void check_state(gml_status status, const char *what) {
    const char *why = status == GML_NOT_READY        ? "a graph is being captured"
                      : status == GML_NO_HOST_MEMORY ? "the host is out of memory"
                      : status == GML_UNSUPPORTED    ? "its lake does not stitch"
                                                     : "its last use has ended";
    TORCH_CHECK(status == GML_OK, "the state of a pool cannot be ", what, ": ", why);
}

std::shared_ptr<torch_cuda::AllocatorState> state_of(c10::DeviceIndex device, MempoolId_t id) {
    auto whole = std::make_shared<PoolState>(id);
    for (const Part &part : Parts::of(device, id)) {
        gml_pool_state *state = nullptr;
        check_state(core->save_pool(part.lake, pool_id(id), &state), "saved");
        whole->parts.push_back({part.lake, state});
    }
    return whole;
}

/* Ends what lives in parts that have come to the pool since. */
void free_others(c10::DeviceIndex device, const PoolState &whole, std::vector<void *> *freed) {
    for (void *pointer : live_in_pool(device, whole.id)) {
        gml_block_info block{};
        int number = 0;
        gml_lake *lake = find_block(pointer, &block, &number) ? core->find(number) : nullptr;
        bool is_saved =
            std::any_of(whole.parts.begin(), whole.parts.end(),
                        [&](const PoolState::Saved &part) { return part.lake == lake; });
        if (lake && !is_saved) {
            freed->push_back(pointer);
            (void)core->free(lake, block.address);
        }
    }
}

/* What PyTorch is told: what was freed, and what lives now. */
torch_cuda::CheckpointDelta put_back(c10::DeviceIndex device, const PoolState &whole) {
    struct Listener : Callback {
        c10::DeviceIndex device;
        torch_cuda::CheckpointDelta delta;

        void tell(bool is_new, void *pointer) {
            if (is_new) {
                c10::Device on(c10::DeviceType::CUDA, device);
                delta.dataptrs_allocd.emplace_back(pointer, pointer, release, on);
            } else {
                delta.ptrs_freed.push_back(pointer);
            }
        }
    } listener;
    listener.device = device;
    auto see = [](void *context, bool is_new, gml_address address) {
        auto *to = static_cast<Listener *>(context);
        to->run([&] { to->tell(is_new, pointer_to(address)); });
    };
    for (const PoolState::Saved &part : whole.parts) {
        check_state(core->restore_pool(part.lake, part.state, see, &listener), "restored");
    }
    listener.rethrow();
    if (Parts::of(device, whole.id).size() > whole.parts.size()) {
        free_others(device, whole, &listener.delta.ptrs_freed);
    }
    return std::move(listener.delta);
}

} // namespace

#endif
