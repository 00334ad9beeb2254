/* Private pools: graphs and torch.cuda.MemPool.
 *
 * Native serves requests to a pool, as it owns the pools. A capture freezes the device: its lakes
 * make no call that would break one. A capture in a region that takes graphs is served by the
 * region's lake, from a pool there.
 *
 * A capture begins its pool before it begins itself, so that pool's filter matches nothing yet. The
 * filter of any other pool matches requests of the thread that begins it.
 *
 * PyTorch does not report a capture that fails at its end. Its thread detects it: if it calls again
 * and its stream does not capture, the capture has failed. Other threads cannot tell that from an
 * end that PyTorch is about to report.
 */
#ifndef GML_TORCH_NATIVE_ROUTES_HPP
#define GML_TORCH_NATIVE_ROUTES_HPP

#include "lakes.hpp"

#include <algorithm>
#include <c10/cuda/CUDAStream.h>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace
{

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

    /* A thread ends, and its captures with it. */
    struct Leaving {
        Routes *of;

        ~Leaving()
        {
            of->end_failed_captures();
        }
    };

    void begin(c10::DeviceIndex device, MempoolId_t id, std::function<bool(cudaStream_t)> filter)
    {
        thread_local Leaving leaving{this};
        end_failed_captures();
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
    void end_failed_captures()
    {
        auto has_failed = [thread = std::this_thread::get_id()](const Route &route) {
            return route.is_capture && route.thread == thread && !is_capturing(route.stream);
        };
        while (end_where(has_failed, true)) {
        }
    }

    /* Ends the first route that satisfies `is_meant`; false: none does. The memory of a graph in a
     * region is held until the graph is destroyed, see releasePool; a failed capture has no
     * graph. */
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
        end_failed_captures();
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

} // namespace

#endif
