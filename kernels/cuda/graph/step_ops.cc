#include "kernels/cuda/graph/step_ops.h"

#include <optional>
#include <tuple>
#include <utility>

#include "common/base/overloaded.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/latent/latent_kernels.h"
#include "kernels/cuda/recurrent/recurrent_kernels.h"
#include "kernels/cuda/rows/activation_norm.h"
#include "kernels/cuda/rows/family_kernels.h"
#include "kernels/cuda/rows/rope.h"
#include "kernels/cuda/rows/row_kernels.h"

namespace baton::cuda {
namespace {

RopeLaunch LaunchOf(const RopeOp& call, const StepLayout& step) {
  return {.qkv = call.qkv,
          .scales = call.scales,
          .heads = call.heads,
          .pairing = call.pairing,
          .pairs = call.pairs,
          .q_norm = call.q_norm,
          .k_norm = call.k_norm,
          .norm_epsilon = call.norm_epsilon,
          .norm_after_rope = call.norm_after_rope,
          .kv_scales = call.kv_scales,
          .query_slope = call.query_scaling.slope,
          .query_step = call.query_scaling.step,
          .layer = call.layer,
          .angles = call.angles,
          .positions = step.d_positions,
          .row_blocks = step.groups[static_cast<size_t>(call.cache_group)].d_row_blocks};
}

cudaError_t Attend(const AttentionOp& call, const OpContext& context) {
  const bool gaps = call.packed.data != nullptr;
  const Tensor& to = gaps ? call.packed : call.out;
  const cudaError_t error = context.attention.Launch(*call.plan,
                                                     {.kv = context.kv,
                                                      .layer = call.layer,
                                                      .kv_scales = call.kv_scales,
                                                      .sinks = call.sinks,
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

}  // namespace

const Tensor* DeltaOf(const NormOp& norm) {
  const auto* const input = std::get_if<DeltaInput>(&norm.input);
  return input == nullptr || input->scales.rows != nullptr ? nullptr : &input->delta;
}

bool CanComputeInput(const NormOp& norm) {
  return NormReadsWholeRows(norm.residual, norm.input) && norm.out.stride % 8 == 0;
}

bool AttentionOp::operator==(const AttentionOp& other) const {
  const bool same_plan =
      plan == other.plan || (plan != nullptr && other.plan != nullptr && *plan == *other.plan);
  const auto rest = [](const AttentionOp& op) {
    return std::tie(
        op.qkv, op.shape, op.layer, op.kv_scales, op.sinks, op.out, op.packed, op.fp8_out);
  };
  return same_plan && rest(*this) == rest(other);
}

Status Prepare(const StepOp& call, const OpContext& context) {
  if (const auto* multiply = std::get_if<MatMulOp>(&call)) {
    return context.gemm.Prepare(multiply->problem, context.stream);
  }
  return OkStatus();
}

namespace {

cudaError_t Launch(const LatentOp& call, const OpContext& context) {
  return std::visit(
      Overloaded{
          [&](const WriteLatentOp& c) {
            const StepLayout& step = context.step;
            const GroupLayout& group = step.groups[static_cast<size_t>(c.cache_group)];
            return LaunchWriteLatent(
                c, {step.d_positions, group.d_row_blocks}, context.kv, context.stream);
          },
          [&](const HeadGemmOp& c) { return LaunchHeadGemm(c, context.stream); },
          [&](const AttendLatentsOp& c) {
            return context.latents.Launch(*c.plan, context.kv, c.layer, c.q, c.out, context.stream);
          },
      },
      call);
}

cudaError_t Launch(const RecurrentOp& call, const OpContext& context) {
  const StateLayout& states = context.step.states;
  const auto of = [&](const auto& op) -> const StateLayout& {
    return op.without_chunks ? context.step.walked : states;
  };
  const KvView& kv = context.kv;
  const cudaStream_t stream = context.stream;
  return std::visit(
      Overloaded{
          [&](const ConvolveOp& c) { return LaunchConvolve(c, of(c), kv, stream); },
          [&](const UpdateStatesOp& c) { return LaunchUpdateStates(c, of(c), kv, stream); },
          [&](const FinishRowsOp& c) { return LaunchFinishRows(c, of(c), stream); },
          [&](const DecodeRowsOp& c) { return LaunchDecodeRows(c, states, kv, stream); },
          [&](const ChunkRowsOp& c) {
            return LaunchChunkRows(c, states, context.step.chunks, kv, stream);
          },
          [&](const ScanOp& c) { return LaunchScan(c, states, kv, stream); },
      },
      call);
}

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
          [&](const ActivationNormOp& c) {
            return LaunchActivationNorm(c.x, c.weight, c.epsilon, c.out, stream);
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
          [&](const CopyRowsOp& c) {
            const auto size = static_cast<int64_t>(ShapeOf(c.x.dtype).bytes);
            return cudaMemcpy2DAsync(context.copied,
                                     static_cast<size_t>(c.x.cols * size),
                                     c.x.data,
                                     static_cast<size_t>(c.x.stride * size),
                                     static_cast<size_t>(c.x.cols * size),
                                     static_cast<size_t>(c.x.rows),
                                     cudaMemcpyDeviceToHost,
                                     stream);
          },
          [&](const SampleOp& c) { return context.sampling.Launch(c.plan, c.logits, stream); },
          [&](const NotifyOp& c) {
            return step.recorded ? cudaSuccess : cudaEventRecord(context.marks[c.index], stream);
          },
          [&](const FamilyOp& c) { return LaunchFamilyOp(c, stream); },
          [&](const LatentOp& c) { return Launch(c, context); },
          [&](const RecurrentOp& c) { return Launch(c, context); },
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
