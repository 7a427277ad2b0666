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

}  // namespace baton::cuda
