#include <cstring>

#include "common/base/check.h"
#include "kernels/cpu/block_bytes.h"
#include "kernels/cpu/block_formats.h"

// The scales of GGUF's block formats, in the forms of PanelView and StoredScales.
namespace baton::cpu {
namespace {

constexpr uint16_t kMinus = 0x8000;  // the sign of a number in half precision

bool IsFinite(uint16_t half) {
  return (half & 0x7c00) != 0x7c00;
}

// One output of the scales of a panel.
class Lane {
 public:
  Lane(std::byte* panel, int64_t lane) : panel_(panel), lane_(lane) {}

  // Writes the half-precision number at `from`, with the bits `flipped` changed, as number `lane`
  // of the 16 at byte `at`.
  void PutHalf(const std::byte* from, int64_t at, uint16_t flipped = 0) {
    const auto half = static_cast<uint16_t>(U16(from) ^ flipped);
    finite_ = finite_ && IsFinite(half);
    std::memcpy(panel_ + at + lane_ * 2, &half, sizeof(half));
  }
  void PutByte(int byte, int64_t at) { panel_[at + lane_] = static_cast<std::byte>(byte); }
  void PutWord(uint32_t word, int64_t at) {
    std::memcpy(panel_ + at + lane_ * 4, &word, sizeof(word));
  }
  void PutExponent(const std::byte* from, int64_t at) {
    finite_ = finite_ && U8(from, 0) != 255;
    PutByte(U8(from, 0), at);
  }
  bool finite() const { return finite_; }

 private:
  std::byte* const panel_;
  const int64_t lane_;
  bool finite_ = true;
};

// kSuper6. The 12 bytes at 4 have the low 6 bits of scales 0 … 3 and minima 0 … 3 in their low
// bits, then the low nibbles of scales 4 … 7 below those of minima 4 … 7, whose 2 high bits are
// above the first eight.
void PutSuper6(const std::byte* block, int64_t super, Lane& lane) {
  const int64_t at = super * 256;
  lane.PutHalf(block, at);
  lane.PutHalf(block + 2, at + 32, kMinus);
  const uint32_t scales = U32(block + 4);
  const uint32_t minima = U32(block + 8);
  const uint32_t last = U32(block + 12);
  constexpr uint32_t kLow = 0x0f0f0f0f;
  constexpr uint32_t kTwo = 0x03030303;
  lane.PutWord((scales & kLow) | (last & kLow) << 4, at + 64);
  lane.PutWord((minima & kLow) | (last & ~kLow), at + 128);
  lane.PutWord((minima >> 4 & kTwo) | (minima >> 6 & kTwo) << 2 | (scales >> 4 & kTwo) << 4 |
                   (scales >> 6 & kTwo) << 6,
               at + 192);
}

// kSuper4: the bytes of Q2_K are those of the panel.
void PutSuper4(const std::byte* block, int64_t super, Lane& lane) {
  const int64_t at = super * (64 + 16 * 16);
  lane.PutHalf(block + 80, at);
  lane.PutHalf(block + 82, at + 32, kMinus);
  for (int64_t i = 0; i < 16; ++i) lane.PutByte(U8(block, i), at + 64 + 16 * i);
}

// The integer of a scale of a block of kSuper8.
int Super8(DType dtype, const std::byte* block, int64_t i) {
  if (dtype == DType::kQ6_K) return U8(block, 192 + i);
  int low = 0;
  int high = 0;
  if (dtype == DType::kQ3_K) {
    low = U8(block, 96 + i % 8) >> (i / 8 * 4) & 15;
    high = U8(block, 104 + i % 4) >> (i / 4 * 2) & 3;
  } else {
    low = U8(block, 4 + i / 2) >> (i % 2 * 4) & 15;
    high = U16(block + 2) >> (2 * i) & 3;
  }
  return (low | high << 4) - 32;
}

int64_t FactorOf(DType dtype) {
  if (dtype == DType::kQ6_K) return 208;
  return dtype == DType::kQ3_K ? 108 : 0;
}

void PutSuper8(DType dtype, int64_t sets, const std::byte* block, int64_t super, Lane& lane) {
  const int64_t at = super * (32 + 16 * sets);
  lane.PutHalf(block + FactorOf(dtype), at);
  for (int64_t i = 0; i < sets; ++i) lane.PutByte(Super8(dtype, block, i), at + 32 + 16 * i);
}

void SetValues(DType dtype, PanelView& view) {
  switch (dtype) {
    case DType::kQ8_0:
      view.kind = PanelKind::kByte;
      break;
    case DType::kQ4_0:
      view.kind = PanelKind::kNibble;
      view.zero_point = 8;
      break;
    case DType::kQ4_1:
    case DType::kQ4_K:
    case DType::kQ2_K:
      view.kind = PanelKind::kNibble;
      view.has_min = true;
      break;
    case DType::kQ5_0:
      view.kind = PanelKind::kFive;
      view.zero_point = 16;
      break;
    case DType::kQ5_1:
    case DType::kQ5_K:
      view.kind = PanelKind::kFive;
      view.has_min = true;
      break;
    case DType::kQ3_K:
      view.kind = PanelKind::kNibble;
      view.zero_point = 4;
      break;
    case DType::kQ6_K:
      view.kind = PanelKind::kSix;
      view.zero_point = 32;
      break;
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
      view.kind = PanelKind::kIQ4;
      break;
    case DType::kMxfp4:
      view.kind = PanelKind::kFp4;
      break;
    default:
      BATON_CHECK(false, "{} is not quantised", Name(dtype));
  }
}

// Types whose scales the kernels do not read as they are.
ScaleForm FormOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_K:
    case DType::kQ5_K:
      return ScaleForm::kSuper6;
    case DType::kQ2_K:
      return ScaleForm::kSuper4;
    case DType::kQ3_K:
    case DType::kQ6_K:
    case DType::kIQ4_XS:
      return ScaleForm::kSuper8;
    case DType::kMxfp4:
      return ScaleForm::kE8m0;
    default:
      return ScaleForm::kF16;
  }
}

}  // namespace

