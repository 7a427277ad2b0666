#include "kernels/cpu/packed_matrix.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/cpu/block_formats.h"
#include "kernels/cpu/half.h"
#include "kernels/dequantize.h"

namespace baton::cpu {
namespace {

// Whether the weights are in panels of floats: those that the formats of blocks do not fit as
// float32.
bool IsFloat(const HostMatrix& host) {
  return host.has_groups() ? !FitsPanels(host) : ShapeOf(host.dtype).elements == 1;
}

// Whether the weights are written as float32, row by row.
bool IsWidened(const HostMatrix& host) {
  return host.has_groups() && !FitsPanels(host);
}

PanelView MakeView(const HostMatrix& host) {
  PanelView view;
  if (IsFloat(host)) {
    const DType dtype = IsWidened(host) ? DType::kF32 : host.dtype;
    view.kind = dtype == DType::kF32   ? PanelKind::kF32
                : dtype == DType::kF16 ? PanelKind::kF16
                                       : PanelKind::kBF16;
    view.panel_bytes = static_cast<size_t>(host.cols) * kPanel * ShapeOf(dtype).bytes;
  } else {
    view = host.has_groups() ? PanelFormat(host) : PanelFormat(host.dtype);
    view.blocks = host.cols / kBlock;
    const int64_t block_bytes = view.kind == PanelKind::kNibble ? 256 : 512;
    const int64_t sets = (view.half_groups ? 2 : 1) + (view.has_min ? 1 : 0);
    const int64_t scale_bytes = sets * kPanel * (view.wide_scales ? 4 : 2);
    view.panel_bytes = static_cast<size_t>(view.blocks * block_bytes);
    view.panel_scale_bytes = static_cast<size_t>(view.blocks * scale_bytes);
  }
  view.cols = host.cols;
  return view;
}

void PutNibbles(const WeightBlock& block, int64_t lane, std::byte* to) {
  for (int64_t j = 0; j < 4; ++j) {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) {
      const int64_t k = 2 * (4 * j + i);
      word |= static_cast<uint32_t>(block.values[k] & 15) << (4 * i);
      word |= static_cast<uint32_t>(block.values[k + 1] & 15) << (16 + 4 * i);
    }
    std::memcpy(to + j * 64 + lane * 4, &word, sizeof(word));
  }
}

void PutBytes(const WeightBlock& block, int64_t lane, std::byte* to) {
  for (int64_t j = 0; j < 8; ++j) {
    const int8_t word[4] = {block.values[4 * j],
                            block.values[4 * j + 2],
                            block.values[4 * j + 1],
                            block.values[4 * j + 3]};
    std::memcpy(to + j * 64 + lane * 4, word, sizeof(word));
  }
}

void PutScales(const PanelView& view, const WeightBlock& block, int64_t lane, std::byte* to) {
  if (!view.wide_scales) {
    std::memcpy(to + lane * 2, &block.half_scale, 2);
    if (view.has_min) std::memcpy(to + 32 + lane * 2, &block.half_minimum, 2);
    return;
  }
  std::memcpy(to + lane * 4, &block.scale[0], 4);
  to += 64;
  if (view.half_groups) {
    std::memcpy(to + lane * 4, &block.scale[1], 4);
    to += 64;
  }
  if (view.has_min) std::memcpy(to + lane * 4, &block.minimum, 4);
}

// Transposes the rows of a panel, whose elements have kWidth bytes each. A few columns at a time,
// so that the rows are read and the panel is written through the cache.
template <size_t kWidth>
void PackFloatPanel(const HostMatrix& host, int64_t panel, std::byte* values) {
  constexpr int64_t kColumns = 64;
  const int64_t lanes = std::min<int64_t>(kPanel, host.rows - panel * kPanel);
  for (int64_t first = 0; first < host.cols; first += kColumns) {
    const int64_t columns = std::min(kColumns, host.cols - first);
    std::byte* const to = values + static_cast<size_t>(first * kPanel) * kWidth;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const std::byte* from = host.Row(panel * kPanel + lane) + static_cast<size_t>(first) * kWidth;
      for (int64_t k = 0; k < columns; ++k) {
        std::memcpy(to + static_cast<size_t>(k * kPanel + lane) * kWidth,
                    from + static_cast<size_t>(k) * kWidth,
                    kWidth);
      }
    }
  }
}

