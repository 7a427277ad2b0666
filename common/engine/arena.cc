#include "common/engine/arena.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

constexpr size_t kMebibyte = size_t{1} << 20;

double Gibibytes(size_t bytes) {
  return static_cast<double>(bytes) / (size_t{1} << 30);
}

Status CheckOptions(const KvOptions& options, const ModelTraits& traits, const Device& device) {
  if (options.block_tokens < 1 || options.block_tokens % traits.block_token_multiple != 0) {
    return InvalidArgument("engine: block_tokens is {}; on {} it must be a multiple of {}",
                           options.block_tokens,
                           device.name(),
                           traits.block_token_multiple);
  }
  if (options.dtype == DType::kFp8 && !traits.fp8_kv) {
    return InvalidArgument(
        "engine: kv_type is fp8, but the model was not loaded for an fp8 KV cache; it must be "
        "f32, f16 or bf16");
  }
  if (options.blocks < 0 || options.blocks > kMaxArenaBlocks) {
    return InvalidArgument(
        "engine: kv_blocks is {}; it must be between 0 and {}", options.blocks, kMaxArenaBlocks);
  }
  return OkStatus();
}

// Uses a separate arena of one block, because these steps must allocate their memory before the
// size of the real arena is computed from the free memory.
Status WarmUp(const ArenaSpec& spec, const KvLayout& layout, const KvShard& shard, Device& device) {
  if (!spec.warm_up) return OkStatus();
  BATON_ASSIGN_OR_RETURN(const auto block,
                         device.Allocate(ShardBlockBytes(layout, shard), Sharing::kPrivate));
  const std::vector<KvLayerPlace> places = PlacesOf(layout, shard);
  return spec.warm_up(MakeView(layout, shard, places, block->data(), 1));
}

// ResourceExhausted names the requested size, the free memory and the number of blocks that would
// fit.
StatusOr<std::unique_ptr<Buffer>> Allocate(const KvLayout& layout,
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

}  // namespace

KvLayout LayoutFor(const KvOptions& options, const ModelTraits& traits) {
  DenseKv kv = traits.kv;
  kv.block_tokens = options.block_tokens;
  kv.dtype = options.dtype;
  return DenseLayout(kv);
}

StatusOr<OwnedArena> OpenArena(const ArenaSpec& spec, const ModelTraits& traits, Device& device) {
  BATON_RETURN_IF_ERROR(CheckOptions(spec.options, traits, device));
  OwnedArena opened = {.layout = LayoutFor(spec.options, traits)};
  BATON_RETURN_IF_ERROR(opened.layout.Validate());
  const KvShard shard = spec.shard.value_or(WholeModel(opened.layout));
  BATON_RETURN_IF_ERROR(ValidateShard(opened.layout, shard));
  BATON_RETURN_IF_ERROR(WarmUp(spec, opened.layout, shard, device));
  BATON_ASSIGN_OR_RETURN(int32_t blocks,
                         ArenaBlocks(spec.options, opened.layout, shard, device.free_bytes()));
  if (spec.agree_on_blocks) {
    BATON_ASSIGN_OR_RETURN(blocks, spec.agree_on_blocks(blocks));
  }
  BATON_ASSIGN_OR_RETURN(opened.memory, Allocate(opened.layout, shard, blocks, device));
  opened.arena = {shard, opened.memory.get()};
  opened.places = PlacesOf(opened.layout, shard);
  opened.view = MakeView(opened.layout, shard, opened.places, opened.memory->data(), blocks);
  return opened;
}

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

}  // namespace baton
