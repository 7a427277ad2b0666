#include "kernels/cuda/latent/latent_attention.h"

#include <algorithm>
#include <functional>
#include <span>

#include "kernels/cuda/attention/latent_rows.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/latent/latent_kernels.h"
#include "kernels/cuda/latent/latent_splits.h"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/table/kernel_table.h"
#include "kernels/cuda/table/latent_request.h"

namespace baton::cuda {
namespace {

// Splits of shorter contexts do not pay for the combination.
constexpr int32_t kMinSplit = 256;
// More splits of a row than this are divided over warps, which combines them in another order. In
// deterministic mode, that would depend on the other rows.
constexpr int32_t kFewSplits = 8;
// The splits of KernelId::kHopperLatents in deterministic mode: whole tiles of latents.
constexpr int32_t kHopperFixedSplit = 21 * kHopperLatentTokens;

Status CheckCache(const LatentShape& shape, const KvView& kv) {
  if (kv.one_plane() && kv.kv_heads == 1 && kv.head_dim == shape.width()) return OkStatus();
  return InvalidArgument("attention to latents of {} numbers over a cache of {} KV heads of {}{}",
                         shape.width(),
                         kv.kv_heads,
                         kv.head_dim,
                         kv.one_plane() ? "" : " with values of their own");
}

}  // namespace

StatusOr<std::unique_ptr<LatentAttention>> LatentAttention::Create(const DeviceProperties& device,
                                                                   bool deterministic) {
  BATON_CUDA_RETURN_IF_ERROR(PrepareTiledLatents(device));
  if (MayRun(KernelFamily::kHopper, device)) BATON_CUDA_RETURN_IF_ERROR(PrepareHopperLatents());
  return std::unique_ptr<LatentAttention>(new LatentAttention(device, deterministic));
}

PortableLimits LatentAttention::LimitsOf(const LatentPlan& plan,
                                         const std::vector<AttentionSequence>& sequences,
                                         const StepLayout& step) const {
  PortableLimits limits;
  limits.padded_rows = step.recorded ? step.rows : 0;
  if (plan.kernel == KernelId::kPortableLatents) return limits;
  const bool hopper = plan.kernel == KernelId::kHopperLatents;
  // A kernel that adds up splits gives other bits than one that does not. In deterministic mode,
  // that depends on whether a row is alone in its sequence.
  if (deterministic_) {
    limits.split_rows = 1;
    if (hopper) limits.split = kHopperFixedSplit;
    return limits;
  }
  limits.split_rows = INT32_MAX;
  if (hopper) {
    // The thread blocks of all heads of a row run at the same time.
    const int32_t blocks = CeilDiv(plan.work.shape.heads, kHopperLatentHeads);
    std::vector<LatentRows> rows;
    for (const AttentionSequence& sequence : sequences) {
      rows.push_back({sequence.rows, sequence.length});
    }
    limits.split = ChooseLatentSplit(rows, std::max(device_.sm_count / blocks, 1));
    return limits;
  }
  int64_t positions = 0;
  for (const AttentionSequence& sequence : sequences) {
    positions += int64_t{sequence.rows} * sequence.length;
  }
  const int32_t tiles_of_row = CeilDiv(plan.work.shape.heads, plan.tile.heads);
  const int64_t fair = CeilDiv(positions * tiles_of_row, device_.sm_count);
  limits.split = std::max(kMinSplit, RoundUp(static_cast<int32_t>(fair), kTiledTokens));
  return limits;
}

StatusOr<LatentPlan> LatentAttention::Plan(const LatentWork& work,
                                           const StepLayout& step,
                                           const KvView& kv,
                                           StepBuffer& fixed) {
  BATON_RETURN_IF_ERROR(CheckCache(work.shape, kv));
  LatentPlan plan;
  plan.work = work;
  const KernelRequest request =
      LatentRequest(work.shape, kv.dtype, kv.block_tokens, deterministic_);
  BATON_RETURN_IF_ERROR(CheckChoice(request, device_));
  plan.kernel = Choose(request, device_)->kernel;
  if (plan.kernel == KernelId::kTiledLatents) {
    plan.tile = LatentTileFor(work.shape.heads, device_);
  }
  const GroupLayout& group = step.groups[static_cast<size_t>(work.cache_group)];
  const std::vector<AttentionSequence> sequences =
      SequencesToCompute(*step.input, group.table_starts, work.only_logit_rows);
  SplitPortable(sequences, LimitsOf(plan, sequences, step), tiles_);
  if (plan.kernel != KernelId::kPortableLatents) {  // the longest first
    std::ranges::stable_sort(
        tiles_.list, std::greater(), [](const RowTile& tile) { return tile.end - tile.begin; });
  }
  plan.tiles.work_tiles = static_cast<int32_t>(tiles_.list.size());
  plan.tiles.list = fixed.Write(std::span<const RowTile>(tiles_.list));
  plan.tiles.tables = step.d_tables;
  if (tiles_.combined.empty()) return plan;
  CombineWork& combine = plan.tiles.combine;
  combine.rows = static_cast<int32_t>(tiles_.combined.size());
  combine.list = fixed.Write(std::span<const CombinedRow>(tiles_.combined));
  const int32_t splits = std::ranges::max(tiles_.combined, {}, &CombinedRow::count).count;
  combine.many_splits = !deterministic_ && splits > kFewSplits;
  const size_t heads = static_cast<size_t>(tiles_.partials) * static_cast<size_t>(work.shape.heads);
  const auto rank = static_cast<size_t>(work.shape.rank);
  BATON_ASSIGN_OR_RETURN(std::byte* const memory, partial_.Get(heads * (rank + 1) * sizeof(float)));
  auto* const values = reinterpret_cast<float*>(memory);
  combine.partial = {values, values + heads * rank};
  return plan;
}

cudaError_t LatentAttention::Launch(const LatentPlan& plan,
                                    const KvView& kv,
                                    int32_t layer,
                                    const Tensor& q,
                                    const Tensor& out,
                                    cudaStream_t stream) {
  if (plan.tiles.work_tiles == 0) return cudaSuccess;
  const LatentShape& shape = plan.work.shape;
  AttentionLaunch call;
  call.shape.q_heads = shape.heads;
  call.shape.kv_heads = 1;
  call.shape.head_dim = shape.width();
  call.shape.scale = plan.work.scale;
  call.kv = kv;
  call.layer = layer;
  call.qkv = q;
  call.out = out;
  call.stream = stream;
  const auto launch = [&] {
    switch (plan.kernel) {
      case KernelId::kHopperLatents:
        return LaunchHopperLatents(plan.tiles, call);
      case KernelId::kTiledLatents:
        return LaunchTiledLatents(plan.tiles, plan.tile, call);
      default:
        return LaunchPortableLatents(plan.tiles, call, shape.rank);
    }
  };
  const cudaError_t error = launch();
  if (error != cudaSuccess || plan.tiles.combine.rows == 0) return error;
  return LaunchCombineLatents(plan.tiles.combine, call, shape.rank);
}

}  // namespace baton::cuda
