#include "kernels/cpu/packed_matrix.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>

#include "kernels/cpu/block_formats.h"
#include "kernels/cpu/group_panels.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/input_order.h"
#include "kernels/cpu/panel_words.h"
#include "kernels/dequantize.h"

namespace baton::cpu {
namespace {

// The form of weights with groups whose numbers and scales the kernels know; others are widened.
std::optional<GroupFormat> GroupsOf(const HostMatrix& host) {
  if (!host.has_groups() || !FitsPanels(host)) return std::nullopt;
  return GroupFormatOf(host);
}

// The panels of weights of floats, or with groups that are widened to float32.
PanelFormat FloatFormat(const HostMatrix& host) {
  PanelFormat format;
  const DType dtype = host.has_groups() ? DType::kF32 : host.dtype;
  format.view.kind = dtype == DType::kF32   ? PanelKind::kF32
                     : dtype == DType::kF16 ? PanelKind::kF16
                                            : PanelKind::kBF16;
  format.view.cols = host.cols;
  format.view.panel_bytes = static_cast<size_t>(host.cols) * kPanel * ShapeOf(dtype).bytes;
  return format;
}

bool IsBlockFormat(const HostMatrix& host) {
  return !host.has_groups() && ShapeOf(host.dtype).elements > 1;
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

// The weights of a panel of a block format. Returns whether all scales are finite.
bool PackBlocks(const HostMatrix& host,
                const PanelFormat& format,
                int64_t panel,
                std::byte* values,
                std::byte* scales) {
  const PanelView& view = format.view;
  const int64_t lanes = std::min<int64_t>(kPanel, host.rows - panel * kPanel);
  bool finite = true;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const std::byte* row = host.Row(panel * kPanel + lane);
    for (int64_t b = 0; b < view.blocks; ++b) {
      int8_t integers[kBlock];
      ReadBlockValues(host.dtype, row, b, integers);
      PutValues(view.kind, integers, lane, values + b * ValueBytesOfBlock(view.kind));
    }
    finite = PutBlockScales(host.dtype, format, row, lane, scales) && finite;
  }
  return finite;
}

// Packs a panel of floats, or widens it.
void PackFloats(const HostMatrix& host, const PanelView& view, int64_t panel, std::byte* values) {
  if (host.has_groups()) return WidenPanel(host, panel, values);
  if (view.kind == PanelKind::kF32) return PackFloatPanel<4>(host, panel, values);
  PackFloatPanel<2>(host, panel, values);
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

// The weights of a lane of a quantised panel, whose scales begin at `scales`.
void QuantisedRow(
    const PanelView& view, const std::byte* scales, int64_t panel, int64_t lane, float* out) {
  const int64_t halves = view.half_groups ? 2 : 1;
  const int64_t sets = halves * (view.has_min ? 2 : 1);
  const std::byte* values = view.values + static_cast<size_t>(panel) * view.panel_bytes;
  for (int64_t b = 0; b < view.blocks; ++b, out += kBlock) {
    const int64_t set = ((view.first_block + b) >> view.group_shift) * sets;
    for (int64_t k = 0; k < kBlock; ++k) {
      const int64_t half = k / 16 * (halves - 1);
      const int q = IntegerOf(view.kind, values, lane, k) - view.zero_point;
      out[k] = Scale(view, scales, set + half, lane) * static_cast<float>(q);
      if (view.has_min) out[k] += Scale(view, scales, set + halves + half, lane);
    }
    values += view.panel_bytes / static_cast<size_t>(view.blocks);
  }
}

void Fp8Row(const PanelView& view,
            const std::byte* scales,
            int64_t panel,
            int64_t lane,
            std::span<float> out) {
  const std::byte* values = view.values + static_cast<size_t>(panel) * view.panel_bytes + lane;
  std::vector<std::byte> numbers(out.size());
  for (size_t k = 0; k < out.size(); ++k) numbers[k] = values[k * kPanel];
  Dequantize(DType::kFp8, numbers, out);
  for (size_t k = 0; k < out.size(); ++k) {
    const auto block = static_cast<int64_t>(k) / kBlock;
    out[k] *= Scale(view, scales, (view.first_block + block) >> view.group_shift, lane);
  }
}

}  // namespace

StatusOr<std::unique_ptr<PackedMatrix>> PackedMatrix::Pack(std::span<const HostMatrix> parts,
                                                           WeightMemory& weights,
                                                           ThreadPool& pool) {
  if (parts.empty()) return InvalidArgument("a matrix has no parts; it must have at least one");
  for (size_t i = 0; i < parts.size(); ++i) {
    BATON_RETURN_IF_ERROR(CheckPart(parts[i], i, parts[0]));
  }
  std::unique_ptr<PackedMatrix> matrix(new PackedMatrix);
  matrix->cols_ = parts[0].cols;
  matrix->input_order_ = InputOrder(parts);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (matrix->input_order_.empty()) {
      BATON_RETURN_IF_ERROR(matrix->Add(parts[i], i, weights, pool));
    } else {
      const ReorderedMatrix reordered(parts[i], matrix->input_order_);
      BATON_RETURN_IF_ERROR(matrix->Add(reordered.view(), i, weights, pool));
    }
  }
  return matrix;
}

Status PackedMatrix::Add(const HostMatrix& host,
                         size_t index,
                         WeightMemory& weights,
                         ThreadPool& pool) {
  const std::optional<GroupFormat> groups = GroupsOf(host);
  const bool blocks = IsBlockFormat(host);
  PanelFormat format = FloatFormat(host);
  if (blocks) format = BlockFormatOf(host.dtype, host.cols);
  if (groups) format = *groups;
  PackedPart part;
  part.view = format.view;
  part.first_row = rows_;
  part.rows = host.rows;
  part.panels = (host.rows + kPanel - 1) / kPanel;
  if (format.expands) part.stored = format.stored;
  const size_t panel_scale_bytes = format.panel_scale_bytes();
  const size_t value_bytes = static_cast<size_t>(part.panels) * part.view.panel_bytes;
  const size_t scales_at = (value_bytes + 63) / 64 * 64;
  const size_t scale_bytes = static_cast<size_t>(part.panels) * panel_scale_bytes;
  BATON_ASSIGN_OR_RETURN(part.memory, weights.Allocate(scales_at + scale_bytes));
  part.view.values = part.memory.get();
  std::byte* const scales = part.memory.get() + scales_at;
  (format.expands ? part.stored.data : part.view.scales) = scales;
  const int64_t chunk = std::max<int64_t>(1, part.panels / (int64_t{pool.threads()} * 8));
  std::atomic<bool> numbers = true;
  const auto pack = [&](int64_t panel) {
    const auto at = static_cast<size_t>(panel);
    std::byte* const panel_values = part.memory.get() + at * part.view.panel_bytes;
    std::byte* const panel_scales = scales + at * panel_scale_bytes;
    if (blocks) {
      if (!PackBlocks(host, format, panel, panel_values, panel_scales)) numbers = false;
    } else if (groups) {
      PackGroupScales(host, *groups, panel, panel_scales);
      if (!PackGroupValues(host, *groups, panel, panel_values)) numbers = false;
    } else {
      PackFloats(host, part.view, panel, panel_values);
    }
  };
  pool.Run((part.panels + chunk - 1) / chunk, [&](int64_t item, int) {
    const int64_t end = std::min(part.panels, (item + 1) * chunk);
    for (int64_t panel = item * chunk; panel < end; ++panel) pack(panel);
  });
  if (!numbers) {
    return InvalidArgument(
        "part {} of a matrix has {} of {}",
        index,
        blocks ? "a scale that is not finite among its blocks" : "NaN among its numbers",
        Name(host.dtype));
  }
  quantised_ = quantised_ || part.view.blocks > 0;
  rows_ += host.rows;
  bytes_ += scales_at + scale_bytes;
  parts_.push_back(std::move(part));
  return OkStatus();
}

void PackedMatrix::Row(int64_t row, float* out) const {
  if (input_order_.empty()) return RowInOrder(row, out);
  std::vector<float> weights(input_order_.size());
  RowInOrder(row, weights.data());
  for (size_t i = 0; i < weights.size(); ++i) out[input_order_[i]] = weights[i];
}

void PackedMatrix::RowInOrder(int64_t row, float* out) const {
  for (const PackedPart& part : parts_) {
    if (row >= part.first_row + part.rows) continue;
    const PanelView& view = part.view;
    const int64_t panel = (row - part.first_row) / kPanel;
    const int64_t lane = (row - part.first_row) % kPanel;
    const std::byte* scales = view.scales + static_cast<size_t>(panel) * view.panel_scale_bytes;
    std::vector<float> expanded;
    if (part.stored.data != nullptr) {
      expanded.resize(static_cast<size_t>(ExpandedScales(part.stored)));
      PortableKernels().expand_scales(part.stored, panel, expanded.data());
      scales = std::as_bytes(std::span(expanded)).data();
    }
    if (view.blocks > 0) return QuantisedRow(view, scales, panel, lane, out);
    if (view.kind == PanelKind::kFp8) {
      return Fp8Row(view, scales, panel, lane, {out, static_cast<size_t>(cols_)});
    }
    for (int64_t k = 0; k < cols_; ++k) out[k] = Element(view, panel, lane, k);
    return;
  }
}

}  // namespace baton::cpu
