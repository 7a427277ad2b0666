#include "tests/parity/latent_run.h"

#include <cmath>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include <gtest/gtest.h>

#include "tests/parity/device_tensor.h"
#include "tests/parity/step_plan.h"

namespace baton::parity {
namespace {

constexpr float kEpsilon = 1e-6f;
constexpr float kMagnitude = 1.25f;
// The rows of each sequence, and how many of them the first step computes.
constexpr std::pair<int32_t, int32_t> kLengths[] = {{70, 39}, {9, 1}, {23, 16}};

// Rotates adjacent pairs.
void Rotate(std::span<double> x, const std::vector<float>& frequencies, int32_t position) {
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double angle = double{frequencies[i]} * position;
    const double a = x[2 * i];
    const double b = x[2 * i + 1];
    x[2 * i] = kMagnitude * (a * std::cos(angle) - b * std::sin(angle));
    x[2 * i + 1] = kMagnitude * (a * std::sin(angle) + b * std::cos(angle));
  }
}

std::vector<float> FrequenciesOf(const LatentShape& shape) {
  std::vector<float> frequencies;
  for (int32_t i = 0; i < shape.rope_dim / 2; ++i) {
    frequencies.push_back(std::pow(10.0f, -4.0f * static_cast<float>(i) / 7.0f));
  }
  return frequencies;
}

double Dot(const double* a, const double* b, size_t size) {
  return std::inner_product(a, a + size, b, 0.0);
}

// Row `row` of the weights, in double precision.
std::vector<double> RowOf(const HostWeights& weights, int64_t row) {
  const auto first = weights.values.begin() + row * weights.cols;
  return {first, first + weights.cols};
}

}  // namespace

LatentRun::LatentRun(Ops& ops, DType kv_dtype, const LatentShape& shape)
    : ops_(ops),
      dtype_(kv_dtype),
      shape_(shape),
      frequencies_(FrequenciesOf(shape)),
      norm_(RandomFloats(static_cast<size_t>(shape_.rank), 301)),
      keys_(RandomWeights(DType::kF32, int64_t{shape_.heads} * shape_.nope_dim, shape_.rank, 302)),
      values_(
          RandomWeights(DType::kF32, int64_t{shape_.heads} * shape_.value_dim, shape_.rank, 303)) {
  uint64_t seed = 310;
  for (const auto& [length, first] : kLengths) {
    auto& rows = sequences_.emplace_back();
    for (int32_t i = 0; i < length; ++i) {
      const auto queries = static_cast<size_t>(int64_t{shape_.heads} * shape_.query_dim());
      Row& row = rows.emplace_back();
      row.q = RandomActivations(ops, queries, seed++);
      row.kv = RandomActivations(ops, static_cast<size_t>(shape_.width()), seed++, 0.5f);
    }
  }
}

