#include "kernels/cpu/rope_table.h"

namespace baton::cpu {
namespace {

struct SineCosine {
  double sine;
  double cosine;
};

// For |x| up to 2²⁴. Uses only multiplications and additions, so IEEE 754 defines every bit of the
// result.
SineCosine SinCos(double x) {
  constexpr double kTwoOverPi = 0.63661977236758134308;
  // π/2 in three parts (from fdlibm). The first two have 33 bits, so their products with n are
  // exact.
  constexpr double kPart1 = 1.57079632673412561417e+00;
  constexpr double kPart2 = 6.07710050630396597660e-11;
  constexpr double kPart3 = 2.02226624879595063154e-21;
  constexpr double kMagic = 6755399441055744.0;  // 1.5·2⁵²: adding it rounds to an integer
  const double n = (x * kTwoOverPi + kMagic) - kMagic;
  const double r = ((x - n * kPart1) - n * kPart2) - n * kPart3;
  const double z = r * r;
  // Taylor series: |r| ≤ π/4, so the first omitted terms are below 2⁻⁵³.
  double sine = -1.0 / 1307674368000.0;
  for (const double term : {1.0 / 6227020800.0,
                            -1.0 / 39916800.0,
                            1.0 / 362880.0,
                            -1.0 / 5040.0,
                            1.0 / 120.0,
                            -1.0 / 6.0,
                            1.0}) {
    sine = sine * z + term;
  }
  sine = sine * r;
  double cosine = 1.0 / 20922789888000.0;
  for (const double term : {-1.0 / 87178291200.0,
                            1.0 / 479001600.0,
                            -1.0 / 3628800.0,
                            1.0 / 40320.0,
                            -1.0 / 720.0,
                            1.0 / 24.0,
                            -0.5,
                            1.0}) {
    cosine = cosine * z + term;
  }
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

}  // namespace

RopeTables::View RopeTables::Get(const Vector& frequencies,
                                 std::span<const float> values,
                                 float magnitude,
                                 std::span<const int32_t> positions) {
  const size_t half = values.size();
  for (size_t i = 0; i < used_; ++i) {
    const Table& table = tables_[i];
    if (table.frequencies == &frequencies && table.magnitude == magnitude) {
      return {table.cos.data(), table.sin.data(), static_cast<int64_t>(half)};
    }
  }
  if (used_ == tables_.size()) tables_.emplace_back();
  Table& table = tables_[used_++];
  table.frequencies = &frequencies;
  table.magnitude = magnitude;
  table.cos.resize(positions.size() * half);
  table.sin.resize(positions.size() * half);
  for (size_t row = 0; row < positions.size(); ++row) {
    for (size_t i = 0; i < half; ++i) {
      const SineCosine angle =
          SinCos(static_cast<double>(positions[row]) * static_cast<double>(values[i]));
      table.cos[row * half + i] = static_cast<float>(angle.cosine) * magnitude;
      table.sin[row * half + i] = static_cast<float>(angle.sine) * magnitude;
    }
  }
  return {table.cos.data(), table.sin.data(), static_cast<int64_t>(half)};
}

}  // namespace baton::cpu
