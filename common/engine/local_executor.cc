#include "common/engine/local_executor.h"

#include <utility>

#include "common/engine/arena.h"

namespace baton {
namespace {

Status CheckOptions(const KvOptions& options, ModelRunner& runner) {
  const ModelTraits& traits = runner.traits();
  if (options.block_tokens < 1 || options.block_tokens % traits.block_token_multiple != 0) {
    return InvalidArgument("engine: block_tokens is {}; on {} it must be a multiple of {}",
                           options.block_tokens,
                           runner.device().name(),
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

KvLayout LayoutFor(const KvOptions& options, const ModelTraits& traits) {
  return DenseLayout({.layers = traits.layers,
                      .kv_heads = traits.kv_heads,
                      .head_dim = traits.head_dim,
                      .block_tokens = options.block_tokens,
                      .dtype = options.dtype,
                      .k_dim_major = traits.k_dim_major,
                      .sliding_window = traits.sliding_window});
}

// Uses a separate arena of one block, because these steps must allocate their memory before the
// size of the real arena is computed from the free memory.
Status WarmUpPrompts(const KvLayout& layout, const KvShard& shard, ModelRunner& runner) {
  const size_t block_bytes = ShardBlockBytes(layout, shard);
  BATON_ASSIGN_OR_RETURN(const auto block,
                         runner.device().Allocate(block_bytes, Sharing::kPrivate));
  return runner.WarmUpPrompts(MakeView(layout, shard, block->data(), 1));
}

}  // namespace

StatusOr<std::unique_ptr<LocalExecutor>> LocalExecutor::Create(const KvOptions& options,
                                                               ModelRunner& runner,
                                                               const RankPart& part) {
  BATON_RETURN_IF_ERROR(CheckOptions(options, runner));
  const KvLayout layout = LayoutFor(options, runner.traits());
  BATON_RETURN_IF_ERROR(layout.Validate());
  const KvShard shard = part.shard.value_or(WholeModel(layout));
  BATON_RETURN_IF_ERROR(ValidateShard(layout, shard));
  BATON_RETURN_IF_ERROR(WarmUpPrompts(layout, shard, runner));
  Device& device = runner.device();
  BATON_ASSIGN_OR_RETURN(int32_t blocks, ArenaBlocks(options, layout, shard, device.free_bytes()));
  if (part.agree_on_blocks) {
    BATON_ASSIGN_OR_RETURN(blocks, part.agree_on_blocks(blocks));
  }
  BATON_ASSIGN_OR_RETURN(auto memory, AllocateArena(layout, shard, blocks, device));
  std::unique_ptr<LocalExecutor> executor(
      new LocalExecutor(layout, shard, blocks, std::move(memory), runner));
  BATON_RETURN_IF_ERROR(runner.WarmUpDecodes(executor->view_));
  return executor;
}

LocalExecutor::LocalExecutor(const KvLayout& layout,
                             const KvShard& shard,
                             int32_t blocks,
                             std::unique_ptr<Buffer> memory,
                             ModelRunner& runner)
    : layout_(layout),
      memory_(std::move(memory)),
      arena_{shard, memory_.get()},
      view_(MakeView(layout, shard, memory_->data(), blocks)),
      runner_(runner) {}

}  // namespace baton
