#include "kernels/cuda/calls.h"

#include <utility>

#include "common/base/overloaded.h"
#include "kernels/cuda/rope.h"
#include "kernels/cuda/row_kernels.h"

namespace baton::cuda {
namespace {

bool SamePlace(const void* pointer, const Tensor& tensor) {
  return pointer == static_cast<const void*>(tensor.data);
}

// From so many rows on, adding to the residual in a product saves more traffic than it costs in
// choice: cuBLASLt's best algorithms for few rows cannot add.
constexpr int32_t kRowsToAdd = 1024;

// A product whose result is only added to the residual adds it itself. The norm then stands alone.
bool AddsToResidual(MatMulCall& multiply, NormCall& norm, const Gemm& gemm) {
  Product& product = multiply.product;
  // cuBLASLt takes a bf16 bias to bf16 results only.
  const bool pays =
      gemm.TakesJoined(product) || (product.rows >= kRowsToAdd && product.bias == nullptr);
  const bool fits = pays && norm.delta.data != nullptr && norm.delta_scales.rows == nullptr &&
                    SamePlace(product.out, norm.delta) && !product.accumulate &&
                    product.rows == norm.residual.rows && product.n == norm.residual.cols;
  if (!fits) return false;
  product.out = norm.residual.data;
  product.out_dtype = norm.residual.dtype;
  product.out_stride = norm.residual.stride;
  product.accumulate = true;
  norm.delta = {};
  return true;
}

// A product of one row can normalise its input.
bool TakesNorm(const NormCall& norm, MatMulCall& multiply, const Gemm& gemm) {
  Product product = multiply.product;
  if (norm.delta.data != nullptr || product.norm_weight != nullptr ||
      !SamePlace(product.x, norm.out) || product.k != norm.residual.cols) {
    return false;
  }
  product.residual = reinterpret_cast<const float*>(norm.residual.data);
  product.norm_weight = norm.weight;
  product.norm_epsilon = norm.epsilon;
  if (!gemm.TakesJoined(product)) return false;
  multiply.product = product;
  return true;
}

// The last of `calls` when it rescales `x` and adds nothing.
const RescaleCall* RescalesOnly(const Call& call, const Tensor& x) {
  const auto* rescale = std::get_if<RescaleCall>(&call);
  return rescale != nullptr && rescale->bias == nullptr && SamePlace(x.data, rescale->x) ? rescale
                                                                                         : nullptr;
}

// What reads the result of a product of quantised operands scales it on the way in.
void TakeScales(std::vector<Call>& calls, const Tensor& x, ProductScales& scales) {
  if (calls.empty()) return;
  // Rope's angles, which lie in between, have nothing to do with it.
  const bool angles = std::holds_alternative<AnglesCall>(calls.back());
  if (angles && calls.size() < 2) return;
  const auto at = calls.end() - (angles ? 2 : 1);
  const RescaleCall* const rescale = RescalesOnly(*at, x);
  if (rescale == nullptr) return;
  scales = rescale->scales;
  calls.erase(at);
}

// A product with [gate | up] can keep silu(gate) · up alone, and scale them itself.
bool TakesSiluMul(std::vector<Call>& calls, const SiluMulCall& silu, const Gemm& gemm) {
  const RescaleCall* const rescale = RescalesOnly(calls.back(), silu.gate_up);
  if (rescale != nullptr && calls.size() < 2) return false;
  auto* const multiply =
      std::get_if<MatMulCall>(&calls[calls.size() - (rescale != nullptr ? 2 : 1)]);
  if (multiply == nullptr) return false;
  Product product = multiply->product;
  if (!SamePlace(product.out, silu.gate_up) || product.out_dtype != silu.out.dtype ||
      product.accumulate) {
    return false;
  }
  product.silu_mul = true;
  product.out = silu.out.data;
  product.out_stride = silu.out.stride;
  if (rescale != nullptr) {
    product.x_scales = rescale->scales.rows;
    product.weight_scales = rescale->scales.cols;
  }
  if (!gemm.TakesJoined(product)) return false;
  multiply->product = product;
  if (rescale != nullptr) calls.pop_back();
  return true;
}

// What writes the operand of a product of quantised operands quantises it on the way out.
bool TakesQuantize(std::vector<Call>& calls, const QuantizeCall& quantize) {
  if (calls.empty()) return false;
  if (auto* norm = std::get_if<NormCall>(&calls.back())) {
    if (!SamePlace(quantize.x.data, norm->out) || norm->quantized.data != nullptr ||
        norm->out.rows != quantize.x.rows || !NormQuantizes(norm->residual, norm->delta)) {
      return false;
    }
    norm->quantized = quantize.out;
    return true;
  }
  if (auto* attend = std::get_if<AttendCall>(&calls.back())) {
    if (!SamePlace(quantize.x.data, attend->out) || attend->packed.data != nullptr ||
        attend->quantized.data != nullptr || attend->out.rows != quantize.x.rows) {
      return false;
    }
    attend->quantized = quantize.out;
    return true;
  }
  auto* silu = std::get_if<SiluMulCall>(&calls.back());
  if (silu == nullptr || !SamePlace(quantize.x.data, silu->out) ||
      silu->quantized.data != nullptr || silu->out.rows != quantize.x.rows ||
      silu->out.cols % 8 != 0 || silu->out.cols > kMostQuantizedColumns ||
      silu->gate_up.stride % 8 != 0) {
    return false;
  }
  SiluMulCall joined = *silu;
  calls.pop_back();
  joined.quantized = quantize.out;
  TakeScales(calls, joined.gate_up, joined.scales);
  calls.emplace_back(joined);
  return true;
}

RopeLaunch LaunchOf(const RopeCall& call, const StepLayout& step) {
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

cudaError_t Attend(const AttendCall& call, const CallContext& context) {
  const bool gaps = call.packed.data != nullptr;
  const Tensor& to = gaps ? call.packed : call.out;
  const cudaError_t error = context.attention.Launch(call.plan,
                                                     {.kv = context.kv,
                                                      .layer = call.layer,
                                                      .kv_scales = call.kv_scales,
                                                      .qkv = call.qkv,
                                                      .out = to,
                                                      .quantized = call.quantized,
                                                      .stream = context.stream});
  if (error != cudaSuccess || !gaps) return error;
  const auto bytes = [](int64_t numbers) { return static_cast<size_t>(numbers) * 2; };
  return cudaMemcpy2DAsync(call.out.data,
                           bytes(call.out.stride),
                           to.data,
                           bytes(to.stride),
                           bytes(to.cols),
                           static_cast<size_t>(to.rows),
                           cudaMemcpyDeviceToDevice,
                           context.stream);
}

// Joins `call` with those before it around a product that `gemm` takes joined. True when nothing is
// left of it.
bool JoinsProduct(std::vector<Call>& calls, Call& call, const Gemm& gemm) {
  if (calls.empty()) return false;
  if (auto* silu = std::get_if<SiluMulCall>(&call)) return TakesSiluMul(calls, *silu, gemm);
  auto* last_product = std::get_if<MatMulCall>(&calls.back());
  if (auto* norm = std::get_if<NormCall>(&call); norm != nullptr && last_product != nullptr) {
    AddsToResidual(*last_product, *norm, gemm);
  }
  auto* last_norm = std::get_if<NormCall>(&calls.back());
  if (auto* product = std::get_if<MatMulCall>(&call); product != nullptr && last_norm != nullptr) {
    if (TakesNorm(*last_norm, *product, gemm)) calls.pop_back();
  }
  return false;
}

}  // namespace

void Join(std::vector<Call>& calls, const Gemm& gemm) {
  std::vector<Call> joined;
  joined.reserve(calls.size());
  for (Call& call : calls) {
    if (const auto* quantize = std::get_if<QuantizeCall>(&call)) {
      if (TakesQuantize(joined, *quantize)) continue;
    }
    if (auto* norm = std::get_if<NormCall>(&call)) {
      TakeScales(joined, norm->delta, norm->delta_scales);
    }
    if (auto* rope = std::get_if<RopeCall>(&call)) TakeScales(joined, rope->qkv, rope->scales);
    if (!gemm.deterministic() && JoinsProduct(joined, call, gemm)) continue;
    joined.push_back(call);
  }
  calls = std::move(joined);
}

Status Prepare(const Call& call, const CallContext& context) {
  if (const auto* multiply = std::get_if<MatMulCall>(&call)) {
    return context.gemm.Prepare(multiply->product, context.stream);
  }
  return OkStatus();
}

cudaError_t Run(const Call& call, const CallContext& context) {
  const StepLayout& step = context.step;
  const cudaStream_t stream = context.stream;
  return std::visit(
      Overloaded{
          [&](const EmbedCall& c) {
            return LaunchEmbed(c.table->data(),
                               c.table->rows(),
                               step.d_tokens,
                               context.sampling.tokens(),
                               c.out,
                               stream);
          },
          [&](const NormCall& c) {
            return LaunchNorm({.residual = c.residual,
                               .delta = c.delta,
                               .delta_scales = c.delta_scales,
                               .weight = c.weight,
                               .epsilon = c.epsilon,
                               .out = c.out,
                               .quantized = c.quantized},
                              stream);
          },
          [&](const QuantizeCall& c) { return LaunchQuantize(c.x, c.out, stream); },
          [&](const RescaleCall& c) { return LaunchRescale(c.x, c.scales, c.bias, stream); },
          [&](const MatMulCall& c) { return context.gemm.Launch(c.product, stream); },
          [&](const SiluMulCall& c) {
            return c.quantized.data != nullptr
                       ? LaunchSiluMulQuantize(c.gate_up, c.scales, c.quantized, stream)
                       : LaunchSiluMul(c.gate_up, c.out, stream);
          },
          [&](const ExpertsCall& c) {
            return context.experts.Launch(c.x, c.experts, c.out, stream);
          },
          [&](const AnglesCall& c) {
            return LaunchAngles(c.inverse_frequencies,
                                c.pairs,
                                step.d_positions,
                                step.rows,
                                c.magnitude,
                                c.angles,
                                stream);
          },
          [&](const RopeCall& c) { return LaunchRope(LaunchOf(c, step), context.kv, stream); },
          [&](const AttendCall& c) { return Attend(c, context); },
          [&](const GatherCall& c) { return LaunchGather(c.x, step.d_logit_rows, c.out, stream); },
          [&](const SampleCall& c) { return context.sampling.Launch(c.plan, c.logits, stream); },
          [&](const NotifyCall& c) {
            return step.recorded ? cudaSuccess : cudaEventRecord(context.marks[c.index], stream);
          },
      },
      call);
}

}  // namespace baton::cuda
