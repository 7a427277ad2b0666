#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace baton {

// How numbers are stored. The Q types, the IQ types and kMxfp4 are GGUF's block formats
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): a row is a whole number of blocks.
// Messages and files hold the values of some types, so a new type goes to the end.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kFp8,  // E4M3 (arXiv 2209.05433)
  kU4,   // integers 0 … 15; the first of two numbers in a byte has the low bits
  kI8,
  kFp4,  // E2M1: sign, 2 bits of exponent, 1 bit behind the point; two in a byte as kU4
  kIQ4_NL,
  kIQ4_XS,
  kQ2_K,
  kQ3_K,
  kMxfp4,  // blocks of FP4 and an exponent, in GGUF's order; elsewhere kFp4 with WeightGroups
};
constexpr int kDTypes = static_cast<int>(DType::kMxfp4) + 1;

struct BlockShape {
  size_t elements;  // numbers in a block
  size_t bytes;     // bytes of a block
};

// The block of a type that is not a block format has one element.
BlockShape ShapeOf(DType dtype);

// "f32", "q4_1", …
std::string_view Name(DType dtype);

// Bytes of a row of `elements` numbers; `elements` must be a whole number of blocks.
inline size_t RowBytes(DType dtype, size_t elements) {
  const BlockShape shape = ShapeOf(dtype);
  return elements / shape.elements * shape.bytes;
}

}  // namespace baton
