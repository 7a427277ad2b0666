#include "tests/parity/recurrent_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include <gtest/gtest.h>

#include "tests/parity/device_tensor.h"
#include "tests/parity/step_plan.h"

namespace baton::parity {
namespace {

// Value heads of a key head. Shapes of the cases have key heads.
int32_t GroupOf(const RecurrentShape& shape) {
  return std::max(1, shape.group());
}

constexpr float kEpsilon = 1e-5f;
constexpr int32_t kLayer = 2;
constexpr float kGateScale = 0.7f;
constexpr float kTimeScale = 1.3f;
constexpr float kMinTime = 0.2f;
constexpr float kMaxTime = 2.5f;

double Silu(double x) {
  return x / (1 + std::exp(-x));
}

// x / √(Σ x² + 1e-6) · factor.
void Normalise(std::vector<double>& x, double factor) {
  const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
  for (double& value : x) value *= factor / std::sqrt(squares + 1e-6);
}

// The numbers that a rule has of a vector.
size_t DecaysOf(const RecurrentShape& shape) {
  return static_cast<size_t>(shape.rule == RecurrentRule::kSelectiveScan
                                 ? shape.key_heads * shape.matrix_numbers()
                                 : shape.value_heads);
}
size_t TimeBiasesOf(const RecurrentShape& shape) {
  return static_cast<size_t>(shape.rule == RecurrentRule::kDelta ? shape.value_heads
                                                                 : shape.gate_columns());
}
size_t SkipsOf(const RecurrentShape& shape) {
  if (shape.rule == RecurrentRule::kStateSpace) return static_cast<size_t>(shape.value_heads);
  return static_cast<size_t>(shape.rule == RecurrentRule::kSelectiveScan ? shape.value_numbers()
                                                                         : 0);
}
size_t NormsOf(const RecurrentShape& shape) {
  // Mamba 2 with copies of keys has no norm (Falcon-H1).
  if (shape.rule == RecurrentRule::kSelectiveScan || shape.key_copies > 1) return 0;
  return static_cast<size_t>(shape.rule == RecurrentRule::kStateSpace ? shape.value_numbers()
                                                                      : shape.value_dim);
}
size_t BiasesOf(const RecurrentShape& shape) {
  return shape.rule == RecurrentRule::kDelta
             ? 0
             : static_cast<size_t>(int64_t{shape.key_heads} * shape.channels());
}

}  // namespace

RecurrentRun::RecurrentRun(
    Ops& ops, const RecurrentShape& shape, int32_t sequences, int32_t rows, int64_t block_bytes)
    : ops_(ops),
      shape_(shape),
      rows_(rows),
      convolution_(RandomFloats(
          static_cast<size_t>(shape.key_heads * shape.convolution_numbers()), 401, 0.5f)),
      bias_(RandomFloats(BiasesOf(shape), 406, 0.3f)),
      decay_(RandomFloats(DecaysOf(shape), 402)),
      time_bias_(RandomFloats(TimeBiasesOf(shape), 403, 3.0f)),
      skip_(RandomFloats(SkipsOf(shape), 407)),
      norm_(RandomFloats(NormsOf(shape), 404)),
      places_({{0, 0}, {1, 0}, {1, 1}}) {
  for (const auto* numbers : {&convolution_, &bias_, &decay_, &time_bias_, &skip_, &norm_}) {
    vectors_.push_back(numbers->empty() ? nullptr : *ops.LoadVector(*numbers));
  }
  view_.kv_heads = 1;
  view_.head_dim = 8;
  view_.layers = 3;
  view_.block_tokens = 16;
  view_.k_dim_major = ops.kv_needs().k_dim_major;
  view_.head_stride = view_.value_offset = int64_t{16} * 8 * 4;
  view_.layer_stride = 2 * view_.head_stride;
  view_.places = places_.data();
  view_.state.block_bytes = block_bytes;
  view_.state.layer_bytes = shape.state_numbers() * 4;
  view_.block_stride = block_bytes + 16;
  state_blocks_ =
      static_cast<int32_t>((2 * view_.state.layer_bytes + block_bytes - 1) / block_bytes);
  view_.blocks = sequences * 2 * state_blocks_ + 1;
  arena_ = *ops.device().Allocate(static_cast<size_t>(view_.blocks * view_.block_stride),
                                  Sharing::kPrivate);
  view_.base = arena_->data();
  std::vector<int32_t> blocks(static_cast<size_t>(view_.blocks) - 1);
  std::iota(blocks.begin(), blocks.end(), 1);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937_64(405));
  uint64_t seed = 410;
  for (int32_t i = 0; i < sequences; ++i) {
    Sequence& sequence = sequences_.emplace_back();
    const auto random = [&](int64_t columns) {
      return RandomActivations(ops, static_cast<size_t>(rows * columns), seed++);
    };
    sequence.x = random(shape.input_columns());
    sequence.gates = random(shape.gate_columns());
    sequence.k = random(shape.key_dim);
    sequence.q = random(shape.key_dim);
    for (std::vector<int32_t>* list : {&sequence.blocks, &sequence.other_blocks}) {
      list->assign(blocks.end() - state_blocks_, blocks.end());
      blocks.resize(blocks.size() - static_cast<size_t>(state_blocks_));
    }
  }
  Reset();
}

