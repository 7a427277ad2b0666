#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/parity/device_tensor.h"
#include "tests/parity/group_weights.h"
#include "tests/parity/host_weights.h"
#include "tests/parity/parity.h"
#include "tests/parity/step_plan.h"

// Mixture-of-experts layers. Backends choose their kernels by the number of rows per expert.
namespace baton::parity {
namespace {

std::vector<double> Multiply(const HostWeights& w, const std::vector<double>& x) {
  std::vector<double> y(static_cast<size_t>(w.rows));
  for (size_t o = 0; o < y.size(); ++o) {
    for (size_t k = 0; k < x.size(); ++k) y[o] += w.values[o * x.size() + k] * x[k];
  }
  return y;
}

struct HostExperts {
  HostWeights router;
  std::vector<HostWeights> gate, up, down;
};

std::vector<double> Mixture(const HostExperts& experts,
                            const std::vector<double>& x,
                            size_t chosen,
                            bool normalize) {
  std::vector<double> scores = Multiply(experts.router, x);
  const double maximum = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - maximum);
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(
      order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  if (normalize) {
    sum = 0;
    for (size_t i = 0; i < chosen; ++i) sum += scores[order[i]];
  }
  std::vector<double> out(x.size());
  for (size_t i = 0; i < chosen; ++i) {
    const size_t e = order[i];
    std::vector<double> hidden = Multiply(experts.gate[e], x);
    const std::vector<double> up = Multiply(experts.up[e], x);
    for (size_t k = 0; k < hidden.size(); ++k) hidden[k] *= up[k] / (1 + std::exp(-hidden[k]));
    const std::vector<double> down = Multiply(experts.down[e], hidden);
    for (size_t k = 0; k < out.size(); ++k) out[k] += scores[e] / sum * down[k];
  }
  return out;
}

struct ExpertShape {
  size_t experts = 6;
  int32_t per_token = 2;
  int64_t hidden = 64;
  int64_t width = 96;
  int64_t rows = 9;
  // Experts in groups of this size have the same scores; the first ones of a group are chosen.
  size_t equal_scores = 1;
  float first_router_weight = 0;  // of every expert, unless 0
};

void SetWeight(HostWeights& weights, size_t at, float value) {
  std::memcpy(weights.bytes.data() + at * sizeof(float), &value, sizeof(float));
  weights.values[at] = value;
}

// A layer's weights on the host and in the backend.
struct Layer {
  HostExperts host;
  std::unique_ptr<Matrix> router;
  std::vector<std::unique_ptr<Matrix>> gate_up;
  std::vector<std::unique_ptr<Matrix>> down;

