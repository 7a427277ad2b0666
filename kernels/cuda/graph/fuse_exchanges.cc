#include <algorithm>

#include "kernels/cuda/graph/passes.h"

namespace baton::cuda {
namespace {

// Whether `part` is what one rank has of the columns of `gather`.
bool IsOneRanksPart(const Tensor& part, const GatherColumnsOp& gather) {
  if (part.rows != gather.whole.rows || part.stride != gather.whole.stride) return false;
  const int64_t first = (part.data - gather.whole.data) / 2;
  const auto end = std::ranges::find(gather.ends, first + part.cols);
  return end != gather.ends.end() && first == (end == gather.ends.begin() ? 0 : *(end - 1));
}

// Whether all ranks' columns and those of `gate_up`, in bf16, are whole vectors of 16 bytes.
bool AreVectors(const GatherColumnsOp& gather, const Tensor& gate_up) {
  const auto is_vectors = [](int64_t numbers) { return numbers % 8 == 0; };
  return gate_up.dtype == DType::kBF16 && is_vectors(gate_up.stride) &&
         is_vectors(gather.whole.stride) && std::ranges::all_of(gather.ends, is_vectors) &&
         reinterpret_cast<uintptr_t>(gate_up.data) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(gather.whole.data) % 16 == 0;
}

}  // namespace

void FusePackedAttention(OpGraph& graph) {
  for (size_t at = 0; at < graph.size(); ++at) {
    const auto* const gather = graph.GetExchange<GatherColumnsOp>(at);
    if (gather == nullptr || gather->slot_buffer == kThroughNccl) continue;
    const std::optional<size_t> writer = graph.LastWriter(at, Place::Of(gather->whole));
    const auto* const attend = writer ? graph.Get<AttentionOp>(*writer) : nullptr;
    if (attend == nullptr || attend->packed.data == nullptr ||
        !IsOneRanksPart(attend->out, *gather) || !graph.CanMove(*writer, at)) {
      continue;
    }
    GatherColumnsOp from_packed = *gather;
    from_packed.mine = attend->packed;
    AttentionOp packed = *attend;
    packed.out = std::exchange(packed.packed, {});
    graph.Replace(*writer, std::move(packed));
    graph.Replace(at, ExchangeOp(std::move(from_packed)));
  }
  graph.Refresh();
}

void FuseSiluExchange(OpGraph& graph) {
  for (size_t at = 0; at < graph.size(); ++at) {
    const auto* const gather = graph.GetExchange<GatherColumnsOp>(at);
    if (gather == nullptr || gather->slot_buffer == kThroughNccl || !gather->to_all) continue;
    const std::optional<size_t> writer = graph.LastWriter(at, Place::Of(gather->whole));
    const auto* const silu = writer ? graph.Get<SiluMulOp>(*writer) : nullptr;
    if (silu == nullptr || silu->fp8_out.data != nullptr || silu->scales.rows != nullptr ||
        !IsOneRanksPart(silu->out, *gather) || !AreVectors(*gather, silu->gate_up) ||
        !graph.CanMove(*writer, at)) {
      continue;
    }
    GatherColumnsOp computes = *gather;
    computes.mine = silu->gate_up;
    computes.silu_mul = true;
    graph.Remove(*writer);
    graph.Replace(at, ExchangeOp(std::move(computes)));
  }
  graph.Refresh();
}

}  // namespace baton::cuda
