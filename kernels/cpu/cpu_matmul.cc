#include "kernels/cpu/cpu_matmul.h"

#include <algorithm>

#include "common/base/check.h"
#include "kernels/cpu/for_rows.h"

namespace baton::cpu {
namespace {

// Fewer multiply-adds than this, about a microsecond, are not an item of work of their own.
constexpr int64_t kLeastProducts = 1 << 16;
// Up to this number of rows, the kernels compute each panel by itself.
constexpr int64_t kFewRows = 8;

// The floats of a cache line.
constexpr size_t kLine = 16;

// The first number that begins a cache line: vectors within a line are faster. There must be kLine
// more numbers than are used.
float* Aligned(std::vector<float>& numbers) {
  const auto at = reinterpret_cast<uintptr_t>(numbers.data()) / sizeof(float);
  return numbers.data() + (kLine - at % kLine) % kLine;
}

float* OutAt(const Tensor& out, int64_t row, int64_t col) {
  return reinterpret_cast<float*>(out.data) + row * out.stride + col;
}

// The scales of a panel are read at once, which no processor foresees.
void PrefetchScales(const StoredScales& stored, int64_t panel) {
  const std::byte* const data = stored.data + static_cast<size_t>(panel) * stored.panel_bytes;
  for (size_t at = 0; at < stored.panel_bytes; at += 64) __builtin_prefetch(data + at);
}

int PanelWidth(const PackedPart& part, int64_t panel) {
  return static_cast<int>(std::min<int64_t>(kPanel, part.rows - panel * kPanel));
}

}  // namespace

void CpuMatMul::Prepare(const Tensor& x, const PackedMatrix& w) {
  BATON_CHECK(x.cols == w.cols(), "a matrix has {} inputs, but x has {}", w.cols(), x.cols);
  const int64_t blocks = w.quantised() ? w.cols() / kBlock : 0;
  const bool halves = std::ranges::any_of(w.parts(), [](const PackedPart& part) {
    const bool has_zeros = part.view.has_min || part.view.zero_point != 0;
    return part.view.half_groups && has_zeros;
  });
  if (w.input_order().empty()) {
    tiles_.Reset(reinterpret_cast<const float*>(x.data), x.stride, x.rows, blocks, halves);
  } else {
    Reorder(x, w.input_order());
    tiles_.Reset(reordered_.data(), x.cols, x.rows, blocks, halves);
  }
  for (const PackedPart& part : w.parts()) {
    if (part.stored.data == nullptr) continue;
    const auto floats = static_cast<size_t>(kGroup * ExpandedScales(part.stored)) + kLine;
    for (std::vector<float>& scales : scales_) scales.resize(std::max(scales.size(), floats));
  }
  if (blocks == 0) return;
  ForRows(pool_, x.rows, x.cols / 2, [&](int64_t row) { kernels_.quantize(tiles_.Row(row)); });
}

void CpuMatMul::Reorder(const Tensor& x, std::span<const int32_t> order) {
  reordered_.resize(static_cast<size_t>(x.rows * x.cols));
  ForRows(pool_, x.rows, x.cols, [&](int64_t row) {
    const float* const from = reinterpret_cast<const float*>(x.data) + row * x.stride;
    float* const to = reordered_.data() + row * x.cols;
    for (size_t i = 0; i < order.size(); ++i) to[i] = from[order[i]];
  });
}

template <class Body>
void CpuMatMul::Share(int64_t panels, const PackedMatrix& w, const Body& body) {
  const int64_t rows = std::min<int64_t>(tiles_.rows(), kTileRows);
  const int64_t least = (kLeastProducts - 1) / (rows * kPanel * w.cols()) + 1;
  const int64_t step = w.quantised() && rows <= kFewRows ? 1 : kGroup;
  const int64_t all = tiles_.tiles() * panels;
  items_.assign(1, 0);
  while (items_.back() < all) {
    const int64_t left = all - items_.back();
    const int64_t size = std::max(least, left / pool_.threads() / 2);
    items_.push_back(std::min(all, items_.back() + (size + step - 1) / step * step));
  }
  pool_.Run(static_cast<int64_t>(items_.size()) - 1, [&](int64_t item, int thread) {
    int64_t at = items_[static_cast<size_t>(item)];
    const int64_t end = items_[static_cast<size_t>(item) + 1];
    while (at < end) {
      const int64_t tile = at / panels;
      const int64_t last = std::min(end, (tile + 1) * panels);
      body(tiles_.Tile(tile), tile * kTileRows, at % panels, last - tile * panels, thread);
      at = last;
    }
  });
}

void CpuMatMul::Panels(const PackedPart& part,
                       const TileView& x,
                       int64_t panel,
                       int32_t count,
                       int thread,
                       float* acc) {
  const auto multiply = kernels_.panels[static_cast<size_t>(part.view.kind)];
  if (part.stored.data == nullptr) return multiply(part.view, x, panel, count, acc);
  // The view begins with these panels, because there are no expanded scales of others.
  PanelView view = part.view;
  float* scales = Aligned(scales_[static_cast<size_t>(thread)]);
  view.values += static_cast<size_t>(panel) * view.panel_bytes;
  view.scales = reinterpret_cast<const std::byte*>(scales);
  if (x.rows <= kFewRows) {
    // One panel after the other, whose scales are then in the nearest cache.
    for (int32_t p = 0; p < count; ++p, view.values += view.panel_bytes) {
      kernels_.expand_scales(part.stored, panel + p, scales);
      if (panel + p + 1 < part.panels) PrefetchScales(part.stored, panel + p + 1);
      multiply(view, x, 0, 1, acc + p * x.rows * kPanel);
    }
    return;
  }
  for (int32_t p = 0; p < count; ++p, scales += ExpandedScales(part.stored)) {
    kernels_.expand_scales(part.stored, panel + p, scales);
  }
  multiply(view, x, 0, count, acc);
}

void CpuMatMul::Multiply(const Tensor& x,
                         const PackedMatrix& w,
                         const float* bias,
                         const Tensor& out) {
  BATON_CHECK(out.rows == x.rows && out.cols == w.rows(),
              "the output is [{}][{}], but the GEMM is [{}][{}]",
              out.rows,
              out.cols,
              x.rows,
              w.rows());
  Prepare(x, w);
  int64_t panels = 0;
  for (const PackedPart& part : w.parts()) panels += part.panels;
  Share(panels,
        w,
        [&](const TileView& tile, int64_t first_row, int64_t begin, int64_t end, int thread) {
          alignas(64) float acc[kGroup * kTileRows * kPanel];
          int64_t first_panel = 0;  // of the part
          for (const PackedPart& part : w.parts()) {
            const int64_t last = std::min(end - first_panel, part.panels);
            int64_t panel = std::max<int64_t>(0, begin - first_panel);
            first_panel += part.panels;
            while (panel < last) {
              const auto count = static_cast<int32_t>(std::min<int64_t>(kGroup, last - panel));
              Panels(part, tile, panel, count, thread, acc);
              for (int64_t p = 0; p < count; ++p, ++panel) {
                const int64_t col = part.first_row + panel * kPanel;
                kernels_.store(acc + p * tile.rows * kPanel,
                               tile.rows,
                               bias == nullptr ? nullptr : bias + col,
                               OutAt(out, first_row, col),
                               out.stride,
                               PanelWidth(part, panel));
              }
            }
          }
        });
}

void CpuMatMul::GatedMultiply(const Tensor& x,
                              const PackedMatrix& w,
                              const float* bias,
                              const ExpertGate& form,
                              const Tensor& out) {
  BATON_CHECK(w.parts().size() == 2 && out.rows == x.rows && out.cols * 2 == w.rows(),
              "the output is [{}][{}], but the gated GEMM is [{}][{}]",
              out.rows,
              out.cols,
              x.rows,
              w.rows());
  Prepare(x, w);
  const PackedPart& gate = w.parts()[0];
  const PackedPart& up = w.parts()[1];
  const auto combine = form.limit > 0 ? kernels_.clamped_mul : kernels_.silu_mul;
  Share(gate.panels,
        w,
        [&](const TileView& tile, int64_t first_row, int64_t begin, int64_t end, int thread) {
          alignas(64) float gates[kGroup * kTileRows * kPanel];
          alignas(64) float ups[kGroup * kTileRows * kPanel];
          for (int64_t panel = begin; panel < end;) {
            const auto count = static_cast<int32_t>(std::min<int64_t>(kGroup, end - panel));
            Panels(gate, tile, panel, count, thread, gates);
            Panels(up, tile, panel, count, thread, ups);
            for (int64_t p = 0; p < count; ++p, ++panel) {
              const int64_t col = panel * kPanel;
              combine({.gate = gates + p * tile.rows * kPanel,
                       .up = ups + p * tile.rows * kPanel,
                       .rows = tile.rows,
                       .gate_bias = bias == nullptr ? nullptr : bias + col,
                       .up_bias = bias == nullptr ? nullptr : bias + gate.rows + col,
                       .limit = form.limit,
                       .alpha = form.alpha,
                       .out = OutAt(out, first_row, col),
                       .stride = out.stride,
                       .n = PanelWidth(gate, panel)});
            }
          }
        });
}

}  // namespace baton::cpu