  Layer(Ops& ops, DType dtype, const ExpertShape& shape)
      : Layer(ops, shape, [=](int64_t rows, int64_t cols, uint64_t seed) {
          return RandomWeights(dtype, rows, cols, seed);
        }) {}
  Layer(Ops& ops, const GroupForm& form, const ExpertShape& shape)
      : Layer(ops, shape, [&](int64_t rows, int64_t cols, uint64_t seed) {
          HostWeights weights = RandomGroupWeights(form, rows, cols, seed);
          weights.use = WeightUse::kExperts;
          return weights;
        }) {}
  // `weights(rows, cols, seed)` draws a matrix of an expert.
  template <class Weights>
  Layer(Ops& ops, const ExpertShape& shape, const Weights& weights) {
    const auto hidden = static_cast<size_t>(shape.hidden);
    HostWeights scores =
        RandomWeights(DType::kF32, static_cast<int64_t>(shape.experts), shape.hidden, 70);
    for (size_t e = 0; e < shape.experts; ++e) {
      if (shape.first_router_weight != 0) SetWeight(scores, e * hidden, shape.first_router_weight);
      const size_t like = e / shape.equal_scores * shape.equal_scores;
      for (size_t k = 0; k < hidden; ++k) {
        SetWeight(scores, e * hidden + k, scores.values[like * hidden + k]);
      }
    }
    host.router = HeldBy(ops, std::move(scores));
    const HostMatrix router_matrix = host.router.matrix();
    router = *ops.LoadMatrix({&router_matrix, 1});
    for (size_t e = 0; e < shape.experts; ++e) {
      host.gate.push_back(HeldBy(ops, weights(shape.width, shape.hidden, 71 + e)));
      host.up.push_back(HeldBy(ops, weights(shape.width, shape.hidden, 81 + e)));
      host.down.push_back(HeldBy(ops, weights(shape.hidden, shape.width, 91 + e)));
      gate_up.push_back(*ops.LoadGateUp(host.gate[e].matrix(), host.up[e].matrix()));
      const HostMatrix matrix = host.down[e].matrix();
      down.push_back(*ops.LoadMatrix({&matrix, 1}));
    }
  }
  ExpertArgs Args(const ExpertShape& shape, bool normalize) const {
    return {router.get(), gate_up, down, shape.per_token, normalize};
  }
};

// The layer's output for rows `x`.
std::vector<float> Compute(Ops& ops,
                           const Layer& layer,
                           const ExpertShape& shape,
                           bool normalize,
                           const std::vector<float>& x) {
  const DeviceTensor in(ops, shape.rows, shape.hidden, x);
  const DeviceTensor out(ops, shape.rows, shape.hidden);
  InStep(ops, [&] { ops.Experts(in.view(), layer.Args(shape, normalize), out.view()); });
  return out.Read();
}

std::vector<float> ExpertInputs(const Ops& ops, const ExpertShape& shape) {
  auto x = RandomActivations(ops, static_cast<size_t>(shape.rows * shape.hidden), 72);
  if (shape.first_router_weight != 0) {
    for (size_t i = 0; i < x.size(); i += static_cast<size_t>(shape.hidden)) x[i] = 1;
  }
  return x;
}

// `kind`: the type of the weights, or the form of their groups.
template <class Kind>
void CheckExperts(Ops& ops,
                  const Tolerance& tolerance,
                  const Kind& kind,
                  bool normalize,
                  const ExpertShape& shape) {
  const Layer layer(ops, kind, shape);
  const auto given = ExpertInputs(ops, shape);
  const auto got = Compute(ops, layer, shape, normalize, given);
  for (int64_t r = 0; r < shape.rows; ++r) {
    const std::vector<double> row(given.begin() + r * shape.hidden,
                                  given.begin() + (r + 1) * shape.hidden);
    const auto want = Mixture(layer.host, row, static_cast<size_t>(shape.per_token), normalize);
    // Three GEMMs in sequence: terms that cancel lose relative precision.
    double largest = 1;
    for (const double value : want) largest = std::max(largest, std::fabs(value));
    for (size_t k = 0; k < want.size(); ++k) {
      ASSERT_NEAR(got[static_cast<size_t>(r * shape.hidden) + k],
                  want[k],
                  (tolerance.product * 200 + 4 * tolerance.stored) * largest)
          << "row " << r;
    }
  }
}

// A row's bits do not depend on its place among the rows.
void CheckPlaces(Ops& ops, const ExpertShape& shape) {
  const Layer layer(ops, DType::kBF16, shape);
  const auto x = ExpertInputs(ops, shape);
  const auto got = Compute(ops, layer, shape, true, x);
  const auto turn = [&](std::vector<float> values) {
    std::rotate(values.begin(), values.begin() + shape.rows / 3 * shape.hidden, values.end());
    return values;
  };
  const auto want = turn(got);
  const auto turned = Compute(ops, layer, shape, true, turn(x));
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(turned[i]), std::bit_cast<uint32_t>(want[i]))
        << "element " << i << " is " << turned[i] << " and " << want[i];
  }
}

