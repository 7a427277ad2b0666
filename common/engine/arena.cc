#include "common/engine/arena.h"

#include <algorithm>

namespace baton {
namespace {

constexpr size_t kMebibyte = size_t{1} << 20;

double Gibibytes(size_t bytes) {
  return static_cast<double>(bytes) / (size_t{1} << 30);
}

}  // namespace

StatusOr<int32_t> ArenaBlocks(const KvOptions& options,
                              const KvLayout& layout,
                              const KvShard& shard,
                              size_t free_bytes) {
  if (options.blocks > 0) return options.blocks;
  const size_t block_bytes = ShardBlockBytes(layout, shard);
  const auto blocks_in = [block_bytes](size_t bytes) {
    return static_cast<int32_t>(std::min<size_t>(bytes / block_bytes, kMaxArenaBlocks));
  };
  if (options.memory_bytes > 0) {
    if (options.memory_bytes >= block_bytes) return blocks_in(options.memory_bytes);
    return InvalidArgument(
        "engine: kv_memory_mib is {}; one KV block of {} takes {} bytes, so at least {} is needed",
        options.memory_bytes / kMebibyte,
        layout.ToString(),
        block_bytes,
        (block_bytes + kMebibyte - 1) / kMebibyte);
  }
  const auto share = static_cast<size_t>(static_cast<double>(free_bytes) * options.memory_fraction);
  if (share >= block_bytes) return blocks_in(share);
  return MakeStatus(StatusCode::kResourceExhausted,
                    "engine: kv_memory_fraction {} of the {:.2f} GiB that are free beside the "
                    "model is too small for one KV block of {}, which takes {} bytes",
                    options.memory_fraction,
                    Gibibytes(free_bytes),
                    layout.ToString(),
                    block_bytes);
}

StatusOr<std::unique_ptr<Buffer>> AllocateArena(const KvLayout& layout,
                                                const KvShard& shard,
                                                int32_t blocks,
                                                Device& device) {
  const size_t block_bytes = ShardBlockBytes(layout, shard);
  auto arena = device.Allocate(block_bytes * static_cast<size_t>(blocks), Sharing::kShared);
  if (arena.ok()) return arena;
  const size_t free_bytes = device.free_bytes();
  return Annotate(arena.status(),
                  fmt::format("KV arena of {} blocks, {:.2f} GiB; {:.2f} GiB are free, so at "
                              "most {} blocks fit",
                              blocks,
                              Gibibytes(block_bytes * static_cast<size_t>(blocks)),
                              Gibibytes(free_bytes),
                              free_bytes / block_bytes));
}

}  // namespace baton
