#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/parity/device_tensor.h"
#include "tests/parity/parity.h"
#include "tests/parity/step_plan.h"

// Attention to the tokens that an index selects, against sums in double precision.
namespace baton::parity {
namespace {

// Sizes that are no multiples of a vector.
constexpr LatentShape kShape = {
    .heads = 11, .rank = 16, .nope_dim = 8, .rope_dim = 8, .value_dim = 8};
constexpr IndexShape kIndex = {.heads = 20, .dim = 24, .rope_dim = 8, .tokens = 21};
constexpr float kScale = 0.3f;
// The rows of each sequence, and how many of them the first step computes.
constexpr std::pair<int32_t, int32_t> kLengths[] = {{90, 39}, {21, 1}, {33, 22}};

// What the backend has computed of a row.
struct Row {
  std::vector<float> q;        // [heads · width]
  std::vector<float> latent;   // as written to the cache
  std::vector<float> index_q;  // [index heads · dim]
  std::vector<float> weights;  // [index heads]
  std::vector<float> index_k;  // as written to the cache
  std::vector<float> selected = {};
  std::vector<float> out = {};    // [heads · rank]
  std::vector<float> dense = {};  // of AttendLatents
};

// Rotates the first numbers of a head, by halves.
std::vector<double> Rotated(std::span<const float> head,
                            const std::vector<float>& frequencies,
                            int32_t position) {
  std::vector<double> x(head.begin(), head.end());
  const size_t half = frequencies.size();
  for (size_t i = 0; i < half; ++i) {
    const double angle = double{frequencies[i]} * position;
    const double a = x[i];
    const double b = x[i + half];
    x[i] = a * std::cos(angle) - b * std::sin(angle);
    x[i + half] = a * std::sin(angle) + b * std::cos(angle);
  }
  return x;
}

std::vector<double> ScoresOf(const std::vector<Row>& rows,
                             const std::vector<float>& frequencies,
                             int32_t position) {
  const Row& row = rows[static_cast<size_t>(position)];
  const auto dim = static_cast<size_t>(kIndex.dim);
  std::vector<double> scores(static_cast<size_t>(position) + 1);
  for (size_t head = 0; head < static_cast<size_t>(kIndex.heads); ++head) {
    const auto q = Rotated(std::span(row.index_q).subspan(head * dim, dim), frequencies, position);
    for (size_t i = 0; i < scores.size(); ++i) {
      const double dot = std::inner_product(q.begin(), q.end(), rows[i].index_k.begin(), 0.0);
      scores[i] += double{row.weights[head]} * std::max(dot, 0.0);
    }
  }
  return scores;
}

// Every selected token has a score that is not below one of the others.
void CheckSelection(const std::vector<Row>& rows,
                    const std::vector<float>& frequencies,
                    int32_t position) {
  const std::vector<float>& selected = rows[static_cast<size_t>(position)].selected;
  const auto count = std::min<size_t>(selected.size(), static_cast<size_t>(position) + 1);
  for (size_t i = count; i < selected.size(); ++i) ASSERT_EQ(selected[i], -1.0f);
  const std::vector<double> scores = ScoresOf(rows, frequencies, position);
  std::vector<bool> chosen(scores.size());
  for (size_t i = 0; i < count; ++i) {
    ASSERT_GE(selected[i], 0.0f);
    ASSERT_LE(selected[i], static_cast<float>(position));
    ASSERT_TRUE(i == 0 || selected[i] > selected[i - 1]);
    chosen[static_cast<size_t>(selected[i])] = true;
  }
  double least = HUGE_VAL;
  double largest = -HUGE_VAL;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (chosen[i]) {
      least = std::min(least, scores[i]);
    } else {
      largest = std::max(largest, scores[i]);
    }
  }
  EXPECT_GE(least, largest - 1e-4) << "position " << position;
}

void CheckAttended(const std::vector<Row>& rows, const Tolerance& tolerance, int32_t position) {
  const Row& row = rows[static_cast<size_t>(position)];
  const auto count = std::min<size_t>(row.selected.size(), static_cast<size_t>(position) + 1);
  const auto width = static_cast<size_t>(kShape.width());
  const auto rank = static_cast<size_t>(kShape.rank);
  for (size_t head = 0; head < static_cast<size_t>(kShape.heads); ++head) {
    std::vector<double> want(rank);
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
      const std::vector<float>& latent = rows[static_cast<size_t>(row.selected[i])].latent;
      const double dot = std::inner_product(
          latent.begin(), latent.end(), row.q.begin() + static_cast<ptrdiff_t>(head * width), 0.0);
      const double weight = std::exp(kScale * dot);
      sum += weight;
      for (size_t d = 0; d < rank; ++d) want[d] += weight * latent[d];
    }
    for (size_t d = 0; d < rank; ++d) {
      ASSERT_NEAR(row.out[head * rank + d],
                  want[d] / sum,
                  10 * tolerance.attention * (1 + std::fabs(want[d] / sum)))
          << "position " << position << ", head " << head;
    }
  }
}

std::vector<std::vector<Row>> Inputs(Ops& ops) {
  uint64_t seed = 700;
  const auto numbers = [&](int64_t count) {
    return RandomActivations(ops, static_cast<size_t>(count), seed++, 0.7f);
  };
  std::vector<std::vector<Row>> sequences;
  for (const auto& [length, first] : kLengths) {
    auto& rows = sequences.emplace_back();
    for (int32_t i = 0; i < length; ++i) {
      rows.push_back({.q = numbers(int64_t{kShape.heads} * kShape.width()),
                      .latent = numbers(kShape.width()),
                      .index_q = numbers(int64_t{kIndex.heads} * kIndex.dim),
                      .weights = numbers(kIndex.heads),
                      .index_k = numbers(kIndex.dim)});
    }
  }
  return sequences;
}

