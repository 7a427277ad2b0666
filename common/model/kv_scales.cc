#include "common/model/kv_scales.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/dequantize.h"

namespace baton {
namespace {

constexpr double kLargestFp8 = 448;

// ‖row ∘ norm‖ of each row of `matrix`; an upper bound when the matrix has no data (dummy weights).
std::vector<double> NormsOf(const HostMatrix& matrix, std::span<const float> norm) {
  const auto cols = static_cast<size_t>(matrix.cols);
  std::vector<double> norms(static_cast<size_t>(matrix.rows));
  std::vector<float> values(cols, matrix.scale);
  for (size_t row = 0; row < norms.size(); ++row) {
    if (matrix.data != nullptr) DequantizeRow(matrix, static_cast<int64_t>(row), values);
    double squares = 0;
    for (size_t i = 0; i < cols; ++i) {
      const double value = static_cast<double>(values[i]) * norm[i];
      squares += value * value;
    }
    norms[row] = std::sqrt(squares);
  }
  return norms;
}

float ScaleOf(double largest) {
  if (!(largest > 0) || !std::isfinite(largest)) return 1.0f;
  return static_cast<float>(std::exp2(std::ceil(std::log2(largest / kLargestFp8))));
}

}  // namespace

StatusOr<std::vector<float>> ComputeKvScales(const ModelSpec& spec,
                                             const WeightSource& source,
                                             int32_t layer,
                                             float rope_magnitude,
                                             const std::optional<IndexRange>& kv_heads) {
  const auto id = [layer](WeightKind kind) { return WeightId{kind, layer, -1}; };
  const int64_t rows = int64_t{spec.kv_heads} * spec.head_dim;
  const std::optional<IndexRange> wanted = RowsOfHeads(kv_heads, spec.head_dim);
  BATON_ASSIGN_OR_RETURN(const auto norm,
                         source.GetVector(id(WeightKind::kAttentionNorm), spec.hidden));
  // The largest possible magnitude of each output.
  const auto largest = [&](WeightKind weight, WeightKind bias) -> StatusOr<std::vector<double>> {
    BATON_ASSIGN_OR_RETURN(const HostMatrix matrix,
                           source.GetMatrix(id(weight), rows, spec.hidden, {.rows = wanted}));
    std::vector<double> bounds = NormsOf(matrix, norm);
    for (double& bound : bounds) bound *= std::sqrt(static_cast<double>(spec.hidden));
    if (spec.qkv_bias) {
      BATON_ASSIGN_OR_RETURN(const auto more, source.GetVector(id(bias), rows, wanted));
      for (size_t i = 0; i < bounds.size(); ++i) bounds[i] += std::fabs(more[i]);
    }
    return bounds;
  };
  BATON_ASSIGN_OR_RETURN(auto keys, largest(WeightKind::kKey, WeightKind::kKeyBias));
  BATON_ASSIGN_OR_RETURN(const auto values, largest(WeightKind::kValue, WeightKind::kValueBias));
  if (spec.qk_norm != QkNorm::kNone) {
    std::vector<float> k_norm(1, 1.0f);
    if (spec.qk_norm != QkNorm::kUnitAfterRope) {
      BATON_ASSIGN_OR_RETURN(k_norm, source.GetVector(id(WeightKind::kKeyNorm), spec.head_dim));
    }
    for (size_t i = 0; i < keys.size(); ++i) {
      keys[i] =
          std::sqrt(static_cast<double>(spec.head_dim)) * std::fabs(k_norm[i % k_norm.size()]);
    }
  }
  std::vector<float> scales;
  const auto add = [&](const std::vector<double>& bounds, double factor) {
    const auto dim = static_cast<ptrdiff_t>(spec.head_dim);
    for (auto head = bounds.begin(); head != bounds.end(); head += dim) {
      scales.push_back(ScaleOf(*std::max_element(head, head + dim) * factor));
    }
  };
  add(keys, std::sqrt(2.0) * rope_magnitude);
  add(values, 1.0);
  return scales;
}

}  // namespace baton
