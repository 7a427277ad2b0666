#pragma once

#include "kernels/cuda/gemm/gemm_fusions.h"
#include "kernels/cuda/graph/op_graph.h"

// The passes of FuseOps, each in a file of its own. A pass lets one kernel compute what several ops
// of the graph compute. The result of an op is left out only where no other op reads it. Where
// nothing else is said, the graph computes the same bits before and after a pass.
namespace baton::cuda {

// The op that reads the result of an FP8 GEMM applies the scales: rope, or the norm that adds the
// result to the residual.
void FuseScales(OpGraph& graph);

// A norm adds up the parts of all ranks, gathers their columns, or adds up the results of experts,
// as the kernel of NormInput does.
void FuseNormInputs(OpGraph& graph);

// An exchange of columns reads the result of attention where the kernels of attention have written
// it without gaps.
void FusePackedAttention(OpGraph& graph);

// An exchange of columns computes silu · up of this rank's columns while it sends them.
void FuseSiluExchange(OpGraph& graph);

// A GEMM with the weight [gate | up] stores only silu(gate) · up. Rounds less often.
void FuseSiluMul(OpGraph& graph, const GemmFusions& gemm);
// A GEMM adds its result to the residual. Rounds less often.
void FuseResidual(OpGraph& graph, const GemmFusions& gemm);
// A GEMM normalises its input. Rounds less often.
void FuseNorm(OpGraph& graph, const GemmFusions& gemm);

// The op that writes the operand of an FP8 GEMM converts it to FP8: a norm, attention, or
// silu · up, which applies the scales of its input as well.
void FuseQuantize(OpGraph& graph);

// A GEMM applies the scales of its operands itself. Rounds less often.
void FuseRescale(OpGraph& graph, const GemmFusions& gemm);

}  // namespace baton::cuda
