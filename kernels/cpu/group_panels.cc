#include "kernels/cpu/group_panels.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/cpu/half.h"
#include "kernels/cpu/panel_words.h"
#include "kernels/dequantize.h"

namespace baton::cpu {
namespace {

constexpr int64_t kHalf = kBlock / 2;
// A shift that no number of blocks exceeds: all inputs are one group.
constexpr int32_t kOneGroup = 62;

bool HasHalfGroups(const WeightGroups& groups) {
  return groups.in_row > 1 && groups.cols % kBlock != 0;
}

PanelKind KindOf(const HostMatrix& matrix) {
  switch (matrix.dtype) {
    case DType::kFp4:
      return PanelKind::kFp4;
    case DType::kFp8:
      return PanelKind::kFp8;
    case DType::kU4:
      return HasHalfGroups(matrix.groups) ? PanelKind::kByte : PanelKind::kNibble;
    default:
      return PanelKind::kByte;
  }
}

// Which inputs share scales.
void SetGroups(const HostMatrix& matrix, GroupFormat& format) {
  const WeightGroups& groups = matrix.groups;
  PanelView& view = format.view;
  view.half_groups = HasHalfGroups(groups);
  format.inputs_of_set = view.half_groups ? kHalf : kBlock;
  const int64_t blocks_of_group = groups.cols / kBlock;
  if (groups.in_row == 1) {
    view.group_shift = kOneGroup;
    format.inputs_of_set = matrix.cols;
  } else if (!view.half_groups && std::has_single_bit(static_cast<uint64_t>(blocks_of_group))) {
    view.group_shift = std::countr_zero(static_cast<uint64_t>(blocks_of_group));
    format.inputs_of_set = groups.cols;
    format.inputs_before = groups.first_col % groups.cols;
    view.first_block = format.inputs_before / kBlock;
  }
}

// Whether the 16 outputs of each panel have the same scales.
bool PanelsShareScales(const WeightGroups& groups) {
  return groups.rows % kPanel == 0 && groups.first_row % kPanel == 0;
}

ScaleForm FormOf(const WeightGroups& groups) {
  switch (groups.scale_type) {
    case ScaleType::kF16:
      return ScaleForm::kF16;
    case ScaleType::kBF16:
      return ScaleForm::kBF16;
    case ScaleType::kFp8:
      return ScaleForm::kFp8;
    case ScaleType::kE8m0:
      return ScaleForm::kE8m0;
    case ScaleType::kF32:
      break;
  }
  return PanelsShareScales(groups) ? ScaleForm::kOneF32 : ScaleForm::kF32;
}

// Integer `set` of 4 bits of words of 16 outputs.
void PutNibble(uint32_t value, int64_t set, int64_t lane, std::byte* to) {
  std::byte* const at = to + (set / 8 * kPanel + lane) * 4;
  uint32_t word;
  std::memcpy(&word, at, sizeof(word));
  word |= value << (set % 8 * 4);
  std::memcpy(at, &word, sizeof(word));
}

void PutScale(const StoredScales& stored, float scale, int64_t set, int64_t lane, std::byte* to) {
  const auto put = [&](const auto& number, int64_t at) {
    std::memcpy(to + at * static_cast<int64_t>(sizeof(number)), &number, sizeof(number));
  };
  switch (stored.form) {
    case ScaleForm::kF32:
      return put(scale, set * kPanel + lane);
    case ScaleForm::kOneF32:
      return put(scale, set);
    case ScaleForm::kF16:
      return put(HalfFromFloat(scale), set * kPanel + lane);
    case ScaleForm::kBF16:
      return put(Bf16FromFloat(scale), set * kPanel + lane);
    case ScaleForm::kFp8:
      return put(FloatToFp8(scale * stored.divisor), set * kPanel + lane);
    case ScaleForm::kE8m0:
      return put(static_cast<uint8_t>(BitsOfFloat(scale) >> 23), set * kPanel + lane);
    case ScaleForm::kSuper8:
    case ScaleForm::kSuper6:
    case ScaleForm::kSuper4:
      break;  // of GGUF's blocks, which are no groups
  }
}

// The integers of a block of a row, less `less`, or the bits of FP4 numbers.
void ReadIntegers(
    const HostMatrix& matrix, int64_t row, int64_t block, int32_t less, int8_t (&values)[kBlock]) {
  const std::byte* const from = matrix.Row(row);
  for (int64_t i = 0; i < kBlock; ++i) {
    const int64_t k = block * kBlock + i;
    int32_t integer = 0;
    if (matrix.dtype == DType::kI8) {
      integer = int32_t{static_cast<int8_t>(from[k])};
    } else {
      integer = std::to_integer<int32_t>(from[k / 2] >> (k % 2 * 4)) & 15;
    }
    values[i] = static_cast<int8_t>(integer - less);
  }
}

// Returns whether no number is NaN.
bool PutFp8(const std::byte* from, int64_t cols, int64_t lane, std::byte* to) {
  bool numbers = true;
  for (int64_t k = 0; k < cols; ++k) {
    to[k * kPanel + lane] = from[k];
    numbers = numbers && (from[k] & std::byte{0x7f}) != std::byte{0x7f};
  }
  return numbers;
}

}  // namespace

bool FitsPanels(const HostMatrix& matrix) {
  const WeightGroups& groups = matrix.groups;
  if (matrix.cols % kBlock != 0 || groups.first_col % kBlock != 0) return false;
  if (groups.of_input != nullptr) return false;
  const bool floats = matrix.dtype == DType::kFp4 || matrix.dtype == DType::kFp8;
  if (floats && (groups.zeros != nullptr || groups.zero != 0)) return false;
  if (!HasHalfGroups(groups)) return true;
  return groups.cols % kHalf == 0 && groups.zeros == nullptr && matrix.dtype != DType::kFp8;
}

GroupFormat GroupFormatOf(const HostMatrix& matrix) {
  const WeightGroups& groups = matrix.groups;
  GroupFormat format;
  PanelView& view = format.view;
  view.kind = KindOf(matrix);
  view.cols = matrix.cols;
  SetGroups(matrix, format);
  view.has_min = groups.zeros != nullptr;
  if (view.kind == PanelKind::kNibble && !view.has_min) view.zero_point = groups.zero;
  const int64_t blocks = matrix.cols / kBlock;
  if (view.kind != PanelKind::kFp8) view.blocks = blocks;
  const int64_t value_bytes =
      view.kind == PanelKind::kFp8 ? kBlock * kPanel : ValueBytesOfBlock(view.kind);
  view.panel_bytes = static_cast<size_t>(blocks * value_bytes);

  StoredScales& stored = format.stored;
  stored.form = FormOf(groups);
  stored.sets = (format.inputs_before + matrix.cols - 1) / format.inputs_of_set + 1;
  if (view.has_min) {
    stored.zero_bits = matrix.dtype == DType::kU4 ? 4 : 8;
    stored.zero_offset = stored.zero_bits == 8 ? 128 : 0;
  }
  stored.divisor = groups.divisor;
  if (view.kind == PanelKind::kFp4) stored.factor = 0.5f;  // of twice the numbers
  stored.panel_bytes = static_cast<size_t>(ScaleBytes(stored) + ZeroBytes(stored));
  // The kernels read scales of f16 and f32 as they are.
  const bool half = stored.form == ScaleForm::kF16 && !view.half_groups &&
                    (view.kind == PanelKind::kNibble || view.kind == PanelKind::kByte);
  format.expands =
      view.has_min || view.kind == PanelKind::kFp4 || !(half || stored.form == ScaleForm::kF32);
  view.wide_scales = format.expands || !half;
  view.panel_scale_bytes = format.expands
                               ? static_cast<size_t>(ExpandedScales(stored)) * sizeof(float)
                               : stored.panel_bytes;
  return format;
}

bool PackGroupValues(const HostMatrix& matrix,
                     const GroupFormat& format,
                     int64_t panel,
                     std::byte* to) {
  const PanelView& view = format.view;
  const int64_t lanes = std::min<int64_t>(kPanel, matrix.rows - panel * kPanel);
  // Where nibbles have no zero point for each group, PanelView::zero_point is subtracted.
  const int32_t less = view.has_min || view.kind == PanelKind::kNibble ? 0 : matrix.groups.zero;
  bool numbers = true;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const int64_t row = panel * kPanel + lane;
    if (view.kind == PanelKind::kFp8) {
      numbers = PutFp8(matrix.Row(row), matrix.cols, lane, to) && numbers;
      continue;
    }
    for (int64_t b = 0; b < view.blocks; ++b) {
      int8_t values[kBlock];
      ReadIntegers(matrix, row, b, less, values);
      std::byte* const block =
          to + static_cast<size_t>(b) * (view.panel_bytes / static_cast<size_t>(view.blocks));
      PutValues(view.kind, values, lane, block);
    }
  }
  return numbers;
}

void PackGroupScales(const HostMatrix& matrix,
                     const GroupFormat& format,
                     int64_t panel,
                     std::byte* to) {
  const WeightGroups& groups = matrix.groups;
  const StoredScales& stored = format.stored;
  const int64_t lanes = std::min<int64_t>(kPanel, matrix.rows - panel * kPanel);
  for (int64_t lane = 0; lane < lanes; ++lane) {
    for (int64_t set = 0; set < stored.sets; ++set) {
      const int64_t input = std::max<int64_t>(0, set * format.inputs_of_set - format.inputs_before);
      const size_t group = groups.IndexOf(panel * kPanel + lane, input);
      PutScale(stored, groups.scales[group], set, lane, to);
      if (stored.zero_bits == 0) continue;
      const int32_t zero = groups.zeros[group] + stored.zero_offset;
      std::byte* const zeros = to + ScaleBytes(stored);
      if (stored.zero_bits == 4) PutNibble(static_cast<uint32_t>(zero), set, lane, zeros);
      if (stored.zero_bits == 8) zeros[set * kPanel + lane] = static_cast<std::byte>(zero);
    }
  }
}

}  // namespace baton::cpu