// A backend may add up the experts' results in the norm that follows. That changes no bit.
void CheckNormAfterwards(Ops& ops, const ExpertShape& shape) {
  const Layer layer(ops, DType::kBF16, shape);
  const auto count = static_cast<size_t>(shape.rows * shape.hidden);
  const auto norm = *ops.LoadVector(RandomFloats(static_cast<size_t>(shape.hidden), 73));
  const auto before = RandomFloats(count, 74, 3.0f);
  const DeviceTensor x(ops, shape.rows, shape.hidden, ExpertInputs(ops, shape));
  const DeviceTensor delta(ops, shape.rows, shape.hidden);
  const auto run = [&](bool in_one_step) {
    DeviceTensor residual(ops, DType::kF32, shape.rows, shape.hidden);
    residual.Write(before);
    const DeviceTensor out(ops, shape.rows, shape.hidden);
    const auto experts = [&] { ops.Experts(x.view(), layer.Args(shape, true), delta.view()); };
    const auto add = [&] {
      ops.AddRmsNorm(residual.view(), delta.view(), *norm, 1e-5f, out.view());
    };
    if (in_one_step) {
      InStep(ops, [&] {
        experts();
        add();
      });
    } else {
      InStep(ops, experts);
      InStep(ops, add);
    }
    return std::pair(residual.Read(), out.Read());
  };
  const auto apart = run(false);
  const auto together = run(true);
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(together.first[i]), std::bit_cast<uint32_t>(apart.first[i]))
        << "number " << i << " of the residual";
    ASSERT_EQ(std::bit_cast<uint32_t>(together.second[i]), std::bit_cast<uint32_t>(apart.second[i]))
        << "number " << i << " of the norm";
  }
}

// A backend may compute the norm before the experts together with their scores, and add their
// result to the residual.
void CheckNormBefore(Ops& ops, const Tolerance& tolerance, const ExpertShape& shape) {
  const Layer layer(ops, DType::kBF16, shape);
  const auto count = static_cast<size_t>(shape.rows * shape.hidden);
  const auto norm = *ops.LoadVector(RandomFloats(static_cast<size_t>(shape.hidden), 75));
  const auto before = RandomFloats(count, 76, 3.0f);
  const DeviceTensor more(ops, shape.rows, shape.hidden, ExpertInputs(ops, shape));
  const auto run = [&](bool in_one_step) {
    DeviceTensor residual(ops, DType::kF32, shape.rows, shape.hidden);
    residual.Write(before);
    const DeviceTensor x(ops, shape.rows, shape.hidden);
    const DeviceTensor delta(ops, shape.rows, shape.hidden);
    const auto add = [&](const DeviceTensor& from) {
      ops.AddRmsNorm(residual.view(), from.view(), *norm, 1e-5f, x.view());
    };
    const auto experts = [&] { ops.Experts(x.view(), layer.Args(shape, true), delta.view()); };
    InStep(ops, [&] { add(more); });
    if (in_one_step) {
      InStep(ops, [&] {
        ops.RmsNorm(residual.view(), *norm, 1e-5f, x.view());
        experts();
        add(delta);
      });
    } else {
      InStep(ops, [&] { ops.RmsNorm(residual.view(), *norm, 1e-5f, x.view()); });
      InStep(ops, experts);
      InStep(ops, [&] { add(delta); });
    }
    return std::pair(residual.Read(), x.Read());
  };
  const auto apart = run(false);
  const auto together = run(true);
  const double error = tolerance.product * 200 + 4 * tolerance.stored;
  for (size_t i = 0; i < count; ++i) {
    ASSERT_NEAR(together.first[i], apart.first[i], error * 4)
        << "number " << i << " of the residual";
    ASSERT_NEAR(together.second[i], apart.second[i], error * 4) << "number " << i << " of the norm";
  }
}

void AddQuantizedExperts(std::vector<Case>& cases) {
  for (const GroupForm& form : GroupForms()) {
    for (const ExpertShape& shape : {ExpertShape{8, 2, 192, 128, 5},
                                     ExpertShape{4, 2, 200, 64, 1},
                                     ExpertShape{4, 2, 320, 192, 170}}) {
      cases.push_back(
          {fmt::format("Experts_{}_{}x{}_m{}", form.name, shape.width, shape.hidden, shape.rows),
           [=](Ops& ops, const Tolerance& tolerance) {
             CheckExperts(ops, tolerance, form, true, shape);
           }});
    }
  }
}

}  // namespace