PanelFormat BlockFormatOf(DType dtype, int64_t cols) {
  PanelFormat format;
  PanelView& view = format.view;
  SetValues(dtype, view);
  view.cols = cols;
  view.blocks = cols / kBlock;
  view.panel_bytes = static_cast<size_t>(view.blocks * ValueBytesOfBlock(view.kind));
  StoredScales& stored = format.stored;
  stored.form = FormOf(dtype);
  format.expands = stored.form != ScaleForm::kF16 || view.kind == PanelKind::kIQ4;
  if (!format.expands) {
    view.panel_scale_bytes = static_cast<size_t>(view.blocks * (view.has_min ? 64 : 32));
    return format;
  }
  view.wide_scales = true;
  view.half_groups = dtype == DType::kQ2_K || dtype == DType::kQ3_K || dtype == DType::kQ6_K;
  stored.sets = view.blocks * (view.half_groups ? 2 : 1);
  stored.super_sets = view.half_groups ? 16 : 8;
  if (view.kind == PanelKind::kFp4) stored.factor = 0.5f;  // of twice the numbers
  stored.panel_bytes = static_cast<size_t>(ScaleBytes(stored));
  view.panel_scale_bytes = static_cast<size_t>(ExpandedScales(stored)) * sizeof(float);
  return format;
}

bool PutBlockScales(
    DType dtype, const PanelFormat& format, const std::byte* row, int64_t lane, std::byte* to) {
  const BlockShape shape = ShapeOf(dtype);
  const int64_t blocks = format.view.cols / static_cast<int64_t>(shape.elements);
  Lane out(to, lane);
  for (int64_t b = 0; b < blocks; ++b, row += shape.bytes) {
    switch (format.stored.form) {
      case ScaleForm::kSuper6:
        PutSuper6(row, b, out);
        break;
      case ScaleForm::kSuper4:
        PutSuper4(row, b, out);
        break;
      case ScaleForm::kSuper8:
        PutSuper8(dtype, format.stored.super_sets, row, b, out);
        break;
      case ScaleForm::kE8m0:
        out.PutExponent(row, b * kPanel);
        break;
      default:
        out.PutHalf(row, b * (format.view.has_min ? 64 : 32));
        if (format.view.has_min) out.PutHalf(row + 2, b * 64 + 32);
    }
  }
  return out.finite();
}

}  // namespace baton::cpu
