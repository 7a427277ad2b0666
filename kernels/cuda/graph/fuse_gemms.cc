#include "kernels/cuda/graph/passes.h"
#include "kernels/cuda/graph/rescaled.h"

// What a GEMM does beside multiplying.
namespace baton::cuda {
namespace {

// From this number of rows on, cuBLASLt adds a GEMM's result to the residual. With fewer rows the
// saved memory traffic is worth less than cuBLASLt's best algorithms, which cannot add.
constexpr int32_t kMinRowsToFuseResidual = 1024;

}  // namespace

void FuseSiluMul(OpGraph& graph, const GemmFusions& gemm) {
  for (size_t at = 0; at < graph.size(); ++at) {
    const auto* const silu = graph.Get<SiluMulOp>(at);
    if (silu == nullptr) continue;
    const std::optional<Rescaled> scaled = RescaledOperand(graph, at, silu->gate_up);
    const std::optional<size_t> producer =
        graph.SoleProducer(scaled ? scaled->rescale : at, Place::Of(silu->gate_up));
    const auto* const multiply = producer ? graph.Get<MatMulOp>(*producer) : nullptr;
    if (multiply == nullptr || multiply->problem.out_dtype != silu->out.dtype ||
        multiply->problem.accumulate || !graph.CanMove(at, scaled ? scaled->rescale : *producer) ||
        (scaled && !graph.CanMove(scaled->rescale, *producer))) {
      continue;
    }
    GemmProblem problem = multiply->problem;
    problem.silu_mul = true;
    problem.out = silu->out.data;
    problem.out_stride = silu->out.stride;
    if (scaled) {
      problem.x_scales = scaled->scales.rows;
      problem.weight_scales = scaled->scales.cols;
    }
    if (!gemm.SupportsFused(problem)) continue;
    graph.Replace(*producer, MatMulOp{problem});
    graph.Remove(at);
    if (scaled) graph.Remove(scaled->rescale);
  }
  graph.Refresh();
}

void FuseResidual(OpGraph& graph, const GemmFusions& gemm) {
  for (size_t at = 0; at < graph.size(); ++at) {
    const auto* const norm = graph.Get<NormOp>(at);
    const Tensor* const delta = norm == nullptr ? nullptr : DeltaOf(*norm);
    if (delta == nullptr) continue;
    const std::optional<size_t> producer = graph.SoleProducer(at, Place::Of(*delta));
    const auto* const multiply = producer ? graph.Get<MatMulOp>(*producer) : nullptr;
    if (multiply == nullptr || multiply->problem.accumulate ||
        multiply->problem.n != norm->residual.cols || !graph.CanMove(at, *producer)) {
      continue;
    }
    GemmProblem problem = multiply->problem;
    // cuBLASLt supports a bf16 bias only with a bf16 result.
    const bool pays = gemm.SupportsFused(problem) ||
                      (problem.rows >= kMinRowsToFuseResidual && problem.bias == nullptr);
    if (!pays) continue;
    problem.out = norm->residual.data;
    problem.out_dtype = norm->residual.dtype;
    problem.out_stride = norm->residual.stride;
    problem.accumulate = true;
    NormOp normalises = *norm;
    normalises.input = NoInput{};
    graph.Replace(*producer, MatMulOp{problem});
    graph.Replace(at, normalises);
  }
  graph.Refresh();
}

void FuseNorm(OpGraph& graph, const GemmFusions& gemm) {
  for (size_t at = 0; at < graph.size(); ++at) {
    const auto* const multiply = graph.Get<MatMulOp>(at);
    if (multiply == nullptr || multiply->problem.norm_weight != nullptr) continue;
    const std::optional<size_t> producer =
        graph.SoleProducer(at, Place::InputOf(multiply->problem));
    const auto* const norm = producer ? graph.Get<NormOp>(*producer) : nullptr;
    if (norm == nullptr || !std::holds_alternative<NoInput>(norm->input) ||
        !graph.CanMove(*producer, at)) {
      continue;
    }
    GemmProblem problem = multiply->problem;
    problem.x = nullptr;
    problem.residual = reinterpret_cast<const float*>(norm->residual.data);
    problem.norm_weight = norm->weight;
    problem.norm_epsilon = norm->epsilon;
    if (!gemm.SupportsFused(problem)) continue;
    graph.Replace(at, MatMulOp{problem});
    graph.Remove(*producer);
  }
  graph.Refresh();
}

void FuseRescale(OpGraph& graph, const GemmFusions& gemm) {
  for (size_t at = 0; at < graph.size(); ++at) {
    const auto* const rescale = graph.Get<RescaleOp>(at);
    if (rescale == nullptr || rescale->bias != nullptr) continue;
    const std::optional<size_t> producer = graph.SoleProducer(at, Place::Of(rescale->x));
    const auto* const multiply = producer ? graph.Get<MatMulOp>(*producer) : nullptr;
    if (multiply == nullptr || !gemm.AppliesScales(multiply->problem) ||
        !graph.CanMove(at, *producer)) {
      continue;
    }
    GemmProblem problem = multiply->problem;
    problem.x_scales = rescale->scales.rows;
    problem.weight_scales = rescale->scales.cols;
    graph.Replace(*producer, MatMulOp{problem});
    graph.Remove(at);
  }
  graph.Refresh();
}

}  // namespace baton::cuda
