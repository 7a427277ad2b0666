#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/read_quantized.h"

// Matrices in each layout of quantised weights, with integers that are packed by the definition of
// the format, beside the weights that they stand for.
namespace baton {

constexpr int64_t kRows = 16;
constexpr int64_t kCols = 64;
constexpr int64_t kGroup = 16;
constexpr int64_t kGroups = kCols / kGroup;
constexpr QuantizedPlace kPlace{.rows = kRows, .cols = kCols};

// Tensors with their bytes.
class Held {
 public:
  template <class Number>
  FileTensor* Add(const std::string& name,
                  std::string_view type,
                  std::vector<int64_t> shape,
                  const std::vector<Number>& numbers) {
    std::vector<std::byte>& bytes = *bytes_.emplace_back(
        std::make_unique<std::vector<std::byte>>(numbers.size() * sizeof(Number)));
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    auto& tensor = *tensors_.emplace_back(std::make_unique<FileTensor>());
    tensor.name = name;
    tensor.shape = std::move(shape);
    tensor.bytes = bytes;
    tensor.file = "model.safetensors";
    if (type == "f32") tensor.dtype = DType::kF32;
    if (type == "bf16") tensor.dtype = DType::kBF16;
    if (type == "i8") tensor.dtype = DType::kI8;
    if (type == "fp8") tensor.dtype = DType::kFp8;
    if (type == "I32" || type == "U8") tensor.other_type = std::string(type);
    return &tensor;
  }

 private:
  std::vector<std::unique_ptr<std::vector<std::byte>>> bytes_;
  std::vector<std::unique_ptr<FileTensor>> tensors_;
};

// Integers [rows][cols] in [0, 2^bits), by a generator.
std::vector<uint32_t> Integers(int64_t rows, int64_t cols, int32_t bits);
std::vector<float> Scales(int64_t count);
// Integers of 4 bits, two in each byte.
std::vector<uint8_t> PackPairs(const std::vector<uint32_t>& integers);
// The numbers of FP4 (E2M1), by their bits.
inline constexpr float kFp4[16] = {
    0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

// A matrix in the making: its tensors, and the weights that it must have.
struct Example {
  Held held;
  QuantizedTensors tensors;
  QuantizationConfig quantization;
  std::vector<float> weights;  // [rows][cols]

  std::string Error() const {
    QuantizedMemory memory;
    const auto read = ReadQuantized(tensors, quantization, kPlace, &memory);
    return read.ok() ? "read" : std::string(Message(read.status()));
  }
  // Also without memory: files are checked before memory is taken.
  std::string ErrorOfShapes() const {
    const auto read = ReadQuantized(tensors, quantization, kPlace, nullptr);
    return read.ok() ? "read" : std::string(Message(read.status()));
  }
};

Example Gptq(int32_t bits, bool symmetric, bool zeros_less_by_one, bool act_order = false);
Example Awq();
Example Packed(int32_t bits, bool symmetric);
// One byte a number: int8, or FP8 by its table, with a scale for each block of 8 x 16.
Example Numbers(DType dtype);
Example Nvfp4();

}  // namespace baton