std::vector<float> LatentRun::Compute() const {
  std::vector<std::unique_ptr<Matrix>> keys, values;
  const auto rank = static_cast<size_t>(shape_.rank);
  for (int32_t head = 0; head < shape_.heads; ++head) {
    std::vector<float> transposed;
    const auto nope = static_cast<size_t>(shape_.nope_dim);
    const float* const from = keys_.values.data() + static_cast<size_t>(head) * nope * rank;
    for (size_t i = 0; i < rank; ++i) {
      for (size_t j = 0; j < nope; ++j) transposed.push_back(from[j * rank + i]);
    }
    const HostMatrix key = {
        DType::kF32, shape_.rank, shape_.nope_dim, std::as_bytes(std::span(transposed)).data()};
    keys.push_back(*ops_.LoadMatrix({&key, 1}));
    const auto first = static_cast<size_t>(int64_t{head} * shape_.value_dim) * rank;
    const HostMatrix value = {DType::kF32,
                              shape_.value_dim,
                              shape_.rank,
                              std::as_bytes(std::span(values_.values).subspan(first)).data()};
    values.push_back(*ops_.LoadMatrix({&value, 1}));
  }
  const auto norm = *ops_.LoadVector(norm_);
  const auto frequencies = *ops_.LoadVector(frequencies_);
  const LatentRope rope = {.inverse_frequencies = frequencies.get(), .magnitude = kMagnitude};

  std::vector<std::pair<int32_t, int32_t>> lengths, first, rest;
  for (const auto& [length, of_first] : kLengths) {
    lengths.emplace_back(0, length);
    first.emplace_back(0, of_first);
    rest.emplace_back(of_first, length - of_first);
  }
  History history(ops_, {1, 1, shape_.width()}, dtype_, 16, lengths);
  KvView view = history.cache().view;
  view.k_dim_major = false;
  view.value_offset = 0;
  std::vector<std::vector<float>> outputs(sequences_.size());
  for (const auto& rows : {first, rest}) {
    const StepPlan plan = history.Step(rows);
    std::vector<float> q, kv;
    for (size_t i = 0; i < plan.tokens.size(); ++i) {
      const Row& row =
          sequences_[static_cast<size_t>(plan.tokens[i])][static_cast<size_t>(plan.positions[i])];
      q.insert(q.end(), row.q.begin(), row.q.end());
      kv.insert(kv.end(), row.kv.begin(), row.kv.end());
    }
    const DeviceTensor latents(ops_, plan.rows(), shape_.width(), kv);
    const DeviceTensor queries(ops_, plan.rows(), int64_t{shape_.heads} * shape_.query_dim(), q);
    const DeviceTensor absorbed(ops_, plan.rows(), int64_t{shape_.heads} * shape_.width());
    const DeviceTensor means(ops_, plan.rows(), int64_t{shape_.heads} * shape_.rank);
    const int64_t columns = int64_t{shape_.heads} * shape_.value_dim;
    const DeviceTensor out(ops_, plan.rows(), columns);
    EXPECT_TRUE(ops_.BeginStep(plan.input(), view).ok());
    LatentOps& latent = *ops_.latent_ops();
    latent.WriteLatent(latents.view(), {shape_, rope, norm.get(), kEpsilon, 1});
    latent.AbsorbQueries(queries.view(), {shape_, rope, keys}, absorbed.view());
    latent.AttendLatents(absorbed.view(), {shape_, 1, scale()}, means.view());
    latent.ExpandValues(means.view(), {shape_, values}, out.view());
    EXPECT_TRUE(ops_.EndStep().ok());
    const auto got = out.Read();
    for (size_t i = 0; i < plan.tokens.size(); ++i) {
      auto& to = outputs[static_cast<size_t>(plan.tokens[i])];
      const auto begin = got.begin() + static_cast<int64_t>(i) * columns;
      to.insert(to.end(), begin, begin + columns);
    }
  }
  std::vector<float> all;
  for (const auto& rows : outputs) all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

std::vector<double> LatentRun::StoredLatent(const Row& row, int32_t position) const {
  std::vector<double> x(row.kv.begin(), row.kv.end());
  const auto rank = static_cast<size_t>(shape_.rank);
  const double scale =
      1 / std::sqrt(Dot(x.data(), x.data(), rank) / static_cast<double>(rank) + double{kEpsilon});
  for (size_t i = 0; i < rank; ++i) x[i] *= scale * norm_[i];
  Rotate(std::span(x).subspan(rank), frequencies_, position);
  for (double& value : x) value = Rounded(dtype_, static_cast<float>(value));
  return x;
}

std::vector<double> LatentRun::AttendHead(const std::vector<std::vector<double>>& latents,
                                          const Row& row,
                                          int32_t position,
                                          int32_t head) const {
  const auto rank = static_cast<size_t>(shape_.rank);
  const auto nope = static_cast<size_t>(shape_.nope_dim);
  const auto first = row.q.begin() + int64_t{head} * shape_.query_dim();
  std::vector<double> q(first, first + shape_.query_dim());
  Rotate(std::span(q).subspan(nope), frequencies_, position);
  std::vector<double> weights;
  for (int32_t i = 0; i <= position; ++i) {
    const std::vector<double>& latent = latents[static_cast<size_t>(i)];
    double score = Dot(&q[nope], &latent[rank], static_cast<size_t>(shape_.rope_dim));
    for (size_t j = 0; j < nope; ++j) {
      const auto key = RowOf(keys_, int64_t{head} * shape_.nope_dim + static_cast<int64_t>(j));
      score += q[j] * Dot(key.data(), latent.data(), rank);
    }
    weights.push_back(std::exp(double{scale()} * score));
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> out;
  for (int32_t j = 0; j < shape_.value_dim; ++j) {
    const auto value = RowOf(values_, int64_t{head} * shape_.value_dim + j);
    double mean = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      mean += weights[i] / sum * Dot(value.data(), latents[i].data(), rank);
    }
    out.push_back(mean);
  }
  return out;
}

std::vector<double> LatentRun::Expected() const {
  std::vector<double> all;
  for (const std::vector<Row>& rows : sequences_) {
    std::vector<std::vector<double>> latents;
    for (const Row& row : rows) {
      const auto position = static_cast<int32_t>(latents.size());
      latents.push_back(StoredLatent(row, position));
      for (int32_t head = 0; head < shape_.heads; ++head) {
        const auto out = AttendHead(latents, row, position, head);
        all.insert(all.end(), out.begin(), out.end());
      }
    }
  }
  return all;
}

}  // namespace baton::parity