// Runs the ops for the rows of `plan`, whose tokens are the numbers of sequences.
void RunStep(Ops& ops,
             const KvView& view,
             const StepPlan& plan,
             const LatentRope& rope,
             const Vector& norm,
             std::vector<std::vector<Row>>& sequences) {
  const auto row_of = [&](size_t i) -> Row& {
    return sequences[static_cast<size_t>(plan.tokens[i])][static_cast<size_t>(plan.positions[i])];
  };
  const auto gather = [&](std::vector<float> Row::*member) {
    std::vector<float> all;
    for (size_t i = 0; i < plan.tokens.size(); ++i) {
      const std::vector<float>& values = row_of(i).*member;
      all.insert(all.end(), values.begin(), values.end());
    }
    return DeviceTensor(ops, plan.rows(), static_cast<int64_t>(all.size()) / plan.rows(), all);
  };
  const DeviceTensor q = gather(&Row::q);
  const DeviceTensor latents = gather(&Row::latent);
  const DeviceTensor index_q = gather(&Row::index_q);
  const DeviceTensor weights = gather(&Row::weights);
  const DeviceTensor index_k = gather(&Row::index_k);
  const DeviceTensor selected(ops, DType::kF32, plan.rows(), kIndex.tokens);
  const DeviceTensor out(ops, plan.rows(), int64_t{kShape.heads} * kShape.rank);
  const DeviceTensor dense(ops, plan.rows(), int64_t{kShape.heads} * kShape.rank);
  LatentRope halves = rope;
  halves.pairing = RopePairing::kHalves;
  ASSERT_TRUE(ops.BeginStep(plan.input(), view).ok());
  LatentOps& latent = *ops.latent_ops();
  latent.WriteLatent(latents.view(), {kShape, rope, &norm, 1e-6f, 1});
  latent.WriteIndexKeys(index_k.view(), {kIndex, halves, 1});
  latent.SelectTokens(index_q.view(), weights.view(), {kIndex, halves, 1}, selected.view());
  latent.AttendSelected(q.view(), selected.view(), {kShape, 1, kScale}, out.view());
  latent.AttendLatents(q.view(), {kShape, 1, kScale}, dense.view());
  ASSERT_TRUE(ops.EndStep().ok());
  const auto scatter = [&](const DeviceTensor& tensor, std::vector<float> Row::*member) {
    const std::vector<float> all = tensor.Read();
    const size_t cols = all.size() / plan.tokens.size();
    for (size_t i = 0; i < plan.tokens.size(); ++i) {
      const auto begin = all.begin() + static_cast<ptrdiff_t>(i * cols);
      (row_of(i).*member).assign(begin, begin + static_cast<ptrdiff_t>(cols));
    }
  };
  scatter(latents, &Row::latent);
  scatter(index_k, &Row::index_k);
  scatter(selected, &Row::selected);
  scatter(out, &Row::out);
  scatter(dense, &Row::dense);
}

void CheckSparse(Ops& ops, const Tolerance& tolerance) {
  const ModelShape model = {.heads = {kShape.heads, 1, kShape.query_dim()},
                            .hidden = 64,
                            .vocabulary = 64,
                            .latent = kShape,
                            .index = kIndex,
                            .variants = {OpVariant::kLatentAttention, OpVariant::kSparseAttention}};
  if (!ops.CheckModel(model).ok()) GTEST_SKIP() << "this backend has no sparse attention";
  const std::vector<float> frequencies = {1.0f, 0.3f, 0.04f, 0.001f};
  const auto frequency_vector = *ops.LoadVector(frequencies);
  const auto norm = *ops.LoadVector(RandomFloats(static_cast<size_t>(kShape.rank), 699));
  const LatentRope rope = {.inverse_frequencies = frequency_vector.get()};
  std::vector<std::pair<int32_t, int32_t>> lengths, first, rest;
  for (const auto& [length, of_first] : kLengths) {
    lengths.emplace_back(0, length);
    first.emplace_back(0, of_first);
    rest.emplace_back(of_first, length - of_first);
  }
  // The plane of values has room for index keys, which are not longer than latents.
  History history(ops, {1, 1, kShape.width()}, DType::kF32, 16, lengths);
  KvView view = history.cache().view;
  view.k_dim_major = false;
  view.index_dim = kIndex.dim;
  view.index_offset = std::exchange(view.value_offset, 0);
  auto sequences = Inputs(ops);
  for (const auto& rows : {first, rest}) {
    RunStep(ops, view, history.Step(rows), rope, *norm, sequences);
    if (testing::Test::HasFatalFailure()) return;
  }
  for (const std::vector<Row>& rows : sequences) {
    for (int32_t position = 0; std::cmp_less(position, rows.size()); ++position) {
      const Row& row = rows[static_cast<size_t>(position)];
      CheckSelection(rows, frequencies, position);
      CheckAttended(rows, tolerance, position);
      if (testing::Test::HasFatalFailure()) return;
      const bool all = position < kIndex.tokens;
      ASSERT_EQ(row.out == row.dense, all) << "position " << position;
    }
  }
}

}  // namespace

std::vector<Case> SparseCases() {
  return {{"SparseAttention",
           [](Ops& ops, const Tolerance& tolerance) { CheckSparse(ops, tolerance); }}};
}

}  // namespace baton::parity
