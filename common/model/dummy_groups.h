#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "common/model/quantization_config.h"
#include "common/model/weight_kind.h"
#include "kernels/tensor.h"

namespace baton {

// Random quantised weights for DummyWeights: those of the first scheme of a quantization_config.
// Numbers are random bits; matrices of one type share them. A group has all outputs, and all groups
// have a scale with which a GEMM about keeps the scale of its input. Thread-safe.
class DummyGroups final {
 public:
  DummyGroups(const QuantizationConfig& config, uint64_t seed);

  // Whether weights of this kind are quantised: the linear layers but the head and the router; of
  // MXFP4, which gpt-oss has, those of experts.
  bool Quantizes(WeightKind kind) const;
  // [rows][cols]. The numbers and the scales live as long as this.
  HostMatrix Matrix(int64_t rows, int64_t cols) const;

 private:
  const float* ScalesFor(float scale, int64_t groups) const;
  const std::byte* NumbersFor(size_t bytes) const;

  const QuantMethod method_;
  const WeightScheme scheme_;
  const uint64_t seed_;
  mutable std::mutex mutex_;
  mutable std::map<float, std::vector<std::vector<float>>> scales_;  // by value
  mutable std::vector<std::vector<std::byte>> numbers_;              // the last ones are the most
};

}  // namespace baton
