#include "kernels/cpu/recurrent.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "common/base/check.h"
#include "kernels/cpu/attention_ranges.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/state_memory.h"
#include "kernels/recurrent_columns.h"

namespace baton::cpu {
namespace {

constexpr auto kBytes = static_cast<int64_t>(sizeof(float));

// Added to the squared lengths of q and k.
constexpr float kLengthEpsilon = 1e-6f;

bool IsDelta(RecurrentRule rule) {
  return rule == RecurrentRule::kDelta || rule == RecurrentRule::kChannelDelta;
}

}  // namespace

void CpuRecurrentOps::CheckArgs(const RecurrentArgs& args) const {
  const RecurrentShape& shape = args.shape;
  const KvView& kv = context_.kv;
  BATON_CHECK(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0 &&
                  shape.key_copies > 0 && shape.key_heads % shape.key_copies == 0,
              "{} value heads for {} key heads, {} alike",
              shape.value_heads,
              shape.key_heads,
              shape.key_copies);
  BATON_CHECK(args.layer >= 0 && args.layer < kv.layers, "layer {} of {}", args.layer, kv.layers);
  const int64_t bytes = shape.state_numbers() * kBytes;
  const int64_t last = (kv.PlaceOf(args.layer).index + 1) * kv.state.layer_bytes;
  const int64_t held = context_.input.state_blocks * kv.state.block_bytes;
  BATON_CHECK(kv.state.layer_bytes == bytes && last <= held,
              "a state of {} bytes in layers of {}, in {} blocks of {}",
              bytes,
              kv.state.layer_bytes,
              context_.input.state_blocks,
              kv.state.block_bytes);
}

int64_t CpuRecurrentOps::FirstByte(const RecurrentArgs& args,
                                   const KvView& kv,
                                   PlaneKind kind,
                                   int32_t key_head) {
  const RecurrentShape& shape = args.shape;
  const int64_t first_byte = kv.PlaceOf(args.layer).index * kv.state.layer_bytes;
  if (kind == PlaneKind::kMatrices) return first_byte + key_head * shape.matrix_numbers() * kBytes;
  const int64_t matrices = shape.key_heads * shape.matrix_numbers();
  return first_byte + (matrices + key_head * shape.convolution_numbers()) * kBytes;
}

void CpuRecurrentOps::ForHeads(
    const RecurrentArgs& args,
    int64_t numbers,
    const std::function<void(float*, int32_t, std::span<const int32_t>)>& compute) const {
  const StateChains& chains = context_.chains;
  const int32_t heads = args.shape.key_heads;
  const int64_t items = static_cast<int64_t>(chains.size()) * heads;
  const int64_t jobs = std::min(items, ThreadPool::kMaxItems);
  context_.pool.Run(jobs, [&](int64_t job, int thread) {
    float* const memory =
        AlignedScratch(context_.scratch[static_cast<size_t>(thread)], static_cast<size_t>(numbers));
    for (int64_t item = items * job / jobs; item < items * (job + 1) / jobs; ++item) {
      compute(memory,
              static_cast<int32_t>(item % heads),
              chains.chain(static_cast<size_t>(item / heads)));
    }
  });
}

void CpuRecurrentOps::WithState(int32_t index,
                                std::span<const Plane> planes,
                                const std::function<void(const Rows&)>& compute) const {
  const StepInput& input = context_.input;
  const SequenceRows& sequence = input.sequences[static_cast<size_t>(index)];
  const bool has_state = sequence.context > 0 || sequence.in_state;
  for (const Plane& plane : planes) {
    if (has_state) {
      ReadState(context_.kv, StateBefore(input, sequence), plane.first_byte, plane.numbers);
    } else {
      std::ranges::fill(plane.numbers, 0.0f);
    }
  }
  compute({.first = sequence.first_row,
           .count = sequence.row_count,
           .position = sequence.context,
           .update = !sequence.in_state});
  if (sequence.in_state) return;
  for (const Plane& plane : planes) {
    WriteState(context_.kv, StateAfter(input, sequence), plane.first_byte, plane.numbers);
  }
}

void CpuRecurrentOps::ConvolveRow(const RecurrentArgs& args,
                                  int32_t key_head,
                                  int32_t position,
                                  std::span<const float> inputs,
                                  float* out) const {
  const RecurrentShape& shape = args.shape;
  ConvolutionArgs convolution;
  convolution.inputs = inputs.data();
  convolution.weights = HostData(*args.convolution) + key_head * shape.convolution_numbers();
  if (args.convolution_bias != nullptr) {
    convolution.bias = HostData(*args.convolution_bias) + int64_t{key_head} * shape.channels();
  }
  convolution.kernel = shape.kernel;
  convolution.channels = shape.channels();
  convolution.newest = position % shape.kernel;
  convolution.out = out;
  context_.kernels.convolve(convolution);
}

// One key head of one chain, and the memory of the thread that computes it.
struct CpuRecurrentOps::Task {
  const Tensor& x;
  const Tensor& gates;
  const Tensor& out;
  const RecurrentArgs& args;
  const RecurrentColumns columns;
  int32_t key_head = 0;
  // The memory.
  std::span<float> matrices = {};
  std::span<float> inputs = {};
  std::span<float> convolved = {};  // [q | k | v]
  std::span<float> q_scale = {};    // [key_dim], for the norm of q
  std::span<float> k_scale = {};
  std::span<float> decays = {};  // by value head, or by row of its state
  std::span<float> betas = {};   // by value head
};

float CpuRecurrentOps::Exp(float x) const {
  context_.kernels.exp_sum(&x, 1, 1.0f, 0.0f);
  return x;
}

float CpuRecurrentOps::SoftPlus(float x) const {
  // ln(1 + t) is 2 · artanh(t / (2 + t)), whose series converges fast for t ≤ 1. It has the same
  // bits on every processor, unlike functions of the C library.
  constexpr int kTerms = 12;
  const double t = Exp(-std::fabs(x));
  const double ratio = t / (2.0 + t);
  const double square = ratio * ratio;
  double sum = 0;
  for (int i = kTerms - 1; i >= 0; --i) sum = sum * square + 1.0 / (2 * i + 1);
  return static_cast<float>(std::max(x, 0.0f) + 2.0 * ratio * sum);
}

void CpuRecurrentOps::MakeFactors(const Task& task, const float* x, const float* gates) const {
  const RecurrentArgs& args = task.args;
  const RecurrentShape& shape = args.shape;
  const auto group = static_cast<size_t>(shape.group());
  const size_t first_head = static_cast<size_t>(task.key_head) * group;
  if (shape.rule == RecurrentRule::kChannelDelta) {
    const float rate = -Exp(HostData(*args.decay)[task.key_head]);
    const int64_t first = int64_t{task.key_head} * shape.key_dim;
    for (int32_t i = 0; i < shape.key_dim; ++i) {
      const float time = SoftPlus(gates[first + i] + HostData(*args.time_bias)[first + i]);
      task.decays[static_cast<size_t>(i)] = Exp(rate * time);
    }
    task.betas[0] = 1.0f / (1.0f + Exp(-x[task.columns.beta + task.key_head]));
    return;
  }
  const bool delta = shape.rule == RecurrentRule::kDelta;
  const float* const of_head = gates + static_cast<int64_t>(delta ? 2 * first_head : first_head);
  for (size_t i = 0; i < group; ++i) {
    const size_t head = first_head + i;
    const float a = delta ? of_head[group + i] : of_head[i] * args.time_scale;
    float time = SoftPlus(a + HostData(*args.time_bias)[head]);
    if (!delta) time = std::clamp(time, args.min_time, args.max_time);
    task.decays[i] = Exp(-Exp(HostData(*args.decay)[head]) * time);
    task.betas[i] = delta ? 1.0f / (1.0f + Exp(-of_head[i])) : time;
  }
}

void CpuRecurrentOps::TakeInputs(const Task& task, const float* x, int32_t position) const {
  const RecurrentShape& shape = task.args.shape;
  const RecurrentColumns& columns = task.columns;
  const int64_t key = task.key_head / shape.key_copies;
  float* const to = task.inputs.data() + int64_t{position % shape.kernel} * shape.channels();
  std::copy_n(x + columns.q + key * columns.key_stride, shape.key_dim, to);
  std::copy_n(x + columns.k + key * columns.key_stride, shape.key_dim, to + shape.key_dim);
  std::copy_n(x + columns.v + task.key_head * columns.value_stride,
              int64_t{shape.group()} * shape.value_dim,
              to + shape.first_value_channel());
}

void CpuRecurrentOps::Normalise(
    float* x, const float* weight, float epsilon, int64_t size, float* out) const {
  RmsNormArgs norm;
  norm.x = x;
  norm.weight = weight;
  norm.epsilon = epsilon;
  norm.size = size;
  norm.out = out;
  context_.kernels.rms_norm(norm);
}

void CpuRecurrentOps::FinishRow(const Task& task, const float* x, float* out) const {
  const RecurrentArgs& args = task.args;
  const RecurrentShape& shape = args.shape;
  const int64_t size = int64_t{shape.group()} * shape.value_dim;
  const float* const z = x + task.columns.z + task.key_head * task.columns.value_stride;
  if (IsDelta(shape.rule)) {
    for (int32_t i = 0; i < shape.group(); ++i) {
      float* const of_head = out + int64_t{i} * shape.value_dim;
      Normalise(of_head, HostData(*args.norm), args.norm_epsilon, shape.value_dim, of_head);
    }
    if (shape.rule == RecurrentRule::kDelta) context_.kernels.mul_silu(z, size, out);
    return;
  }
  const float* const v = task.convolved.data() + shape.first_value_channel();
  for (int32_t i = 0; i < shape.group(); ++i) {
    const float skip = HostData(*args.skip)[int64_t{task.key_head} * shape.group() + i];
    const int64_t first = int64_t{i} * shape.value_dim;
    context_.kernels.add_scaled(v + first, skip, shape.value_dim, out + first);
  }
  if (args.gate_scale == 1) {
    context_.kernels.mul_silu(z, size, out);
  } else {
    // The ring of inputs is stored; what was convolved is not needed any more.
    float* const scaled = task.convolved.data() + shape.first_value_channel();
    for (int64_t i = 0; i < size; ++i) scaled[i] = z[i] * args.gate_scale;
    context_.kernels.mul_silu(scaled, size, out);
  }
  if (args.norm == nullptr) return;
  Normalise(out, HostData(*args.norm) + task.key_head * size, args.norm_epsilon, size, out);
}

void CpuRecurrentOps::RunRow(const Task& task, int64_t row, int32_t position, bool update) const {
  const RecurrentShape& shape = task.args.shape;
  const float* const x = FloatRow(task.x, row);
  if (update) TakeInputs(task, x, position);
  ConvolveRow(task.args, task.key_head, position, task.inputs, task.convolved.data());
  float* const q = task.convolved.data();
  float* const k = q + shape.key_dim;
  if (IsDelta(shape.rule)) {
    // x / √(Σ x² + ε), times a factor, as an RMS norm.
    const float epsilon = kLengthEpsilon / static_cast<float>(shape.key_dim);
    Normalise(q, task.q_scale.data(), epsilon, shape.key_dim, q);
    Normalise(k, task.k_scale.data(), epsilon, shape.key_dim, k);
  }
  MakeFactors(task, x, FloatRow(task.gates, row));
  const int64_t size = int64_t{shape.group()} * shape.value_dim;
  float* const out = FloatRow(task.out, row) + task.key_head * size;
  StateStepArgs step;
  step.rule = StateRule::kDelta;
  if (shape.rule == RecurrentRule::kStateSpace) step.rule = StateRule::kAdd;
  if (shape.rule == RecurrentRule::kChannelDelta) step.rule = StateRule::kChannelDelta;
  // Of Mamba's names, q is C and k is B.
  step.q = q;
  step.k = k;
  step.decays = task.decays.data();
  step.key_dim = shape.key_dim;
  step.value_dim = shape.value_dim;
  step.update = update;
  for (int32_t i = 0; i < shape.group(); ++i) {
    const auto index = static_cast<size_t>(i);
    const int64_t first = int64_t{i} * shape.value_dim;
    step.v = q + shape.first_value_channel() + first;
    step.decay = task.decays[index];
    step.beta = task.betas[index];
    step.state = task.matrices.data() + shape.key_dim * first;
    step.out = out + first;
    context_.kernels.step_state(step);
  }
  FinishRow(task, x, out);
}

void CpuRecurrentOps::RunRecurrent(const Tensor& x,
                                   const Tensor& gates,
                                   const RecurrentArgs& args,
                                   const Tensor& out) {
  const RecurrentShape& shape = args.shape;
  CheckArgs(args);
  CheckRecurrentVectors(args);
  CheckColumns(x, shape.input_columns(), "inputs");
  CheckColumns(gates, shape.gate_columns(), "gates");
  CheckColumns(out, shape.value_numbers(), "outputs");
  if (context_.exchange.failed()) return;
  const int64_t factors = std::max(shape.group(), shape.key_dim);
  const int64_t numbers = shape.matrix_numbers() + shape.convolution_numbers() + shape.channels() +
                          2 * int64_t{shape.key_dim} + factors + shape.group();
  const float root = 1.0f / std::sqrt(static_cast<float>(shape.key_dim));
  ForHeads(args, numbers, [&](float* memory, int32_t key_head, std::span<const int32_t> chain) {
    const auto take = [&memory](int64_t size) {
      const std::span<float> taken(memory, static_cast<size_t>(size));
      memory += size;
      return taken;
    };
    Task task = {.x = x,
                 .gates = gates,
                 .out = out,
                 .args = args,
                 .columns = ColumnsOf(shape),
                 .key_head = key_head};
    task.matrices = take(shape.matrix_numbers());
    task.inputs = take(shape.convolution_numbers());
    task.convolved = take(shape.channels());
    task.q_scale = take(shape.key_dim);
    task.k_scale = take(shape.key_dim);
    task.decays = take(factors);
    task.betas = take(shape.group());
    std::ranges::fill(task.q_scale, root * root);
    std::ranges::fill(task.k_scale, root);
    const Plane planes[] = {
        {FirstByte(args, context_.kv, PlaneKind::kMatrices, key_head), task.matrices},
        {FirstByte(args, context_.kv, PlaneKind::kInputs, key_head), task.inputs}};
    for (const int32_t sequence : chain) {
      WithState(sequence, planes, [&](const Rows& rows) {
        for (int32_t i = 0; i < rows.count; ++i) {
          RunRow(task, rows.first + i, rows.position + i, rows.update);
        }
      });
    }
  });
}

}  // namespace baton::cpu
