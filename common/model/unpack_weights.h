#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// Integers that GPTQ, AWQ and compressed-tensors pack into 32-bit words, the first integer in the
// low bits. Formats: AutoGPTQ (qlinear_cuda.py), AutoAWQ (utils/packing_utils.py),
// compressed-tensors (compressors/pack_quantized). Words need no alignment.
namespace baton {

// Weights of GPTQ: `words` is [inputs · bits / 32][outputs], packed along the inputs, `bits` 2, 3,
// 4 or 8. Writes [outputs][inputs]: kI8 of the integers less 128 for 8 bits, else kU4.
void UnpackGptq(std::span<const std::byte> words,
                int64_t outputs,
                int64_t inputs,
                int32_t bits,
                std::span<std::byte> to);

// Weights of AWQ: `words` is [inputs][outputs / 8], of 4 bits, in the order of AWQ. `inputs` is
// even. Writes kU4 [outputs][inputs].
void UnpackAwq(std::span<const std::byte> words,
               int64_t outputs,
               int64_t inputs,
               std::span<std::byte> to);

// Integer `index` of a row of words of `bits` bits each.
int32_t PackedInteger(std::span<const std::byte> words, int64_t index, int32_t bits);

// Where AWQ has column `column` in the integers of a row.
int64_t PlaceOfAwq(int64_t column);

}  // namespace baton
