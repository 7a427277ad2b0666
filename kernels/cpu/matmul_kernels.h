#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/panel_unpack.h"
#include "kernels/cpu/register_tile.h"
#include "kernels/cpu/vector_kernels.h"

namespace baton::cpu {

// GEMM of panels with tiles, with the vectors of instruction set S. The operations of an output
// have a fixed order, independent of the rows and panels that are computed with it:
//   quantised: for each block b: acc = fma(d·s, float(Σ w·x), acc), then acc = fma(m, s·Σ x, acc);
//              for each half of a block by itself, where halves have scales of their own;
//   float:     for each k: acc = fma(x[k], w[k], acc), also with w[k] = FP8 number · scale.
template <class S>
struct MatMulKernels {
  using F = typename S::F;
  using I = typename S::I;
  using D = typename S::D;
  using Unpack = PanelUnpack<S>;
  using Vector = VectorKernels<S>;
  using Tile = RegisterTile<S::kTileVectors>;
  using PackedShape = RegisterTile<S::kPackedTileRows, S::kPackedTileRows>;

  // Quantises blocks of activations to 16-bit integers. A block that contains NaN or infinity gets
  // a NaN scale, so that its outputs become NaN.
  static void Quantize(const QuantizeArgs& args) {
    const I magnitude = S::SetInt(0x7fffffff);
    const F magic = S::Set(12582912.0f);
    for (int64_t b = 0; b < args.blocks; ++b) {
      const int64_t entry = b * args.rows + args.row;
      const F low = S::Load(args.x + b * kBlock);
      const F high = S::Load(args.x + b * kBlock + 16);
      // Compares the bits as integers, so that NaN is the highest value.
      const I highest =
          S::MaxInt(S::And(S::Bits(low), magnitude), S::And(S::Bits(high), magnitude));
      const float maximum = AsFloat(S::MaxLaneInt(highest));
      float scale = maximum / 32767.0f;
      float inverse = 32767.0f / maximum;
      if (!(maximum < 3e38f)) {
        scale = __builtin_nanf("");
        inverse = 0;
      } else if (maximum < 1e-30f) {
        scale = 0;
        inverse = 0;
      }
      const F factor = S::Set(inverse);
      const I zero = S::Bits(magic);
      const F clean_low = inverse == 0 ? S::Set(0.0f) : low;
      const F clean_high = inverse == 0 ? S::Set(0.0f) : high;
      const I x0 = S::SubInt(S::Bits(S::Fma(clean_low, factor, magic)), zero);
      const I x1 = S::SubInt(S::Bits(S::Fma(clean_high, factor, magic)), zero);
      S::StoreInt16(args.values + entry * kBlock, x0);
      S::StoreInt16(args.values + entry * kBlock + 16, x1);
      const int32_t count = S::SumInt(S::AddInt(x0, x1));
      if (args.first_counts != nullptr) args.first_counts[entry] = S::SumInt(x0);
      args.scales[entry] = scale;
      args.counts[entry] = count;
      args.sums[entry] = scale * static_cast<float>(count);
    }
  }

  // The 16-bit integers 2i and 2i + 1 of `x` in every lane.
  static I Pair(const int16_t* x, int i) {
    int32_t pair;
    __builtin_memcpy(&pair, x + 2 * i, sizeof(pair));
    return S::SetInt(pair);
  }

  // Adds the products of the weights and the two integers at `x`.
  [[gnu::always_inline]] static D AddPair(D sum, I weights, const int16_t* x) {
    if constexpr (requires { S::DotPair(sum, weights, x); }) return S::DotPair(sum, weights, x);
    return S::DotPairs(sum, weights, Pair(x, 0));
  }

  template <bool kWide>
  static F LoadScale(const std::byte* scales, int index) {
    if constexpr (kWide) {
      return S::Load(reinterpret_cast<const float*>(scales) + 16 * index);
    } else {
      return S::LoadHalf(reinterpret_cast<const uint16_t*>(scales) + 16 * index);
    }
  }

  // Prefetch distance in bytes of weights: memory latency times bandwidth.
  static constexpr int64_t kAhead = 8192;

