#include "common/model/dummy_groups.h"

#include <cmath>
#include <cstring>
#include <random>

#include "kernels/dequantize.h"

namespace baton {
namespace {

// The root of the mean square of numbers whose bits are random.
float SizeOf(DType numbers) {
  switch (numbers) {
    case DType::kFp4:
      return 2.9f;
    case DType::kFp8:
      return 113.0f;
    case DType::kI8:
      return 73.9f;
    default:
      return 4.6f;
  }
}

ScaleType TypeOfScales(const WeightScheme& scheme) {
  if (scheme.numbers == DType::kFp8) return ScaleType::kF32;
  if (scheme.numbers != DType::kFp4) return ScaleType::kF16;
  return scheme.group_cols == 16 ? ScaleType::kFp8 : ScaleType::kE8m0;
}

// `scale` as the type has it.
float Stored(ScaleType type, float scale) {
  switch (type) {
    case ScaleType::kE8m0:
      return std::exp2(std::round(std::log2(scale)));
    case ScaleType::kFp8: {
      const auto bits = static_cast<std::byte>(FloatToFp8(scale));
      float stored = 0;
      Dequantize(DType::kFp8, {&bits, 1}, {&stored, 1});
      return stored;
    }
    default:
      return BrainToFloat(FloatToBrain(scale));
  }
}

}  // namespace

DummyGroups::DummyGroups(const QuantizationConfig& config, uint64_t seed)
    : method_(config.method), scheme_(config.schemes.front()), seed_(seed) {}

bool DummyGroups::Quantizes(WeightKind kind) const {
  switch (kind) {
    case WeightKind::kExpertGate:
    case WeightKind::kExpertUp:
    case WeightKind::kExpertDown:
      return true;
    case WeightKind::kQuery:
    case WeightKind::kKey:
    case WeightKind::kValue:
    case WeightKind::kAttentionOutput:
    case WeightKind::kGate:
    case WeightKind::kUp:
    case WeightKind::kDown:
    case WeightKind::kSharedGate:
    case WeightKind::kSharedUp:
    case WeightKind::kSharedDown:
      return method_ != QuantMethod::kMxfp4;
    default:
      return false;
  }
}

HostMatrix DummyGroups::Matrix(int64_t rows, int64_t cols) const {
  HostMatrix matrix{.dtype = scheme_.numbers, .rows = rows, .cols = cols};
  WeightGroups& groups = matrix.groups;
  groups.rows = rows;
  groups.cols = scheme_.group_cols == 0 ? cols : scheme_.group_cols;
  groups.in_row = (cols + groups.cols - 1) / groups.cols;
  groups.scale_type = TypeOfScales(scheme_);
  if (scheme_.numbers == DType::kU4) groups.zero = 8;
  // A divisor that keeps scales in FP8 above the smallest ones.
  if (groups.scale_type == ScaleType::kFp8) groups.divisor = 1024;
  const float wanted = 1 / (SizeOf(scheme_.numbers) * std::sqrt(static_cast<float>(cols)));
  const float scale = Stored(groups.scale_type, wanted * groups.divisor) / groups.divisor;
  const std::lock_guard lock(mutex_);
  groups.scales = ScalesFor(scale, groups.in_row);
  matrix.data =
      NumbersFor(static_cast<size_t>(rows) * RowBytes(scheme_.numbers, static_cast<size_t>(cols)));
  return matrix;
}

const float* DummyGroups::ScalesFor(float scale, int64_t groups) const {
  std::vector<std::vector<float>>& all = scales_[scale];
  if (all.empty() || all.back().size() < static_cast<size_t>(groups)) {
    all.emplace_back(static_cast<size_t>(groups), scale);
  }
  return all.back().data();
}

const std::byte* DummyGroups::NumbersFor(size_t bytes) const {
  if (!numbers_.empty() && numbers_.back().size() >= bytes) return numbers_.back().data();
  std::vector<std::byte>& numbers = numbers_.emplace_back((bytes + 7) / 8 * 8);
  std::mt19937_64 random(seed_);
  for (size_t at = 0; at < numbers.size(); at += 8) {
    const uint64_t bits = random();
    std::memcpy(numbers.data() + at, &bits, sizeof(bits));
  }
  if (scheme_.numbers == DType::kFp8) {
    for (std::byte& number : numbers) {
      if ((number & std::byte{0x7f}) == std::byte{0x7f}) number ^= std::byte{1};  // NaN
    }
  }
  return numbers.data();
}

}  // namespace baton
