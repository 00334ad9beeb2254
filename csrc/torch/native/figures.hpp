/* Statistics and snapshots of lakes, as PyTorch has them. */
#ifndef GML_TORCH_NATIVE_FIGURES_HPP
#define GML_TORCH_NATIVE_FIGURES_HPP

#include "history.hpp"
#include "routes.hpp"

#include <unordered_set>

namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingDeviceAllocator::DeviceStats;
using torch_cuda::BlockInfo;
using torch_cuda::SegmentInfo;

/* ---- statistics ------------------------------------------------------------------------------ */

void add(Stat &to, const gml_stat &from) {
    to.current += static_cast<int64_t>(from.current);
    to.peak += static_cast<int64_t>(from.peak);
    to.allocated += static_cast<int64_t>(from.allocated);
    to.freed += static_cast<int64_t>(from.freed);
}

void add(StatArray &to, const gml_stat (&from)[GML_POOL_COUNT]) {
    for (size_t pool = 0; pool < GML_POOL_COUNT; pool++) {
        add(to[pool], from[pool]);
    }
}

void accumulate(gml_stat &to, const gml_stat &from) {
    to.current += from.current;
    to.peak += from.peak;
    to.allocated += from.allocated;
    to.freed += from.freed;
}

void accumulate(gml_stat (&to)[GML_POOL_COUNT], const gml_stat (&from)[GML_POOL_COUNT]) {
    for (size_t pool = 0; pool < GML_POOL_COUNT; pool++) {
        accumulate(to[pool], from[pool]);
    }
}

void subtract(gml_stat &from, const gml_stat &forgotten) {
    from.allocated -= forgotten.allocated;
    from.freed -= forgotten.freed;
}

void subtract(gml_stat (&from)[GML_POOL_COUNT], const gml_stat (&forgotten)[GML_POOL_COUNT]) {
    for (size_t pool = 0; pool < GML_POOL_COUNT; pool++) {
        subtract(from[pool], forgotten[pool]);
    }
}

/* Calls `each` with every member that both kinds of statistics have, by pool or not. Inactive split
 * memory is counted by native only: in lakes, as in expandable segments, all of it can be
 * released. */
