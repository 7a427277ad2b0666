#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/config_fields.h"
#include "kernels/dtype.h"

namespace baton {

// The tool whose layout the quantised weights of a Hugging Face directory have.
enum class QuantMethod : uint8_t {
  kNone,
  kGptq,
  kAwq,
  kCompressedTensors,
  kFp8,    // as DeepSeek and Qwen publish it
  kMxfp4,  // as gpt-oss is published
};

// How the weights of some linear layers are quantised.
struct WeightScheme {
  DType numbers = DType::kU4;  // also of integers of 2 and 3 bits
  int32_t bits = 4;
  int64_t group_rows = 1;  // outputs with the same scale; 0: all
  int64_t group_cols = 0;  // inputs with the same scale; 0: all
  bool symmetric = true;   // no zero points
};

// `quantization_config`. Which layers are quantised, and by which scheme, is seen from their
// tensors: lists of modules (ignore, modules_to_not_convert) say the same.
struct QuantizationConfig {
  QuantMethod method = QuantMethod::kNone;
  bool zeros_less_by_one = false;  // the files have z − 1 for the zero point z: GPTQ's first format
  bool act_order = false;          // the groups of inputs are in an order that g_idx tells
  std::vector<WeightScheme> schemes = {};
};

// Reads the member quantization_config of `config`; without one: kNone. Errors: InvalidArgument or
// Unimplemented naming file, member, value and the valid values.
StatusOr<QuantizationConfig> ReadQuantization(const JsonFields& config);
// The same of `directory`/config.json, or, when that has none, of quantize_config.json, which older
// tools of GPTQ write.
StatusOr<QuantizationConfig> ReadQuantizationOf(const std::string& directory);

}  // namespace baton
