#include "tests/parity/delta_net_run.h"

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

constexpr float kEpsilon = 1e-5f;
constexpr int32_t kLayer = 2;

double Silu(double x) {
  return x / (1 + std::exp(-x));
}

// x / √(Σ x² + 1e-6) · factor.
void Normalise(std::vector<double>& x, double factor) {
  const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
  for (double& value : x) value *= factor / std::sqrt(squares + 1e-6);
}

}  // namespace

DeltaNetRun::DeltaNetRun(Ops& ops, const DeltaNetShape& shape, int32_t sequences, int32_t rows)
    : ops_(ops),
      shape_(shape),
      rows_(rows),
      convolution_(RandomFloats(
          static_cast<size_t>(shape.key_heads * shape.convolution_numbers()), 401, 0.5f)),
      decay_(RandomFloats(static_cast<size_t>(shape.value_heads), 402)),
      time_bias_(RandomFloats(static_cast<size_t>(shape.value_heads), 403, 3.0f)),
      norm_(RandomFloats(static_cast<size_t>(shape.value_dim), 404)),
      places_({{0, 0}, {1, 0}, {1, 1}}) {
  view_.kv_heads = 1;
  view_.head_dim = 8;
  view_.layers = 3;
  view_.block_tokens = 16;
  view_.k_dim_major = true;
  view_.head_stride = view_.value_offset = int64_t{16} * 8 * 4;
  view_.layer_stride = 2 * view_.head_stride;
  view_.places = places_.data();
  view_.state.block_bytes = 1040;  // does not divide the parts of a state
  view_.state.layer_bytes = shape.state_numbers() * 4;
  view_.block_stride = 1056;
  state_blocks_ = static_cast<int32_t>((2 * view_.state.layer_bytes + 1039) / 1040);
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
    sequence.x = RandomActivations(ops, static_cast<size_t>(rows * InputColumns()), seed++);
    sequence.gates =
        RandomActivations(ops, static_cast<size_t>(int64_t{rows} * 2 * shape.value_heads), seed++);
    for (std::vector<int32_t>* list : {&sequence.blocks, &sequence.other_blocks}) {
      list->assign(blocks.end() - state_blocks_, blocks.end());
      blocks.resize(blocks.size() - static_cast<size_t>(state_blocks_));
    }
  }
  Reset();
}

void DeltaNetRun::Reset() {
  const std::vector<float> numbers(arena_->size() / sizeof(float),
                                   std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(ops_.device().CopyIn(*arena_, 0, std::as_bytes(std::span(numbers))).ok());
  for (Sequence& sequence : sequences_) sequence.context = 0;
}

std::vector<float> DeltaNetRun::Step(std::span<const Part> parts) {
  StepPlan plan;
  std::vector<float> x, gates;
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
      ++sequence.context;
    }
  }
  const DeviceTensor inputs(ops_, plan.rows(), InputColumns(), x);
  const DeviceTensor of_gates(ops_, plan.rows(), int64_t{2} * shape_.value_heads, gates);
  const DeviceTensor out(ops_, plan.rows(), OutputColumns());
  const auto convolution = *ops_.LoadVector(convolution_);
  const auto decay = *ops_.LoadVector(decay_);
  const auto time_bias = *ops_.LoadVector(time_bias_);
  const auto norm = *ops_.LoadVector(norm_);
  StepInput input = plan.input();
  input.state_blocks = state_blocks_;
  const Status begun = ops_.BeginStep(input, view_);
  EXPECT_TRUE(begun.ok()) << begun;
  ops_.delta_net_ops()->RunDeltaNet(inputs.view(),
                                    of_gates.view(),
                                    {.shape = shape_,
                                     .convolution = convolution.get(),
                                     .decay = decay.get(),
                                     .time_bias = time_bias.get(),
                                     .norm = norm.get(),
                                     .norm_epsilon = kEpsilon,
                                     .layer = kLayer},
                                    out.view());
  EXPECT_TRUE(ops_.EndStep().ok());
  return out.Read();
}

