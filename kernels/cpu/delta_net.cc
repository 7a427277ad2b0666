#include "kernels/cpu/delta_net.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "common/base/check.h"
#include "kernels/cpu/attention_ranges.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/state_memory.h"

namespace baton::cpu {
namespace {

// Added to the squared lengths of q and k.
constexpr float kLengthEpsilon = 1e-6f;

const float* DataOf(const Vector* vector) {
  return static_cast<const HostVector*>(vector)->data();
}

void CheckShape(const Tensor& x, int64_t cols, const char* what) {
  BATON_CHECK(x.cols == cols, "{} of [{}][{}]; {} columns expected", what, x.rows, x.cols, cols);
}

void CheckArgs(const DeltaNetArgs& args, const KvView& kv, const StepInput& input) {
  const DeltaNetShape& shape = args.shape;
  BATON_CHECK(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0,
              "{} value heads for {} key heads",
              shape.value_heads,
              shape.key_heads);
  const auto check_size = [](const Vector* vector, int64_t size, const char* what) {
    BATON_CHECK(vector->size() == size, "{} of {}; {} expected", what, vector->size(), size);
  };
  check_size(args.convolution, shape.key_heads * shape.convolution_numbers(), "a convolution");
  check_size(args.decay, shape.value_heads, "decays");
  check_size(args.time_bias, shape.value_heads, "biases of time");
  check_size(args.norm, shape.value_dim, "a norm");
  BATON_CHECK(args.layer >= 0 && args.layer < kv.layers, "layer {} of {}", args.layer, kv.layers);
  const auto bytes = shape.state_numbers() * static_cast<int64_t>(sizeof(float));
  const int64_t last = (kv.PlaceOf(args.layer).index + 1) * kv.state.layer_bytes;
  BATON_CHECK(kv.state.layer_bytes == bytes && last <= input.state_blocks * kv.state.block_bytes,
              "a state of {} bytes in layers of {}, in {} blocks of {}",
              bytes,
              kv.state.layer_bytes,
              input.state_blocks,
              kv.state.block_bytes);
}

}  // namespace

// One key head of one chain, and the memory of the thread that computes it.
struct CpuDeltaNetOps::Task {
  const Tensor& x;
  const Tensor& gates;
  const Tensor& out;
  const DeltaNetArgs& args;
  int32_t key_head = 0;
  int64_t matrix_byte = 0;       // where the state has the matrices of this head
  int64_t convolution_byte = 0;  // and the inputs
  // The memory.
  std::span<float> matrices = {};
  std::span<float> inputs = {};
  std::span<float> convolved = {};  // [q | k | v]
  std::span<float> q_scale = {};    // [key_dim], for the norm of q
  std::span<float> k_scale = {};
  std::span<float> decay = {};  // by value head
  std::span<float> beta = {};
};

float CpuDeltaNetOps::Exp(float x) const {
  context_.kernels.exp_sum(&x, 1, 1.0f, 0.0f);
  return x;
}

float CpuDeltaNetOps::SoftPlus(float x) const {
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

void CpuDeltaNetOps::MakeFactors(const Task& task, const float* gates) const {
  const DeltaNetShape& shape = task.args.shape;
  const auto group = static_cast<size_t>(shape.group());
  for (size_t i = 0; i < group; ++i) {
    const size_t head = static_cast<size_t>(task.key_head) * group + i;
    const float time = SoftPlus(gates[group + i] + DataOf(task.args.time_bias)[head]);
    task.decay[i] = Exp(-Exp(DataOf(task.args.decay)[head]) * time);
    task.beta[i] = 1.0f / (1.0f + Exp(-gates[i]));
  }
}

void CpuDeltaNetOps::RunRow(const Task& task, int64_t row, int32_t position, bool update) const {
  const DeltaNetShape& shape = task.args.shape;
  const KernelTable& kernels = context_.kernels;
  const float* const x = FloatRow(task.x, row) + int64_t{task.key_head} * shape.input_columns();
  ConvolutionArgs convolution;
  convolution.inputs = task.inputs.data();
  convolution.weights = DataOf(task.args.convolution) + task.key_head * shape.convolution_numbers();
  convolution.kernel = shape.kernel;
  convolution.channels = shape.channels();
  convolution.newest = position % shape.kernel;
  convolution.out = task.convolved.data();
  if (update) {
    std::copy_n(
        x, shape.channels(), task.inputs.data() + int64_t{convolution.newest} * shape.channels());
  }
  kernels.convolve(convolution);

  float* const q = task.convolved.data();
  float* const k = q + shape.key_dim;
  for (float* const vector : {q, k}) {
    // x / √(Σ x² + ε), times a factor, as an RMS norm.
    RmsNormArgs norm;
    norm.x = norm.out = vector;
    norm.weight = vector == q ? task.q_scale.data() : task.k_scale.data();
    norm.epsilon = kLengthEpsilon / static_cast<float>(shape.key_dim);
    norm.size = shape.key_dim;
    kernels.rms_norm(norm);
  }
  MakeFactors(task, FloatRow(task.gates, row) + int64_t{task.key_head} * 2 * shape.group());
  const float* const z = x + shape.channels();
  for (int32_t i = 0; i < shape.group(); ++i) {
    const auto index = static_cast<size_t>(i);
    const int64_t first = int64_t{i} * shape.value_dim;
    DeltaRuleArgs rule;
    rule.q = q;
    rule.k = k;
    rule.v = k + shape.key_dim + first;
    rule.decay = task.decay[index];
    rule.beta = task.beta[index];
    rule.key_dim = shape.key_dim;
    rule.value_dim = shape.value_dim;
    rule.update = update;
    rule.state = task.matrices.data() + shape.key_dim * first;
    rule.out =
        FloatRow(task.out, row) + (int64_t{task.key_head} * shape.group() + i) * shape.value_dim;
    kernels.delta_rule(rule);
    RmsNormArgs norm;
    norm.x = norm.out = rule.out;
    norm.weight = DataOf(task.args.norm);
    norm.epsilon = task.args.norm_epsilon;
    norm.size = shape.value_dim;
    kernels.rms_norm(norm);
    kernels.mul_silu(z + first, shape.value_dim, rule.out);
  }
}

void CpuDeltaNetOps::RunSequence(const Task& task, const SequenceRows& sequence) const {
  const StepInput& input = context_.input;
  if (sequence.context > 0 || sequence.in_state) {
    const auto before = StateBefore(input, sequence);
    ReadState(context_.kv, before, task.matrix_byte, task.matrices);
    ReadState(context_.kv, before, task.convolution_byte, task.inputs);
  } else {
    std::ranges::fill(task.matrices, 0.0f);
    std::ranges::fill(task.inputs, 0.0f);
  }
  for (int32_t i = 0; i < sequence.row_count; ++i) {
    RunRow(task, sequence.first_row + i, sequence.context + i, !sequence.in_state);
  }
  if (sequence.in_state) return;
  const auto after = StateAfter(input, sequence);
  WriteState(context_.kv, after, task.matrix_byte, task.matrices);
  WriteState(context_.kv, after, task.convolution_byte, task.inputs);
}

void CpuDeltaNetOps::RunDeltaNet(const Tensor& x,
                                 const Tensor& gates,
                                 const DeltaNetArgs& args,
                                 const Tensor& out) {
  const DeltaNetShape& shape = args.shape;
  CheckArgs(args, context_.kv, context_.input);
  CheckShape(x, int64_t{shape.key_heads} * shape.input_columns(), "inputs");
  CheckShape(gates, int64_t{2} * shape.value_heads, "gates");
  CheckShape(out, int64_t{shape.value_heads} * shape.value_dim, "outputs");
  if (context_.exchange.failed()) return;
  constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
  const KvView& kv = context_.kv;
  const int64_t first_byte = kv.PlaceOf(args.layer).index * kv.state.layer_bytes;
  const int64_t convolutions = first_byte + shape.key_heads * shape.matrix_numbers() * kBytes;
  const size_t numbers = static_cast<size_t>(shape.matrix_numbers() + shape.convolution_numbers()) +
                         static_cast<size_t>(shape.channels() + 2 * shape.key_dim) +
                         2 * static_cast<size_t>(shape.group());
  const StateChains& chains = context_.chains;
  const int64_t items = static_cast<int64_t>(chains.size()) * shape.key_heads;
  const int64_t jobs = std::min(items, ThreadPool::kMaxItems);
  const float root = 1.0f / std::sqrt(static_cast<float>(shape.key_dim));

  context_.pool.Run(jobs, [&](int64_t job, int thread) {
    float* next = AlignedScratch(context_.scratch[static_cast<size_t>(thread)], numbers);
    const auto take = [&next](int64_t size) {
      const std::span<float> taken(next, static_cast<size_t>(size));
      next += size;
      return taken;
    };
    Task task = {.x = x, .gates = gates, .out = out, .args = args};
    task.matrices = take(shape.matrix_numbers());
    task.inputs = take(shape.convolution_numbers());
    task.convolved = take(shape.channels());
    task.q_scale = take(shape.key_dim);
    task.k_scale = take(shape.key_dim);
    task.decay = take(shape.group());
    task.beta = take(shape.group());
    std::ranges::fill(task.q_scale, root * root);
    std::ranges::fill(task.k_scale, root);
    for (int64_t item = items * job / jobs; item < items * (job + 1) / jobs; ++item) {
      task.key_head = static_cast<int32_t>(item % shape.key_heads);
      task.matrix_byte = first_byte + task.key_head * shape.matrix_numbers() * kBytes;
      task.convolution_byte = convolutions + task.key_head * shape.convolution_numbers() * kBytes;
      for (const int32_t index : chains.chain(static_cast<size_t>(item / shape.key_heads))) {
        RunSequence(task, context_.input.sequences[static_cast<size_t>(index)]);
      }
    }
  });
}

}  // namespace baton::cpu
