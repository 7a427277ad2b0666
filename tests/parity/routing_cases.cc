#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include <gtest/gtest.h>

#include "tests/parity/device_tensor.h"
#include "tests/parity/host_weights.h"
#include "tests/parity/parity.h"
#include "tests/parity/step_plan.h"

// Mixture-of-experts layers with other routers than plain softmax (RouterArgs), with biases, and
// with another gate (ExpertGate), on backends that have them.
namespace baton::parity {
namespace {

constexpr int32_t kExperts = 12;
constexpr int32_t kPerToken = 3;
// Whole rows of 128 bytes in bf16, and more than eight rows for an expert: on Hopper, wgmma.
constexpr int64_t kHidden = 64;
constexpr int64_t kWidth = 64;

struct Routing {
  RouterArgs args = {};
  bool normalize = true;
  bool biased = false;
  bool added = false;  // biases of the router and of experts
  ExpertGate gate = {};
};

// The variants of ops that a layer needs.
std::vector<OpVariant> VariantsOf(const Routing& routing) {
  std::vector<OpVariant> variants;
  if (routing.added) variants.push_back(OpVariant::kExpertBias);
  if (routing.gate.limit > 0) variants.push_back(OpVariant::kClampedGate);
  if (routing.gate.ungated) variants.push_back(OpVariant::kUngatedExperts);
  if (routing.args.weighted_inputs || routing.args.score == RouterScore::kSigmoidOfLogits) {
    variants.push_back(OpVariant::kWeightedInputs);
  }
  if (variants.empty()) variants.push_back(OpVariant::kRouting);
  return variants;
}

double Gated(double gate, double up, const ExpertGate& form) {
  if (form.ungated) return std::pow(std::max(up, 0.0), 2);
  if (form.limit == 0) return gate * up / (1 + std::exp(-gate));
  const double g = std::min<double>(gate, form.limit);
  const double u = std::clamp<double>(up, -form.limit, form.limit);
  return g / (1 + std::exp(-form.alpha * g)) * (u + 1);
}

// The weight of each expert for a row with these logits; 0: not chosen.
std::vector<double> WeightsOf(std::vector<double> scores,
                              const std::vector<float>& bias,
                              const Routing& routing) {
  const bool sigmoid = routing.args.score != RouterScore::kSoftmax;
  double all = 0;
  for (double& score : scores)
    all += score = sigmoid ? 1 / (1 + std::exp(-score)) : std::exp(score);
  for (double& score : scores) score /= sigmoid ? 1 : all;
  std::vector<double> choices = scores;
  for (size_t i = 0; routing.biased && i < choices.size(); ++i) choices[i] += bias[i];
  const auto best = [](const std::vector<double>& values) {
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return values[a] > values[b]; });
    return order;
  };
  const auto groups = static_cast<size_t>(routing.args.groups);
  const size_t size = choices.size() / groups;
  std::vector<double> of_groups;
  for (size_t group = 0; group < groups; ++group) {
    std::vector<double> part(choices.begin() + static_cast<ptrdiff_t>(group * size),
                             choices.begin() + static_cast<ptrdiff_t>((group + 1) * size));
    std::ranges::sort(part, std::greater<>());
    const bool one = routing.args.group_score == GroupScore::kBest;
    of_groups.push_back(one ? part[0] : part[0] + part[1]);
  }
  const auto kept = best(of_groups);
  for (size_t i = static_cast<size_t>(routing.args.groups_per_token); i < groups; ++i) {
    std::fill_n(choices.begin() + static_cast<ptrdiff_t>(kept[i] * size),
                size,
                -std::numeric_limits<double>::infinity());
  }
  auto order = best(choices);
  order.resize(kPerToken);
  double chosen = 0;
  for (const size_t expert : order) chosen += scores[expert];
  const double sum = routing.normalize ? std::max<double>(chosen, routing.args.least_sum) : 1;
  std::vector<double> weights(scores.size());
  for (const size_t expert : order) weights[expert] = scores[expert] / sum * routing.args.scale;
  return weights;
}