// Dequantises the rows of a panel of float32.
void WidenPanel(const HostMatrix& host, int64_t panel, std::byte* values) {
  const int64_t lanes = std::min<int64_t>(kPanel, host.rows - panel * kPanel);
  std::vector<float> row(static_cast<size_t>(host.cols));
  for (int64_t lane = 0; lane < lanes; ++lane) {
    DequantizeRow(host, panel * kPanel + lane, row);
    for (int64_t k = 0; k < host.cols; ++k) {
      std::memcpy(values + static_cast<size_t>(k * kPanel + lane) * sizeof(float),
                  &row[static_cast<size_t>(k)],
                  sizeof(float));
    }
  }
}

void PackPanel(const HostMatrix& host,
               const PanelView& view,
               int64_t panel,
               std::byte* memory,
               size_t scales_at) {
  std::byte* values = memory + static_cast<size_t>(panel) * view.panel_bytes;
  if (IsWidened(host)) return WidenPanel(host, panel, values);
  if (view.kind == PanelKind::kF32) return PackFloatPanel<4>(host, panel, values);
  if (view.blocks == 0) return PackFloatPanel<2>(host, panel, values);
  std::byte* scales = memory + scales_at + static_cast<size_t>(panel) * view.panel_scale_bytes;
  const auto blocks = static_cast<size_t>(view.blocks);
  const int64_t lanes = std::min<int64_t>(kPanel, host.rows - panel * kPanel);
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const std::byte* row = host.Row(panel * kPanel + lane);
    for (int64_t b = 0; b < view.blocks; ++b) {
      const WeightBlock block = host.has_groups() ? ReadBlock(host, panel * kPanel + lane, b)
                                                  : ReadBlock(host.dtype, row, b);
      std::byte* to = values + static_cast<size_t>(b) * (view.panel_bytes / blocks);
      if (view.kind == PanelKind::kNibble) {
        PutNibbles(block, lane, to);
      } else {
        PutBytes(block, lane, to);
      }
      PutScales(
          view, block, lane, scales + static_cast<size_t>(b) * (view.panel_scale_bytes / blocks));
    }
  }
}

std::string ColumnsText(const HostMatrix& part) {
  return fmt::format(
      "columns [{}, {}) of {}", part.first_col, part.first_col + part.cols, part.row_stride());
}

Status CheckPart(const HostMatrix& part, size_t index, const HostMatrix& first) {
  if (part.rows <= 0 || part.cols <= 0 || part.data == nullptr) {
    return InvalidArgument(
        "part {} of a matrix is [{}][{}]; it must not be empty", index, part.rows, part.cols);
  }
  if (!part.SameColumns(first)) {
    return InvalidArgument("part {} of a matrix has {}; the first one has {}",
                           index,
                           ColumnsText(part),
                           ColumnsText(first));
  }
  const auto elements = static_cast<int64_t>(ShapeOf(part.dtype).elements);
  if (part.cols % elements != 0) {
    return InvalidArgument(
        "part {} of a matrix has rows of {} {} numbers; this must be a multiple "
        "of {}",
        index,
        part.cols,
        Name(part.dtype),
        elements);
  }
  if (part.rows > int64_t{1} << 31 || part.cols > int64_t{1} << 31) {
    return InvalidArgument(
        "part {} of a matrix is [{}][{}]; the limit is 2^31", index, part.rows, part.cols);
  }
  return OkStatus();
}

// Element `k` of `lane` in panel `panel`.
float Element(const PanelView& view, int64_t panel, int64_t lane, int64_t k) {
  const std::byte* values = view.values + static_cast<size_t>(panel) * view.panel_bytes;
  const int64_t index = k * kPanel + lane;
  if (view.kind == PanelKind::kF32) {
    float value;
    std::memcpy(&value, values + index * 4, sizeof(value));
    return value;
  }
  uint16_t value;
  std::memcpy(&value, values + index * 2, sizeof(value));
  return view.kind == PanelKind::kF16 ? FloatFromHalf(value) : FloatFromBf16(value);
}

float Scale(const PanelView& view, const std::byte* scales, int64_t set, int64_t lane) {
  if (view.wide_scales) {
    float value;
    std::memcpy(&value, scales + set * 64 + lane * 4, sizeof(value));
    return value;
  }
  uint16_t value;
  std::memcpy(&value, scales + set * 32 + lane * 2, sizeof(value));
  return FloatFromHalf(value);
}

