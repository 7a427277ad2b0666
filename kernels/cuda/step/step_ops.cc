#include "kernels/cuda/step/step_ops.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include "common/base/overloaded.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/rows/rope.h"
#include "kernels/cuda/rows/row_kernels.h"

namespace baton::cuda {
namespace {

bool SamePlace(const void* pointer, const Tensor& tensor) {
  return pointer == static_cast<const void*>(tensor.data);
}

// The tensor that a norm adds as it is; null when there is none.
const Tensor* DeltaOf(const NormOp& norm) {
  const auto* const input = std::get_if<DeltaInput>(&norm.input);
  return input == nullptr || input->scales.rows != nullptr ? nullptr : &input->delta;
}

// From this number of rows on, cuBLASLt adds a GEMM's result to the residual. With fewer rows the
// saved memory traffic is worth less than cuBLASLt's best algorithms, which cannot add.
constexpr int32_t kMinRowsToFuseResidual = 1024;

// Lets a GEMM whose result is only added to the residual add it in its epilogue. The norm op then
// only normalises.
bool FusesResidual(MatMulOp& multiply, NormOp& norm, const GemmFusions& gemm) {
  GemmProblem& problem = multiply.problem;
  const Tensor* const delta = DeltaOf(norm);
  // cuBLASLt supports a bf16 bias only with a bf16 result.
  const bool pays = gemm.SupportsFused(problem) ||
                    (problem.rows >= kMinRowsToFuseResidual && problem.bias == nullptr);
  const bool fits = pays && delta != nullptr && SamePlace(problem.out, *delta) &&
                    !problem.accumulate && problem.rows == norm.residual.rows &&
                    problem.n == norm.residual.cols;
  if (!fits) return false;
  problem.out = norm.residual.data;
  problem.out_dtype = norm.residual.dtype;
  problem.out_stride = norm.residual.stride;
  problem.accumulate = true;
  norm.input = NoInput{};
  return true;
}

// Lets a GEMM normalise its input. Only GEMVs (one row) support this.
bool FusesNorm(const NormOp& norm, MatMulOp& multiply, const GemmFusions& gemm) {
  GemmProblem problem = multiply.problem;
  if (!std::holds_alternative<NoInput>(norm.input) || problem.norm_weight != nullptr ||
      !SamePlace(problem.x, norm.out) || problem.k != norm.residual.cols) {
    return false;
  }
  problem.residual = reinterpret_cast<const float*>(norm.residual.data);
  problem.norm_weight = norm.weight;
  problem.norm_epsilon = norm.epsilon;
  if (!gemm.SupportsFused(problem)) return false;
  multiply.problem = problem;
  return true;
}

// `call`, when it is a RescaleOp of `x` without a bias; else null.
const RescaleOp* RescalesOnly(const StepOp& call, const Tensor& x) {
  const auto* rescale = std::get_if<RescaleOp>(&call);
  return rescale != nullptr && rescale->bias == nullptr && SamePlace(x.data, rescale->x) ? rescale
                                                                                         : nullptr;
}

// Moves the scales of an FP8 GEMM's result `x` into the op that reads `x`, which then applies them.
void FuseScales(std::vector<StepOp>& ops, const Tensor& x, OutputScales& scales) {
  if (ops.empty()) return;
  // An AnglesOp in between does not read `x`.
  const bool angles = std::holds_alternative<AnglesOp>(ops.back());
  if (angles && ops.size() < 2) return;
  const auto at = ops.end() - (angles ? 2 : 1);
  const RescaleOp* const rescale = RescalesOnly(*at, x);
  if (rescale == nullptr) return;
  scales = rescale->scales;
  ops.erase(at);
}

// Lets a GEMM with the weight [gate | up] apply the scales and store only silu(gate) · up.
bool FusesSiluMul(std::vector<StepOp>& ops, const SiluMulOp& silu, const GemmFusions& gemm) {
  const RescaleOp* const rescale = RescalesOnly(ops.back(), silu.gate_up);
  if (rescale != nullptr && ops.size() < 2) return false;
  auto* const multiply = std::get_if<MatMulOp>(&ops[ops.size() - (rescale != nullptr ? 2 : 1)]);
  if (multiply == nullptr) return false;
  GemmProblem problem = multiply->problem;
  if (!SamePlace(problem.out, silu.gate_up) || problem.out_dtype != silu.out.dtype ||
      problem.accumulate) {
    return false;
  }
  problem.silu_mul = true;
  problem.out = silu.out.data;
  problem.out_stride = silu.out.stride;
  if (rescale != nullptr) {
    problem.x_scales = rescale->scales.rows;
    problem.weight_scales = rescale->scales.cols;
  }
  if (!gemm.SupportsFused(problem)) return false;
  multiply->problem = problem;
  if (rescale != nullptr) ops.pop_back();
  return true;
}

// Lets the op that writes the operand of an FP8 GEMM convert it to FP8 as well.
bool FusesQuantize(std::vector<StepOp>& ops, const QuantizeOp& quantize) {
  if (ops.empty()) return false;
  if (auto* norm = std::get_if<NormOp>(&ops.back())) {
    if (!SamePlace(quantize.x.data, norm->out) || norm->fp8_out.data != nullptr ||
        norm->out.rows != quantize.x.rows || !NormReadsWholeRows(norm->residual, norm->input)) {
      return false;
    }
    norm->fp8_out = quantize.out;
    return true;
  }
  if (auto* attend = std::get_if<AttentionOp>(&ops.back())) {
    if (!SamePlace(quantize.x.data, attend->out) || attend->packed.data != nullptr ||
        attend->fp8_out.data != nullptr || attend->out.rows != quantize.x.rows) {
      return false;
    }
    attend->fp8_out = quantize.out;
    return true;
  }
  auto* silu = std::get_if<SiluMulOp>(&ops.back());
  if (silu == nullptr || !SamePlace(quantize.x.data, silu->out) || silu->fp8_out.data != nullptr ||
      silu->out.rows != quantize.x.rows || silu->out.cols % 8 != 0 ||
      silu->out.cols > kMaxFp8Columns || silu->gate_up.stride % 8 != 0) {
    return false;
  }
  SiluMulOp fused = *silu;
  ops.pop_back();
  fused.fp8_out = quantize.out;
  FuseScales(ops, fused.gate_up, fused.scales);
  ops.emplace_back(fused);
  return true;
}

// The last op, when it is an exchange of this kind; else null.
template <class Op>
Op* LastExchange(std::vector<StepOp>& ops) {
  auto* const exchange = ops.empty() ? nullptr : std::get_if<ExchangeOp>(&ops.back());
  return exchange == nullptr ? nullptr : std::get_if<Op>(exchange);
}

// A norm itself exchanges a sum of up to this many elements. A larger sum runs as a ReduceOp, whose
// kernel adds the first elements while it pushes the last ones.
constexpr int64_t kMaxElementsInNorm = int64_t{1} << 20;

// Lets a norm add up the parts of all ranks, and push this rank's part.
void FusesReduce(std::vector<StepOp>& ops, NormOp& norm) {
  auto* const reduce = LastExchange<ReduceOp>(ops);
  const Tensor* const delta = DeltaOf(norm);
  if (reduce == nullptr || reduce->two_shot || delta == nullptr ||
      !SamePlace(delta->data, reduce->x) || reduce->x.dtype != DType::kBF16 ||
      reduce->x.rows != delta->rows || reduce->x.stride != reduce->x.cols) {
    return;
  }
  if (reduce->slot_buffer != kThroughNccl) {
    if (!CanComputeInput(norm) || reduce->x.rows * reduce->x.cols > kMaxElementsInNorm) return;
    norm.input = PeerSumInput{*delta, reduce->slot_buffer};
    ops.pop_back();
    return;
  }
  if (reduce->ranks > kMaxPeerRanks) return;
  reduce->gather_only = true;
  PartsInput sum = {.first = *delta, .parts = reduce->ranks};
  sum.first.data = reduce->parts;
  for (int32_t rank = 0; rank < reduce->ranks; ++rank) {
    sum.offsets[static_cast<size_t>(rank)] = rank * delta->rows * delta->cols;
  }
  norm.input = sum;
}

// Whether columns that end at `ends` are whole vectors.
bool AreVectors(const std::vector<int64_t>& ends) {
  return std::ranges::all_of(ends, [](int64_t end) { return end % 8 == 0; });
}

// Lets a norm exchange the columns that it reads.
void FusesGather(std::vector<StepOp>& ops, NormOp& norm) {
  auto* const gather = LastExchange<GatherColumnsOp>(ops);
  const Tensor* const delta = DeltaOf(norm);
  if (gather == nullptr || gather->slot_buffer == kThroughNccl || !gather->to_all ||
      delta == nullptr || !SamePlace(delta->data, gather->whole) ||
      gather->whole.dtype != DType::kBF16 || gather->whole.rows != delta->rows ||
      gather->whole.rows * gather->whole.cols > kMaxElementsInNorm || !AreVectors(gather->ends) ||
      !CanComputeInput(norm)) {
    return;
  }
  PeerColumnsInput columns = {.whole = *delta, .slot_buffer = gather->slot_buffer};
  std::ranges::copy(gather->ends, columns.ends.begin());
  norm.input = columns;
  ops.pop_back();
}

// Lets an exchange of columns read the result of attention where the kernels have written it.
void FusesPacked(std::vector<StepOp>& ops, ExchangeOp& exchange) {
  auto* const gather = std::get_if<GatherColumnsOp>(&exchange);
  auto* const attend = ops.empty() ? nullptr : std::get_if<AttentionOp>(&ops.back());
  if (gather == nullptr || gather->slot_buffer == kThroughNccl || attend == nullptr ||
      attend->packed.data == nullptr || attend->out.rows != gather->whole.rows ||
      attend->out.stride != gather->whole.stride) {
    return;
  }
  const int64_t first = (attend->out.data - gather->whole.data) / 2;
  const auto end = std::ranges::find(gather->ends, first + attend->out.cols);
  if (end == gather->ends.end() || (end == gather->ends.begin() ? 0 : *(end - 1)) != first) return;
  gather->mine = attend->packed;
  attend->out = attend->packed;
  attend->packed = {};
}

// Lets a norm add up the results of the experts.
void FusesCombine(std::vector<StepOp>& ops, NormOp& norm) {
  auto* const experts = ops.empty() ? nullptr : std::get_if<ExpertsOp>(&ops.back());
  const Tensor* const delta = DeltaOf(norm);
  if (experts == nullptr || delta == nullptr || !SamePlace(delta->data, experts->out) ||
      experts->out.rows != norm.residual.rows || !CanComputeInput(norm)) {
    return;
  }
  const ExpertResults results = Experts::ResultsOf(experts->experts, experts->out.rows);
  if (results.results == nullptr || results.cols != norm.residual.cols) return;
  experts->out = {};
  norm.input = ExpertsInput{results};
}

RopeLaunch LaunchOf(const RopeOp& call, const StepLayout& step) {
  return {.qkv = call.qkv,
          .scales = call.scales,
          .heads = call.heads,
          .pairing = call.pairing,
          .pairs = call.pairs,
          .q_norm = call.q_norm,
          .k_norm = call.k_norm,
          .norm_epsilon = call.norm_epsilon,
          .kv_scales = call.kv_scales,
          .layer = call.layer,
          .angles = call.angles,
          .positions = step.d_positions,
          .row_blocks = step.d_row_blocks};
}

cudaError_t Attend(const AttentionOp& call, const OpContext& context) {
  const bool gaps = call.packed.data != nullptr;
  const Tensor& to = gaps ? call.packed : call.out;
  const cudaError_t error = context.attention.Launch(*call.plan,
                                                     {.kv = context.kv,
                                                      .layer = call.layer,
                                                      .kv_scales = call.kv_scales,
                                                      .qkv = call.qkv,
                                                      .out = to,
                                                      .fp8_out = call.fp8_out,
                                                      .stream = context.stream});
  if (error != cudaSuccess || !gaps) return error;
  const auto bytes = [](int64_t elements) { return static_cast<size_t>(elements) * 2; };
  return cudaMemcpy2DAsync(call.out.data,
                           bytes(call.out.stride),
                           to.data,
                           bytes(to.stride),
                           bytes(to.cols),
                           static_cast<size_t>(to.rows),
                           cudaMemcpyDeviceToDevice,
                           context.stream);
}

// Fuses `call` with the ops before it where one of them is a GEMM for which `gemm` supports that.
// Returns true when `call` itself is not needed any more.
bool FusesIntoGemm(std::vector<StepOp>& ops, StepOp& call, const GemmFusions& gemm) {
  if (ops.empty()) return false;
  if (auto* silu = std::get_if<SiluMulOp>(&call)) return FusesSiluMul(ops, *silu, gemm);
  auto* last_gemm = std::get_if<MatMulOp>(&ops.back());
  if (auto* norm = std::get_if<NormOp>(&call); norm != nullptr && last_gemm != nullptr) {
    FusesResidual(*last_gemm, *norm, gemm);
  }
  auto* last_norm = std::get_if<NormOp>(&ops.back());
  if (auto* problem = std::get_if<MatMulOp>(&call); problem != nullptr && last_norm != nullptr) {
    if (FusesNorm(*last_norm, *problem, gemm)) ops.pop_back();
  }
  return false;
}

// Lets the GEMM `before` apply the scales that no other op applies. Returns true when `rescale` is
// not needed.
bool FusesRescale(StepOp& before, const RescaleOp& rescale, const GemmFusions& gemm) {
  auto* const multiply = std::get_if<MatMulOp>(&before);
  if (multiply == nullptr || rescale.bias != nullptr ||
      !SamePlace(multiply->problem.out, rescale.x) || !gemm.AppliesScales(multiply->problem)) {
    return false;
  }
  multiply->problem.x_scales = rescale.scales.rows;
  multiply->problem.weight_scales = rescale.scales.cols;
  return true;
}

// In place: most steps have none of them.
void FuseRescales(std::vector<StepOp>& ops, const GemmFusions& gemm) {
  auto kept = ops.begin();
  for (auto op = ops.begin(); op != ops.end(); ++op) {
    const auto* const rescale = std::get_if<RescaleOp>(&*op);
    if (rescale != nullptr && kept != ops.begin() &&
        FusesRescale(*std::prev(kept), *rescale, gemm)) {
      continue;
    }
    if (kept != op) *kept = std::move(*op);
    ++kept;
  }
  ops.erase(kept, ops.end());
}

}  // namespace

bool CanComputeInput(const NormOp& norm) {
  return NormReadsWholeRows(norm.residual, norm.input) && norm.out.stride % 8 == 0;
}

bool AttentionOp::operator==(const AttentionOp& other) const {
  const bool same_plan =
      plan == other.plan || (plan != nullptr && other.plan != nullptr && *plan == *other.plan);
  const auto rest = [](const AttentionOp& op) {
    return std::tie(op.qkv, op.shape, op.layer, op.kv_scales, op.out, op.packed, op.fp8_out);
  };
  return same_plan && rest(*this) == rest(other);
}

void FuseOps(std::vector<StepOp>& ops, const GemmFusions& gemm) {
  std::vector<StepOp> fused;
  fused.reserve(ops.size());
  for (StepOp& call : ops) {
    if (const auto* quantize = std::get_if<QuantizeOp>(&call)) {
      if (FusesQuantize(fused, *quantize)) continue;
    }
    if (auto* norm = std::get_if<NormOp>(&call)) {
      if (auto* input = std::get_if<DeltaInput>(&norm->input)) {
        FuseScales(fused, input->delta, input->scales);
      }
      FusesReduce(fused, *norm);
      FusesGather(fused, *norm);
      FusesCombine(fused, *norm);
    }
    if (auto* exchange = std::get_if<ExchangeOp>(&call)) FusesPacked(fused, *exchange);
    if (auto* rope = std::get_if<RopeOp>(&call)) FuseScales(fused, rope->qkv, rope->scales);
    if (!gemm.deterministic() && FusesIntoGemm(fused, call, gemm)) continue;
    fused.push_back(std::move(call));
  }
  ops = std::move(fused);
  if (!gemm.deterministic()) FuseRescales(ops, gemm);
}

Status Prepare(const StepOp& call, const OpContext& context) {
  if (const auto* multiply = std::get_if<MatMulOp>(&call)) {
    return context.gemm.Prepare(multiply->problem, context.stream);
  }
  return OkStatus();
}

namespace {

// Launches the kernels of an op that is no exchange.
cudaError_t Launch(const StepOp& call, const OpContext& context) {
  const StepLayout& step = context.step;
  const cudaStream_t stream = context.stream;
  return std::visit(
      Overloaded{
          [&](const EmbedOp& c) {
            return LaunchEmbed(c.table->data(),
                               c.table->rows(),
                               c.first_token,
                               step.d_tokens,
                               context.sampling.tokens(),
                               c.out,
                               stream);
          },
          [&](const NormOp& c) {
            NormLaunch norm = {.residual = c.residual,
                               .input = c.input,
                               .weight = c.weight,
                               .epsilon = c.epsilon,
                               .out = c.out,
                               .fp8_out = c.fp8_out};
            if (const std::optional<int32_t> buffer = SlotBufferOf(c.input)) {
              norm.peers = context.exchange->peers()->Parts(*buffer);
              norm.to = context.exchange->peers()->Targets(*buffer);
            }
            return LaunchNorm(norm, stream);
          },
          [&](const AddOp& c) { return LaunchAdd(c.residual, c.delta, stream); },
          [&](const QuantizeOp& c) { return LaunchQuantize(c.x, c.out, stream); },
          [&](const RescaleOp& c) { return LaunchRescale(c.x, c.scales, c.bias, stream); },
          [&](const MatMulOp& c) { return context.gemm.Launch(c.problem, stream); },
          [&](const SiluMulOp& c) {
            return c.fp8_out.data != nullptr
                       ? LaunchSiluMulQuantize(c.gate_up, c.scales, c.fp8_out, stream)
                       : LaunchSiluMul(c.gate_up, c.out, stream);
          },
          [&](const ExpertsOp& c) { return context.experts.Launch(c.x, c.experts, c.out, stream); },
          [&](const RoundOp& c) { return LaunchRound(c.x, c.out, stream); },
          [&](const AnglesOp& c) {
            return LaunchAngles(c.inverse_frequencies,
                                c.pairs,
                                step.d_positions,
                                step.rows,
                                c.magnitude,
                                c.angles,
                                stream);
          },
          [&](const RopeOp& c) { return LaunchRope(LaunchOf(c, step), context.kv, stream); },
          [&](const AttentionOp& c) { return Attend(c, context); },
          [&](const GatherOp& c) { return LaunchGather(c.x, step.d_logit_rows, c.out, stream); },
          [&](const SampleOp& c) { return context.sampling.Launch(c.plan, c.logits, stream); },
          [&](const NotifyOp& c) {
            return step.recorded ? cudaSuccess : cudaEventRecord(context.marks[c.index], stream);
          },
          [&](const ExchangeOp& /*c*/) { return cudaErrorNotSupported; },
      },
      call);
}

}  // namespace

Status Run(const StepOp& call, const OpContext& context) {
  if (const auto* exchange = std::get_if<ExchangeOp>(&call)) {
    return context.exchange->Launch(*exchange, context.stream);
  }
  return ToStatus(Launch(call, context), "a launch");
}

}  // namespace baton::cuda
