#include "kernels/cuda/graph/passes.h"
#include "kernels/cuda/graph/rescaled.h"

namespace baton::cuda {

std::optional<Rescaled> RescaledOperand(const OpGraph& graph, size_t reader, const Tensor& x) {
  const std::optional<size_t> producer = graph.SoleProducer(reader, Place::Of(x));
  const auto* const rescale = producer ? graph.Get<RescaleOp>(*producer) : nullptr;
  if (rescale == nullptr || rescale->bias != nullptr) return std::nullopt;
  return Rescaled{*producer, rescale->scales};
}

namespace {

std::optional<Rescaled> ScalesFor(const OpGraph& graph, size_t reader, const Tensor& x) {
  std::optional<Rescaled> found = RescaledOperand(graph, reader, x);
  if (found && !graph.CanMove(found->rescale, reader)) found.reset();
  return found;
}

}  // namespace

void FuseScales(OpGraph& graph) {
  for (size_t at = 0; at < graph.size(); ++at) {
    if (const auto* const rope = graph.Get<RopeOp>(at)) {
      if (const std::optional<Rescaled> scaled = ScalesFor(graph, at, rope->qkv)) {
        RopeOp fused = *rope;
        fused.scales = scaled->scales;
        graph.Replace(at, fused);
        graph.Remove(scaled->rescale);
      }
    } else if (const auto* const norm = graph.Get<NormOp>(at)) {
      const auto* const input = std::get_if<DeltaInput>(&norm->input);
      if (input == nullptr) continue;
      if (const std::optional<Rescaled> scaled = ScalesFor(graph, at, input->delta)) {
        NormOp fused = *norm;
        fused.input = DeltaInput{input->delta, scaled->scales};
        graph.Replace(at, fused);
        graph.Remove(scaled->rescale);
      }
    }
  }
  graph.Refresh();
}

}  // namespace baton::cuda
