#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/cluster/load.h"
#include "common/kvcache/layout.h"

namespace baton {

// What metrics and heartbeats tell of the cache groups of `layout`. Groups whose layers keep the
// same are one entry: the layout divides layers with one window among several groups only so that
// all blocks are of nearly the same size. `held` has KvCache::held; empty: 0.
std::vector<CacheGroupLoad> CacheGroupLoads(const KvLayout& layout, std::span<const int32_t> held);

}  // namespace baton