  // The layout of quantised panels.
  template <PanelKind kKindOf, bool kWideScales, bool kHasMin, bool kHalfGroups>
  struct Layout {
    static constexpr PanelKind kKind = kKindOf;
    static constexpr bool kWide = kWideScales;
    static constexpr bool kMin = kHasMin;
    static constexpr bool kHalves = kHalfGroups;
    static constexpr int64_t kValueBytes = ValueBytesOfBlock(kKind);
    static constexpr int64_t kChunkBytes = Unpack::template kChunkBytes<kKind>;
    static constexpr int kParts = kHalves ? 2 : 1;
    static constexpr int64_t kScaleBytes = kParts * (kMin ? 2 : 1) * 16 * (kWide ? 4 : 2);
  };

  // One block of a panel.
  struct PanelBlock {
    const std::byte* values;
    const std::byte* scales;
  };

  template <class L>
  static PanelBlock BlockOf(const PanelView& w, int64_t panel, int64_t b) {
    return {w.values + static_cast<size_t>(panel) * w.panel_bytes + b * L::kValueBytes,
            ScalesOf<L>(w, panel, b)};
  }

  // The scales of block `b` of a panel.
  template <class L>
  [[gnu::always_inline]] static const std::byte* ScalesOf(const PanelView& w,
                                                          int64_t panel,
                                                          int64_t b) {
    return w.scales + static_cast<size_t>(panel) * w.panel_scale_bytes +
           ((w.first_block + b) >> w.group_shift) * L::kScaleBytes;
  }

  // Prefetches the weights of the block that is `bytes` of values after `block`.
  template <class L>
  static void Prefetch(const PanelBlock& block, int64_t ahead) {
    for (int64_t at = 0; at < L::kValueBytes; at += 64) {
      __builtin_prefetch(block.values + ahead + at);
    }
  }

  // The sum of the integers of the activations of part `part` of a block.
  template <class L>
  static int32_t CountOf(const TileView& x, int64_t entry, int part) {
    if constexpr (!L::kHalves) return x.counts[entry];
    const int32_t first = x.first_counts[entry];
    return part == 0 ? first : x.counts[entry] - first;
  }

  // What a dot product begins with, in place of a zero point in each weight.
  template <class L>
  static int32_t Start(const PanelView& w, const TileView& x, int64_t entry, int part) {
    if constexpr (L::kMin || !Unpack::IsUnsigned(L::kKind)) return 0;
    return -w.zero_point * CountOf<L>(x, entry, part);
  }

  // The sum of the activations of part `part` of a block, which its minimum multiplies.
  template <class L>
  static float Sum(const TileView& x, int64_t entry, int part) {
    if constexpr (!L::kHalves) return x.sums[entry];
    return x.scales[entry] * static_cast<float>(CountOf<L>(x, entry, part));
  }

  // A panel × one row, with the weights in registers and two independent chains of additions, so
  // that their latencies overlap.
  template <class L>
  static void PanelRow(const PanelView& w, const TileView& x, int64_t panel, float* acc) {
    constexpr int kPairs = Unpack::template kPairs<L::kKind>;
    constexpr int kParts = L::kParts;
    PanelBlock block = BlockOf<L>(w, panel, 0);
    F sum = S::Set(0.0f);
    for (int64_t b = 0; b < w.blocks; ++b) {
      Prefetch<L>(block, kAhead);
      const int16_t* values = x.values + b * kBlock;
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) {
        D chains[2] = {S::SetDot(Start<L>(w, x, b, part)), S::SetDot(0)};
#pragma GCC unroll 16
        for (int at = part * 8; at < part * 8 + 16 / kParts; at += kPairs) {
          const std::byte* const chunk = block.values + at / kPairs * L::kChunkBytes;
#pragma GCC unroll 16
          for (int i = 0; i < kPairs; ++i) {
            const I weights = Unpack::template Pair<L::kKind>(chunk, i);
            chains[i % 2] = AddPair(chains[i % 2], weights, values + 2 * (at + i));
          }
        }
        const F scale = S::Mul(LoadScale<L::kWide>(block.scales, part), S::Set(x.scales[b]));
        sum = S::Fma(scale, S::ToFloat(S::AddDot(chains[0], chains[1])), sum);
        if constexpr (L::kMin) {
          const F minimum = LoadScale<L::kWide>(block.scales, kParts + part);
          sum = S::Fma(minimum, S::Set(Sum<L>(x, b, part)), sum);
        }
      }
      block.values += L::kValueBytes;
      block.scales = ScalesOf<L>(w, panel, b + 1);
    }
    S::Store(acc, sum);
  }

