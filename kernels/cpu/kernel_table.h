#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::cpu {

// What the kernels of one instruction set offer, as plain data: the files that are compiled for an
// instruction set share nothing inline with the rest of the program, so none of their code can be
// picked by the linker for another processor. Every instruction set computes the same bits: the
// order of operations of an output is fixed, and so is each operation (IEEE single precision with
// fused multiply-add, exact integer dot products).

constexpr int kPanel = 16;     // outputs of a panel: the lanes of the kernels' vectors
constexpr int kBlock = 32;     // inputs that share an activation scale
constexpr int kTileRows = 64;  // most rows of a tile
constexpr int kGroup = 4;      // panels a matmul kernel is asked for at once, at most

// How the weights of a panel lie in memory; see packed_matrix.h.
enum class PanelKind : uint8_t { kNibble, kByte, kF32, kF16, kBF16 };
constexpr int kPanelKinds = 5;

enum class FloatKind : uint8_t { kF32, kF16, kBF16 };

// The panels of one stacked part of a matrix.
struct PanelView {
  PanelKind kind = PanelKind::kF32;
  bool wide_scales = false;  // scales and minima are f32, not f16
  bool has_min = false;
  bool half_groups = false;  // a scale for 16 inputs, not for 32
  int32_t zero_point = 0;    // subtracted from every stored integer
  int64_t blocks = 0;        // cols / kBlock (quantised kinds)
  int64_t cols = 0;
  const std::byte* values = nullptr;
  const std::byte* scales = nullptr;
  size_t panel_bytes = 0;        // of values
  size_t panel_scale_bytes = 0;  // of scales
};

// A tile of at most kTileRows rows of activations, as a matmul reads it. Quantised: the 32 inputs
// of a block are 16-bit integers times one scale; row r of block b is entry b·rows + r.
struct TileView {
  int32_t rows = 0;
  const int16_t* values = nullptr;  // [block][row][kBlock]
  const float* scales = nullptr;    // [block][row]
  const float* sums = nullptr;      // [block][row]: scale · Σ values
  const int32_t* counts = nullptr;  // [block][row]: Σ values
  const float* x = nullptr;         // the same rows as floats, for unquantised weights
  int64_t x_stride = 0;
};

struct QuantizeArgs {
  const float* x = nullptr;  // one row
  int64_t blocks = 0;
  int32_t row = 0;   // in the tile
  int32_t rows = 0;  // of the tile
  int16_t* values = nullptr;
  float* scales = nullptr;
  float* sums = nullptr;
  int32_t* counts = nullptr;
};

// One kv head of one sequence: `rows` rows × `group` query heads that share it. Query (row, head)
// sees positions [begin, position], with begin from `window`.
struct AttentionTask {
  const float* q = nullptr;
  int64_t q_stride = 0;  // floats between rows; heads of a row lie together
  float* out = nullptr;
  int64_t out_stride = 0;
  int32_t rows = 0;
  int32_t group = 0;
  int32_t head_dim = 0;
  int32_t position = 0;  // of the first row
  int32_t window = 0;    // 0 = all
  float scale = 0;
  const int32_t* blocks = nullptr;
  const std::byte* k = nullptr;  // this layer's and head's K and V of block 0
  const std::byte* v = nullptr;
  int64_t block_stride = 0;  // bytes
  int32_t block_tokens = 0;
  FloatKind kind = FloatKind::kF32;
  float* scratch = nullptr;  // AttentionScratch() floats, 64-byte aligned
};

// Queries an attention kernel takes at once, at most.
constexpr int kMaxQueries = 8;

// Floats of scratch for a task that sees up to `tokens` positions.
constexpr int64_t AttentionScratch(int64_t tokens, int64_t head_dim) {
  return kMaxQueries * ((tokens + 15) / 16 * 16 + 16) + kMaxQueries * (head_dim + 16);
}

struct RmsNormArgs {
  const float* x = nullptr;
  const float* delta = nullptr;  // added to `x`, which is then written back to `residual`; or null
  float* residual = nullptr;
  const float* weight = nullptr;
  float epsilon = 0;
  int64_t size = 0;
  float* out = nullptr;
};

struct RotateArgs {
  float* x = nullptr;          // one head
  const float* cos = nullptr;  // [rotary_dim / 2]
  const float* sin = nullptr;
  int32_t rotary_dim = 0;
  bool adjacent = false;
};

struct KernelTable {
  void (*quantize)(const QuantizeArgs& args);
  // acc[p][row][16] for `count` ≤ kGroup panels from `panel` on.
  void (*panels[kPanelKinds])(
      const PanelView& w, const TileView& x, int64_t panel, int32_t count, float* acc);
  // out[row][0 … n) = acc[row] (+ bias), n ≤ 16.
  void (*store)(
      const float* acc, int32_t rows, const float* bias, float* out, int64_t stride, int n);
  // out[row][0 … n) = silu(gate + gate_bias) · (up + up_bias). Both biases or none.
  void (*silu_mul)(const float* gate,
                   const float* up,
                   int32_t rows,
                   const float* gate_bias,
                   const float* up_bias,
                   float* out,
                   int64_t stride,
                   int n);
  void (*rms_norm)(const RmsNormArgs& args);
  void (*rotate)(const RotateArgs& args);
  // out += scale · x.
  void (*add_scaled)(const float* x, float scale, int64_t size, float* out);
  void (*attention)(const AttentionTask& task);
  // Writes `size` floats as `kind`, `stride` elements apart.
  void (*write_kv)(const float* x, int64_t size, FloatKind kind, int64_t stride, std::byte* out);
  // Replaces x by exp(x·scale − maximum); returns the sum. Lanes of 16, then a fixed tree.
  float (*exp_sum)(float* x, int64_t size, float scale, float maximum);
  // The highest of x (NaN never wins) and its lowest index; −1 when all are NaN.
  int64_t (*arg_max)(const float* x, int64_t size);
};

const KernelTable& PortableKernels();
const KernelTable& Avx2Kernels();
const KernelTable& Avx512Kernels();

}  // namespace baton::cpu
