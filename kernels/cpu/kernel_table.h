#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/value_tables.h"

namespace baton::cpu {

// The interface to the kernels of one instruction set: plain functions and plain data. Files that
// are compiled for an instruction set share no inline functions with the rest of the program, so
// the linker cannot select code of theirs that another processor cannot run. Every instruction set
// computes the same bits: the operations of an output have a fixed order, and each operation has a
// defined result (IEEE single precision with fused multiply-add, exact integer dot products).

constexpr int kPanel = 16;     // outputs of a panel, equal to the lanes of a vector
constexpr int kBlock = 32;     // inputs that share an activation scale
constexpr int kTileRows = 64;  // most rows of a tile
constexpr int kGroup = 4;      // most panels of one call of a GEMM kernel

// The memory layout of the weights of a panel; see packed_matrix.h.
enum class PanelKind : uint8_t { kNibble, kByte, kFp4, kIQ4, kFive, kSix, kF32, kF16, kBF16, kFp8 };
constexpr int kPanelKinds = 10;

// The bytes of the values of a block of a quantised panel.
constexpr int64_t ValueBytesOfBlock(PanelKind kind) {
  switch (kind) {
    case PanelKind::kByte:
      return 512;
    case PanelKind::kSix:
      return 384;
    case PanelKind::kFive:
      return 320;
    default:
      return 256;
  }
}

enum class FloatKind : uint8_t { kF32, kF16, kBF16 };

// The panels of one stacked part of a matrix.
struct PanelView {
  PanelKind kind = PanelKind::kF32;
  bool wide_scales = false;  // scales and minima are f32 instead of f16
  bool has_min = false;
  bool half_groups = false;  // one scale per 16 inputs instead of 32
  int32_t zero_point = 0;    // subtracted from every stored integer
  // 2^group_shift blocks have the same scales and minima. The panels begin with block `first_block`
  // of their first group.
  int32_t group_shift = 0;
  int64_t first_block = 0;
  int64_t blocks = 0;  // cols / kBlock; 0 for float kinds
  int64_t cols = 0;
  const std::byte* values = nullptr;
  const std::byte* scales = nullptr;
  size_t panel_bytes = 0;        // bytes of the values of one panel
  size_t panel_scale_bytes = 0;  // bytes of the scales of one panel
};

enum class ScaleForm : uint8_t {
  kF32,
  kOneF32,
  kF16,
  kBF16,
  kFp8,
  kE8m0,
  kSuper8,
  kSuper6,
  kSuper4
};

// The scales and zero points of panels in a form that takes less memory than the one of PanelView,
// into which KernelTable::expand_scales brings them for each GEMM. A panel has one behind the other
//   scales  [sets][16 outputs]; kOneF32: [sets], for all outputs of a panel
//   zeros   of 8 bits [sets][16], of 4 bits [⌈sets / 8⌉][16] words, the first set in the low bits
// A scale is (number / divisor) · factor, a minimum scale · (zero_offset − zero).
//
// The scales of GGUF's blocks of 256 inputs are integers, which have a factor for each output in
// f16. For each such super-block
//   kSuper8  the factors [16], integers [super_sets][16 outputs] of 8 bits, signed
//   kSuper6  the factors [16] and those of minima [16], negative; 3 × 16 words. Byte k of word 0
//   has
//            the low 4 bits of the integers of sets k and k + 4, byte k of word 1 those of their
//            minima, byte k of word 2 the 2 high bits of the minima of sets k and k + 4, and of the
//            integers of sets k and k + 4
//   kSuper4  the factors [16] and those of minima [16], negative; bytes [16 sets][16], each with
//   the integer
//            of a scale and above it that of a minimum. Two sets become scale, scale, minimum,
//            minimum of 16 outputs each
struct StoredScales {
  ScaleForm form = ScaleForm::kF32;
  int32_t zero_bits = 0;  // 0: without zero points
  int32_t zero_offset = 0;
  float divisor = 1;
  float factor = 1;
  int64_t sets = 0;
  int64_t super_sets = 8;           // sets of a super-block
  const std::byte* data = nullptr;  // null: PanelView::scales has them
  size_t panel_bytes = 0;
};

// The bytes of the scales alone, without the zero points.
constexpr int64_t ScaleBytes(const StoredScales& stored) {
  switch (stored.form) {
    case ScaleForm::kF32:
      return stored.sets * 64;
    case ScaleForm::kOneF32:
      return stored.sets * 4;
    case ScaleForm::kF16:
    case ScaleForm::kBF16:
      return stored.sets * 32;
    case ScaleForm::kFp8:
    case ScaleForm::kE8m0:
      return stored.sets * 16;
    case ScaleForm::kSuper8:
      return stored.sets * 16 + stored.sets / stored.super_sets * 32;
    case ScaleForm::kSuper6:
      return stored.sets / stored.super_sets * 256;
    case ScaleForm::kSuper4:
      return stored.sets * 16 + stored.sets / stored.super_sets * 64;
  }
  return 0;
}
constexpr int64_t ZeroBytes(const StoredScales& stored) {
  if (stored.zero_bits == 0) return 0;
  return stored.zero_bits == 8 ? stored.sets * 16 : (stored.sets + 7) / 8 * 64;
}
constexpr bool HasMinima(const StoredScales& stored) {
  return stored.zero_bits != 0 || stored.form == ScaleForm::kSuper6 ||
         stored.form == ScaleForm::kSuper4;
}
// The floats of a panel that expand_scales writes.
constexpr int64_t ExpandedScales(const StoredScales& stored) {
  return stored.sets * (HasMinima(stored) ? 32 : 16);
}

// A tile of at most kTileRows rows of activations, the input of a GEMM kernel. When quantised, the
// 32 inputs of a block are 16-bit integers times one scale; row r of block b is entry b·rows + r.
struct TileView {
  int32_t rows = 0;
  const int16_t* values = nullptr;        // [block][row][kBlock]
  const float* scales = nullptr;          // [block][row]
  const float* sums = nullptr;            // [block][row]: scale · Σ values
  const int32_t* counts = nullptr;        // [block][row]: Σ values
  const int32_t* first_counts = nullptr;  // [block][row]: Σ of the first 16 values
  const float* x = nullptr;               // the same rows as floats, for unquantised weights
  int64_t x_stride = 0;
};

struct QuantizeArgs {
  const float* x = nullptr;  // one row
  int64_t blocks = 0;
  int32_t row = 0;   // index of the row in the tile
  int32_t rows = 0;  // rows of the tile
  int16_t* values = nullptr;
  float* scales = nullptr;
  float* sums = nullptr;
  int32_t* counts = nullptr;
  int32_t* first_counts = nullptr;
};

// Attention of one KV head of one sequence. Keys are [dim][token], or with token_major_attention
// [token][dim], and values [token][dim]: `rows` rows × the `group` query heads that share the KV
// head. A query at position p attends to the last `window` positions up to p, or to all up to p.
struct AttentionTask {
  const float* q = nullptr;
  int64_t q_stride = 0;  // floats between rows; the heads of a row are contiguous
  float* out = nullptr;
  int64_t out_stride = 0;
  int32_t rows = 0;
  int32_t group = 0;
  int32_t head_dim = 0;      // of queries and keys
  int32_t value_dim = 0;     // of values and outputs
  int32_t value_stride = 0;  // numbers from the value of a token to that of the next one
  int32_t position = 0;      // position of the first row
  int32_t window = 0;        // in tokens; 0 = all positions
  int32_t chunk = 0;         // AttentionArgs::chunk
  float scale = 0;
  float cap = 0;                 // AttentionArgs::cap
  const float* sinks = nullptr;  // [group]: AttentionArgs::sinks, or null
  const int32_t* blocks = nullptr;
  const std::byte* k = nullptr;  // K and V of block 0 for this layer and head
  const std::byte* v = nullptr;
  int64_t block_stride = 0;  // bytes
  int32_t block_tokens = 0;
  FloatKind kind = FloatKind::kF32;
  float* scratch = nullptr;  // AttentionScratch() floats, 64-byte aligned
};

// The scores of some tokens of a sequence for one row (LatentOps::SelectTokens).
struct IndexTask {
  const float* q = nullptr;        // [dim][heads]; the heads are a multiple of 16
  const float* weights = nullptr;  // [heads]
  int32_t heads = 0;
  int32_t dim = 0;    // a multiple of 8
  int32_t begin = 0;  // the tokens begin … end − 1
  int32_t end = 0;
  const int32_t* blocks = nullptr;
  const std::byte* keys = nullptr;  // index keys of block 0 for this layer, [token][dim]
  int64_t block_stride = 0;         // bytes
  int32_t block_tokens = 0;
  FloatKind kind = FloatKind::kF32;
  float* scratch = nullptr;  // [4][dim]
  float* scores = nullptr;   // by token
};

// Most queries that an attention kernel computes together.
constexpr int kMaxQueries = 8;

// Floats of scratch memory for a task that attends to up to `tokens` positions.
constexpr int64_t AttentionScratch(int64_t tokens, int64_t value_dim) {
  return kMaxQueries * ((tokens + 15) / 16 * 16 + 16) + kMaxQueries * (value_dim + 16);
}

// The products of gate and up for the same outputs, n ≤ 16.
struct GateArgs {
  const float* gate = nullptr;  // [rows][16]
  const float* up = nullptr;
  int32_t rows = 0;
  const float* gate_bias = nullptr;  // [n]; both biases are given or both null
  const float* up_bias = nullptr;
  float limit = 0;  // of clamped_mul
  float alpha = 0;
  float* out = nullptr;  // [rows][n]
  int64_t stride = 0;
  int n = 0;
};

struct RmsNormArgs {
  const float* x = nullptr;
  const float* delta = nullptr;  // added to `x`; the sum is also written to `residual`; or null
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

// The causal convolution of the channels of a key head of a recurrent layer, and SiLU.
struct ConvolutionArgs {
  const float* inputs = nullptr;   // [kernel][channels], a ring
  const float* weights = nullptr;  // [kernel][channels]: of the oldest input first
  const float* bias = nullptr;     // [channels], or null
  int32_t kernel = 0;
  int32_t channels = 0;
  int32_t newest = 0;  // the newest input
  float* out = nullptr;
};

// How a row changes the state of a value head (RecurrentRule).
enum class StateRule : uint8_t {
  kDelta,         // S = decay · S + k ⊗ beta · (v − kᵀ decay · S)
  kChannelDelta,  // the same with decays[i] for row i of S
  kAdd,           // S = decay · S + k ⊗ beta · v
};

// The step of one value head for one row: the rule, and out = qᵀ S.
struct StateStepArgs {
  StateRule rule = StateRule::kDelta;
  const float* q = nullptr;  // [key_dim]
  const float* k = nullptr;
  const float* v = nullptr;       // [value_dim]
  float decay = 0;                // multiplies the state
  const float* decays = nullptr;  // [key_dim]: kChannelDelta
  float beta = 0;                 // multiplies what is added to it
  int32_t key_dim = 0;
  int32_t value_dim = 0;
  bool update = true;      // false: the row is in the state already
  float* state = nullptr;  // [key_dim][value_dim]
  float* out = nullptr;    // [value_dim]
};

// S = e^(time · rate) · S + k ⊗ time · v, with a rate for each number of S, and out = qᵀ S.
struct ScanArgs {
  const float* q = nullptr;  // [key_dim]
  const float* k = nullptr;
  const float* v = nullptr;      // [value_dim]
  const float* times = nullptr;  // [value_dim]
  const float* rates = nullptr;  // [key_dim][value_dim]
  int32_t key_dim = 0;
  int32_t value_dim = 0;
  bool update = true;      // false: the row is in the state already
  float* state = nullptr;  // [key_dim][value_dim]
  float* out = nullptr;    // [value_dim]
};

struct KernelTable {
  void (*quantize)(const QuantizeArgs& args);
  // Computes acc[p][row][16] for `count` ≤ kGroup panels from `panel` on.
  void (*panels[kPanelKinds])(
      const PanelView& w, const TileView& x, int64_t panel, int32_t count, float* acc);
  // Writes the scales of a panel as PanelView has them, in f32.
  void (*expand_scales)(const StoredScales& stored, int64_t panel, float* to);
  // out[row][0 … n) = acc[row] (+ bias), n ≤ 16.
  void (*store)(
      const float* acc, int32_t rows, const float* bias, float* out, int64_t stride, int n);
  // out[row][0 … n) = silu(gate + gate_bias) · (up + up_bias).
  void (*silu_mul)(const GateArgs& args);
  // The same with the gate of ExpertGate, which has a limit.
  void (*clamped_mul)(const GateArgs& args);
  void (*rms_norm)(const RmsNormArgs& args);
  void (*rotate)(const RotateArgs& args);
  // out += scale · x.
  void (*add_scaled)(const float* x, float scale, int64_t size, float* out);
  void (*attention)(const AttentionTask& task);
  void (*token_major_attention)(const AttentionTask& task);
  void (*index_scores)(const IndexTask& task);
  // Converts `size` floats to `kind` and writes them `stride` elements apart.
  void (*write_kv)(const float* x, int64_t size, FloatKind kind, int64_t stride, std::byte* out);
  // Replaces x by exp(x·scale − maximum). Returns the sum: vectors of 16 are added in order, then
  // their lanes in a fixed tree.
  float (*exp_sum)(float* x, int64_t size, float scale, float maximum);
  // The lowest index of the highest value of x, ignoring NaN; −1 when all are NaN.
  int64_t (*arg_max)(const float* x, int64_t size);
  void (*convolve)(const ConvolutionArgs& args);
  void (*step_state)(const StateStepArgs& args);
  void (*scan_state)(const ScanArgs& args);
  // x *= silu(gate).
  void (*mul_silu)(const float* gate, int64_t size, float* x);
};

const KernelTable& PortableKernels();
const KernelTable& Avx2Kernels();
const KernelTable& AvxVnniKernels();
const KernelTable& Avx512Kernels();
const KernelTable& NeonKernels();
const KernelTable& NeonDotProdKernels();
const KernelTable& NeonI8mmKernels();

}  // namespace baton::cpu