void BlockRow(const PanelView& view, int64_t panel, int64_t lane, int64_t b, float* out) {
  const auto blocks = static_cast<size_t>(view.blocks);
  const std::byte* values = view.values + static_cast<size_t>(panel) * view.panel_bytes +
                            static_cast<size_t>(b) * (view.panel_bytes / blocks) + lane * 4;
  const std::byte* scales = view.scales + static_cast<size_t>(panel) * view.panel_scale_bytes +
                            static_cast<size_t>(b) * (view.panel_scale_bytes / blocks);
  const float d[2] = {Scale(view, scales, 0, lane),
                      Scale(view, scales, view.half_groups ? 1 : 0, lane)};
  const float minimum = view.has_min ? Scale(view, scales, view.half_groups ? 2 : 1, lane) : 0;
  for (int64_t k = 0; k < kBlock; ++k) {
    int q = 0;
    if (view.kind == PanelKind::kNibble) {
      uint32_t word;
      std::memcpy(&word, values + k / 8 * 64, sizeof(word));
      q = static_cast<int>(word >> (k % 8 / 2 * 4 + k % 2 * 16) & 15);
    } else {
      constexpr int kByteOf[4] = {0, 2, 1, 3};
      const auto byte = std::to_integer<int>(values[k / 4 * 64 + kByteOf[k % 4]]);
      q = byte < 128 ? byte : byte - 256;
    }
    out[k] = d[k / 16] * static_cast<float>(q - view.zero_point) + minimum;
  }
}

}  // namespace

StatusOr<std::unique_ptr<PackedMatrix>> PackedMatrix::Pack(std::span<const HostMatrix> parts,
                                                           WeightMemory& weights,
                                                           ThreadPool& pool) {
  if (parts.empty()) return InvalidArgument("a matrix has no parts; it must have at least one");
  std::unique_ptr<PackedMatrix> matrix(new PackedMatrix);
  matrix->cols_ = parts[0].cols;
  for (size_t i = 0; i < parts.size(); ++i) {
    const HostMatrix& host = parts[i];
    BATON_RETURN_IF_ERROR(CheckPart(host, i, parts[0]));
    PackedPart part;
    part.view = MakeView(host);
    part.first_row = matrix->rows_;
    part.rows = host.rows;
    part.panels = (host.rows + kPanel - 1) / kPanel;
    const size_t value_bytes = static_cast<size_t>(part.panels) * part.view.panel_bytes;
    const size_t scales_at = (value_bytes + 63) / 64 * 64;
    const size_t scale_bytes = static_cast<size_t>(part.panels) * part.view.panel_scale_bytes;
    BATON_ASSIGN_OR_RETURN(part.memory, weights.Allocate(scales_at + scale_bytes));
    std::byte* memory = part.memory.get();
    part.view.values = memory;
    part.view.scales = memory + scales_at;
    const int64_t chunk = std::max<int64_t>(1, part.panels / (int64_t{pool.threads()} * 8));
    pool.Run((part.panels + chunk - 1) / chunk, [&](int64_t item, int) {
      const int64_t end = std::min(part.panels, (item + 1) * chunk);
      for (int64_t panel = item * chunk; panel < end; ++panel) {
        PackPanel(host, part.view, panel, memory, scales_at);
      }
    });
    matrix->quantised_ = matrix->quantised_ || part.view.blocks > 0;
    matrix->rows_ += host.rows;
    matrix->bytes_ += scales_at + scale_bytes;
    matrix->parts_.push_back(std::move(part));
  }
  return matrix;
}

void PackedMatrix::Row(int64_t row, float* out) const {
  for (const PackedPart& part : parts_) {
    if (row >= part.first_row + part.rows) continue;
    const int64_t panel = (row - part.first_row) / kPanel;
    const int64_t lane = (row - part.first_row) % kPanel;
    for (int64_t b = 0; b < part.view.blocks; ++b) {
      BlockRow(part.view, panel, lane, b, out + b * kBlock);
    }
    if (part.view.blocks > 0) return;
    for (int64_t k = 0; k < cols_; ++k) out[k] = Element(part.view, panel, lane, k);
    return;
  }
}

}  // namespace baton::cpu
