#include "kernels/cuda/graph/passes.h"
#include "kernels/cuda/graph/rescaled.h"

namespace baton::cuda {
namespace {

// `producer`, which writes the operand of `quantize`, so that it writes `quantize.out` instead.
// Nothing when its kernel cannot. The kernels of attention may use the memory of the operand.
std::optional<StepOp> Converting(const StepOp& producer, const QuantizeOp& quantize) {
  if (const auto* const norm = std::get_if<NormOp>(&producer)) {
    if (!NormReadsWholeRows(norm->residual, norm->input)) return std::nullopt;
    NormOp fused = *norm;
    fused.out.data = nullptr;
    fused.fp8_out = quantize.out;
    return fused;
  }
  if (const auto* const attend = std::get_if<AttentionOp>(&producer)) {
    if (attend->packed.data != nullptr) return std::nullopt;
    AttentionOp fused = *attend;
    fused.fp8_out = quantize.out;
    return fused;
  }
  const auto* const silu = std::get_if<SiluMulOp>(&producer);
  if (silu == nullptr || silu->out.cols % 8 != 0 || silu->out.cols > kMaxFp8Columns ||
      silu->gate_up.stride % 8 != 0) {
    return std::nullopt;
  }
  SiluMulOp fused = *silu;
  fused.out.data = nullptr;
  fused.fp8_out = quantize.out;
  return fused;
}

}  // namespace

void FuseQuantize(OpGraph& graph) {
  for (size_t at = 0; at < graph.size(); ++at) {
    const auto* const quantize = graph.Get<QuantizeOp>(at);
    if (quantize == nullptr) continue;
    const std::optional<size_t> producer = graph.SoleProducer(at, Place::Of(quantize->x));
    if (!producer || !graph.CanMove(at, *producer)) continue;
    std::optional<StepOp> fused = Converting(graph.op(*producer), *quantize);
    if (!fused) continue;
    if (auto* const silu = std::get_if<SiluMulOp>(&*fused)) {
      FuseScalesOf(graph, *producer, silu->gate_up, silu->scales);
    }
    graph.Replace(*producer, *std::move(fused));
    graph.Remove(at);
  }
  graph.Refresh();
}

}  // namespace baton::cuda