void RecurrentRun::Reset() {
  const std::vector<float> numbers(arena_->size() / sizeof(float),
                                   std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(ops_.device().CopyIn(*arena_, 0, std::as_bytes(std::span(numbers))).ok());
  for (Sequence& sequence : sequences_) sequence.context = 0;
}

std::vector<float> RecurrentRun::Step(std::span<const Part> parts) {
  StepPlan plan;
  std::vector<float> x, gates, k, q;
  for (const Part& part : parts) {
    Sequence& sequence = sequences_[static_cast<size_t>(part.sequence)];
    if (part.in_state) --sequence.context;
    SequenceRows& rows = plan.sequences.emplace_back();
    rows.first_row = static_cast<int32_t>(plan.tokens.size());
    rows.row_count = part.rows;
    rows.context = sequence.context;
    rows.in_state = part.in_state;
    rows.first_block = static_cast<int32_t>(plan.tables.size());
    plan.tables.resize(plan.tables.size() + static_cast<size_t>(rows_), 0);
    rows.state_table = static_cast<int32_t>(plan.tables.size());
    plan.tables.insert(plan.tables.end(), sequence.blocks.begin(), sequence.blocks.end());
    if (part.moves) std::swap(sequence.blocks, sequence.other_blocks);
    plan.tables.insert(plan.tables.end(), sequence.blocks.begin(), sequence.blocks.end());
    for (int32_t i = 0; i < part.rows; ++i) {
      plan.tokens.push_back(0);
      plan.positions.push_back(sequence.context);
      const auto append = [&](const std::vector<float>& from, std::vector<float>& to) {
        const auto columns = static_cast<int64_t>(from.size()) / rows_;
        const auto begin = from.begin() + sequence.context * columns;
        to.insert(to.end(), begin, begin + columns);
      };
      append(sequence.x, x);
      append(sequence.gates, gates);
      append(sequence.k, k);
      append(sequence.q, q);
      ++sequence.context;
    }
  }
  // A step that only decodes, which a GPU runs as a graph.
  if (plan.rows() == static_cast<int64_t>(parts.size())) {
    plan.logit_rows.resize(parts.size());
    std::iota(plan.logit_rows.begin(), plan.logit_rows.end(), 0);
  }
  const DeviceTensor inputs(ops_, plan.rows(), shape_.input_columns(), x);
  const DeviceTensor of_gates(ops_, plan.rows(), shape_.gate_columns(), gates);
  const DeviceTensor of_k(ops_, plan.rows(), shape_.key_dim, k);
  const DeviceTensor of_q(ops_, plan.rows(), shape_.key_dim, q);
  const DeviceTensor of_v(ops_, plan.rows(), OutputColumns());
  const DeviceTensor out(ops_, plan.rows(), OutputColumns());
  StepInput input = plan.input();
  input.state_blocks = state_blocks_;
  const Status begun = ops_.BeginStep(input, view_);
  EXPECT_TRUE(begun.ok()) << begun;
  Run({inputs.view(), of_gates.view(), of_k.view(), of_q.view(), of_v.view(), out.view()});
  EXPECT_TRUE(ops_.EndStep().ok());
  return out.Read();
}

void RecurrentRun::Run(const Tensors& tensors) {
  const bool adds = shape_.rule == RecurrentRule::kStateSpace;
  const RecurrentArgs args = {.shape = shape_,
                              .convolution = vectors_[0].get(),
                              .convolution_bias = vectors_[1].get(),
                              .decay = vectors_[2].get(),
                              .time_bias = vectors_[3].get(),
                              .skip = vectors_[4].get(),
                              .norm = vectors_[5].get(),
                              .norm_epsilon = kEpsilon,
                              .gate_scale = adds ? kGateScale : 1,
                              .time_scale = adds ? kTimeScale : 1,
                              .min_time = adds ? kMinTime : 0,
                              .max_time = adds ? kMaxTime : 100,
                              .layer = kLayer};
  const auto& [x, gates, k, q, v, out] = tensors;
  if (!scans()) {
    ops_.recurrent_ops()->RunRecurrent(x, gates, args, out);
    return;
  }
  ops_.recurrent_ops()->Convolve(x, args, v);
  ops_.recurrent_ops()->Scan(v, gates, k, q, args, out);
}

std::vector<float> RecurrentRun::Compute() {
  Reset();
  std::vector<std::vector<float>> outputs(sequences_.size());
  const auto columns = static_cast<size_t>(OutputColumns());
  for (int32_t step = 0;; ++step) {
    std::vector<Part> parts;
    for (int32_t i = 0; i < static_cast<int32_t>(sequences_.size()); ++i) {
      const int32_t left = rows_ - sequences_[static_cast<size_t>(i)].context;
      const int32_t rows = std::min(left, 1 + (step * 5 + i * 3) % 7);
      if (rows > 0) parts.push_back({i, rows, (step + i) % 2 == 0});
    }
    if (parts.empty()) break;
    const std::vector<float> got = Step(parts);
    auto next = got.begin();
    for (const Part& part : parts) {
      auto& to = outputs[static_cast<size_t>(part.sequence)];
      const auto end = next + static_cast<int64_t>(columns) * part.rows;
      to.insert(to.end(), next, end);
      next = end;
    }
  }
  std::vector<float> all;
  for (const auto& rows : outputs) all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

std::vector<float> RecurrentRun::State(int32_t sequence) const {
  std::vector<std::byte> arena(arena_->size());
  EXPECT_TRUE(ops_.device().CopyOut(*arena_, 0, arena).ok());
  std::vector<std::byte> state;
  for (const int32_t block : sequences_[static_cast<size_t>(sequence)].blocks) {
    const auto first = arena.begin() + block * view_.block_stride;
    state.insert(state.end(), first, first + view_.state.block_bytes);
  }
  // The first layer of the state is not computed.
  std::vector<float> numbers(static_cast<size_t>(shape_.state_numbers()));
  std::memcpy(numbers.data(),
              state.data() + view_.state.layer_bytes,
              static_cast<size_t>(view_.state.layer_bytes));
  return numbers;
}

RecurrentRun::Columns RecurrentRun::ColumnsOf(int32_t value_head) const {
  const int64_t keys = shape_.key_numbers();
  const int64_t values = shape_.value_numbers();
  const int64_t key_head = value_head / GroupOf(shape_);
  const int64_t key = key_head / shape_.key_copies * shape_.key_dim;
  const int64_t value = int64_t{value_head} * shape_.value_dim;
  switch (shape_.rule) {
    case RecurrentRule::kDelta: {
      const int64_t first = key_head * (shape_.input_columns() / shape_.key_heads);
      const int64_t v = first + int64_t{2} * shape_.key_dim +
                        int64_t{value_head} % GroupOf(shape_) * shape_.value_dim;
      return {first, first + shape_.key_dim, v, v + int64_t{GroupOf(shape_)} * shape_.value_dim};
    }
    case RecurrentRule::kChannelDelta:
      return {key, keys + key, 2 * keys + value, 0};
    case RecurrentRule::kStateSpace:
      return {2 * values + keys + key, 2 * values + key, values + value, value};
    case RecurrentRule::kSelectiveScan:
      break;
  }
  return {.v = value};
}

std::vector<double> RecurrentRun::Convolved(const Sequence& sequence,
                                            int32_t row,
                                            int32_t key_head,
                                            int32_t channel,
                                            int64_t column,
                                            int32_t count) const {
  std::vector<double> out;
  for (int32_t i = 0; i < count; ++i) {
    const int64_t c = channel + i;
    double sum =
        bias_.empty() ? 0.0 : bias_[static_cast<size_t>(int64_t{key_head} * shape_.channels() + c)];
    for (int32_t tap = 0; tap < shape_.kernel; ++tap) {
      const int32_t from = row - (shape_.kernel - 1) + tap;
      if (from < 0) continue;
      const int64_t weight = (int64_t{key_head} * shape_.kernel + tap) * shape_.channels() + c;
      const int64_t input = from * shape_.input_columns() + column + i;
      sum += double{convolution_[static_cast<size_t>(weight)]} *
             sequence.x[static_cast<size_t>(input)];
    }
    out.push_back(Silu(sum));
  }
  return out;
}

double RecurrentRun::TimeOf(const float* gates, int32_t head, size_t i, size_t j) const {
  const auto softplus = [](double x) { return std::log1p(std::exp(x)); };
  const auto at = [&](size_t index, double scale) {
    return softplus(gates[index] * scale + double{time_bias_[index]});
  };
  const auto number = static_cast<size_t>(head);
  switch (shape_.rule) {
    case RecurrentRule::kDelta: {
      const auto group = static_cast<size_t>(GroupOf(shape_));
      const size_t a = number / group * 2 * group + group + number % group;
      return softplus(gates[a] + double{time_bias_[number]});
    }
    case RecurrentRule::kChannelDelta:
      return at(number * static_cast<size_t>(shape_.key_dim) + i, 1);
    case RecurrentRule::kStateSpace:
      return std::clamp(at(number, kTimeScale), double{kMinTime}, double{kMaxTime});
    case RecurrentRule::kSelectiveScan:
      break;
  }
  return at(number * static_cast<size_t>(shape_.value_dim) + j, 1);
}

double RecurrentRun::DecayOf(const float* gates, int32_t head, size_t i, size_t j) const {
  auto index = static_cast<size_t>(head);
  if (scans()) {
    index =
        (index * static_cast<size_t>(shape_.key_dim) + i) * static_cast<size_t>(shape_.value_dim) +
        j;
  }
  return std::exp(-std::exp(double{decay_[index]}) * TimeOf(gates, head, i, j));
}

double RecurrentRun::FactorOf(const float* x, const float* gates, int32_t head, size_t j) const {
  const auto sigmoid = [](double value) { return 1 / (1 + std::exp(-value)); };
  if (shape_.rule == RecurrentRule::kDelta) {
    const int32_t group = GroupOf(shape_);
    return sigmoid(gates[head / group * 2 * group + head % group]);
  }
  if (shape_.rule == RecurrentRule::kChannelDelta) {
    return sigmoid(x[2 * shape_.key_numbers() + shape_.value_numbers() + head]);
  }
  return TimeOf(gates, head, 0, j);
}

std::vector<double> RecurrentRun::ExpectedOf(const Sequence& sequence, int32_t value_head) const {
  const auto key_dim = static_cast<size_t>(shape_.key_dim);
  const auto value_dim = static_cast<size_t>(shape_.value_dim);
  const int32_t key_head = value_head / GroupOf(shape_);
  const Columns columns = ColumnsOf(value_head);
  const int32_t value_channel =
      shape_.first_value_channel() + value_head % GroupOf(shape_) * shape_.value_dim;
  std::vector<double> state(key_dim * value_dim, 0.0);
  std::vector<double> outputs;
  for (int32_t row = 0; row < rows_; ++row) {
    const float* const x = sequence.x.data() + row * shape_.input_columns();
    const float* const gates = sequence.gates.data() + row * shape_.gate_columns();
    const auto first = static_cast<ptrdiff_t>(row * key_dim);
    std::vector<double> q(sequence.q.begin() + first, sequence.q.begin() + first + shape_.key_dim);
    std::vector<double> k(sequence.k.begin() + first, sequence.k.begin() + first + shape_.key_dim);
    if (!scans()) {
      q = Convolved(sequence, row, key_head, 0, columns.q, shape_.key_dim);
      k = Convolved(sequence, row, key_head, shape_.key_dim, columns.k, shape_.key_dim);
    }
    const auto v = Convolved(sequence, row, key_head, value_channel, columns.v, shape_.value_dim);
    if (is_delta()) {
      Normalise(q, 1 / std::sqrt(static_cast<double>(shape_.key_dim)));
      Normalise(k, 1);
    }
    for (size_t j = 0; j < value_dim; ++j) {
      double found = 0;
      for (size_t i = 0; i < key_dim; ++i) {
        double& number = state[i * value_dim + j];
        number *= DecayOf(gates, value_head, i, j);
        found += k[i] * number;
      }
      const double factor = FactorOf(x, gates, value_head, j);
      const double added = factor * (is_delta() ? v[j] - found : v[j]);
      double out = 0;
      for (size_t i = 0; i < key_dim; ++i) {
        double& number = state[i * value_dim + j];
        number += k[i] * added;
        out += q[i] * number;
      }
      const double skip = scans() ? skip_[static_cast<size_t>(value_head) * value_dim + j]
                          : shape_.rule == RecurrentRule::kStateSpace
                              ? skip_[static_cast<size_t>(value_head)]
                              : 0.0f;
      outputs.push_back(out + skip * v[j]);
    }
  }
  return outputs;
}

void RecurrentRun::Finish(const float* x, int32_t key_head, std::span<double> outputs) const {
  const auto normalise = [&](std::span<double> numbers, size_t first_weight) {
    const double squares = std::inner_product(numbers.begin(), numbers.end(), numbers.begin(), 0.0);
    const double mean = squares / static_cast<double>(numbers.size());
    for (size_t j = 0; j < numbers.size(); ++j) {
      numbers[j] *= norm_[first_weight + j] / std::sqrt(mean + double{kEpsilon});
    }
  };
  const auto value_dim = static_cast<size_t>(shape_.value_dim);
  const auto gate = [&](double scale) {
    for (int32_t i = 0; i < GroupOf(shape_); ++i) {
      const int64_t z = ColumnsOf(key_head * GroupOf(shape_) + i).z;
      for (size_t j = 0; j < value_dim; ++j) {
        const double number = x[z + static_cast<int64_t>(j)];
        outputs[static_cast<size_t>(i) * value_dim + j] *= Silu(scale * number);
      }
    }
  };
  if (is_delta()) {
    for (size_t i = 0; i < outputs.size(); i += value_dim) {
      normalise(outputs.subspan(i, value_dim), 0);
    }
    if (shape_.rule == RecurrentRule::kDelta) gate(1);
  } else if (shape_.rule == RecurrentRule::kStateSpace) {
    gate(double{kGateScale});
    if (!norm_.empty()) normalise(outputs, static_cast<size_t>(key_head) * outputs.size());
  }
}

std::vector<double> RecurrentRun::Expected() const {
  const auto dim = static_cast<int64_t>(shape_.value_dim);
  std::vector<double> all;
  for (const Sequence& sequence : sequences_) {
    std::vector<std::vector<double>> heads;
    for (int32_t head = 0; head < shape_.value_heads; ++head) {
      heads.push_back(ExpectedOf(sequence, head));
    }
    for (int32_t row = 0; row < rows_; ++row) {
      const float* const x = sequence.x.data() + row * shape_.input_columns();
      for (int32_t key_head = 0; key_head < shape_.key_heads; ++key_head) {
        std::vector<double> outputs;
        for (int32_t i = 0; i < GroupOf(shape_); ++i) {
          const auto& head = heads[static_cast<size_t>(int64_t{key_head} * GroupOf(shape_) + i)];
          outputs.insert(outputs.end(), head.begin() + row * dim, head.begin() + (row + 1) * dim);
        }
        Finish(x, key_head, outputs);
        all.insert(all.end(), outputs.begin(), outputs.end());
      }
    }
  }
  return all;
}

}  // namespace baton::parity
