#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/tensor.h"

namespace baton::cpu {

// Sines and cosines for the positions of a step, computed once for all layers that share
// frequencies. They are not computed by the C library, so that the bits are equal on every machine.
class RopeTables final {
 public:
  struct View {
    const float* cos = nullptr;  // [rows][half]
    const float* sin = nullptr;
    int64_t half = 0;
  };

  // Discards the tables of the last step.
  void Clear() { used_ = 0; }
  // cos and sin of position · frequency, times `magnitude`. The view is valid until Clear.
  View Get(const Vector& frequencies,
           std::span<const float> values,
           float magnitude,
           std::span<const int32_t> positions);

 private:
  struct Table {
    const Vector* frequencies = nullptr;
    float magnitude = 0;
    std::vector<float> cos;
    std::vector<float> sin;
  };
  std::vector<Table> tables_;
  size_t used_ = 0;
};

}  // namespace baton::cpu
