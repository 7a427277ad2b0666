#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/tensor.h"

namespace baton::cpu {

// Sines and cosines of a step's positions, made once for all layers that share frequencies. They
// are computed here and not by the C library, so that they are the same bits on every machine.
class RopeTables final {
 public:
  struct View {
    const float* cos = nullptr;  // [rows][half]
    const float* sin = nullptr;
    int64_t half = 0;
  };

  // Forgets the last step's tables.
  void Clear() { used_ = 0; }
  // cos and sin of position · frequency, times `magnitude`. Valid until Clear.
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
