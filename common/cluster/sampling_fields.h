#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "common/base/sampling_params.h"
#include "common/base/status.h"

// The table of the sampling parameters that are numbers with a range. APIs, flags of the tool,
// model defaults, checks and the wire (wire/request_fields_wire.h) all read the table, so that a
// parameter has one name and one range everywhere.
namespace baton {

struct FloatRange {
  float low = 0;
  float high = 0;
  bool open = false;  // `low` itself is outside

  // NaN is in no range.
  bool Contains(float value) const { return (open ? value > low : value >= low) && value <= high; }
};

// The parameters that a request, or the model's makers, set. An absent value takes the next
// default: the request's, then the model's, then that of SamplingParams.
struct SamplingOverrides {
  std::optional<float> temperature;
  std::optional<int32_t> top_k;  // 0: all
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
};

struct SamplingField {
  std::string_view name;  // in every API, on the wire and in generation_config.json
  float SamplingParams::*value;
  std::optional<float> SamplingOverrides::*override_value;
  std::string_view help;  // for the flags of the tool
  FloatRange range;
  bool model_default = false;  // generation_config.json may set it
};

inline constexpr SamplingField kSamplingFields[] = {
    {"temperature",
     &SamplingParams::temperature,
     &SamplingOverrides::temperature,
     "0: greedy",
     {0, 10},
     /*model_default=*/true},
    {"top_p",
     &SamplingParams::top_p,
     &SamplingOverrides::top_p,
     "sample among the most likely tokens up to this mass",
     {0, 1, /*open=*/true},
     /*model_default=*/true},
    {"min_p",
     &SamplingParams::min_p,
     &SamplingOverrides::min_p,
     "drop tokens below this share of the highest probability",
     {0, 1},
     /*model_default=*/true},
    {"repetition_penalty",
     &SamplingParams::repetition_penalty,
     &SamplingOverrides::repetition_penalty,
     "above 1: tokens of the prompt and the answer become less likely",
     {0, 10, /*open=*/true},
     /*model_default=*/true},
    {"presence_penalty",
     &SamplingParams::presence_penalty,
     &SamplingOverrides::presence_penalty,
     "above 0: tokens that are in the answer become less likely",
     {-2, 2}},
    {"frequency_penalty",
     &SamplingParams::frequency_penalty,
     &SamplingOverrides::frequency_penalty,
     "above 0: each occurrence in the answer makes a token less likely",
     {-2, 2}},
};

inline constexpr FloatRange kLogitBiasRange{-100, 100};

struct IntRange {
  int32_t low = 0;
  int32_t high = 0;
};

// 0: all tokens. APIs also refuse more than the vocabulary.
inline constexpr IntRange kTopKRange{0, std::numeric_limits<int32_t>::max()};

// InvalidArgument naming field, value and range: "top_p is 0; it must be in (0, 1]".
inline Status CheckRange(std::string_view field, float value, const FloatRange& range) {
  if (range.Contains(value)) return OkStatus();
  return InvalidArgument("{} is {}; it must be in {}{}, {}]",
                         field,
                         value,
                         range.open ? '(' : '[',
                         range.low,
                         range.high);
}

inline Status CheckRange(std::string_view field, int64_t value, const IntRange& range) {
  if (value >= range.low && value <= range.high) return OkStatus();
  return InvalidArgument(
      "{} is {}; it must be between {} and {}", field, value, range.low, range.high);
}

}  // namespace baton
