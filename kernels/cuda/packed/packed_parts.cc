#include "kernels/cuda/packed/packed_parts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/dequantize.h"

namespace baton::cuda {
namespace {

// Scales below these have multipliers that bf16 can represent (unpack.cuh): 2^1 in E8M0, and 2^7
// of numbers in FP8.
constexpr float kLargestE8m0 = 2;
constexpr float kLargestOfFp8 = 128;
constexpr int32_t kSignBit = 128;  // what stored integers of 8 bits are above those of files

// Inputs of a group as they are stored; 0 where the groups do not fit.
int32_t GroupInputs(const HostMatrix& part) {
  const WeightGroups& groups = part.groups;
  if (groups.of_input != nullptr) return 0;
  if (groups.in_row == 1) return kMaxGroupInputs;
  if (groups.first_col % groups.cols != 0) return 0;
  if (groups.cols % kMaxGroupInputs == 0) return kMaxGroupInputs;
  const bool of_16 = groups.scale_type == ScaleType::kFp8 && part.dtype == DType::kFp4;
  const bool fits = groups.cols == 32 || groups.cols == 64 || (groups.cols == 16 && of_16);
  return fits ? static_cast<int32_t>(groups.cols) : 0;
}

// Calls `see` with the index of each group of the part in its scales.
template <class See>
void ForGroups(const HostMatrix& part, int32_t inputs, const See& see) {
  for (int64_t row = 0; row < part.rows; ++row) {
    for (int64_t col = 0; col < part.cols; col += inputs) see(part.groups.IndexOf(row, col));
  }
}

// Whether 4 bits, as which the zero points of kU4 are stored, have all of them.
bool AllZerosFit(const HostMatrix& part, int32_t inputs) {
  bool fits = true;
  ForGroups(part, inputs, [&](size_t at) {
    const int8_t zero = part.groups.zeros[at];
    fits = fits && zero >= 0 && zero < 16;
  });
  return fits;
}

bool AllAtMost(const HostMatrix& part, int32_t inputs, float most) {
  bool fits = true;
  ForGroups(
      part, inputs, [&](size_t at) { fits = fits && std::abs(part.groups.scales[at]) <= most; });
  return fits;
}

PackedFormat FormatOfPart(const HostMatrix& part) {
  const WeightGroups& groups = part.groups;
  PackedFormat format;
  format.number = part.dtype;
  format.group = part.has_groups() && part.cols % 8 == 0 ? GroupInputs(part) : 0;
  if (!format.is_packed()) return {};
  format.zeros = groups.zeros != nullptr;
  switch (part.dtype) {
    case DType::kU4: {
      format.zero = format.zeros ? 0 : groups.zero;
      const bool fits = !format.zeros || AllZerosFit(part, format.group);
      return fits ? format : PackedFormat{};
    }
    case DType::kI8:
      format.zero = format.zeros ? 0 : groups.zero + kSignBit;
      return format;
    case DType::kFp8: {
      const bool fits = !format.zeros && AllAtMost(part, format.group, kLargestOfFp8);
      return fits ? format : PackedFormat{};
    }
    case DType::kFp4: {
      format.scale = groups.scale_type;
      const bool e8m0 = format.scale == ScaleType::kE8m0;
      const bool fits = !format.zeros && (e8m0 ? AllAtMost(part, format.group, kLargestE8m0)
                                               : format.scale == ScaleType::kFp8);
      return fits ? format : PackedFormat{};
    }
    default:
      return {};
  }
}

void PutScale(float scale, const HostMatrix& part, ScaleType type, std::byte* to) {
  if (type == ScaleType::kBF16) {
    const uint16_t bits = FloatToBrain(scale);
    std::memcpy(to, &bits, sizeof(bits));
    return;
  }
  const uint8_t bits = type == ScaleType::kFp8
                           ? FloatToFp8(scale * part.groups.divisor)
                           : static_cast<uint8_t>(std::bit_cast<uint32_t>(scale) >> 23);
  *to = std::byte{bits};
}

}  // namespace

PackedFormat FormatOf(std::span<const HostMatrix> parts) {
  const PackedFormat format = FormatOfPart(parts[0]);
  const bool same = std::ranges::all_of(
      parts.subspan(1), [&](const HostMatrix& part) { return FormatOfPart(part) == format; });
  int64_t rows = 0;
  for (const HostMatrix& part : parts) rows += part.rows;
  return same && rows >= kTileOutputs ? format : PackedFormat{};
}

PackedScales ScalesOf(std::span<const HostMatrix> parts, const PackedFormat& format) {
  PackedScales all;
  const size_t bytes = format.scale == ScaleType::kBF16 ? 2 : 1;
  all.groups = CeilDiv(parts[0].cols, format.group);
  size_t rows = 0;
  for (const HostMatrix& part : parts) rows += static_cast<size_t>(part.rows);
  const size_t count = rows * static_cast<size_t>(all.groups);
  all.scales.resize(count * bytes);
  if (format.zeros) all.zeros.resize(count);
  const int32_t above = format.number == DType::kI8 ? kSignBit : 0;
  size_t group = 0;
  for (const HostMatrix& part : parts) {
    ForGroups(part, format.group, [&](size_t at) {
      PutScale(part.groups.scales[at], part, format.scale, all.scales.data() + group * bytes);
      if (format.zeros) {
        all.zeros[group] = static_cast<uint8_t>(part.groups.zeros[at] + above);
      }
      ++group;
    });
    if (format.scale != ScaleType::kFp8) continue;
    all.factors.insert(
        all.factors.end(), static_cast<size_t>(part.rows), kFp8ScaleFactor / part.groups.divisor);
  }
  return all;
}

}  // namespace baton::cuda
