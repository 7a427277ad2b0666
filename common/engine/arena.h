#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/base/status.h"
#include "common/engine/options.h"
#include "common/kvcache/layout.h"
#include "kernels/device.h"

// How large the KV arena is.
namespace baton {

// The blocks of `layout` that `options` ask for: kv_blocks, or what fits into kv_memory_bytes, or
// into kv_memory_fraction of `free_bytes`. InvalidArgument when that is not one block.
StatusOr<int32_t> ArenaBlocks(const EngineOptions& options,
                              const KvLayout& layout,
                              size_t free_bytes);

// The arena itself. ResourceExhausted says how much was wanted, what is free, and how many blocks
// would fit.
StatusOr<std::unique_ptr<Buffer>> AllocateArena(const KvLayout& layout,
                                                int32_t blocks,
                                                Device& device);

}  // namespace baton
