#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/engine/model_traits.h"
#include "common/engine/options.h"
#include "common/kvcache/layout.h"
#include "kernels/device.h"
#include "kernels/kv_view.h"

// The size and the allocation of the KV arena.
namespace baton {

inline constexpr int32_t kMaxArenaBlocks = 1 << BlockId::kIndexBits;

// The KV memory of one rank: blocks of `shard`, one after the other.
struct KvArena {
  KvShard shard;
  const Buffer* memory = nullptr;  // null: on another host
};

// The arena of a rank of this process, with its memory.
struct OwnedArena {
  KvLayout layout;  // of the whole model
  std::unique_ptr<Buffer> memory = {};
  KvArena arena = {};
  std::vector<KvLayerPlace> places = {};  // of `view`
  KvView view = {};
};

// What a rank wants of its arena.
struct ArenaSpec {
  KvOptions options;
  std::optional<KvShard> shard = {};  // nothing: the whole model
  // Runs the steps that allocate all memory for later steps, in a view of one block. Empty: steps
  // need no memory.
  std::function<Status(const KvView& kv)> warm_up = {};
  // Called with the number of blocks that this rank can hold; returns the number of the group.
  // Empty: the rank's own number.
  std::function<StatusOr<int32_t>(int32_t blocks)> agree_on_blocks = {};
};

// The layout of a model's KV.
KvLayout LayoutFor(const KvOptions& options, const ModelTraits& traits);

// Allocates the arena of a model whose weights are in the memory of `device`. The arena takes its
// share of the memory that the steps leave free. Errors: InvalidArgument for options that are out
// of range or do not fit the model; ResourceExhausted when the arena does not fit into memory;
// those of `spec.warm_up` and `spec.agree_on_blocks`.
StatusOr<OwnedArena> OpenArena(const ArenaSpec& spec, const ModelTraits& traits, Device& device);

// The number of blocks in the arena of `shard`: `blocks` when it is set; else as many as fit
// into `memory_bytes` when it is set; else as many as fit into `memory_fraction` of
// `free_bytes`. InvalidArgument when `memory_bytes` holds no block; ResourceExhausted when the
// fraction of `free_bytes` holds none.
StatusOr<int32_t> ArenaBlocks(const KvOptions& options,
                              const KvLayout& layout,
                              const KvShard& shard,
                              size_t free_bytes);

}  // namespace baton
