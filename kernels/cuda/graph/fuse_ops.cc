#include "kernels/cuda/graph/fuse_ops.h"

#include <utility>

#include "kernels/cuda/graph/passes.h"

namespace baton::cuda {

void FuseOps(std::vector<StepOp>& ops, const GemmFusions& gemm) {
  OpGraph graph(std::move(ops));
  FuseScales(graph);
  FuseNormInputs(graph);
  FusePackedAttention(graph);
  FuseSiluExchange(graph);
  // These depend on the number of rows, and change the roundings.
  const bool fuses_gemms = !gemm.deterministic();
  if (fuses_gemms) {
    FuseSiluMul(graph, gemm);
    FuseResidual(graph, gemm);
    FuseNorm(graph, gemm);
  }
  FuseQuantize(graph);
  if (fuses_gemms) FuseRescale(graph, gemm);
  ops = graph.Take();
}

}  // namespace baton::cuda