template <typename Left, typename Right, typename Each>
void pair_up(Left &left, Right &right, Each each) {
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

    /* The sum over a device's lakes; false if it has none. */
    static bool sum(c10::DeviceIndex device, gml_torch_stats *out) {
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
    bool read(c10::DeviceIndex device, gml_torch_stats *out) {
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

    void reset(c10::DeviceIndex device) {
        gml_torch_stats now{};
        if (sum(device, &now)) {
            std::lock_guard<std::mutex> lock(mutex);
            counts[static_cast<size_t>(device)] = now;
        }
    }
};

Forgotten &forgotten = *new Forgotten;

#if TORCH_VERSION_MINOR >= 13
/* What private pools hold in lakes, now: peaks are those that were seen. */
void add_pools(c10::DeviceIndex device, DeviceStats &stats) {
    auto &held = stats.reserved_bytes_by_private_pools;
    for (auto found = held.begin(); found != held.end();) {
        found = Shadows::is_one(found->first) ? held.erase(found) : std::next(found);
    }
    each_lake(device, [&](gml_lake *lake, int) {
        each_pool(lake, [&](const gml_pool_info &info) {
            Stat &stat = held[{info.id.first, info.id.second}][GML_POOL_ALL];
            stat.current += static_cast<int64_t>(info.reserved_bytes);
            stat.allocated += static_cast<int64_t>(info.reserved_bytes);
            stat.peak = std::max(stat.peak, stat.current);
        });
    });
}
#endif

/* Of both allocators together. Native counts the waits and refusals of both, for it is asked after
 * each of a lake's. */
DeviceStats device_stats(c10::DeviceIndex device) {
    DeviceStats stats = native->getDeviceStats(device);
    gml_torch_stats ours{};
    if (forgotten.read(device, &ours)) {
        pair_up(stats, ours, [](auto &to, const auto &from) { add(to, from); });
        stats.num_alloc_retries += static_cast<int64_t>(ours.num_alloc_retries);
        stats.num_device_alloc += static_cast<int64_t>(ours.num_device_alloc);
        stats.num_device_free += static_cast<int64_t>(ours.num_device_free);
    }
#if TORCH_VERSION_MINOR >= 13
    add_pools(device, stats);
#endif
    return stats;
}

/* ---- snapshots ------------------------------------------------------------------------------- */

/* A lake's memory in the form of PyTorch's segments: contiguous, each byte of physical memory once.
 * Idle views, and base memory used by views, are left out. */
struct Walk : Callback {
    int number; /* of the lake */
    std::vector<SegmentInfo> segments{};
    gml_span_info span{};
    MempoolId_t id{0, 0}; /* of the spans that follow */
    bool is_open = false; /* the last segment continues with the next range */

    static void enter(void *self, const gml_span_info *span) {
        auto *walk = static_cast<Walk *>(self);
        walk->span = *span;
        walk->is_open = false;
    }

    static void range(void *self, const gml_range_info *range) {
        auto *walk = static_cast<Walk *>(self);
        walk->run([&] { walk->add(*range); });
    }

    static void pool(void *self, gml_pool_id id) {
        static_cast<Walk *>(self)->id = {id.first, id.second};
    }

    void add(const gml_range_info &range) {
        bool is_lent = range.is_used && range.requested_bytes == 0;
        bool is_idle_view = span.kind == GML_SPAN_VIEW && span.used_bytes == 0;
        if (is_lent || is_idle_view) {
            is_open = false;
            return;
        }
        if (!is_open) {
            SegmentInfo segment;
            segment.device = static_cast<c10::DeviceIndex>(core->device_of(number));
            segment.address = range.address;
            segment.stream = stream_of(span.stream);
            segment.is_large = !span.is_small;
            segment.is_expandable = span.kind != GML_SPAN_SEGMENT;
            segment.owner_private_pool_id = told_pool(number, id);
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

/* Adds data that the walk lacks: the stack of each request, and the freed blocks that streams still
 * use. */
void finish(SegmentInfo &segment, gml_lake *lake) {
    size_t address = segment.address;
    for (BlockInfo &block : segment.blocks) {
        gml_block_info live{};
        if (block.allocated) {
            block.context_when_allocated = history.context_of(pointer_to(address));
        }
        if (block.allocated && core->block(lake, address, &live) != GML_OK) {
            block.allocated = false;
            segment.allocated_size -= block.size;
        }
        address += block.size;
    }
}

std::vector<SegmentInfo> segments_of_lakes() {
    std::vector<SegmentInfo> all;
    for (int number = core->next(-1); number >= 0; number = core->next(number)) {
        gml_lake *lake = core->find(number);
        Walk walk;
        walk.number = number;
        gml_visitor visitor{&walk, Walk::enter, Walk::range, nullptr, Walk::pool};
        (void)core->visit(lake, &visitor);
        walk.rethrow();
        for (SegmentInfo &segment : walk.segments) {
            finish(segment, lake);
        }
        std::move(walk.segments.begin(), walk.segments.end(), std::back_inserter(all));
    }
    return all;
}

/* The tensors that live in a pool of lakes. */
std::unordered_set<void *> live_in_pool(c10::DeviceIndex device, MempoolId_t id) {
    bool is_known = false;
    each_with_pool(device, id, [&](gml_lake *, const gml_pool_info &) { is_known = true; });
    TORCH_CHECK(is_known, "Could not find pool of id");
    std::unordered_set<void *> live;
    for (const SegmentInfo &segment : segments_of_lakes()) {
        bool is_of_pool = segment.device == device && segment.owner_private_pool_id == id;
        size_t address = segment.address;
        for (const BlockInfo &block : segment.blocks) {
            if (is_of_pool && block.allocated) {
                live.insert(pointer_to(address));
            }
            address += block.size;
        }
    }
    return live;
}

} // namespace

#endif
