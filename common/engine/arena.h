#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/base/status.h"
#include "common/engine/options.h"
#include "common/kvcache/layout.h"
#include "kernels/device.h"

// The size and the allocation of the KV arena.
namespace baton {

inline constexpr int32_t kMaxArenaBlocks = 1 << 24;

// The number of blocks in the arena of `shard`: `blocks` when it is set; else as many as fit
// into `memory_bytes` when it is set; else as many as fit into `memory_fraction` of
// `free_bytes`. InvalidArgument when `memory_bytes` holds no block; ResourceExhausted when the
// fraction of `free_bytes` holds none.
StatusOr<int32_t> ArenaBlocks(const KvOptions& options,
                              const KvLayout& layout,
                              const KvShard& shard,
                              size_t free_bytes);

// Allocates the arena. ResourceExhausted names the requested size, the free memory and the number
// of blocks that would fit.
StatusOr<std::unique_ptr<Buffer>> AllocateArena(const KvLayout& layout,
                                                const KvShard& shard,
                                                int32_t blocks,
                                                Device& device);

}  // namespace baton
