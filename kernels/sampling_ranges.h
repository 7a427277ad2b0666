#pragma once

#include <string_view>

#include "common/base/status.h"

namespace baton {

// The ranges of the sampling parameters, as documented in proto/generation.proto. Router and
// workers enforce the same ranges.
struct FloatRange {
  float low = 0;
  float high = 0;
  bool open = false;  // the range excludes `low` itself

  // NaN is in no range.
  bool Contains(float value) const { return (open ? value > low : value >= low) && value <= high; }
};

inline constexpr FloatRange kTemperatures{0, 10};
inline constexpr FloatRange kTopPs{0, 1, /*open=*/true};
inline constexpr FloatRange kMinPs{0, 1};
inline constexpr FloatRange kRepetitionPenalties{0, 10, /*open=*/true};
inline constexpr FloatRange kPresencePenalties{-2, 2};
inline constexpr FloatRange kFrequencyPenalties{-2, 2};
inline constexpr FloatRange kLogitBiases{-100, 100};

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

}  // namespace baton
