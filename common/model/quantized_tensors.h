#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/file_tensor.h"
#include "common/model/quantization_config.h"

namespace baton {

// The tensors of a quantised matrix. Null: the matrix has none.
struct QuantizedTensors {
  enum class Layout : uint8_t {
    kGptq,     // qweight, scales, qzeros, g_idx
    kAwq,      // qweight, scales, qzeros
    kPacked,   // integers: weight_packed, weight_scale, weight_zero_point, weight_g_idx
    kNumbers,  // int8 or FP8: weight with weight_scale or weight_scale_inv, weight_zero_point
    kNvfp4,    // weight_packed, weight_scale, weight_global_scale
    kMxfp4,    // …_blocks, …_scales: of all experts
  };
  Layout layout = Layout::kNumbers;
  const FileTensor* numbers = nullptr;
  const FileTensor* scales = nullptr;
  const FileTensor* zeros = nullptr;
  const FileTensor* group_indices = nullptr;
  const FileTensor* global_scale = nullptr;
  // Those that only describe others (weight_shape), and scales of activations, which stay as they
  // are.
  std::vector<const FileTensor*> unused = {};

  // All that are not null.
  std::vector<const FileTensor*> All() const;
};

// Whether the tensor has int8 or FP8 numbers, which need scales.
bool IsNumberOfByte(const FileTensor& tensor);

// The tensor of this name, or null.
using TensorLookup = std::function<const FileTensor*(const std::string& name)>;

// The tensors of the matrix that would have this name if it were not quantised; nullopt when there
// are none, or when they are those of a matrix that is not quantised. Errors: NotFound naming a
// tensor that is missing beside others.
StatusOr<std::optional<QuantizedTensors>> FindQuantized(const std::string& name,
                                                        const QuantizationConfig& quantization,
                                                        const TensorLookup& lookup);

}  // namespace baton
