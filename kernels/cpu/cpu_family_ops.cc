#include "kernels/cpu/cpu_family_ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "common/base/check.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/for_rows.h"

namespace baton::cpu {
namespace {

// Σ term(i) for i < size, always in the same order: 16 sums, which the compiler may keep in
// vectors, and then these one after the other.
template <class Term>
double SumOf(int64_t size, const Term& term) {
  constexpr int64_t kSums = 16;
  std::array<double, kSums> sums = {};
  int64_t i = 0;
  for (; i + kSums <= size; i += kSums) {
    for (int64_t j = 0; j < kSums; ++j) sums[static_cast<size_t>(j)] += term(i + j);
  }
  for (; i < size; ++i) sums[static_cast<size_t>(i % kSums)] += term(i);
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

double SquareOf(float x) {
  return double{x} * x;
}

// out = LayerNorm(x), where `bias` may be null and `out` may be `x`.
void NormRow(const float* x,
             const float* weight,
             const float* bias,
             float epsilon,
             int64_t size,
             float* out) {
  const auto count = static_cast<double>(size);
  const double mean = SumOf(size, [x](int64_t i) { return double{x[i]}; }) / count;
  const double variance = SumOf(size,
                                [x, mean](int64_t i) {
                                  const double from_mean = x[i] - mean;
                                  return from_mean * from_mean;
                                }) /
                          count;
  const double scale = 1.0 / std::sqrt(variance + double{epsilon});
  for (int64_t i = 0; i < size; ++i) {
    const double added = bias == nullptr ? 0.0 : double{bias[i]};
    out[i] = static_cast<float>((x[i] - mean) * scale * weight[i] + added);
  }
}

// √(2/π), and the coefficients of erf (Abramowitz and Stegun 7.1.26, error at most 1.5e-7).
constexpr double kRootTwoOverPi = 0.79788456080286535588;
constexpr double kRootHalf = 0.70710678118654752440;
constexpr double kErfP = 0.3275911;
constexpr double kErf[] = {1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592};

// `power` is e^(−x²/2).
double Gelu(double x, double power) {
  const double t = 1.0 / (1.0 + kErfP * std::fabs(x) * kRootHalf);
  double polynomial = 0;
  for (const double coefficient : kErf) polynomial = polynomial * t + coefficient;
  const double tail = 0.5 * polynomial * t * power;  // Φ(−|x|)
  return x * (x < 0 ? tail : 1.0 - tail);
}

// The exponent whose power an activation needs. Tanh is 1 − 2 / (1 + e^(2u)).
float Exponent(float x, Activation activation) {
  const double value = x;
  if (activation == Activation::kSilu) return -x;
  if (activation == Activation::kGelu) return static_cast<float>(-0.5 * value * value);
  const double u = kRootTwoOverPi * (value + 0.044715 * value * value * value);
  return static_cast<float>(-2.0 * u);
}

// Calls body(head, first column) for the heads of q and then of k.
template <class Body>
void ForHeads(const HeadShape& heads, const Body& body) {
  for (int32_t head = 0; head < heads.q_heads + heads.kv_heads; ++head) {
    body(head, int64_t{head} * heads.head_dim);
  }
}

}  // namespace

void CpuFamilyOps::Scale(const Tensor& x, float factor) {
  ForRows(pool_, x.rows, x.cols / 4, [&](int64_t row) {
    float* const values = FloatRow(x, row);
    for (int64_t i = 0; i < x.cols; ++i) values[i] *= factor;
  });
}

void CpuFamilyOps::LayerNorm(const Tensor& x,
                             const Vector& weight,
                             float epsilon,
                             const Tensor& out) {
  const bool has_bias = weight.size() == 2 * x.cols;
  BATON_CHECK((has_bias || weight.size() == x.cols) && x.cols == out.cols,
              "norm of {} with a weight of {}",
              x.cols,
              weight.size());
  const float* const bias = has_bias ? HostData(weight) + x.cols : nullptr;
  ForRows(pool_, x.rows, x.cols, [&](int64_t row) {
    NormRow(FloatRow(x, row), HostData(weight), bias, epsilon, x.cols, FloatRow(out, row));
  });
}

template <class ExponentOf, class Make>
void CpuFamilyOps::WithPowers(const Tensor& x, const ExponentOf& exponent, const Make& make) {
  ForRows(pool_, x.rows, x.cols * 4, [&](int64_t row) {
    constexpr int64_t kPart = 64;
    std::array<float, kPart> powers;
    float* const values = FloatRow(x, row);
    for (int64_t first = 0; first < x.cols; first += kPart) {
      const int64_t count = std::min(kPart, x.cols - first);
      float* const part = values + first;
      for (int64_t i = 0; i < count; ++i) powers[static_cast<size_t>(i)] = exponent(part[i]);
      kernels_.exp_sum(powers.data(), count, 1.0f, 0.0f);
      for (int64_t i = 0; i < count; ++i) {
        part[i] = static_cast<float>(make(double{part[i]}, double{powers[static_cast<size_t>(i)]}));
      }
    }
  });
}

void CpuFamilyOps::Activate(const Tensor& x, Activation activation, float scale) {
  if (activation == Activation::kSquaredRelu) {
    ForRows(pool_, x.rows, x.cols / 4, [&](int64_t row) {
      float* const values = FloatRow(x, row);
      for (int64_t i = 0; i < x.cols; ++i) {
        const float positive = std::max(values[i] * scale, 0.0f);
        values[i] = positive * positive;
      }
    });
    return;
  }
  const auto scaled = [scale](double value) { return static_cast<float>(value) * scale; };
  WithPowers(
      x,
      [&](float value) { return Exponent(scaled(value), activation); },
      [&](double value, double power) {
        const double from = scaled(value);
        return activation == Activation::kGelu ? Gelu(from, power) : from / (1.0 + power);
      });
}

// The exponent is not positive, so that no power overflows.
void CpuFamilyOps::SoftCap(const Tensor& x, float cap) {
  WithPowers(
      x,
      [cap](float value) { return -2.0f * std::fabs(value) / cap; },
      [cap](double value, double power) {
        if (std::isnan(value)) return value;
        return std::copysign(cap * (1.0 - power) / (1.0 + power), value);
      });
}

void CpuFamilyOps::Multiply(const Tensor& x, const Tensor& factors) {
  BATON_CHECK(factors.cols == x.cols && factors.rows == x.rows,
              "factors of [{}][{}]",
              factors.rows,
              factors.cols);
  ForRows(pool_, x.rows, x.cols / 4, [&](int64_t row) {
    float* const values = FloatRow(x, row);
    const float* const by = FloatRow(factors, row);
    for (int64_t i = 0; i < x.cols; ++i) values[i] *= by[i];
  });
}

void CpuFamilyOps::MulSigmoid(const Tensor& x, const Tensor& gate) {
  BATON_CHECK((gate.cols == 1 || gate.cols == x.cols) && gate.rows == x.rows,
              "a gate of [{}][{}] for [{}][{}]",
              gate.rows,
              gate.cols,
              x.rows,
              x.cols);
  const auto replace_by_sigmoids = [this](float* gates, int64_t count) {
    kernels_.exp_sum(gates, count, -1.0f, 0.0f);
    for (int64_t i = 0; i < count; ++i) gates[i] = 1.0f / (1.0f + gates[i]);
  };
  if (gate.cols == 1) {
    ForRows(pool_, x.rows, x.cols / 4, [&](int64_t row) {
      float factor = FloatRow(gate, row)[0];
      replace_by_sigmoids(&factor, 1);
      float* const values = FloatRow(x, row);
      for (int64_t i = 0; i < x.cols; ++i) values[i] *= factor;
    });
    return;
  }
  ForRows(pool_, x.rows, x.cols * 4, [&](int64_t row) {
    constexpr int64_t kPart = 64;
    std::array<float, kPart> factors;
    for (int64_t first = 0; first < x.cols; first += kPart) {
      const int64_t count = std::min(kPart, x.cols - first);
      std::copy_n(FloatRow(gate, row) + first, count, factors.begin());
      replace_by_sigmoids(factors.data(), count);
      float* const values = FloatRow(x, row) + first;
      for (int64_t i = 0; i < count; ++i) values[i] *= factors[static_cast<size_t>(i)];
    }
  });
}

void CpuFamilyOps::HeadSquares(const Tensor& qkv,
                               const HeadShape& heads,
                               const HeadPlace& place,
                               const Tensor& out) {
  BATON_CHECK(out.cols == place.model.q_heads + place.model.kv_heads, "squares of {}", out.cols);
  ForRows(pool_, qkv.rows, qkv.cols, [&](int64_t row) {
    const float* const values = FloatRow(qkv, row);
    float* const sums = FloatRow(out, row);
    std::fill_n(sums, out.cols, -0.0f);
    ForHeads(heads, [&](int32_t head, int64_t first) {
      const bool is_q = head < heads.q_heads;
      if (!is_q && !place.owns_kv_heads) return;
      const float* const x = values + first;
      const double sum = SumOf(heads.head_dim, [x](int64_t i) { return SquareOf(x[i]); });
      const int32_t at = is_q ? place.first_q_head + head
                              : place.model.q_heads + place.first_kv_head + head - heads.q_heads;
      sums[at] = static_cast<float>(sum);
    });
  });
}

void CpuFamilyOps::NormProjections(const Tensor& qkv,
                                   const Tensor& squares,
                                   const HeadShape& heads,
                                   const HeadPlace& place,
                                   const Vector& weight,
                                   float epsilon) {
  const int64_t q_cols = int64_t{heads.q_heads} * heads.head_dim;
  BATON_CHECK(weight.size() == q_cols + int64_t{heads.kv_heads} * heads.head_dim,
              "norm of projections with a weight of {}",
              weight.size());
  ForRows(pool_, qkv.rows, weight.size() / 4, [&](int64_t row) {
    const float* const sums = FloatRow(squares, row);
    const auto scale_of = [&](int32_t first, int32_t count) {
      double sum = 0;
      for (int32_t head = 0; head < count; ++head) sum += sums[first + head];
      const double size = double{1} * count * heads.head_dim;
      return static_cast<float>(1.0 / std::sqrt(sum / size + double{epsilon}));
    };
    const float q_scale = scale_of(0, place.model.q_heads);
    const float k_scale = scale_of(place.model.q_heads, place.model.kv_heads);
    float* const values = FloatRow(qkv, row);
    const float* const factors = HostData(weight);
    for (int64_t i = 0; i < weight.size(); ++i) {
      values[i] = values[i] * (i < q_cols ? q_scale : k_scale) * factors[i];
    }
  });
}

void CpuFamilyOps::HeadLayerNorm(const Tensor& qkv,
                                 const HeadShape& heads,
                                 const Vector& weight,
                                 float epsilon) {
  BATON_CHECK(weight.size() == int64_t{heads.q_heads + heads.kv_heads} * heads.head_dim,
              "norm of heads with a weight of {}",
              weight.size());
  ForRows(pool_, qkv.rows, weight.size(), [&](int64_t row) {
    float* const values = FloatRow(qkv, row);
    ForHeads(heads, [&](int32_t, int64_t first) {
      float* const head = values + first;
      NormRow(head, HostData(weight) + first, nullptr, epsilon, heads.head_dim, head);
    });
  });
}

}  // namespace baton::cpu
