/* States of private pools, which graph trees go back to. */
#ifndef GML_TORCH_NATIVE_STATES_HPP
#define GML_TORCH_NATIVE_STATES_HPP

#include "serving.hpp"

namespace
{

/* Of a pool in the lakes of a device. */
struct PoolState final : torch_cuda::AllocatorState {
    struct Part {
        gml_lake *lake;
        gml_pool_state *state;
    };

    std::vector<Part> parts;

    PoolState() = default;
    PoolState(const PoolState &) = delete;
    PoolState &operator=(const PoolState &) = delete;

    ~PoolState() override
    {
        for (const Part &part : parts) {
            core->free_state(part.state);
        }
    }
};

void
check_state(gml_status status, const char *what)
{
    const char *why = status == GML_NOT_READY        ? "a graph is being captured"
                      : status == GML_NO_HOST_MEMORY ? "the host is out of memory"
                      : status == GML_UNSUPPORTED    ? "its lake sleeps, or does not stitch"
                                                     : "its last use has ended";
    TORCH_CHECK(status == GML_OK, "the state of a pool cannot be ", what, ": ", why);
}

std::shared_ptr<torch_cuda::AllocatorState>
state_of(c10::DeviceIndex device, MempoolId_t id)
{
    auto whole = std::make_shared<PoolState>();
    each_with_pool(device, id, [&](gml_lake *lake, const gml_pool_info &) {
        gml_pool_state *state = nullptr;
        check_state(core->save_pool(lake, pool_id(id), &state), "saved");
        whole->parts.push_back({lake, state});
    });
    return whole;
}

/* What PyTorch is told: what was freed, and what lives now. */
torch_cuda::CheckpointDelta
put_back(c10::DeviceIndex device, const PoolState &whole)
{
    struct Listener {
        c10::DeviceIndex device;
        torch_cuda::CheckpointDelta delta;
    };
    Listener listener{device, {}};
    auto see = [](void *context, bool is_new, gml_address address) {
        auto *to = static_cast<Listener *>(context);
        void *pointer = pointer_to(address);
        if (is_new) {
            c10::Device on(c10::DeviceType::CUDA, to->device);
            to->delta.dataptrs_allocd.emplace_back(pointer, pointer, release, on);
        } else {
            to->delta.ptrs_freed.push_back(pointer);
        }
    };
    for (const PoolState::Part &part : whole.parts) {
        check_state(core->restore_pool(part.lake, part.state, see, &listener), "restored");
    }
    return std::move(listener.delta);
}

} // namespace

#endif
