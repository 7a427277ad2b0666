#include "kernels/cpu/cpu_matmul.h"

#include <algorithm>

#include "common/base/check.h"
#include "kernels/cpu/for_rows.h"

namespace baton::cpu {
namespace {

// The approximate number of work items per thread in one GEMM. A GEMM with few rows has few items,
// because each takes only microseconds; a larger one has more items to balance the load.
constexpr int64_t kFewItems = 2;
constexpr int64_t kManyItems = 16;
constexpr int64_t kManyRows = 8;

int64_t Groups(const PackedPart& part) {
  return (part.panels + kGroup - 1) / kGroup;
}

float* OutAt(const Tensor& out, int64_t row, int64_t col) {
  return reinterpret_cast<float*>(out.data) + row * out.stride + col;
}

int PanelWidth(const PackedPart& part, int64_t panel) {
  return static_cast<int>(std::min<int64_t>(kPanel, part.rows - panel * kPanel));
}

}  // namespace

void CpuMatMul::Prepare(const Tensor& x, const PackedMatrix& w) {
  BATON_CHECK(x.cols == w.cols(), "a matrix has {} inputs, but x has {}", w.cols(), x.cols);
  const int64_t blocks = w.quantised() ? w.cols() / kBlock : 0;
  tiles_.Reset(reinterpret_cast<const float*>(x.data), x.stride, x.rows, blocks);
  if (blocks == 0) return;
  ForRows(pool_, x.rows, x.cols / 4, [&](int64_t row) { kernels_.quantize(tiles_.Row(row)); });
}

template <class Body>
void CpuMatMul::Share(int64_t groups, const Body& body) {
  const int64_t tiles = tiles_.tiles();
  const int64_t wanted = pool_.threads() * (tiles_.rows() < kManyRows ? kFewItems : kManyItems);
  const int64_t chunks = std::min(groups, std::max<int64_t>(1, wanted / tiles));
  pool_.Run(tiles * chunks, [&](int64_t item, int) {
    const int64_t chunk = item % chunks;
    const TileView tile = tiles_.Tile(item / chunks);
    const int64_t end = groups * (chunk + 1) / chunks;
    for (int64_t group = groups * chunk / chunks; group < end; ++group) {
      body(tile, item / chunks * kTileRows, group);
    }
  });
}

void CpuMatMul::Panels(
    const PackedPart& part, const TileView& x, int64_t panel, int32_t count, float* acc) {
  kernels_.panels[static_cast<size_t>(part.view.kind)](part.view, x, panel, count, acc);
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
  int64_t groups = 0;
  for (const PackedPart& part : w.parts()) groups += Groups(part);
  Share(groups, [&](const TileView& tile, int64_t first_row, int64_t group) {
    const PackedPart* part = w.parts().data();
    for (; group >= Groups(*part); ++part) group -= Groups(*part);
    alignas(64) float acc[kGroup * kTileRows * kPanel];
    const int64_t panel = group * kGroup;
    const auto count = static_cast<int32_t>(std::min<int64_t>(kGroup, part->panels - panel));
    Panels(*part, tile, panel, count, acc);
    for (int32_t p = 0; p < count; ++p) {
      const int64_t col = part->first_row + (panel + p) * kPanel;
      kernels_.store(acc + p * tile.rows * kPanel,
                     tile.rows,
                     bias == nullptr ? nullptr : bias + col,
                     OutAt(out, first_row, col),
                     out.stride,
                     PanelWidth(*part, panel + p));
    }
  });
}

void CpuMatMul::SiluMultiply(const Tensor& x,
                             const PackedMatrix& w,
                             const float* bias,
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
  Share(Groups(gate), [&](const TileView& tile, int64_t first_row, int64_t group) {
    alignas(64) float gates[kGroup * kTileRows * kPanel];
    alignas(64) float ups[kGroup * kTileRows * kPanel];
    const int64_t panel = group * kGroup;
    const auto count = static_cast<int32_t>(std::min<int64_t>(kGroup, gate.panels - panel));
    Panels(gate, tile, panel, count, gates);
    Panels(up, tile, panel, count, ups);
    for (int32_t p = 0; p < count; ++p) {
      const int64_t col = (panel + p) * kPanel;
      kernels_.silu_mul(gates + p * tile.rows * kPanel,
                        ups + p * tile.rows * kPanel,
                        tile.rows,
                        bias == nullptr ? nullptr : bias + col,
                        bias == nullptr ? nullptr : bias + gate.rows + col,
                        OutAt(out, first_row, col),
                        out.stride,
                        PanelWidth(gate, panel + p));
    }
  });
}

}  // namespace baton::cpu