std::vector<float> DeltaNetRun::Compute() {
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

std::vector<float> DeltaNetRun::State(int32_t sequence) const {
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

std::vector<double> DeltaNetRun::Convolved(
    const Sequence& sequence, int32_t row, int32_t key_head, int32_t first, int32_t count) const {
  std::vector<double> out;
  for (int32_t c = first; c < first + count; ++c) {
    double sum = 0;
    for (int32_t tap = 0; tap < shape_.kernel; ++tap) {
      const int32_t from = row - (shape_.kernel - 1) + tap;
      if (from < 0) continue;
      const int64_t weight = (int64_t{key_head} * shape_.kernel + tap) * shape_.channels() + c;
      const int64_t input = from * InputColumns() + int64_t{key_head} * shape_.input_columns() + c;
      sum += double{convolution_[static_cast<size_t>(weight)]} *
             sequence.x[static_cast<size_t>(input)];
    }
    out.push_back(Silu(sum));
  }
  return out;
}

std::vector<double> DeltaNetRun::ExpectedOf(const Sequence& sequence, int32_t value_head) const {
  const auto key_dim = static_cast<size_t>(shape_.key_dim);
  const auto value_dim = static_cast<size_t>(shape_.value_dim);
  const int32_t group = shape_.value_heads / shape_.key_heads;
  const int32_t key_head = value_head / group;
  const int32_t of_group = value_head % group;
  std::vector<double> state(key_dim * value_dim, 0.0);
  std::vector<double> outputs;
  for (int32_t row = 0; row < rows_; ++row) {
    auto q = Convolved(sequence, row, key_head, 0, shape_.key_dim);
    auto k = Convolved(sequence, row, key_head, shape_.key_dim, shape_.key_dim);
    const int32_t first = of_group * shape_.value_dim;
    const auto v = Convolved(sequence, row, key_head, 2 * shape_.key_dim + first, shape_.value_dim);
    Normalise(q, 1 / std::sqrt(static_cast<double>(shape_.key_dim)));
    Normalise(k, 1);
    const int64_t of_row = int64_t{row} * shape_.key_heads + key_head;
    const float* const gates = sequence.gates.data() + of_row * 2 * group;
    const auto head = static_cast<size_t>(value_head);
    const double beta = 1 / (1 + std::exp(-double{gates[of_group]}));
    const double time =
        std::log1p(std::exp(double{gates[group + of_group]} + double{time_bias_[head]}));
    const double decay = std::exp(-std::exp(double{decay_[head]}) * time);
    std::vector<double> out(value_dim, 0.0);
    for (size_t j = 0; j < value_dim; ++j) {
      double found = 0;
      for (size_t i = 0; i < key_dim; ++i) found += k[i] * decay * state[i * value_dim + j];
      for (size_t i = 0; i < key_dim; ++i) {
        double& number = state[i * value_dim + j];
        number = decay * number + k[i] * beta * (v[j] - found);
        out[j] += q[i] * number;
      }
    }
    const double squares = std::inner_product(out.begin(), out.end(), out.begin(), 0.0);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(value_dim) + double{kEpsilon});
    const int64_t z = row * InputColumns() + int64_t{key_head} * shape_.input_columns() +
                      shape_.channels() + first;
    for (size_t j = 0; j < value_dim; ++j) {
      const double gate = sequence.x[static_cast<size_t>(z) + j];
      outputs.push_back(out[j] * scale * norm_[j] * Silu(gate));
    }
  }
  return outputs;
}

std::vector<double> DeltaNetRun::Expected() const {
  const auto dim = static_cast<int64_t>(shape_.value_dim);
  std::vector<double> all;
  for (const Sequence& sequence : sequences_) {
    std::vector<std::vector<double>> heads;
    for (int32_t head = 0; head < shape_.value_heads; ++head) {
      heads.push_back(ExpectedOf(sequence, head));
    }
    for (int32_t row = 0; row < rows_; ++row) {
      for (const std::vector<double>& head : heads) {
        all.insert(all.end(), head.begin() + row * dim, head.begin() + (row + 1) * dim);
      }
    }
  }
  return all;
}

}  // namespace baton::parity