std::vector<Case> ExpertCases() {
  std::vector<Case> cases;
  for (const DType dtype : {DType::kF32, DType::kQ8_0}) {
    for (const bool normalize : {false, true}) {
      cases.push_back(
          {fmt::format("Experts_{}_{}", Name(dtype), normalize ? "normalized" : "plain"),
           [=](Ops& ops, const Tolerance& tolerance) {
             CheckExperts(ops, tolerance, dtype, normalize, ExpertShape{});
           }});
    }
  }
  for (const ExpertShape& shape :
       {ExpertShape{.rows = 1},
        ExpertShape{8, 1, 40, 24, 5},
        ExpertShape{4, 4, 72, 136, 3},
        ExpertShape{16, 4, 128, 48, 170},
        ExpertShape{128, 8, 64, 32, 33},
        // Few rows of many inputs.
        ExpertShape{4, 2, 2120, 16, 2},
        // Few rows: small matrices, rows that share experts, many outputs, and many experts.
        ExpertShape{8, 2, 64, 64, 1},
        ExpertShape{4, 3, 576, 192, 8},
        ExpertShape{4, 2, 2176, 64, 3},
        ExpertShape{160, 8, 128, 320, 7},
        // Many rows per expert: tails of every dimension of a tile,
        ExpertShape{8, 2, 128, 192, 300},
        ExpertShape{4, 2, 320, 64, 700},
        // one expert with all rows,
        ExpertShape{1, 1, 64, 64, 400},
        // experts without rows,
        ExpertShape{12, 1, 192, 128, 500, 3},
        // and more rows than are computed at once.
        ExpertShape{4, 2, 64, 64, 8300},
        ExpertShape{8, 2, 64, 64, 70, 1, -400.0f}}) {
    cases.push_back({fmt::format("Experts_{}_of_{}_{}x{}_m{}{}{}",
                                 shape.per_token,
                                 shape.experts,
                                 shape.width,
                                 shape.hidden,
                                 shape.rows,
                                 shape.equal_scores > 1 ? "_equal_scores" : "",
                                 shape.first_router_weight < 0 ? "_low_scores" : ""),
                     [=](Ops& ops, const Tolerance& tolerance) {
                       CheckExperts(ops, tolerance, DType::kBF16, true, shape);
                     }});
  }
  AddQuantizedExperts(cases);
  cases.push_back({"Experts_places", [](Ops& ops, const Tolerance&) {
                     CheckPlaces(ops, ExpertShape{8, 2, 128, 192, 600});
                   }});
  // The last one has more rows than are computed at once.
  for (const ExpertShape& shape : {ExpertShape{.rows = 1},
                                   ExpertShape{8, 2, 128, 64, 5},
                                   ExpertShape{16, 10, 128, 48, 170},
                                   ExpertShape{8, 2, 128, 192, 600},
                                   ExpertShape{4, 2, 64, 64, 8300}}) {
    cases.push_back(
        {fmt::format(
             "Experts_{}_of_{}_before_a_norm_m{}", shape.per_token, shape.experts, shape.rows),
         [=](Ops& ops, const Tolerance&) { CheckNormAfterwards(ops, shape); }});
  }
  for (const ExpertShape& shape : {ExpertShape{8, 2, 128, 192, 1},
                                   ExpertShape{16, 4, 192, 64, 3},
                                   ExpertShape{8, 2, 320, 64, 8}}) {
    cases.push_back(
        {fmt::format(
             "Experts_{}_of_{}_between_norms_m{}", shape.per_token, shape.experts, shape.rows),
         [=](Ops& ops, const Tolerance& tolerance) { CheckNormBefore(ops, tolerance, shape); }});
  }
  return cases;
}

}  // namespace baton::parity