// W x + bias; an empty bias: none.
std::vector<double> Multiply(const HostWeights& w,
                             const std::vector<double>& x,
                             std::span<const float> bias = {}) {
  std::vector<double> y(bias.begin(), bias.end());
  y.resize(static_cast<size_t>(w.rows));
  for (size_t o = 0; o < y.size(); ++o) {
    for (size_t k = 0; k < x.size(); ++k) y[o] += w.values[o * x.size() + k] * x[k];
  }
  return y;
}

// The biases of a layer's router and experts, or none.
struct Biases {
  std::vector<float> router;
  std::vector<std::vector<float>> gate_up, down;
  std::unique_ptr<Vector> router_vector;
  std::vector<std::unique_ptr<Vector>> gate_up_vectors, down_vectors;

  // `gated`: whether the experts have gates.
  Biases(Ops& ops, bool are_there, bool gated) {
    if (!are_there) return;
    router = RandomFloats(kExperts, 240);
    router_vector = *ops.LoadVector(router);
    for (uint64_t e = 0; e < kExperts; ++e) {
      gate_up.push_back(RandomFloats(2 * kWidth, 241 + e));
      down.push_back(RandomFloats(kHidden, 261 + e));
      const std::span<const float> all = gate_up.back();
      gate_up_vectors.push_back(*ops.LoadVector(gated ? all : all.subspan(kWidth)));
      down_vectors.push_back(*ops.LoadVector(down[e]));
    }
  }

  std::span<const float> Gate(size_t expert) const { return Part(gate_up, expert, 0, kWidth); }
  std::span<const float> Up(size_t expert) const { return Part(gate_up, expert, kWidth, kWidth); }
  std::span<const float> Down(size_t expert) const { return Part(down, expert, 0, kHidden); }

 private:
  static std::span<const float> Part(const std::vector<std::vector<float>>& all,
                                     size_t expert,
                                     size_t first,
                                     size_t size) {
    if (all.empty()) return {};
    return std::span(all[expert]).subspan(first, size);
  }
};

void CheckRouting(Ops& ops, const Tolerance& tolerance, Routing routing) {
  const ModelShape shape = {.heads = {1, 1, 64},
                            .hidden = 64,
                            .vocabulary = 64,
                            .experts = kExperts,
                            .experts_per_token = kPerToken,
                            .expert_width = kWidth,
                            .variants = VariantsOf(routing)};
  if (!ops.CheckModel(shape).ok()) GTEST_SKIP() << "this backend has no such experts";
  const HostWeights router = HeldBy(ops, RandomWeights(DType::kF32, kExperts, kHidden, 170));
  const HostMatrix router_matrix = router.matrix();
  const auto loaded_router = *ops.LoadMatrix({&router_matrix, 1});
  std::vector<HostWeights> gates, ups, downs;
  std::vector<std::unique_ptr<Matrix>> gate_up, down;
  for (uint64_t e = 0; e < kExperts; ++e) {
    gates.push_back(HeldBy(ops, RandomWeights(DType::kF32, kWidth, kHidden, 171 + e)));
    ups.push_back(HeldBy(ops, RandomWeights(DType::kF32, kWidth, kHidden, 191 + e)));
    downs.push_back(HeldBy(ops, RandomWeights(DType::kF32, kHidden, kWidth, 211 + e)));
    const HostMatrix only_up = ups[e].matrix();
    gate_up.push_back(routing.gate.ungated ? *ops.LoadMatrix({&only_up, 1})
                                           : *ops.LoadGateUp(gates[e].matrix(), only_up));
    const HostMatrix matrix = downs[e].matrix();
    down.push_back(*ops.LoadMatrix({&matrix, 1}));
  }
  // Negative, so that experts of excluded groups would win if their scores became 0; and nearly the
  // same for all experts, so that rows choose different groups.
  auto bias = RandomFloats(kExperts, 231);
  for (float& value : bias) value = value * 0.05f - 3.0f;
  const auto vector = *ops.LoadVector(bias);
  if (routing.biased) routing.args.selection_bias = vector.get();
  const Biases biases(ops, routing.added, !routing.gate.ungated);
  constexpr int64_t kRows = 40;
  const auto given = RandomActivations(ops, kRows * kHidden, 232);
  const DeviceTensor x(ops, kRows, kHidden, given);
  const DeviceTensor out(ops, kRows, kHidden);
  const ExpertArgs args = {.router = loaded_router.get(),
                           .gate_up = gate_up,
                           .down = down,
                           .experts_per_token = kPerToken,
                           .normalize = routing.normalize,
                           .routing = routing.args,
                           .gate = routing.gate,
                           .router_bias = biases.router_vector.get(),
                           .gate_up_bias = biases.gate_up_vectors,
                           .down_bias = biases.down_vectors};
  InStep(ops, [&] { ops.Experts(x.view(), args, out.view()); });
  const auto got = out.Read();
  for (int64_t r = 0; r < kRows; ++r) {
    const std::vector<double> row(given.begin() + r * kHidden, given.begin() + (r + 1) * kHidden);
    auto weights = WeightsOf(Multiply(router, row, biases.router), bias, routing);
    std::vector<double> want(row.size());
    for (size_t e = 0; e < kExperts; ++e) {
      std::vector<double> input = row;
      const double weight =
          std::exchange(weights[e], routing.args.weighted_inputs ? 1 : weights[e]);
      for (double& value : input) value *= routing.args.weighted_inputs ? weight : 1;
      std::vector<double> hidden = Multiply(gates[e], input, biases.Gate(e));
      const std::vector<double> up = Multiply(ups[e], input, biases.Up(e));
      for (size_t k = 0; k < hidden.size(); ++k) {
        hidden[k] = Gated(hidden[k], up[k], routing.gate);
      }
      const std::vector<double> part = Multiply(downs[e], hidden, biases.Down(e));
      for (size_t k = 0; k < want.size(); ++k) want[k] += weights[e] * part[k];
    }
    double largest = 1;
    for (const double value : want) largest = std::max(largest, std::fabs(value));
    for (size_t k = 0; k < want.size(); ++k) {
      ASSERT_NEAR(got[static_cast<size_t>(r * kHidden) + k],
                  want[k],
                  (tolerance.product * 200 + 4 * tolerance.stored) * largest)
          << "row " << r;
    }
  }
}

}  // namespace

