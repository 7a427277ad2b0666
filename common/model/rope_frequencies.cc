#include "common/model/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/base/check.h"

namespace baton {
namespace {

double Llama3(const RopeSpec& rope, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double turns = rope.original_context / wavelength;  // in the original context
  if (turns > rope.high_frequency_factor) return frequency;
  if (turns < rope.low_frequency_factor) return frequency / rope.factor;
  const double smooth = (turns - rope.low_frequency_factor) /
                        (rope.high_frequency_factor - rope.low_frequency_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

// Dimensions below `low` rotate fast and keep their frequency; the frequencies of dimensions above
// `high` are divided by the factor (interpolation).
struct YarnRamp {
  double low = 0;
  double high = 0;
};

YarnRamp RampOf(const RopeSpec& rope) {
  const auto dimension = [&rope](double turns) {
    return rope.rotary_dim * std::log(rope.original_context / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  YarnRamp ramp{dimension(rope.beta_fast), dimension(rope.beta_slow)};
  if (rope.truncate) ramp = {std::floor(ramp.low), std::ceil(ramp.high)};
  ramp.low = std::max(ramp.low, 0.0);
  ramp.high = std::min(ramp.high, rope.rotary_dim - 1.0);
  if (ramp.low == ramp.high) ramp.high += 0.001;
  return ramp;
}

}  // namespace

RopeFrequencies ComputeRopeFrequencies(const RopeSpec& rope, std::span<const float> factors) {
  const auto pairs = static_cast<size_t>(rope.rotary_dim / 2);
  BATON_CHECK(factors.empty() || factors.size() == pairs, "{} rope factors", factors.size());
  RopeFrequencies result;
  const YarnRamp ramp = rope.scaling == RopeScaling::kYarn ? RampOf(rope) : YarnRamp{};
  for (size_t i = 0; i < pairs; ++i) {
    double frequency = std::pow(rope.theta, -2.0 * static_cast<double>(i) / rope.rotary_dim);
    if (!factors.empty()) frequency /= factors[i];
    if (rope.scaling == RopeScaling::kLong) frequency /= rope.factors[i];
    if (rope.scaling == RopeScaling::kLinear) frequency /= rope.factor;
    if (rope.scaling == RopeScaling::kLlama3) frequency = Llama3(rope, frequency);
    if (rope.scaling == RopeScaling::kYarn) {
      const double interpolated =
          std::clamp((static_cast<double>(i) - ramp.low) / (ramp.high - ramp.low), 0.0, 1.0);
      frequency *= interpolated / rope.factor + (1 - interpolated);
    }
    result.inverse.push_back(static_cast<float>(frequency));
  }
  if (rope.scaling == RopeScaling::kYarn) {
    result.magnitude = static_cast<float>(
        rope.attention_factor > 0 ? rope.attention_factor : 0.1 * std::log(rope.factor) + 1.0);
  }
  if (rope.scaling == RopeScaling::kLong) {
    result.magnitude = static_cast<float>(rope.attention_factor);
  }
  return result;
}

}  // namespace baton
