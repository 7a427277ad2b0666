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

// Q2_K has two minima in a block, which the kernels do not know.
bool IsWidened(const HostMatrix& host) {
  return host.has_groups() || host.dtype == DType::kQ2_K;
}

// The panels of weights without groups, or widened to float32.
PanelView MakeView(const HostMatrix& host) {
  PanelView view;
  view.cols = host.cols;
  const DType dtype = IsWidened(host) ? DType::kF32 : host.dtype;
  if (ShapeOf(dtype).elements == 1) {
    view.kind = dtype == DType::kF32   ? PanelKind::kF32
                : dtype == DType::kF16 ? PanelKind::kF16
                                       : PanelKind::kBF16;
    view.panel_bytes = static_cast<size_t>(host.cols) * kPanel * ShapeOf(dtype).bytes;
    return view;
  }
  view = PanelFormat(dtype);
  view.cols = host.cols;
  view.blocks = host.cols / kBlock;
  const int64_t block_bytes = view.kind == PanelKind::kNibble ? 256 : 512;
  const int64_t sets = (view.half_groups ? 2 : 1) + (view.has_min ? 1 : 0);
  const int64_t scale_bytes = sets * kPanel * (view.wide_scales ? 4 : 2);
  view.panel_bytes = static_cast<size_t>(view.blocks * block_bytes);
  view.panel_scale_bytes = static_cast<size_t>(view.blocks * scale_bytes);
  return view;
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

// The weights of a panel of a block format.
void PackBlocks(const HostMatrix& host,
                const PanelView& view,
                int64_t panel,
                std::byte* values,
                std::byte* scales) {
  const auto blocks = static_cast<size_t>(view.blocks);
  const int64_t lanes = std::min<int64_t>(kPanel, host.rows - panel * kPanel);
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const std::byte* row = host.Row(panel * kPanel + lane);
    for (int64_t b = 0; b < view.blocks; ++b) {
      const WeightBlock block = ReadBlock(host.dtype, row, b);
      std::byte* to = values + static_cast<size_t>(b) * (view.panel_bytes / blocks);
      if (view.kind == PanelKind::kNibble) {
        PutNibbles(block.values, lane, to);
      } else {
        PutBytes(block.values, lane, to);
      }
      PutScales(
          view, block, lane, scales + static_cast<size_t>(b) * (view.panel_scale_bytes / blocks));
    }
  }
}

// Packs a panel of weights without groups, or widens it.
void PackPanel(const HostMatrix& host,
               const PanelView& view,
               int64_t panel,
               std::byte* values,
               std::byte* scales) {
  if (IsWidened(host)) return WidenPanel(host, panel, values);
  if (view.kind == PanelKind::kF32) return PackFloatPanel<4>(host, panel, values);
  if (view.blocks == 0) return PackFloatPanel<2>(host, panel, values);
  PackBlocks(host, view, panel, values, scales);
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
  const int64_t sets = (view.half_groups ? 2 : 1) + (view.has_min ? 1 : 0);
  const std::byte* values = view.values + static_cast<size_t>(panel) * view.panel_bytes;
  for (int64_t b = 0; b < view.blocks; ++b, out += kBlock) {
    const int64_t set = ((view.first_block + b) >> view.group_shift) * sets;
    const float d[2] = {Scale(view, scales, set, lane),
                        Scale(view, scales, set + (view.half_groups ? 1 : 0), lane)};
    const float minimum = view.has_min ? Scale(view, scales, set + sets - 1, lane) : 0;
    for (int64_t k = 0; k < kBlock; ++k) {
      const int q = IntegerOf(view.kind, values, lane, k);
      out[k] = d[k / 16] * static_cast<float>(q - view.zero_point) + minimum;
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
  PackedPart part;
  part.view = groups ? groups->view : MakeView(host);
  part.first_row = rows_;
  part.rows = host.rows;
  part.panels = (host.rows + kPanel - 1) / kPanel;
  const bool expands = groups && groups->expands;
  if (expands) part.stored = groups->stored;
  const size_t panel_scale_bytes = expands ? part.stored.panel_bytes : part.view.panel_scale_bytes;
  const size_t value_bytes = static_cast<size_t>(part.panels) * part.view.panel_bytes;
  const size_t scales_at = (value_bytes + 63) / 64 * 64;
  const size_t scale_bytes = static_cast<size_t>(part.panels) * panel_scale_bytes;
  BATON_ASSIGN_OR_RETURN(part.memory, weights.Allocate(scales_at + scale_bytes));
  part.view.values = part.memory.get();
  std::byte* const scales = part.memory.get() + scales_at;
  (expands ? part.stored.data : part.view.scales) = scales;
  const int64_t chunk = std::max<int64_t>(1, part.panels / (int64_t{pool.threads()} * 8));
  std::atomic<bool> numbers = true;
  const auto pack = [&](int64_t panel) {
    const auto at = static_cast<size_t>(panel);
    std::byte* const panel_values = part.memory.get() + at * part.view.panel_bytes;
    std::byte* const panel_scales = scales + at * panel_scale_bytes;
    if (!groups) return PackPanel(host, part.view, panel, panel_values, panel_scales);
    PackGroupScales(host, *groups, panel, panel_scales);
    if (!PackGroupValues(host, *groups, panel, panel_values)) numbers = false;
  };
  pool.Run((part.panels + chunk - 1) / chunk, [&](int64_t item, int) {
    const int64_t end = std::min(part.panels, (item + 1) * chunk);
    for (int64_t panel = item * chunk; panel < end; ++panel) pack(panel);
  });
  if (!numbers) {
    return InvalidArgument(
        "part {} of a matrix has NaN among its numbers of {}", index, Name(host.dtype));
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
