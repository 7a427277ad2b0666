#include "kernels/cuda/graph/passes.h"
#include "kernels/cuda/graph/rescaled.h"

namespace baton::cuda {

std::optional<Rescaled> RescaledOperand(const OpGraph& graph, size_t reader, const Tensor& x) {
  const std::optional<size_t> producer = graph.SoleProducer(reader, Place::Of(x));
  const auto* const rescale = producer ? graph.Get<RescaleOp>(*producer) : nullptr;
  if (rescale == nullptr || rescale->bias != nullptr) return std::nullopt;
  return Rescaled{*producer, rescale->scales};
}

void FuseScalesOf(OpGraph& graph, size_t reader, const Tensor& x, OutputScales& scales) {
  const std::optional<Rescaled> scaled = RescaledOperand(graph, reader, x);
  if (!scaled || !graph.CanMove(scaled->rescale, reader)) return;
  scales = scaled->scales;
  graph.Remove(scaled->rescale);
}

void FuseScales(OpGraph& graph) {
  for (size_t at = 0; at < graph.size(); ++at) {
    if (const auto* const rope = graph.Get<RopeOp>(at)) {
      RopeOp fused = *rope;
      FuseScalesOf(graph, at, fused.qkv, fused.scales);
      if (fused != *rope) graph.Replace(at, fused);
    } else if (const auto* const norm = graph.Get<NormOp>(at)) {
      NormOp fused = *norm;
      auto* const input = std::get_if<DeltaInput>(&fused.input);
      if (input != nullptr) FuseScalesOf(graph, at, input->delta, input->scales);
      if (fused != *norm) graph.Replace(at, fused);
    }
  }
  graph.Refresh();
}

}  // namespace baton::cuda