std::vector<Case> RoutingCases() {
  using enum RouterScore;
  const std::vector<std::pair<std::string, Routing>> all = {
      {"Sigmoid", {.args = {.score = kSigmoid}}},
      {"SigmoidPlain", {.args = {.score = kSigmoid}, .normalize = false}},
      {"SigmoidBias", {.args = {.score = kSigmoid, .scale = 2.5f}, .biased = true}},
      {"SoftmaxScale", {.args = {.scale = 16}, .normalize = false}},
      {"SoftmaxBias", {.biased = true}},
      {"SoftmaxLeastSum", {.args = {.least_sum = 0.6f}, .biased = true}},
      {"WeightedInputs",
       {.args = {.score = kSigmoidOfLogits, .weighted_inputs = true}, .normalize = false}},
      {"SigmoidOfLogits", {.args = {.score = kSigmoidOfLogits}}},
      {"Groups", {.args = {.score = kSigmoid, .groups = 4, .groups_per_token = 2}, .biased = true}},
      {"GroupsByBest",
       {.args = {.scale = 3, .groups = 4, .groups_per_token = 2, .group_score = GroupScore::kBest},
        .normalize = false}},
      {"OneGroup",
       {.args = {.score = kSigmoid, .groups = 3, .groups_per_token = 1}, .biased = true}},
      {"Biases", {.added = true}},
      {"ClampedGate", {.gate = {.limit = 0.5f, .alpha = 1.7f}}},
      {"ClampedGateAndBiases", {.added = true, .gate = {.limit = 1.5f, .alpha = 1.7f}}},
      {"Ungated", {.args = {.score = kSigmoid}, .biased = true, .gate = {.ungated = true}}},
      {"UngatedWithBiases", {.added = true, .gate = {.ungated = true}}},
  };
  std::vector<Case> cases;
  for (const auto& [name, routing] : all) {
    cases.push_back({"Routing_" + name, [routing = routing](Ops& ops, const Tolerance& tolerance) {
                       CheckRouting(ops, tolerance, routing);
                     }});
  }
  return cases;
}

}  // namespace baton::parity