  // A panel × kR rows from `row` on, with the weights and the sums in registers.
  template <class L, int kR>
  static void PackedTile(
      const PanelView& w, const TileView& x, int64_t panel, int32_t row, float* acc) {
    constexpr int kPairs = Unpack::template kPairs<L::kKind>;
    constexpr int kParts = L::kParts;
    PanelBlock block = BlockOf<L>(w, panel, 0);
    const int64_t x_rows = x.rows;
    const int16_t* values = x.values + row * kBlock;
    const float* scales = x.scales + row;
    const float* sums = x.sums + row;
    F sum[kR];
    for (int r = 0; r < kR; ++r) sum[r] = S::Set(0.0f);
    for (int64_t b = 0; b < w.blocks; ++b) {
      Prefetch<L>(block, kAhead);
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) {
        D dot[kR];
#pragma GCC unroll 8
        for (int r = 0; r < kR; ++r) {
          dot[r] = S::SetDot(Start<L>(w, x, b * x_rows + row + r, part));
        }
        const auto add_chunk = [&](int at) __attribute__((always_inline)) {
          const std::byte* const chunk = block.values + at / kPairs * L::kChunkBytes;
#pragma GCC unroll 16
          for (int i = 0; i < kPairs; ++i) {
            const I weights = Unpack::template Pair<L::kKind>(chunk, i);
#pragma GCC unroll 8
            for (int r = 0; r < kR; ++r) {
              dot[r] = AddPair(dot[r], weights, values + r * kBlock + 2 * (at + i));
              S::Pin(dot[r]);
            }
          }
        };
        // Outside the loop, so that nothing is added to a start of 0.
        add_chunk(part * 8);
#pragma GCC unroll 1
        for (int at = part * 8 + kPairs; at < part * 8 + 16 / kParts; at += kPairs) add_chunk(at);
        const F weight_scale = LoadScale<L::kWide>(block.scales, part);
#pragma GCC unroll 8
        for (int r = 0; r < kR; ++r) {
          sum[r] = S::Fma(S::Mul(weight_scale, S::Set(scales[r])), S::ToFloat(dot[r]), sum[r]);
        }
        if constexpr (L::kMin) {
          const F minimum = LoadScale<L::kWide>(block.scales, kParts + part);
#pragma GCC unroll 8
          for (int r = 0; r < kR; ++r) {
            const float x_sum = L::kHalves ? Sum<L>(x, b * x_rows + row + r, part) : sums[r];
            sum[r] = S::Fma(minimum, S::Set(x_sum), sum[r]);
          }
        }
      }
      block.values += L::kValueBytes;
      block.scales = ScalesOf<L>(w, panel, b + 1);
      values += x_rows * kBlock;
      scales += x_rows;
      sums += x_rows;
    }
    for (int r = 0; r < kR; ++r) S::Store(acc + (row + r) * 16, sum[r]);
  }

  // A panel × all rows of x. Each tile unpacks the weights again.
  template <class L>
  static void PackedPanel(const PanelView& w, const TileView& x, int64_t panel, float* acc) {
    const typename PackedShape::Rows rows(x.rows);
    for (int32_t t = 0, row = 0; t < rows.tiles; row += rows.Of(t++)) {
      PackedShape::WithRows(rows.Of(t),
                            [&](auto n) { PackedTile<L, n.value>(w, x, panel, row, acc); });
    }
  }

  // One block of kP panels × kR rows from `row` on: the integers are added in registers.
  template <class L, int kP, int kR>
  [[gnu::noinline]] static void QuantisedTile(const PanelView& w,
                                              const TileView& x,
                                              const I (&weights)[kP][16],
                                              const PanelBlock (&blocks)[kP],
                                              int64_t entry,
                                              int32_t row,
                                              float* acc) {
    const int16_t* values = x.values + (entry + row) * kBlock;
    const float* scales = x.scales + entry + row;
    const int64_t x_rows = x.rows;
    acc += row * 16;
    constexpr int kParts = L::kParts;
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part) {
      D dot[kP][kR];
#pragma GCC unroll 8
      for (int r = 0; r < kR; ++r) {
        const D start = S::SetDot(Start<L>(w, x, entry + row + r, part));
        const I pair = Pair(values + r * kBlock, part * 8);
        for (int p = 0; p < kP; ++p) dot[p][r] = S::DotPairs(start, weights[p][part * 8], pair);
      }
      const int from = part * 8;
#pragma GCC unroll 1
      for (int i = from + 1; i < from + 16 / kParts; ++i) {
#pragma GCC unroll 8
        for (int r = 0; r < kR; ++r) {
          const I pair = Pair(values + r * kBlock, i);
          for (int p = 0; p < kP; ++p) dot[p][r] = S::DotPairs(dot[p][r], weights[p][i], pair);
        }
      }
#pragma GCC unroll 8
      for (int p = 0; p < kP; ++p) {
        const F weight_scale = LoadScale<L::kWide>(blocks[p].scales, part);
        const F minimum =
            L::kMin ? LoadScale<L::kWide>(blocks[p].scales, kParts + part) : weight_scale;
        float* out = acc + p * x_rows * 16;
#pragma GCC unroll 8
        for (int r = 0; r < kR; ++r) {
          const F scale = S::Mul(weight_scale, S::Set(scales[r]));
          F sum = S::Fma(scale, S::ToFloat(dot[p][r]), S::Load(out + r * 16));
          if (L::kMin) sum = S::Fma(minimum, S::Set(Sum<L>(x, entry + row + r, part)), sum);
          S::Store(out + r * 16, sum);
        }
      }
    }
  }

  // kP panels × all rows of x. The weights of a block are unpacked once.
  template <class L, int kP>
  static void QuantisedPanel(const PanelView& w, const TileView& x, int64_t panel, float* acc) {
    constexpr int kPairs = Unpack::template kPairs<L::kKind>;
    constexpr int64_t kAheadBlocks = kAhead / kP / L::kValueBytes;
    const typename Tile::Rows rows(x.rows);
    for (int32_t i = 0; i < kP * x.rows; ++i) S::Store(acc + i * 16, S::Set(0.0f));
    PanelBlock blocks[kP];
    for (int p = 0; p < kP; ++p) blocks[p] = BlockOf<L>(w, panel + p, 0);
    for (int64_t b = 0; b < w.blocks; ++b) {
      // The block of the next kP panels follows the last block of these.
      const int64_t ahead = kAheadBlocks * L::kValueBytes +
                            (b + kAheadBlocks < w.blocks ? 0 : (kP - 1) * w.panel_bytes);
      I weights[kP][16];
#pragma GCC unroll 4
      for (int p = 0; p < kP; ++p) {
        Prefetch<L>(blocks[p], ahead);
#pragma GCC unroll 8
        for (int at = 0; at < 16; at += kPairs) {
          const std::byte* const chunk = blocks[p].values + at / kPairs * L::kChunkBytes;
#pragma GCC unroll 16
          for (int i = 0; i < kPairs; ++i) {
            weights[p][at + i] = Unpack::template Pair<L::kKind>(chunk, i);
          }
        }
      }
      S::Keep(weights);
      for (int32_t t = 0, row = 0; t < rows.tiles; row += rows.Of(t++)) {
        Tile::WithRows(rows.Of(t), [&](auto count) {
          if constexpr (kP <= Tile::Width(count.value)) {
            QuantisedTile<L, kP, count.value>(w, x, weights, blocks, b * x.rows, row, acc);
          }
        });
      }
#pragma GCC unroll 4
      for (int p = 0; p < kP; ++p) {
        blocks[p].values += L::kValueBytes;
        blocks[p].scales = ScalesOf<L>(w, panel + p, b + 1);
      }
    }
  }

  // Calls body(Count<panels>, first panel, sums) for `count` panels in as many at a time as the
  // tiles of Shape with `rows` rows are wide.
  template <class Shape, class Body>
  static void ForPanels(int32_t rows, int64_t panel, int32_t count, float* acc, const Body& body) {
    Shape::WithRows(typename Shape::Rows(rows).Of(0), [&](auto most) {
      constexpr int kWidth = Shape::Width(most.value);
      int32_t p = 0;
      for (; p + kWidth <= count; p += kWidth) {
        body(typename Shape::template Count<kWidth>(), panel + p, acc + p * rows * 16);
      }
      for (; p < count; ++p) {
        body(typename Shape::template Count<1>(), panel + p, acc + p * rows * 16);
      }
    });
  }

  template <class L>
  static void QuantisedGroup(
      const PanelView& w, const TileView& x, int64_t panel, int32_t count, float* acc) {
    if (x.rows == 1) {
      for (int32_t p = 0; p < count; ++p) PanelRow<L>(w, x, panel + p, acc + p * 16);
      return;
    }
    if (x.rows <= S::kPackedRows) {
      for (int32_t p = 0; p < count; ++p) {
        PackedPanel<L>(w, x, panel + p, acc + p * x.rows * 16);
      }
    } else if constexpr (S::kPackedRows < kTileRows) {
      ForPanels<Tile>(x.rows, panel, count, acc, [&](auto panels, int64_t first, float* sums) {
        QuantisedPanel<L, panels.value>(w, x, first, sums);
      });
    }
  }

  // Calls body(Layout) with the layout of `w`.
  template <PanelKind kKind, class Body>
  [[gnu::always_inline]] static void WithLayout(const PanelView& w, const Body& body) {
    if constexpr (kKind == PanelKind::kIQ4) {
      body(Layout<kKind, true, false, false>());
    } else if constexpr (kKind == PanelKind::kSix) {
      body(Layout<kKind, true, false, true>());
    } else if constexpr (kKind == PanelKind::kFive) {
      if (w.wide_scales) return body(Layout<kKind, true, true, false>());
      if (w.has_min) return body(Layout<kKind, false, true, false>());
      body(Layout<kKind, false, false, false>());
    } else if constexpr (kKind == PanelKind::kFp4) {
      if (w.half_groups) return body(Layout<kKind, true, false, true>());
      body(Layout<kKind, true, false, false>());
    } else {
      if constexpr (kKind == PanelKind::kNibble) {
        if (w.half_groups && w.has_min) return body(Layout<kKind, true, true, true>());
      }
      if (w.half_groups) return body(Layout<kKind, true, false, true>());
      if (w.has_min && w.wide_scales) return body(Layout<kKind, true, true, false>());
      if (w.has_min) return body(Layout<kKind, false, true, false>());
      if (w.wide_scales) return body(Layout<kKind, true, false, false>());
      body(Layout<kKind, false, false, false>());
    }
  }

  template <PanelKind kKind>
  static void QuantisedPanels(
      const PanelView& w, const TileView& x, int64_t panel, int32_t count, float* acc) {
    WithLayout<kKind>(
        w, [&](auto layout) { QuantisedGroup<decltype(layout)>(w, x, panel, count, acc); });
  }

  static void StoreRows(
      const float* acc, int32_t rows, const float* bias, float* out, int64_t stride, int n) {
    const F add = bias != nullptr ? S::LoadPart(bias, n) : S::Set(0.0f);
    for (int32_t row = 0; row < rows; ++row) {
      F value = S::Load(acc + row * 16);
      if (bias != nullptr) value = S::Add(value, add);
      Vector::StoreLanes(out + row * stride, value, n);
    }
  }

 private:
  static float AsFloat(int32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, sizeof(x));
    return x;
  }
};

}  // namespace baton::cpu
